"""Losses that pick one entry per element, against a loop in NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tapegrad import _tensor
from tapegrad.errors import DTypeError, OptionError, ShapeError
from tests.kernels.layouts import LAYOUTS, Array, laid_out, normal, tolerance

RNG = np.random.default_rng(0)
REDUCTIONS = ("none", "sum", "mean")


def picked(x: Array, target: Array, weight: Array | None, ignored: int) -> tuple[Array, float]:
    """Losses of x (N, C, M), one by one, and the sum of the weights."""
    losses, total = np.zeros(target.shape), 0.0
    for n, m in np.ndindex(*target.shape):
        k = target[n, m]
        if k != ignored:
            factor = 1.0 if weight is None else float(weight[k])
            losses[n, m] = -float(x[n, k, m]) * factor
            total += factor
    return losses, total


def reduced(losses: Array, total: float, reduction: str) -> Any:
    if reduction == "none":
        return losses
    return losses.sum() / (total if reduction == "mean" else 1)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
def test_values_and_gradients(reduction: str, dtype: Any, layout: str, weighted: bool) -> None:
    x = laid_out(normal((4, 5, 3), dtype), layout)
    target = laid_out(RNG.integers(0, 5, (4, 3)), layout)
    weight = RNG.random(5).astype(dtype) if weighted else None
    loss, total = _tensor.nll_loss(x, target, weight, 1, 2, reduction)
    losses, factors = picked(x, target, weight, 2)
    near = tolerance(dtype)
    np.testing.assert_allclose(loss, reduced(losses, factors, reduction), near, near)
    np.testing.assert_allclose(total, factors, near)
    assert loss.dtype == total.dtype == dtype
    g = normal((4, 3) if reduction == "none" else (), dtype, seed=1)
    got = _tensor.nll_loss_backward(g, target, weight, total, x.shape, 1, 2, reduction)
    expected = np.zeros(x.shape)
    scale = np.broadcast_to(g / (factors if reduction == "mean" else 1), (4, 3))
    for n, m in np.ndindex(4, 3):
        if target[n, m] != 2:
            factor = 1 if weight is None else weight[target[n, m]]
            expected[n, target[n, m], m] = -scale[n, m] * factor
    np.testing.assert_allclose(got, expected, near, near)


def test_many_and_none() -> None:
    x = normal((100_000, 3), np.float32)
    target = RNG.integers(0, 3, 100_000).astype(np.int32)
    loss, _ = _tensor.nll_loss(x, target, None, 1, -100, "mean")
    expected = -np.take_along_axis(x, target[:, None].astype(np.int64), 1).mean(dtype=np.float64)
    assert math.isclose(float(loss), expected, rel_tol=1e-6)
    loss, total = _tensor.nll_loss(x[:0], target[:0], None, 1, -100, "mean")
    assert math.isnan(float(loss)) and float(total) == 0


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda x, t: _tensor.nll_loss(x, t + 3, None, 1, -100, "sum"), IndexError, "class 3"),
        (lambda x, t: _tensor.nll_loss(x, t - 1, None, 1, -100, "sum"), IndexError, "class -1"),
        (lambda x, t: _tensor.nll_loss(x, t, None, 2, -100, "sum"), ShapeError, "from 0 to 1"),
        (lambda x, t: _tensor.nll_loss(x, t[:1], None, 1, -100, "sum"), ShapeError, r"\(2,\)"),
        (lambda x, t: _tensor.nll_loss(x, t, x[0, :2], 1, -100, "sum"), ShapeError, "weight"),
        (lambda x, t: _tensor.nll_loss(x, t, None, 1, -100, "most"), OptionError, "'most'"),
        (lambda x, t: _tensor.nll_loss(x, x, None, 1, -100, "sum"), DTypeError, "target"),
        (lambda x, t: _tensor.nll_loss(t, t, None, 0, -100, "sum"), DTypeError, "nll_loss: x"),
        (
            lambda x, t: _tensor.nll_loss_backward(
                x, t, None, x[0, 0, ...], (2, 3), 1, -100, "sum"
            ),
            ShapeError,
            "a gradient of 1 elements",
        ),
        (
            lambda x, t: _tensor.nll_loss_backward(
                x[0, 0, ...], t + 9, None, x[0, 0, ...], (2, 3), 1, -100, "sum"
            ),
            IndexError,
            "class 9",
        ),
    ],
)
def test_what_does_not_fit_is_said(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        call(np.ones((2, 3)), np.zeros(2, np.int64))
