"""How all charts look."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.textpath import TextPath
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

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
#: Inches from an axis to the names of its lines.
BESIDE = 0.16
#: Size of these names in points, of which an inch has so many.
NAMES, POINTS = 8, 72
TITLES = {"forward": "forward (training)", "step": "step (forward and backward)"}

Point = tuple[float, float]


def colour_of(names: Sequence[str], name: str) -> str:
    """Return the colour of a contender, the same in all panels."""
    return COLOURS[names.index(name) % len(COLOURS)]


def marker_of(names: Sequence[str], name: str) -> str:
    """Return the marker of a contender."""
    return MARKERS[names.index(name) % len(MARKERS)]


def dress(axis: Axes, labels: float = 8) -> None:
    """Take away what says nothing."""
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axis.spines[side].set_color(PALE)
    axis.tick_params(colors=INK, labelsize=labels, which="both", color=PALE)
    axis.set_axisbelow(True)


def time_axis(axis: Any, most: int = 30) -> None:
    """Write times along an axis (axis.xaxis or axis.yaxis)."""
    axis.set_major_locator(LogLocator(numticks=most))
    axis.set_major_formatter(FuncFormatter(_time))
    axis.set_minor_formatter(NullFormatter())


def few_ticks(axis: Any, low: float, high: float) -> None:
    """Mark powers of ten between two numbers; where there are fewer than two, also 2 and 5."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    powers = [10.0**exponent for exponent in exponents if low <= 10.0**exponent <= high]
    finer = [digit * 10.0**exponent for exponent in exponents for digit in (1, 2, 5)]
    among = [tick for tick in finer if low <= tick <= high]
    ticks = powers[:: 1 + len(powers) // 5] if len(powers) > 1 else among
    axis.set_major_locator(FixedLocator(ticks))


def counts_axis(axis: Any) -> None:
    """Write large numbers along an axis in short."""
    axis.set_major_formatter(FuncFormatter(_count))
    axis.set_minor_formatter(NullFormatter())


def aside(  # noqa: PLR0917  what is written, where and how
    axis: Axes, x: float, y: float, text: str, colour: str, left: bool = False
) -> None:
    """Write a word beside a place, on the right or on the left."""
    axis.annotate(
        text,
        (x, y),
        xytext=(-4 if left else 4, 0),
        textcoords="offset points",
        ha="right" if left else "left",
        va="center",
        fontsize=7,
        color=colour,
        annotation_clip=False,
    )


def width_of(name: str) -> float:
    """Return the inches that the name of a line takes."""
    return float(TextPath((0, 0), name, size=NAMES).get_extents().width) / POINTS


def name_lines(
    axis: Axes, ends: Mapping[str, Point], colours: Mapping[str, str], gap: float
) -> None:
    """Write names at the right, in the order of the lines' ends and clear of each other."""
    names = sorted(ends, key=lambda name: ends[name][1])
    beside = 1 + BESIDE * DPI / axis.bbox.width
    low, high = (math.log10(limit) for limit in axis.get_ylim())
    wanted = [(math.log10(ends[name][1]) - low) / (high - low) for name in names]
    for name, place in zip(names, spread_out(wanted, gap), strict=True):
        axis.annotate(
            name,
            ends[name],
            xytext=(beside, place),
            textcoords="axes fraction",
            va="center",
            fontsize=NAMES,
            color=colours[name],
            arrowprops={
                "arrowstyle": "-",
                "relpos": (0.0, 0.5),  # to where the name begins, not through others to its middle
                "color": colours[name],
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


def _time(value: float, _: object) -> str:
    return seconds(value).replace(".00", "").replace(".0", "")


def _count(value: float, _: object) -> str:
    for scale, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= scale:
            return f"{value / scale:g}{unit}"
    return f"{value:g}"
