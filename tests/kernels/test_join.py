"""Arrays one behind the other and side by side, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tapegrad import _tensor
from tapegrad.errors import DTypeError, ShapeError
from tests.kernels.layouts import LAYOUTS, laid_out, normal

TYPES = [np.bool_, np.int32, np.int64, np.float32, np.float64]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", TYPES)
def test_cat_and_stack(dtype: Any, layout: str) -> None:
    x = (normal((3, 4, 5)) * 9).astype(dtype)
    y = (normal((3, 4, 5), seed=1) * 9).astype(dtype)
    for dim in range(3):
        parts = tuple(laid_out(each, layout) for each in (x, y.take([0, 1], dim), x))
        got = _tensor.cat(parts, dim)
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, np.concatenate(parts, dim))
    for dim in range(4):
        parts = (laid_out(x, layout), laid_out(y, layout))
        np.testing.assert_array_equal(_tensor.stack(parts, dim), np.stack(parts, dim))


@pytest.mark.parametrize("first", TYPES)
@pytest.mark.parametrize("second", TYPES)
def test_the_result_has_the_wider_kind(first: Any, second: Any) -> None:
    parts = (np.ones(2, first), np.full(3, 2).astype(second))
    wider = max(first, second, key=TYPES.index)
    got = _tensor.cat(parts, 0)
    assert got.dtype == wider
    np.testing.assert_array_equal(got, np.concatenate([part.astype(wider) for part in parts]))


def test_large_small_and_empty_ones() -> None:
    large = normal((300, 400))
    np.testing.assert_array_equal(_tensor.cat((large, large), 1), np.hstack([large, large]))
    np.testing.assert_array_equal(_tensor.cat((large[:0], large), 0), large)
    assert _tensor.stack((np.ones(()),), 0).shape == (1,)
    assert _tensor.stack((np.ones((0, 2)),) * 3, 1).shape == (0, 3, 2)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda x: _tensor.cat((), 0), ShapeError, "at least one array"),
        (lambda x: _tensor.cat((x, x), 2), ShapeError, "from 0 to 1, got 2"),
        (lambda x: _tensor.cat((x, x[0]), 0), ShapeError, r"got \(2, 3\) and \(3,\)"),
        (lambda x: _tensor.cat((x, x.T), 0), ShapeError, r"but 0, got \(2, 3\) and \(3, 2\)"),
        (lambda x: _tensor.stack((x, x[:1]), 0), ShapeError, "agree in all dimensions"),
        (lambda x: _tensor.stack((x, x[0]), 0), ShapeError, "agree in all dimensions"),
        (lambda x: _tensor.stack((np.ones((1,) * 32),), 0), ShapeError, "at most 32 dimensions"),
        (lambda x: _tensor.cat((x, 1.0), 0), DTypeError, "expected an array"),  # type: ignore[arg-type]
        (lambda x: _tensor.cat((x.astype(complex),), 0), DTypeError, "complex128"),
    ],
)
def test_what_does_not_fit_is_said(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        call(np.ones((2, 3)))
