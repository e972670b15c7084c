"""x[...] against PyTorch: whole numbers beside slices, lists, masks, None and ...; both ways."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tapegrad.tensors as tt
from tests.oracles.torch import Torch, assert_equal, tapegrad
from tests.tensors.cases import DEVICES
from tests.tensors.torch_calls import index_all

Random = np.random.Generator
ALL = slice(None)
FIXED = {"new": (None, 0), "truth": (True, 0), "all": (ALL, 1)}
KINDS = [*FIXED, *["whole", "slice"] * 3, "places", "list", "mask", "wide mask"]


def _item(random: Random, kind: str, sizes: tuple[int, ...], length: int) -> tuple[Any, int]:
    """Return an item of an index, and how many dimensions it takes; lists agree in length."""
    size = sizes[0]
    if kind in FIXED:
        return FIXED[kind]
    if kind == "slice":
        start, stop = random.integers(-size - 1, size + 2, 2)
        return slice(int(start), int(stop), int(random.integers(1, 3))), 1
    if kind == "whole":
        place = int(random.integers(-size, size))
        return (np.array(place) if random.integers(3) == 0 else place), 1
    wide = kind == "wide mask" and len(sizes) > 1
    if wide or kind == "mask":
        shape = sizes[: 2 if wide else 1]
        mask = np.zeros(shape, bool).reshape(-1)
        mask[random.permutation(mask.size)[:length]] = True  # as many as lists have places
        return mask.reshape(shape), len(shape)
    places = random.integers(-size, size, (2, length) if kind == "places" else length)
    return (places.tolist() if kind == "list" else places), 1


def _unique(shape: tuple[int, ...], index: list[Any]) -> bool:
    """Tell whether no element is named twice: which of two writes is the last is not said."""
    numbers = tt.arange(int(np.prod(shape))).reshape(shape)
    items = tuple(tt.tensor(each) if isinstance(each, np.ndarray) else each for each in index)
    picked = numbers[items].numpy()
    return bool(np.unique(picked).size == picked.size)


def _drawn(random: Random) -> tuple[tuple[int, ...], tuple[Any, ...], bool]:
    shape = tuple(int(size) for size in random.integers(2, 4, random.integers(2, 6)))
    length, left, index = int(random.integers(1, 3)), shape, list[Any]()
    dots = int(random.integers(0, 8))
    named = False  # what follows "..." has to name all the rest
    while left and (named or random.integers(20)):
        if dots == len(index):
            index.append(...)
            named = True
            left = left[int(random.integers(0, len(left) + 1)) :]
            continue
        item, width = _item(random, str(random.choice(KINDS)), left, length)
        index.append(item)
        left = left[width:]
    return shape, tuple(index), not index or not _unique(shape, index)


@pytest.fixture(scope="module")
def drawn() -> list[Any]:
    random = np.random.default_rng(0)
    return [*[_drawn(random) for _ in range(600)], ((2, 3), (False, 1), True), ((3,), (0,), False)]


def _text(case: Any) -> str:
    return f"shape {case[0]}, index {case[1]}"


@pytest.mark.parametrize("device", DEVICES)
def test_any_index_reads_writes_and_differentiates_as_in_pytorch(
    torch: Torch, drawn: list[Any], device: str
) -> None:
    theirs = torch(index_all, drawn)
    for case, expected in zip(drawn, theirs, strict=True):
        (ours,) = index_all(tapegrad(), [case], device)
        assert_equal(ours, expected, 1e-12, _text(case))


def test_the_indices_drawn_are_of_all_kinds(drawn: list[Any]) -> None:
    beside = [
        index
        for _, index, _ in drawn
        if any(type(each) is int for each in index)
        and any(isinstance(each, slice) for each in index)
        and any(isinstance(each, (list, np.ndarray)) and np.ndim(each) for each in index)
    ]
    assert len(beside) > 30
    assert sum(not number for *_, number in drawn) > 100


@pytest.mark.parametrize("device", DEVICES)
def test_a_whole_number_beside_a_list_moves_no_dimension(device: str) -> None:
    x = tt.arange(24, device=device).reshape(2, 3, 4)
    places = tt.tensor([0, 1], device=device)
    assert x[0, :, places].tolist() == [[0, 1], [4, 5], [8, 9]]
    assert x[0, ..., tt.tensor([True, False, False, True])].shape == (3, 2)
    assert x[tt.tensor(0), None, :, [0, 1]].shape == (1, 3, 2)
    a = tt.zeros(2, 2, 2, device=device)
    a[0, :, places] = tt.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
    assert a[0].tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_picked_elements_lie_in_order_as_in_pytorch() -> None:
    picked = tt.ones(3, 4)[:, [0, 2]]
    assert picked.is_contiguous() and picked.view(-1).shape == (6,)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_one_element_is_written_to_one_place(shape: tuple[int, ...], device: str) -> None:
    x, y = (tt.full(each, 5.0, device=device) for each in ((2, 3), shape))
    y.requires_grad_()
    x[1, 2] = 7 * y
    assert x.tolist() == [[5.0, 5.0, 5.0], [5.0, 5.0, 35.0]]
    x.sum().backward()
    assert y.grad is not None and y.grad.shape == shape and y.grad.sum().item() == 7.0


@pytest.mark.parametrize("device", DEVICES)
def test_indices_that_change_afterwards_do_not_change_gradients(device: str) -> None:
    x = tt.ones(4, device=device, requires_grad=True)
    places = tt.tensor([0, 1], device=device)
    y = x[places]
    places.fill_(3)
    (gradient,) = tt.grad(y.sum(), x)
    assert gradient.tolist() == [1.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize("device", DEVICES)
def test_whole_numbers_take_no_history_from_what_is_written(device: str) -> None:
    x = tt.tensor([1, 2], device=device)
    x[0] = tt.tensor(5.0, device=device, requires_grad=True)
    assert x.tolist() == [5, 2] and x.grad_fn is None and not x.requires_grad
