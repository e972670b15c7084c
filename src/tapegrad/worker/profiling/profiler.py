"""The answers of a worker about a user's model."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from tapegrad.worker.adapter import Adapter
from tapegrad.worker.profiling import events
from tapegrad.worker.profiling.model import Model
from tapegrad.worker.profiling.names import canonical
from tapegrad.worker.profiling.overhead import event_seconds
from tapegrad.worker.profiling.replay import Replay
from tapegrad.worker.profiling.trace import Row, traced, watch_functions
from tapegrad.worker.profiling.waiting import Waiting
from tapegrad.worker.timing import quiet

#: Steps before anything is recorded, the fewest that count in a visit, and the most.
WARM_UP, FEWEST, MOST = 3, 4, 100
#: A visit does not warm up longer than so many seconds.
LONG = 5.0


class Profiler:
    """A user's model in a worker: its rows, and their times in place and alone."""

    def __init__(self, adapter: Adapter, file: Path, function: str, phase: str) -> None:
        self._adapter = adapter
        self._phase = phase
        self._waiting = Waiting(adapter.device)
        watch_functions()
        self._model = Model(file, function, phase, adapter.device)
        self._warm_up()
        self._trace = traced(self._model, adapter.device)
        self._rows = self._trace.rows
        self._aligned: dict[tuple[str, ...], list[int | None]] = {
            tuple(self._trace.names): list(self._trace.places)
        }

    def rows(self) -> list[dict[str, Any]]:
        """Describe the operators of a step that was traced."""
        return [_described(row) for row in self._rows]

    def visit(self, seconds: float) -> dict[str, Any]:
        """Run steps with the profiler and without, for about so long each.

        Half of the plain steps run before and half after, so that a machine that becomes slower
        or faster meanwhile does so for both.
        """
        with quiet():
            count = max(FEWEST, min(MOST, round(seconds / self._elapsed())))
            plain = [self._elapsed() for _ in range((count + 1) // 2)]
            profiled: list[tuple[float, float]] = []

            def run() -> None:
                profiled.extend(self._timed(events.step_range) for _ in range(1 + count))

            steps = events.recorded(self._adapter.device, run)[1:]  # the first one warms it up
            plain += [self._elapsed() for _ in range((count + 1) // 2)]
            overhead = event_seconds(self._adapter.device)
        return {
            "plain": plain,
            "profiled": [elapsed - waited for elapsed, waited in profiled[1:]],
            "waited": [waited / elapsed for elapsed, waited in profiled[1:]],
            "events": [step.events for step in steps],
            "event_seconds": overhead,
            "rows": self._times(steps),
        }

    def replay(self, row: int, seconds: float) -> dict[str, Any]:
        """Repeat the call of a row alone."""
        kind = self._rows[row].kind
        if kind is None or kind.arguments is None:
            return {"samples": [], "waited": []}
        with quiet():
            found, waited = Replay(kind, self._phase).measured(self._adapter.device, seconds)
        return {
            "samples": [operator.sample for operator in found],
            "waited": [waited] * len(found),
        }

    def _warm_up(self) -> None:
        start = time.perf_counter()
        for _ in range(WARM_UP):
            self._elapsed()
            if time.perf_counter() - start > LONG:
                return

    def _elapsed(self, within: Callable[[], Any] = nullcontext) -> float:
        """Time one step; waiting for a processor is not counted."""
        elapsed, waited = self._timed(within)
        return elapsed - waited

    def _timed(self, within: Callable[[], Any]) -> tuple[float, float]:
        """Time one step and the waiting in it, with nothing pending at both ends."""
        self._model.reset()
        self._adapter.settle()
        start = time.perf_counter()
        waited = self._waiting.seconds()
        with within():
            self._model.step()
            self._adapter.settle()
        waited = self._waiting.seconds() - waited
        return time.perf_counter() - start, waited

    def _times(self, steps: list[events.Step]) -> list[dict[str, Any]]:
        """Add up the operators of each row, step by step.

        Operators that the traced step did not have get rows of their own, by name.
        """
        found: dict[tuple[int | None, str], list[events.Operator]] = {}

        def total(row: int | None, name: str, index: int) -> events.Operator:
            key = row, name if row is None else ""
            return found.setdefault(key, [events.Operator(name) for _ in steps])[index]

        for index, step in enumerate(steps):
            places = self._places(tuple(operator.name for operator in step.operators))
            for operator, row in zip(step.operators, places, strict=True):
                total(row, operator.name, index).add(operator)
            for name, operator in step.unlinked.items():
                total(None, name, index).add(operator)
        return [
            {
                "row": row,
                "name": name,
                "operator": canonical(name),
                "samples": [operator.sample for operator in operators],
            }
            for (row, name), operators in found.items()
        ]

    def _places(self, names: tuple[str, ...]) -> list[int | None]:
        """Return the rows of a step's operators; a step may differ from the traced one."""
        if names not in self._aligned:
            places: list[int | None] = [None] * len(names)
            matcher = SequenceMatcher(None, self._trace.names, names, autojunk=False)
            for traced_at, at, size in matcher.get_matching_blocks():
                places[at : at + size] = self._trace.places[traced_at : traced_at + size]
            self._aligned[names] = places
        return self._aligned[names]


def _described(row: Row) -> dict[str, Any]:
    kind = row.kind
    return {
        "name": row.name,
        "operator": row.operator,
        "modules": row.modules,
        "calls": row.calls,
        "inputs": kind.inputs if kind else [],
        "outputs": kind.outputs if kind else [],
        "dtypes": kind.dtypes if kind else [],
        "attributes": kind.attributes if kind else [],
    }
