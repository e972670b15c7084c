"""Products of matrices and convolution of `_tensor` against NumPy in float64."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest

from tapegrad import _tensor
from tapegrad.errors import DTypeError, ShapeError
from tests.kernels.layouts import LAYOUTS, Array, laid_out, normal

FLOATS = (np.float32, np.float64)


def close(got: Array, expected: Array, length: int) -> None:
    """Equal to a few units in the last place of a sum of `length` products."""
    assert got.shape == expected.shape
    atol = np.finfo(got.dtype).eps * (20 + 2 * length)
    np.testing.assert_allclose(got, expected, 0, atol)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "sizes",
    [
        *product((1, 3, 8), (1, 17, 50), (1, 5, 300)),
        (0, 3, 4),
        (3, 0, 4),
        (3, 4, 0),
        (100, 97, 31),
        (13, 600, 257),
        (130, 1700, 20),
        (500, 30, 520),
        (300, 300, 300),
    ],
)
def test_matmul(sizes: tuple[int, int, int], dtype: Any) -> None:
    m, n, k = sizes
    a, b = normal((m, k), dtype), normal((k, n), dtype, 1)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    for left, right in product(LAYOUTS, LAYOUTS):
        close(_tensor.matmul(laid_out(a, left), laid_out(b, right)), expected, k)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3, 4), (4, 5)),
        ((2, 3, 4), (4, 5)),
        ((2, 1, 3, 4), (5, 4, 1)),
        ((3, 0), (0, 2)),
        ((0, 3), (3, 2)),
        ((70, 40), (40, 50)),
    ],
)
def test_whole_numbers_are_multiplied_exactly_and_wrap_around(
    left: tuple[int, ...], right: tuple[int, ...], dtype: Any
) -> None:
    random, room = np.random.default_rng(3), np.iinfo(dtype)
    a, b = (random.integers(room.min, room.max, shape, dtype) for shape in (left, right))
    expected = a @ b
    for first, second in product(LAYOUTS, LAYOUTS):
        found = _tensor.matmul(laid_out(a, first), laid_out(b, second))
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((4, 5, 6), (4, 6, 7)),
        ((2, 3, 5, 6), (2, 3, 6, 7)),
        ((5, 6), (4, 6, 7)),
        ((4, 5, 6), (6, 7)),
        ((2, 1, 5, 6), (3, 6, 7)),
        ((0, 5, 6), (0, 6, 7)),
        ((60, 40, 30), (60, 30, 50)),
        ((3, 200, 100), (100, 90)),
    ],
)
def test_batches(left: tuple[int, ...], right: tuple[int, ...], dtype: Any) -> None:
    a, b = normal(left, dtype), normal(right, dtype, 1)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    for p, q in product(LAYOUTS, LAYOUTS):
        close(_tensor.matmul(laid_out(a, p), laid_out(b, q)), expected, left[-1])
    turned = np.ascontiguousarray(np.swapaxes(b, -1, -2))
    close(_tensor.matmul(a, np.swapaxes(turned, -1, -2)), expected, left[-1])


def test_nan_and_infinity_stay_where_they_belong() -> None:
    a, b = normal((20, 30)), normal((30, 40), seed=1)
    a[3, 4], b[5, 6] = np.nan, np.inf
    got = _tensor.matmul(a, b)
    with np.errstate(invalid="ignore"):
        expected = a @ b
    np.testing.assert_allclose(got, expected, 1e-10)


def test_the_same_bits_every_time() -> None:
    a, b = normal((200, 300), np.float32), normal((300, 250), np.float32, 1)
    first = _tensor.matmul(a, b)
    for _ in range(5):
        np.testing.assert_array_equal(_tensor.matmul(a, b), first)


# ---- convolution ---------------------------------------------------------------------------------


class Conv(NamedTuple):
    """Sizes and options of a convolution."""

    x: tuple[int, int, int, int]
    w: tuple[int, int, int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1

    @property
    def options(self) -> tuple[Any, ...]:
        return self[2:]


CONVS = [
    Conv((2, 3, 8, 9), (4, 3, 3, 3)),
    Conv((2, 3, 8, 9), (4, 3, 3, 3), padding=(1, 1)),
    Conv((2, 3, 9, 8), (4, 3, 3, 2), (2, 3), (1, 2)),
    Conv((1, 4, 9, 12), (6, 2, 3, 3), (1, 2), (2, 1), (2, 3), 2),
    Conv((3, 6, 7, 7), (6, 1, 3, 3), (1, 1), (1, 1), (1, 1), 6),
    Conv((2, 5, 6, 6), (3, 5, 1, 1)),
    Conv((2, 5, 6, 6), (3, 5, 1, 1), (2, 2), (3, 3)),
    Conv((1, 2, 3, 3), (2, 2, 3, 3)),
    Conv((0, 3, 5, 5), (4, 3, 3, 3)),
    Conv((4, 16, 40, 40), (24, 16, 5, 5), (1, 1), (2, 2)),
]


def matrices(c: Conv, x: Array) -> Array:
    """The inputs that each output sees: [batch, groups, channels, kh, kw, oh, ow]."""
    p, d, s = c.padding, c.dilation, c.stride
    padded = np.pad(x, ((0, 0), (0, 0), (p[0], p[0]), (p[1], p[1])))
    reach = [d[a] * (c.w[2 + a] - 1) + 1 for a in (0, 1)]
    seen = np.lib.stride_tricks.sliding_window_view(padded, reach, (2, 3))
    seen = seen[:, :, :: s[0], :: s[1], :: d[0], :: d[1]].transpose(0, 1, 4, 5, 2, 3)
    return seen.reshape(x.shape[0], c.groups, c.w[1], *seen.shape[2:])


def convolve(c: Conv, x: Array, w: Array) -> Array:
    weight = w.reshape(c.groups, -1, *w.shape[1:])
    y = np.einsum("bgckluv,gfckl->bgfuv", matrices(c, x), weight, optimize=True)
    shape = (x.shape[0], w.shape[0], *y.shape[3:])
    return np.reshape(y, shape)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("c", CONVS)
def test_convolution(c: Conv, dtype: Any) -> None:
    x, w, bias = normal(c.x, dtype), normal(c.w, dtype, 1), normal((c.w[0],), dtype, 2)
    exact = x.astype(np.float64), w.astype(np.float64)
    expected = convolve(c, *exact)
    taps = int(np.prod(c.w[1:]))
    for layout in LAYOUTS:
        x_laid, w_laid = laid_out(x, layout), laid_out(w, layout)
        close(_tensor.conv2d(x_laid, w_laid, None, *c.options), expected, taps)
    with_bias = _tensor.conv2d(x, w, bias, *c.options)
    close(with_bias, expected + bias[:, None, None], taps)

    g = normal(expected.shape, dtype, 3)
    # both gradients are linear in g: <g, conv(x, w)> = <gx, x> = <gw, w>, entry by entry
    gw = np.einsum(
        "bgckluv,bgfuv->gfckl",
        matrices(c, exact[0]),
        g.reshape(c.x[0], c.groups, c.w[0] // c.groups, *g.shape[2:]),
        optimize=True,
    ).reshape(c.w)
    outputs = int(np.prod(g.shape[2:])) * c.x[0]
    close(_tensor.conv2d_weight_grad(g, x, c.w, *c.options), gw, outputs)
    gx = _tensor.conv2d_input_grad(g, w, c.x, *c.options)
    assert gx.shape == c.x
    for seed in range(5, 8):
        direction = normal(c.x, np.float64, seed)
        along = float(np.sum(g * convolve(c, direction, exact[1])))
        scale = float(np.linalg.norm(gx) * np.linalg.norm(direction)) + 1e-3
        assert abs(float(np.sum(gx * direction)) - along) <= 100 * np.finfo(dtype).eps * scale


def test_the_input_gradient_of_single_outputs() -> None:
    """Each output's gradient is the kernel, where it saw the input."""
    c = Conv((1, 2, 5, 6), (3, 2, 3, 2), (2, 1), (1, 1))
    w = normal(c.w)
    shape = convolve(c, np.zeros(c.x), w).shape
    for at in product(*map(range, shape)):
        g = np.zeros(shape)
        g[at] = 1
        expected = np.zeros((1, 2, 7, 8))
        top, left = at[2] * 2, at[3]
        expected[0, :, top : top + 3, left : left + 2] = w[at[1]]
        got = _tensor.conv2d_input_grad(g, w, c.x, *c.options)
        np.testing.assert_allclose(got, expected[:, :, 1:6, 1:7], 1e-12, 1e-12)


# ---- errors --------------------------------------------------------------------------------------


def test_wrong_arguments() -> None:
    a, x, w = np.zeros((3, 4)), np.zeros((1, 4, 5, 5)), np.zeros((2, 4, 3, 3))
    one: Any = ((1, 1), (0, 0), (1, 1), 1)
    untyped: Any = _tensor
    with pytest.raises(ShapeError, match=r"got \(3, 4\) and \(3, 4\)"):
        _tensor.matmul(a, a)
    with pytest.raises(ShapeError, match="matmul"):
        _tensor.matmul(a, a[0])
    with pytest.raises(ShapeError, match="broadcast"):
        _tensor.matmul(np.zeros((2, 3, 4)), np.zeros((3, 4, 5)))
    with pytest.raises(DTypeError, match="float64"):
        _tensor.matmul(a, a.T.astype(np.float32))
    with pytest.raises(ShapeError, match="groups"):
        untyped.conv2d(x, w, None, *one[:3], 2)
    with pytest.raises(ShapeError, match="groups"):
        untyped.conv2d(x, w, None, *one[:3], 0)
    with pytest.raises(ShapeError, match="does not fit"):
        untyped.conv2d(x[:, :, :2], w, None, *one)
    with pytest.raises(ShapeError, match="2 elements"):
        untyped.conv2d(x, w, np.zeros(3), *one)
    with pytest.raises(ShapeError, match=r"\(1, 2, 3, 3\)"):
        untyped.conv2d_input_grad(x, w, x.shape, *one)
    with pytest.raises(ShapeError, match=r"\(1, 2, 3, 3\)"):
        untyped.conv2d_weight_grad(x, x, w.shape, *one)
    with pytest.raises(ShapeError, match="two integers"):
        untyped.conv2d(x, w, None, (1,), (0, 0), (1, 1), 1)
