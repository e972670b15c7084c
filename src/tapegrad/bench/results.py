"""The result model: plain records that the driver makes, the store keeps and reports read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from tapegrad.worker.case import DTYPES, PHASES, Case

#: Verdicts that come with times, best first.
TIMED = ("checked", "unconfirmed")
#: In place of those until times were looked back on: a run may end before, in the middle of a case.
UNFINISHED = "unfinished"
#: What the suite's name of a run ends with that only measures another run's alarms again.
AGAIN = "-again"
#: Verdicts in place of times. A cell has one of them or a time, never neither and never both.
UNTIMED = (
    "joint",
    "unsupported",
    "wrong",
    "mistrusted",
    "oom",
    "timeout",
    "crashed",
    "failed",
    "not installed",
)


#: What a note begins with that names the type a contender computes in, where that is another.
COMPUTES_IN = "computes in "


def type_in(note: str) -> str:
    """Return the type that a note says a contender computes in, if that is what it says.

    Example:
        >>> type_in("computes in float32"), type_in("computes in blocks")
        ('float32', '')

    """
    said = note.removeprefix(COMPUTES_IN)
    return said if said != note and said in DTYPES else ""


class CellKey(NamedTuple):
    """Where in a run's table something belongs: case (its key), framework, phase."""

    case: str
    framework: str
    phase: str


class Machine(msgspec.Struct, frozen=True):
    """Where a run took place. Runs on machines with equal fingerprints may be compared."""

    fingerprint: str
    name: str
    details: dict[str, Any] = {}


class Framework(msgspec.Struct, frozen=True):
    """One contender as it was: version, environment and settings that change results."""

    name: str
    version: str
    #: Hash of interpreter, installed packages and settings.
    environment: str
    details: dict[str, Any] = {}


class Cell(msgspec.Struct, frozen=True):
    """The verdict on one case in one framework in one phase."""

    case: str
    framework: str
    phase: str
    verdict: str
    #: Why, in words; empty where there is nothing to say.
    reason: str = ""
    #: Largest error found, as a multiple of what is tolerated.
    error: float | None = None
    notes: list[str] = []

    @property
    def key(self) -> CellKey:
        """Return the cell's place in the table."""
        return CellKey(self.case, self.framework, self.phase)

    @property
    def timed(self) -> bool:
        """Whether times may be shown."""
        return self.verdict in TIMED

    @property
    def precision(self) -> str:
        """Return the type it computes in, where that is not the case's own."""
        return next(filter(None, map(type_in, self.notes)), "")


class Block(msgspec.Struct, frozen=True):
    """One visit to one worker process: the unit of statistics. Raw samples, in seconds a unit."""

    case: str
    framework: str
    phase: str
    process: int
    round: int
    samples: list[float]
    #: Calls behind each sample, and units of work (evaluations) behind each call.
    inner: int = 1
    units: int = 1
    #: Seconds that the control kernels took right before, by name.
    controls: dict[str, float] = {}
    warmup_calls: int = 0
    stationary: bool = True
    #: Processor time over wall time: how many cores were busy.
    cores: float = 0.0
    #: Unix time at the block's end.
    ended: float = 0.0

    @property
    def seconds(self) -> float:
        """Return how long all samples took together."""
        return sum(self.samples) * self.inner * self.units

    @property
    def key(self) -> CellKey:
        """Return the place in the table that the block belongs to."""
        return CellKey(self.case, self.framework, self.phase)


class Memory(msgspec.Struct, frozen=True):
    """Bytes that one case took in one framework; None is n/a."""

    case: str
    framework: str
    phase: str
    allocator: int | None = None
    #: Peak resident size above the idle process.
    resident: int | None = None
    #: Inputs, outputs and gradients by arithmetic.
    needed: int = 0


class Run(msgspec.Struct, frozen=True):
    """One run of a suite."""

    id: str
    suite: str
    started: float
    machine: Machine
    options: dict[str, Any] = {}
    #: Of the project in whose folder the run was started, where it is a git checkout.
    commit: str = ""
    #: `running`, `finished` or `interrupted`.
    status: str = "running"
    finished: float | None = None


class _Index:
    """Cells and blocks of a run by their place: one pass, then each look-up is immediate."""

    def __init__(self, cells: list[Cell], blocks: list[Block]) -> None:
        self._made_of = (cells, len(cells), blocks, len(blocks))
        self.cell_by_key = {cell.key: cell for cell in reversed(cells)}
        self.blocks_by_key: defaultdict[CellKey, list[Block]] = defaultdict(list)
        for block in blocks:
            self.blocks_by_key[block.key].append(block)

    def holds(self, cells: list[Cell], blocks: list[Block]) -> bool:
        """Whether the index is of these lists as they are now."""
        known_cells, cell_count, known_blocks, block_count = self._made_of
        same = known_cells is cells and known_blocks is blocks
        return same and (cell_count, block_count) == (len(cells), len(blocks))


class Results(msgspec.Struct, dict=True):
    """All that one run found, as the store returns it.

    Cells and blocks are found by key through an index, made at the first look-up and anew when a
    list has grown or was replaced.
    """

    run: Run
    frameworks: list[Framework] = []
    cases: list[dict[str, Any]] = []
    cells: list[Cell] = []
    blocks: list[Block] = []
    memory: list[Memory] = []

    def __str__(self) -> str:
        from tapegrad.bench.report import table_text

        return table_text(self)

    def case_by_key(self) -> dict[str, Case]:
        """Return the cases of the run in their order."""
        found = [Case.from_dict(content) for content in self.cases]
        return {case.key: case for case in found}

    def cell(self, key: CellKey) -> Cell | None:
        """Find one cell."""
        return self._index().cell_by_key.get(key)

    def blocks_of(self, key: CellKey) -> list[Block]:
        """Return the blocks of one cell in the order of rounds."""
        blocks = self._index().blocks_by_key.get(key, [])
        return sorted(blocks, key=lambda block: (block.round, block.process))

    def phases(self) -> Iterator[str]:
        """Yield the phases that occur, in their canonical order."""
        return in_order(cell.phase for cell in self.cells)

    def _index(self) -> _Index:
        kept: _Index | None = vars(self).get("_kept")
        if kept is None or not kept.holds(self.cells, self.blocks):
            kept = vars(self)["_kept"] = _Index(self.cells, self.blocks)
        return kept


def in_order(phases: Iterable[str]) -> Iterator[str]:
    """Yield phases without repetition in canonical order."""
    present = set(phases)
    return (phase for phase in PHASES if phase in present)
