"""Datasets and loaders: order, batches, threads."""

from __future__ import annotations

import threading
from collections import namedtuple
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tapegrad.data import DataLoader, Dataset, TensorDataset, default_collate
from tapegrad.errors import DTypeError, OptionError, ShapeError
from tapegrad.tensors import (
    Generator,
    arange,
    float32,
    float64,
    inference_mode,
    int64,
    manual_seed,
    no_grad,
    ones,
)
from tests.data.batch_calls import batches
from tests.oracles.torch import Torch, assert_equal, tapegrad


class Squares(Dataset):
    """Numbers and their squares, as Python has them."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[int, float]:
        return index, float(index**2)


ROWS = TensorDataset(arange(10), arange(20).reshape(10, 2).to(float32))


def _numbers(loader: DataLoader) -> list[list[int]]:
    return [x.tolist() for x, _ in loader]


@pytest.mark.parametrize("dataset", [Squares(), ROWS])
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_batches_come_in_order(dataset: Dataset, workers: int) -> None:
    loader = DataLoader(dataset, 4, num_workers=workers)
    assert _numbers(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]] and len(loader) == 3
    loader = DataLoader(dataset, 4, num_workers=workers, drop_last=True)
    assert _numbers(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]] and len(loader) == 2


@pytest.mark.parametrize("workers", [0, 2])
def test_shuffles_are_seeded(workers: int) -> None:
    def passes(seed: int) -> list[list[int]]:
        generator = Generator().manual_seed(seed)
        loader = DataLoader(ROWS, 10, True, generator=generator, num_workers=workers)
        return [_numbers(loader)[0] for _ in range(3)]

    first = passes(1)
    assert first == passes(1) and first != passes(2)
    assert first[0] != first[1]
    assert all(sorted(each) == list(range(10)) for each in first)


def test_order_follows_the_library_seed() -> None:
    loader = DataLoader(ROWS, 10, shuffle=True)
    manual_seed(3)
    first = _numbers(loader)
    manual_seed(3)
    assert _numbers(loader) == first


def test_samplers_decide_on_order() -> None:
    assert _numbers(DataLoader(ROWS, 2, sampler=[3, 1, 2])) == [[3, 1], [2]]
    loader = DataLoader(ROWS, batch_sampler=[[5], [1, 2, 3]])
    assert _numbers(loader) == [[5], [1, 2, 3]] and len(loader) == 2
    assert [int(x) for x, _ in DataLoader(ROWS, None, sampler=[4, 2])] == [4, 2]


def test_collation_keeps_the_form_of_samples() -> None:
    point = namedtuple("point", "x y")
    batch = default_collate(
        [
            {"a": (1, 2.5), "b": [True, "t"], "c": point(np.float32(1), np.ones(2)), "d": ones(2)},
            {
                "a": (2, 3.5),
                "b": [False, "u"],
                "c": point(np.float32(2), np.zeros(2)),
                "d": ones(2),
            },
        ]
    )
    assert batch["a"][0].tolist() == [1, 2] and batch["a"][0].dtype == int64
    assert batch["a"][1].tolist() == [2.5, 3.5] and batch["a"][1].dtype == float64
    assert batch["b"][0].tolist() == [True, False] and batch["b"][1] == ["t", "u"]
    assert batch["c"].x.dtype == float32 and batch["c"].y.tolist() == [[1, 1], [0, 0]]
    assert tuple(batch["d"].shape) == (2, 2)


def test_batches_are_those_of_pytorch(torch: Torch) -> None:
    assert_equal(batches(tapegrad()), torch(batches), 0.0)


def test_samples_are_collated_as_asked() -> None:
    loader = DataLoader(Squares(), 5, collate_fn=lambda samples: [x for x, _ in samples])
    assert list(loader) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


def test_workers_stay_ahead_within_bounds() -> None:
    asked: list[int] = []

    class Noting(Squares):
        def __getitem__(self, index: int) -> tuple[int, float]:
            asked.append(index)
            return super().__getitem__(index)

    batches = iter(DataLoader(Noting(), 1, num_workers=1, prefetch_factor=3))
    next(batches)
    assert len(asked) <= 5
    assert len(list(batches)) == 9 and sorted(asked) == list(range(10))


def test_a_pass_that_ends_early_leaves_no_thread() -> None:
    batches: Iterator[Any] = iter(DataLoader(Squares(), 1, num_workers=2))
    next(batches)
    workers = [each for each in threading.enumerate() if "tapegrad-data" in each.name]
    assert workers  # those of loaders that ran before end, too
    batches.close()  # type: ignore[attr-defined]
    for worker in workers:
        worker.join(10)
    assert not any(worker.is_alive() for worker in workers)


def test_threads_have_numbers_and_begin_once() -> None:
    begun: list[int] = []
    loader = DataLoader(Squares(), 2, num_workers=2, worker_init_fn=begun.append)
    assert len(list(loader)) == 5 and begun in ([0], [0, 1], [1, 0])


@pytest.mark.parametrize("workers", [0, 2])
def test_samplers_without_length_are_gone_over(workers: int) -> None:
    numbers = (number for number in (3, 1, 2))
    loader = DataLoader(Squares(), 2, sampler=numbers, num_workers=workers)
    assert [x.tolist() for x, _ in list(loader)] == [[3, 1], [2]]


def test_a_thread_that_cannot_begin_says_why() -> None:
    def begin(number: int) -> None:
        raise KeyError(f"no file for thread {number}")

    with pytest.raises(KeyError, match="no file for thread"):
        list(DataLoader(Squares(), 2, num_workers=2, worker_init_fn=begin))


def test_a_batch_that_takes_too_long_is_told() -> None:
    free = threading.Event()

    class Waiting(Squares):
        def __getitem__(self, index: int) -> tuple[int, float]:
            free.wait(10)
            return super().__getitem__(index)

    with pytest.raises(TimeoutError, match=r"DataLoader: no batch within 0\.01 seconds"):
        next(iter(DataLoader(Waiting(), 1, num_workers=1, timeout=0.01)))
    free.set()


def test_errors_of_workers_arrive() -> None:
    class Broken(Squares):
        def __getitem__(self, index: int) -> tuple[int, float]:
            raise ValueError(f"sample {index} is broken")

    with pytest.raises(ValueError, match="sample 0 is broken"):
        list(DataLoader(Broken(), 2, num_workers=2))


@pytest.mark.parametrize(
    ("misuse", "error", "message"),
    [
        (lambda: DataLoader(ROWS, 0), OptionError, "whole number of at least 1, got 0"),
        (lambda: DataLoader(ROWS, 1.5), OptionError, "whole number of at least 1, got 1.5"),  # type: ignore[arg-type]
        (lambda: DataLoader(ROWS, num_workers=-1), OptionError, "num_workers"),
        (lambda: DataLoader(ROWS, num_workers=1.5), OptionError, "got 1.5, 2 and 0"),  # type: ignore[arg-type]
        (
            lambda: DataLoader(ROWS, num_workers=1, prefetch_factor=0.5),  # type: ignore[arg-type]
            OptionError,
            "at least 1 as prefetch_factor",
        ),
        (lambda: DataLoader(ROWS, timeout=-1), OptionError, "timeout of at least 0"),
        (lambda: DataLoader(ROWS, multiprocessing_context="fork"), OptionError, "threads make"),
        (lambda: DataLoader(ROWS, shuffle=True, sampler=[1]), OptionError, "got both"),
        (lambda: DataLoader(ROWS, 2, batch_sampler=[[1]]), OptionError, "leave them out"),
        (lambda: DataLoader(ROWS, None, drop_last=True), OptionError, "needs a batch_size"),
        (lambda: len(DataLoader(ROWS, sampler=iter([1]))), DTypeError, "sampler has no length"),
        (lambda: TensorDataset(ones(2), ones(3)), ShapeError, r"\(2,\), \(3,\)"),
        (TensorDataset, ShapeError, "none"),
        (lambda: default_collate([object()]), DTypeError, "give DataLoader a collate_fn"),
        (lambda: default_collate([(1, 2), (1,)]), DTypeError, r"equal length.*\[1, 2\]"),
        (
            lambda: default_collate([np.ones(2), np.ones(3)]),
            ShapeError,
            r"one shape, got shapes \(2,\), \(3,\); give DataLoader a collate_fn",
        ),
        (lambda: Dataset()[0], NotImplementedError, "__getitem__"),
    ],
)
def test_misuse_is_explained(
    misuse: Callable[[], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        misuse()


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_threads_record_as_the_one_that_asks(workers: int) -> None:
    weight = ones(1, requires_grad=True)

    class Weighted:
        def __len__(self) -> int:
            return 9

        def __getitem__(self, number: int) -> Any:
            return weight * number

    loader = DataLoader(Weighted(), batch_size=2, num_workers=workers)
    with no_grad():
        assert [batch.requires_grad for batch in loader] == [False] * 5
    assert [batch.requires_grad for batch in loader] == [True] * 5


@pytest.mark.parametrize("workers", [0, 2])
def test_threads_are_in_inference_mode_as_the_one_that_asks(workers: int) -> None:
    loader = DataLoader(ROWS, batch_size=4, num_workers=workers)
    with inference_mode():
        assert [x.is_inference() for x, _ in loader] == [True] * 3
    assert [x.is_inference() for x, _ in loader] == [False] * 3
