"""Deep copies: tensors that lie on one memory have copies that do."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from tapegrad import _core

if TYPE_CHECKING:
    from tapegrad.tensors.methods import Tensor


#: With the identity of an array: the key of its copy's cell.
_CELL = "cell"


def share(x: Tensor, made: Tensor, memo: dict[Any, Any]) -> None:
    """Give a copy its elements: on memory that was copied before, if the original lies on that."""
    base = x._base
    if base is not None and base._node is None and base.is_contiguous():
        whole = deepcopy(base, memo)
        made._array = _alike(x, base, whole)
        _core.join(made, whole)
        return
    known = memo.get(id(x._array))  # also that of the array itself, which numpy() gave out
    made._array = memo[id(x._array)] = x._array.copy() if known is None else known
    made._cell = memo.setdefault((_CELL, id(x._array)), made._version_cell())
    if x._version_cell()[1] is False:
        made._give_out()


def _alike(x: Tensor, base: Tensor, whole: Tensor) -> Any:
    """Return the view of a copy that x is of the original."""
    device, seen = x._device, x._array
    at = device.address(seen) - device.address(base._array)
    made = device.view(whole._array, seen.shape, seen.strides, at)
    made.flags.writeable = seen.flags.writeable
    return made
