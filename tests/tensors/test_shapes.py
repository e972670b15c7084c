"""Shapes against NumPy: broadcasting, reductions, views, joining and cutting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tapegrad.tensors as tt
from tapegrad.errors import ShapeError
from tests.tensors.cases import DEVICES, LAYOUTS

QUICK = settings(max_examples=60, deadline=None)
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
LAYOUT = st.sampled_from(list(LAYOUTS))
DEVICE = st.sampled_from(DEVICES)


def numbered(shape: tuple[int, ...], layout: str) -> Any:
    values = np.cos(np.arange(np.prod(shape, dtype=int), dtype="float64")).reshape(shape)
    return LAYOUTS[layout](values)


@st.composite
def broadcastable(draw: st.DrawFn, count: int) -> list[Any]:
    """Draw arrays whose shapes broadcast, in any layout."""
    shapes = draw(hnp.mutually_broadcastable_shapes(num_shapes=count, max_dims=4, max_side=3))
    return [numbered(shape, draw(LAYOUT)) + 2 for shape in shapes.input_shapes]


@QUICK
@given(broadcastable(2), DEVICE)
def test_two_operands_broadcast_and_gradients_are_summed_back(arrays: Any, device: str) -> None:
    a, b = (tt.as_tensor(each, device=device).requires_grad_() for each in arrays)
    y = a * b
    np.testing.assert_allclose(y.detach().numpy(), arrays[0] * arrays[1], rtol=1e-12)
    weights = np.sin(np.arange(y.numel(), dtype="float64")).reshape(y.shape)
    for x, gradient, full in zip(
        (a, b),
        tt.grad(y, [a, b], y.new_tensor(weights)),
        (weights * arrays[1], weights * arrays[0]),
        strict=True,
    ):
        extra = full.ndim - x.ndim
        summed = full.sum(tuple(range(extra)))
        ones = tuple(d for d, size in enumerate(x.shape) if size == 1)
        expected = summed.sum(ones, keepdims=True) if ones else summed
        np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-12, atol=1e-12)


@QUICK
@given(broadcastable(3), DEVICE)
def test_three_operands_broadcast(arrays: Any, device: str) -> None:
    c, a, b = (tt.as_tensor(each, device=device) for each in arrays)
    expected = np.where(arrays[0] > 2, arrays[1], arrays[2])
    np.testing.assert_array_equal(tt.where(c > 2, a, b).numpy(), expected)

    @tt.elementwise
    def product(x: Any, y: Any, z: Any) -> Any:
        return x * y * z

    np.testing.assert_allclose(product(c, a, b).numpy(), arrays[0] * arrays[1] * arrays[2], 1e-12)


@QUICK
@given(SHAPES, SHAPES)
def test_shapes_that_do_not_broadcast_are_an_error(first: Any, second: Any) -> None:
    a, b = np.ones(first), np.ones(second)
    try:
        expected = (a + b).shape
    except ValueError:
        for device in DEVICES:
            with pytest.raises(ShapeError, match="broadcast"):
                tt.as_tensor(a, device=device) + tt.as_tensor(b, device=device)
    else:
        assert (tt.from_numpy(a) + tt.from_numpy(b)).shape == expected


@st.composite
def reduction(draw: st.DrawFn) -> tuple[Any, Any, bool]:
    """Draw an array, dimensions to reduce, and whether these are kept."""
    array = numbered(draw(SHAPES), draw(LAYOUT))
    if not array.ndim or draw(st.booleans()):
        return array, None, draw(st.booleans())
    places = st.integers(-array.ndim, array.ndim - 1)
    dims = draw(st.lists(places, min_size=1, unique_by=lambda d: d % array.ndim))
    return array, tuple(dims), draw(st.booleans())


@QUICK
@given(reduction(), DEVICE)
def test_reductions_are_numpys(drawn: tuple[Any, Any, bool], device: str) -> None:
    array, dims, keep = drawn
    x = tt.as_tensor(array, device=device)
    for name in ("sum", "any", "all"):
        found = getattr(tt, name)(x, dims, keep).numpy()
        expected = getattr(np, name)(array, dims, keepdims=keep)
        np.testing.assert_allclose(found, expected, 1e-12, 1e-12)
    if array.size:
        for name in ("amax", "amin", "mean"):
            expected = getattr(np, name)(array, dims, keepdims=keep)
            found = getattr(tt, name)(x, dims, keep).numpy()
            np.testing.assert_allclose(found, expected, 1e-12, 1e-12)


@QUICK
@given(SHAPES.filter(len), LAYOUT, DEVICE, st.data())
def test_running_sums_and_extremes_are_numpys(
    shape: Any, layout: str, device: str, data: st.DataObject
) -> None:
    array = numbered(shape, layout)
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = tt.as_tensor(array, device=device)
    np.testing.assert_allclose(x.cumsum(dim).numpy(), np.cumsum(array, dim), 1e-12, 1e-12)
    if array.size:
        np.testing.assert_array_equal(x.argmax(dim).numpy(), np.argmax(array, dim))
        np.testing.assert_array_equal(x.max(dim).values.numpy(), np.max(array, dim))
        assert x.argmin().item() == np.argmin(array)


@QUICK
@given(SHAPES, LAYOUT, st.data())
def test_views_share_memory(shape: Any, layout: str, data: st.DataObject) -> None:
    array = numbered(shape, layout)
    x = tt.from_numpy(array)
    order = data.draw(st.permutations(range(len(shape))))
    place = data.draw(st.integers(-len(shape) - 1, len(shape)))
    wide = data.draw(st.integers(0, 3))
    pairs = [
        (x.permute(order), array.transpose(order)),
        (x.T, array.T),
        (x.unsqueeze(place), np.expand_dims(array, place)),
        (x.squeeze(), np.squeeze(array)),
        (x.expand((wide, *shape)), np.broadcast_to(array, (wide, *shape))),
        (x.detach(), array),
    ]
    for ours, theirs in pairs:
        np.testing.assert_array_equal(ours.numpy(), theirs)
        assert not theirs.size or np.shares_memory(ours.numpy(), array)


@QUICK
@given(SHAPES, LAYOUT, st.data())
def test_reshaping_keeps_the_order(shape: Any, layout: str, data: st.DataObject) -> None:
    array = numbered(shape, layout)
    sizes = data.draw(st.permutations(shape))
    x = tt.from_numpy(array)
    np.testing.assert_array_equal(x.reshape(sizes).numpy(), array.reshape(sizes))
    np.testing.assert_array_equal(x.flatten().numpy(), array.reshape(-1))
    if array.size:
        np.testing.assert_array_equal(x.reshape(-1, 1).numpy(), array.reshape(-1, 1))
        assert np.shares_memory(x.reshape(-1).numpy(), array) == np.shares_memory(
            array.reshape(-1), array
        )


@QUICK
@given(SHAPES.filter(len), st.data(), DEVICE)
def test_what_is_cut_can_be_joined(shape: Any, data: st.DataObject, device: str) -> None:
    array = numbered(shape, "contiguous")
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    size = data.draw(st.integers(1, 4))
    x = tt.as_tensor(array, device=device)
    parts = x.split(size, dim)
    assert all(part.shape[dim] <= size for part in parts)
    np.testing.assert_array_equal(tt.cat(parts, dim).numpy(), array)
    if shape[dim]:
        np.testing.assert_array_equal(tt.stack(x.unbind(dim), dim).numpy(), array)
        np.testing.assert_array_equal(tt.cat(x.chunk(size, dim), dim).numpy(), array)
    np.testing.assert_array_equal(x.flip(dim).numpy(), np.flip(array, dim))


@QUICK
@given(SHAPES.filter(len), st.data(), DEVICE)
def test_borders_are_numpys(shape: Any, data: st.DataObject, device: str) -> None:
    array = numbered(shape, "contiguous")
    widths = data.draw(
        st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=len(shape))
    )
    full = [(0, 0)] * (len(shape) - len(widths)) + widths[::-1]
    x = tt.as_tensor(array, device=device)
    found = tt.pad(x, [each for pair in widths for each in pair], value=1.5)
    np.testing.assert_array_equal(found.numpy(), np.pad(array, full, constant_values=1.5))


def test_negative_borders_cut_off() -> None:
    x = tt.arange(6.0).reshape(2, 3)
    assert tt.pad(x, (-1, 1)).tolist() == [[1.0, 2.0, 0.0], [4.0, 5.0, 0.0]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: x.reshape(4), r"6 elements .* \(4,\)"),
        (lambda x: x.reshape(-1, -1), "at most one -1"),
        (lambda x: x.T.view(6), "needs a copy; use reshape"),
        (lambda x: x.expand(3, 3), "does not expand"),
        (lambda x: x.expand(3), "at least 2 sizes"),
        (lambda x: x.permute(0, 0), "each of 2 dimensions once"),
        (lambda x: x.sum(2), "expected dim from -2 to 1, got 2"),
        (lambda x: x.sum((0, -2)), "named twice"),
        (lambda x: x.transpose(0, 5), "expected dim"),
        (lambda x: x.split([1, 3]), "do not add up to 2"),
        (lambda x: x.split(0), "at least 1"),
        (lambda x: x.chunk(0), "at least one part"),
        (lambda x: x.narrow(0, 1, 5), "do not lie within"),
        (lambda x: tt.cat([x, x.T]), "shapes must agree"),
        (lambda x: tt.cat([]), "at least one"),
        (lambda x: tt.stack([x, x[0]]), "one shape"),
        (lambda x: tt.pad(x, (1,)), "two widths per dimension"),
        (lambda x: x.unsqueeze(4), "expected dim"),
        (lambda x: tt.matmul(x, x), "do not fit"),
        (lambda x: tt.matmul(x, tt.tensor(1.0)), "use \\* for numbers"),
        (lambda x: tt.bmm(x, x), "stacks of matrices"),
        (lambda x: tt.linear(x, x.T), "expected weight"),
        (lambda x: tt.einsum("ij,jk", x), "names 2 operands"),
        (lambda x: tt.einsum("ij->k", x), "only in the result"),
        (lambda x: tt.einsum("i", x), "does not name"),
        (lambda x: tt.einsum("ij,ij", x, x.T), "stands for"),
        (lambda x: tt.conv2d(x, x), "expected x"),
        (lambda x: tt.max_pool2d(x, 2), "expected images"),
        (lambda x: tt.layer_norm(x, (2,)), "expected last dimensions"),
        (lambda x: tt.amax(x[:0]), "at least one element"),
        (lambda x: tt.mse_loss(x, x[:, :2]), "expected a target"),
        (lambda x: tt.full((-1,), 0.0), "at least 0"),
        (lambda x: tt.zeros(2, -3), "at least 0"),
        (lambda x: tt.empty(-3), "at least 0"),
        (lambda x: tt.eye(-1), "at least 0"),
    ],
)
def test_what_does_not_fit_is_said(call: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        call(tt.ones(2, 3))
