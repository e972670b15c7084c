"""Charts of a run as one PNG: graphs as lines over their size, operators as bars."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.figure import SubFigure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from tapegrad.bench.errors import BenchError
from tapegrad.bench.report.figures import (
    EVALUATIONS,
    Figure,
    GraphRow,
    Report,
    Row,
    Section,
    report_on,
)
from tapegrad.bench.results import Results, in_order
from tapegrad.bench.units import seconds

#: Told apart by people who see colours differently, too (after Paul Tol's schemes).
COLOURS = (
    "#0077bb",
    "#ee7733",
    "#009988",
    "#cc3311",
    "#33bbee",
    "#ee3377",
    "#997700",
    "#332288",
    "#117733",
    "#aa4499",
    "#882255",
    "#88ccee",
    "#ddaa33",
    "#999933",
    "#555555",
    "#44aa99",
    "#661100",
    "#6699cc",
    "#a05000",
    "#7f9f00",
    "#a0a0a0",
)
MARKERS = "osD^vP*Xhp<>dH8"
INK = "#222222"
PALE = "#8a8a8a"
GRID = "#e4e4e4"
DPI = 140
WIDTH = 12.0
GRAPH_HEIGHT = 5.6
#: Inches for one bar, and around a case and a panel.
BAR = 0.19
BETWEEN = 0.14
AROUND = 1.5
#: Characters of a case's label in a line.
LABEL = 28
TITLES = {"forward": "forward (training)", "step": "step (forward and backward)"}


def draw(results: Results, path: str | Path) -> None:
    """Draw a run to a PNG file."""
    report = report_on(results)
    parts = list(_parts(report))
    if not parts:
        raise BenchError(f"Run {report.run.id} has no times to draw.")
    heights = [height for height, _ in parts]
    canvas = Canvas(figsize=(WIDTH, sum(heights) + 0.5), dpi=DPI, facecolor="white")
    FigureCanvasAgg(canvas)
    rows = canvas.subfigures(len(parts) + 1, 1, height_ratios=[0.5, *heights], squeeze=False)
    _head(rows[0, 0], report)
    for row, (_, paint) in zip(rows[1:, 0], parts, strict=True):
        paint(row)
    try:
        canvas.savefig(path, facecolor="white")
    except OSError as error:
        raise BenchError(f"{path} cannot be written: {error.strerror}.") from None


def _parts(report: Report) -> Iterator[tuple[float, Callable[[SubFigure], None]]]:
    """Yield what there is to draw, with its height in inches."""
    for family, target in dict.fromkeys((graph.family, graph.target) for graph in report.graphs):
        lines: Lines = {
            part: _lines(report, family, target, part) for part in (_run_time, _total_time)
        }
        sizes = {ops for points in lines[_run_time].values() for ops, _ in points}
        if len(sizes) > 1:
            yield GRAPH_HEIGHT, _painter(_curves, report, family, target, lines)
        elif sizes:
            height = BAR * 1.25 * len(lines[_run_time]) + AROUND
            yield (
                height,
                _painter(_ranking, report, f"{family}, {sizes.pop():,} ops", target, lines),
            )
    for section in report.sections:
        timed = {row.case for row in section.rows if any(figure.time for figure in row.figures)}
        if timed:
            case = BAR * len(section.contenders) + BETWEEN
            yield len(timed) * case + AROUND, partial(_operators, report, section, timed)


def _head(area: SubFigure, report: Report) -> None:
    run = report.run
    area.text(0.02, 0.62, run.id, color=INK, fontsize=13, fontweight="bold", va="center")
    design = f"{run.machine.name}; threads of each worker: {run.options.get('threads', 1)}"
    area.text(0.02, 0.12, design, color=PALE, fontsize=8.5, va="center")


def _colour(report: Report, name: str) -> str:
    return COLOURS[report.contenders.index(name) % len(COLOURS)]


# Operators


def _operators(report: Report, section: Section, cases: set[str], area: SubFigure) -> None:
    """Draw a panel for each phase, with a group of bars for each case."""
    rows = [row for row in section.rows if row.case in cases]
    painted = {name: _colour(report, name) for name in section.contenders}
    timed = (row.phase for row in rows if any(figure.time for figure in row.figures))
    phases = list(in_order(timed))
    labels = list(dict.fromkeys((row.case, row.label) for row in rows))
    height = float(area.bbox.height) / DPI
    left = 0.235
    axes = area.subplots(1, len(phases), sharey=True, squeeze=False)[0]
    area.subplots_adjust(
        left=left, right=0.985, bottom=0.55 / height, top=1 - 0.85 / height, wspace=0.1
    )
    limits = _limits(rows)
    for axis, phase in zip(axes, phases, strict=True):
        _panel(axis, painted, {row.case: row for row in rows if row.phase == phase}, labels, limits)
        axis.set_title(TITLES.get(phase, phase), fontsize=10.5, color=INK, loc="left", pad=6)
    step = _step(painted)
    axes[0].set_yticks(
        [index * step for index in range(len(labels))],
        [_broken(label) for _, label in labels],
        fontsize=8,
    )
    axes[0].set_ylim(len(labels) * step - step / 2, -step / 2)
    handles, names = _legend(axes, painted)
    area.legend(
        handles,
        names,
        loc="upper left",
        bbox_to_anchor=(left - 0.005, 1 - 0.1 / height),
        ncols=len(names),
        frameon=False,
        fontsize=9,
        handlelength=1.0,
        columnspacing=1.6,
    )


def _step(colours: dict[str, str]) -> float:
    """Return the room of a case, in bars."""
    return len(colours) + BETWEEN / BAR


def _legend(axes: Any, colours: dict[str, str]) -> tuple[list[Any], list[str]]:
    found: dict[str, Any] = {}
    for axis in axes:
        handles, names = axis.get_legend_handles_labels()
        found |= dict(zip(names, handles, strict=True))
    named = [name for name in colours if name in found]
    return [found[name] for name in named], named


def _limits(rows: list[Row]) -> tuple[float, float]:
    """Return the ends of the time axis, with room for what is written beside the bars."""
    times = [figure.time.time for row in rows for figure in row.figures if figure.time]
    low = 10 ** math.floor(math.log10(min(times) * 0.7))
    return low, max(times) * (max(times) / low) ** 0.28


def _panel(
    axis: Axes,
    colours: dict[str, str],
    rows: dict[str, Row],
    labels: list[tuple[str, str]],
    limits: tuple[float, float],
) -> None:
    axis.set_xscale("log")
    axis.set_xlim(*limits)
    step, middle = _step(colours), (len(colours) - 1) / 2
    for index, (case, _) in enumerate(labels):
        figures = rows[case].figures if case in rows else []
        for offset, figure in enumerate(figures):
            _bar(axis, index * step + offset - middle, figure, colours[figure.framework])
        if index:
            axis.axhline(index * step - step / 2, color=GRID, linewidth=0.7, zorder=0)
        if not figures:
            _aside(axis, limits[0], index * step, "no such phase", PALE)
    _dress(axis)
    axis.xaxis.set_major_formatter(FuncFormatter(_tick))
    axis.grid(axis="x", color=GRID, linewidth=0.7)
    axis.tick_params(axis="y", length=0)


def _bar(axis: Axes, position: float, figure: Figure, colour: str) -> None:
    """Draw a bar with its time, or write the word that stands in place of it."""
    low = axis.get_xlim()[0]
    if figure.time is None:
        _aside(axis, low, position, f"{figure.framework}: {figure.verdict}", colour)
        return
    time = figure.time.time
    axis.barh(
        position, time - low, left=low, height=0.82, color=colour, label=figure.framework, zorder=2
    )
    end = time
    if figure.time.low is not None and figure.time.high is not None:
        end = min(figure.time.high, axis.get_xlim()[1])
        axis.hlines(position, figure.time.low, end, color=INK, linewidth=1.0, alpha=0.75, zorder=3)
    _aside(axis, max(end, time), position, seconds(time), INK)


def _aside(axis: Axes, x: float, y: float, text: str, colour: str) -> None:
    axis.annotate(
        text,
        (x, y),
        xytext=(4, 0),
        textcoords="offset points",
        va="center",
        fontsize=7,
        color=colour,
        annotation_clip=False,
    )


def _broken(label: str) -> str:
    """Break a long label into lines."""
    lines: list[str] = []
    for word in label.split():
        if lines and len(lines[-1]) + len(word) < LABEL:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return "\n".join(lines)


# Graphs

Line = list[tuple[int, float]]
Part = Callable[[GraphRow], Figure]
Lines = dict[Part, dict[str, Line]]


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
) -> Callable[[SubFigure], None]:
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
    """Draw graphs of one size as bars, the fastest on top."""
    times = {name: points[-1][1] for name, points in lines.items()}
    names = sorted(times, key=lambda name: times[name])
    axis.set_xscale("log")
    if names:
        low = 10 ** math.floor(math.log10(times[names[0]] * 0.7))
        axis.set_xlim(low, times[names[-1]] * (times[names[-1]] / low) ** 0.15)
        for position, name in enumerate(names):
            time, colour = times[name], _colour(report, name)
            axis.barh(position, time - low, left=low, height=0.78, color=colour, zorder=2)
            _aside(axis, time, position, seconds(time), INK)
    axis.set_yticks(range(len(names)), names, fontsize=8)
    axis.set_ylim(len(names) - 0.4, -0.6)
    _dress(axis)
    axis.xaxis.set_major_formatter(FuncFormatter(_tick))
    axis.grid(axis="x", color=GRID, linewidth=0.7)
    axis.tick_params(axis="y", length=0)


def _curves(axis: Axes, report: Report, lines: dict[str, Line]) -> None:
    axis.set_xscale("log")
    axis.set_yscale("log")
    for name, points in lines.items():
        order = report.contenders.index(name)
        axis.plot(
            *zip(*points, strict=True),
            color=_colour(report, name),
            marker=MARKERS[order % len(MARKERS)],
            markersize=4.5,
            linewidth=1.8,
        )
    _dress(axis)
    axis.yaxis.set_major_formatter(FuncFormatter(_tick))
    axis.yaxis.set_major_locator(LogLocator(numticks=30))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.yaxis.set_minor_formatter(NullFormatter())
    axis.set_xlabel("operations in the graph", fontsize=9, color=INK)
    axis.grid(color=GRID, linewidth=0.7)
    _name_lines(axis, report, lines)


def _name_lines(axis: Axes, report: Report, lines: dict[str, Line]) -> None:
    """Write the names at the right, in the order of the lines' ends and clear of each other."""
    if not lines:
        return
    ends = sorted(lines, key=lambda name: lines[name][-1][1])
    low, high = (math.log10(limit) for limit in axis.get_ylim())
    wanted = [(math.log10(lines[name][-1][1]) - low) / (high - low) for name in ends]
    for name, place in zip(ends, spread_out(wanted, 0.043), strict=True):
        axis.annotate(
            name,
            lines[name][-1],
            xytext=(1.04, place),
            textcoords="axes fraction",
            va="center",
            fontsize=8,
            color=_colour(report, name),
            arrowprops={
                "arrowstyle": "-",
                "color": _colour(report, name),
                "linestyle": (0, (1, 2)),
                "linewidth": 0.9,
                "alpha": 0.7,
                "shrinkA": 1,
                "shrinkB": 3,
            },
        )


def spread_out(wanted: list[float], gap: float) -> list[float]:
    """Move ascending places apart until neighbours are `gap` apart, as little as need be.

    Example:
        >>> [round(place, 2) for place in spread_out([0.1, 0.5, 0.5], 0.1)]
        [0.1, 0.45, 0.55]

    """
    groups = [[place] for place in wanted]
    index = 0
    while index + 1 < len(groups):
        if _first(groups[index + 1], gap) - _first(groups[index], gap) < gap * len(groups[index]):
            groups[index] += groups.pop(index + 1)
            index = max(index - 1, 0)
        else:
            index += 1
    return [_first(group, gap) + gap * rank for group in groups for rank in range(len(group))]


def _first(group: list[float], gap: float) -> float:
    """Return where a group begins that stands around the mean of what its members want."""
    return sum(group) / len(group) - gap * (len(group) - 1) / 2


# Both


def _tick(value: float, _: object) -> str:
    return seconds(value).replace(".00", "").replace(".0", "")


def _dress(axis: Axes) -> None:
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axis.spines[side].set_color(PALE)
    axis.tick_params(colors=INK, labelsize=8, which="both", color=PALE)
    axis.set_axisbelow(True)
