"""Sizes of windows: one number for both directions, or height and width."""

from __future__ import annotations

import operator

from tapegrad.errors import OptionError

Pair = tuple[int, int]


def pair(name: str, size: int | Pair, least: int) -> Pair:
    """Return height and width, if they are whole numbers and not below the least one."""
    given = size if isinstance(size, (tuple, list)) else (size, size)
    try:
        height, width = map(operator.index, given)
    except (TypeError, ValueError):
        raise OptionError(f"{name}: expected an integer or two, got {size!r}") from None
    if min(height, width) < least:
        raise OptionError(f"{name}: expected {least} or more, got {size!r}")
    return height, width
