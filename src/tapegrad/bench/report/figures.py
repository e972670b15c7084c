"""What a run found, as figures: the data behind every format.

Each cell is a time or a word, never neither and never both. A ratio exists only where both sides
have times, that is where both were shown to do the same work.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from statistics import median

import msgspec
from msgspec.structs import replace

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


class Section(msgspec.Struct, frozen=True):
    """Cases that belong in one table."""

    title: str
    #: Those who support any of the cases.
    contenders: list[str]
    #: The first of them, which the others are compared with.
    reference: str
    rows: list[Row]
    means: list[Mean]


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
    reference: str
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
    #: All, in the order of the run.
    contenders: list[str]
    frameworks: list[Framework]
    sections: list[Section]
    graphs: list[Graph]
    bars: list[BarFigure]

    def figures(self) -> Iterator[tuple[str, str, Figure]]:
        """Yield label, phase and figure of everything that was measured."""
        for row in (row for section in self.sections for row in section.rows):
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
    others: defaultdict[str, dict[str, Case]] = defaultdict(dict)
    for key, case in cases.items():
        if key not in graphs and found.phases[key]:
            others[_title(case)][key] = case
    taking_part = found.taking_part(graphs)
    return Report(
        run=results.run,
        contenders=found.contenders,
        frameworks=results.frameworks,
        sections=[_section(found, title, members) for title, members in others.items()],
        graphs=[
            _graph(found, key, case, taking_part)
            for key, case in graphs.items()
            if found.phases[key]
        ],
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
    """Judge a bar; one of a user's that fails must not take the report with it."""
    try:
        found = bar.found(results)
        verdict = NOT_MEASURED if found is None else "met" if bar.met(found) else "missed"
    except Exception:
        found, verdict = None, NOT_MEASURED
    return BarFigure(bar.title, bar.bound, bar.unit, bar.at_most, found, verdict)


def _is_graph(case: Case) -> bool:
    """Whether a case is shown with a row for each contender."""
    return case.level == "graph" and case.op == "graph"


def _title(case: Case) -> str:
    """Name the table that a case belongs in."""
    return (
        f"Graphs, {case.op}: time of one evaluation or step"
        if case.level == "graph"
        else "Time of one call"
    )


class _Found:
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

    def blocks(self, key: CellKey) -> list[Block]:
        """Return the blocks of a cell, none where it has no times."""
        cell = self._cells.get(key)
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

    def figure(self, key: CellKey, reference: str) -> Figure:
        """Return what a cell of a table holds, compared with the reference."""
        cell = self._cells.get(key)
        if cell is None:
            return Figure(key.framework, NOT_MEASURED, "the run ended before")
        opposite = self.blocks(key._replace(framework=reference))
        return _figure(cell, self.blocks(key), opposite, self._memory.get(key))


def _figure(
    cell: Cell, blocks: list[Block], opposite: list[Block], memory: Memory | None
) -> Figure:
    figure = Figure(
        cell.framework, cell.verdict, cell.reason, cell.error, cell.notes, memory=memory
    )
    if not cell.timed:
        return figure
    if not blocks:
        return replace(figure, verdict=NOT_MEASURED, reason="the run ended before")
    try:
        time = statistics.estimate(blocks)
    except OptionError as error:
        return replace(figure, verdict="mistrusted", reason=str(error))
    return replace(figure, time=time, ratio=_ratio(blocks, opposite))


def _ratio(theirs: list[Block], ours: list[Block]) -> Ratio | None:
    """Compare with the reference; not with itself, and not with what has no times."""
    if not theirs or not ours or theirs[0].framework == ours[0].framework:
        return None
    try:
        return statistics.ratio(theirs, ours)
    except OptionError:
        return None


def _section(found: _Found, title: str, cases: Mapping[str, Case]) -> Section:
    names = found.taking_part(cases)
    rows = [row for key, case in cases.items() for row in _rows(found, key, case, names)]
    return Section(title, names, names[0], rows, list(_means(rows)))


def _rows(found: _Found, key: str, case: Case, names: list[str]) -> Iterator[Row]:
    for phase in in_order(found.phases[key]):
        yield Row(
            case=key,
            label=case.label,
            op=case.op,
            size=case.size,
            dtype=case.dtype,
            phase=phase,
            command=command_for(found.run, case.label, phase),
            figures=[found.figure(CellKey(key, name, phase), names[0]) for name in names],
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


def _graph(found: _Found, key: str, case: Case, names: list[str]) -> Graph:
    family, ops = str(case.attrs["family"]), int(case.attrs["ops"])
    totals = {name: _total_blocks(found, key, name) for name in names}
    rows = [_graph_row(found, key, name, names[0], totals) for name in names]
    published = published_for(family, ops)
    return Graph(
        case=key,
        label=case.label,
        family=family,
        ops=ops,
        target=str(case.attrs.get("target", "sum")),
        command=command_for(found.run, case.label),
        reference=names[0],
        rows=[replace(row, published=published.get(row.framework)) for row in rows],
    )


def _graph_row(
    found: _Found, key: str, name: str, reference: str, totals: Mapping[str, list[Block]]
) -> GraphRow:
    build, compiling, run = (
        found.figure(CellKey(key, name, phase), reference) for phase in ("build", "compile", "step")
    )
    if run.time is not None:
        build, compiling = _or_none(build), _or_none(compiling)
    return GraphRow(
        framework=name,
        build=build,
        compile=compiling,
        run=run,
        total=_total(run, [build, compiling], totals[name], totals[reference]),
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
