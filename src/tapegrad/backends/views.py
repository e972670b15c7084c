"""Kernels that move elements or look at them in another way, and compute nothing.

They are written in NumPy's interface, which the arrays of every backend offer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Array = Any


class Memory(NamedTuple):
    """How a backend makes arrays and writes to them."""

    #: empty(shape, dtype): an array whose elements are not set.
    empty: Callable[..., Array]
    #: fill(x, number): one number everywhere.
    fill: Callable[..., None]
    #: write(x, y): y, cast and broadcast, everywhere.
    write: Callable[..., None]


def take(x: Array, index: Any, copy: Callable[[Array], Array]) -> Array:
    """Return the elements at lists of places, or of a mask, in order."""
    found = x[index]
    return found if found.flags.c_contiguous else copy(found)


def unslice(x: Array, index: Any, shape: tuple[int, ...], memory: Memory) -> Array:
    """Return zeros with x in the place of a slice."""
    out = memory.empty(shape, x.dtype)
    memory.fill(out, 0)
    memory.write(out[index], x)
    return out


def write(x: Array, y: Array, places: Any, memory: Memory) -> None:
    """Write y into x, or into its elements at lists of places."""
    if places is None:
        memory.write(x, y)
    else:
        x[places] = y


def place(x: Array, y: Array, slices: Any, places: Any, memory: Memory) -> Array:
    """Return a copy of x with y in the place of x[slices][places]."""
    out = memory.empty(x.shape, x.dtype)
    memory.write(out, x)
    write(out if slices is None else out[slices], y, places, memory)
    return out


def stack(*arrays: Array, dim: int, memory: Memory) -> Array:
    """Return arrays side by side along a new dimension."""
    here = (*[slice(None)] * dim, None)
    return cat(*[each[here] for each in arrays], dim=dim, memory=memory)


def nonzero(x: Array) -> Array:
    """Return the places of elements that are not 0, one row each."""
    from numpy import argwhere, ascontiguousarray

    return ascontiguousarray(argwhere(x))


def cat(*arrays: Array, dim: int, memory: Memory) -> Array:
    """Return arrays one behind the other."""
    kinds = [each.dtype for each in arrays]
    widest = max(kinds, key=lambda kind: ("bif".index(kind.kind), kind.itemsize))
    first = arrays[0]
    total = sum(each.shape[dim] for each in arrays)
    out = memory.empty((*first.shape[:dim], total, *first.shape[dim + 1 :]), widest)
    start = 0
    for each in arrays:
        end = start + each.shape[dim]
        memory.write(out[(slice(None),) * dim + (slice(start, end),)], each)
        start = end
    return out


def pad(x: Array, widths: Any, value: float, memory: Memory) -> Array:
    """Return x within a border."""
    pairs = list(zip(widths, x.shape, strict=True))
    out = memory.empty(tuple([a + size + b for (a, b), size in pairs]), x.dtype)
    memory.fill(out, value)
    memory.write(out[(..., *[slice(a, a + size) for (a, _), size in pairs])], x)
    return out


def expand(x: Array, shape: tuple[int, ...]) -> Array:
    """Return a view with dimensions of one element repeated; nobody may write there."""
    from numpy import broadcast_to

    return broadcast_to(x, shape)


def kernels(memory: Memory) -> dict[str, Any]:
    """Return these kernels for the arrays of a backend."""
    return {
        "reshape": lambda x, shape: x.reshape(shape),
        "permute": lambda x, order: x.transpose(order),
        "expand": expand,
        "slice": lambda x, index: x[index],
        "unslice": lambda x, index, shape: unslice(x, index, shape, memory),
        "place": lambda x, y, slices, places: place(x, y, slices, places, memory),
        "write": lambda x, y, places: write(x, y, places, memory),
        "fill": memory.fill,
        "nonzero": nonzero,
        "cat": lambda *arrays, dim: cat(*arrays, dim=dim, memory=memory),
        "stack": lambda *arrays, dim: stack(*arrays, dim=dim, memory=memory),
        "pad": lambda x, widths, value: pad(x, widths, value, memory),
    }
