"""A profile as one PNG: bars of the step's time, forward and backward, with alone beside it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from tapegrad.bench.errors import OutputError
from tapegrad.bench.profile.page import STEPS, places, shapes
from tapegrad.bench.profile.results import Profile, Row
from tapegrad.bench.report.chart.style import COLOURS, DPI, GRID, INK, PALE, aside, dress
from tapegrad.bench.units import seconds

FORWARD, BACKWARD = COLOURS[0], COLOURS[1]
REST = "#c9c9c9"
WIDTH = 11.0
#: Inches of a bar, and around the bars of a panel.
BAR, AROUND, HEAD = 0.36, 0.75, 0.95
#: Smaller shares are drawn together.
SMALLEST = 0.005
#: Characters in a line of a label.
LABEL = 46


class _Bar(NamedTuple):
    label: str
    shapes: str
    forward: float
    backward: float
    rest: float = 0.0
    alone: float | None = None

    @property
    def whole(self) -> float:
        return self.forward + self.backward + self.rest


def draw(profile: Profile, path: str | Path, top: int = 20) -> None:
    """Draw a profile to a PNG file."""
    panels = (
        ("by operator", _by_operator(profile)),
        ("by shape and place", _by_place(profile, top)),
    )
    heights = [BAR * len(bars) + AROUND for _, bars in panels]
    height = sum(heights) + HEAD
    canvas = Figure(figsize=(WIDTH, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(canvas)
    _head(canvas, profile, height)
    most = max(bar.whole for _, bars in panels for bar in bars)
    top_edge = height - HEAD
    for (title, bars), room in zip(panels, heights, strict=True):
        axis = canvas.add_axes(
            (0.34, (top_edge - room + 0.35) / height, 0.62, (room - AROUND) / height)
        )
        _panel(axis, bars, title, most)
        top_edge -= room
    try:
        canvas.savefig(path, facecolor="white")
    except OSError as error:
        raise OutputError(path, error) from None


def _head(canvas: Figure, profile: Profile, height: float) -> None:
    title = f"{profile.model}: {STEPS[profile.phase]}, {seconds(profile.step.time)}"
    canvas.text(0.02, 1 - 0.25 / height, title, color=INK, fontsize=13, fontweight="bold")
    facts = (
        f"{profile.framework}, {profile.device}, {profile.threads} thread"
        f"{'s' * (profile.threads > 1)}; {profile.machine.name}; "
        f"with the profiler a step takes {profile.inflation.value:.2f}×"
    )
    canvas.text(0.02, 1 - 0.47 / height, facts, color=PALE, fontsize=8.5)
    place = 0.02
    for colour, name in ((FORWARD, "forward"), (BACKWARD, "backward"), (REST, "no operator")):
        canvas.text(place, 1 - 0.75 / height, "■", color=colour, fontsize=11)
        canvas.text(place + 0.018, 1 - 0.75 / height, name, color=INK, fontsize=9)
        place += 0.1
    canvas.text(place, 1 - 0.75 / height, "┃", color=INK, fontsize=9)
    canvas.text(place + 0.012, 1 - 0.75 / height, "the same calls alone", color=INK, fontsize=9)


def _by_operator(profile: Profile) -> list[_Bar]:
    step = profile.step.time
    large = [group for group in profile.groups if group.share >= SMALLEST]
    small = [group for group in profile.groups if group.share < SMALLEST]
    bars = [
        _Bar(
            group.operator,
            "",
            group.forward / step,
            group.backward / step,
            alone=group.share / group.ratio.value if group.ratio else None,
        )
        for group in large
    ]
    if small:
        forward, backward = (
            sum(getattr(group, name) for group in small) / step for name in ("forward", "backward")
        )
        bars.append(_Bar(f"{len(small)} others", "", forward, backward))
    return [*bars, _Bar("residual", "", 0.0, 0.0, max(0.0, profile.residual_share))]


def _by_place(profile: Profile, top: int) -> list[_Bar]:
    rows = [row for row in profile.top(top) if row.share >= SMALLEST]
    return [_row_bar(row, profile.step.time) for row in rows]


def _row_bar(row: Row, step: float) -> _Bar:
    calls = f" ×{row.calls}" if row.calls > 1 else ""
    where = places(row)
    passes = [each.time if each else 0.0 for each in (row.forward, row.backward)]
    forward, backward = (row.share * each / sum(passes) for each in passes)
    return _Bar(
        f"{row.operator or row.name}{calls}" + (f"  {where}" if where else ""),
        shapes(row),
        forward,
        backward,
        alone=row.alone.time / step if row.alone else None,
    )


def _panel(axis: Axes, bars: Sequence[_Bar], title: str, most: float) -> None:
    for place, bar in enumerate(bars):
        left = 0.0
        for value, colour in ((bar.forward, FORWARD), (bar.backward, BACKWARD), (bar.rest, REST)):
            axis.barh(place, value, left=left, height=0.66, color=colour, zorder=2)
            left += value
        end = left
        if bar.alone is not None:
            axis.vlines(bar.alone, place - 0.4, place + 0.4, color=INK, linewidth=1.6, zorder=3)
            end = max(end, bar.alone)
        aside(axis, end, place, f"{bar.whole:.1%}", INK)
        _name(axis, place, bar)
    axis.set_yticks([])
    axis.set_ylim(len(bars) - 0.4, -0.6)
    axis.set_xlim(0, most * 1.12)
    axis.set_title(title, fontsize=10.5, color=INK, loc="left", pad=6)
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
    axis.grid(axis="x", color=GRID, linewidth=0.7)
    dress(axis)
    axis.spines["bottom"].set_visible(False)


def _name(axis: Axes, place: int, bar: _Bar) -> None:
    """Write what a bar is at its left, and its shapes below that."""
    for text, offset, colour, size in (
        (bar.label, 0.0 if not bar.shapes else 5.5, INK, 8.5),
        (bar.shapes, -5.5, PALE, 7.0),
    ):
        axis.annotate(
            textwrap.shorten(text, LABEL if size > 8 else LABEL + 10, placeholder=" …"),
            (0, place),
            xytext=(-6, offset),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=size,
            color=colour,
            annotation_clip=False,
        )
