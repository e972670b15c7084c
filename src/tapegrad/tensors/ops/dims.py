"""Arguments that name dimensions and sizes, checked in one place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tapegrad._core.arguments import (
    exchanged,
    expanded,
    flattened,
    one,
    order,
    pair,
    reshaped,
    several,
    shape,
    sized,
    squeezed,
)
from tapegrad.errors import ShapeError

__all__ = [
    "broadcast",
    "exchanged",
    "expanded",
    "flattened",
    "named",
    "one",
    "order",
    "own",
    "pair",
    "reduced",
    "reshaped",
    "several",
    "shape",
    "sized",
    "squeezed",
]


def named(op: str, dim: Any, ndim: int, keepdim: Any = False) -> tuple[int, ...]:
    """Return dimensions in order; none of them if none is named, and all for None."""
    if isinstance(dim, (tuple, list)) and not dim:
        return ()
    return several(op, dim, ndim, keepdim)


def own(op: str, dim: Any, ndim: int) -> int:
    """Return a dimension that a tensor has; one without any has none to name."""
    if not ndim:
        raise ShapeError(
            f"{op}: expected at least one dimension, got a tensor without any; use x.reshape(1)"
        )
    return one(op, dim, ndim)


def reduced(shape: Sequence[int], dims: Sequence[int], keepdim: bool) -> tuple[int, ...]:
    """Return a shape with dimensions reduced to one element, or gone."""
    if keepdim:
        return tuple(1 if d in dims else size for d, size in enumerate(shape))
    return tuple(size for d, size in enumerate(shape) if d not in dims)


def broadcast(op: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that several have in common: sizes are equal, 1 or missing."""
    ndim = max(len(each) for each in shapes)
    out = [1] * ndim
    for each in shapes:
        for d, size in enumerate(each, ndim - len(each)):
            if size != 1 and out[d] not in (1, size):
                raise ShapeError(f"{op}: shapes {' and '.join(map(str, shapes))} do not broadcast")
            out[d] = size if size != 1 else out[d]
    return tuple(out)
