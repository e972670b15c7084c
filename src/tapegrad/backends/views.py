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


def address(array: Array) -> int:
    """Return where the first element of an array in this machine's memory lies."""
    return int(array.__array_interface__["data"][0])


def view(array: Array, shape: tuple[int, ...], strides: tuple[int, ...], at: int) -> Array:
    """Return a view of memory that the CPU reads, by its layout in bytes."""
    from numpy import ndarray

    return ndarray(shape, array.dtype, array, at, strides)


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


# A layout is a shape, a step per dimension, and a start: where the elements of a tensor, or of a
# view, lie in memory. `have` is that of a tensor, `seen` that of a view of it.


def look(x: Array, have: Any, seen: Any, memory: Memory) -> Array:
    """Return the elements of x that a view looks at."""
    out = memory.empty(seen[0], x.dtype)
    if out.size:
        flat, low = _in_memory(x, have, memory, own=False)
        memory.write(out, _laid(flat, seen, low))
    return out


def cover(x: Array, y: Array, have: Any, seen: Any, memory: Memory) -> Array:
    """Return a copy of x with y where a view looks."""
    if 0 in have[0]:
        return memory.empty(have[0], x.dtype)
    flat, low = _in_memory(x, have, memory, own=True)
    if 0 not in seen[0]:
        memory.write(_laid(flat, seen, low), y)
    if _is_packed(have):
        return flat.reshape(have[0])
    out = memory.empty(have[0], x.dtype)
    memory.write(out, _laid(flat, have, low))
    return out


def _in_memory(x: Array, have: Any, memory: Memory, own: bool) -> tuple[Array, int]:
    """Return memory in which x lies as a tensor has it, and the number of its first element."""
    shape, steps, start = have
    reach = [(size - 1) * step for size, step in zip(shape, steps, strict=True)]
    low, high = (
        start + sum(each) for each in ((min(r, 0) for r in reach), (max(r, 0) for r in reach))
    )
    if _is_packed(have) and x.flags.c_contiguous and not own:
        return x.reshape(-1), low
    flat = memory.empty((high - low + 1,), x.dtype)
    memory.write(_laid(flat, have, low), x)
    return flat, low


def _laid(flat: Array, layout: Any, low: int) -> Array:
    """Return the elements of a layout in memory whose first is number `low`."""
    shape, steps, start = layout
    size = flat.itemsize
    return view(flat, shape, tuple([size * step for step in steps]), (start - low) * size)


def _is_packed(layout: Any) -> bool:
    """Tell whether elements lie in order, without gaps."""
    room = 1
    for size, step in zip(reversed(layout[0]), reversed(layout[1]), strict=True):
        if size > 1 and step != room:
            return False
        room *= size
    return True


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
        "look": lambda x, have, seen: look(x, have, seen, memory),
        "cover": lambda x, y, have, seen: cover(x, y, have, seen, memory),
        "write": lambda x, y, places: write(x, y, places, memory),
        "fill": memory.fill,
        "nonzero": nonzero,
        "cat": lambda *arrays, dim: cat(*arrays, dim=dim, memory=memory),
        "stack": lambda *arrays, dim: stack(*arrays, dim=dim, memory=memory),
        "pad": lambda x, widths, value: pad(x, widths, value, memory),
    }
