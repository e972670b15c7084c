"""How quantities are written: numbers, times, bytes, counts."""

from __future__ import annotations

import math

SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
BYTES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


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
    scale, unit = next((each for each in SECONDS if value >= 0.9995 * each[0]), SECONDS[-1])
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


def counted(least: int, noun: str, most: int | None = None) -> str:
    """Write how many there are, or from how many to how many.

    Example:
        >>> counted(1, "process"), counted(3, "round"), counted(1, "block", most=9)
        ('1 process', '3 rounds', '1 to 9 blocks')

    """
    top = least if most is None else most
    plural = noun + ("es" if noun.endswith("s") else "s")
    amount = f"{least:,}" if top == least else f"{least:,} to {top:,}"
    return f"{amount} {noun if top == 1 else plural}"
