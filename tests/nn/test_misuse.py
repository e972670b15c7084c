"""Mistakes with layers, optimisers, schedules and data: said at once, with what to do."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import data, io, nn, optim
from tapegrad.errors import DTypeError, OptionError, ShapeError, StateError, TapegradError

#: Without types, for what types would not let pass.
init: Any = nn.init
loose: Any = optim
rows: Any = data.TensorDataset
clip_grad_norm_: Any = nn.utils.clip_grad_norm_
clip_grad_value_: Any = nn.utils.clip_grad_value_


def _model() -> nn.Linear:
    return nn.Linear(2, 3)


def _weights() -> list[Any]:
    return list(_model().parameters())


MISTAKES: list[tuple[Callable[[], Any], type[TapegradError], str]] = [
    (lambda: init.xavier_uniform_(_model()), DTypeError, "tensor to be a tensor, got Linear"),
    (lambda: init.kaiming_normal_(np.ones((2, 2))), DTypeError, "NumPy array; tg.from_numpy"),
    (lambda: init.zeros_(np.ones(2)), DTypeError, "NumPy array; tg.from_numpy"),
    (lambda: init.uniform_([1.0]), DTypeError, "list; tg.tensor"),
    (lambda: init.normal_(None), DTypeError, "NoneType; make one"),
    (lambda: init.eye_(3), DTypeError, "int; tg.tensor"),
    (lambda: loose.LambdaLR(_model(), lambda _: 1.0), DTypeError, r"Linear; .*optim\.SGD"),
    (lambda: loose.StepLR(3, 1), DTypeError, "Optimizer, got int"),
    (lambda: loose.SGD(_model()), DTypeError, r"Linear; pass model\.parameters\(\)"),
    (lambda: loose.SGD(nn.Sequential(_model())), DTypeError, r"pass model\.parameters\(\)"),
    (lambda: loose.SGD(3), DTypeError, r"one int; pass model\.parameters\(\)"),
    (lambda: loose.SGD(_weights(), lr="a"), OptionError, "at least 0 as lr, got 'a'"),
    (lambda: loose.Adam(_weights(), betas={}), OptionError, r"two betas in \[0, 1\), got \{\}"),
    (lambda: loose.Adam(_weights(), betas=0.9), OptionError, "two betas"),
    (lambda: loose.Adam(_weights(), betas=(0.9,)), OptionError, "two betas"),
    (lambda: clip_grad_norm_(_model(), 1.0), DTypeError, r"Linear; pass model\.parameters\(\)"),
    (lambda: clip_grad_norm_(nn.Sequential(), 1.0), DTypeError, r"pass model\.parameters\(\)"),
    (lambda: clip_grad_norm_([3], 1.0), DTypeError, "Tensors as parameters, got int"),
    (lambda: clip_grad_norm_(_weights(), 1.0, 0), OptionError, r"norm_type above 0, or math\.inf"),
    (lambda: clip_grad_norm_(_weights(), 1.0, -math.inf), OptionError, "norm_type above 0"),
    (lambda: clip_grad_norm_(_weights(), "a"), DTypeError, "max_norm to be a number"),
    (lambda: clip_grad_value_(_model(), 1.0), DTypeError, r"pass model\.parameters\(\)"),
    (lambda: clip_grad_value_(_weights(), None), DTypeError, "clip_value to be a number"),
    (lambda: rows([1, 2]), DTypeError, "tensor 0 to be a tensor, got list"),
    (lambda: rows(tg.ones(3), np.ones((3, 2))), DTypeError, "tensor 1 .* NumPy array"),
    (
        lambda: data.DataLoader(iter([1, 2])),
        DTypeError,
        "list_iterator; put .* into a list",
    ),
    (lambda: data.DataLoader(3), DTypeError, "__getitem__ and __len__, got int"),
    (lambda: io.save({"__metadata__": tg.ones(1)}, Path("a")), DTypeError, "rename the tensor"),
    (lambda: nn.Sequential(nn.ReLU()) + nn.ReLU(), DTypeError, "use append for one"),
]


@pytest.mark.parametrize(("call", "error", "message"), MISTAKES)
def test_mistakes_are_explained(
    call: Callable[[], Any], error: type[TapegradError], message: str
) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("recorded", [False, True])
def test_elements_that_do_not_fit_a_mask(recorded: bool) -> None:
    x, mask = tg.zeros(2, 3), tg.tensor([[True, False, True], [False, True, False]])
    y = tg.ones(2, 2, requires_grad=recorded)
    with pytest.raises(ShapeError, match=r"x\[\.\.\.\] = y: expected .* \(3,\), got \(2, 2\)"):
        x[mask] = y


# ---- state of optimisers ------------------------------------------------------------------------


class Foreign:
    """A tensor of another library: NumPy can read it."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.array


def _stepped(optimizer: Any, weight: Any) -> list[float]:
    (weight * weight).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    found: list[float] = weight.tolist()
    return found


@pytest.mark.parametrize("kind", [np.asarray, Foreign])
def test_state_of_other_libraries_is_read(kind: Any) -> None:
    first, again = (tg.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    ours, theirs = optim.Adam([first]), optim.Adam([again])
    assert _stepped(ours, first) == _stepped(theirs, again)
    saved = ours.state_dict()
    state = {key: kind(np.array(value)) for key, value in saved["state"][0].items()}
    theirs.load_state_dict(saved | {"state": {0: state}})
    assert _stepped(ours, first) == _stepped(theirs, again)


@pytest.mark.parametrize("array", [np.array(["a", "b"]), np.array([1j, 2j])])
def test_state_that_cannot_be_read_is_refused(array: Any) -> None:
    weight = tg.ones(2, requires_grad=True)
    optimizer = optim.Adam([weight])
    _stepped(optimizer, weight)
    saved = optimizer.state_dict()
    saved["state"][0]["exp_avg"] = array
    with pytest.raises(StateError, match="'exp_avg' of parameter 0 that cannot be read"):
        optimizer.load_state_dict(saved)


def test_saved_state_stays_as_it_was() -> None:
    weight = tg.tensor([1.0, 2.0], requires_grad=True)
    optimizer = optim.Adam([weight])
    _stepped(optimizer, weight)
    saved, before = optimizer.state_dict(), weight.detach().clone()
    once = _stepped(optimizer, weight)
    optimizer.load_state_dict(saved)
    with tg.no_grad():
        weight.copy_(before)
    assert _stepped(optimizer, weight) == once
