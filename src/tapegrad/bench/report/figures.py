"""What a run found, as figures: the data behind every format.

Each cell is a time or a word, never neither and never both. A ratio exists only where both sides
have times, that is where both were shown to do the same work.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from statistics import median
from typing import Any

import msgspec

from tapegrad.bench import statistics
from tapegrad.bench.report.command import command_for
from tapegrad.bench.report.published import Published, published_for
from tapegrad.bench.results import (
    Block,
    Cell,
    CellKey,
    Framework,
    Memory,
    Results,
    Run,
    in_order,
)
from tapegrad.bench.statistics import Estimate, Ratio
from tapegrad.bench.suite import Bar
from tapegrad.errors import OptionError, TapegradError
from tapegrad.worker.case import Case

#: Evaluations that the total of a graph is computed for: those of the article.
EVALUATIONS = 10_000
#: Where a run was interrupted before it came to a cell.
NOT_MEASURED = "not measured"
#: In place of the time of a phase that a contender does not have, as compiling for an interpreter.
NONE = "none"


class Figure(msgspec.Struct, frozen=True):
    """One framework's part of a row: a time, or a word that says why there is none."""

    framework: str
    #: `checked` or `unconfirmed` with a time; else the word in place of it.
    verdict: str
    reason: str = ""
    error: float | None = None
    notes: list[str] = []
    time: Estimate | None = None
    #: How many times as long it takes as the reference; None where there is nothing to compare.
    ratio: Ratio | None = None
    memory: Memory | None = None


class Row(msgspec.Struct, frozen=True):
    """One case in one phase, by framework."""

    case: str
    label: str
    op: str
    size: str
    dtype: str
    phase: str
    #: The command that measures this row again; empty for a user's own functions.
    command: str
    figures: list[Figure]


class Mean(msgspec.Struct, frozen=True):
    """The geometric mean of one framework's ratios to the reference in one phase."""

    framework: str
    phase: str
    value: float
    low: float | None
    high: float | None
    cases: int


class GraphRow(msgspec.Struct, frozen=True):
    """One contender on one graph."""

    framework: str
    build: Figure
    compile: Figure
    #: Time of one evaluation: value and gradient.
    run: Figure
    #: Build, compile and `EVALUATIONS` runs: computed, never measured as a whole.
    total: Figure
    #: Evaluations that were timed.
    evaluations: int
    published: Published | None = None


class Graph(msgspec.Struct, frozen=True):
    """One graph with a row for each contender."""

    case: str
    label: str
    family: str
    ops: int
    target: str
    command: str
    rows: list[GraphRow]


class BarFigure(msgspec.Struct, frozen=True):
    """A figure that the suite wants reached, and what was found."""

    title: str
    bound: float
    unit: str
    at_most: bool
    found: float | None
    #: `met`, `missed` or `not measured`.
    verdict: str


class Report(msgspec.Struct, frozen=True):
    """All figures of a run."""

    run: Run
    contenders: list[str]
    frameworks: list[Framework]
    rows: list[Row]
    means: list[Mean]
    graphs: list[Graph]
    bars: list[BarFigure]

    @property
    def reference(self) -> str:
        """The contender that the others are compared with: the first."""
        return self.contenders[0] if self.contenders else ""

    def figures(self) -> Iterator[tuple[str, str, Figure]]:
        """Yield label, phase and figure of everything that was measured."""
        for row in self.rows:
            yield from ((row.label, row.phase, figure) for figure in row.figures)
        for graph in self.graphs:
            for each in graph.rows:
                phases = {"build": each.build, "compile": each.compile, "step": each.run}
                yield from ((graph.label, phase, figure) for phase, figure in phases.items())


def report_on(results: Results) -> Report:
    """Work out all figures of a run."""
    found = _Found(results)
    cases = results.case_by_key()
    graphs = {key: case for key, case in cases.items() if _is_graph(case)}
    rows = [
        row
        for key, case in cases.items()
        if key not in graphs
        for row in _rows(found, key, case)
    ]
    return Report(
        run=results.run,
        contenders=found.contenders,
        frameworks=results.frameworks,
        rows=rows,
        means=list(_means(rows)),
        graphs=[_graph(found, key, case) for key, case in graphs.items() if found.phases[key]],
        bars=bars_of(results),
    )


def bars_of(results: Results) -> list[BarFigure]:
    """Compare what was found with the bars of the run's suite, if it is still there."""
    from tapegrad.bench import suites

    try:
        bars = suites.find(results.run.options.get("suite", results.run.suite)).bars
    except TapegradError:
        return []
    return [_bar(bar, results) for bar in bars]


def _bar(bar: Bar, results: Results) -> BarFigure:
    found = bar.found(results)
    verdict = NOT_MEASURED if found is None else "met" if bar.met(found) else "missed"
    return BarFigure(bar.title, bar.bound, bar.unit, bar.at_most, found, verdict)


def _is_graph(case: Case) -> bool:
    """Whether a case is shown with a row for each contender."""
    return case.level == "graph" and case.op == "graph"


class _Found:
    """The results by place."""

    def __init__(self, results: Results) -> None:
        self.run = results.run
        self.contenders = list(dict.fromkeys(cell.framework for cell in results.cells))
        self.reference = self.contenders[0] if self.contenders else ""
        self._cells = {cell.key: cell for cell in results.cells}
        self._memory = {(m.case, m.framework, m.phase): m for m in results.memory}
        self.phases: defaultdict[str, set[str]] = defaultdict(set)
        for cell in results.cells:
            self.phases[cell.case].add(cell.phase)
        self._blocks: defaultdict[CellKey, list[Block]] = defaultdict(list)
        for block in results.blocks:
            self._blocks[block.key].append(block)

    def blocks(self, key: CellKey) -> list[Block]:
        """Return the blocks of a cell, none where it has no times."""
        cell = self._cells.get(key)
        return self._blocks.get(key, []) if cell is not None and cell.timed else []

    def figure(self, key: CellKey) -> Figure:
        """Return what a cell of a table holds."""
        cell = self._cells.get(key)
        if cell is None:
            return Figure(key.framework, NOT_MEASURED, "the run ended before")
        return _figure(cell, self.blocks(key), self.blocks(self._opposite(key)), self._memory.get(key))

    def _opposite(self, key: CellKey) -> CellKey:
        return key._replace(framework=self.reference)


def _figure(cell: Cell, blocks: list[Block], opposite: list[Block], memory: Memory | None) -> Figure:
    said = {"reason": cell.reason, "error": cell.error, "notes": cell.notes, "memory": memory}
    if not cell.timed:
        return Figure(cell.framework, cell.verdict, **said)
    if not blocks:
        return Figure(cell.framework, NOT_MEASURED, **(said | {"reason": "the run ended before"}))
    try:
        time = statistics.estimate(blocks)
    except OptionError as error:
        return Figure(cell.framework, "mistrusted", **(said | {"reason": str(error)}))
    return Figure(cell.framework, cell.verdict, **said, time=time, ratio=_ratio(blocks, opposite))


def _ratio(theirs: list[Block], ours: list[Block]) -> Ratio | None:
    """Compare with the reference; not with itself, and not with what has no times."""
    if not theirs or not ours or theirs[0].framework == ours[0].framework:
        return None
    try:
        return statistics.ratio(theirs, ours)
    except OptionError:
        return None


def _rows(found: _Found, key: str, case: Case) -> Iterator[Row]:
    for phase in in_order(found.phases[key]):
        yield Row(
            case=key,
            label=case.label,
            op=case.op,
            size=case.size,
            dtype=case.dtype,
            phase=phase,
            command=command_for(found.run, case.label, phase),
            figures=[found.figure(CellKey(key, name, phase)) for name in found.contenders],
        )


def _means(rows: Iterable[Row]) -> Iterator[Mean]:
    """Average the ratios of each pair and phase over the cases in which both have times."""
    ratios: defaultdict[tuple[str, str], list[Ratio]] = defaultdict(list)
    for row in rows:
        for figure in row.figures:
            if figure.ratio is not None:
                ratios[row.phase, figure.framework].append(figure.ratio)
    for (phase, framework), members in ratios.items():
        yield Mean(framework, phase, *_geometric_mean(members), cases=len(members))


def _geometric_mean(ratios: list[Ratio]) -> tuple[float, float | None, float | None]:
    """Return the mean with its interval; errors of different cases are independent."""
    centre = math.fsum(math.log(ratio.value) for ratio in ratios) / len(ratios)
    widths = [
        math.log(ratio.high / ratio.low) / 2
        for ratio in ratios
        if ratio.low is not None and ratio.high is not None
    ]
    if len(widths) < len(ratios):
        return math.exp(centre), None, None
    reach = math.hypot(*widths) / len(ratios)
    return math.exp(centre), math.exp(centre - reach), math.exp(centre + reach)


def _graph(found: _Found, key: str, case: Case) -> Graph:
    family, ops = str(case.attrs["family"]), int(case.attrs["ops"])
    totals = {name: _total_blocks(found, key, name) for name in found.contenders}
    rows = [_graph_row(found, key, name, totals) for name in found.contenders]
    published = published_for(family, ops)
    return Graph(
        case=key,
        label=case.label,
        family=family,
        ops=ops,
        target=str(case.attrs.get("target", "sum")),
        command=command_for(found.run, case.label),
        rows=[msgspec.structs.replace(row, published=published.get(row.framework)) for row in rows],
    )


def _graph_row(
    found: _Found, key: str, name: str, totals: Mapping[str, list[Block]]
) -> GraphRow:
    build, compiling, run = (
        found.figure(CellKey(key, name, phase)) for phase in ("build", "compile", "step")
    )
    if run.time is not None:
        build, compiling = _or_none(build), _or_none(compiling)
    return GraphRow(
        framework=name,
        build=build,
        compile=compiling,
        run=run,
        total=_total(run, [build, compiling], totals[name], totals[found.reference]),
        evaluations=sum(
            len(block.samples) * block.inner * block.units
            for block in found.blocks(CellKey(key, name, "step"))
        ),
    )


def _or_none(figure: Figure) -> Figure:
    """Say `none` of a phase that a contender does without, though it runs."""
    if figure.verdict != "unsupported":
        return figure
    return Figure(figure.framework, NONE, "nothing to do in this phase")


def _total(
    run: Figure, before: list[Figure], blocks: list[Block], reference: list[Block]
) -> Figure:
    """Compute the total, or say what is missing for it."""
    missing = next(
        (each for each in (run, *before) if each.time is None and each.verdict != NONE), None
    )
    if missing is not None:
        return Figure(run.framework, missing.verdict, missing.reason)
    computed = Cell("", run.framework, "total", run.verdict, notes=["computed"])
    return _figure(computed, blocks, reference, None)


def _total_blocks(found: _Found, key: str, name: str) -> list[Block]:
    """Compute a total for each block of runs, with what building and compiling took beside it.

    Long compilations are measured once a process, or once at all: then that one counts.
    """
    runs = found.blocks(CellKey(key, name, "step"))
    before = [found.blocks(CellKey(key, name, phase)) for phase in ("build", "compile")]
    return [
        Block(
            key,
            name,
            "total",
            block.process,
            block.round,
            [
                sum(_nearest(blocks, block) for blocks in before)
                + EVALUATIONS * median(block.samples)
            ],
        )
        for block in runs
        if block.samples
    ]


def _nearest(blocks: list[Block], to: Block) -> float:
    """Return the time of the block of the same process and round, or of the process, or of all."""
    kinds = (
        [b for b in blocks if (b.process, b.round) == (to.process, to.round)],
        [b for b in blocks if b.process == to.process],
        blocks,
    )
    chosen: list[Block] = next((kind for kind in kinds if kind), [])
    return median(median(block.samples) for block in chosen) if chosen else 0.0


def frameworks_of(report: Report) -> dict[str, Framework]:
    """Return the contenders that said what they are."""
    return {framework.name: framework for framework in report.frameworks}


def options_of(report: Report) -> dict[str, Any]:
    """Return the options of the run."""
    return report.run.options
