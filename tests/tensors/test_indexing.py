"""x[...] against NumPy: slices, whole numbers, new dimensions, lists, masks; read and written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tapegrad.tensors as tt
from tapegrad.errors import DTypeError
from tests.tensors.cases import DEVICES, LAYOUTS

SHAPES = hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4)
QUICK = settings(max_examples=60, deadline=None)


def numbered(shape: tuple[int, ...], layout: str) -> Any:
    return LAYOUTS[layout](np.arange(np.prod(shape, dtype=int), dtype="float64").reshape(shape))


@st.composite
def basic(draw: st.DrawFn) -> tuple[Any, Any]:
    """Draw an array and an index of slices, whole numbers, ellipsis and new dimensions."""
    array = numbered(draw(SHAPES), draw(st.sampled_from(list(LAYOUTS))))
    return array, draw(hnp.basic_indices(array.shape, allow_newaxis=True))


@st.composite
def advanced(draw: st.DrawFn) -> tuple[Any, Any]:
    """Draw an array and an index with lists of places, or a mask."""
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4))
    array = numbered(shape, draw(st.sampled_from(list(LAYOUTS))))
    kind = draw(st.sampled_from(["places", "mask", "mixed"]))
    if kind == "places":
        result = hnp.array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=3)
        return array, draw(hnp.integer_array_indices(shape, result_shape=result))
    if kind == "mask":
        dims = draw(st.integers(1, len(shape)))
        return array, draw(hnp.arrays(bool, shape[:dims]))
    places = draw(hnp.arrays(np.int64, 3, elements=st.integers(-shape[0], shape[0] - 1)))
    return array, (places, ..., None)


def as_index(index: Any) -> Any:
    """Return an index with tensors for NumPy's arrays."""
    if isinstance(index, tuple):
        return tuple(as_index(each) for each in index)
    return tt.from_numpy(index.copy()) if isinstance(index, np.ndarray) else index


@QUICK
@given(basic())
def test_slices_are_views_with_numpys_elements(drawn: tuple[Any, Any]) -> None:
    array, index = drawn
    found = tt.from_numpy(array)[index]
    np.testing.assert_array_equal(found.numpy(), array[index])
    assert found.numpy().size == 0 or np.shares_memory(found.numpy(), array)


@QUICK
@given(advanced(), st.sampled_from(DEVICES))
def test_lists_and_masks_copy_numpys_elements(drawn: tuple[Any, Any], device: str) -> None:
    array, index = drawn
    x = tt.as_tensor(array, device=device)
    for places in (index, as_index(index)):
        found = x[places]
        np.testing.assert_array_equal(found.numpy(), array[index])
        assert not np.shares_memory(found.numpy(), array)


@QUICK
@given(st.one_of(basic(), advanced()), st.sampled_from(DEVICES))
def test_gradients_go_where_elements_came_from(drawn: tuple[Any, Any], device: str) -> None:
    array, index = drawn
    x = tt.as_tensor(array, device=device).requires_grad_()
    picked = x[as_index(index)]
    weights = np.cos(np.arange(picked.numel(), dtype="float64")).reshape(picked.shape)
    (gradient,) = tt.grad(picked, x, picked.new_tensor(weights))
    expected = np.zeros(array.shape)
    np.add.at(expected, index, weights)
    np.testing.assert_allclose(gradient.numpy(), expected, atol=1e-12)


@QUICK
@given(st.one_of(basic(), advanced()), st.booleans())
def test_writing_is_numpys(drawn: tuple[Any, Any], one_number: bool) -> None:
    array, index = drawn
    expected, x = array.copy(), tt.tensor(array)
    value: Any = -1.0 if one_number else -np.cos(np.arange(expected[index].size))
    if not one_number:
        value = value.reshape(expected[index].shape)
    places = np.arange(array.size).reshape(array.shape)[index]
    if np.unique(places).size != places.size:  # which of two writes is the last is not said
        value, one_number = -1.0, True
    expected[index] = value
    x[as_index(index)] = value if one_number else tt.tensor(value)
    np.testing.assert_array_equal(x.numpy(), expected)


@pytest.mark.parametrize("device", DEVICES)
def test_writing_is_recorded(device: str) -> None:
    a = tt.tensor([[1.0, 2.0], [3.0, 4.0]], dtype="float64", device=device, requires_grad=True)
    b = tt.tensor([5.0, 6.0], dtype="float64", device=device, requires_grad=True)
    x = a * a
    x[1] = b * 3
    x.square().sum().backward()
    assert a.grad is not None and b.grad is not None
    assert a.grad.tolist() == [[4.0, 32.0], [0.0, 0.0]]
    assert b.grad.tolist() == [90.0, 108.0]


def test_written_values_broadcast_and_take_the_type() -> None:
    x = tt.zeros(2, 3)
    x[:, 1] = 7
    x[0] = tt.tensor([1, 2, 3])
    x[1, ::2] = tt.tensor(4.0, dtype="float64")
    assert x.tolist() == [[1.0, 2.0, 3.0], [4.0, 7.0, 4.0]] and x.dtype is tt.float32


@pytest.mark.parametrize("index", [5, -4, (0, 9), (0, 0, 0), [0, 7], tt.tensor([3]), [True, False]])
def test_what_lies_outside_is_an_index_error(index: Any) -> None:
    with pytest.raises(IndexError, match=r"shape \(3, 2\)"):
        tt.ones(3, 2)[index]


@pytest.mark.parametrize("index", [1.5, "a", tt.tensor([0.5]), object()])
def test_what_is_no_index_is_a_type_error(index: Any) -> None:
    with pytest.raises(DTypeError):
        tt.ones(3, 2)[index]


def test_a_value_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(ValueError, match="shape"):
        tt.ones(3, 2)[0] = tt.ones(5)


def test_zero_dimensional_tensors_are_indices() -> None:
    x = tt.arange(6).reshape(2, 3)
    assert x[tt.tensor(1)].tolist() == [3, 4, 5]
    assert x[tt.tensor(1), tt.tensor(2)].item() == 5
    assert x[np.int64(1), 0].item() == 3
    assert [1, 2, 3][tt.tensor(1)] == 2


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("bad", [3, -1])
def test_indices_beyond_a_dimension_are_named(device: str, bad: int) -> None:
    x = tt.ones((3, 2), device=device)
    place = tt.tensor([bad], device=device)
    calls: list[Callable[[], Any]] = [
        lambda: x.index_select(0, place),
        lambda: x.gather(0, place.reshape(1, 1)),
        lambda: tt.embedding(place, x),
        lambda: x.scatter_add(0, place.reshape(1, 1), x[:1, :1]),
    ]
    for call in calls:
        with pytest.raises(IndexError, match=str(bad)):
            call()
