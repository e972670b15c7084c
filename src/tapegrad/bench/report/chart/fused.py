"""Charts of fused operators: how many times as long as its parts each takes, by framework.

Lines start from 1, where both take the same time.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

from tapegrad.bench.report.chart.dots import LABEL, legend
from tapegrad.bench.report.chart.graphs import Paint
from tapegrad.bench.report.chart.style import (
    DPI,
    GRID,
    INK,
    PALE,
    WIDTH,
    colour_of,
    dress,
    few_ticks,
    marker_of,
)
from tapegrad.bench.report.figures import FusedRow, Report
from tapegrad.bench.results import in_order

#: Inches of a framework's dot, around an operator, above and below all of them, and for names.
LINE, BETWEEN, ABOVE, BELOW, NAMES = 0.13, 0.08, 1.0, 0.5, 4.4
#: Ratios that are shown at least, so that small differences look small.
NARROWEST = 2.0


def parts(report: Report) -> Iterator[tuple[float, Paint]]:
    """Yield the chart, where there is anything to compare."""
    rows = [row for row in report.fused if row.parts.ratio is not None]
    if rows:
        labels = list(dict.fromkeys(row.label for row in rows))
        names = [name for name in report.contenders if name in {row.framework for row in rows}]
        height = len(labels) * (LINE * len(names) + BETWEEN) + ABOVE + BELOW
        yield height, partial(paint, report, rows, labels, names)


def paint(
    report: Report, rows: list[FusedRow], labels: list[str], names: list[str], area: SubFigure
) -> None:
    """Draw a panel for each phase."""
    phases = list(in_order(row.phase for row in rows))
    inches = float(area.bbox.height) / DPI
    axes = area.subplots(1, len(phases), sharey=True, squeeze=False)[0]
    area.subplots_adjust(
        left=NAMES / WIDTH,
        right=1 - 0.2 / WIDTH,
        bottom=BELOW / inches,
        top=1 - ABOVE / inches,
        wspace=0.08,
    )
    step = len(names) + BETWEEN / LINE
    places = {label: index * step for index, label in enumerate(labels)}
    for axis, phase in zip(axes, phases, strict=True):
        _dress(axis, rows)
        axis.set_title(phase, fontsize=10.5, color=INK, loc="left", pad=6)
        for row in (row for row in rows if row.phase == phase):
            offset = names.index(row.framework) - (len(names) - 1) / 2
            _dot(axis, report, row, places[row.label] + offset)
    shown = [textwrap.shorten(label, LABEL, placeholder=" …") for label in labels]
    axes[0].set_yticks(list(places.values()), shown, fontsize=6.5)
    axes[0].set_ylim(len(labels) * step - step / 2, -step / 2)
    legend(area, report, names, (NAMES - 0.15) / WIDTH, 1 - 0.32 / inches)
    title = "How many times as long a fused operator takes as its parts; left of 1× it is faster"
    area.text(0.02, 1 - 0.15 / inches, title, color=INK, fontsize=10, va="center")


def _dress(axis: Axes, rows: list[FusedRow]) -> None:
    ratios = [row.parts.ratio.value for row in rows if row.parts.ratio]
    most = max(NARROWEST, *ratios, *(1 / ratio for ratio in ratios)) * 1.15
    axis.set_xscale("log")
    axis.set_xlim(1 / most, most)
    dress(axis)
    few_ticks(axis.xaxis, 1 / most, most)
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.grid(axis="x", color=GRID, linewidth=0.7)
    axis.axvline(1, color=PALE, linewidth=1.2, zorder=1)
    axis.tick_params(axis="y", length=0)


def _dot(axis: Axes, report: Report, row: FusedRow, position: float) -> None:
    ratio = row.parts.ratio
    assert ratio is not None
    colour = colour_of(report.contenders, row.framework)
    axis.hlines(position, 1, ratio.value, color=colour, linewidth=1.0, alpha=0.5, zorder=1)
    if ratio.low is not None and ratio.high is not None:
        low, high = (
            min(max(end, axis.get_xlim()[0]), axis.get_xlim()[1]) for end in (ratio.low, ratio.high)
        )
        axis.hlines(position, low, high, color=INK, linewidth=0.8, alpha=0.6, zorder=2)
    axis.plot(
        ratio.value,
        position,
        color=colour,
        marker=marker_of(report.contenders, row.framework),
        markersize=4.2,
        linestyle="none",
        zorder=3,
    )
