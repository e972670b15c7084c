"""How figures are written."""

from __future__ import annotations

from tapegrad.bench.report.figures import Figure, Mean
from tapegrad.bench.report.table import REFERENCE, Entry
from tapegrad.bench.statistics import Estimate, Ratio
from tapegrad.bench.units import number, seconds

#: Right by one witness only.
UNCONFIRMED = "†"
NO_RATIO = "no ratio"
#: Percent above which an interval says no more than that it is wide.
WIDE = 1000


def spread(value: float, low: float | None, high: float | None) -> str:
    """Write an interval as what its ends differ by from the value, as a factor."""
    if low is None or high is None or low <= 0 or value <= 0:
        return "±?"
    percent = 100 * (max(high / value, value / low) - 1)
    if percent > WIDE:
        return f"±>{WIDE}%"
    return f"±{percent:.1f}%" if percent < 0.95 else f"±{percent:.0f}%"


def towards_one(value: float, low: float | None, high: float | None) -> str:
    """Write the interval of a ratio: lopsided ones by the side towards 1, which decides."""
    return spread(value, low, value) if value > 1 else spread(value, value, high)


def time_text(time: Estimate) -> str:
    """Write a time with its interval."""
    return f"{seconds(time.time)} {spread(time.time, time.low, time.high)}"


def time_entry(figure: Figure) -> Entry:
    """Write a time, or the word in place of it."""
    if figure.time is None:
        return Entry(figure.verdict, "muted" if figure.verdict == "none" else "word")
    mark = f" {UNCONFIRMED}" if figure.verdict == "unconfirmed" else ""
    return Entry(time_text(figure.time) + mark, "time")


def ratio_entry(figure: Figure, reference: str) -> Entry:
    """Write how a framework compares with the reference."""
    if figure.framework == reference and figure.time is not None:
        return REFERENCE
    if figure.ratio is None:
        return Entry(NO_RATIO, "muted")
    return Entry(ratio_text(figure.ratio), figure.ratio.verdict)


def ratio_text(ratio: Ratio) -> str:
    """Write a ratio in words: how many times slower or faster."""
    return _compared(ratio.value, ratio.low, ratio.high, ratio.verdict)


def mean_entry(mean: Mean) -> Entry:
    """Write a geometric mean; it is decided where its interval leaves 1 out."""
    verdict = _verdict(mean)
    text = _compared(mean.value, mean.low, mean.high, verdict)
    return Entry(f"{text}, n={mean.cases}", verdict)


def slower_by_entry(figure: Figure) -> Entry:
    """Write how many times slower than the reference a framework is; less than 1 is faster."""
    if figure.ratio is None:
        return Entry(NO_RATIO, "muted")
    ratio = figure.ratio
    return Entry(_slower_by(ratio.value, ratio.low, ratio.high, ratio.verdict), ratio.verdict)


def slower_by_mean(mean: Mean | None) -> Entry:
    """Write a geometric mean in the same way."""
    if mean is None:
        return Entry(NO_RATIO, "muted")
    verdict = _verdict(mean)
    text = _slower_by(mean.value, mean.low, mean.high, verdict)
    return Entry(f"{text}, n={mean.cases}", verdict)


def _slower_by(value: float, low: float | None, high: float | None, verdict: str) -> str:
    return f"{number(value)} {towards_one(value, low, high)}, {verdict}"


def _verdict(mean: Mean) -> str:
    """Decide a mean: its interval leaves 1 out, or does not."""
    decided = mean.low is not None and mean.high is not None and not mean.low <= 1 <= mean.high
    return ("slower" if mean.value > 1 else "faster") if decided else "undecided"


def _compared(value: float, low: float | None, high: float | None, verdict: str) -> str:
    shown = 1 / value if verdict == "faster" and value else value
    return f"{number(shown)}× {verdict} {towards_one(value, low, high)}"
