"""One published figure."""

from __future__ import annotations

import msgspec

UNITS = {"s": 1.0, "ms": 1e-3}


class Quoted(msgspec.Struct, frozen=True):
    """A figure as it was printed."""

    #: Where it comes from, on what hardware, when.
    source: str
    framework: str
    #: The case and the phase, as our tables name them.
    name: str
    phase: str
    #: The time as printed, with its unit; `-` where the authors give none.
    printed: str
    seconds: float | None
    #: How many times slower than the other framework, as printed; empty where that is not given.
    slower_by: str = ""


def seconds_of(printed: str) -> float | None:
    """Read a printed time.

    Example:
        >>> seconds_of("0.5 ms"), seconds_of("-")
        (0.0005, None)

    """
    number, _, unit = printed.partition(" ")
    return float(number) * UNITS[unit] if unit else None
