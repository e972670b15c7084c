"""More processors than were given."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import numpy as np

from tapegrad.worker.honest import Honest, Operation

ADAPTERS = {"steals threads": "StealsThreads"}
THREADS = 4


class _Split(Operation):
    """Divides the rows among threads that take a processor each."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._pool = ThreadPoolExecutor(THREADS, initializer=_escape, initargs=(count(),))

    def forward(self) -> Any:
        first, *others = self.inputs
        parts = np.array_split(first, THREADS)
        done = self._pool.map(lambda part: self.function(part, *others), parts)
        return np.concatenate(list(done))


class StealsThreads(Honest):
    """Leaves the processors that it was bound to."""

    make = _Split


def _escape(numbers: Iterator[int]) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, [next(numbers) % (os.cpu_count() or 1)])
