"""Operations of one's own, and parts of a computation that are done twice to save memory."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from numbers import Number
from typing import TYPE_CHECKING, Any

from tapegrad import _core
from tapegrad.errors import DTypeError, GradError, OptionError, ShapeError
from tapegrad.tensors.autograd import (
    MODE,
    Node,
    enable_grad,
    grad_of_part,
    no_grad,
    part_since,
    refuse_saving,
)
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
        for each in tensors:
            if each is not None and not isinstance(each, TensorBase):
                raise DTypeError(
                    f"save_for_backward: expected tensors or None, got {type(each).__name__}; keep "
                    "other values as attributes, ctx.n = n"
                )
        self._saved = tensors

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The tensors kept."""
        return self._saved

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Say which results have no gradient; whole numbers never have one."""
        self._constant = tensors

    def mark_dirty(self, *tensors: Any) -> None:
        """Refuse arguments that forward changes in place."""
        raise GradError(
            "mark_dirty: a Function does not change its arguments here; return a new tensor, or "
            "change one in place outside, as by x.mul_(2)"
        )

    def save_for_forward(self, *tensors: Any) -> None:
        """Refuse what only derivatives forwards would need."""
        raise GradError(
            "save_for_forward: a Function has no derivative forwards here; leave it out, "
            "save_for_backward keeps what backward needs"
        )

    def set_materialize_grads(self, value: bool) -> None:
        """Say whether `backward` gets zeros for results that nobody used, or None."""
        self._fills = value

    def is_constant(self, result: Any) -> bool:
        """Tell whether a result was marked as one without a gradient."""
        return any(each is result for each in self._constant)


class _Custom:
    """A Function as an operation of the record."""

    def __init__(self, function: type[Function], context: Context, outs: Sequence[Any]) -> None:
        self.name = function.__name__
        self._function = function
        self._context = context
        #: Shape, type and device of results; None for what is no tensor.
        self._results = [
            (out.shape, out.dtype, out.device) if isinstance(out, TensorBase) else None
            for out in outs
        ]
        #: Which of the saved tensors are results, and which: the node has their arrays alone.
        self._own: dict[int, int] = {}

    def save(self, node: Node, outs: Sequence[Tensor]) -> None:
        """Leave with a node what `forward` saved; a result with its node would never be let go."""
        saved, self._context._saved = list(self._context._saved), ()
        if any(x is not None and x._inference for x in saved):
            refuse_saving(self)
        indices = {id(out): out._index for out in outs if out._node is node}
        self._own = {place: indices[id(x)] for place, x in enumerate(saved) if id(x) in indices}
        kept = [out if out._index in self._own.values() else None for out in outs]
        node._results = tuple([None if out is None else out._array for out in kept])
        node._cells = [out._version_cell() for out in kept if out is not None]
        for place in self._own:
            saved[place] = None
        node._operands = tuple(saved)
        node._stamp = _stamp(saved) + _stamp(kept)

    def vjp(self, node: Node, *gradients: Any) -> tuple[Any, ...]:
        """Ask the function's `backward`."""
        saved, outputs = list(node.inputs), node.outputs if self._own else ()
        for place, index in self._own.items():
            saved[place] = outputs[index]
        self._context._saved = tuple(saved)
        try:
            found = self._function.backward(self._context, *self._given(gradients))
        finally:
            self._context._saved = ()
        listed = list(found) if isinstance(found, tuple) else [found]
        while len(listed) > len(node.attrs) and listed[-1] is None:
            listed.pop()
        if len(listed) != len(node.attrs):
            raise GradError(
                f"{self.name}: expected {len(node.attrs)} gradients from backward, one per "
                f"argument of forward, got {len(listed)}"
            )
        places = [place for place, is_tensor in enumerate(node.attrs) if is_tensor]
        for place, shape in zip(places, node.shapes, strict=True):
            self._check(listed[place], shape, place)
        return tuple(listed[place] for place in places)

    def _given(self, gradients: Sequence[Any]) -> list[Any]:
        """Return a gradient per result, None for what is no tensor."""
        left = iter(gradients)
        given = [None if result is None else next(left) for result in self._results]
        if not self._context._fills:
            return given
        return [
            zeros(result[0], dtype=result[1], device=result[2])
            if each is None and result is not None
            else each
            for each, result in zip(given, self._results, strict=True)
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
    def forward(*args: Any, **named: Any) -> Any:
        """Return a tensor, or a tuple with some: of (ctx, ...), or (...) beside setup_context."""
        raise NotImplementedError("a Function needs a static method forward(ctx, ...)")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Leave for backward what it needs, where `forward` does not take a ctx."""
        raise NotImplementedError("setup_context(ctx, inputs, output) is called if it is written")

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Return a gradient, or None, per argument of forward."""
        raise NotImplementedError("a Function needs a static method backward(ctx, ...)")

    @classmethod
    def apply(cls, *args: Any, **named: Any) -> Any:
        """Run `forward` and record it."""
        context = Context()
        apart = cls.setup_context is not Function.setup_context
        if named or apart:
            args, named = cls._bound(() if apart else (context,), args, named)
        given = (*args, *named.values())
        context.needs_input_grad = tuple(
            isinstance(x, TensorBase) and x._requires_grad for x in given
        )
        with no_grad():
            if apart:
                found = cls.forward(*args, **named)
                cls.setup_context(context, given, found)
            else:
                found = cls.forward(context, *args, **named)
        outs = found if isinstance(found, tuple) else (found,)
        if isinstance(found, (list, dict)):
            raise DTypeError(
                f"{cls.__name__}: expected forward to return a tensor or a tuple, got "
                f"{type(found).__name__}, in which tensors would have no gradient"
            )
        if MODE.enabled and any(context.needs_input_grad):
            outs = _recorded(_Custom(cls, context, outs), context, given, outs)
        return outs if isinstance(found, tuple) else outs[0]

    @classmethod
    def _bound(
        cls, first: tuple[Any, ...], args: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return arguments in the order of `forward`, with defaults where it takes no ctx."""
        try:
            bound = inspect.signature(cls.forward).bind(*first, *args, **named)
        except TypeError as error:
            raise OptionError(f"{cls.__name__}: apply does not fit forward: {error}") from None
        if not first:
            bound.apply_defaults()
        return bound.args[len(first) :], bound.kwargs


def _recorded(
    op: _Custom, context: Context, given: Sequence[Any], outs: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Record a call; return its results, the tensors among them with their place in the record."""
    arguments = [x for x in given if isinstance(x, TensorBase)]
    tensors: list[Any] = [out for out in outs if isinstance(out, TensorBase)]
    if not tensors:
        return outs
    are_tensors = [isinstance(x, TensorBase) for x in given]
    device = arguments[0]._device
    node = _core.record(op, (0, 0), tuple(arguments), tuple(tensors), are_tensors, device, 0)
    attached = _attached(tensors, node, context, arguments)
    op.save(node, attached)
    left = iter(attached)
    return tuple(next(left) if isinstance(out, TensorBase) else out for out in outs)


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
        self,
        function: Callable[..., Any],
        outs: Mapping[int, Tensor],
        begins: Sequence[Tensor],
        state: Any,
    ) -> None:
        self._function = function
        self._forms = {place: _form(out) for place, out in outs.items()}
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
        parts = dict(enumerate(_parts(found)))
        outs: list[Any] = [parts.get(place) for place in self._forms]
        for out, form in zip(outs, self._forms.values(), strict=True):
            if _form(out) != form:
                raise GradError(
                    f"checkpoint: the function returned {form} the first time, and "
                    f"{_form(out)} when it was called again; it has to compute the same"
                )
        return grad_of_part(outs, gradients, self._begins, start)


def _form(out: Any) -> str:
    """Say what a result is, as far as a gradient has to fit it."""
    if not isinstance(out, TensorBase):
        return "nothing" if out is None else f"a {type(out).__name__}"
    return f"{out.dtype.name} of shape {tuple(out.shape)}"


def _parts(found: Any) -> Iterator[Any]:
    """Yield what tuples, lists and dicts hold, at any depth."""
    if isinstance(found, (tuple, list, dict)):
        for each in found.values() if isinstance(found, dict) else found:
            yield from _parts(each)
    else:
        yield found


def _rebuilt(found: Any, parts: Iterator[Any]) -> Any:
    """Return the same tuples, lists and dicts with other parts."""
    if isinstance(found, dict):
        made = copy(found)
        made.update({key: _rebuilt(each, parts) for key, each in found.items()})
        return made
    if isinstance(found, (tuple, list)):
        items = [_rebuilt(each, parts) for each in found]
        return type(found)(*items) if hasattr(found, "_fields") else type(found)(items)
    return next(parts)


def _check_parts(parts: list[Any]) -> None:
    """Raise for a result that may hide tensors, which would be kept as without a checkpoint."""
    for each in parts:
        if not isinstance(each, (TensorBase, Number, str, bytes, type(None))):
            raise DTypeError(
                "checkpoint: expected the function to return tensors, alone or in tuples, lists "
                f"and dicts, got {type(each).__name__}; return the tensors it holds"
            )


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
        function: Returns a tensor, or tuples, lists and dicts with tensors.
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
    parts = list(_parts(found))
    outs: dict[int, Any] = {
        place: out
        for place, out in enumerate(parts)
        if isinstance(out, TensorBase) and out.requires_grad
    }
    if not outs:
        _check_parts(parts)
        return found
    _, begins = part_since(start, list(outs.values()))
    fresh = tuple(out.detach() for out in outs.values())
    again, attrs = _Again(function, outs, begins, state), (len(args), list(kwargs))
    node = _core.record(again, (0, 0), tuple(begins), fresh, attrs, fresh[0]._device, len(fresh))
    node._operands = (*args, *kwargs.values())
    node._stamp = _stamp(node._operands)
    for place, out in zip(outs, fresh, strict=True):
        parts[place] = out
    return _rebuilt(found, iter(parts))
