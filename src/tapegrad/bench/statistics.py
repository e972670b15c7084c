"""From blocks to answers: times, ratios with intervals, verdicts and their error rates.

1. The unit is the block, never the sample: samples of one visit share that moment's machine and
   are no independent evidence. A block's value is the logarithm of its samples' median.
2. Blocks of two frameworks in one run are paired by process and round, because they were measured
   at the same moment: what the machine did then cancels in the difference.
3. A disturbed block (another program ran) must not decide. Within each process blocks are pulled
   in to 2.5 robust standard deviations of that process's median; then means are safe.
4. The level is the mean over processes of the mean over their blocks. Its variance is that of the
   bootstrap that draws processes, then blocks in them. For a mean that bootstrap has a closed form,
   between * (P - 1) / P + within, so nothing is drawn and there is no seed.
5. With 3 processes that is too narrow: the part between processes is scaled by P / (P - 1), and
   the quantile is Student's t with Satterthwaite's degrees of freedom of both parts. What
   remains is shown on invented measurements (tests/bench/simulation.py).
6. Two runs have no common moments. Their control kernels tell a slow machine from a slow operator,
   but not how much of it the operator feels: nothing, or as much as any of the kernels. Beside a
   busy neighbour on the same core the interpreter's loop takes 1.47 times as long, a copy 1.10 and
   a product of matrices 1.09, and operators anything between. So with `controls` the interval spans
   all answers, as measured and divided by each of the controls, and a claim must hold for every
   one. Their geometric mean in place of each gave 11 % false alarms between 21 runs of equals on
   such a machine, each of them 2.5 % in the same runs. Division only where it lowers the variance
   between blocks looks better and is not: a machine that is 10 % slower for the whole run then
   gives 85 % false alarms (5 processes, 5 rounds), because a slowness that is constant within a
   run leaves no variance behind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from statistics import median
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tapegrad.bench.results import Block
from tapegrad.errors import OptionError

Verdict = Literal["faster", "slower", "same", "undecided"]
Values = NDArray[np.float64]

#: Blocks farther from their process's median than so many standard deviations are pulled in.
FAR = 2.5
#: Relative noise below which no clock measures: with less, nothing is far.
RESOLUTION = 1e-6
#: Relative standard deviation between processes, assumed where one process shows none.
ASSUMED = 0.02
#: Processes from which on a scatter between them can be told, on either side. Two leave Student's t
#: one degree of freedom, and its 12.7 standard errors hide anything: on invented measurements of a
#: busy machine (processes apart by 60 %) an operator that takes 47 times as long is `undecided` in
#: 40 % of the comparisons. A single process shows no scatter at all; to assume one gives 20 % false
#: alarms there. Three see the 47 times in 99 % with 3 % false alarms. No rule can do better with
#: two that does not know beforehand how busy the machine is: where both runs are alike, the mean of
#: two processes is 12.7 times as far from 0 as their distance tells in 5 % of all cases.
FEWEST = 3


class Estimate(msgspec.Struct, frozen=True):
    """The time of one cell in seconds a unit. A single block has no interval."""

    time: float
    low: float | None
    high: float | None
    #: Standard deviation between blocks, robust and relative.
    spread: float
    processes: int
    blocks: int
    samples: int


class Ratio(msgspec.Struct, frozen=True):
    """How many times as long theirs takes as ours. A single block has no interval and no p."""

    value: float
    low: float | None
    high: float | None
    #: Two-sided p-value for a ratio other than 1.
    p: float | None
    #: What theirs is, compared with ours.
    verdict: Verdict
    #: Processes and blocks (pairs) behind it; unpaired, those of the side that has fewer.
    processes: int
    blocks: int
    paired: bool
    #: Whether the value is divided by that of a control kernel.
    normalised: bool = False
    #: The ratio of the control kernels: how much slower the machine was; None where not asked for.
    machine: float | None = None


class _Level(NamedTuple):
    """A mean of logarithms and what its variance consists of: (variance, degrees of freedom).

    No parts: the variance is unknown.
    """

    mean: float
    parts: list[tuple[float, float]]

    def minus(self, other: _Level) -> _Level:
        known = self.parts and other.parts
        return _Level(self.mean - other.mean, self.parts + other.parts if known else [])

    @property
    def variance(self) -> float:
        return sum(variance for variance, _ in self.parts)


class _Interval(NamedTuple):
    low: float
    high: float
    p: float


def estimate(blocks: Iterable[Block], level: float = 0.95) -> Estimate:
    """Estimate the time of one cell from its blocks.

    Example:
        >>> from tapegrad.bench.results import Block
        >>> blocks = [Block("add", "numpy", "forward", 0, r, [2e-6, 1e-6, 3e-6]) for r in range(3)]
        >>> f"{estimate(blocks).time:.1e}"
        '2.0e-06'

    """
    cell = _one_cell(blocks)
    _check_fraction("level", level)
    processes = _by_process((block.process, _log_median(block)) for block in cell)
    centre = _level(processes)
    interval = _interval(centre, level)
    return Estimate(
        time=_exp(centre.mean),
        low=None if interval is None else _exp(interval.low),
        high=None if interval is None else _exp(interval.high),
        spread=float(stats.median_abs_deviation(np.concatenate(processes), scale="normal")),
        processes=len(processes),
        blocks=len(cell),
        samples=sum(len(block.samples) for block in cell),
    )


def pulled_in(blocks: Iterable[Block]) -> int:
    """Count the blocks of a cell that lie so far from the others that they count for less."""
    processes = _by_process((block.process, _log_median(block)) for block in _one_cell(blocks))
    pairs = zip(processes, _pull_in(processes), strict=True)
    return sum(int(np.sum(values != tame)) for values, tame in pairs)


def ratio(
    theirs: Iterable[Block],
    ours: Iterable[Block],
    *,
    paired: bool = True,
    controls: bool = False,
    level: float = 0.95,
    margin: float = 0.03,
) -> Ratio:
    """Compare two cells: how many times as long theirs takes as ours, and whether that is sure.

    Args:
        theirs: The blocks of one cell.
        ours: The blocks of the other.
        paired: Compare blocks of one process and round with each other, for cells of one run;
            where no two share these, the cells are compared as a whole.
        controls: Take the control kernels into account, for cells of two runs (paired=False).
        level: The confidence level of the interval.
        margin: Ratios from 1 / (1 + margin) to 1 + margin make no difference in practice.

    The verdict is `same` if the whole interval lies within the margin; `slower` or `faster` if the
    interval excludes 1 and the value lies outside the margin; otherwise `undecided`. So a claim of
    a difference is wrong in at most 1 - level of the comparisons of equals, and one of sameness in
    at most (1 - level) / 2 of the comparisons of those that differ by more than the margin.
    That is for pairs, and for two runs with controls. Two runs without are compared as if the
    machine had been the same: where it drifts by 5 %, 43 % of the comparisons of equals alarm.

    Example:
        >>> from tapegrad.bench.results import Block
        >>> def cell(name, *seconds):
        ...     moments = [(i % 3, i // 3) for i in range(len(seconds))]
        ...     return [Block("add", name, "forward", *m, [s]) for m, s in zip(moments, seconds)]
        >>> a = cell("a", 2.0, 2.1, 2.2, 2.0, 2.1, 2.1)
        >>> b = cell("b", 1.0, 1.1, 1.0, 1.0, 1.0, 1.1)
        >>> found = ratio(a, b)
        >>> round(found.value, 2), found.verdict
        (2.02, 'slower')

    """
    _check_fraction("level", level)
    if not (math.isfinite(margin) and margin >= 0):
        raise OptionError(f"ratio: expected a margin of at least 0, got {margin}")
    if paired and controls:
        raise OptionError("ratio: controls are for paired=False; pairs cancel the machine already")
    sides = _one_cell(theirs), _one_cell(ours)
    pairs = _pairs(*sides) if paired else []
    if pairs:
        return _paired_ratio(pairs, level, margin)
    return _unpaired_ratio(*sides, controls, level, margin)


def discoveries(p_values: Iterable[float | None], rate: float = 0.05) -> list[bool]:
    """Tell which of many comparisons hold if at most `rate` of those told may be false.

    Benjamini and Hochberg's procedure. None, a comparison without a p-value, is never one and
    does not count.

    Example:
        >>> discoveries([0.001, 0.04, 0.8, None])
        [True, False, False, False]

    """
    _check_fraction("rate", rate)
    given = list(p_values)
    known = np.array([p for p in given if p is not None], dtype=np.float64)
    if not np.all((known >= 0) & (known <= 1)):
        raise OptionError("discoveries: expected p-values from 0 to 1")
    adjusted = iter(stats.false_discovery_control(known) if known.size else known)
    return [p is not None and bool(next(adjusted) <= rate) for p in given]


def _paired_ratio(pairs: list[tuple[Block, Block]], level: float, margin: float) -> Ratio:
    processes = _by_process((a.process, _log_median(a) - _log_median(b)) for a, b in pairs)
    difference = _level(processes, sides=2)
    interval = _interval(difference, level)
    return _ratio_of(difference, interval, [a for a, _ in pairs], margin, paired=True)


def _unpaired_ratio(
    theirs: list[Block], ours: list[Block], controls: bool, level: float, margin: float
) -> Ratio:
    def difference(value: Callable[[Block], float]) -> _Level:
        levels = [_level(_by_process((b.process, value(b)) for b in s)) for s in (theirs, ours)]
        return levels[0].minus(levels[1])

    fewer = min(theirs, ours, key=lambda side: (len({b.process for b in side}), len(side)))
    measured = difference(_log_median)
    interval = _interval(measured, level)
    names = _shared_controls(theirs + ours) if controls else []
    if not names or interval is None:
        return _ratio_of(measured, interval, fewer, margin)
    divided = [difference(partial(_log_beside, control=name)) for name in names]
    for each in divided:
        interval = _span(interval, _interval(each, level))
    chosen = min((measured, *divided), key=lambda found: found.variance)
    return _ratio_of(
        chosen,
        interval,
        fewer,
        margin,
        normalised=chosen is not measured,
        machine=_exp(difference(lambda block: _log_controls(block, names)).mean),
    )


def _ratio_of(
    difference: _Level,
    interval: _Interval | None,
    blocks: list[Block],
    margin: float,
    *,
    paired: bool = False,
    normalised: bool = False,
    machine: float | None = None,
) -> Ratio:
    return Ratio(
        value=_exp(difference.mean),
        low=None if interval is None else _exp(interval.low),
        high=None if interval is None else _exp(interval.high),
        p=None if interval is None else interval.p,
        verdict=_verdict(difference.mean, interval, math.log1p(margin)),
        processes=len({block.process for block in blocks}),
        blocks=len(blocks),
        paired=paired,
        normalised=normalised,
        machine=machine,
    )


def _verdict(difference: float, interval: _Interval | None, margin: float) -> Verdict:
    if interval is None:
        return "undecided"
    if -margin <= interval.low and interval.high <= margin:
        return "same"
    if interval.low > 0 and difference > margin:
        return "slower"
    if interval.high < 0 and difference < -margin:
        return "faster"
    return "undecided"


def _level(processes: list[Values], sides: int = 1) -> _Level:
    """Average over processes, outliers pulled in; `sides` are the processes behind each."""
    if _count(processes) == 1:
        return _Level(float(processes[0][0]), [])
    tame = _pull_in(processes)
    means = np.array([np.mean(values) for values in tame])
    n, blocks = len(tame), _count(tame)
    within = float(np.mean([np.var(values) / values.size for values in tame])) / n
    if n == 1:
        error_of_mean = within * blocks / (blocks - 1)
        return _Level(
            float(means[0]), [(error_of_mean, blocks - 1), (sides * ASSUMED**2, math.inf)]
        )
    parts = [(float(np.var(means, ddof=1)) / n, n - 1.0)]
    if blocks > n:
        parts.append((within, float(blocks - n)))
    return _Level(float(np.mean(means)), parts)


def _pull_in(processes: list[Values]) -> list[Values]:
    """Clip every block to `FAR` standard deviations from the median of its process."""
    medians = [float(np.median(values)) for values in processes]
    away = np.concatenate([v - m for v, m in zip(processes, medians, strict=True)])
    spare = away.size - len(processes)
    if not spare:
        return processes
    # A median per process was fitted to the deviations, which are smaller by that.
    deviation = 1.4826 * float(np.median(np.abs(away))) * math.sqrt(away.size / spare)
    if deviation < RESOLUTION:
        return processes
    reach = FAR * deviation
    return [np.clip(v, m - reach, m + reach) for v, m in zip(processes, medians, strict=True)]


def _interval(level: _Level, confidence: float) -> _Interval | None:
    """Return the interval of a level and its p-value against 0, if there is more than a block."""
    if not level.parts:
        return None
    variance = level.variance
    if variance == 0:
        return _Interval(level.mean, level.mean, float(level.mean == 0))
    uncertainty = sum(v**2 / f for v, f in level.parts)
    freedom = variance**2 / uncertainty if uncertainty else math.inf
    error = math.sqrt(variance)
    reach = error * float(stats.t.ppf((1 + confidence) / 2, freedom))
    p = 2 * float(stats.t.sf(abs(level.mean) / error, freedom))
    return _Interval(level.mean - reach, level.mean + reach, p)


def _span(one: _Interval, other: _Interval | None) -> _Interval:
    """Return the interval that holds both, with the weaker p-value."""
    if other is None:
        return one
    return _Interval(min(one.low, other.low), max(one.high, other.high), max(one.p, other.p))


def _one_cell(blocks: Iterable[Block]) -> list[Block]:
    """Return the blocks in order, if they are those of one cell."""
    cell = sorted(blocks, key=lambda block: (block.process, block.round))
    if not cell:
        raise OptionError("statistics: expected at least one block, got none")
    if len({block.key for block in cell}) > 1:
        raise OptionError("statistics: expected the blocks of one case, framework and phase")
    if len({(block.process, block.round) for block in cell}) < len(cell):
        raise OptionError("statistics: expected one block for each process and round, got several")
    for block in cell:
        if not block.samples or not all(0 < sample < math.inf for sample in block.samples):
            raise OptionError(
                "statistics: expected samples that are positive finite numbers of seconds, got "
                f"{block.samples} in process {block.process}, round {block.round}"
            )
    return cell


def _pairs(theirs: list[Block], ours: list[Block]) -> list[tuple[Block, Block]]:
    """Pair the blocks of one process and round; drop those that have no partner."""
    partners = {(block.process, block.round): block for block in ours}
    found = ((block, partners.get((block.process, block.round))) for block in theirs)
    return [(block, partner) for block, partner in found if partner is not None]


def _by_process(values: Iterable[tuple[int, float]]) -> list[Values]:
    """Collect (process, value) into an array for each process."""
    processes: dict[int, list[float]] = {}
    for process, value in values:
        processes.setdefault(process, []).append(value)
    return [np.array(values) for values in processes.values()]


def _count(processes: list[Values]) -> int:
    return sum(values.size for values in processes)


def _log_median(block: Block) -> float:
    return math.log(median(block.samples))


def _log_beside(block: Block, control: str) -> float:
    """Return the logarithm of a block's time in units of a control kernel's."""
    return _log_median(block) - math.log(block.controls[control])


def _log_controls(block: Block, names: list[str]) -> float:
    """Return the logarithm of the control kernels' geometric mean."""
    return math.fsum(math.log(block.controls[name]) for name in names) / len(names)


def _shared_controls(blocks: list[Block]) -> list[str]:
    """Return the names of the controls that every block has a time of."""
    shared = set.intersection(*(set(block.controls) for block in blocks))
    return sorted(n for n in shared if all(0 < b.controls[n] < math.inf for b in blocks))


def _exp(logarithm: float) -> float:
    try:
        return math.exp(logarithm)
    except OverflowError:
        return math.inf


def _check_fraction(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise OptionError(f"statistics: expected {name} between 0 and 1, got {value}")
