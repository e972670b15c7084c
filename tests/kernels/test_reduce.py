"""Reductions and softmax of `_tensor` against NumPy."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tapegrad.tensors as tt
from tapegrad import _tensor
from tapegrad.errors import DTypeError, OptionError, ShapeError
from tests.kernels.layouts import LAYOUTS, Array, laid_out, normal, tolerance

FLOATS = (np.float32, np.float64)
NUMPY: dict[str, Callable[..., Any]] = {
    "sum": np.sum,
    "mean": np.mean,
    "prod": np.prod,
    "max": np.max,
    "min": np.min,
    "any": np.any,
    "all": np.all,
}


def subsets(ndim: int) -> list[tuple[int, ...]]:
    return [d for n in range(ndim + 1) for d in itertools.combinations(range(ndim), n)]


@pytest.fixture(params=["all", "one"], autouse=True)
def threads(request: pytest.FixtureRequest) -> Iterator[None]:
    before = _tensor.get_num_threads()
    _tensor.set_num_threads(before if request.param == "all" else 1)
    yield
    _tensor.set_num_threads(before)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", NUMPY)
def test_every_choice_of_dimensions(op: str, dtype: Any, layout: str) -> None:
    x = laid_out(normal((3, 5, 2, 19), dtype), layout)
    for dims in subsets(4):
        for keepdim in (False, True):
            got = _tensor.reduce(op, x, dims, keepdim)
            expected = NUMPY[op](x.astype(np.float64), axis=dims, keepdims=keepdim)
            assert got.shape == expected.shape
            assert got.flags.c_contiguous
            assert got.dtype == (bool if op in ("any", "all") else dtype)
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=tolerance(dtype))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.bool_])
@pytest.mark.parametrize("op", [op for op in NUMPY if op != "mean"])
def test_integers_and_bools(op: str, dtype: Any) -> None:
    x = np.random.default_rng(1).integers(-3, 4, (4, 3, 70)).astype(dtype)
    for dims in subsets(3):
        got = _tensor.reduce(op, x, dims)
        expected = NUMPY[op](x, axis=dims)
        if op in ("sum", "prod"):
            expected = NUMPY[op](x, axis=dims, dtype=np.int64)
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 4)])
def test_of_nothing(shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, np.float32)
    for dims in subsets(len(shape)):
        np.testing.assert_array_equal(_tensor.reduce("sum", x, dims), x.sum(dims))
        np.testing.assert_array_equal(_tensor.reduce("prod", x, dims), x.prod(dims))
        assert _tensor.reduce("all", x, dims).all()
    with pytest.raises(ShapeError, match="at least one element"):
        _tensor.reduce("max", x, tuple(range(len(shape))))
    assert np.isnan(_tensor.reduce("mean", np.zeros(0), (0,)))


def test_a_single_number() -> None:
    x = np.array(3.5)
    assert _tensor.reduce("sum", x, ()) == 3.5
    assert _tensor.reduce("max", np.ones((1, 1, 1)), (0, 1, 2)).shape == ()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("where", [0, 17, 99])
@pytest.mark.parametrize("dim", [0, 1])
def test_nan_wins(dtype: Any, where: int, dim: int) -> None:
    x = normal((100, 100), dtype)
    x[where, :] = np.nan
    np.testing.assert_array_equal(_tensor.reduce("max", x, (dim,)), x.max(dim))
    np.testing.assert_array_equal(_tensor.reduce("min", x, (dim,)), x.min(dim))
    values, places = _tensor.arg_reduce("max", x, dim)
    np.testing.assert_array_equal(values, x.max(dim))
    np.testing.assert_array_equal(places, x.argmax(dim))


@pytest.mark.parametrize(
    ("shape", "dims"),
    [
        ((3_000_000,), (0,)),
        ((1_000_000, 3), (0,)),
        ((3, 1_000_000), (1,)),
        ((2000, 700), (0,)),
        ((2000, 700), (1,)),
        ((8, 16, 56, 56), (0, 2, 3)),
        ((4, 300, 500), (1,)),
    ],
)
def test_large_sums_are_as_accurate_as_pairwise_ones(
    shape: tuple[int, ...], dims: tuple[int, ...]
) -> None:
    x = np.random.default_rng(2).random(shape, np.float32)
    exact = x.sum(dims, dtype=np.float64)
    np.testing.assert_allclose(_tensor.reduce("sum", x, dims), exact, rtol=1e-6)
    np.testing.assert_allclose(_tensor.reduce("sum", x.astype(float), dims), exact, rtol=1e-14)
    np.testing.assert_array_equal(_tensor.reduce("max", x, dims), x.max(dims))
    flags = x < 0.25
    np.testing.assert_array_equal(_tensor.reduce("sum", flags, dims), flags.sum(dims))


def test_sums_have_the_same_bits_for_any_number_of_threads() -> None:
    x = normal((700, 501), np.float32)
    _tensor.set_num_threads(1)
    alone = [_tensor.reduce("sum", x, dims) for dims in subsets(2)]
    _tensor.set_num_threads(3)
    for dims, one in zip(subsets(2), alone, strict=True):
        np.testing.assert_array_equal(_tensor.reduce("sum", x, dims), one)


@pytest.mark.parametrize("dtype", [*FLOATS, np.int32, np.int64, np.bool_])
@pytest.mark.parametrize("layout", LAYOUTS[:4])
@pytest.mark.parametrize("op", ["max", "min"])
def test_where_the_extreme_stands_first(op: str, dtype: Any, layout: str) -> None:
    x = laid_out(np.random.default_rng(3).integers(0, 5, (7, 40, 9)).astype(dtype), layout)
    for dim in range(3):
        values, places = _tensor.arg_reduce(op, x, dim)
        np.testing.assert_array_equal(values, NUMPY[op](x, axis=dim))
        np.testing.assert_array_equal(places, getattr(np, f"arg{op}")(x, axis=dim))
        assert values.dtype == dtype
        assert places.dtype == np.int64


@pytest.mark.parametrize("dtype", [*FLOATS, np.int32, np.int64])
def test_running_sums(dtype: Any) -> None:
    x = np.random.default_rng(4).integers(-9, 9, (4, 50, 3)).astype(dtype)
    for dim in range(3):
        got = _tensor.cumsum(x, dim)
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, np.cumsum(x, dim, dtype=dtype))
    assert _tensor.cumsum(np.zeros((0, 3)), 0).shape == (0, 3)


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize("shape", [(1_000_000,), (1_000_000, 2)])
def test_running_sums_and_sums_of_exponentials_of_float32_are_long(
    shape: tuple[int, ...], device: str
) -> None:
    x = tt.full(shape, 0.1, device=device)
    exact = np.float64(np.float32(0.1)) * len(x)
    assert np.asarray(x.cumsum(0)[-1].cpu()) == pytest.approx(exact, rel=1e-7)
    assert np.asarray(x.logsumexp(0).cpu()) == pytest.approx(0.1 + np.log(len(x)), rel=1e-6)
    for softmax in (x.softmax(0), x.log_softmax(0).exp()):
        found = np.asarray(softmax.cpu()).sum(0, dtype=np.float64)
        assert found == pytest.approx(1.0, rel=1e-5)


# ---- softmax and its kin -------------------------------------------------------------------------


def softmax(x: Array, dim: int) -> Array:
    x = x.astype(np.float64)
    e = np.exp(x - x.max(dim, keepdims=True))
    out: Array = e / e.sum(dim, keepdims=True)
    return out


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(1,), (5, 1), (3, 7), (9, 16), (4, 65), (2, 33, 5), (300, 200)])
def test_softmax(shape: tuple[int, ...], dtype: Any, layout: str) -> None:
    x = laid_out(normal(shape, dtype) * 5, layout)
    g = laid_out(normal(shape, dtype, seed=1), layout)
    for dim in range(x.ndim):
        p = softmax(x, dim)
        rtol, atol = 100 * tolerance(dtype), 3 * tolerance(dtype)
        y = _tensor.softmax(x, dim)
        np.testing.assert_allclose(y, p, rtol, atol)
        gx = p * (g - (g * p).sum(dim, keepdims=True))
        np.testing.assert_allclose(_tensor.softmax_backward(g, y, dim), gx, rtol, atol)
        log = _tensor.log_softmax(x, dim)
        np.testing.assert_allclose(log, np.log(p), rtol, 10 * atol)
        gx = g - p * g.sum(dim, keepdims=True, dtype=np.float64)
        np.testing.assert_allclose(_tensor.log_softmax_backward(g, log, dim), gx, rtol, 10 * atol)


@pytest.mark.parametrize("dtype", FLOATS)
def test_softmax_of_far_apart_numbers(dtype: Any) -> None:
    x = np.array([[-1e4, 0, 1e4], [-np.inf, 0, 1], [-80, -90, 0], [-700, 0, -720]], dtype)
    with np.errstate(under="ignore"):
        expected = softmax(x, 1).astype(dtype)
    np.testing.assert_allclose(_tensor.softmax(x, 1), expected, rtol=1e-5)
    np.testing.assert_allclose(_tensor.softmax(np.ascontiguousarray(x.T), 0), expected.T, rtol=1e-5)


@pytest.mark.parametrize("dtype", FLOATS)
def test_softmax_of_infinities_and_nan(dtype: Any) -> None:
    x = np.full((3, 20), -np.inf, dtype)
    x[1, 3], x[2, 4] = np.inf, np.nan
    assert np.isnan(_tensor.softmax(x, 1)[0]).all()
    assert np.isnan(_tensor.softmax(x, 1)[2]).all()
    got = _tensor.logsumexp(x, (1,))
    np.testing.assert_array_equal(got, np.array([-np.inf, np.inf, np.nan], dtype))
    np.testing.assert_array_equal(_tensor.logsumexp(np.ascontiguousarray(x.T), (0,)), got)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_logsumexp(dtype: Any, layout: str) -> None:
    x = laid_out(normal((4, 3, 5, 21), dtype), layout)
    for dims in subsets(4):
        for keepdim in (False, True):
            got = _tensor.logsumexp(x, dims, keepdim)
            expected = np.log(np.sum(np.exp(x.astype(float)), axis=dims, keepdims=keepdim))
            assert got.shape == expected.shape
            np.testing.assert_allclose(got, expected, 1e-5, 5 * tolerance(dtype))
    assert _tensor.logsumexp(np.zeros((2, 0)), (1,)).tolist() == [-np.inf, -np.inf]


# ---- errors --------------------------------------------------------------------------------------


def test_wrong_arguments() -> None:
    x = np.zeros((2, 3))
    with pytest.raises(OptionError, match="'sum'"):
        _tensor.reduce("median", x, (0,))
    with pytest.raises(ShapeError, match="from 0 to 1, got 2"):
        _tensor.reduce("sum", x, (2,))
    with pytest.raises(ShapeError, match="each dimension once"):
        _tensor.reduce("sum", x, (0, 0))
    with pytest.raises(DTypeError, match="convert"):
        _tensor.reduce("mean", np.zeros(3, np.int64), (0,))
    with pytest.raises(DTypeError, match="complex128"):
        _tensor.reduce("sum", np.zeros(3, complex), (0,))
    with pytest.raises(DTypeError, match="got list"):
        _tensor.softmax([1.0], 0)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"expected shape \(2, 3\), got \(3, 2\)"):
        _tensor.softmax_backward(np.zeros((3, 2)), x, 0)
    with pytest.raises(ShapeError):
        _tensor.arg_reduce("max", np.zeros(()), 0)
    with pytest.raises(OptionError):
        _tensor.arg_reduce("sum", x, 0)
