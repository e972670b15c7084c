"""Time against size: a panel for each form of an operator (`variants`) or module.

Each framework and phase has a line. A skewed shape has a marker of its own: it is no point on the
way from small to large.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.lines import Line2D

from tapegrad.bench.report.chart.style import (
    DPI,
    GRID,
    INK,
    PALE,
    TITLES,
    WIDTH,
    Point,
    colour_of,
    counts_axis,
    dress,
    few_ticks,
    marker_of,
    name_lines,
    time_axis,
    width_of,
)
from tapegrad.bench.report.figures import Report, Row
from tapegrad.bench.results import in_order

SKEWED = "skewed"
STYLES: dict[str, Any] = {
    "forward": "-",
    "backward": (0, (3.5, 1.6)),
    "step": (0, (1, 1.2)),
    "inference": "-.",
}
#: Panels that are so few have room for names at the ends of their lines.
FEW = 6
#: Inches of a panel's height, and above and below all panels.
LARGE, SMALL, ABOVE, BELOW = 3.2, 1.66, 0.85, 0.5
#: Characters of a title in a line.
TITLE = 24
#: Inches of the way to a line's name, and of the numbers beside an axis.
ARROW, NUMBERS = 0.3, 0.85


@dataclass(frozen=True)
class Panel:
    """The points of one operator, by framework and phase."""

    title: str
    lines: dict[tuple[str, str], list[Point]]
    skewed: dict[tuple[str, str], Point]

    @property
    def sizes(self) -> set[float]:
        """Return the different sizes on its lines."""
        return {x for points in self.lines.values() for x, _ in points}

    @property
    def points(self) -> list[Point]:
        """Return all points."""
        return [*(point for line in self.lines.values() for point in line), *self.skewed.values()]


def panels(rows_by_title: dict[str, list[Row]], *, own_shapes: bool) -> list[Panel]:
    """Return what there is to draw of each operator or module."""
    made = (_panel(title, rows, own_shapes) for title, rows in rows_by_title.items())
    return [panel for panel in made if panel.lines or panel.skewed]


def _panel(title: str, rows: list[Row], own_shapes: bool) -> Panel:
    lines: defaultdict[tuple[str, str], list[Point]] = defaultdict(list)
    skewed: dict[tuple[str, str], Point] = {}
    for row in sorted(rows, key=lambda row: row.elements):
        for figure in row.figures:
            if figure.time is None or row.phase not in STYLES:
                continue
            point = float(row.elements), figure.time.time
            if row.size == SKEWED and not own_shapes:
                skewed[figure.framework, row.phase] = point
            else:
                lines[figure.framework, row.phase].append(point)
    return Panel(title, dict(lines), skewed)


def height(count: int) -> float:
    """Return the inches that so many panels take."""
    rows = math.ceil(count / _columns(count))
    return rows * (LARGE if count <= FEW else SMALL) + (0 if count <= FEW else ABOVE)


def _columns(count: int) -> int:
    return min(count, 2) if count <= FEW else 6


def paint(report: Report, drawn: list[Panel], area: SubFigure) -> None:
    """Draw all panels; where there are many, a legend says what the lines are."""
    few = len(drawn) <= FEW
    columns = _columns(len(drawn))
    rows = math.ceil(len(drawn) / columns)
    inches = float(area.bbox.height) / DPI
    axes = area.subplots(rows, columns, squeeze=False).flat
    names = _room_for_names(drawn) if few else 0.2
    panel = (WIDTH - (NUMBERS + names) * columns) / columns
    area.subplots_adjust(
        left=(NUMBERS if few else 0.7) / WIDTH,
        right=1 - names / WIDTH,
        bottom=BELOW / inches,
        top=1 - (0.35 if few else ABOVE + 0.2) / inches,
        wspace=(NUMBERS + names) / panel if few else 0.42,
        hspace=0.34 if few else 0.62,
    )
    for index, axis in enumerate(axes):
        if index >= len(drawn):
            axis.set_visible(False)
            continue
        _draw(axis, report, drawn[index], few)
        if few and index % columns == 0:
            axis.set_ylabel("time of one call", fontsize=9, color=INK)
        if few and index + columns >= len(drawn):
            axis.set_xlabel("numbers in all inputs", fontsize=9, color=INK)
    if not few:
        _legend(area, report, drawn, inches)


def _room_for_names(drawn: list[Panel]) -> float:
    """Return the inches that the longest name of a line takes."""
    widths = [width_of(f"{name} {phase}") for panel in drawn for name, phase in panel.lines]
    return ARROW + max(widths, default=0.0)


def _draw(axis: Axes, report: Report, panel: Panel, few: bool) -> None:
    axis.set_xscale("log")
    axis.set_yscale("log")
    names = report.contenders
    size = 4.0 if few else 2.6
    for (name, phase), points in panel.lines.items():
        axis.plot(
            *zip(*points, strict=True),
            color=colour_of(names, name),
            linestyle=STYLES[phase],
            linewidth=1.7 if few else 1.1,
            marker=marker_of(names, name),
            markersize=size,
        )
    for (name, _), point in panel.skewed.items():
        axis.plot(
            *point,
            color=colour_of(names, name),
            linestyle="none",
            marker=marker_of(names, name),
            markersize=size + 0.6,
            markerfacecolor="white",
            markeredgewidth=0.9,
        )
    _axes(axis, panel, few)
    axis.set_title(_broken(panel.title), fontsize=10.5 if few else 8, color=INK, loc="left", pad=4)
    if few:
        ends = {f"{name} {phase}": points[-1] for (name, phase), points in panel.lines.items()}
        colours = {f"{name} {phase}": colour_of(names, name) for name, phase in panel.lines}
        name_lines(axis, ends, colours, min(0.075, 1.15 / max(len(ends), 1)))


def _axes(axis: Axes, panel: Panel, few: bool) -> None:
    """Set limits and ticks: a decade at least, so that small differences look small."""
    dress(axis, 8 if few else 6.5)
    for direction, values in (
        ("x", [x for x, _ in panel.points]),
        ("y", [y for _, y in panel.points]),
    ):
        low, high = _limits(min(values), max(values))
        getattr(axis, f"set_{direction}lim")(low, high)
        ticks = getattr(axis, f"{direction}axis")
        (counts_axis if direction == "x" else time_axis)(ticks)
        few_ticks(ticks, low, high)
    axis.minorticks_off()
    axis.grid(color=GRID, linewidth=0.6)


def _limits(least: float, most: float) -> tuple[float, float]:
    low, high = math.log10(least), math.log10(most)
    room = max(0.07 * (high - low), (1.2 - (high - low)) / 2)
    return float(10 ** (low - room)), float(10 ** (high + room))


def _legend(area: SubFigure, report: Report, drawn: list[Panel], inches: float) -> None:
    """Say once what colours, lines and markers mean."""
    shown = {key for panel in drawn for key in (*panel.lines, *panel.skewed)}
    names = report.contenders
    handles: list[Any] = [
        Line2D([], [], color=colour_of(names, name), marker=marker_of(names, name), label=name)
        for name in names
        if name in {framework for framework, _ in shown}
    ]
    handles += [
        Line2D([], [], color=INK, linestyle=STYLES[phase], label=TITLES.get(phase, phase))
        for phase in in_order(phase for _, phase in shown)
    ]
    if any(panel.skewed for panel in drawn):
        handles.append(
            Line2D(
                [],
                [],
                color=INK,
                linestyle="none",
                marker="o",
                markerfacecolor="white",
                label="skewed shape",
            )
        )
    area.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(0.08 / WIDTH, 1 - 0.02 / inches),
        ncols=len(handles),
        frameon=False,
        fontsize=8.5,
        handlelength=2.6,
        columnspacing=1.6,
    )
    area.text(
        0.24 / WIDTH,
        1 - 0.46 / inches,
        "Time of one call against the numbers in all inputs; each operator has scales of its own.",
        color=PALE,
        fontsize=8.5,
        va="center",
    )


def _broken(title: str) -> str:
    """Break a long name before its attributes, or after an underscore."""
    if len(title) <= TITLE:
        return title
    op, _, rest = title.partition(" ")
    if rest:
        return f"{op}\n{rest}"
    cut = title.rfind("_", 0, TITLE) + 1
    return f"{title[:cut]}\n{title[cut:]}" if cut else title
