"""Gather, scatter and their kin of `_tensor` against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tapegrad import _tensor
from tapegrad.errors import DTypeError, ShapeError
from tests.kernels.layouts import LAYOUTS, Array, laid_out, normal

RNG = np.random.default_rng(0)
ANY_TYPE = [np.float32, np.float64, np.int32, np.int64, np.bool_, np.int8, np.float16, complex]


def scatter_add(x: Array, dim: int, index: Array, src: Array) -> Array:
    out = x.copy()
    places: list[Array] = list(np.indices(index.shape))
    places[dim] = index
    np.add.at(out, tuple(places), src[tuple(slice(size) for size in index.shape)])
    return out


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ANY_TYPE)
def test_gather(dtype: Any, layout: str) -> None:
    x = laid_out((RNG.random((5, 6, 7)) * 9).astype(dtype), layout)
    for dim in range(3):
        shape = [4, 5, 6]
        shape[dim] = 11
        index = RNG.integers(0, x.shape[dim], shape)
        cut = tuple(slice(None) if d == dim else slice(n) for d, n in enumerate(shape))
        expected = np.take_along_axis(x[cut], index, dim)
        got = _tensor.gather(x, dim, laid_out(index, layout))
        assert got.dtype == x.dtype
        np.testing.assert_array_equal(got, expected)
        np.testing.assert_array_equal(_tensor.gather(x, dim, index.astype(np.int32)), expected)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
def test_scatter_add(dtype: Any, layout: str) -> None:
    x = laid_out(RNG.integers(0, 9, (5, 6, 7)).astype(dtype), layout)
    for dim in range(3):
        shape = [4, 5, 6]
        shape[dim] = 11
        index = RNG.integers(0, x.shape[dim], shape)
        src = laid_out(RNG.integers(0, 9, [size + 1 for size in shape]).astype(dtype), layout)
        got = _tensor.scatter_add(x, dim, index, src)
        np.testing.assert_array_equal(got, scatter_add(x, dim, index, src))
        assert got.dtype == dtype


def test_large_ones_are_the_same_in_threads() -> None:
    x, src = normal((300, 40)), normal((300, 400))
    index = RNG.integers(0, 40, (300, 400))
    np.testing.assert_allclose(
        _tensor.scatter_add(x, 1, index, src), scatter_add(x, 1, index, src), 1e-12
    )
    np.testing.assert_array_equal(_tensor.gather(x, 1, index), np.take_along_axis(x, index, 1))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ANY_TYPE)
def test_index_select(dtype: Any, layout: str) -> None:
    x = laid_out((RNG.random((5, 6, 7)) * 9).astype(dtype), layout)
    for dim in range(3):
        for count in (0, 1, 20):
            index = RNG.integers(0, x.shape[dim], count)
            np.testing.assert_array_equal(
                _tensor.index_select(x, dim, index), np.take(x, index, dim)
            )


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_index_add(dtype: Any) -> None:
    x = RNG.integers(0, 9, (4, 6, 3)).astype(dtype)
    for dim in range(3):
        index = RNG.integers(0, x.shape[dim], 15)
        src = RNG.integers(0, 9, [*x.shape[:dim], 15, *x.shape[dim + 1 :]]).astype(dtype)
        places: list[Any] = [slice(None)] * 3
        places[dim] = index
        expected = x.copy()
        np.add.at(expected, tuple(places), src)
        np.testing.assert_array_equal(_tensor.index_add(x, dim, index, src), expected)
        np.testing.assert_array_equal(_tensor.index_add(x.shape, dim, index, src), expected - x)


@pytest.mark.parametrize("threads", [1, 2])
def test_embedding_backward(threads: int) -> None:
    before = _tensor.get_num_threads()
    _tensor.set_num_threads(threads)
    g, index = normal((50, 30, 64)), RNG.integers(0, 100, (50, 30))
    expected = np.zeros((100, 64))
    np.add.at(expected, index, g)
    np.testing.assert_allclose(_tensor.embedding_backward(g, index, 100), expected, 1e-12, 1e-12)
    expected[7] = 0
    got = _tensor.embedding_backward(g, index, 100, 7)
    np.testing.assert_allclose(got, expected, 1e-12, 1e-12)
    _tensor.set_num_threads(before)


def test_index_put_add() -> None:
    x, values, index = normal((6, 5)), normal((100,)), RNG.integers(0, 30, 100)
    expected = x.copy().reshape(-1)
    np.add.at(expected, index, values)
    got = _tensor.index_put_add(np.asfortranarray(x), index, values)
    np.testing.assert_allclose(got, expected.reshape(6, 5), 1e-13)


@pytest.mark.parametrize("wrong", [-1, 5, 2**62, -(2**63)])
def test_indices_out_of_range(wrong: int) -> None:
    x, index = np.zeros((5, 5)), np.zeros((5, 5), np.int64)
    index[2, 3] = wrong
    message = f"index {wrong} is out of range for size 5"
    with pytest.raises(IndexError, match=message):
        _tensor.gather(x, 1, index)
    with pytest.raises(IndexError, match=message):
        _tensor.scatter_add(x, 0, index, x)
    with pytest.raises(IndexError, match=message):
        _tensor.index_select(x, 0, index[2])
    with pytest.raises(IndexError, match=message):
        _tensor.index_add(x, 0, index[2], x)
    with pytest.raises(IndexError, match=message):
        _tensor.embedding_backward(x, index[2], 5)
    with pytest.raises(IndexError, match=message):
        _tensor.index_put_add(x[0], index[2], x[0])


def test_wrong_arguments() -> None:
    x, index = np.zeros((3, 4)), np.zeros((3, 4), np.int64)
    with pytest.raises(ShapeError, match="no larger"):
        _tensor.gather(x, 0, np.zeros((3, 5), np.int64))
    with pytest.raises(ShapeError, match="no larger"):
        _tensor.gather(x, 0, index[0])
    with pytest.raises(ShapeError, match="no larger"):
        _tensor.scatter_add(x, 0, index, x[:2])
    with pytest.raises(DTypeError, match="int32, int64"):
        _tensor.gather(x, 0, x)
    with pytest.raises(DTypeError, match="object"):
        _tensor.gather(x.astype(object), 0, index)
    with pytest.raises(DTypeError, match="float32"):
        _tensor.scatter_add(x, 0, index, x.astype(np.float32))
    with pytest.raises(ShapeError, match="expected shape"):
        _tensor.index_add(x, 0, index[0], x)
    with pytest.raises(ShapeError, match="elements"):
        _tensor.index_put_add(x, index[0], x)
    with pytest.raises(ShapeError, match="indices"):
        _tensor.embedding_backward(x, index, 5)
    assert _tensor.gather(x, 0, np.zeros((0, 4), np.int64)).shape == (0, 4)
