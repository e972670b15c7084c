"""Pooling of `_tensor` against loops over windows in NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

from tapegrad import _tensor
from tapegrad.errors import ShapeError
from tests.kernels.layouts import LAYOUTS, Array, laid_out, normal

FLOATS = (np.float32, np.float64)
Pair = tuple[int, int]

#: kernel, stride, padding, dilation
WINDOWS: list[tuple[Pair, Pair, Pair, Pair]] = [
    ((2, 2), (2, 2), (0, 0), (1, 1)),
    ((3, 3), (2, 2), (1, 1), (1, 1)),
    ((3, 3), (1, 1), (1, 1), (1, 1)),
    ((3, 2), (3, 1), (1, 0), (1, 1)),
    ((2, 3), (2, 3), (1, 1), (2, 2)),
    ((5, 4), (4, 5), (2, 2), (1, 1)),
]


def out_size(n: int, axis: tuple[int, ...], ceil_mode: bool) -> int:
    k, s, p, d = axis
    room = n + 2 * p - d * (k - 1) - 1
    out = (-(-room // s) if ceil_mode else room // s) + 1
    return out - 1 if ceil_mode and (out - 1) * s >= n + p else out


def windows(
    shape: Any, window: tuple[Pair, Pair, Pair, Pair], ceil_mode: bool
) -> Iterator[tuple[int, int, list[Pair]]]:
    """Each output with the places it sees, in the order of rows."""
    k, s, p, d = window
    outs = [
        out_size(n, axis, ceil_mode)
        for n, axis in zip(shape, zip(*window, strict=True), strict=True)
    ]
    for oh, ow in product(*map(range, outs)):
        places = [
            (oh * s[0] - p[0] + i * d[0], ow * s[1] - p[1] + j * d[1])
            for i, j in product(range(k[0]), range(k[1]))
        ]
        yield oh, ow, [(i, j) for i, j in places if 0 <= i < shape[0] and 0 <= j < shape[1]]


def max_pool(x: Array, window: Any, ceil_mode: bool) -> tuple[Array, Array]:
    seen = list(windows(x.shape[2:], window, ceil_mode))
    out = (*x.shape[:2], seen[-1][0] + 1, seen[-1][1] + 1)
    y, where = np.zeros(out, x.dtype), np.zeros(out, np.int64)
    for oh, ow, places in seen:
        values = np.stack([x[:, :, i, j] for i, j in places])
        first = values.argmax(0)
        y[:, :, oh, ow] = values.max(0)
        where[:, :, oh, ow] = np.array([i * x.shape[3] + j for i, j in places])[first]
    return y, where


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("shape", [(2, 3, 7, 9), (1, 2, 5, 5), (2, 1, 12, 40)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_max_pool(dtype: Any, shape: Any, window: Any, ceil_mode: bool) -> None:
    k, s, p, d = window
    for x in (normal(shape, dtype), np.round(normal(shape, dtype)), np.full(shape, -np.inf, dtype)):
        expected, places = max_pool(x, window, ceil_mode)
        for layout in LAYOUTS:
            y, where = _tensor.max_pool2d(laid_out(x, layout), k, s, p, d, ceil_mode)
            np.testing.assert_array_equal(y, expected)
            np.testing.assert_array_equal(where, places)
        g = normal(y.shape, dtype, 1)
        gx = np.zeros((*shape[:2], shape[2] * shape[3]))
        n, c = np.indices(y.shape)[:2]
        np.add.at(gx, (n, c, where), g)
        got = _tensor.max_pool2d_backward(g, where, shape)
        np.testing.assert_allclose(got, gx.reshape(shape), 1e-5, 1e-6)


def test_max_pool_passes_nan_on() -> None:
    x = normal((1, 1, 6, 6))
    x[0, 0, 2, 3] = np.nan
    y, where = _tensor.max_pool2d(x, (3, 3), (3, 3), (0, 0), (1, 1), False)
    assert np.isnan(y[0, 0]).tolist() == [[False, True], [False, False]]
    assert where[0, 0, 0, 1] == 15


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_average_pool(dtype: Any, window: Any, ceil_mode: bool, include: bool) -> None:
    k, s, p, _ = window
    shape = (2, 3, 8, 11)
    x = normal(shape, dtype)
    seen = list(windows(shape[2:], (k, s, p, (1, 1)), ceil_mode))
    expected = np.zeros((2, 3, seen[-1][0] + 1, seen[-1][1] + 1))
    g = normal(expected.shape, dtype, 1)
    gx = np.zeros(shape)
    for oh, ow, places in seen:
        count = len(places)
        if include:
            low = [oh * s[0] - p[0], ow * s[1] - p[1]]
            high = [min(low[a] + k[a], shape[2 + a] + p[a]) for a in (0, 1)]
            count = (high[0] - low[0]) * (high[1] - low[1])
        for i, j in places:
            expected[:, :, oh, ow] += x[:, :, i, j] / count
            gx[:, :, i, j] += g[:, :, oh, ow] / count
    for layout in LAYOUTS:
        got = _tensor.avg_pool2d(laid_out(x, layout), k, s, p, ceil_mode, include)
        np.testing.assert_allclose(got, expected, 1e-5, 1e-6)
    got = _tensor.avg_pool2d_backward(g, shape, k, s, p, ceil_mode, include)
    np.testing.assert_allclose(got, gx, 1e-5, 1e-6)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("out", [(1, 1), (3, 2), (7, 7), (10, 13)])
def test_adaptive_average_pool(out: Pair, dtype: Any) -> None:
    shape = (2, 3, 7, 9)
    x, g = normal(shape, dtype), normal((2, 3, *out), dtype, 1)
    expected, gx = np.zeros((2, 3, *out)), np.zeros(shape)
    for i, j in product(*map(range, out)):
        rows = slice(i * 7 // out[0], -(-(i + 1) * 7 // out[0]))
        columns = slice(j * 9 // out[1], -(-(j + 1) * 9 // out[1]))
        part = x[:, :, rows, columns]
        expected[:, :, i, j] = part.mean((2, 3), dtype=np.float64)
        gx[:, :, rows, columns] += g[:, :, i, j, None, None] / (part.shape[2] * part.shape[3])
    np.testing.assert_allclose(_tensor.adaptive_avg_pool2d(x, out), expected, 1e-5, 1e-6)
    np.testing.assert_allclose(_tensor.adaptive_avg_pool2d_backward(g, shape), gx, 1e-5, 1e-6)


def test_empty_batches() -> None:
    x = np.zeros((0, 3, 8, 8))
    assert _tensor.max_pool2d(x, (2, 2), (2, 2), (0, 0), (1, 1), False)[0].shape == (0, 3, 4, 4)
    assert _tensor.adaptive_avg_pool2d(x, (2, 2)).shape == (0, 3, 2, 2)


def test_wrong_arguments() -> None:
    x = np.zeros((1, 1, 4, 4))
    with pytest.raises(ShapeError, match="half the kernel"):
        _tensor.max_pool2d(x, (2, 2), (2, 2), (2, 0), (1, 1), False)
    with pytest.raises(ShapeError, match="does not fit"):
        _tensor.max_pool2d(x, (5, 5), (2, 2), (0, 0), (1, 1), False)
    with pytest.raises(ShapeError, match="does not fit"):
        _tensor.max_pool2d(x, (2, 2), (2, 2), (0, 0), (2**31, 1), False)
    with pytest.raises(ShapeError, match="two integers of 1 or more"):
        _tensor.max_pool2d(x, (2, 2), (0, 2), (0, 0), (1, 1), False)
    with pytest.raises(ShapeError, match="3 or more"):
        _tensor.avg_pool2d(x[0, 0], (2, 2), (2, 2), (0, 0), False, True)
    with pytest.raises(ShapeError, match=r"\(1, 1, 2, 2\)"):
        _tensor.avg_pool2d_backward(x, x.shape, (2, 2), (2, 2), (0, 0), False, True)
    with pytest.raises(ShapeError, match="not empty"):
        _tensor.adaptive_avg_pool2d(x[:, :, :0], (2, 2))
    with pytest.raises(ShapeError, match="two integers"):
        _tensor.adaptive_avg_pool2d(x, (0, 2))
    places = np.full((1, 1, 2, 2), 16)
    with pytest.raises(IndexError, match="index 16 is out of range for size 16"):
        _tensor.max_pool2d_backward(np.ones((1, 1, 2, 2)), places, x.shape)
    with pytest.raises(ShapeError, match="like that of the gradient"):
        _tensor.max_pool2d_backward(np.ones((1, 1, 2, 2)), places, (2, 1, 4, 4))
