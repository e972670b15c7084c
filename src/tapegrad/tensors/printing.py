"""Tensors as text, as PyTorch writes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tapegrad.tensors.dtypes import bool_, float32, int64

if TYPE_CHECKING:
    from tapegrad.tensors.base import TensorBase

#: More elements than this are shown by the first and last ones of each dimension.
MOST, _EDGE = 1000, 3
_LINE = 80
#: Where powers of ten begin: numbers that are larger, smaller, or further apart than this.
_LARGE, _SMALL, _APART = 1e8, 1e-4, 1e3


def text(tensor: TensorBase, name: str = "tensor") -> str:
    """Return a tensor as Python text: its elements, and what cannot be seen from them."""
    array = tensor._device.to_numpy(tensor._array)
    indent = len(name) + 1
    short = array.size > MOST
    write, width = _writing(_edges(array) if short else array)
    body = _nested(array, indent, short, write, width) if array.size else "[]"
    return f"{name}({_joined(body, _rest(tensor, array), indent)})"


def _edges(array: Any) -> Any:
    """Return the elements that are shown of a large array."""
    for axis, size in enumerate(array.shape):
        if size > 2 * _EDGE:
            shown = [*range(_EDGE), *range(size - _EDGE, size)]
            array = array.take(shown, axis)
    return array


def _writing(array: Any) -> tuple[Callable[[Any], str], int]:
    """Return what writes an element, and the width that all of them fit into."""
    write = _plain if array.dtype.kind != "f" else _for_floats(array)
    if write is _bare:
        return write, 1
    width = max((len(write(each)) for each in array.ravel().tolist()), default=0)
    return lambda value: write(value).rjust(width), width


def _plain(value: Any) -> str:
    return str(value)


def _for_floats(array: Any) -> Callable[[float], str]:
    """Return what writes floats: with powers of ten where digits behind the point do not do."""
    counted = np.abs(array[np.isfinite(array) & (array != 0)].astype("float64"))
    if not counted.size:
        return _bare
    are_whole = bool((counted == np.ceil(counted)).all())
    low, high = counted.min(), counted.max()
    if high / low > _APART or high > _LARGE or (low < _SMALL and not are_whole):
        return "{:.4e}".format
    return _whole if are_whole else "{:.4f}".format


def _bare(value: float) -> str:
    """Write zeros, and what is not finite: nothing that others could stand in line with."""
    return _whole(value)


def _whole(value: float) -> str:
    return f"{value:.0f}." if np.isfinite(value) else str(value)


def _nested(array: Any, indent: int, short: bool, write: Callable[[Any], str], width: int) -> str:
    """Return nested brackets; `short` leaves out the middle of long dimensions."""
    if not array.ndim:
        return write(array.item())
    cut = short and len(array) > 2 * _EDGE
    shown = [*range(_EDGE), None, *range(-_EDGE, 0)] if cut else range(len(array))
    if array.ndim == 1:
        items = [" ..." if place is None else write(array[place].item()) for place in shown]
        room = max(1, (_LINE - indent) // (width + 2))
        items = [", ".join(items[at : at + room]) for at in range(0, len(items), room)]
        between = ",\n"
    else:
        items = [
            "..." if place is None else _nested(array[place], indent + 1, short, write, width)
            for place in shown
        ]
        between = "," + "\n" * (array.ndim - 1)
    return "[" + f"{between}{' ' * (indent + 1)}".join(items) + "]"


def _joined(body: str, rest: list[str], indent: int) -> str:
    """Return the elements and what else there is to say, on a line of its own where it is long."""
    used = len(body) - body.rfind("\n") + 1
    for each in rest:
        if used + len(each) + 2 > _LINE:
            body, used = f"{body},\n{' ' * indent}{each}", indent + len(each)
        else:
            body, used = f"{body}, {each}", used + len(each) + 2
    return body


def _rest(tensor: TensorBase, array: Any) -> list[str]:
    parts = []
    if not array.size and array.ndim != 1:
        parts.append(f"size={tensor.shape}")
    if tensor.dtype not in (float32, int64, bool_) or (not array.size and tensor.dtype != float32):
        parts.append(f"dtype={tensor.dtype}")
    if tensor.device.name != "cpu":
        parts.append(f"device={tensor.device.name!r}")
    if tensor._node is not None:
        parts.append(f"grad_fn={tensor._node}")
    elif tensor._requires_grad:
        parts.append("requires_grad=True")
    return parts
