"""Charts of scalar graphs: lines over their size, or dots where there is one size."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator

from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.ticker import FuncFormatter, NullFormatter

from tapegrad.bench.report.chart.style import (
    DPI,
    GRID,
    INK,
    aside,
    colour_of,
    dress,
    marker_of,
    name_lines,
    time_axis,
)
from tapegrad.bench.report.figures import EVALUATIONS, Figure, GraphRow, Report
from tapegrad.bench.units import seconds

HEIGHT = 5.6
#: Inches for one bar, and around all.
BAR = 0.24
AROUND = 1.5

Line = list[tuple[int, float]]
Part = Callable[[GraphRow], Figure]
Lines = dict[Part, dict[str, Line]]
Paint = Callable[[SubFigure], None]


def parts(report: Report) -> Iterator[tuple[float, Paint]]:
    """Yield a part for each family of graphs, with its height in inches."""
    for family, target in dict.fromkeys((graph.family, graph.target) for graph in report.graphs):
        lines: Lines = {
            part: _lines(report, family, target, part) for part in (_run_time, _total_time)
        }
        sizes = {ops for points in lines[_run_time].values() for ops, _ in points}
        if len(sizes) > 1:
            yield HEIGHT, _painter(_curves, report, family, target, lines)
        elif sizes:
            height = BAR * len(lines[_run_time]) + AROUND
            name = f"{family}, {sizes.pop():,} ops"
            yield height, _painter(_ranking, report, name, target, lines)


def _run_time(row: GraphRow) -> Figure:
    return row.run


def _total_time(row: GraphRow) -> Figure:
    return row.total


def _lines(report: Report, family: str, target: str, part: Part) -> dict[str, Line]:
    """Return time against the number of operations, by contender."""
    lines: defaultdict[str, Line] = defaultdict(list)
    for graph in sorted(report.graphs, key=lambda graph: graph.ops):
        if (graph.family, graph.target) == (family, target):
            for row in graph.rows:
                time = part(row).time
                if time is not None:
                    lines[row.framework].append((graph.ops, time.time))
    return dict(lines)


def _painter(
    fill: Callable[[Axes, Report, dict[str, Line]], None],
    report: Report,
    name: str,
    target: str,
    lines: Lines,
) -> Paint:
    """Return what draws one family of graphs: runs at the left, totals at the right."""

    def paint(area: SubFigure) -> None:
        height = float(area.bbox.height) / DPI
        area.subplots_adjust(
            left=0.065 if fill is _curves else 0.12,
            right=0.87 if fill is _curves else 0.94,
            bottom=0.6 / height,
            top=1 - 0.55 / height,
            wspace=0.52,
        )
        what = "sum of all nodes" if target == "sum" else f"{target} node"
        titles = {
            _run_time: f"{name}: one evaluation, value and gradient of the {what}",
            _total_time: f"{name}: build + compile + {EVALUATIONS:,} evaluations",
        }
        for axis, (part, title) in zip(area.subplots(1, 2), titles.items(), strict=True):
            fill(axis, report, lines[part])
            axis.set_title(title, fontsize=10, color=INK, loc="left", pad=8)

    return paint


def _ranking(axis: Axes, report: Report, lines: dict[str, Line]) -> None:
    """Draw graphs of one size as dots, the fastest on top."""
    times = {name: points[-1][1] for name, points in lines.items()}
    names = sorted(times, key=lambda name: times[name])
    axis.set_xscale("log")
    if names:
        low = 10 ** math.floor(math.log10(times[names[0]] * 0.7))
        axis.set_xlim(low, times[names[-1]] * (times[names[-1]] / low) ** 0.15)
        for position, name in enumerate(names):
            time, colour = times[name], colour_of(report.contenders, name)
            marker = marker_of(report.contenders, name)
            axis.plot(time, position, color=colour, marker=marker, markersize=6.5)
            axis.axhline(position, color=GRID, linewidth=0.7, zorder=0)
            aside(axis, time, position, f" {seconds(time)}", INK)
    axis.set_yticks(range(len(names)), names, fontsize=8)
    axis.set_ylim(len(names) - 0.4, -0.6)
    dress(axis)
    time_axis(axis.xaxis)
    axis.grid(axis="x", color=GRID, linewidth=0.7)
    axis.tick_params(axis="y", length=0)


def _curves(axis: Axes, report: Report, lines: dict[str, Line]) -> None:
    axis.set_xscale("log")
    axis.set_yscale("log")
    names = report.contenders
    for name, points in lines.items():
        axis.plot(
            *zip(*points, strict=True),
            color=colour_of(names, name),
            marker=marker_of(names, name),
            markersize=4.5,
            linewidth=1.8,
        )
    dress(axis)
    time_axis(axis.yaxis)
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set_xlabel("operations in the graph", fontsize=9, color=INK)
    axis.grid(color=GRID, linewidth=0.7)
    ends = {name: points[-1] for name, points in lines.items()}
    name_lines(axis, ends, {name: colour_of(names, name) for name in ends}, 0.043)
