"""Changes in place while gradients are recorded.

1. What a change reads has to stay for the way back: the tensor as it was, and operands that lie on
   the same memory, are copied before it is written.
2. Afterwards the tensor is the result of an operation. If it is a view, its base is one, too: what
   it was, with the view's elements in their places.
3. The view, and others that the change shows in, take their elements of the base as it is now,
   whether they had a history before or not.

A view holds its base, which is no view itself; the base knows its views and holds none. What a view
is of its base is nowhere but in their layouts: where the elements of each lie in memory.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tapegrad import _core
from tapegrad.errors import GradError
from tapegrad.tensors.autograd import MODE
from tapegrad.tensors.base import TensorBase, wrap
from tapegrad.tensors.registry import find

if TYPE_CHECKING:
    from tapegrad.tensors.methods import Tensor


def refuse_inference(name: str, a: Tensor) -> None:
    """Raise where a tensor of inference mode is to be changed outside of it."""
    if a._inference and not MODE.inference:
        raise GradError(
            f"{name}: Inplace update to inference tensor outside InferenceMode is not allowed; "
            "change its clone(), or make it in no_grad()"
        )


def check(name: str, a: Tensor) -> None:
    """Raise where a change of `a` cannot be recorded."""
    if a._requires_grad and a._node is None:
        raise GradError(
            f"{name}: a leaf that requires gradients cannot be changed in place; do it within "
            "no_grad(), or work on a copy"
        )
    base = _core.base_of(a)
    if base is not None and base._requires_grad:
        _check_view(name, a, base)
    if any(view._requires_grad and view._node is None for view in _core.touched_by(a)):
        raise GradError(
            f"{name}: a leaf that requires gradients is a view of this memory, which cannot be "
            "changed in place then; do it within no_grad(), or make the leaf of a copy"
        )


def _check_view(name: str, a: Tensor, base: Tensor) -> None:
    if base._node is None:
        raise GradError(
            f"{name}: a view of a leaf that requires gradients cannot be changed in place; do it "
            "within no_grad(), or work on a copy"
        )
    if not a._requires_grad:
        raise GradError(
            f"{name}: a view that was made within no_grad() cannot be changed in place while "
            "gradients are recorded; make the view outside, or change it within no_grad()"
        )


def copied(x: Tensor, elements: bool = True) -> Tensor:
    """Return a tensor as it is now, with its history; without `elements`, if nobody reads these."""
    copy = wrap(x._array.copy() if elements else x._array, x._device)
    if x._requires_grad:
        copy._requires_grad, copy._node, copy._index = True, x._node, x._index
    return copy


def kept(a: Tensor, x: Any) -> Any:
    """Return an operand that a change of `a` leaves as it is."""
    if isinstance(x, TensorBase) and x._version_cell() is a._version_cell():
        return copied(x)  # type: ignore[arg-type]
    return x


def note(op: Any, operands: tuple[Any, ...], out: Tensor, attrs: Any = None) -> None:
    """Note that a tensor is the result of an operation now; its elements are there already.

    If its gradient was to be kept, that is the one of what it is now.
    """
    before, index = out._node, out._index
    _core.record(op, op.plans, operands, (out,), attrs, out._device, 1)
    if before is not None and before.hooks:
        out._retain_instead(before, index)


def follow(a: Tensor) -> None:
    """Give what a change of `a` shows in, its base and their views, the history it has now."""
    base = a
    if a._base is not None:
        base = a._base
        note(find("cover"), (base, a), base, _layouts(base, a))
        note(find("look"), (base,), a, _layouts(base, a))
    for view in _core.touched_by(a):
        note(find("look"), (base,), view, _layouts(base, view))


def _layouts(base: Tensor, view: Tensor) -> dict[str, Any]:
    """Return where the elements of a tensor and of a view lie, counted from the tensor's first.

    A layout is a shape, a step per dimension, and a start; steps of one element are 0. All are
    counted in the largest unit that they have in common, so most tensors have no gaps.
    """
    have, seen, address = base._array, view._array, base._device.address
    start = address(seen) - address(have)
    steps = [
        [step if size > 1 else 0 for size, step in zip(each.shape, each.strides, strict=True)]
        for each in (have, seen)
    ]
    unit = math.gcd(start, *steps[0], *steps[1]) or 1
    ours, theirs = (tuple([step // unit for step in each]) for each in steps)
    return {"have": (have.shape, ours, 0), "seen": (seen.shape, theirs, start // unit)}
