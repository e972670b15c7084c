"""Charts of many cases: a line for each, with a dot for each framework, and a panel for each phase.

Groups take as much room as there are frameworks; these take one line a case.
"""

from __future__ import annotations

import math
import textwrap

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
    colour_of,
    dress,
    marker_of,
    time_axis,
)
from tapegrad.bench.report.figures import Report, Row, Section
from tapegrad.bench.results import in_order

#: Inches of a case, above and below all of them, and beside them for names.
LINE, ABOVE, BELOW, NAMES = 0.17, 0.75, 0.4, 4.4
#: Characters of a name.
LABEL = 80


def height(section: Section) -> float:
    """Return the inches that a section takes."""
    return LINE * len(_names(section)) + ABOVE + BELOW


def paint(report: Report, section: Section, area: SubFigure) -> None:
    """Draw a panel for each phase."""
    names = _names(section)
    phases = list(in_order(row.phase for row in section.rows if any(f.time for f in row.figures)))
    inches = float(area.bbox.height) / DPI
    axes = area.subplots(1, len(phases), sharey=True, squeeze=False)[0]
    area.subplots_adjust(
        left=NAMES / WIDTH,
        right=1 - 0.2 / WIDTH,
        bottom=BELOW / inches,
        top=1 - ABOVE / inches,
        wspace=0.08,
    )
    limits = _limits(section.rows)
    for axis, phase in zip(axes, phases, strict=True):
        axis.set_xscale("log")
        axis.set_xlim(*limits)
        rows = [row for row in section.rows if row.phase == phase]
        absent = _absent(rows)
        for row in rows:
            _line(axis, report, row, names.index(row.name), absent)
        dress(axis)
        time_axis(axis.xaxis, most=8)
        axis.grid(axis="x", color=GRID, linewidth=0.7)
        axis.tick_params(axis="y", length=0)
        without = f", without {', '.join(absent)}" if absent else ""
        title = TITLES.get(phase, phase) + without
        axis.set_title(title, fontsize=10.5, color=INK, loc="left", pad=6)
    labels = [textwrap.shorten(name, LABEL, placeholder=" …") for name in names]
    axes[0].set_yticks(range(len(names)), labels, fontsize=6.5)
    axes[0].set_ylim(len(names) - 0.4, -0.6)
    legend(area, report, section.contenders, (NAMES - 0.15) / WIDTH, 1 - 0.05 / inches)


def _names(section: Section) -> list[str]:
    return list(dict.fromkeys(row.name for row in section.rows))


def _absent(rows: list[Row]) -> list[str]:
    """Return who has no time in any of the rows."""
    present = {each.framework for row in rows for each in row.figures if each.time}
    everybody = dict.fromkeys(each.framework for row in rows for each in row.figures)
    return [name for name in everybody if name not in present]


def _limits(rows: list[Row]) -> tuple[float, float]:
    times = [figure.time.time for row in rows for figure in row.figures if figure.time]
    low, high = math.log10(min(times)), math.log10(max(times))
    room = 0.04 * (high - low) + 0.05
    return float(10 ** (low - room)), float(10 ** (high + room))


def _line(axis: Axes, report: Report, row: Row, position: int, absent: list[str]) -> None:
    """Draw the dots of a case, and write who has none and why, unless it is absent throughout."""
    times = {each.framework: each.time.time for each in row.figures if each.time}
    if times:
        ends = min(times.values()), max(times.values())
        axis.hlines(position, *ends, color=GRID, linewidth=2.2, zorder=1)
    for name, time in times.items():
        axis.plot(
            time,
            position,
            color=colour_of(report.contenders, name),
            marker=marker_of(report.contenders, name),
            markersize=4.2,
            linestyle="none",
            zorder=2,
        )
    missing = [
        f"{each.framework} {each.verdict}"
        for each in row.figures
        if each.time is None and each.framework not in absent
    ]
    if missing:
        at_left = _freer_at_left(axis, list(times.values()))
        axis.annotate(
            ", ".join(missing),
            (0.01 if at_left else 0.99, position),
            xycoords=("axes fraction", "data"),
            ha="left" if at_left else "right",
            va="center",
            fontsize=6,
            color=PALE,
        )


def _freer_at_left(axis: Axes, times: list[float]) -> bool:
    """Whether there is more room at the left of the dots than at their right."""
    low, high = axis.get_xlim()
    return not times or min(times) / low > high / max(times)


def legend(area: SubFigure, report: Report, names: list[str], x: float, y: float) -> None:
    """Say at a place which dots are whose."""
    handles = [
        Line2D(
            [],
            [],
            color=colour_of(report.contenders, name),
            marker=marker_of(report.contenders, name),
            linestyle="none",
            label=name,
        )
        for name in names
    ]
    area.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(x, y),
        ncols=len(names),
        frameon=False,
        fontsize=9,
        handletextpad=0.2,
        columnspacing=1.6,
    )
