"""How figures are written."""

from __future__ import annotations

import math

from tapegrad.bench.report.figures import Figure, Mean
from tapegrad.bench.report.table import REFERENCE, Entry
from tapegrad.bench.statistics import Estimate, Ratio

UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
BYTES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
#: Right by one witness only.
UNCONFIRMED = "†"
NO_RATIO = "no ratio"


def number(value: float) -> str:
    """Write a number with three digits, more where it is large.

    Example:
        >>> [number(value) for value in (0.01234, 1.5, 99.96, 1234.5)]
        ['0.0123', '1.50', '100', '1,234']

    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = max(0, 2 - math.floor(math.log10(abs(float(f"{value:.3g}")))))
    return f"{value:,.{digits}f}"


def seconds(value: float) -> str:
    """Write a time in the unit that suits it.

    Example:
        >>> seconds(1.234e-5), seconds(1130.0)
        ('12.3 µs', '1,130 s')

    """
    scale, unit = next((each for each in UNITS if value >= 0.9995 * each[0]), UNITS[-1])
    return f"{number(value / scale)} {unit}"


def size(count: int | None) -> str:
    """Write a number of bytes; None is n/a.

    Example:
        >>> size(8192), size(None)
        ('8.00 KiB', 'n/a')

    """
    if count is None:
        return "n/a"
    for scale, unit in BYTES:
        if abs(count) >= scale:
            return f"{number(count / scale)} {unit}"
    return f"{count} B"


def spread(value: float, low: float | None, high: float | None) -> str:
    """Write an interval as what its ends differ by from the value, as a factor."""
    if low is None or high is None or low <= 0 or value <= 0:
        return "±?"
    percent = 100 * (max(high / value, value / low) - 1)
    return f"±{percent:.1f}%" if percent < 0.95 else f"±{percent:,.0f}%"


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
    if figure.framework == reference:
        return REFERENCE
    if figure.ratio is None:
        return Entry(NO_RATIO, "muted")
    return Entry(ratio_text(figure.ratio), figure.ratio.verdict)


def ratio_text(ratio: Ratio) -> str:
    """Write a ratio in words: how many times slower or faster."""
    return _compared(ratio.value, ratio.low, ratio.high, ratio.verdict)


def mean_entry(mean: Mean) -> Entry:
    """Write a geometric mean; it is decided where its interval leaves 1 out."""
    decided = mean.low is not None and mean.high is not None and not mean.low <= 1 <= mean.high
    verdict = ("slower" if mean.value > 1 else "faster") if decided else "undecided"
    text = _compared(mean.value, mean.low, mean.high, verdict)
    return Entry(f"{text}, n={mean.cases}", verdict)


def _compared(value: float, low: float | None, high: float | None, verdict: str) -> str:
    shown = 1 / value if verdict == "faster" and value else value
    return f"{number(shown)}× {verdict} {spread(value, low, high)}"
