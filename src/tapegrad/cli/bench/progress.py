"""How a run goes, on stderr: a live display on a terminal, else a line for each case.

Times and ratios are those of the tables at the end, worked out from the blocks so far.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tapegrad.bench import statistics
from tapegrad.bench.driver import Listener
from tapegrad.bench.report.figures.found import compared
from tapegrad.bench.report.figures.records import Mean
from tapegrad.bench.report.figures.sections import geometric_mean
from tapegrad.bench.report.text import mean_entry, ratio_text, time_text
from tapegrad.bench.results import UNFINISHED, Block, Cell, CellKey, Results, Run
from tapegrad.bench.statistics import Ratio
from tapegrad.worker.case import Case

#: Between two blocks the display is drawn anew at most so often (seconds).
PAUSE = 0.2


class Tally:
    """What is done, what is left, and how the contenders compare so far."""

    def __init__(self, run: Run, cases: list[Case], contenders: list[str]) -> None:
        self.cases = cases
        self.contenders = contenders
        self.index = 0
        self._names = [contenders for _ in cases]
        self._visits: int = run.options["processes"] * run.options["rounds"]
        self._started = time.monotonic()
        self._measured = 0
        self._in_case = 0
        self._blocks: defaultdict[CellKey, list[Block]] = defaultdict(list)
        #: Ratios to the first contender, each with the number of blocks that it is made of.
        self._ratios: dict[CellKey, tuple[int, Ratio | None]] = {}
        self.words: dict[CellKey, str] = {}
        #: The types that cells are computed in, where those are not the cases' own.
        self._precision: dict[CellKey, str] = {}
        #: Of the cases behind us, how many a contender had a part in in a phase, and a time.
        self._tried: Counter[tuple[str, str]] = Counter()
        self._kept: Counter[tuple[str, str]] = Counter()

    def taking_part(self, names: list[list[str]]) -> None:
        """Take who takes part in each case."""
        self._names = names

    def earlier(self, results: Results) -> None:
        """Take what a run that goes on has already."""
        for block in results.blocks:
            self._blocks[block.key].append(block)
        for cell in results.cells:
            self.cell(cell)

    def begin(self, index: int) -> None:
        """Go on to a case; what is left of those before will not be measured any more."""
        if index == 1:  # the first one started the workers: the others do not
            self._started, self._measured = time.monotonic(), 0
        for behind in range(self.index, index):
            for cell in self._cells(behind):
                self._tried[cell[1:]] += 1
                self._kept[cell[1:]] += cell not in self.words
        self.index, self._in_case = index, 0

    def block(self, block: Block) -> None:
        """Count a block."""
        self._measured += 1
        self._in_case += 1
        self._blocks[block.key].append(block)

    def cell(self, cell: Cell) -> None:
        """Take a verdict; a cell without times has no blocks to come."""
        self._precision[cell.key] = cell.precision
        if cell.timed or cell.verdict == UNFINISHED:
            self.words.pop(cell.key, None)
        else:
            self.words[cell.key] = cell.verdict

    @property
    def planned_in_case(self) -> int:
        """Blocks of the current case."""
        return self._planned(self.index)

    @property
    def done_in_case(self) -> int:
        """Blocks of the current case that are done."""
        return self._in_case

    @property
    def fraction(self) -> float:
        """Part of all blocks that is behind us."""
        done = sum(map(self._planned, range(self.index))) + self._in_case
        whole = done + self._ahead()
        return done / whole if whole else 1.0

    def left(self) -> float | None:
        """Estimate the seconds that are left; None before there is anything to go by."""
        if not self._measured:
            return None
        return self._ahead() * (time.monotonic() - self._started) / self._measured

    def _ahead(self) -> float:
        """Estimate the blocks to come: of later cases, as many as those behind us had."""
        here = max(0, self.planned_in_case - self._in_case)
        later = range(self.index + 1, len(self.cases))
        return here + self._visits * sum(sum(map(self._share, self._cells(n))) for n in later)

    def _share(self, cell: CellKey) -> float:
        """Return how many of the cases so far had a time from this contender in this phase."""
        tried = self._tried[cell[1:]]
        return self._kept[cell[1:]] / tried if tried else 1.0

    def texts(self, case: Case, phase: str) -> Iterator[str]:
        """Yield what each contender has in a row: a time and a ratio, a word, or nothing yet."""
        for name in self.contenders:
            key = CellKey(case.key, name, phase)
            if key in self.words:
                yield f"{name} {self.words[key]}"
            elif blocks := self._timed(key):
                ratio = self._ratio(key)
                compared_so_far = f" ({ratio_text(ratio)})" if ratio else ""
                yield f"{name} {time_text(statistics.estimate(blocks))}{compared_so_far}"

    def means(self) -> Iterator[Mean]:
        """Yield each contender's mean ratio to the first, over the cells that both have so far."""
        for name in self.contenders[1:]:
            ratios = [self._ratio(key) for key in self._blocks if key.framework == name]
            if known := [ratio for ratio in ratios if ratio is not None]:
                yield geometric_mean(name, "", known)

    def _ratio(self, key: CellKey) -> Ratio | None:
        """Compare with the first contender, anew where there are new blocks."""
        first = key._replace(framework=self.contenders[0])
        if self._precision.get(key, "") != self._precision.get(first, ""):
            return None
        sides = self._timed(key), self._timed(first)
        count = sum(map(len, sides))
        if key not in self._ratios or self._ratios[key][0] != count:
            self._ratios[key] = count, compared(*sides)
        return self._ratios[key][1]

    def _timed(self, key: CellKey) -> list[Block]:
        """Return the blocks of a cell, none where a verdict took them back."""
        return [] if key in self.words else self._blocks.get(key, [])

    def _planned(self, index: int) -> int:
        return self._visits * sum(cell not in self.words for cell in self._cells(index))

    def _cells(self, index: int) -> list[CellKey]:
        """Return the cells of a case."""
        case = self.cases[index]
        return [
            CellKey(case.key, name, phase) for name in self._names[index] for phase in case.phases
        ]


class Lines(Listener):
    """A line for each case as it ends: for files and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._tally: Tally | None = None
        self._current: Case | None = None

    def started(self, run: Run, cases: list[Case], contenders: list[str]) -> None:
        """Say what begins."""
        self._tally = Tally(run, cases, contenders)
        self._current = None
        self._say(
            f"run {run.id}: {len(cases)} case{'s' * (len(cases) != 1)}, {', '.join(contenders)}"
        )

    def taking_part(self, names: list[list[str]]) -> None:
        """Take who takes part in each case."""
        assert self._tally is not None
        self._tally.taking_part(names)

    def earlier(self, results: Results) -> None:
        """Take what is there already."""
        assert self._tally is not None
        self._tally.earlier(results)

    def case(self, index: int, case: Case) -> None:
        """Say how the case before went."""
        assert self._tally is not None
        self._end()
        self._tally.begin(index)
        self._current = case

    def cell(self, cell: Cell) -> None:
        """Take a verdict."""
        assert self._tally is not None
        self._tally.cell(cell)

    def block(self, block: Block) -> None:
        """Take a block."""
        assert self._tally is not None
        self._tally.block(block)

    def finished(self, results: Results) -> None:
        """Say how it ended."""
        self._end(ahead=False)
        self._say(f"run {results.run.id}: {results.run.status}")

    def _end(self, *, ahead: bool = True) -> None:
        tally, case = self._tally, self._current
        if tally is None or case is None:
            return
        rows = (
            f"{phase} {', '.join(texts)}"
            for phase in case.phases
            if (texts := [*tally.texts(case, phase)])
        )
        left = tally.left() if ahead else None
        ending = f" ({duration(left)} left)" if left is not None else ""
        text = "; ".join(rows) or "nothing new"
        self._say(f"[{tally.index + 1}/{len(tally.cases)}] {case.label}: {text}{ending}")

    def _say(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)


class Display(Listener):
    """A live display with time left, the current case and the ratios so far."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._tally: Tally | None = None
        self._run = ""
        self._doing = "starting workers"
        self._drawn = 0.0

    def started(self, run: Run, cases: list[Case], contenders: list[str]) -> None:
        """Begin."""
        self._tally = Tally(run, cases, contenders)
        self._run = run.id
        self._draw()

    def taking_part(self, names: list[list[str]]) -> None:
        """Take who takes part in each case."""
        assert self._tally is not None
        self._tally.taking_part(names)

    def earlier(self, results: Results) -> None:
        """Take what is there already."""
        assert self._tally is not None
        self._tally.earlier(results)

    def case(self, index: int, case: Case) -> None:
        """Go on to a case."""
        assert self._tally is not None
        self._tally.begin(index)
        self._doing = "checking"
        self._draw()

    def cell(self, cell: Cell) -> None:
        """Show who is being checked."""
        assert self._tally is not None
        self._tally.cell(cell)
        self._doing = f"{cell.framework} {cell.phase} {cell.verdict}"
        self._draw()

    def block(self, block: Block) -> None:
        """Show who was measured."""
        assert self._tally is not None
        self._tally.block(block)
        self._doing = f"{block.framework} {block.phase}"
        self._draw()

    def finished(self, results: Results) -> None:
        """Make room for the table."""
        del results
        self._live.update(Text(), refresh=True)

    def _draw(self) -> None:
        """Draw anew, between blocks and not too often: the machine is for the measurements."""
        now = time.monotonic()
        if now - self._drawn >= PAUSE:
            self._drawn = now
            self._live.update(self, refresh=True)

    def __rich__(self) -> Group:
        """Return the display as it is now."""
        tally = self._tally
        if tally is None or not tally.cases:
            return Group(Text(self._doing))
        case = tally.cases[tally.index]
        return Group(
            _headline(self._run, tally),
            _pair("now", f"{case.label} · {self._doing}", _count(tally)),
            _pair("so far", _ratios(tally), ""),
        )


def _headline(run: str, tally: Tally) -> Table:
    left = tally.left()
    grid = Table.grid(padding=(0, 2))
    grid.add_row(
        Text(run, style="bold"),
        ProgressBar(total=1.0, completed=tally.fraction, width=30),
        Text(f"{100 * tally.fraction:3.0f} %"),
        Text(f"case {tally.index + 1} of {len(tally.cases)}"),
        Text("" if left is None else f"{duration(left)} left", style="cyan"),
    )
    return grid


def _pair(name: str, text: str, aside: str) -> Text:
    return Text.assemble(
        (f"  {name:<7}", "bright_black"), text, (f"  {aside}", "bright_black"), overflow="ellipsis"
    )


def _count(tally: Tally) -> str:
    return f"block {tally.done_in_case} of {tally.planned_in_case}"


def _ratios(tally: Tally) -> str:
    found = [f"{mean.framework} {mean_entry(mean).text}" for mean in tally.means()]
    if not found:
        return "no ratios yet"
    return f"{' · '.join(found)} against {tally.contenders[0]}, geometric mean"


def duration(left: float) -> str:
    """Write a time that is left.

    Example:
        >>> duration(59.2), duration(3725)
        ('1:00', '1:02:05')

    """
    whole = math.ceil(left)
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextmanager
def listener() -> Iterator[Listener]:
    """Give the listener that suits where stderr goes."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield Lines(console)
        return
    with Live(console=console, refresh_per_second=1, transient=True) as live:
        yield Display(live)
