"""Arguments that name dimensions and sizes, checked in one place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index
from typing import Any

from tapegrad.errors import DTypeError, ShapeError


def one(op: str, dim: Any, ndim: int) -> int:
    """Return a dimension counted from the first; -1 is the last."""
    try:
        found = index(dim)
    except TypeError:
        raise DTypeError(f"{op}: expected dim to be a whole number, got {dim!r}") from None
    room = ndim or 1
    if not -room <= found < room:
        raise ShapeError(f"{op}: expected dim from {-room} to {room - 1}, got {found}")
    return found + room if found < 0 else found


def several(op: str, dim: Any, ndim: int) -> tuple[int, ...]:
    """Return dimensions in order, each once; None names all of them."""
    if dim is None:
        return tuple(range(ndim))
    if type(dim) is int:
        return (one(op, dim, ndim),) if ndim else ()
    given = list(dim) if isinstance(dim, Iterable) else [dim]
    if not given:
        return tuple(range(ndim))
    found = sorted(one(op, each, ndim) for each in given)
    if len(set(found)) != len(found):
        raise ShapeError(f"{op}: a dimension is named twice in {tuple(given)}")
    return tuple(each for each in found if each < ndim)


def reduced(shape: Sequence[int], dims: Sequence[int], keepdim: bool) -> tuple[int, ...]:
    """Return a shape with dimensions reduced to one element, or gone."""
    if keepdim:
        return tuple(1 if d in dims else size for d, size in enumerate(shape))
    return tuple(size for d, size in enumerate(shape) if d not in dims)


def sizes(op: str, given: tuple[Any, ...]) -> tuple[int, ...]:
    """Return sizes given one by one or as a sequence."""
    listed = given[0] if len(given) == 1 and isinstance(given[0], (tuple, list)) else given
    try:
        return tuple(index(each) for each in listed)
    except TypeError:
        raise DTypeError(f"{op}: expected whole numbers as sizes, got {given!r}") from None


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
