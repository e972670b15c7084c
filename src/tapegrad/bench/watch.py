"""The driver's own clock on blocks: whether they took as long as they tell."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from tapegrad.bench.process import Worker
from tapegrad.bench.results import Block

#: By the driver's clock a block may take this multiple of what it tells, and a slack for messages,
#: control kernels and the collection of garbage.
BLOCK_FACTOR = 2.0
BLOCK_SLACK = 1e-2


class Watch:
    """The driver's clock while a worker takes a block.

    What a worker waited is read while it, or the next one, is busy: that takes long enough to count
    between two blocks.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._elsewhere = self._elapsed = self._waited = 0.0
        self._start = time.perf_counter()

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Leave out what the driver itself does meanwhile: an answer may wait for it."""
        start = time.perf_counter()
        self._waited = self._worker.waited()
        yield
        self._elsewhere += time.perf_counter() - start

    def stop(self) -> None:
        """Take the time."""
        self._elapsed = time.perf_counter() - self._start

    def doubts(self, block: Block) -> tuple[float, float]:
        """Return how many times what the block tells has passed: at least, and at most."""
        calls = block.warmup_calls + block.inner * len(block.samples)
        told = calls * float(np.median(block.samples)) * block.units
        waited = self._worker.waited() - self._waited
        least = self._elapsed - self._elsewhere - waited - BLOCK_SLACK
        return least / told, (self._elapsed + BLOCK_SLACK) / block.seconds


def disagreement(doubts: Sequence[tuple[float, float]]) -> str | None:
    """Say what is wrong unless most blocks took as long by the driver's clock as they tell."""
    if not doubts:
        return None
    least, most = (float(np.median(each)) for each in zip(*doubts, strict=True))
    if least > BLOCK_FACTOR:
        return f"its blocks take {least:.3g} times as long by the driver's clock as they tell"
    if most < 1 / BLOCK_FACTOR:
        return f"its blocks tell {1 / most:.3g} times what passed on the driver's clock"
    return None
