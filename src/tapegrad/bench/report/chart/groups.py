"""Charts of cases as groups of dots, a line for each framework, with a panel for each phase.

The axis of times is logarithmic and has no zero, so that the length of a bar would mean nothing.
"""

from __future__ import annotations

import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import SubFigure

from tapegrad.bench.report.chart.style import (
    DPI,
    GRID,
    INK,
    PALE,
    TITLES,
    aside,
    colour_of,
    dress,
    few_ticks,
    marker_of,
    time_axis,
)
from tapegrad.bench.report.figures import Figure, Report, Row, Section
from tapegrad.bench.results import in_order
from tapegrad.bench.units import seconds

#: Inches for one dot, and around a case and a panel.
LINE = 0.19
BETWEEN = 0.14
AROUND = 1.5
#: Characters of a case's name in a line.
LABEL = 28
#: Share of a panel's width up to which times are marked: the next panel's first follows.
INNER = 0.92
#: Share of a panel's width that a number takes; where it is not left, numbers stand on the left.
NUMBER = 0.2
#: Share of the width that names take.
LEFT = 0.235


def height(section: Section) -> float:
    """Return the inches that a section takes."""
    return len(_timed(section)) * (LINE * len(section.contenders) + BETWEEN) + AROUND


def paint(report: Report, section: Section, area: SubFigure) -> None:
    """Draw a panel for each phase, with a group of dots for each case."""
    names = _timed(section)
    rows = [row for row in section.rows if row.name in names]
    phases = list(in_order(row.phase for row in rows if any(f.time for f in row.figures)))
    inches = float(area.bbox.height) / DPI
    axes = area.subplots(1, len(phases), sharey=True, squeeze=False)[0]
    area.subplots_adjust(
        left=LEFT, right=0.985, bottom=0.55 / inches, top=1 - 0.85 / inches, wspace=0.1
    )
    limits = _limits(rows)
    for axis, phase in zip(axes, phases, strict=True):
        _panel(axis, report, section, [row for row in rows if row.phase == phase], limits)
        title = "total" if section.kind != "operators" and phase == "step" else TITLES.get(phase)
        axis.set_title(title or phase, fontsize=10.5, color=INK, loc="left", pad=6)
    step = _step(section)
    places = [index * step for index in range(len(names))]
    axes[0].set_yticks(places, [_broken(name) for name in names], fontsize=8)
    axes[0].set_ylim(len(names) * step - step / 2, -step / 2)
    handles, shown = _legend(axes, section)
    area.legend(
        handles,
        shown,
        loc="upper left",
        bbox_to_anchor=(LEFT - 0.005, 1 - 0.1 / inches),
        ncols=len(shown),
        frameon=False,
        fontsize=9,
        handlelength=1.0,
        columnspacing=1.6,
    )


def _timed(section: Section) -> list[str]:
    """Return the names of cases that have a time."""
    timed = (row.name for row in section.rows if any(figure.time for figure in row.figures))
    return list(dict.fromkeys(timed))


def _step(section: Section) -> float:
    """Return the room of a case, in lines."""
    return len(section.contenders) + BETWEEN / LINE


def _legend(axes: Any, section: Section) -> tuple[list[Any], list[str]]:
    found: dict[str, Any] = {}
    for axis in axes:
        handles, names = axis.get_legend_handles_labels()
        found |= dict(zip(names, handles, strict=True))
    named = [name for name in section.contenders if name in found]
    return [found[name] for name in named], named


def _limits(rows: list[Row]) -> tuple[float, float]:
    """Return the ends of the time axis, with room for what is written beside the dots."""
    times = [figure.time.time for row in rows for figure in row.figures if figure.time]
    low = 10 ** math.floor(math.log10(min(times) * 0.7))
    return low, max(times) * (max(times) / low) ** 0.28


def _panel(
    axis: Axes, report: Report, section: Section, rows: list[Row], limits: tuple[float, float]
) -> None:
    axis.set_xscale("log")
    axis.set_xlim(*limits)
    step, middle = _step(section), (len(section.contenders) - 1) / 2
    by_name = {row.name: row.figures for row in rows}
    for index, name in enumerate(_timed(section)):
        figures = by_name.get(name, [])
        for offset, figure in enumerate(figures):
            _dot(axis, report, index * step + offset - middle, figure)
        if index:
            axis.axhline(index * step - step / 2, color=GRID, linewidth=0.7, zorder=0)
        if not figures:
            aside(axis, limits[0], index * step, "no such phase", PALE)
    dress(axis)
    time_axis(axis.xaxis)
    few_ticks(axis.xaxis, limits[0], limits[0] * (limits[1] / limits[0]) ** INNER)
    axis.grid(axis="x", color=GRID, linewidth=0.7)
    axis.tick_params(axis="y", length=0)


def _dot(axis: Axes, report: Report, position: float, figure: Figure) -> None:
    """Draw a dot with its time, or write the word that stands in place of it."""
    low = axis.get_xlim()[0]
    colour = colour_of(report.contenders, figure.framework)
    if figure.time is None:
        aside(axis, low, position, f"{figure.framework}: {figure.verdict}", colour)
        return
    time = figure.time.time
    axis.plot(
        time,
        position,
        color=colour,
        marker=marker_of(report.contenders, figure.framework),
        markersize=6,
        linestyle="none",
        label=figure.framework,
        zorder=2,
    )
    start = end = time
    if figure.time.low is not None and figure.time.high is not None:
        start, end = figure.time.low, min(figure.time.high, axis.get_xlim()[1])
        axis.hlines(position, start, end, color=INK, linewidth=1.0, alpha=0.75, zorder=3)
    left = _share(axis, end) > 1 - NUMBER and _share(axis, start) > NUMBER
    aside(axis, min(start, time) if left else max(end, time), position, seconds(time), INK, left)


def _share(axis: Axes, time: float) -> float:
    """Return where a time lies between the ends of a panel."""
    low, high = axis.get_xlim()
    return math.log(time / low) / math.log(high / low)


def _broken(label: str) -> str:
    """Break a long label into lines."""
    lines: list[str] = []
    for word in label.split():
        if lines and len(lines[-1]) + len(word) < LABEL:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return "\n".join(lines)
