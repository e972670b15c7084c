"""The figures of a report, as records.

Each cell is a time or a word, never neither and never both. A ratio exists only where both sides
have times, that is where both were shown to do the same work.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tapegrad.bench.report.published import Published, Quoted
from tapegrad.bench.results import Framework, Memory, Run
from tapegrad.bench.statistics import Estimate, Ratio

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
    #: What its table calls the case; the label, unless a document that is followed has a name.
    name: str
    op: str
    size: str
    dtype: str
    phase: str
    #: The command that measures this row again; empty for a user's own functions.
    command: str
    figures: list[Figure]
    #: Numbers in all inputs together.
    elements: int = 0
    #: Who is faster than each of the others beyond doubt; empty where nobody is.
    winner: str = ""
    #: How many times as long tapegrad takes as the fastest of the others, where that is beyond
    #: doubt.
    lost_by: float | None = None


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
    #: How they are shown: `operators`, `modules`, `layers` or `models`.
    kind: str
    #: Those who support any of the cases.
    contenders: list[str]
    #: The first of them, which the others are compared with.
    reference: str
    rows: list[Row]
    means: list[Mean]
    #: Why the other contenders support none of them, by contender.
    unsupported: dict[str, list[str]] = {}
    #: What others have published of these cases on such a device.
    published: list[Quoted] = []


class FusedRow(msgspec.Struct, frozen=True):
    """A fused operator in one framework and phase, beside the parts that it is made of."""

    case: str
    label: str
    phase: str
    framework: str
    #: How the framework does it, as `fused: F.cross_entropy`, `compiled by XLA` or `composed`.
    how: str
    fused: Figure
    #: All parts together, computed from their own times; its ratio is that of fused to parts.
    parts: Figure
    command: str


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
    fused: list[FusedRow]
    graphs: list[Graph]
    bars: list[BarFigure]

    @property
    def device(self) -> str:
        """Return what the run took place on: `cpu` or `cuda`."""
        return str(self.run.options.get("device", "cpu"))

    def version(self, framework: str) -> str:
        """Return a contender's version; empty where it did not start."""
        return next((each.version for each in self.frameworks if each.name == framework), "")

    def figures(self) -> Iterator[tuple[str, str, Figure]]:
        """Yield name, phase and figure of everything that was measured."""
        for row in (row for section in self.sections for row in section.rows):
            yield from ((row.name, row.phase, figure) for figure in row.figures)
        for graph in self.graphs:
            for each in graph.rows:
                phases = {"build": each.build, "compile": each.compile, "step": each.run}
                yield from ((graph.label, phase, figure) for phase, figure in phases.items())
