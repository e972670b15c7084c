"""Options that calls check alike: counts, real numbers and types of numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.errors import DTypeError, OptionError
from tapegrad.scalar.nodes import is_number


def whole(what: str, number: Any, least: int, limit: int = 2**63) -> int:
    """Return a count as an int, if it is one, from `least` to below `limit`.

    `what` names call and option, as "minimize: expected steps".
    """
    try:
        count = operator.index(number)
    except TypeError:
        raise OptionError(f"{what} to be an integer, got {number!r}") from None
    if count < least:
        raise OptionError(f"{what} of at least {least}, got {count}")
    if count >= limit:
        power = limit.bit_length() - 1
        raise OptionError(
            f"{what} below {f'2**{power}' if limit == 2**power else limit}, got {count}"
        )
    return count


def real(what: str, number: Any, fits: Callable[[float], bool]) -> float:
    """Return a number as a float, if it is one and fits; `what` says what would."""
    if is_number(number) and fits(float(number)):
        return float(number)
    raise OptionError(f"{what}, got {number!r}")


def dtype_name(call: str, dtype: Any) -> str:
    """Name a type of numbers that programs compute in."""
    try:
        found = str(np.dtype(dtype).name)
    except TypeError:
        found = ""
    if found not in ("float64", "float32"):
        raise DTypeError(f"{call}: expected dtype 'float64' or 'float32', got {dtype!r}")
    return found
