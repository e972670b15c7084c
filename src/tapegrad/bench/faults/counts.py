"""Work that is counted more than once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tapegrad.worker.adapter import AnyArray, Work
from tapegrad.worker.adapters.numpy import Numpy
from tapegrad.worker.case import Case

ADAPTERS = {"counts twice": "CountsTwice"}


class CountsTwice(Numpy):
    """Evaluates every point of a graph once and counts it as two: half the time."""

    def graph(self, case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        """Make a graph ready."""
        work = super().graph(case, arrays)
        phases = {name: replace(each, units=2 * each.units) for name, each in work.phases.items()}
        return replace(work, phases=phases)
