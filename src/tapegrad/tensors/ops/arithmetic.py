"""Sums, quotients, rounding and powers: elementwise operations with options, and rules for types.

Each is the line of the scalar op table where that says all, and else written in such lines.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tapegrad.errors import DTypeError, OptionError
from tapegrad.tensors.arguments import asks
from tapegrad.tensors.autograd import MODE
from tapegrad.tensors.base import TensorBase
from tapegrad.tensors.ops.elementwise import (
    OPERANDS,
    abs,
    binary,
    eq,
    lt,
    mul,
    ne,
    no_operands,
    sqrt,
    trunc,
    unary,
    where,
)

if TYPE_CHECKING:
    from tapegrad.tensors.methods import Tensor

_add, _sub, _div, _pow = map(binary, ("add", "sub", "div", "pow"))
_floor_divide, _remainder = map(binary, ("floor_divide", "remainder"))
_square, _round = map(unary, ("square", "round"))


# ---- sums ---------------------------------------------------------------------------------------


def add(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """Return a + alpha * b, element by element; operands broadcast."""
    plain = type(alpha) is int and alpha == 1
    return _add(input, other if plain else scaled("add", input, other, alpha))


def sub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """Return a - alpha * b, element by element; operands broadcast."""
    plain = type(alpha) is int and alpha == 1
    return _sub(input, other if plain else scaled("sub", input, other, alpha))


def scaled(op: str, input: Any, other: Any, alpha: Any) -> Any:
    """Return alpha times an operand, if the type of its sum with another can hold that."""
    for each in (other, alpha):
        if not isinstance(each, OPERANDS):
            raise no_operands(op, input, each)
    if type(alpha) is int and alpha == 1:
        return other
    if not _is_whole(input) or not _is_whole(other):
        return other * alpha
    bools = _is_bool(input) and _is_bool(other)
    if not _is_whole(alpha) or (_is_bool(alpha) and not bools):
        raise DTypeError(
            f"{op}: expected alpha to be a whole number where the operands are, got {alpha!r}; "
            "make one of them floating point, as by x.float()"
        )
    return other & bool(alpha) if bools else other * alpha


# ---- quotients ----------------------------------------------------------------------------------


def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """Return a / b, element by element; the quotient rounded down by "floor", to 0 by "trunc"."""
    if rounding_mode is None:
        return _div(input, other)
    if rounding_mode == "floor":
        return floor_divide(input, other)
    if rounding_mode != "trunc":
        raise OptionError(
            f"div: expected rounding_mode 'floor', 'trunc' or None, got {rounding_mode!r}"
        )
    if not (_is_whole(input) and _is_whole(other)):
        return trunc(_div(input, other))
    inexact, opposed = ne(remainder(input, other), 0), ne(_negative(input), _negative(other))
    return _add(floor_divide(input, other), mul(inexact, opposed))


def floor_divide(input: Any, other: Any) -> Tensor:
    """Return a // b, the quotient rounded down, element by element; operands broadcast."""
    check_divisor("floor_divide", input, other)
    return _floor_divide(input, other)


def remainder(input: Any, other: Any) -> Tensor:
    """Return a % b, of the sign of b, element by element; operands broadcast."""
    check_divisor("remainder", input, other)
    return _remainder(input, other)


def _is_whole(x: Any) -> bool:
    if isinstance(x, TensorBase):
        return bool(x._array.dtype.kind != "f")
    return isinstance(x, (int, np.integer, np.bool_))


def _is_bool(x: Any) -> bool:
    if isinstance(x, TensorBase):
        return bool(x._array.dtype.kind == "b")
    return isinstance(x, (bool, np.bool_))


def _is_empty(x: Any) -> bool:
    return isinstance(x, TensorBase) and not x._array.size


def _negative(x: Any) -> Any:
    return lt(x, 0) if isinstance(x, TensorBase) else x < 0


def _is_zero(x: Any) -> Any:
    return eq(x, 0) if isinstance(x, TensorBase) else x == 0


def _any(found: Any) -> bool:
    """Tell whether something was found, in a tensor or by Python."""
    return bool(found if isinstance(found, bool) else found.any())


def check_divisor(op: str, input: Any, other: Any) -> None:
    """Refuse whole numbers to be divided by 0, which have no infinity to show for it."""
    if _is_whole(input) and _is_whole(other) and not _is_empty(input) and _any(_is_zero(other)):
        raise OptionError(
            f"{op}: whole numbers cannot be divided by 0; floating point ones give inf or nan"
        )


def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """Return the nearest whole numbers, the even one of two; or numbers of so many decimals."""
    if not decimals:
        return _round(input)
    if not isinstance(decimals, int) or not -300 < decimals < 300 or _is_whole(input):
        raise DTypeError(
            f"round: expected a floating point tensor and a whole number of decimals, got "
            f"{input.dtype} and {decimals!r}"
        )
    factor = 10.0 ** builtins.abs(decimals)
    if decimals > 0:
        return _div(_round(mul(input, factor)), factor)
    return mul(_round(_div(input, factor)), factor)


# ---- powers -------------------------------------------------------------------------------------


@asks
def square(input: Tensor) -> Tensor:
    """Return x * x, element by element; bools as whole numbers."""
    if isinstance(input, TensorBase) and input._array.dtype.kind == "b":
        input = mul(input, 1)
    return _square(input)


def pow(input: Any, exponent: Any) -> Tensor:
    """Return the elements raised to a power; 2, 1/2 and the like by their shorter ways.

    Whole numbers have whole powers. A tensor may have negative ones among its exponents, whose
    fractions are cut off: 1 and -1 keep their powers, all else gives 0. A negative number as
    exponent of all is refused.
    """
    if _is_whole(input):
        if _is_whole(exponent):
            return _whole_power(input, exponent)
        if isinstance(input, TensorBase) and isinstance(exponent, float):
            input = mul(input, 1.0)
    if isinstance(exponent, (int, float)) and (shorter := _POWERS.get(exponent)) is not None:
        return shorter(input)
    if MODE.enabled and isinstance(exponent, TensorBase) and exponent._requires_grad:
        return _smooth_power(input, exponent)
    return _pow(input, exponent)


def _smooth_power(x: Any, exponent: Any) -> Tensor:
    """Return powers, of which 0 ** 0 counts as the constant 1: its gradients are 0."""
    if not _any(_is_zero(x)):
        return _pow(x, exponent)
    both = _add(
        abs(exponent.detach()), builtins.abs(x) if isinstance(x, (int, float)) else abs(x.detach())
    )
    constant = eq(both, 0)
    base = where(constant, 1.0, x).to(both.dtype)
    return where(constant, 1.0, _pow(base, exponent))


#: Powers that need no logarithm.
_POWERS: dict[float, Callable[[Any], Tensor]] = {
    -1: lambda x: div(1.0, x),
    0.5: sqrt,
    1: lambda x: mul(x, 1),
    2: square,
    3: lambda x: mul(square(x), x),
}


def _whole_power(x: Any, exponent: Any) -> Tensor:
    """Multiply whole numbers, which stay whole, by squares of squares."""
    if _is_bool(x) and _is_bool(exponent):
        return _bool_power(x, exponent)
    found = _add(mul(_add(x, exponent), 0), 1)  # of the type that both have in common
    x = mul(found, x)
    if not isinstance(exponent, TensorBase):
        if exponent < 0:
            raise OptionError(
                "pow: whole numbers have no negative whole powers; make one of both floating point"
            )
        while exponent:
            found = mul(found, x) if exponent % 2 else found
            x, exponent = square(x), exponent // 2
        return found
    if _any(negative := lt(exponent, 0)):
        found = where(negative, _inverse(x, exponent), found)
        exponent = where(negative, 0, exponent)
    while _any(ne(exponent, 0)):
        found = where(eq(remainder(exponent, 2), 1), mul(found, x), found)
        x, exponent = square(x), floor_divide(exponent, 2)
    return found


def _bool_power(x: Any, exponent: Any) -> Tensor:
    """Return bools to the power True, or False."""
    if isinstance(exponent, TensorBase):
        raise DTypeError("pow: bools have no powers by other bools; use x.long()")
    return mul(x, True) if exponent else eq(x, x)


def _inverse(x: Tensor, exponent: Any) -> Tensor:
    """Return negative powers of whole numbers without their fractions."""
    odd = eq(remainder(exponent, 2), 1)
    return where(eq(abs(x), 1), where(odd, x, mul(x, x)), 0)


__all__ = ["add", "div", "floor_divide", "pow", "remainder", "round", "square", "sub"]
