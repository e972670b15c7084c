"""Kernels that move elements or look at them in another way, and compute nothing.

They are written in NumPy's interface, which the arrays of every backend offer.
"""

from __future__ import annotations

from typing import Any

Array = Any


def unslice(x: Array, index: Any, shape: tuple[int, ...], empty: Any) -> Array:
    """Return zeros with x in the place of a slice."""
    out = empty(shape, x.dtype)
    out.fill(0)
    out[index] = x
    return out


def place(x: Array, y: Array, index: Any) -> Array:
    """Return a copy of x with y in the place of x[index]."""
    out = x.copy()
    out[index] = y
    return out


def stack(*arrays: Array, dim: int, empty: Any) -> Array:
    """Return arrays side by side along a new dimension."""
    here = (*[slice(None)] * dim, None)
    return cat(*[each[here] for each in arrays], dim=dim, empty=empty)


def nonzero(x: Array) -> Array:
    """Return the places of elements that are not 0, one row each."""
    from numpy import argwhere, ascontiguousarray

    return ascontiguousarray(argwhere(x))


def cat(*arrays: Array, dim: int, empty: Any) -> Array:
    """Return arrays one behind the other."""
    kinds = [each.dtype for each in arrays]
    widest = max(kinds, key=lambda kind: ("bif".index(kind.kind), kind.itemsize))
    first = arrays[0]
    total = sum(each.shape[dim] for each in arrays)
    out = empty((*first.shape[:dim], total, *first.shape[dim + 1 :]), widest)
    start = 0
    for each in arrays:
        end = start + each.shape[dim]
        out[(slice(None),) * dim + (slice(start, end),)] = each
        start = end
    return out


def pad(x: Array, widths: Any, value: float, empty: Any) -> Array:
    """Return x within a border."""
    pairs = list(zip(widths, x.shape, strict=True))
    out = empty(tuple([a + size + b for (a, b), size in pairs]), x.dtype)
    out.fill(value)
    out[tuple([slice(a, a + size) for (a, _), size in pairs])] = x
    return out


def expand(x: Array, shape: tuple[int, ...]) -> Array:
    """Return a view with dimensions of one element repeated; nobody may write there."""
    from numpy import broadcast_to

    return broadcast_to(x, shape)


def kernels(empty: Any) -> dict[str, Any]:
    """Return these kernels; `empty` makes a backend's arrays."""
    return {
        "reshape": lambda x, shape: x.reshape(shape),
        "permute": lambda x, order: x.transpose(order),
        "expand": expand,
        "slice": lambda x, index: x[index],
        "unslice": lambda x, index, shape: unslice(x, index, shape, empty),
        "take": lambda x, index: x[index],
        "place": place,
        "nonzero": nonzero,
        "cat": lambda *arrays, dim: cat(*arrays, dim=dim, empty=empty),
        "stack": lambda *arrays, dim: stack(*arrays, dim=dim, empty=empty),
        "pad": lambda x, widths, value: pad(x, widths, value, empty),
    }
