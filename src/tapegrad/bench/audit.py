"""The bench on trial: it must flag every known fault and nothing else."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec

from tapegrad.bench import frameworks, guards, machine, preparation, units
from tapegrad.bench.faults import BREAKDOWNS, CONTROLS, FAULTS, Fault
from tapegrad.bench.frameworks import Contender
from tapegrad.bench.given import Settings
from tapegrad.bench.guards import GUARDS, Guard
from tapegrad.bench.measurement import Measurement
from tapegrad.bench.probe import FACTOR, LATER_FACTOR, Finding, Probe
from tapegrad.bench.process import Worker
from tapegrad.bench.results import Block, Cell, Memory
from tapegrad.bench.team import ProcessTeam
from tapegrad.bench.watch import BLOCK_FACTOR

#: One process and enough blocks that a fault has time to show.
PROCESSES, ROUNDS, BLOCK_SECONDS = 1, 3, 0.05
TIMEOUT = 60.0


class Outcome(msgspec.Struct, frozen=True):
    """What became of one adapter."""

    name: str
    #: What is wrong with it.
    does: str
    phase: str
    #: Verdicts of which one was to come out.
    expected: tuple[str, ...]
    verdict: str
    reason: str
    #: The guard that spoke first; empty where the worker broke, or nothing was found.
    guard: str
    #: Blocks of times that were taken.
    blocks: int
    #: Why it could not be tried here; empty where it was.
    skipped: str = ""

    @property
    def passed(self) -> bool:
        """Whether the bench did what it must."""
        return bool(self.skipped) or self.verdict in self.expected


class AuditReport(msgspec.Struct, frozen=True):
    """What became of all adapters."""

    outcomes: list[Outcome]
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether every fault was flagged and no honest adapter was."""
        return all(outcome.passed for outcome in self.outcomes)


Listener = Callable[[Outcome], None]


def audit(
    listener: Listener | None = None,
    faults: Iterable[Fault] = (*CONTROLS, *FAULTS, *BREAKDOWNS),
    guards: Mapping[str, Guard] = GUARDS,
) -> AuditReport:
    """Measure adapters with known faults, and honest ones, as any framework is measured.

    Args:
        listener: Called with each outcome.
        faults: Which adapters to try.
        guards: What must hold before a time is believed; tests leave some out.

    """
    start = time.perf_counter()
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="tapegrad-audit-") as folder, witnesses() as known:
        for number, fault in enumerate(faults):
            outcome = _trial(fault, guards, known, Path(folder) / str(number))
            outcomes.append(outcome)
            if listener is not None:
                listener(outcome)
    return AuditReport(outcomes, time.perf_counter() - start)


@contextmanager
def witnesses() -> Iterator[dict[str, Worker]]:
    """Start those who say what is right: NumPy, and gradients by hand that it confirms."""
    honest = CONTROLS[0].contender
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        teams = [
            stack.enter_context(closing(team(each, folder)))
            for each in (frameworks.find("numpy"), honest)
        ]
        yield {each.contender.name: each.worker(0) for each in teams}


def team(contender: Contender, folder: Path, timeout: float = TIMEOUT) -> ProcessTeam:
    """Return a team of workers with one thread each."""
    return ProcessTeam(contender, folder, 1, "cpu", timeout)


class _Notes:
    """What a measurement of one cell found."""

    def __init__(self, phase: str) -> None:
        self._phase = phase
        self.last: Cell | None = None
        self.blocks = 0
        self.guard = ""

    def cell(self, cell: Cell) -> None:
        if cell.phase == self._phase:
            self.last = cell

    def block(self, block: Block) -> None:
        self.blocks += block.phase == self._phase

    def memory(self, memory: Memory) -> None:
        """Nothing to note: an audit does not measure memory."""

    def listening(self, name: str, guard: Guard) -> Guard:
        """Note which guard speaks."""

        def heard(probe: Probe) -> Finding | None:
            finding = guard(probe)
            if finding is not None:
                self.guard = name
            return finding

        return heard


def _trial(
    fault: Fault, guards: Mapping[str, Guard], known: Mapping[str, Worker], folder: Path
) -> Outcome:
    """Measure one adapter under a name that tells nothing."""
    notes = _Notes(fault.phase)
    if len(machine.usable()) < fault.processors:
        return _outcome(fault, notes, skipped=f"needs {fault.processors} processors")
    subject = replace(fault.contender, name="subject")
    settings = Settings(
        processes=PROCESSES,
        rounds=ROUNDS,
        seconds=BLOCK_SECONDS,
        guards={name: notes.listening(name, guard) for name, guard in guards.items()},
    )
    with closing(team(subject, folder, fault.timeout)) as workers:
        Measurement(
            case=fault.case,
            phases=fault.phases,
            teams={subject.name: workers},
            witnesses=known,
            settings=settings,
            folder=folder,
            sink=notes,
        ).run()
    return _outcome(fault, notes)


def _outcome(fault: Fault, notes: _Notes, skipped: str = "") -> Outcome:
    cell = notes.last
    return Outcome(
        name=fault.name,
        does=fault.does,
        phase=fault.phase,
        expected=fault.verdicts,
        verdict=cell.verdict if cell else "",
        reason=cell.reason if cell else "",
        guard=notes.guard,
        blocks=notes.blocks,
        skipped=skipped,
    )


def unseen() -> Iterator[str]:
    """Say what no guard sees, with figures."""
    slacks = guards.FRESH_SLACK, guards.SINGLE_SLACK, guards.FEED_SLACK, preparation.SLACK
    remembered, skipped, fed, hidden = map(units.seconds, slacks)
    yield (
        f"Not seen: a worker that tells up to {1 - 1 / FACTOR:.0%} less than its time, or "
        f"up to {1 - 1 / BLOCK_FACTOR:.0%} less, or more, in blocks alone, or leaves out up to "
        f"{1 - 1 / LATER_FACTOR:.0%} of its calls there, or lies in fewer than half of "
        f"them; a remembered answer that saves less than {remembered} and "
        f"{guards.FRESH_FACTOR - 1:g} times what returning and reading it take; skipped work if a "
        f"call takes less than {skipped}; work of less than {fed} an input, or "
        f"{guards.FEED_FACTOR - 1:g} times what loading them takes, that is done when inputs are "
        "taken and whose result is then copied, or could be a view of an input; what takes less "
        f"than copying a result {guards.COPY_FACTOR:g} times and is put off until it is read, of "
        "inputs that are kept; random results of which "
        f"{guards.DRAWS} or more were drawn beforehand; of graphs, fused operators and models, "
        f"answers that were prepared for what the driver draws; {hidden} and "
        f"{preparation.FACTOR - 1:g} times what is told, when graphs are built and compiled; what "
        "is done where a new graph is handed over."
    )
    yield "An adapter is code: read those of strangers before you believe their times."
