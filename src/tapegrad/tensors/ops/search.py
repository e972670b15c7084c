"""Elements by their value: in order, the largest, those that are not 0."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from tapegrad.errors import DTypeError, ShapeError
from tapegrad.tensors.autograd import Node
from tapegrad.tensors.ops import dims as _dims
from tapegrad.tensors.ops.composite import composite
from tapegrad.tensors.ops.index import getitem, put_along
from tapegrad.tensors.registry import Cost, Draw, Sample, common_device, define, moved

if TYPE_CHECKING:
    from tapegrad.tensors.methods import Tensor


class Sorted(NamedTuple):
    """Elements in order along a dimension, and where they were."""

    values: Tensor
    indices: Tensor


def _vjp(node: Node, g: Tensor, _: Any = None) -> Tensor:
    return put_along(node.shapes[0], node.attrs["dim"], node.outputs[1], g)


_SORT = define(
    name="sort",
    doc="the smallest or largest elements along a dimension in order, and where they were",
    rule=lambda x, dim, descending, count: None,
    vjp=_vjp,
    keeps=(1,),
    results=2,
    cost=lambda x, dim, **_: Cost(
        x.numel() * math.log2(max(x.shape[dim], 2)), 2 * x.nbytes + 8 * x.numel()
    ),
    samples=[
        Sample((3, 4)),
        Sample((5, 2), dim=0, descending=True),
        Sample(Draw((4,), -50, 50, "int64")),
        Sample((2, 0, 3), dim=1),
    ],
    benchmark="sort",
)


def _ordered(op: str, x: Tensor, dim: Any, descending: bool, count: int | None) -> Sorted:
    place = _dims.one(op, dim, x.ndim)
    size = x.shape[place] if x.ndim else 1
    whole = isinstance(count, int) and not isinstance(count, bool)
    if count is not None and not (whole and 0 <= count <= size):
        raise ShapeError(f"{op}: expected k from 0 to {size}, got {count!r}")
    flat = x if x.ndim else x.reshape((1,))
    number = size if count is None or not x.ndim else int(count)  # one element is itself
    values, indices = _SORT(flat, dim=place, descending=bool(descending), count=number)
    return Sorted(values, indices) if x.ndim else Sorted(values.reshape(()), indices.reshape(()))


def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Sorted:
    """Return the elements in order along a dimension, and where they were.

    Of equal elements the first comes first, whatever `stable` says; NaN counts as the largest.
    """
    return _ordered("sort", input, dim, descending, None)


@composite(Sample((3, 4)), Sample((5, 2), dim=0, descending=True), benchmark="argsort")
def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """Return where the elements in order along a dimension are."""
    return _ordered("argsort", input.detach(), dim, descending, None).indices


@composite(
    Sample((3, 4), k=2),
    Sample((9, 2), k=1, dim=0, largest=False),
    Sample((30,), k=3),
    benchmark="topk",
)
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Sorted:
    """Return the k largest, or smallest, elements along a dimension in order, and their places."""
    return _ordered("topk", input, dim, bool(largest), k)


_NONZERO = define(
    name="nonzero",
    doc="the places of elements that are not 0, one row each",
    rule=lambda x: None,
    vjp=None,
    cost=lambda x: moved(x.shape, x.shape),
    samples=[
        Sample(Draw((3, 4), 0, 2, "bool")),
        Sample((2, 3)),
        Sample(Draw((2, 0), 0, 2, "bool")),
    ],
)


def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """Return the places of elements that are not 0: a row each, or a tensor per dimension."""
    found: Tensor = _NONZERO(input if input.ndim or not as_tuple else input.reshape(1))
    return tuple(found[:, d] for d in range(found.shape[1])) if as_tuple else found


@composite(Sample((3, 4), Draw((3, 4), 0, 2, "bool")), Sample((3, 4), Draw((4,), 0, 2, "bool")))
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """Return the elements where the mask holds, in order."""
    if mask._array.dtype.kind != "b":
        raise DTypeError(f"masked_select: expected a mask of bool, got {mask.dtype}")
    common_device("masked_select", (input, mask))
    shape = _dims.broadcast("masked_select", input.shape, mask.shape)
    return getitem(input.expand(shape), mask.expand(shape))


__all__ = ["argsort", "masked_select", "nonzero", "sort", "topk"]
