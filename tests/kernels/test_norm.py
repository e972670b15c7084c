"""Layer norm and batch norm of `_tensor` against NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tapegrad import _tensor
from tapegrad.errors import DTypeError, ShapeError
from tests.kernels.layouts import LAYOUTS, Array, laid_out, normal

FLOATS = (np.float32, np.float64)
EPS = 1e-5


def close(got: Array, expected: Array) -> None:
    """Equal to 100 units in the last place of the largest number."""
    scale = np.abs(expected).max(initial=1e-3)
    np.testing.assert_allclose(got, expected, 0, 100 * np.finfo(got.dtype).eps * scale)


def normalise(x: Array, axes: tuple[int, ...]) -> tuple[Array, Array, Array]:
    x = x.astype(np.float64)
    mean, var = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) / np.sqrt(var + EPS), mean, var


def normalise_backward(g: Array, x: Array, axes: tuple[int, ...]) -> Array:
    """The gradient through (x - mean) / deviation: what is orthogonal to 1 and to the result."""
    y, _, var = normalise(x, axes)
    inner = g - g.mean(axes, keepdims=True) - y * (g * y).mean(axes, keepdims=True)
    out: Array = inner / np.sqrt(var + EPS)
    return out


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("shape", "dims"),
    [((7,), 1), ((3, 1), 1), ((5, 16), 1), ((4, 3, 37), 2), ((2, 100, 130), 1), ((300, 200), 1)],
)
def test_layer_norm(shape: tuple[int, ...], dims: int, dtype: Any, layout: str) -> None:
    x, g = (laid_out(normal(shape, dtype, seed) * 3 + 1, layout) for seed in (0, 1))
    inner = shape[len(shape) - dims :]
    axes = tuple(range(len(shape) - dims, len(shape)))
    outer = tuple(range(len(shape) - dims))
    expected, mean, var = normalise(x, axes)
    weight, bias = normal(inner, dtype, 2), normal(inner, dtype, 3)
    for w, b in ((weight, bias), (weight, None), (None, bias), (None, None)):
        y, m, r = _tensor.layer_norm(x, w, b, dims, EPS)
        one, zero = w if w is not None else 1, b if b is not None else 0
        close(y, expected * one + zero)
        close(m, mean.reshape(m.shape))
        close(r, 1 / np.sqrt(var + EPS).reshape(r.shape))
        gx, gw, gb = _tensor.layer_norm_backward(g, x, m, r, w, (True, True, True))
        assert gx is not None
        assert gw is not None
        assert gb is not None
        close(gx, normalise_backward(g * one, x, axes))
        close(gw, (g * expected).sum(outer))
        close(gb, g.sum(outer, dtype=np.float64))
        only = _tensor.layer_norm_backward(g, x, m, r, w, (False, True, False))
        assert only[0] is None
        assert only[2] is None
        np.testing.assert_array_equal(np.asarray(only[1]), gw)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "shape", [(6, 3), (50, 17), (1, 3, 5), (4, 5, 7, 9), (3, 20, 56, 56), (700, 90), (5, 0, 2)]
)
def test_batch_norm(shape: tuple[int, ...], dtype: Any, layout: str) -> None:
    x, g = (laid_out(normal(shape, dtype, seed) * 3 + 1, layout) for seed in (0, 1))
    axes = (0, *range(2, len(shape)))
    channels = (shape[1], *[1] * (len(shape) - 2))
    expected, mean, var = normalise(x, axes)
    weight, bias = normal((shape[1],), dtype, 2), normal((shape[1],), dtype, 3)
    for w, b in ((weight, bias), (weight, None), (None, bias), (None, None)):
        one = w.reshape(channels) if w is not None else 1
        zero = b.reshape(channels) if b is not None else 0
        y, m, v, r = _tensor.batch_norm(x, w, b, EPS)
        close(y, expected * one + zero)
        close(m, mean.reshape(-1))
        close(v, var.reshape(-1))
        close(r, 1 / np.sqrt(var.reshape(-1) + EPS))
        close(_tensor.batch_norm_inference(x, w, b, m, v, EPS), expected * one + zero)
        gx, gw, gb = _tensor.batch_norm_backward(g, x, w, m, r)
        close(gx, normalise_backward(g * one, x, axes))
        close(gw, (g * expected).sum(axes))
        close(gb, g.sum(axes, dtype=np.float64))


@pytest.mark.parametrize("shape", [(64, 3, 50, 50), (20_000, 3)])
def test_a_large_mean_does_not_spoil_the_variance(shape: tuple[int, ...]) -> None:
    x = (normal(shape) + 1000).astype(np.float32)
    axes = (0, *range(2, len(shape)))
    _, mean, var, _ = _tensor.batch_norm(x, None, None, EPS)
    np.testing.assert_allclose(mean, x.mean(axes, dtype=np.float64), 1e-6)
    np.testing.assert_allclose(var, x.var(axes, dtype=np.float64), 1e-4)


def test_nan_stays_in_its_row_and_channel() -> None:
    x = normal((4, 6, 5))
    x[1, 2, 3] = np.nan
    y = _tensor.layer_norm(x, None, None, 1, EPS)[0]
    assert np.isnan(y).sum() == 5
    y = _tensor.batch_norm(x, None, None, EPS)[0]
    assert np.isnan(y).sum() == 20


def test_wrong_arguments() -> None:
    x, v = np.zeros((4, 6, 5)), np.zeros(6)
    with pytest.raises(ShapeError, match="1 to 3"):
        _tensor.layer_norm(x, None, None, 4, EPS)
    with pytest.raises(ShapeError, match="expected 30 elements"):
        _tensor.layer_norm(x, v, None, 2, EPS)
    with pytest.raises(ShapeError, match="leading dimensions"):
        _tensor.layer_norm_backward(x, x, v, v, None, (True, True, True))
    with pytest.raises(ShapeError, match="three"):
        _tensor.layer_norm_backward(x, x, np.zeros(4), np.zeros(4), None, (True, True))
    with pytest.raises(ShapeError, match=r"\[batch, channels"):
        _tensor.batch_norm(v, None, None, EPS)
    with pytest.raises(ShapeError, match="at least one value"):
        _tensor.batch_norm(np.zeros((0, 3)), None, None, EPS)
    with pytest.raises(DTypeError, match="float64"):
        _tensor.batch_norm(x, v.astype(np.float32), None, EPS)
    with pytest.raises(TypeError):
        _tensor.batch_norm_inference(x, v, v, None, v, EPS)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="expected shape"):
        _tensor.batch_norm_backward(x[:2], x, v, v, v)
