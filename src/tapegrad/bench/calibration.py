"""How often the bench is wrong, and what it can see: honest adapters against themselves.

Every comparison is one of real measurements: worker processes, checks, interleaved blocks, and
the verdict of `statistics.ratio`. Equals give the rate of false alarms; adapters that are slower by
a known share of each call give the power.

Processes are shared by the cases of one run and started anew for the next, exactly as `bench run`
does it: the rates are those of a table's cells. Cells of one run are not independent of each other,
so the intervals, which take them to be, are a little too narrow.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from scipy import stats

from tapegrad.bench import frameworks, statistics
from tapegrad.bench.audit import team, witnesses
from tapegrad.bench.given import Settings
from tapegrad.bench.measurement import Measurement
from tapegrad.bench.process import Worker
from tapegrad.bench.results import Block, Cell, CellKey, Memory
from tapegrad.worker.case import Array, Case

SLOWDOWNS = (0.02, 0.05, 0.10, 0.50)
#: What everything is compared with.
BASE = "base"
#: An adapter that takes longer by a share of each call.
ADAPTER = """
from tapegrad.worker.honest import Slowed

ADAPTERS = {{"{name}": "Subject"}}


class Subject(Slowed):
    slowdown = {slowdown}
"""


def _case(op: str, *shapes: tuple[int, ...], reduction: int = 1, **attrs: Any) -> Case:
    inputs = tuple(
        Array(name, shape, grad=False) for name, shape in zip("xyz", shapes, strict=False)
    )
    return Case("operator", op, inputs, attrs, phases=("forward",), reduction=reduction)


#: Operators of 20 to 200 µs.
CASES = (
    _case("add", (256, 512), (256, 512)),
    _case("mul", (256, 256), (256, 256)),
    _case("exp", (128, 256)),
    _case("tanh", (64, 256)),
    _case("relu", (256, 512)),
    _case("sum", (256, 512), reduction=512, dim=-1),
    _case("softmax", (64, 256), reduction=256, dim=-1),
    _case("log_softmax", (64, 256), reduction=256, dim=-1),
    _case("layer_norm", (64, 256), (256,), (256,), reduction=256, eps=1e-5),
    _case("matmul", (128, 128), (128, 128), reduction=128),
)


class Rate(msgspec.Struct, frozen=True):
    """How often each verdict was given on adapters that are slower by so much."""

    slowdown: float
    #: Whether both sides were measured in one run, or in two.
    paired: bool
    slower: int
    faster: int
    same: int
    undecided: int
    #: The ratio found, in the median.
    ratio: float

    @property
    def pairs(self) -> int:
        """Return how many comparisons there were."""
        return self.slower + self.faster + self.same + self.undecided

    @property
    def alarms(self) -> int:
        """Return how many found a difference: of equals any, else in the right direction."""
        return self.slower if self.slowdown else self.slower + self.faster

    @property
    def share(self) -> float:
        """Return the share of alarms."""
        return self.alarms / self.pairs

    @property
    def interval(self) -> tuple[float, float]:
        """Return Wilson's 95 % interval of the share."""
        found = stats.binomtest(self.alarms, self.pairs).proportion_ci(method="wilson")
        return float(found.low), float(found.high)


class Calibration(msgspec.Struct, frozen=True):
    """What a calibration found."""

    rates: list[Rate]
    #: Honest cells that were judged, and those that did not come out as such, with the reason.
    judged: int
    mistrusted: list[str]
    runs: int
    processes: int
    rounds: int
    #: Length of a block, and of everything.
    block: float
    seconds: float


#: Hears how many of how many cases are done.
Listener = Callable[[int, int], None]


def calibrate(
    pairs: int = 200,
    slowdowns: Sequence[float] = SLOWDOWNS,
    *,
    slowed_pairs: int = 60,
    processes: int = 3,
    rounds: int = 3,
    block: float = 0.005,
    cases: Sequence[Case] = CASES,
    listener: Listener | None = None,
) -> Calibration:
    """Compare honest adapters with equal and with slower ones, and count the verdicts.

    Args:
        pairs: Comparisons of equals, at least so many within runs and between them.
        slowdowns: By which share of its time each slower adapter is slower.
        slowed_pairs: Comparisons at each slowdown, spread over the runs.
        processes: Worker processes of each adapter.
        rounds: Visits to each process.
        block: Seconds of each visit.
        cases: What each run measures.
        listener: Called as listener(done, total) after each case.

    """
    start = time.perf_counter()
    count = -(-pairs // len(cases)) + 1  # between runs there is a pair less than runs
    runs: list[_Run] = []
    with witnesses() as known:
        for number in range(count):
            settings = Settings(processes=processes, rounds=rounds, seconds=block, seed=number)
            joins = (number + 1) * slowed_pairs // pairs > number * slowed_pairs // pairs
            run = _Run((0.0, *slowdowns) if joins else (0.0,), cases)
            for done, _ in enumerate(run.measure(settings, known), 1):
                if listener is not None:
                    listener(number * len(cases) + done, count * len(cases))
            runs.append(run)
    return Calibration(
        rates=[
            rate
            for paired in (True, False)
            for slowdown in (0.0, *slowdowns)
            if (rate := _rate(slowdown, paired, runs)).pairs
        ],
        judged=sum(len(run.cells) for run in runs),
        mistrusted=[each for run in runs for each in run.mistrusted()],
        runs=count,
        processes=processes,
        rounds=rounds,
        block=block,
        seconds=time.perf_counter() - start,
    )


class _Run:
    """One run of all cases: a base, an equal of it, and slower ones, in processes of their own."""

    def __init__(self, slowdowns: Iterable[float], cases: Sequence[Case]) -> None:
        self.cases = cases
        self._slowdowns = {BASE: 0.0} | {_name(each): each for each in slowdowns}
        self.cells: dict[CellKey, Cell] = {}
        self.blocks: dict[CellKey, list[Block]] = {}

    def measure(self, settings: Settings, known: dict[str, Worker]) -> Iterator[Case]:
        """Measure all cases; yields each when it is done."""
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            teams = {
                name: stack.enter_context(closing(team(_adapter(folder, name, slowdown), folder)))
                for name, slowdown in self._slowdowns.items()
            }
            for case in self.cases:
                Measurement(
                    case=case,
                    phases=case.phases,
                    teams=teams,
                    witnesses=known,
                    settings=settings,
                    folder=folder / case.key,
                    sink=self,
                ).run()
                yield case

    def of(self, slowdown: float | None, case: Case) -> list[Block]:
        """Return the blocks of one adapter, or of the base."""
        name = BASE if slowdown is None else _name(slowdown)
        return self.blocks.get(CellKey(case.key, name, case.phases[0]), [])

    def mistrusted(self) -> Iterator[str]:
        """Yield what was found wrong with adapters that have no fault."""
        return (f"{cell.verdict}: {cell.reason}" for cell in self.cells.values() if not cell.timed)

    def cell(self, cell: Cell) -> None:
        self.cells[cell.key] = cell

    def block(self, block: Block) -> None:
        self.blocks.setdefault(block.key, []).append(block)

    def memory(self, memory: Memory) -> None:
        """Nothing to keep: memory is not measured."""


def _name(slowdown: float) -> str:
    return f"slower by {100 * slowdown:g} %"


def _adapter(folder: Path, name: str, slowdown: float) -> frameworks.Contender:
    file = folder / f"{name.replace(' ', '_')}.py"
    file.write_text(ADAPTER.format(name=name, slowdown=slowdown))
    return frameworks.contenders_in(file)[0]


def _rate(slowdown: float, paired: bool, runs: Sequence[_Run]) -> Rate:
    """Compare with the base of the same run, or of the run before."""
    sides = [(run, run) for run in runs] if paired else list(pairwise(runs))
    found = [
        statistics.ratio(theirs, ours, paired=paired, controls=not paired)
        for before, after in sides
        for case in after.cases
        if (theirs := after.of(slowdown, case)) and (ours := before.of(None, case))
    ]
    verdicts = [each.verdict for each in found]
    return Rate(
        slowdown=slowdown,
        paired=paired,
        slower=verdicts.count("slower"),
        faster=verdicts.count("faster"),
        same=verdicts.count("same"),
        undecided=verdicts.count("undecided"),
        ratio=median(each.value for each in found) if found else 1.0,
    )
