"""Attention of `_tensor` against NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tapegrad import _tensor
from tapegrad.errors import DTypeError, ShapeError
from tests.kernels.layouts import LAYOUTS, Array, laid_out, normal

FLOATS = (np.float32, np.float64)
#: batch, heads, queries, keys, width, width of values
SIZES = [(2, 3, 5, 7, 4, 6), (1, 1, 1, 1, 1, 1), (2, 2, 33, 33, 16, 16), (4, 2, 64, 50, 32, 32)]


def attention(q: Array, k: Array, v: Array, mask: Array, scale: float) -> tuple[Array, Array]:
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = scale * q @ np.swapaxes(k, -1, -2) + mask
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    e = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = e.sum(-1, keepdims=True)
    p = np.divide(e, total, out=np.zeros_like(e), where=total > 0)
    return p @ v, p


def backward(arrays: tuple[Array, ...], p: Array, scale: float) -> tuple[Array, Array, Array]:
    g, q, k, v = (x.astype(np.float64) for x in arrays)
    gp = g @ np.swapaxes(v, -1, -2)
    gs = scale * p * (gp - (gp * p).sum(-1, keepdims=True))
    return gs @ k, np.swapaxes(gs, -1, -2) @ q, np.swapaxes(p, -1, -2) @ g


def masks(shape: tuple[int, ...], dtype: Any) -> list[Array | None]:
    b, h, t, s = shape
    blocked = np.where(normal((t, s), seed=9) > 0.5, -np.inf, 0.0)
    blocked[0] = -np.inf
    return [
        None,
        normal((b, h, t, s), dtype, 7),
        normal((s,), dtype, 8),
        normal((b, 1, 1, s), dtype, 8),
        blocked.astype(dtype),
    ]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("sizes", SIZES)
def test_attention(sizes: tuple[int, ...], dtype: Any, causal: bool) -> None:
    b, h, t, s, d, e = sizes
    q, k, v = (
        normal((b, h, t, d), dtype),
        normal((b, h, s, d), dtype, 1),
        normal((b, h, s, e), dtype),
    )
    g = normal((b, h, t, e), dtype, 2)
    atol = 50 * np.finfo(dtype).eps
    scale = d**-0.5
    for mask in masks((b, h, t, s), dtype):
        full = np.zeros((b, h, t, s)) if mask is None else mask.astype(np.float64)
        full = full + (np.where(np.tri(t, s) > 0, 0, -np.inf) if causal else 0)
        expected, p = attention(q, k, v, full, scale)
        gradients = backward((g, q, k, v), p, scale)
        for layout in LAYOUTS:
            lq, lk, lv, lg = (laid_out(x, layout) for x in (q, k, v, g))
            y, probabilities = _tensor.attention(lq, lk, lv, mask, scale, causal)
            np.testing.assert_allclose(y, expected, 0, atol)
            np.testing.assert_allclose(probabilities, p, 0, atol)
            got = _tensor.attention_backward(lg, lq, lk, lv, probabilities, scale)
            for ours, theirs in zip(got, gradients, strict=True):
                np.testing.assert_allclose(ours, theirs, 0, 4 * atol)


def test_heads_that_are_not_next_to_each_other() -> None:
    """As they come out of one projection: [batch, length, heads, width]."""
    q, k, v = (normal((2, 10, 4, 8), seed=i).transpose(0, 2, 1, 3) for i in range(3))
    expected, _ = attention(q, k, v, np.zeros(()), 0.3)
    np.testing.assert_allclose(_tensor.attention(q, k, v, None, 0.3, False)[0], expected, 0, 1e-13)


def test_nothing_to_see() -> None:
    q, k = np.zeros((2, 3, 4, 5)), np.zeros((2, 3, 0, 5))
    y, p = _tensor.attention(q, k, k, None, 1.0, False)
    assert y.shape == (2, 3, 4, 5)
    assert p.shape == (2, 3, 4, 0)
    np.testing.assert_array_equal(y, 0)
    gq, gk, _ = _tensor.attention_backward(y, q, k, k, p, 1.0)
    np.testing.assert_array_equal(gq, 0)
    assert gk.shape == k.shape


def test_wrong_arguments() -> None:
    x = np.zeros((2, 3, 4, 5))
    with pytest.raises(ShapeError, match="batch, heads"):
        _tensor.attention(x[0], x, x, None, 1.0, False)
    with pytest.raises(ShapeError, match=r"k \[b, h, s, d\]"):
        _tensor.attention(x, x[..., :4], x, None, 1.0, False)
    with pytest.raises(ShapeError, match=r"v \[b, h, s, e\]"):
        _tensor.attention(x, x, x[:, :, :3], None, 1.0, False)
    with pytest.raises(ShapeError, match="broadcasts to"):
        _tensor.attention(x, x, x, np.zeros((4, 5)), 1.0, False)
    with pytest.raises(ShapeError, match="broadcasts to"):
        _tensor.attention(x, x, x, np.zeros((1, 1, 1, 1, 1)), 1.0, False)
    with pytest.raises(DTypeError):
        _tensor.attention(x, x, x, np.zeros((4, 4), bool), 1.0, False)
    with pytest.raises(ShapeError, match="expected shape"):
        _tensor.attention_backward(x, x, x, x, x, 1.0)
