"""What guards look at: one phase of one contender, through its worker.

A probe asks its worker for a time and for results, each once, and keeps the answers until a guard
doubts them. It says what was found, never whether that is right.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tapegrad.bench import answers, comparison, randomness
from tapegrad.bench.comparison import Difference
from tapegrad.bench.inputs import Arrays
from tapegrad.bench.oracle import InputSet
from tapegrad.bench.process import Worker
from tapegrad.worker.case import Case

#: A time is believed if another way to measure it finds at most this multiple of it; once times are
#: taken, this multiple of their median: the machine may have become slower since, or the process.
#: JAX takes four times as long, in all that it computes, while its heap gives pages back.
FACTOR = 1.5
LATER_FACTOR = 5.0
#: Seconds that a first timing takes, and loops whose results are looked at.
PROBE_SECONDS = 0.005
#: How often a probe is tried; less often if a call and the reading of its results take so long,
#: when results come to the driver with so many bytes a second.
ATTEMPTS = 5
FEW_ATTEMPTS = 2
LENGTHY_SECONDS = 0.02
READ_RATE = 2e9
#: No call is shorter, whatever is told.
SHORTEST_SECONDS = 1e-9


@dataclass(frozen=True)
class Finding:
    """Why a time is not believed."""

    verdict: str
    reason: str
    error: float | None = None


@dataclass
class Busy:
    """Processors that were busy by the system's own count."""

    #: In processes that the worker has started, and in these and the worker together.
    elsewhere: float = 0.0
    every: float = 0.0

    def processors(self, told: float) -> float:
        """Return how many there were, where the worker tells of some: it may tell too few."""
        return max(told + self.elsewhere, self.every)


@dataclass
class Probe:
    """One phase of one contender, as guards look at it."""

    worker: Worker
    case: Case
    phase: str
    #: The type that results are computed in.
    dtype: str
    threads: int
    folder: Path
    #: Two different sets of inputs; the worker holds the first.
    sets: tuple[InputSet, InputSet]
    #: Phases that need a fresh start for each call cannot be repeated.
    looped: bool = True
    device: str = "cpu"
    #: Whether there is a forward pass beside this phase, of which a backward pass is fed residuals,
    #: and its seconds as far as they are known.
    has_forward: bool = False
    forward: float | None = None
    #: Seconds that building and compiling take by their blocks, once there are any.
    prepared: float | None = None
    #: Seconds of a call in the blocks that were stored, in the median, once there are any.
    stored: float | None = None
    error: float = 0.0
    _trial: dict[str, Any] | None = field(default=None, repr=False)
    _read: dict[str, Any] | None = field(default=None, repr=False)
    _first: Arrays | None = field(default=None, repr=False)

    @property
    def trial(self) -> dict[str, Any]:
        """Return a first timing of the phase, which guards then doubt."""
        if self._trial is None:
            with self.watched() as busy:
                self._trial = self.worker.ask("time", phase=self.phase, seconds=PROBE_SECONDS)
            self._trial |= {"cores": busy.processors(self._trial["cores"])}
        return self._trial

    @contextmanager
    def watched(self) -> Iterator[Busy]:
        """Count processors that are kept busy by the worker and by processes it has started."""
        elsewhere, every = self.worker.busy_elsewhere(), self.worker.busy()
        start, busy = time.perf_counter(), Busy()
        yield busy
        elapsed = time.perf_counter() - start
        busy.elsewhere = (self.worker.busy_elsewhere() - elsewhere) / elapsed
        busy.every = (self.worker.busy() - every) / elapsed

    def doubt(self) -> None:
        """Have the phase timed again: the machine may have been disturbed."""
        self._trial = None

    @property
    def reported(self) -> float:
        """Return the seconds that one call takes, according to the worker."""
        return seconds_a_call(self.trial)

    @property
    def believed(self) -> float:
        """Return the seconds of a call that a table will show, or would."""
        return self.reported if self.stored is None else self.stored

    @property
    def factor(self) -> float:
        """Return how many times that another way of measuring may find."""
        return FACTOR if self.stored is None else LATER_FACTOR

    @property
    def attempts(self) -> int:
        """Return how often something is tried that calls the phase and reads its results."""
        reading = sum(array.nbytes for array in self.first.values()) / READ_RATE
        return ATTEMPTS if self.reported + reading <= LENGTHY_SECONDS else FEW_ATTEMPTS

    def read(self, count: int, keeps: bool = False) -> dict[str, Any]:
        """Have calls timed whose results are read, and see whether these stay what they are."""
        self._read = self.worker.ask("read", phase=self.phase, count=count, keeps=keeps)
        return self._read

    @cached_property
    def written(self) -> int:
        """Return the bytes of results that are no views of the inputs."""
        computed = self.sets[0].computed(self.phase)
        return sum(array.nbytes for name, array in self.first.items() if name in computed)

    @property
    def taken(self) -> int:
        """Return the bytes of the inputs."""
        return sum(Path(file).stat().st_size for file in self.sets[0].arrays.values())

    @property
    def last_read(self) -> dict[str, Any]:
        """Return what was found when results were read last."""
        return self._read or self.read(self.attempts)

    @property
    def first(self) -> Arrays:
        """Return the results of one call on the first set of inputs."""
        if self._first is None:
            self._first = self.results("first")
        return self._first

    def results(self, name: str, calls: int = 0) -> Arrays:
        """Run the phase once as a check, or `calls` times as the timed loop does."""
        folder = str(self.folder / f"{self.phase}-{name}")
        if calls:
            answer = self.worker.ask("repeat", phase=self.phase, calls=calls, folder=folder)
        else:
            answer = self.worker.ask("check", phase=self.phase, folder=folder)
        try:
            return answers.load(answer)
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # others may not read it

    def compare(
        self, found: Arrays, chosen: int = 0, wanted: Arrays | None = None
    ) -> Finding | None:
        """Compare results with the truth at one of the sets of inputs, or with other results."""
        wanted = wanted or self.sets[chosen].truth.of_phase(self.phase)
        if missing := sorted(wanted.keys() - found.keys()):
            return Finding("wrong", f"{', '.join(missing)} is missing")
        if self.case.random:
            reason = randomness.difference(found, wanted)
            return Finding("wrong", reason) if reason else None
        truth = self.sets[chosen].truth.arrays
        result = comparison.compare(
            found,
            {**truth, **wanted},  # the sizes of all results tell how many terms a gradient has
            dtype=self.dtype,
            terms=comparison.terms_of(self.case, truth),
            prefix=self.case.level == "graph",
            network=self.case.level == "model",
            kinks=comparison.kinks_of(self.case),
        )
        if isinstance(result, Difference):
            return Finding("wrong", result.reason, result.error)
        self.error = max(self.error, result)
        return None

    def calls(self, seconds: float = PROBE_SECONDS) -> int:
        """Return how many calls take about so long."""
        return max(1, min(10_000, int(seconds / max(self.reported, SHORTEST_SECONDS))))


def seconds_a_call(answer: Mapping[str, Any]) -> float:
    """Return the seconds of one call in a block, as a worker tells it."""
    return float(np.median(answer["samples"])) * int(answer["units"])
