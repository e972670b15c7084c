"""Histories of tensors that are changed in place, and of their views, against PyTorch."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tapegrad.tensors as tt
from tapegrad import nn
from tapegrad.errors import GradError
from tests.oracles.torch import Torch, assert_equal, tapegrad
from tests.tensors.cases import DEVICES
from tests.tensors.history_calls import (
    CHANGES,
    FUNCTIONS,
    VIEWS,
    changed,
    changed_later,
    same_tensor,
    shares,
)

#: Views of what was made so far, and changes of it: what kind, which, by what, of what.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("view"), st.sampled_from([*VIEWS]), st.integers(0, 7), st.just(0)),
        st.tuples(
            st.sampled_from(["seen", "number", "weights", "itself"]),
            *(st.sampled_from([*CHANGES]), st.integers(0, 7), st.integers(0, 7)),
        ),
    ),
    min_size=2,
    max_size=10,
)


@settings(max_examples=400, deadline=None)
@given(recorded=st.booleans(), steps=STEPS)
def test_programs_of_views_and_changes_are_differentiated_as_in_pytorch(
    torch: Torch, recorded: bool, steps: list[Any]
) -> None:
    theirs = torch(changed, recorded, steps, True)
    ours = changed(tapegrad(), recorded, steps, False)
    assert_equal(ours, theirs, 1e-11, str(steps))


@pytest.mark.parametrize("device", DEVICES)
def test_a_change_by_itself_has_the_right_gradient(device: str) -> None:
    operands: list[Any] = [
        lambda h: (h, [4.0, 6.0]),
        lambda h: (h.view(2), [4.0, 6.0]),
        lambda h: (h.detach(), [2.0, 3.0]),
        lambda h: (h.data, [2.0, 3.0]),
    ]
    for operand in operands:
        x = tt.tensor([2.0, 3.0], device=device, requires_grad=True)
        h = x * 1
        given, expected = operand(h)
        h.mul_(given).sum().backward()
        assert x.grad is not None and x.grad.tolist() == expected
    x = tt.tensor([2.0, 4.0], device=device, requires_grad=True)
    h = x * 1
    h.div_(h.detach()).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0.5, 0.25]


@pytest.mark.parametrize("device", DEVICES)
def test_views_of_constants_follow_what_is_written_below_them(device: str) -> None:
    w = tt.tensor([1.0, 2.0], device=device, requires_grad=True)
    buffer = tt.zeros(3, 2, device=device)
    rows = [buffer[i] for i in range(3)]
    buffer[0] = w
    buffer[1] = w * 2
    assert all(row.requires_grad and not row.is_leaf for row in rows)
    total = tt.stack([(row * row).sum() for row in rows]).sum()
    total.backward()
    assert w.grad is not None and w.grad.tolist() == [10.0, 20.0]


def test_views_that_follow_have_gradients_of_any_order() -> None:
    def function(w: Any) -> Any:
        buffer = tt.ones(3, 2, dtype="float64")
        flat, wide = buffer.view(-1), buffer[:, :1].expand(3, 4)
        buffer.mul_(w.sin())
        buffer[1] = w * w
        return flat.exp().sum() * wide.sum()

    w = tt.tensor([0.4, 0.9], dtype="float64", requires_grad=True)
    assert tt.gradcheck(function, w) and tt.gradgradcheck(function, w)


def test_changes_of_views_have_gradients_of_any_order() -> None:
    def function(w: Any) -> Any:
        buffer = tt.ones(2, 4, dtype="float64") * w
        part, wide = buffer.T[1:3], buffer.view(2, 2, 2)[..., :1].expand(2, 2, 3)
        part[0].mul_(w[:2].sin())
        buffer.view(-1)[1::3].sin_()
        part.mul_(part.sum())
        return (buffer * buffer).sum() * wide.sum() + part.exp().sum()

    w = tt.tensor([0.4, 0.9, 0.1, 0.3], dtype="float64", requires_grad=True)
    assert tt.gradcheck(function, w) and tt.gradgradcheck(function, w)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "root",
    [
        lambda m: m.T,
        lambda m: m[::2, 1::2],
        lambda m: m[::-1, ::-3],
        lambda m: m[:0],
        lambda m: m[1, 2],
    ],
)
def test_bases_may_lie_in_memory_in_any_way(root: Any, device: str) -> None:
    w = tt.tensor(2.0, device=device, requires_grad=True)
    base = root(tt.ones(4, 5, device=device)).detach()
    seen, whole = base[..., :1] if base.ndim else base[None], base.view((*base.shape, 1))
    seen.mul_(w)
    whole.add_(w)
    assert base._base is None and seen._base is base
    base.sum().backward()
    assert w.grad is not None and w.grad.item() == base.numel() + seen.numel()


@pytest.mark.parametrize("device", DEVICES)
def test_a_base_is_changed_through_its_views(device: str) -> None:
    x = tt.ones(2, 3, device=device, requires_grad=True)
    z = tt.ones(2, device=device, requires_grad=True)
    y = x * 2
    rows, column = y.unbind(), y[:, 1]
    rows[0].mul_(3)
    column.add_(z)
    y[1:].view(-1)[0] = 0.0
    assert column._base is y and y.tolist() == [[6.0, 7.0, 6.0], [0.0, 3.0, 2.0]]
    (y.sum() + rows[1].sum() + column.sum()).backward()
    assert x.grad is not None and x.grad.tolist() == [[6.0, 12.0, 6.0], [0.0, 6.0, 4.0]]
    assert z.grad is not None and z.grad.tolist() == [2.0, 3.0]


@pytest.mark.parametrize("device", DEVICES)
def test_a_view_that_was_changed_comes_from_its_base(device: str) -> None:
    y = tt.ones(2, 3, device=device, requires_grad=True) * 2
    row = y[0]
    row.mul_(5)
    (by_y,) = tt.grad(row.sum(), y, retain_graph=True)
    assert by_y.tolist() == [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]
    y.retain_grad()
    (row * row).sum().backward()
    assert y.grad is not None and y.grad.tolist() == [[20.0, 20.0, 20.0], [0.0, 0.0, 0.0]]


def test_a_gradient_that_is_kept_is_that_of_the_latest_elements() -> None:
    x = tt.ones(3, requires_grad=True)
    seen: list[Any] = []
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda g: seen.append(g.tolist()))
    y.mul_(3)
    y[1:].mul_(5)
    y[0] = 7.0
    (y * y).sum().backward()
    assert y.grad is not None and y.grad.tolist() == [14.0, 60.0, 60.0]
    assert seen == [[0.0, 900.0, 900.0]]


def test_views_know_each_other_without_their_base() -> None:
    x = tt.ones(3, requires_grad=True)
    y = x * 1
    first, last = y[:2], y[1:]
    del y
    first.mul_(3)
    last.mul_(x[1:] * 2)
    (first.sum() + last.sum()).backward()
    assert x.grad is not None and x.grad.tolist() == [3.0, 24.0, 4.0]


def test_a_base_that_nobody_else_holds_is_let_go() -> None:
    x = tt.ones(2, 3, requires_grad=True)
    base = x.clone()
    end, column = weakref.ref(base), base[:, 1]
    del base
    assert end() is not None
    column.add_(2)
    assert end() is None and column._base is None
    (column * column).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [[0.0, 6.0, 0.0]] * 2


def test_views_that_have_no_place_in_the_record_are_not_changed() -> None:
    x = tt.ones(3, requires_grad=True)
    y = x * 2
    with tt.no_grad():
        unrecorded, of_leaf = y[:2], x[:2]
    for view in (x[1:], of_leaf, x.view(3, 1)):
        with pytest.raises(GradError, match="a view of a leaf"):
            view.zero_()
    with pytest.raises(GradError, match=r"made within no_grad\(\)"):
        unrecorded.mul_(2)
    with pytest.raises(GradError, match=r"made within no_grad\(\)"):
        unrecorded[0] = x[0]
    with pytest.raises(GradError, match=r"use detach\(\)"):
        y[:2].detach_()
    loss = (y * y).sum()
    with tt.no_grad():
        unrecorded.zero_()
        of_leaf.zero_()
    assert y.tolist() == [0.0, 0.0, 2.0] and x.tolist() == [0.0, 0.0, 1.0]
    with pytest.raises(GradError, match="changed in place"):
        loss.backward()


def test_what_is_no_view_does_not_follow() -> None:
    w, x = tt.ones(2, requires_grad=True), tt.zeros(3, 2)
    other, row = x.detach(), x.detach()[0]
    before = x[0]
    x.data = tt.zeros(3, 2)
    x[0] = w
    assert not (other.requires_grad or row.requires_grad or before.requires_grad)


def test_a_leaf_on_the_memory_keeps_it_from_changes() -> None:
    w, x = tt.ones(2, requires_grad=True), tt.zeros(3, 2)
    row = x[0].requires_grad_()
    with pytest.raises(GradError, match="a leaf that requires gradients is a view"):
        x[1] = w
    with tt.no_grad():
        x[1] = w
    assert row.is_leaf and x.tolist()[1] == [1.0, 1.0]
    del row
    x[1] = w
    assert x.requires_grad


def test_views_are_let_go_in_any_order() -> None:
    random = np.random.default_rng(0)
    gc.collect()
    for _ in range(50):
        w, held = tt.ones(2, requires_grad=True), [tt.zeros(3, 2)]
        for _ in range(12):
            source = held[int(random.integers(len(held)))]
            held.append(source[:] if random.integers(2) else source.view(source.shape[0], -1, 1))
            held[-1] = held[-1].reshape(held[-1].shape[:2])
        base = held.pop(0)
        while held:
            base.add_(w)
            held.pop(int(random.integers(len(held))))
        end = weakref.ref(base)
        del base, source
        assert end() is None


def test_places_that_a_write_was_recorded_with_may_change() -> None:
    x, w = tt.zeros(3) * 1, tt.ones(1, requires_grad=True)
    places = tt.tensor([0])
    x[places] = w
    places[0] = 2
    (x * tt.tensor([1.0, 2.0, 4.0])).sum().backward()
    assert w.grad is not None and w.grad.tolist() == [1.0]


#: Results that lie on the memory of x, and copies.
MADE_OF_X = [
    *("x.flip(0)", "x.flip(())", "x.flip(0, 1)", "tt.flip(x, [1])", "x.roll(0)", "x.roll(6)"),
    *("x.roll(3, 1)", "x.roll((0, 3), (0, 1))", "x.roll(1)", "x[:]", "x[...]", "x[None]"),
    *("x[0]", "x[[0]]", "x[x > 2]", "x.T", "x.t()", "x.mT", "x.view(6)", "x.view(2, 3)"),
    *("x.reshape(6)", "x.T.reshape(6)", "x.flatten()", "x.T.flatten()", "x.squeeze()"),
    *("x.unsqueeze(0)", "x.expand(2, 2, 3)", "x.permute(1, 0)", "x.movedim(0, 1)", "x.chunk(2)[0]"),
    *("x.split(1)[1]", "x.unbind()[0]", "x.narrow(0, 0, 1)", "x.unflatten(1, (3, 1))", "x.clone()"),
    *("x.contiguous()", "x.T.contiguous()", "x.detach()", "x.data", "x.to(x.dtype)", "x.float()"),
    *("x.double()", "x.repeat(1, 1)", "x.tile((1,))", "x.repeat_interleave(1)", "x.tril()"),
    *("x.cumsum(0)", "x.sum(())", "tt.cat([x])", "tt.stack([x])", "tt.broadcast_to(x, (2, 3))"),
    *("x.sort()[0]", "x.gather(0, tt.zeros_like(x).long())", "x.masked_fill(x < 0, 1)", "+x"),
    *("tt.where(x > -1, x, x)", "x.clamp(-9, 9)", "x.masked_select(x > -1)", "tt.as_tensor(x)"),
]


def test_what_shares_memory_is_what_does_in_pytorch(torch: Torch) -> None:
    ours, theirs = shares(tapegrad(), MADE_OF_X), torch(shares, MADE_OF_X)
    found = list(zip(MADE_OF_X, ours, theirs, strict=True))
    assert not [text for text, our, their in found if our != their]


#: Results of the shape of x, or of `one`, which has no dimensions.
ALIKE = [
    *("x.view(3)", "x.view_as(x)", "x.reshape(-1)", "x.reshape_as(x)", "x.squeeze()", "x.t()"),
    *("x.squeeze(0)", "x.expand(3)", "x.expand_as(x)", "tt.broadcast_to(x, (3,))", "x.T", "x[:]"),
    *("x.unflatten(0, (3,))", "x.transpose(0, 0)", "x.permute(0)", "x.movedim(0, 0)", "x[...]"),
    *("x.flatten()", "x.contiguous()", "x.to(x.dtype)", "x.clone()", "x.detach()", "x.chunk(1)[0]"),
    *("one.transpose(0, 0)", "one.squeeze()", "one.movedim((), ())"),
]


def test_what_is_the_same_tensor_is_so_in_pytorch(torch: Torch) -> None:
    ours, theirs = same_tensor(tapegrad(), ALIKE), torch(same_tensor, ALIKE)
    found = list(zip(ALIKE, ours, theirs, strict=True))
    assert not [text for text, our, their in found if our != their]


@pytest.mark.parametrize("device", DEVICES)
def test_a_view_of_the_same_shape_has_hooks_of_its_own(device: str) -> None:
    views: list[Any] = [lambda x: x.view_as(x), lambda x: x.reshape(2), lambda x: x.expand(2)]
    for view in views:
        leaf = tt.ones(2, device=device, requires_grad=True)
        x = leaf * 1
        seen = view(x)
        gradients: list[Any] = []
        seen.register_hook(lambda g, found=gradients: found.append(g.tolist()))
        seen.retain_grad()
        (seen.sum() + (10 * x).sum()).backward()
        assert gradients == [[1.0, 1.0]] and seen.grad.tolist() == [1.0, 1.0]
        assert x.grad is None and leaf.grad is not None and leaf.grad.tolist() == [11.0, 11.0]
        plain = tt.ones(2, device=device)
        view(plain).requires_grad_()
        assert not plain.requires_grad


# ---- what is saved ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_no_gradient_needs_may_change_as_in_pytorch(torch: Torch, name: str) -> None:
    random = np.random.default_rng(3)
    arrays = [random.uniform(0.5, 1.5, shape) for shape in FUNCTIONS[name][1:]]
    ours, theirs = changed_later(tapegrad(), name, arrays), torch(changed_later, name, arrays)
    for place, (our, their) in enumerate(zip(ours, theirs, strict=True)):
        if their is not None:
            assert_equal(our, their, 1e-11, f"{name}, case {place}")


def test_frozen_operands_are_let_go() -> None:
    calls: list[tuple[Any, list[tuple[int, ...]], list[int]]] = [
        (tt.matmul, [(3, 4), (4, 2)], [1, 0]),
        (nn.functional.linear, [(3, 4), (2, 4), (2,)], [1, 0, -1]),
        (nn.functional.conv2d, [(1, 2, 3, 3), (2, 2, 2, 2), (2,)], [1, 0, -1]),
    ]
    for function, shapes, needed in calls:
        for place, other in enumerate(needed):
            operands = [tt.ones(*shape) for shape in shapes]
            operands[place].requires_grad_()
            ends = [weakref.ref(each) for each in operands]
            y = function(*operands)
            del operands
            held = [end() is not None for end in ends]
            assert held == [number in (place, other) for number in range(len(shapes))]
            y.sum().backward()
