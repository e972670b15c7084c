"""Models against PyTorch nets with the same weights: outputs, gradients, statistics, steps."""

from __future__ import annotations

from typing import Any

import pytest

from tapegrad import models, nn
from tapegrad.errors import OptionError
from tapegrad.tensors import ones
from tests.models import networks
from tests.oracles.torch import Torch, assert_equal, tapegrad

#: As torchvision's pages have them.
COUNTS = {
    "vgg11": 132_863_336,
    "vgg11_bn": 132_868_840,
    "vgg13": 133_047_848,
    "vgg13_bn": 133_053_736,
    "vgg16": 138_357_544,
    "vgg16_bn": 138_365_992,
    "vgg19": 143_667_240,
    "vgg19_bn": 143_678_248,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
}


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave 140 million numbers as they are that nobody reads."""
    for fill in ("uniform_", "normal_", "constant_"):
        monkeypatch.setattr(nn.init, fill, lambda tensor, *_: tensor)


def _model(name: str) -> Any:
    make = getattr(models, name)
    if name.startswith("vgg"):
        return networks.narrow(nn, make(init_weights=False, dropout=0.0))
    width = {"width_per_group": networks.WIDTHS[name]} if name in networks.WIDTHS else {}
    return make(num_classes=networks.CLASSES, **width)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", COUNTS)
def test_model_trains_as_in_pytorch(torch: Torch, name: str) -> None:
    ours = networks.train(tapegrad(), _model(name), name, "float64")
    assert_equal(ours, torch(networks.reference, name, "float64"), 1e-6)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", ["vgg11_bn", "resnet18"])
def test_model_in_single_precision(torch: Torch, name: str) -> None:
    ours = networks.train(tapegrad(), _model(name), name, "float32")
    theirs = torch(networks.reference, name, "float32")
    assert_equal(ours["outputs of step 0"], theirs["outputs of step 0"], 1e-4)
    assert_equal(ours["gradients"], theirs["gradients"], 5e-3)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_number_of_parameters(name: str, count: int) -> None:
    model = getattr(models, name)()
    assert sum(each.numel() for each in model.parameters()) == count
    assert repr(model).splitlines()[0].endswith(f"{count:,} parameters")


def test_weights_begin_as_torchvisions() -> None:
    model = models.resnet18(zero_init_residual=True, num_classes=3)
    fan_out = 64 * 9
    deviation = model.layer1[0].conv1.weight.detach().std().item()
    assert abs(deviation / (2 / fan_out) ** 0.5 - 1) < 0.02
    assert (model.layer1[0].bn2.weight == 0).all() and (model.layer1[0].bn1.weight == 1).all()


def test_dilation_keeps_images_large() -> None:
    model = models.resnet50(num_classes=2, replace_stride_with_dilation=(False, True, True))
    seen: list[tuple[int, ...]] = []
    model.layer4.register_forward_hook(lambda _, args, out: seen.append(tuple(out.shape)))
    assert tuple(model.eval()(ones(1, 3, 32, 32)).shape) == (1, 2)
    assert seen == [(1, 2048, 4, 4)]


def test_misuse_is_explained() -> None:
    with pytest.raises(OptionError, match="4 layers"):
        models.ResNet(models.BasicBlock, (2, 2))
    with pytest.raises(OptionError, match="Bottleneck takes others"):
        models.resnet18(groups=2)


@pytest.mark.usefixtures("undrawn")
def test_weights_are_not_fetched() -> None:
    assert isinstance(models.resnet18(weights=None), models.ResNet)
    for make in (models.resnet18, models.vgg11):
        with pytest.raises(OptionError, match=r"weights: expected None, .* load a file"):
            make(weights="DEFAULT")
