"""What the bench itself costs: how long a short operator takes, and what the driver adds.

Real workers measure real operators, every block goes to a store on the disk, and each message to a
worker is timed from its sending to its answer. What passes between an answer and the next message
is the driver's own. It counts where a block comes next: that is the time which it adds to. Checks
are part of what an operator takes.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tapegrad.bench import frameworks, machine, scratch, suites
from tapegrad.bench.driver import WITNESSES
from tapegrad.bench.given import Settings
from tapegrad.bench.measurement import Measurement
from tapegrad.bench.process import Worker
from tapegrad.bench.results import Block, Cell, Memory, Run
from tapegrad.bench.store import Store, open_store
from tapegrad.bench.team import ProcessTeam
from tapegrad.worker.case import Case

FRAMEWORKS = ("torch", "jax")
#: Operators of about ten microseconds. The first is not counted: it warms up what all need.
OPERATORS = ("exp", "tanh", "sigmoid", "softmax", "sum", "mul")
SIZE = "small"
#: Bars: seconds of an operator over all frameworks, and the driver's share of the visits.
MOST_SECONDS = 2.0
MOST_SHARE = 0.01
TIMEOUT = 60.0
#: The run that blocks are stored under.
RUN = "cost"


@dataclass(frozen=True)
class Cost:
    """What one operator took, forward and backward, over all frameworks."""

    operator: str
    #: Of one call, in the median over all blocks.
    call: float
    #: From its first check to the look back after its last block.
    seconds: float
    #: How long the visits took together, and the part of it outside workers' answers.
    visits: float
    driver: float
    blocks: int
    #: Message -> how long workers took to answer it.
    messages: dict[str, float]

    @property
    def share(self) -> float:
        """Return the part of the visits that is the driver's own."""
        return self.driver / self.visits if self.visits else 0.0


class Bar(NamedTuple):
    """A figure that must be reached, in words, and from how many it comes."""

    title: str
    text: str
    n: int
    met: bool


def bars(found: Sequence[Cost]) -> list[Bar]:
    """Hold what was found against the bars: the median operator, and all visits together."""
    each = median(cost.seconds for cost in found)
    visits = sum(cost.visits for cost in found)
    share = sum(cost.driver for cost in found) / visits
    operator = f"{each:.2f} s, at most {MOST_SECONDS:g} s"
    driver = f"{share:.2%} of {visits:.1f} s, at most {MOST_SHARE:.0%}"
    blocks = sum(cost.blocks for cost in found)
    return [
        Bar("an operator over all frameworks", operator, len(found), each <= MOST_SECONDS),
        Bar("the driver's share of the visits", driver, blocks, share <= MOST_SHARE),
    ]


def measure_cost(
    names: tuple[str, ...] = FRAMEWORKS, settings: Settings | None = None
) -> Iterator[Cost]:
    """Measure operators one after the other, with workers that are up."""
    settings = settings or Settings()
    cases = _cases()
    with ExitStack() as stack:
        folder = stack.enter_context(scratch.folder())
        store = stack.enter_context(open_store(folder / "results.sqlite"))
        store.begin(Run(RUN, RUN, time.time(), machine.describe()), [], cases)

        def team(name: str, folder: Path, threads: int, processes: int) -> ProcessTeam:
            made = ProcessTeam(frameworks.find(name), folder, threads, "cpu", TIMEOUT)
            stack.enter_context(closing(made))
            for process in range(processes):
                made.worker(process)
            return made

        processors = len(machine.usable())
        witnesses = {name: team(name, folder / "witness", processors, 1) for name in WITNESSES[:2]}
        teams = {name: team(name, folder, 1, settings.processes) for name in names}
        for case in cases:
            cost = _cost(case, teams, witnesses, settings, _Sink(store), folder / case.key)
            if case is not cases[0]:
                yield cost


def _cases() -> list[Case]:
    found = {case.op: case for case in suites.find("operators").cases if case.size == SIZE}
    return [found[op] for op in OPERATORS]


def _cost(  # noqa: PLR0917  the parts of a measurement
    case: Case,
    teams: dict[str, ProcessTeam],
    witnesses: dict[str, ProcessTeam],
    settings: Settings,
    sink: _Sink,
    folder: Path,
) -> Cost:
    meter = _Meter()
    start = time.perf_counter()
    Measurement(
        case=case,
        phases=case.phases,
        teams={name: _MeteredTeam(team, meter) for name, team in teams.items()},
        witnesses={name: _Metered(team.worker(0), meter) for name, team in witnesses.items()},
        settings=settings,
        folder=folder,
        sink=sink,
    ).run()
    seconds = time.perf_counter() - start
    calls = sorted(sample for block in sink.blocks for sample in block.samples)
    return Cost(
        operator=case.label,
        call=calls[len(calls) // 2] if calls else 0.0,
        seconds=seconds,
        visits=meter.visits,
        driver=meter.driver,
        blocks=len(sink.blocks),
        messages=dict(meter.messages),
    )


@dataclass
class _Sink:
    """Stores what is found, as a run does."""

    store: Store
    blocks: list[Block] = field(default_factory=list)

    def cell(self, cell: Cell) -> None:
        self.store.add_cell(RUN, cell)

    def block(self, block: Block) -> None:
        self.store.add_block(RUN, block)
        self.blocks.append(block)

    def memory(self, memory: Memory) -> None:
        """Nothing to store: memory is not measured."""


@dataclass
class _Meter:
    """Adds up how long workers take to answer, and how long the driver takes to ask for a block."""

    messages: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    #: Seconds from the answer before a visit to the visit's own, and those before its message.
    visits: float = 0.0
    driver: float = 0.0
    _last: float | None = None

    def note(self, do: str, visit: bool, sent: float) -> None:
        """Take an answer that came just now."""
        now = time.perf_counter()
        self.messages[do] += now - sent
        if visit:
            before = sent if self._last is None else self._last
            self.visits += now - before
            self.driver += sent - before
        self._last = now


class _Metered(Worker):
    """A worker whose answers are timed."""

    def __init__(self, worker: Worker, meter: _Meter) -> None:
        self._worker = worker
        self._meter = meter
        self._asked: tuple[str, bool, float] = ("", False, 0.0)
        self.counts_calls = worker.counts_calls

    @property
    def alive(self) -> bool:  # type: ignore[override]
        return self._worker.alive

    def waited(self) -> float:
        return self._worker.waited()

    def busy_elsewhere(self) -> float:
        return self._worker.busy_elsewhere()

    def busy(self) -> float:
        return self._worker.busy()

    def send(self, do: str, **arguments: Any) -> None:
        """Pass a message on; only a visit says whether caches are to be cold."""
        self._asked = do, "cold" in arguments, time.perf_counter()
        self._worker.send(do, **arguments)

    def receive(self, timeout: float | None = None) -> dict[str, Any]:
        answer = self._worker.receive(timeout)
        self._meter.note(*self._asked)
        return answer


@dataclass
class _MeteredTeam:
    """A team of such workers."""

    team: ProcessTeam
    meter: _Meter

    @property
    def threads(self) -> int:
        return self.team.threads

    @property
    def at_once(self) -> int:
        return self.team.at_once

    def worker(self, process: int) -> Worker:
        return _Metered(self.team.worker(process), self.meter)

    def fresh(self) -> AbstractContextManager[Worker]:
        return self.team.fresh()
