"""Changes in place while gradients are recorded.

1. What a change reads has to stay for the way back: the tensor as it was, and operands that lie on
   the same memory, are copied before it is written.
2. Afterwards the tensor is the result of an operation, and so are its views: each becomes one that
   takes elements of the changed tensor, whether it had a history before or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tapegrad import _core
from tapegrad.errors import GradError
from tapegrad.tensors.autograd import Node
from tapegrad.tensors.base import TensorBase, wrap
from tapegrad.tensors.registry import find

if TYPE_CHECKING:
    from tapegrad.tensors.methods import Tensor


def check(name: str, a: Tensor) -> None:
    """Raise where a change of `a` cannot be recorded."""
    if a._requires_grad and a._node is None:
        raise GradError(
            f"{name}: a leaf that requires gradients cannot be changed in place; do it within "
            "no_grad(), or work on a copy"
        )
    if a._is_view():
        raise GradError(
            f"{name}: a view cannot be changed in place while gradients are recorded; "
            "use tg.where or tg.cat, or work on a copy"
        )
    if any(view._requires_grad and view._node is None for view in _core.views_of(a)):
        raise GradError(
            f"{name}: a leaf that requires gradients is a view of this tensor, which cannot be "
            "changed in place then; do it within no_grad(), or make the leaf of a copy"
        )


def copied(x: Tensor) -> Tensor:
    """Return a tensor as it is now, with its history."""
    copy = wrap(x._array.copy(), x._device)
    if x._requires_grad:
        copy._requires_grad, copy._node, copy._index = True, x._node, x._index
    return copy


def kept(a: Tensor, x: Any) -> Any:
    """Return an operand that a change of `a` leaves as it is."""
    if isinstance(x, TensorBase) and x._version_cell() is a._version_cell():
        return copied(x)  # type: ignore[arg-type]
    return x


def follow(a: Tensor) -> None:
    """Give the views of a tensor that was changed the history that it has now."""
    for view in _core.views_of(a):
        base, seen = (x._device.to_numpy(x._array) for x in (a, view))
        start = seen.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        looks = base.strides, (seen.shape, seen.strides, start)
        _core.record(_FOLLOWING, (0, 0), (a,), (view,), looks, a._device, 1)


class _Following:
    """A view as an operation on what it looks at, by the places of its elements."""

    name = "view"

    def vjp(self, node: Node, g: Tensor) -> Tensor:
        """Return zeros with the gradient in the places that the view looks at."""
        shape, (strides, seen) = node.shapes[0], node.attrs
        have = _addresses(shape, strides).ravel()
        order = np.argsort(have)
        places = order[np.searchsorted(have, _addresses(*seen).ravel(), sorter=order)]
        spread = find("put_add")(g.reshape(-1), index=(places,), shape=(have.size,))
        found: Tensor = spread.reshape(shape)
        return found


_FOLLOWING = _Following()


def _addresses(shape: tuple[int, ...], strides: tuple[int, ...], start: int = 0) -> Any:
    """Return where the elements lie, in bytes."""
    steps = [np.arange(n) * step for n, step in zip(shape, strides, strict=True)]
    return np.asarray(sum(np.ix_(*steps), start))
