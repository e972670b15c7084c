"""Shifts of whole numbers: products with powers of 2, and quotients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tapegrad.errors import DTypeError
from tapegrad.tensors.base import TensorBase
from tapegrad.tensors.ops import elementwise as _e
from tapegrad.tensors.ops.composite import composite
from tapegrad.tensors.registry import Draw, Sample

if TYPE_CHECKING:
    from tapegrad.tensors.methods import Tensor

_BITS = 64
_SAMPLES = (
    Sample(Draw((3, 4), -50, 50, "int64"), Draw((4,), -1, 70, "int64")),
    Sample(Draw((3, 4), -50, 50, "int32"), Draw((3, 1), 0, 40, "int32")),
)


def _operands(op: str, input: Any, other: Any) -> tuple[Tensor, Tensor, Any]:
    """Return both operands as int64, and the type of the result."""
    from tapegrad.tensors.creation import scalar_like

    for each in (input, other):
        own = each._array if isinstance(each, TensorBase) else np.asarray(each)
        if own.dtype.kind not in "biu":
            raise DTypeError(f"{op}: expected whole numbers, got {own.dtype}; use x.long()")
    wanted = _e.add(input, other).dtype
    like: Any = input if isinstance(input, TensorBase) else other
    x, y = (scalar_like(op, each, like).to("int64") for each in (input, other))
    return x, y, wanted


@composite(*_SAMPLES)
def bitwise_left_shift(input: Any, other: Any) -> Tensor:
    """Return a * 2 ** b of whole numbers; 0 where b is negative or no bit is left."""
    x, y, wanted = _operands("bitwise_left_shift", input, other)
    known = (y >= 0) & (y < _BITS)
    found: Tensor = x * _e.where(known, _e.pow(2, _e.where(known, y, 0)), 0)
    return found.to(wanted)


@composite(*_SAMPLES)
def bitwise_right_shift(input: Any, other: Any) -> Tensor:
    """Return a // 2 ** b of whole numbers; 0 or -1 where b is negative or no bit is left."""
    x, y, wanted = _operands("bitwise_right_shift", input, other)
    most = _BITS - 2  # the largest power of 2 among whole numbers
    known = (y >= 0) & (y <= most)
    found = x // _e.pow(2, _e.where(known, y, most))
    return _e.where(known, found, found // 2).to(wanted)


__all__ = ["bitwise_left_shift", "bitwise_right_shift"]
