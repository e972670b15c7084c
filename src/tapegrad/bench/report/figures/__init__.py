"""What a run found, as figures: the data behind every format."""

from __future__ import annotations

from tapegrad.bench.report.figures.bars import bars_of
from tapegrad.bench.report.figures.found import Found
from tapegrad.bench.report.figures.fused import fused_rows
from tapegrad.bench.report.figures.graphs import graph_of
from tapegrad.bench.report.figures.records import (
    EVALUATIONS,
    NONE,
    NOT_MEASURED,
    BarFigure,
    Figure,
    FusedRow,
    Graph,
    GraphRow,
    Mean,
    Report,
    Row,
    Section,
)
from tapegrad.bench.report.figures.sections import sections_of
from tapegrad.bench.results import Results
from tapegrad.worker.case import Case

__all__ = [
    "EVALUATIONS",
    "NONE",
    "NOT_MEASURED",
    "BarFigure",
    "Figure",
    "FusedRow",
    "Graph",
    "GraphRow",
    "Mean",
    "Report",
    "Row",
    "Section",
    "bars_of",
    "report_on",
]


def report_on(results: Results) -> Report:
    """Work out all figures of a run."""
    found = Found(results)
    cases = {key: case for key, case in results.case_by_key().items() if found.phases[key]}
    graphs = {key: case for key, case in cases.items() if _is_graph(case)}
    others = {key: case for key, case in cases.items() if key not in graphs}
    taking_part = found.taking_part(graphs)
    return Report(
        run=results.run,
        contenders=found.contenders,
        frameworks=results.frameworks,
        sections=sections_of(found, others),
        fused=list(fused_rows(found, others)),
        graphs=[graph_of(found, key, case, taking_part) for key, case in graphs.items()],
        bars=bars_of(results),
    )


def _is_graph(case: Case) -> bool:
    """Whether a case is shown with a row for each contender."""
    return case.level == "graph" and case.op == "graph"
