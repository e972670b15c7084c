"""What stands beside a tensor in arithmetic, and what may be written into one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tapegrad import _core
from tapegrad._core import Var
from tapegrad.errors import DTypeError, GradError
from tapegrad.tensors import in_place
from tapegrad.tensors.autograd import MODE, set_grad_enabled
from tapegrad.tensors.base import TensorBase
from tapegrad.tensors.ops.elementwise import OPERANDS

if TYPE_CHECKING:
    from tapegrad.tensors.methods import Tensor


def other(value: Any) -> Any:
    """Turn down what is neither number nor tensor; other classes may know what to do."""
    if isinstance(value, Var) or hasattr(value, "__array__") or _is_builtin(value):
        raise DTypeError(
            f"expected a tensor or a number, got {type(value).__module__}."
            f"{type(value).__name__}; make a tensor of it with tg.tensor or tg.from_numpy"
        )
    return NotImplemented


def _is_builtin(value: Any) -> bool:
    return type(value).__module__ == "builtins"


def operand(op: str, value: Any) -> Any:
    """Return a tensor or a number; refuse all else."""
    if not isinstance(value, OPERANDS):
        raise DTypeError(
            f"{op}: expected a tensor or a number, got {type(value).__name__}; "
            "make a tensor with tg.tensor"
        )
    return value


def before(x: Tensor, *others: Any) -> Tensor:
    """Return x as it is before a change in place: a copy where the way back may need it."""
    wanted = any(isinstance(each, TensorBase) and each._requires_grad for each in (x, *others))
    return x.clone() if wanted and MODE.enabled else x


def into(op: str, x: Tensor, found: Tensor) -> Tensor:
    """Write a result into x, if its type can hold it."""
    if "bif".index(found._array.dtype.kind) > "bif".index(x._array.dtype.kind):
        raise DTypeError(
            f"{op}: a result of type {found.dtype} cannot be stored in a tensor of {x.dtype}; "
            "convert that first, as by x.float()"
        )
    return x.copy_(found)


def take_shape(op: str, x: Tensor, seen: Callable[[], Tensor]) -> Tensor:
    """Give x the shape, and the history, of a view of it; what was recorded of x before is lost.

    A history goes on within no_grad(), too: the elements come from where they came from.
    """
    in_place.refuse_inference(op, x)
    if MODE.enabled and x._requires_grad and x._node is None:
        raise GradError(
            f"{op}: a leaf that requires gradients cannot be changed in place; use "
            f"x.{op.removesuffix('_')}()"
        )
    before, index = x._node, x._index
    with set_grad_enabled(MODE.enabled or before is not None):
        view = seen()
    if view is not x:
        x._array, x._node, x._index = view._array, view._node, view._index
        if before is not None:
            x._retain_instead(before, index)
        _core.changed(x)
    return x


def only_tensor(op: str, value: Any) -> Any:
    """Return a tensor; refuse all else."""
    if not isinstance(value, TensorBase):
        raise DTypeError(
            f"{op}: expected a tensor, got {type(value).__name__}; make one with tg.tensor"
        )
    return value


def no_items() -> list[Tensor]:
    """Raise for a tensor that cannot be gone over."""
    raise DTypeError("a tensor without dimensions has no elements to go over; use item()")
