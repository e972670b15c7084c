"""The bits of whole numbers: one by one; shifted, as products with powers of 2 and quotients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tapegrad.errors import DTypeError
from tapegrad.tensors.base import TensorBase
from tapegrad.tensors.ops import arithmetic as _a
from tapegrad.tensors.ops import dims as _dims
from tapegrad.tensors.ops import elementwise as _e
from tapegrad.tensors.ops.composite import composite
from tapegrad.tensors.registry import Draw, Sample, define, moved

if TYPE_CHECKING:
    from tapegrad.tensors.methods import Tensor

_BITS = 64
_SAMPLES = (
    Sample(Draw((3, 4), -50, 50, "int64"), Draw((4,), -1, 70, "int64")),
    Sample(Draw((3, 4), -50, 50, "int32"), Draw((3, 1), 0, 40, "int32")),
)


def _check_whole(op: str, *operands: Any) -> None:
    for each in operands:
        own = each._array if isinstance(each, TensorBase) else np.asarray(each)
        if own.dtype.kind not in "biu":
            raise DTypeError(
                f"{op}: expected whole numbers or bools, got {own.dtype}; use x.long()"
            )


def _tensors(op: str, input: Any, other: Any) -> tuple[Tensor, Tensor]:
    """Return both operands as tensors: one of them may be a number."""
    from tapegrad.tensors.creation import scalar_like

    _check_whole(op, input, other)
    like: Any = input if isinstance(input, TensorBase) else other
    return scalar_like(op, input, like), scalar_like(op, other, like)


# ---- one by one ---------------------------------------------------------------------------------

_AND, _OR, _XOR = [
    define(
        name=name,
        doc=f"the bits that {which} have; of bools, whether {which} are true",
        rule=lambda a, b: _dims.broadcast("bits", a.shape, b.shape),
        total=True,
        vjp=None,
        cost=lambda a, b: moved(a.shape, b.shape, a.shape),
        samples=[
            *_SAMPLES[:1],
            Sample(Draw((3, 4), -50, 50, "int32"), Draw((2, 1, 4), -50, 50, "int64")),
            Sample(Draw((3, 4), 0, 2, "bool"), Draw((4,), 0, 2, "bool")),
        ],
    )
    for name, which in (
        ("bitwise_and", "both operands"),
        ("bitwise_or", "one or both operands"),
        ("bitwise_xor", "just one of both operands"),
    )
]


def bitwise_and(input: Any, other: Any) -> Tensor:
    """Return the bits that both operands have; of bools, whether both are true."""
    found: Tensor = _AND(*_tensors("bitwise_and", input, other))
    return found


def bitwise_or(input: Any, other: Any) -> Tensor:
    """Return the bits that one of both operands has; of bools, whether one of them is true."""
    found: Tensor = _OR(*_tensors("bitwise_or", input, other))
    return found


def bitwise_xor(input: Any, other: Any) -> Tensor:
    """Return the bits that just one of both operands has; of bools, whether they differ."""
    found: Tensor = _XOR(*_tensors("bitwise_xor", input, other))
    return found


@composite(Sample(Draw((3, 4), -50, 50, "int32")), Sample(Draw((3, 4), 0, 2, "bool")))
def bitwise_not(input: Tensor) -> Tensor:
    """Return the bits that are not set: -1 - x; of bools, what is not true."""
    return bitwise_xor(input, True if input._array.dtype.kind == "b" else -1)


# ---- shifts -------------------------------------------------------------------------------------


def _operands(op: str, input: Any, other: Any) -> tuple[Tensor, Tensor, Any]:
    """Return both operands as int64, and the type of the result."""
    x, y = _tensors(op, input, other)
    _dims.broadcast(op, x.shape, y.shape)
    return x.to("int64"), y.to("int64"), _a.add(input, other).dtype


@composite(*_SAMPLES)
def bitwise_left_shift(input: Any, other: Any) -> Tensor:
    """Return a * 2 ** b of whole numbers; 0 where b is negative or no bit is left."""
    x, y, wanted = _operands("bitwise_left_shift", input, other)
    known = (y >= 0) & (y < _BITS)
    found: Tensor = x * _e.where(known, _a.pow(2, _e.where(known, y, 0)), 0)
    return found.to(wanted)


@composite(*_SAMPLES)
def bitwise_right_shift(input: Any, other: Any) -> Tensor:
    """Return a // 2 ** b of whole numbers; 0 or -1 where b is negative or no bit is left."""
    x, y, wanted = _operands("bitwise_right_shift", input, other)
    most = _BITS - 2  # the largest power of 2 among whole numbers
    known = (y >= 0) & (y <= most)
    found = x // _a.pow(2, _e.where(known, y, most))
    return _e.where(known, found, found // 2).to(wanted)


__all__ = [
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
]
