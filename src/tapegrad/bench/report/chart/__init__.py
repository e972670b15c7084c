"""Charts of a run as one PNG: times over sizes as lines, times of single sizes as dots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.figure import SubFigure

from tapegrad.bench.errors import BenchError, OutputError
from tapegrad.bench.report.chart import dots, fused, graphs, groups, sizes
from tapegrad.bench.report.chart.graphs import Paint
from tapegrad.bench.report.chart.style import COLOURS, DPI, GRID, INK, PALE, WIDTH, spread_out
from tapegrad.bench.report.chart.variants import variants
from tapegrad.bench.report.figures import Report, Row, Section, report_on
from tapegrad.bench.results import Results
from tapegrad.worker.case import Case

__all__ = ["COLOURS", "DPI", "GRID", "INK", "PALE", "draw", "spread_out"]

#: Inches that the head takes.
HEAD = 0.5
#: More cases than this have a line each, not one for each framework.
MANY = 24


def draw(results: Results, path: str | Path) -> None:
    """Draw a run to a PNG file."""
    report = report_on(results)
    parts = list(_parts(report, results.case_by_key()))
    if not parts:
        raise BenchError(f"Run {report.run.id} has no times to draw.")
    heights = [height for height, _ in parts]
    canvas = Canvas(figsize=(WIDTH, sum(heights) + HEAD), dpi=DPI, facecolor="white")
    FigureCanvasAgg(canvas)
    rows = canvas.subfigures(len(parts) + 1, 1, height_ratios=[HEAD, *heights], squeeze=False)
    _head(rows[0, 0], report)
    for row, (_, paint) in zip(rows[1:, 0], parts, strict=True):
        paint(row)
    try:
        canvas.savefig(path, facecolor="white")
    except OSError as error:
        raise OutputError(path, error) from None


def _parts(report: Report, cases: Mapping[str, Case]) -> Iterator[tuple[float, Paint]]:
    """Yield what there is to draw, with its height in inches."""
    own_shapes = any(report.run.options.get(name) for name in ("shape", "cases"))
    yield from graphs.parts(report)
    yield from fused.parts(report)
    modules = [section for section in report.sections if section.kind == "modules"]
    titled = {each.title: each.rows for each in modules}
    yield from _over_sizes(report, modules, titled, own_shapes)
    for section in report.sections:
        if section.kind == "operators":
            apart = variants(section.rows, cases, own_shapes=own_shapes)
            yield from _over_sizes(report, [section], apart, own_shapes)
        elif section.kind != "modules":
            yield from _as_dots(report, section)


def _over_sizes(
    report: Report, sections: list[Section], rows: dict[str, list[Row]], own_shapes: bool
) -> Iterator[tuple[float, Paint]]:
    """Draw lines where anything was measured at several sizes."""
    drawn = sizes.panels(rows, own_shapes=own_shapes)
    if any(len(panel.sizes) > 1 for panel in drawn):
        yield sizes.height(len(drawn)), partial(sizes.paint, report, drawn)
        return
    for section in sections:
        yield from _as_dots(report, section)


def _as_dots(report: Report, section: Section) -> Iterator[tuple[float, Paint]]:
    """Draw groups of dots, or one line a case where there are too many."""
    cases = {row.case for row in section.rows if any(figure.time for figure in row.figures)}
    if len(cases) > MANY:
        yield dots.height(section), partial(dots.paint, report, section)
    elif cases:
        yield groups.height(section), partial(groups.paint, report, section)


def _head(area: SubFigure, report: Report) -> None:
    run = report.run
    area.text(0.02, 0.62, run.id, color=INK, fontsize=13, fontweight="bold", va="center")
    design = (
        f"{run.machine.name}; {report.device}; threads of each worker: "
        f"{run.options.get('threads', 1)}"
    )
    area.text(0.02, 0.12, design, color=PALE, fontsize=8.5, va="center")
