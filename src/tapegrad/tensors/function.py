"""Operations of one's own, and parts of a computation that are done twice to save memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tapegrad import _core
from tapegrad.errors import DTypeError, GradError, ShapeError
from tapegrad.tensors.autograd import MODE, Node, enable_grad, grad_of_part, no_grad, part_since
from tapegrad.tensors.base import TensorBase
from tapegrad.tensors.creation import zeros
from tapegrad.tensors.random import DEFAULT

if TYPE_CHECKING:
    from tapegrad.tensors.methods import Tensor


class Context:
    """What `forward` leaves for `backward`."""

    def __init__(self) -> None:
        self._saved: tuple[Any, ...] = ()
        self._constant: tuple[Any, ...] = ()
        self._fills = True
        self.needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors for the way back; they may not be changed in place."""
        self._saved = tensors

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The tensors kept."""
        return self._saved

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Say which results have no gradient; whole numbers never have one."""
        self._constant = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Say whether `backward` gets zeros for results that nobody used, or None."""
        self._fills = value

    def is_constant(self, result: Any) -> bool:
        """Tell whether a result was marked as one without a gradient."""
        return any(each is result for each in self._constant)


class _Custom:
    """A Function as an operation of the record."""

    def __init__(self, function: type[Function], context: Context, outs: Sequence[Tensor]) -> None:
        self.name = function.__name__
        self._function = function
        self._context = context
        self._results = [(out.shape, out.dtype, out.device) for out in outs]

    def vjp(self, node: Node, *gradients: Any) -> tuple[Any, ...]:
        """Ask the function's `backward`."""
        self._context._saved = tuple(node.inputs)
        given = self._filled(gradients) if self._context._fills else gradients
        found = self._function.backward(self._context, *given)
        listed = found if isinstance(found, tuple) else (found,)
        if len(listed) != len(node.attrs):
            raise GradError(
                f"{self.name}: expected {len(node.attrs)} gradients from backward, one per "
                f"argument of forward, got {len(listed)}"
            )
        places = [place for place, is_tensor in enumerate(node.attrs) if is_tensor]
        for place, shape in zip(places, node.shapes, strict=True):
            self._check(listed[place], shape, place)
        return tuple(listed[place] for place in places)

    def _filled(self, gradients: Sequence[Any]) -> list[Any]:
        pairs = zip(gradients, self._results, strict=True)
        return [
            zeros(shape, dtype=dtype, device=device) if each is None else each
            for each, (shape, dtype, device) in pairs
        ]

    def _check(self, gradient: Any, shape: tuple[int, ...], place: int) -> None:
        """Raise for a gradient that is neither the argument's nor one to sum over a broadcast."""
        if isinstance(gradient, TensorBase) and not _broadcasts(shape, gradient.shape):
            raise ShapeError(
                f"{self.name}: expected from backward a gradient of shape {shape} for argument "
                f"{place} of forward, got {gradient.shape}"
            )


def _broadcasts(shape: tuple[int, ...], wider: tuple[int, ...]) -> bool:
    ends = zip(reversed(shape), reversed(wider), strict=False)
    return len(shape) <= len(wider) and all(size in (1, wide) for size, wide in ends)


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
        for out in outs:
            if not isinstance(out, TensorBase):
                raise DTypeError(
                    f"{cls.__name__}: expected forward to return a tensor or a tuple of them, "
                    f"got {type(out).__name__}"
                )
        if MODE.enabled and any(x._requires_grad for x in tensors):
            node = _core.record(
                _Custom(cls, context, outs),
                (0, 0),
                tuple(tensors),
                outs,
                [isinstance(x, TensorBase) for x in args],
                tensors[0]._device,
                0,
            )
            node._operands, context._saved = tuple(context._saved), ()
            node._stamp = _stamp(node._operands)
            outs = _attached(outs, node, context, tensors)
        return outs if isinstance(found, tuple) else outs[0]


def _stamp(saved: Sequence[Any]) -> int:
    """Return how often saved tensors were changed in place so far."""
    return sum(x._version for x in saved if isinstance(x, TensorBase))


def _attached(
    outs: Sequence[Tensor], node: Node, context: Context, arguments: Sequence[Any]
) -> tuple[Tensor, ...]:
    """Return results with their place in the record; the caller's own tensors stay as they are."""
    taken = {id(each) for each in arguments}
    found = []
    for index, out in enumerate(outs):
        constant = out._array.dtype.kind != "f" or context.is_constant(out)
        fresh = out.detach() if id(out) in taken or out._requires_grad else out
        taken.add(id(out))
        if not constant:
            fresh._requires_grad, fresh._node, fresh._index = True, node, index
        found.append(fresh)
    return tuple(found)


class _Again:
    """A part of a computation as one operation: it is done again on the way back."""

    name = "checkpoint"

    def __init__(
        self, function: Callable[..., Any], places: list[int], begins: Sequence[Tensor], state: Any
    ) -> None:
        self._function = function
        self._places = places
        self._begins = begins
        self._state = state

    def vjp(self, node: Node, *gradients: Any) -> list[Any]:
        """Return the gradients by what the part begins at."""
        args, named = node.inputs[: node.attrs[0]], node.inputs[node.attrs[0] :]
        state = DEFAULT.get_state()
        if self._state is not None:
            DEFAULT.set_state(self._state)
        start = _core.nodes_made()
        try:
            with enable_grad():
                found = self._function(*args, **dict(zip(node.attrs[1], named, strict=True)))
        finally:
            DEFAULT.set_state(state)
        outs = [_listed(found)[place] for place in self._places]
        return grad_of_part(outs, gradients, self._begins, start)


def _listed(found: Any) -> list[Any]:
    return list(found) if isinstance(found, (tuple, list)) else [found]


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """Call a function without keeping what its gradient needs; it runs again on the way back.

    Tensors that the function uses get their gradients whether they are arguments or not.

    Args:
        function: Returns a tensor, or a tuple or list with tensors.
        args: Its arguments.
        use_reentrant: PyTorch's choice of two ways; there is one here, which does what
            use_reentrant=False does there.
        preserve_rng_state: Whether random numbers are the same the second time.
        kwargs: Its arguments by name.

    Example:
        >>> import tapegrad as tg
        >>> x = tg.ones(2, requires_grad=True)
        >>> tg.checkpoint(lambda x: (x * 3).exp(), x).sum().backward()
        >>> x.grad.shape
        (2,)

    """
    if not MODE.enabled:
        return function(*args, **kwargs)
    state = DEFAULT.get_state() if preserve_rng_state else None
    start = _core.nodes_made()
    found = function(*args, **kwargs)
    outs = _listed(found)
    places = [
        place for place, out in enumerate(outs) if isinstance(out, TensorBase) and out.requires_grad
    ]
    if not places:
        return found
    _, begins = part_since(start, [outs[place] for place in places])
    fresh = tuple(outs[place].detach() for place in places)
    again, attrs = _Again(function, places, begins, state), (len(args), list(kwargs))
    node = _core.record(again, (0, 0), tuple(begins), fresh, attrs, fresh[0]._device, len(fresh))
    node._operands = (*args, *kwargs.values())
    node._stamp = _stamp(node._operands)
    for place, out in zip(places, fresh, strict=True):
        outs[place] = out
    return type(found)(outs) if isinstance(found, (tuple, list)) else outs[0]
