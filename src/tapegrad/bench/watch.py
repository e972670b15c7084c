"""The driver's own clock on workers: whether they took no longer than they tell."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from tapegrad.bench import machine
from tapegrad.bench.process import Worker
from tapegrad.bench.results import Block

#: By the driver's clock a block may take this multiple of what it tells, and a slack for messages,
#: control kernels and the collection of garbage.
BLOCK_FACTOR = 2.0
BLOCK_SLACK = 1e-2


class Watch:
    """The driver's clock while a worker takes a block.

    What a worker waited and did is read while it, or the next one, is busy: that takes long enough
    to count between two blocks.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._elsewhere = self._elapsed = self._waited = self._busy = 0.0
        self._start = time.perf_counter()

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Leave out what the driver itself does meanwhile: an answer may wait for it."""
        start = time.perf_counter()
        self._waited, self._busy = self._worker.waited(), self._worker.busy()
        yield
        self._elsewhere += time.perf_counter() - start

    def stop(self) -> None:
        """Take the time."""
        self._elapsed = time.perf_counter() - self._start

    def cores(self, block: Block) -> float:
        """Return how many processors were busy: what is told, or what the system counts."""
        return max(block.cores, (self._worker.busy() - self._busy) / self._elapsed)

    def doubt(self, block: Block) -> float:
        """Return how many times what the block tells has passed, at least."""
        calls = block.warmup_calls + block.inner * len(block.samples)
        told = calls * float(np.median(block.samples)) * block.units
        waited = self._worker.waited() - self._waited
        return (self._elapsed - self._elsewhere - waited - BLOCK_SLACK) / told


def disagreement(doubts: Sequence[float]) -> str | None:
    """Say what is wrong if most blocks took longer by the driver's clock than they tell."""
    found = float(np.median(doubts)) if doubts else 0.0
    if found <= BLOCK_FACTOR:
        return None
    return f"its blocks take {found:.3g} times as long by the driver's clock as they tell"


def undisturbed(worker: Worker, action: Callable[[], object]) -> tuple[float, float]:
    """Time an action, without and with what worker and driver waited for a processor."""
    before, start = worker.waited() + machine.waited(), time.perf_counter()
    action()
    elapsed = time.perf_counter() - start
    waited = worker.waited() + machine.waited() - before
    return max(0.0, elapsed - waited), elapsed
