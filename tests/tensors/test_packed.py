"""Weights that stay packed from call to call: no change of them goes unseen."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import nn, optim

onednn = pytest.importorskip("tapegrad._onednn")


def _step(layer: Any, x: Any) -> None:
    opt = optim.SGD(layer.parameters(), lr=0.5)
    layer(x).sum().backward()
    opt.step()


def _through_data(layer: Any, x: Any) -> None:
    """Give a weight memory that somebody else changes after."""
    other = layer.weight.detach() * 2
    layer.weight.data = other
    with tg.no_grad():
        layer(x), layer(x)
    other.mul_(0.5)


#: Ways to change a weight.
CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "optimiser": _step,
    "in place": lambda layer, x: layer.weight.detach().mul_(2),
    "a part": lambda layer, x: layer.weight.detach()[1:].zero_(),
    "assignment": lambda layer, x: layer.weight.detach().__setitem__(0, 3.0),
    "data": lambda layer, x: setattr(layer.weight, "data", layer.weight.detach() * 3),
    "data, then its source": _through_data,
    "state_dict": lambda layer, x: layer.load_state_dict(
        {name: each * 2 for name, each in layer.state_dict().items()}
    ),
    "numpy": lambda layer, x: np.multiply(
        layer.weight.detach().numpy(), 2, out=layer.weight.detach().numpy()
    ),
    "asarray": lambda layer, x: np.asarray(layer.weight).fill(0.5),
    "dlpack": lambda layer, x: np.from_dlpack(layer.weight.detach()).fill(0.25),
    "another type and back": lambda layer, x: layer.double().float(),
    "init": lambda layer, x: nn.init.ones_(layer.weight),
}
LAYERS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(48, 40), (20, 48)),
    "conv2d": (lambda: nn.Conv2d(16, 32, 3, padding=1), (1, 16, 9, 9)),
}


def _plain(layer: Any, x: Any) -> Any:
    """Return the layer's result by a copy that never was used before."""
    fresh = tg.nn.functional.linear if isinstance(layer, nn.Linear) else tg.nn.functional.conv2d
    options = {} if isinstance(layer, nn.Linear) else {"padding": 1}
    return fresh(x, layer.weight.detach().clone(), layer.bias.detach(), **options)


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    tg.manual_seed(0)
    yield
    tg.set_packed_limit(2**30)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", LAYERS)
def test_a_change_of_the_weight_is_seen(kind: str, change: str) -> None:
    make, shape = LAYERS[kind]
    layer, x = make(), tg.randn(shape)
    for _ in range(3):  # changed again once packed
        before = None
        for _ in range(3):
            with tg.inference_mode():
                found = layer(x)
            assert tg.equal(found, _plain(layer, x))
            assert before is None or tg.equal(found, before)
            before = found
        CHANGES[change](layer, x)


def test_memory_that_numpy_owns_is_not_kept() -> None:
    array, x = np.ones((40, 48), np.float32), tg.randn(20, 48)
    weight = tg.from_numpy(array)
    for factor in (1.0, 2.0, 3.0):
        array[...] = factor
        for _ in range(3):
            assert tg.equal(
                nn.functional.linear(x, weight), nn.functional.linear(x, weight.clone())
            )


def test_copies_go_with_their_weight_and_with_a_limit_of_0_there_are_none() -> None:
    gc.collect()
    before = onednn.packed_bytes()
    layer, x = nn.Linear(48, 40), tg.randn(20, 48)
    with tg.no_grad():
        view = layer.weight.T
        layer(x), layer(x)
        assert onednn.packed_bytes() >= before + layer.weight.nbytes
        del layer
        assert onednn.packed_bytes() > before  # a view still has the memory
        del view
        assert onednn.packed_bytes() == before
        tg.set_packed_limit(0)
        layer = nn.Linear(48, 40)
        layer(x), layer(x)
        assert onednn.packed_bytes() == before and tg.get_packed_limit() == 0


def test_training_keeps_nothing_but_what_is_used_twice() -> None:
    gc.collect()
    before = onednn.packed_bytes()
    layer, x = nn.Conv2d(16, 32, 3), tg.randn(1, 16, 9, 9, requires_grad=True)
    opt = optim.SGD(layer.parameters(), lr=0.1)
    for parts in (1, 1, 3, 1, 1):
        for _ in range(parts):
            layer(x).square().sum().backward()
        assert (onednn.packed_bytes() > before) == (parts > 1)
        opt.step()
        if parts > 1:
            layer(x).square().sum().backward()
            opt.step()


@pytest.mark.parametrize("limit", [-1, 1.5, "1", None, True, 2**63])
def test_a_limit_that_is_no_number_of_bytes_raises(limit: Any) -> None:
    with pytest.raises(tg.OptionError, match="set_packed_limit"):
        tg.set_packed_limit(limit)
