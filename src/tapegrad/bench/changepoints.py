"""When an operator's nightly times changed: steps in a series that has noise and outlier nights.

1. A night's value is the logarithm of the median of its blocks. The series is cut into segments
   of constant level such that the sum of absolute deviations from the segments' medians plus a
   penalty for each cut is least, found exactly by dynamic programming.
2. The penalty is `PENALTY` * log(nights) * the mean absolute deviation of the noise, a BIC of
   Laplace noise; the noise is estimated from differences of successive nights, which steps do
   not disturb. 3 gives 1 to 3 % of constant series a cut (30 to 100 nights), 2 gives 7 to 11 %.
3. Absolute deviations and at least `SHORTEST` nights a segment: one outlier night is no segment.
   A step is thus seen after 3 nights at the earliest; `statistics.ratio` sees it the first night.
4. The p-value of a change is Mann and Whitney's for the nights before and after, times the number
   of places where the cut could have been.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy import stats

from tapegrad.errors import OptionError

#: See 2.
PENALTY = 3.0
#: Nights that a level must last.
SHORTEST = 3
#: Nights looked back on; the time to search grows with the cube.
RECENT = 250
#: Relative noise below which nights are taken as equal.
RESOLUTION = 1e-3


Values = NDArray[np.float64]


class Night(NamedTuple):
    """The block values in seconds of one operator in one night, or at one commit."""

    label: str
    values: Sequence[float]


class Segment(NamedTuple):
    """Nights start to stop - 1 of a series, at one level in seconds."""

    start: int
    stop: int
    level: float


class Change(msgspec.Struct, frozen=True):
    """A step in a series."""

    #: The first night at the new level: its place in the series and its label.
    index: int
    label: str
    #: Levels in seconds, and after / before.
    before: float
    after: float
    ratio: float
    p: float


def segments(nights: Iterable[Night]) -> list[Segment]:
    """Cut a series into segments of constant level. Only the last `RECENT` nights are searched.

    Example:
        >>> series = [Night(str(i), [1.0 if i < 5 else 2.0]) for i in range(10)]
        >>> segments(series)
        [Segment(start=0, stop=5, level=1.0), Segment(start=5, stop=10, level=2.0)]

    """
    values = _log_medians(nights)
    first = max(0, values.size - RECENT)
    recent = values[first:]
    cuts = _best_cuts(_deviations(recent), _penalty(recent))
    return [
        Segment(first + a, first + b, math.exp(np.median(recent[a:b]))) for a, b in pairwise(cuts)
    ]


def changes(nights: Iterable[Night]) -> list[Change]:
    """Return every step of a series in order of time."""
    series = list(nights)
    values = _log_medians(series)
    found = segments(series)
    return [_change(series, values, before, after) for before, after in pairwise(found)]


def latest_change(
    nights: Iterable[Night], margin: float = 0.03, level: float = 0.05
) -> Change | None:
    """Return the last step that is larger than the margin and sure, if there is one.

    Example:
        >>> series = [Night(f"c{i}", [(1.0 if i < 12 else 1.2) + i % 3 / 100]) for i in range(20)]
        >>> found = latest_change(series)
        >>> found.label, round(found.ratio, 2)
        ('c12', 1.2)

    """
    least = math.log1p(margin)
    sure = [c for c in changes(nights) if abs(math.log(c.ratio)) > least and c.p <= level]
    return sure[-1] if sure else None


def _change(series: list[Night], values: Values, before: Segment, after: Segment) -> Change:
    sides = values[before.start : before.stop], values[after.start : after.stop]
    places = after.stop - before.start - 2 * SHORTEST + 1
    return Change(
        index=after.start,
        label=series[after.start].label,
        before=before.level,
        after=after.level,
        ratio=after.level / before.level,
        p=min(1.0, places * float(stats.mannwhitneyu(*sides).pvalue)),
    )


def _log_medians(nights: Iterable[Night]) -> Values:
    medians = []
    for label, values in nights:
        if not len(values) or not all(0 < value < math.inf for value in values):
            raise OptionError(
                "changepoints: expected positive finite numbers of seconds for every night, got "
                f"{list(values)} for {label!r}"
            )
        medians.append(np.median(values))
    if not medians:
        raise OptionError("changepoints: expected at least one night, got none")
    return np.log(np.array(medians))


def _penalty(values: Values) -> float:
    """Return what a cut must gain."""
    steps = np.abs(np.diff(values))
    noise = 1.4826 * float(np.median(steps)) / math.sqrt(2) if steps.size else 0.0
    mean_deviation = max(noise, RESOLUTION) * math.sqrt(2 / math.pi)
    return PENALTY * mean_deviation * math.log(values.size)


def _deviations(values: Values) -> Values:
    """Return the sum of deviations from the median of values[start:stop] at [start, stop]."""
    n = values.size
    table = np.full((n + 1, n + 1), np.inf)
    for length in range(min(SHORTEST, n), n + 1):
        windows = sliding_window_view(values, length)
        medians = np.median(windows, axis=1, keepdims=True)
        starts = np.arange(n - length + 1)
        table[starts, starts + length] = np.abs(windows - medians).sum(axis=1)
    return table


def _best_cuts(deviations: Values, penalty: float) -> list[int]:
    """Return where the cheapest segmentation begins, is cut and ends."""
    n = len(deviations) - 1
    cost = np.full(n + 1, np.inf)
    cost[0] = 0.0
    last = np.zeros(n + 1, dtype=np.intp)
    for stop in range(1, n + 1):
        totals = cost[:stop] + deviations[:stop, stop] + penalty
        last[stop] = int(np.argmin(totals))
        cost[stop] = totals[last[stop]]
    cuts = [n]
    while cuts[-1]:
        cuts.append(int(last[cuts[-1]]))
    return cuts[::-1]
