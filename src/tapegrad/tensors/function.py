"""Operations of one's own, and parts of a computation that are done twice to save memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tapegrad import _core
from tapegrad.errors import GradError
from tapegrad.tensors.autograd import MODE, Node, backward, enable_grad, no_grad
from tapegrad.tensors.base import TensorBase
from tapegrad.tensors.creation import zeros
from tapegrad.tensors.random import DEFAULT

if TYPE_CHECKING:
    from tapegrad.tensors.methods import Tensor


class Context:
    """What `forward` leaves for `backward`."""

    def __init__(self) -> None:
        self._saved: tuple[Any, ...] = ()
        self.needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors for the way back; they may not be changed in place."""
        self._saved = tensors

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The tensors kept."""
        return self._saved


class _Custom:
    """A Function as an operation of the record."""

    def __init__(self, function: type[Function], context: Context) -> None:
        self.name = function.__name__
        self._function = function
        self._context = context

    def vjp(self, node: Node, *gradients: Any) -> tuple[Any, ...]:
        """Ask the function's `backward`."""
        self._context._saved = tuple(node.inputs)
        found = self._function.backward(self._context, *gradients)
        listed = found if isinstance(found, tuple) else (found,)
        if len(listed) != len(node.attrs):
            raise GradError(
                f"{self.name}: expected {len(node.attrs)} gradients from backward, one per "
                f"argument of forward, got {len(listed)}"
            )
        return tuple(each for each, is_tensor in zip(listed, node.attrs, strict=True) if is_tensor)


class Function:
    """An operation with a gradient of one's own.

    Example:
        >>> import tapegrad as tg
        >>> class Double(tg.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         return x * 2
        ...     @staticmethod
        ...     def backward(ctx, g):
        ...         return g * 2
        >>> x = tg.ones(2, requires_grad=True)
        >>> Double.apply(x).sum().backward()
        >>> x.grad
        tensor([2., 2.])

    """

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        """Return a tensor, or a tuple of them."""
        raise NotImplementedError("a Function needs a static method forward(ctx, ...)")

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Return a gradient, or None, per argument of forward."""
        raise NotImplementedError("a Function needs a static method backward(ctx, ...)")

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Run `forward` and record it."""
        context = Context()
        tensors = [x for x in args if isinstance(x, TensorBase)]
        context.needs_input_grad = tuple(
            isinstance(x, TensorBase) and x._requires_grad for x in args
        )
        with no_grad():
            found = cls.forward(context, *args)
        outs = found if isinstance(found, tuple) else (found,)
        if MODE.enabled and any(x._requires_grad for x in tensors):
            node = _core.record(
                _Custom(cls, context),
                (0, 0),
                tuple(tensors),
                outs,
                [isinstance(x, TensorBase) for x in args],
                tensors[0]._device,
                0,
            )
            node._operands, context._saved = tuple(context._saved), ()
            node._stamp = sum(x._version for x in node._operands if isinstance(x, TensorBase))
            outs = tuple(_attached(out, node, i) for i, out in enumerate(outs))
        return outs if isinstance(found, tuple) else outs[0]


def _attached(out: Tensor, node: Node, index: int) -> Tensor:
    if out._array.dtype.kind != "f":
        return out
    fresh = out.detach() if out._requires_grad else out
    fresh._requires_grad, fresh._node, fresh._index = True, node, index
    return fresh


class _Checkpoint(Function):
    """Runs a function again on the way back instead of keeping what it computed."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Any], anchor: Any, *args: Any) -> Any:
        ctx.function = function
        ctx.state = DEFAULT.get_state()
        ctx.args = [None if isinstance(x, TensorBase) else x for x in args]
        ctx.save_for_backward(*[x for x in args if isinstance(x, TensorBase)])
        return function(*args)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        if MODE.enabled:
            raise GradError("checkpoint: gradients of gradients need what it does not keep")
        saved = iter(ctx.saved_tensors)
        again = [
            next(saved).detach() if x is None and needs is not None else x
            for x, needs in zip(ctx.args, ctx.needs_input_grad[2:], strict=True)
        ]
        for x, needs in zip(again, ctx.needs_input_grad[2:], strict=True):
            if needs:
                x.requires_grad_()
        state = DEFAULT.get_state()
        DEFAULT.set_state(ctx.state)
        try:
            with enable_grad():
                outs = ctx.function(*again)
        finally:
            DEFAULT.set_state(state)
        listed = outs if isinstance(outs, tuple) else (outs,)
        pairs = [(o, g) for o, g in zip(listed, gradients, strict=True) if g is not None]
        wanted = [(o, g) for o, g in pairs if o.requires_grad]
        if wanted:
            backward([o for o, _ in wanted], [g for _, g in wanted])
        return (None, None, *[x.grad if isinstance(x, TensorBase) else None for x in again])


def checkpoint(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function without keeping what its gradient needs; it runs again on the way back.

    Random numbers are the same the second time. Parameters used inside get their gradients, too.

    Example:
        >>> import tapegrad as tg
        >>> x = tg.ones(2, requires_grad=True)
        >>> tg.checkpoint(lambda x: (x * 3).exp(), x).sum().backward()
        >>> x.grad.shape
        (2,)

    """
    anchor = zeros((), requires_grad=True)  # parameters that the function uses may want gradients
    return _Checkpoint.apply(function, anchor, *args)
