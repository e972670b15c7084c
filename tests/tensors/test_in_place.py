"""Changes in place: what they give, what they must not break, what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapegrad.tensors as tt
from tapegrad.errors import GradError, ShapeError
from tests.tensors.cases import DEVICES

CHANGES: dict[str, Any] = {
    "add_": lambda x: x.add_(2.0),
    "add_ alpha": lambda x: x.add_(tt.ones_like(x), alpha=3),
    "sub_": lambda x: x.sub_(1.5),
    "mul_": lambda x: x.mul_(2.0),
    "div_": lambda x: x.div_(4.0),
    "neg_": lambda x: x.neg_(),
    "exp_": lambda x: x.exp_(),
    "sqrt_": lambda x: x.sqrt_(),
    "relu_": lambda x: x.relu_(),
    "clamp_": lambda x: x.clamp_(0.5, 1.5),
    "fill_": lambda x: x.fill_(7.0),
    "zero_": lambda x: x.zero_(),
    "copy_": lambda x: x.copy_(tt.full_like(x, 3.0)),
}
EXPECTED: dict[str, Any] = {
    "add_": lambda a: a + 2,
    "add_ alpha": lambda a: a + 3,
    "sub_": lambda a: a - 1.5,
    "mul_": lambda a: a * 2,
    "div_": lambda a: a / 4,
    "neg_": lambda a: -a,
    "exp_": np.exp,
    "sqrt_": np.sqrt,
    "relu_": lambda a: np.maximum(a, 0),
    "clamp_": lambda a: np.clip(a, 0.5, 1.5),
    "fill_": lambda a: np.full_like(a, 7),
    "zero_": np.zeros_like,
    "copy_": lambda a: np.full_like(a, 3),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CHANGES)
def test_changes_write_into_the_same_memory(name: str, device: str) -> None:
    array = np.array([[0.25, 1.0], [4.0, 9.0]])
    x = tt.tensor(array, device=device)
    memory, before = x.numpy(), x._version
    assert CHANGES[name](x) is x
    assert np.shares_memory(x.numpy(), memory) and x._version > before
    np.testing.assert_allclose(x.numpy(), EXPECTED[name](array), rtol=1e-12)


@pytest.mark.parametrize("name", CHANGES)
def test_changes_are_recorded(name: str) -> None:
    def function(x: Any) -> Any:
        y = x * 2.0
        CHANGES[name](y)
        return y * x

    x = tt.tensor([0.3, 0.6, 1.2], dtype="float64", requires_grad=True)
    assert tt.gradcheck(function, x)


def test_operators_that_assign_work_in_place() -> None:
    x = view = tt.tensor([1.0, 2.0])
    x += 1
    x *= tt.tensor([2.0, 3.0])
    x -= 1
    x /= 2
    assert x is view and x.tolist() == [1.5, 4.0]


@pytest.mark.parametrize("op", [lambda x: x.exp(), lambda x: x.sigmoid(), lambda x: x.sqrt()])
def test_results_that_gradients_need_may_not_change(op: Any) -> None:
    x = tt.tensor([1.0, 2.0], requires_grad=True)
    y = op(x)
    y.add_(1.0)
    with pytest.raises(GradError, match=r"changed in place.*x\.clone\(\)"):
        y.sum().backward()


@pytest.mark.parametrize("op", [lambda x, w: x * w, lambda x, w: x.square() + w, tt.matmul])
def test_operands_that_gradients_need_may_not_change(op: Any) -> None:
    x, w = tt.ones(2, requires_grad=True) * 1, tt.ones(2, requires_grad=True)
    y = op(x, w)
    x.mul_(3.0)
    with pytest.raises(GradError, match="changed in place"):
        y.sum().backward()


def test_a_change_through_a_view_or_a_write_is_seen() -> None:
    w = tt.ones(3, requires_grad=True)
    changes: list[Callable[[Any], Any]] = [
        lambda x: x[1:].fill_(5.0),
        lambda x: x.detach().zero_(),
        lambda x: x.__setitem__(0, 9.0),
        lambda x: x.reshape(3, 1).mul_(2),
        lambda x: x.data.add_(1),
    ]
    for change in changes:
        x = tt.ones(3)
        y = (x * w).sum()
        change(x)
        with pytest.raises(GradError, match="changed in place"):
            y.backward()


def test_a_change_below_an_expanded_view_is_seen() -> None:
    x, w = tt.ones(3, 1), tt.ones(3, 2, requires_grad=True)
    y = (x.expand(3, 2) * w).sum()
    x.add_(1)
    with pytest.raises(GradError, match="changed in place"):
        y.backward()


def test_what_was_copied_is_no_view() -> None:
    x = tt.ones(2, 3, requires_grad=True)
    for y in (
        x.T.reshape(6),
        tt.embedding(tt.tensor([[0, 1]]), x),
        (x * 2).reshape(6),
        x.logsumexp(0),
    ):
        y.add_(1.0)
    with pytest.raises(GradError, match="a view of a leaf"):
        x.reshape(6).add_(1.0)


def test_what_is_not_needed_may_change() -> None:
    x = tt.tensor([1.0, 2.0], requires_grad=True)
    y = x + 1
    y.mul_(2.0)
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 2.0]


def test_leaves_change_only_without_recording() -> None:
    x = tt.ones(2, requires_grad=True)
    for change in (lambda: x.add_(1), x.zero_, lambda: x.__setitem__(0, 1.0)):
        with pytest.raises(GradError, match=r"no_grad\(\)"):
            change()
    with tt.no_grad():
        x.add_(1)
        x[0] = 7.0
    assert x.tolist() == [7.0, 2.0] and x.requires_grad and x.is_leaf


def test_results_do_not_grow_in_place() -> None:
    x = tt.ones(2)
    with pytest.raises(ShapeError, match=r"\(2,\)"):
        x.add_(tt.ones(3, 2))
    with pytest.raises(TypeError, match="float32"):
        tt.tensor([1, 2]).add_(1.5)
    with pytest.raises(TypeError):
        tt.tensor([1, 2]).div_(2)


def test_overlapping_memory_is_read_before_it_is_written() -> None:
    for device in DEVICES:
        x = tt.arange(5.0, device=device)
        x[1:].add_(x[:-1])
        assert x.tolist() == [0.0, 1.0, 3.0, 5.0, 7.0]
        y = tt.arange(4.0, device=device)
        y.copy_(y.flip(0))
        assert y.tolist() == [3.0, 2.0, 1.0, 0.0]


def test_expanded_and_read_only_memory_is_not_written() -> None:
    array = np.ones(3)
    array.flags.writeable = False
    x = tt.from_numpy(array)
    with pytest.raises((ShapeError, ValueError), match="read-only"):
        x.add_(1)
    with pytest.raises((ShapeError, ValueError), match="an array that is read-only; use"):
        x[0] = 1.0
    with pytest.raises((ShapeError, ValueError), match=r"an expanded view, .*; use"):
        tt.ones(3, 1).expand(3, 2).add_(1)
    assert array.tolist() == [1, 1, 1]


def test_data_is_replaced_with_its_history_cut() -> None:
    x = tt.ones(2, requires_grad=True)
    x.data = tt.zeros(3)
    assert x.shape == (3,) and x.requires_grad and not x.data.requires_grad


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "change",
    [lambda x: x.add_(1), lambda x: x.sin_(), lambda x: x.relu_(), lambda x: x.fill_(2)],
)
def test_expanded_views_are_not_written(change: Callable[[Any], Any], device: str) -> None:
    with pytest.raises(ShapeError, match="expanded view"):
        change(tt.ones(3, device=device).expand(2, 3))
