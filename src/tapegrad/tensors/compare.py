"""Whether two tensors are the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tapegrad.tensors.ops.elementwise import eq, isclose
from tapegrad.tensors.registry import common_device

if TYPE_CHECKING:
    from tapegrad.tensors.methods import Tensor


def equal(input: Tensor, other: Tensor) -> bool:
    """Tell whether two tensors have the same shape and elements.

    Example:
        >>> import tapegrad as tg
        >>> tg.equal(tg.ones(2), tg.ones(2)), tg.equal(tg.ones(2), tg.ones(1, 2))
        (True, False)

    """
    common_device("equal", (input, other))
    return input.shape == other.shape and bool(eq(input, other).all())


def allclose(
    input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> bool:
    """Tell whether all elements differ by at most atol + rtol * |other|; operands broadcast.

    Example:
        >>> import tapegrad as tg
        >>> tg.allclose(tg.ones(2), tg.ones(2) + 1e-7), tg.allclose(tg.ones(2), tg.zeros(1))
        (True, False)

    """
    common_device("allclose", (input, other))
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


__all__ = ["allclose", "equal"]
