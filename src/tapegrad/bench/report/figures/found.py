"""The results of a run by place, with times and ratios worked out on demand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from statistics import median

from msgspec.structs import replace

from tapegrad.bench import statistics
from tapegrad.bench.report.figures.records import NOT_MEASURED, Figure
from tapegrad.bench.results import Block, Cell, CellKey, Memory, Results
from tapegrad.bench.statistics import Ratio
from tapegrad.errors import OptionError

ENDED = "the run ended before"
NOT_ASKED = "the run did not ask for it"
UNREST = "times had not come to rest when {} of {} blocks began"
APART = "{} of {} blocks lie far from the others, and count as if they were nearer"


class Found:
    """The results by place."""

    def __init__(self, results: Results) -> None:
        self.run = results.run
        self.contenders = list(dict.fromkeys(cell.framework for cell in results.cells))
        self._cells = {cell.key: cell for cell in results.cells}
        self._memory = {(m.case, m.framework, m.phase): m for m in results.memory}
        self.phases: defaultdict[str, set[str]] = defaultdict(set)
        for cell in results.cells:
            self.phases[cell.case].add(cell.phase)
        self._blocks: defaultdict[CellKey, list[Block]] = defaultdict(list)
        for block in results.blocks:
            self._blocks[block.key].append(block)

    def cell(self, key: CellKey) -> Cell | None:
        """Return a cell, if the run came to it."""
        return self._cells.get(key)

    def blocks(self, key: CellKey) -> list[Block]:
        """Return the blocks of a cell, none where it has no times."""
        cell = self.cell(key)
        return self._blocks.get(key, []) if cell is not None and cell.timed else []

    def taking_part(self, cases: Iterable[str]) -> list[str]:
        """Return who supports any of these cases; everybody where nobody does."""
        keys = set(cases)
        supporting = {
            cell.framework
            for cell in self._cells.values()
            if cell.case in keys and cell.verdict != "unsupported"
        }
        return [name for name in self.contenders if name in supporting] or self.contenders

    def why_not(self, cases: Iterable[str], taking_part: Iterable[str]) -> dict[str, list[str]]:
        """Return the reasons of those who support none of these cases."""
        keys, known = set(cases), set(taking_part)
        reasons: defaultdict[str, dict[str, None]] = defaultdict(dict)
        for cell in self._cells.values():
            if cell.case in keys and cell.framework not in known:
                reasons[cell.framework].setdefault(cell.reason)
        return {name: list(found) for name, found in reasons.items()}

    def figure(self, key: CellKey, reference: str) -> Figure:
        """Return what a cell of a table holds, compared with the reference."""
        cell = self.cell(key)
        if cell is None:
            finished = self.run.status == "finished"
            return Figure(key.framework, NOT_MEASURED, NOT_ASKED if finished else ENDED)
        other = key._replace(framework=reference)
        opposite = self.blocks(other) if self.alike(key, other) else []
        return figure_of(cell, self.blocks(key), opposite, self._memory.get(key))

    def alike(self, *keys: CellKey) -> bool:
        """Tell whether cells were computed in the same type: times of others make no ratio."""
        return len({cell.precision for key in keys if (cell := self.cell(key))}) < 2

    def winner(self, case: str, phase: str, times: Mapping[str, float]) -> str:
        """Return who is faster than each of the others beyond doubt, or nothing."""
        if len(times) < 2:
            return ""
        best = min(times, key=lambda name: times[name])
        others = (self.against(case, phase, name, best) for name in times if name != best)
        return best if all(ratio and ratio.verdict == "slower" for ratio in others) else ""

    def against(self, case: str, phase: str, theirs: str, ours: str) -> Ratio | None:
        """Compare two frameworks."""
        keys = [CellKey(case, name, phase) for name in (theirs, ours)]
        return compared(*map(self.blocks, keys)) if self.alike(*keys) else None


def figure_of(
    cell: Cell, blocks: list[Block], opposite: list[Block], memory: Memory | None = None
) -> Figure:
    """Return what a cell holds, given its blocks and those it is compared with."""
    figure = Figure(
        cell.framework, cell.verdict, cell.reason, cell.error, cell.notes, memory=memory
    )
    if not cell.timed:
        return figure
    if not blocks:
        return replace(figure, verdict=NOT_MEASURED, reason=ENDED)
    try:
        time = statistics.estimate(blocks)
    except OptionError as error:
        return replace(figure, verdict="mistrusted", reason=str(error))
    notes = [*cell.notes, *_unrest(blocks)]
    return replace(figure, notes=notes, time=time, ratio=compared(blocks, opposite))


def _unrest(blocks: list[Block]) -> Iterator[str]:
    """Say so where most blocks began before times had come to rest, or many lie far apart."""
    restless = sum(not block.stationary for block in blocks)
    if 2 * restless > len(blocks):
        yield UNREST.format(restless, len(blocks))
    far = statistics.pulled_in(blocks)
    if 4 * far > len(blocks):
        yield APART.format(far, len(blocks))


def compared(theirs: list[Block], ours: list[Block]) -> Ratio | None:
    """Compare with the reference; not with itself, and not with what has no times."""
    if not theirs or not ours or theirs[0].framework == ours[0].framework:
        return None
    try:
        return statistics.ratio(theirs, ours)
    except OptionError:
        return None


def together(
    key: CellKey, main: list[Block], others: Iterable[list[Block]], times: int = 1
) -> list[Block]:
    """Compute for each block of the main work, done so many times, what all takes together.

    Of the other work that counts which was measured beside it.
    """
    beside = list(others)
    return [
        Block(
            *key,
            block.process,
            block.round,
            [times * median(block.samples) + sum(_nearest(blocks, block) for blocks in beside)],
            controls=block.controls,
        )
        for block in main
        if block.samples
    ]


def _nearest(blocks: list[Block], to: Block) -> float:
    """Return the time of the block of the same process and round, or of the process, or of all.

    What takes long is measured once a process, or once at all: then that one counts.
    """
    kinds = (
        [b for b in blocks if (b.process, b.round) == (to.process, to.round)],
        [b for b in blocks if b.process == to.process],
        blocks,
    )
    chosen: list[Block] = next((kind for kind in kinds if kind), [])
    return median(median(block.samples) for block in chosen) if chosen else 0.0
