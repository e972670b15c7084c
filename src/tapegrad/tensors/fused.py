"""Elementwise operations: lines of the scalar op table, and scalar programs, over tensors.

A scalar program over many lanes is a fused elementwise kernel, so nothing here has a kernel or a
derivative of its own. An operation of the table runs by its number; its gradient is a scalar
program made of the table's derivative column. A program's gradient is a program again, so any
order of derivative exists.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any

from tapegrad import _core, scalar
from tapegrad._core import Graph, Var, pointwise
from tapegrad.backends import Backend
from tapegrad.errors import DTypeError, GradError, OptionError, ShapeError
from tapegrad.tensors import in_place
from tapegrad.tensors.autograd import MODE, Node
from tapegrad.tensors.base import TensorBase, wrap
from tapegrad.tensors.registry import common_device

if TYPE_CHECKING:
    from tapegrad.tensors.methods import Tensor

#: A tensor, or a number that all elements share.
Operand = Any


class Fused:
    """A scalar program over the elements of tensors."""

    #: Whether its gradient takes the result, too, behind the operands.
    result_is_argument = False

    def __init__(self, name: str, inputs: Sequence[Var], outputs: Sequence[Var]) -> None:
        self.name = name
        self._inputs = list(inputs)
        self._outputs = list(outputs)
        self.programs: dict[str, Any] = {}
        #: By the bits of operands that want a gradient; and bits of operands and results to save.
        self._gradients: dict[int, _Gradient] = {}
        self.plans: dict[int, tuple[int, int]] = {}

    def __call__(self, *operands: Operand) -> tuple[Tensor, ...]:
        """Return a tensor per output of the program."""
        return _core.apply_program(self, operands)

    def explain(self, operands: Sequence[Operand]) -> None:
        """Raise for operands that have no common device."""
        _place(self.name, operands)

    def into(self, operands: Sequence[Operand], results: Sequence[Tensor]) -> None:
        """Write the outputs into tensors that exist; nothing is recorded."""
        for each in results:
            if not isinstance(each, TensorBase):
                raise DTypeError(
                    f"{self.name}: expected a tensor per result as `out`, got "
                    f"{type(each).__name__}; make one with tg.empty_like"
                )
            in_place.refuse_inference(self.name, each)
        if MODE.enabled and any(_wants_grad(x) for x in (*operands, *results)):
            raise GradError(
                f"{self.name}: what is written into `out` has no gradient, and one of the tensors "
                "requires gradients; call it within no_grad(), or without `out`"
            )
        device, name = _place(self.name, operands)
        common_device(self.name, [x for x in (*operands, *results) if isinstance(x, TensorBase)])
        arrays = tuple([x._array if isinstance(x, TensorBase) else x for x in operands])
        out = tuple([each._array for each in results])
        device.map_program(self.program(name), arrays, out)
        for each in results:
            _core.changed(each)

    def program(self, name: str) -> Any:
        """Return the compiled program for a number type."""
        found = self.programs.get(name)
        if found is None:
            found = scalar.compile(self._outputs, inputs=self._inputs, dtype=name)
            self.programs[name] = found
        return found

    # ---- gradients ------------------------------------------------------------------------------

    def plan(self, needs: int) -> tuple[int, int]:
        """Return which operands, and which results, the gradient looks at, as bits."""
        used = self.gradient(needs).used
        found = self.plans[needs] = self._split(sum(1 << i for i, use in enumerate(used) if use))
        return found

    def _split(self, used: int) -> tuple[int, int]:
        """Split the gradient's inputs: operands, then weights; results are computed again."""
        return used & ((1 << len(self._inputs)) - 1), 0

    def gradient(self, needs: int) -> _Gradient:
        """Return the program of the gradients by the operands that want one."""
        found = self._gradients.get(needs)
        if found is None:
            wanted = [bool(needs >> i & 1) for i in range(len(self._inputs))]
            found = self._gradients[needs] = self._derive(wanted)
        return found

    def _derive(self, needs: Sequence[bool]) -> _Gradient:
        graph = self._inputs[0].graph
        weights = list(graph.inputs(len(self._outputs)))
        total = scalar.dot(self._outputs, weights)
        wanted = [x for x, want in zip(self._inputs, needs, strict=True) if want]
        gradients = list(scalar.grad(total, wanted))
        return _Gradient(f"{self.name}_vjp", [*self._inputs, *weights], gradients, needs)

    def vjp(self, node: Node, *weights: Tensor) -> Sequence[Any]:
        """Return the gradients by all operands."""
        gradient = self.gradient(node.wanted)
        given = weights if len(weights) == 1 else _filled(weights)
        if not MODE.enabled:
            plan = gradient.one_pass
            if plan is None or given[0]._array.size < _LARGE:
                plan = gradient.quick
            ways, rest = plan
            return _core.elementwise_gradient(node, given, ways, rest, self.result_is_argument)
        found = iter(gradient(*self._arguments(node), *given))
        return [next(found) if want else None for want in node.needs]

    def _arguments(self, node: Node) -> Sequence[Operand]:
        return [0.0 if x is None else x for x in node.inputs]


class _Gradient(Fused):
    """The gradients of an operation, as functions of its operands and the results' weights.

    Where nothing is recorded the walk runs it: an output that is an input is passed on, and one
    that is a single operation on inputs runs by its number; the others are a program. Over large
    arrays, where memory is what counts, all that is computed is one program: one pass.
    """

    def __init__(
        self, name: str, inputs: Sequence[Var], outputs: Sequence[Var], needs: Sequence[bool]
    ) -> None:
        super().__init__(name, inputs, outputs)
        places = {var.index: place for place, var in enumerate(self._inputs)}
        self._values = [_value(out) for out in outputs]
        ways = [_way(out, places) for out in self._values]
        self.quick = self._plan(ways, needs)
        computed = [_BY_PROGRAM if isinstance(way, tuple) else way for way in ways]
        several = computed.count(_BY_PROGRAM) > 1 and computed != ways
        #: The same in one pass, None if it takes no more as it is.
        self.one_pass = self._plan(computed, needs) if several else None

    def _plan(self, ways: Sequence[Any], needs: Sequence[bool]) -> tuple[Any, Any]:
        """Return the way of each operand's gradient, and what gives programs by number type.

        Both are as `_core.elementwise_gradient` takes them: None for operands without a gradient,
        and for no program at all.
        """
        given = iter(ways)
        left = [out for out, way in zip(self._values, ways, strict=True) if way == _BY_PROGRAM]
        rest = Fused(self.name, self._inputs, left).program if left else None
        return tuple(next(given) if want else None for want in needs), rest

    @cached_property
    def used(self) -> list[bool]:
        """Tell which inputs matter."""
        return [value is not None for value in self.program("float64").listing()["inputs"]]


#: Operations that run by their number.
_DIRECT = ("mul", "masked_mul", "neg", "div")
_BY_PROGRAM = -1
#: Elements from which on one pass is quicker than two operations, each with a shorter call.
_LARGE = 100_000


def _value(out: Var) -> Var:
    """Return a gradient as it may be computed where nobody differentiates it.

    A derivative that vanishes far out stands in a `where`, for those of higher order: it is 0 where
    a factor of it is. Its value is that without it.
    """
    if out.op != "masked_mul" or out.operands[1].op != "where":
        return out
    weight, masked = out.operands
    condition, zero, derivative = masked.operands
    known_zero = out.graph.constant(0.0).index
    if condition.op != "eq" or {condition.operands[1].index, zero.index} != {known_zero}:
        return out
    factors = derivative.operands if derivative.op == "mul" else (derivative,)
    others = [each for each in factors if each.index != condition.operands[0].index]
    plain = len(others) < len(factors) and all(each.op == "constant" for each in others)
    found: Var = scalar.masked_mul(weight, derivative) if plain else out
    return found


def _way(out: Var, places: dict[int, int]) -> Any:
    """Return the input that an output is, or the operation on inputs; else it takes a program."""
    if out.index in places:
        return places[out.index]
    operands = out.operands
    if out.op in _DIRECT and all(each.index in places for each in operands):
        return pointwise.op_number(out.op), *[places[each.index] for each in operands]
    return _BY_PROGRAM


class Elementwise(Fused):
    """An operation of the scalar table."""

    result_is_argument = True

    def __init__(self, name: str, arity: int, doc: str) -> None:
        graph = Graph()
        inputs = list(graph.inputs(arity))
        super().__init__(name, inputs, [getattr(scalar, name)(*inputs)])
        self.doc = doc
        self.arity = arity
        self.number = pointwise.op_number(name)

    def unary(self, a: Tensor) -> Tensor:
        """Apply an operation of one operand."""
        device = a._device
        out = wrap(device.map1(self.number, a._array), device)
        if a._requires_grad and MODE.enabled:
            _note(self, (a,), out, device)
        return out

    def binary(self, a: Operand, b: Operand) -> Tensor:
        """Apply an operation of two operands, one of which is a tensor."""
        if isinstance(a, TensorBase):
            device = a._device
            if isinstance(b, TensorBase):
                if b._device is not device:
                    _place(self.name, (a, b))
                out = wrap(device.map2(self.number, a._array, b._array), device)
                if (a._requires_grad or b._requires_grad) and MODE.enabled:
                    _note(self, (a, b), out, device)
                return out
            out = wrap(device.map2(self.number, a._array, b), device)
            if a._requires_grad and MODE.enabled:
                _note(self, (a, b), out, device)
            return out
        device = b._device
        out = wrap(device.map2(self.number, a, b._array), device)
        if b._requires_grad and MODE.enabled:
            _note(self, (a, b), out, device)
        return out

    def in_place(self, a: Tensor, *others: Operand) -> Tensor:
        """Apply it to `a` and write the result there."""
        if a._inference:
            in_place.refuse_inference(self.name, a)
        device, arrays, recorded = a._device, [a._array], _core.has_history(a)
        for x in others:
            if not isinstance(x, TensorBase):
                arrays.append(x)
                continue
            if x._device is not device:
                _place(self.name, (a, x))
            arrays.append(x._array)
            recorded = recorded or x._requires_grad
        recorded = recorded and MODE.enabled
        before: tuple[Operand, ...] = ()
        if recorded:
            in_place.check(self.name, a)
            needs = sum(1 << i for i, x in enumerate((a, *others)) if _wants_grad(x))
            read, _ = self.plans.get(needs) or self.plan(needs)
            before = (in_place.copied(a, read & 1 == 1), *[in_place.kept(a, x) for x in others])
        run: Callable[..., Any] = device.map1 if self.arity == 1 else device.map2
        run(self.number, *arrays, a._array)
        _core.changed(a)
        if recorded:
            in_place.note(self, before, a)
            in_place.follow(a)
        return a

    def _split(self, used: int) -> tuple[int, int]:
        """Split the gradient's inputs: operands, the result, its weight."""
        return used & ((1 << self.arity) - 1), used >> self.arity & 1

    def _derive(self, needs: Sequence[bool]) -> _Gradient:
        graph = Graph()
        inputs = graph.inputs(self.arity)
        y, weight = graph.inputs(2)
        given = inputs[0] / inputs[1] if self.name == "div" else y  # so a quotient may be changed
        partials = pointwise.partials(self.number, inputs[0], inputs[-1], given)
        outputs = [_times(weight, d) for d, want in zip(partials, needs, strict=True) if want]
        return _Gradient(f"{self.name}_vjp", [*inputs, y, weight], outputs, needs)

    def _arguments(self, node: Node) -> Sequence[Operand]:
        operands = [0.0 if x is None else x for x in node.inputs]
        operands.append(node.output if node._results else 0.0)
        return operands


def _times(weight: Var, derivative: Var) -> Var:
    """Return weight * derivative; where the weight is 0, 0 even if the derivative is infinite.

    So a branch that `where` did not take contributes nothing: neither by 1 / x nor by x * log(x),
    of which an operand is infinite. Numbers are multiplied plainly, but for 0: a step has no slope,
    however steep what is made of it.
    """
    zero = weight.graph.constant(0.0)
    if derivative.index == zero.index:
        return zero
    if derivative.op == "constant":
        return weight * derivative
    return scalar.masked_mul(weight, derivative)  # type: ignore[no-any-return]


def _filled(weights: Sequence[Any]) -> tuple[Tensor, ...]:
    """Return weights with zeros for results that nobody used."""
    from tapegrad.tensors.creation import zeros_like

    given = next(each for each in weights if each is not None)
    return tuple(zeros_like(given) if each is None else each for each in weights)


def _note(op: Elementwise, operands: tuple[Operand, ...], out: Tensor, device: Backend) -> None:
    """Note an application, for the way back; comparisons have none."""
    tied = 1 if out._array.dtype.kind == "f" else 0
    _core.record(op, op.plans, operands, (out,), None, device, tied)


def _wants_grad(x: Operand) -> bool:
    return isinstance(x, TensorBase) and x._requires_grad


def _place(name: str, operands: Sequence[Operand]) -> tuple[Backend, str]:
    """Return the common device and number type of operands."""
    tensors = [x for x in operands if isinstance(x, TensorBase)]
    device = common_device(name, tensors)
    wide = any(x._array.dtype.str[1:] == "f8" for x in tensors)
    return device, "float64" if wide else "float32"


class FusedFunction(_core.FusedState):
    """A function of scalars that works on whole tensors; see `elementwise`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        wraps(function)(self)
        self._signature = inspect.signature(function)
        names = list(self._signature.parameters)
        graph = Graph()
        inputs = [graph.input(name) for name in names]
        outputs = _called(function, self._signature, inputs)
        single = not isinstance(outputs, (tuple, list))
        listed = [outputs] if single else list(outputs)
        constant = [out if isinstance(out, Var) else graph.constant(out) for out in listed]
        self._fused = Fused(getattr(function, "__name__", "elementwise"), inputs, constant)
        self._names = names
        by_name = any(
            each.kind is each.KEYWORD_ONLY for each in self._signature.parameters.values()
        )
        #: How many operands without names are all; -1 if some have to be named. Such a call is
        #: native.
        self._complete = -1 if by_name else len(names)
        self._single = single
        self._set_up(self._fused, complete=self._complete, single=single)

    def __deepcopy__(self, memo: dict[int, Any]) -> FusedFunction:
        """Return itself, as of any function."""
        return self

    def __reduce__(self) -> str:
        """Be found by name, as any function."""
        return str(getattr(self, "__qualname__"))  # noqa: B009  mypy knows it of functions only

    def _called(self, *operands: Operand, out: Any = None, **named: Operand) -> Any:
        """Return a tensor per result; or write them into the tensors `out`."""
        if named or len(operands) != self._complete:
            operands = self._completed(operands, named)
        if out is None:
            found = self._fused(*operands)
            return found[0] if self._single else found
        self._fused.into(operands, out if isinstance(out, (tuple, list)) else [out])
        return out

    def _completed(self, operands: Sequence[Operand], named: dict[str, Operand]) -> Any:
        """Return all operands in their order: those named, and defaults for those left out."""
        try:
            bound = self._signature.bind(*operands, **named)
        except TypeError as error:
            raise ShapeError(
                f"{self._fused.name}: expected {', '.join(self._names)}, got {len(operands)} "
                f"operands and {len(named)} by name: {error}"
            ) from None
        bound.apply_defaults()
        return tuple(bound.arguments.values())


def _called(function: Callable[..., Any], signature: inspect.Signature, inputs: list[Var]) -> Any:
    """Call a function with a Var per parameter."""
    placed, named = [], {}
    for parameter, each in zip(signature.parameters.values(), inputs, strict=True):
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
            raise OptionError(
                f"elementwise: expected a function with a name for each operand, got {parameter}"
            )
        if parameter.kind is parameter.KEYWORD_ONLY:
            named[parameter.name] = each
        else:
            placed.append(each)
    return function(*placed, **named)


def elementwise(function: Callable[..., Any]) -> FusedFunction:
    """Make a function of scalars work on whole tensors, in one pass over memory.

    It is recorded once, as a scalar graph: use tapegrad's functions, arithmetic and `tg.where`, and
    no branches on values. Tensors broadcast; numbers are shared by all elements and may change from
    call to call; arguments have their names and defaults. Gradients of any order exist. With `out`,
    results go into tensors that exist.

    Example:
        >>> import tapegrad as tg
        >>> @tg.elementwise
        ... def swish(x, beta):
        ...     return x * tg.sigmoid(beta * x)
        >>> x = tg.tensor([0.0, 1.0], requires_grad=True)
        >>> swish(x, 1.0).sum().backward()
        >>> [round(each, 4) for each in x.grad.tolist()]
        [0.5, 0.9277]

    """
    return FusedFunction(function)
