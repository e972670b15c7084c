"""Every operation of the table, on every device, in every layout, against PyTorch."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import tapegrad.tensors as tt
from tapegrad.apidoc import public
from tapegrad.backends import cpu
from tests.oracles.torch import Torch, assert_equal, tapegrad
from tests.tensors.cases import DEVICES, DTYPES, LAYOUTS, PUBLIC, RECORDS, RTOL, cases
from tests.tensors.torch_calls import (
    differentiate,
    function,
    parameters,
    signatures,
    unknown_names,
    weight,
)

_ANSWERS: dict[tuple[str, str], Any] = {}


def answers(torch: Torch, name: str, dtype: str) -> Any:
    """Return PyTorch's results and gradients for all samples of an operation, asked for once."""
    key = name, dtype
    if key not in _ANSWERS:
        calls = [case.torch_call() for case in cases(PUBLIC[name], dtype)]
        _ANSWERS[key] = torch(differentiate, calls)
    return _ANSWERS[key]


def gradients(outs: tuple[Any, ...], operands: list[Any], create_graph: bool = False) -> list[Any]:
    """Return the gradients of a weighted sum of results, as arrays."""
    smooth = [out for out in outs if out.requires_grad]
    wanted = [x for x in operands if x.requires_grad]
    if not smooth or not wanted:
        return []
    weights = [out.new_tensor(weight(out.shape)) for out in smooth]
    found = tt.grad(smooth, wanted, weights, create_graph=create_graph, allow_unused=True)
    return [None if each is None else each.detach().numpy() for each in found]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PUBLIC)
def test_values_and_gradients_are_those_of_pytorch(
    torch: Torch, name: str, dtype: str, device: str
) -> None:
    for case, expected in zip(cases(PUBLIC[name], dtype), answers(torch, name, dtype), strict=True):
        for layout in LAYOUTS:
            operands = case.tensors(device, layout)
            outs = case(operands)
            ours = [out.detach().numpy() for out in outs], gradients(outs, operands)
            assert_equal(ours, expected, RTOL[dtype], f"{name} {case.sample} {layout}")
            assert all(out.device.name == device for out in outs)


@pytest.mark.parametrize("name", RECORDS)
def test_results_lie_alike_on_every_device(name: str) -> None:
    for case in cases(RECORDS[name], "float32"):
        for layout in LAYOUTS:
            lying = []
            for device in DEVICES:
                outs = case(case.tensors(device, layout))
                lying.append([out.stride() for out in outs])
            assert lying[0] == lying[1], f"{name} {case.sample} {layout}"


OF_A_VIEW: dict[str, Callable[[Any], Any]] = {
    "add": lambda x: x + 1,
    "to": lambda x: x.to(tt.float64),
    "where": lambda x: tt.where(x > 1, x, 0.0),
    "relu": tt.relu,
    "softmax": lambda x: x.softmax(0),
    "elu": tt.elu,
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", OF_A_VIEW)
def test_what_is_computed_of_a_view_lies_in_order(name: str, device: str) -> None:
    x = tt.arange(6.0, device=device).reshape(2, 3)
    wide = x.unsqueeze(1).expand(2, 4, 3)
    for view in (x.T, x.expand(2, 2, 3), wide, wide.permute(2, 0, 1)):
        y = OF_A_VIEW[name](view)
        assert y.is_contiguous()
        y.view(-1).zero_()
        assert not bool(y.any())


@pytest.mark.parametrize("name", ["matmul", "linear", "conv2d", "bmm()", "einsum()"])
def test_the_cpu_does_without_onednn(
    torch: Torch, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(cpu, "_onednn", None)
    for case, expected in zip(
        cases(PUBLIC[name], "float32"), answers(torch, name, "float32"), strict=True
    ):
        for layout in LAYOUTS:
            operands = case.tensors("cpu", layout)
            outs = case(operands)
            ours = [out.detach().numpy() for out in outs], gradients(outs, operands)
            assert_equal(ours, expected, RTOL["float32"], f"{name} {case.sample} {layout}")


#: PyTorch says nothing of the names.
WITHOUT_NAMES = {"where", "isfinite"}


def test_arguments_have_the_names_of_pytorch(torch: Torch) -> None:
    calls = {}
    for op in PUBLIC.values():
        name = op.function or op.name
        for case in cases(op, "float32"):
            named = case.named()
            if named is not None and name not in WITHOUT_NAMES:
                calls[name] = named
    assert len(calls) > 110
    assert torch(unknown_names, calls) == {}


#: Arguments of PyTorch's that no function here takes: results are new, in one layout; the rest is
#: how PyTorch writes its own wrappers.
LEFT_OUT = {"out", "memory_format", "_stacklevel", "args", "kwargs"}
#: And those of single functions: half-precision results, lists and texts as PyTorch's compiler has
#: them, bytes seen as another type.
LEFT_OUT_OF = {
    "bmm": {"out_dtype"},
    "eq": {"a", "b"},
    "expand": {"implicit"},
    "mm": {"out_dtype"},
    "ne": {"a", "b"},
    "sort": {"reverse"},
    "view": {"dtype"},
}


def _classes() -> list[str]:
    """Return what PyTorch's Python defines and tapegrad has, too, by name."""
    lib = tapegrad()
    places = {"nn": lib.nn, "F": lib.F, "optim": lib.optim, "data": lib.data}
    places |= {"nn.init": lib.nn.init, "nn.utils": lib.nn.utils}
    places |= {"optim.lr_scheduler": lib.optim.lr_scheduler}
    found = [f"{place}.{name}" for place, module in places.items() for name in public(module)]
    for name in ("nn.Module", "nn.Sequential", "nn.ModuleList", "optim.Optimizer"):
        owner = getattr(lib.nn if "nn" in name else lib.optim, name.partition(".")[2])
        found += [f"{name}.{each}" for each in vars(owner) if not each.startswith("_")]
    return found


def test_classes_take_the_arguments_of_pytorch(torch: Torch) -> None:
    names = _classes()
    theirs, ours = torch(signatures, names), signatures(tapegrad(), names)
    assert len(theirs) > 100
    wrong = {}
    for name, (placed, named) in theirs.items():
        have, others = ours[name]
        places = [each for each in placed if each not in LEFT_OUT]
        if have[: len(places)] != places or set(named) - {*have, *others} - LEFT_OUT:
            wrong[name] = (placed, named), ours[name]
    assert wrong == {}


def test_functions_take_the_arguments_of_pytorch(torch: Torch) -> None:
    names = sorted({op.function or op.name for op in PUBLIC.values()} - WITHOUT_NAMES)
    missing = {}
    for name, theirs in torch(parameters, names).items():
        ours = inspect.signature(function(tapegrad(), name)).parameters
        missing[name] = set(theirs) - set(ours) - LEFT_OUT
    assert {name: left for name, left in missing.items() if left} == LEFT_OUT_OF
