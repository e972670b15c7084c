"""Arguments that name dimensions and sizes, checked in one place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tapegrad._core.arguments import exchanged, one, order, reshaped, several, sizes
from tapegrad.errors import ShapeError

__all__ = [
    "broadcast",
    "exchanged",
    "one",
    "order",
    "pair",
    "reduced",
    "reshaped",
    "several",
    "shape",
    "sizes",
]


def reduced(shape: Sequence[int], dims: Sequence[int], keepdim: bool) -> tuple[int, ...]:
    """Return a shape with dimensions reduced to one element, or gone."""
    if keepdim:
        return tuple(1 if d in dims else size for d, size in enumerate(shape))
    return tuple(size for d, size in enumerate(shape) if d not in dims)


def shape(op: str, given: tuple[Any, ...]) -> tuple[int, ...]:
    """Return the shape of a new tensor: sizes of at least 0, one by one or as a sequence."""
    found = sizes(op, given)
    if min(found, default=0) < 0:
        raise ShapeError(f"{op}: expected sizes of at least 0, got {found}")
    return found


def pair(op: str, name: str, given: Any, least: int = 0) -> tuple[int, int]:
    """Return one number for height and width, or two."""
    listed = (given, given) if isinstance(given, int) else tuple(given)
    if len(listed) != 2 or any(not isinstance(each, int) or each < least for each in listed):
        raise ShapeError(
            f"{op}: expected {name} as a whole number of at least {least}, or two of them, "
            f"got {given!r}"
        )
    return listed[0], listed[1]


def broadcast(op: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that several have in common: sizes are equal, 1 or missing."""
    ndim = max(len(shape) for shape in shapes)
    out = [1] * ndim
    for shape in shapes:
        for d, size in enumerate(shape, ndim - len(shape)):
            if size != 1 and out[d] not in (1, size):
                raise ShapeError(f"{op}: shapes {' and '.join(map(str, shapes))} do not broadcast")
            out[d] = size if size != 1 else out[d]
    return tuple(out)
