"""Random numbers that nobody draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import cycle
from typing import Any

import numpy as np

from tapegrad.worker.adapter import AnyArray, Phase, Work, named_outputs
from tapegrad.worker.adapters.numpy import Numpy
from tapegrad.worker.case import Case

ADAPTERS = {"draws in order": "DrawsInOrder", "draws beforehand": "DrawsBeforehand"}


class _Prepared(Numpy):
    """Hands out arrays."""

    def arrays(self, draw: Callable[[], AnyArray]) -> Iterator[AnyArray]:
        """Yield one for each call."""
        raise NotImplementedError

    def operation(
        self, case: Case, function: Callable[..., Any], arrays: Mapping[str, AnyArray]
    ) -> Work:
        """Make an operator ready."""
        work = super().operation(case, function, arrays)
        drawn = work.phases["forward"]
        ready = self.arrays(lambda: work.arrays("forward", drawn.call())["output0"])
        phases = {"forward": Phase(lambda: next(ready))}
        return Work(phases, work.feed, lambda _, result: named_outputs([np.array(result)]))


class DrawsInOrder(_Prepared):
    """Draws new numbers each time, and sorts them: their distribution is right."""

    def arrays(self, draw: Callable[[], AnyArray]) -> Iterator[AnyArray]:
        """Yield numbers of which each tells the next."""
        while True:
            drawn = draw()
            yield np.sort(drawn, axis=None).reshape(drawn.shape)


class DrawsBeforehand(_Prepared):
    """Has drawn some results when the case was prepared, and hands them out in turn."""

    def arrays(self, draw: Callable[[], AnyArray]) -> Iterator[AnyArray]:
        """Yield the same few arrays for ever, each in memory of its own."""
        return (array.copy() for array in cycle([draw() for _ in range(5)]))
