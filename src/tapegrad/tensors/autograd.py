"""Reverse mode: the record that operations leave behind, and the walk back over it.

1. An operation on tensors that require gradients makes a `Node`: which operation, what it saved,
   and where its operands came from. A result points to its node; a leaf (a parameter) has none.
2. The walk over nodes, the latest first, is native (bindings/walk.cpp). A node's rule gives a
   gradient per operand; the walk sums it over what was broadcast, so rules need not know.
3. Rules are written in operations on tensors. With `create_graph` these are recorded in turn, so
   gradients have gradients.
"""

# Arguments come in PyTorch's order.
# ruff: noqa: PLR0917

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Generator, Iterator, Sequence, ValuesView
from contextlib import ContextDecorator
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tapegrad import _core
from tapegrad.errors import DeviceError, DTypeError, GradError, ShapeError

if TYPE_CHECKING:
    from tapegrad.tensors.methods import Tensor

#: Where a gradient goes: a leaf; a node and which of its results; nowhere.
Edge = Any
Hook = Callable[["Tensor"], "Tensor | None"]


# ---- modes --------------------------------------------------------------------------------------


#: Whether operations are recorded; each thread has its own.
MODE = _core.Mode()


class _Switch(ContextDecorator):
    """Sets the mode for a block or a function."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._before: list[bool] = []

    def __enter__(self) -> Self:
        self._before.append(MODE.enabled)
        MODE.enabled = self._enabled
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        MODE.enabled = self._before.pop()

    def __call__(self, function: Any) -> Any:
        """Return a function within this mode; a generator is, whenever it goes on."""
        if inspect.isgeneratorfunction(function):
            return _resumed_within(self._recreate_cm, function)
        return super().__call__(function)

    def _recreate_cm(self) -> Self:
        """Return a switch for one call, or one step of a generator.

        It is a new one: threads that call a function at once go back to modes of their own.
        """
        return type(self)(self._enabled)


def _resumed_within(
    switch: Callable[[], _Switch], function: Callable[..., Generator[Any, Any, Any]]
) -> Callable[..., Generator[Any, Any, Any]]:
    """Return a generator function that runs within a mode, and leaves it while it waits."""

    @wraps(function)
    def resumed(*args: Any, **options: Any) -> Generator[Any, Any, Any]:
        inner = function(*args, **options)
        resume: Callable[[], Any] = lambda: next(inner)  # noqa: E731
        while True:
            try:
                with switch():
                    found = resume()
            except StopIteration as end:
                return end.value
            try:
                sent = yield found
            except GeneratorExit:
                with switch():
                    inner.close()
                raise
            except BaseException as error:  # what the caller throws into it
                thrown = error
                resume = lambda: inner.throw(thrown)  # noqa: B023, E731
            else:
                resume = lambda: inner.send(sent)  # noqa: B023, E731

    return resumed


class _PlainSwitch(_Switch):
    """A switch that decorates without brackets, too."""

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        """Return a switch; or a function within one."""
        return object.__new__(cls) if function is None else cls()(function)

    def _recreate_cm(self) -> Self:
        return type(self)()


class no_grad(_PlainSwitch):  # noqa: N801  PyTorch's name
    """Record nothing within this block or function.

    Example:
        >>> import tapegrad as tg
        >>> x = tg.ones(2, requires_grad=True)
        >>> with tg.no_grad():
        ...     (x * 2).requires_grad
        False

    """

    def __init__(self, function: Callable[..., Any] | None = None) -> None:
        super().__init__(enabled=False)


class enable_grad(_PlainSwitch):  # noqa: N801
    """Record within this block or function, also inside `no_grad`."""

    def __init__(self, function: Callable[..., Any] | None = None) -> None:
        super().__init__(enabled=True)


class inference_mode(_Switch):  # noqa: N801
    """Record nothing within this block or function, and mark what is made there.

    Marked tensors take no part in what is recorded later: what the way back needs they cannot be,
    and they are changed in place within this mode only. Views of other tensors are not marked.

    Example:
        >>> import tapegrad as tg
        >>> with tg.inference_mode():
        ...     x = tg.ones(2) * 3
        >>> x.is_inference(), x.clone().is_inference()
        (True, False)

    """

    def __new__(cls, mode: Any = True) -> Any:
        """Return a switch; or a function within one, where it decorates without brackets."""
        return cls()(mode) if callable(mode) else super().__new__(cls)

    def __init__(self, mode: Any = True) -> None:
        super().__init__(enabled=not mode)
        self._outside: list[bool] = []

    def __enter__(self) -> Self:
        self._outside.append(MODE.inference)
        self._before.append(MODE.enabled)
        MODE.inference = not self._enabled
        MODE.enabled = self._enabled
        return self

    def _recreate_cm(self) -> Self:
        return type(self)(not self._enabled)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        MODE.inference = self._outside.pop()
        super().__exit__(kind, error, trace)


class set_grad_enabled(_Switch):  # noqa: N801
    """Record or not: from here on, or within a block or a function.

    Example:
        >>> import tapegrad as tg
        >>> _ = tg.set_grad_enabled(False)
        >>> tg.is_grad_enabled()
        False
        >>> with tg.set_grad_enabled(True):
        ...     tg.is_grad_enabled()
        True
        >>> _ = tg.set_grad_enabled(True)

    """

    def __init__(self, mode: bool) -> None:
        super().__init__(bool(mode))
        self._at_first = MODE.enabled
        MODE.enabled = self._enabled

    def __enter__(self) -> Self:
        super().__enter__()
        self._before[-1] = self._at_first
        return self

    def __call__(self, function: Any) -> Any:
        """Return a function within this mode; the mode around is as it was."""
        MODE.enabled = self._at_first
        return super().__call__(function)


def is_grad_enabled() -> bool:
    """Tell whether operations are recorded."""
    return MODE.enabled


def is_inference_mode_enabled() -> bool:
    """Tell whether `inference_mode` is on."""
    return MODE.inference


def refuse_saving(op: Any) -> None:
    """Raise for a tensor of inference mode that the way back would need."""
    raise GradError(
        f"{op.name}: Inference tensors cannot be saved for backward, and one of the operands was "
        "made in inference_mode(); use its clone(), or make it in no_grad()"
    )


# ---- the record ---------------------------------------------------------------------------------


class Node(_core.NodeState):
    """One recorded operation, and what its rule may look at.

    `op` is the operation, `attrs` its options, `edges` where the gradients of its operands go;
    `shapes` and `dtypes` are the operands'. It was made by `_core.record`.
    """

    __slots__ = ()
    if TYPE_CHECKING:
        op: Any
        attrs: Any
        device: Any
        edges: tuple[Edge, ...]
        shapes: tuple[Any, ...]
        dtypes: tuple[Any, ...]
        count: int
        number: int
        wanted: int
        hooks: dict[int, dict[int, Hook]] | None
        _operands: tuple[Any, ...] | None
        _results: tuple[Any, ...] | None
        _cells: list[Any] | None

    @property
    def needs(self) -> list[bool]:
        """Which operands want a gradient."""
        return [edge is not None for edge in self.edges]

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The operands that the operation saves, None for the others."""
        operands = self._operands
        if operands is None:
            raise GradError(
                f"{self.op.name}: the graph was let go by an earlier backward(); pass "
                "retain_graph=True there to walk it twice"
            )
        if not _core.unchanged(self):
            raise GradError(
                f"{self.op.name}: a tensor that its gradient needs was changed in place "
                "afterwards; write x = x + 1 instead of x += 1, or change x.clone()"
            )
        return operands

    @property
    def outputs(self) -> tuple[Any, ...]:
        """The results that the operation saves, as tensors with their history."""
        _ = self.inputs  # checked
        return tuple(
            [
                None if array is None else self._result(array, index)
                for index, array in enumerate(self._results or ())
            ]
        )

    @property
    def output(self) -> Tensor:
        """The first of the saved results."""
        found: Tensor = self.outputs[0]
        return found

    def _result(self, array: Any, index: int) -> Tensor:
        tensor: Tensor = _core.wrap(array, self.device)
        if array.dtype.kind != "f":  # places, as of a sort
            return tensor
        tensor._requires_grad = True
        tensor._node = self
        tensor._index = index
        return tensor

    def __repr__(self) -> str:
        return f"<{self.op.name} backward>"


# ---- the walk -----------------------------------------------------------------------------------


def backward(
    tensors: Tensor | Sequence[Tensor],
    grad_tensors: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:
    """Add to the `grad` of every leaf its gradient of the sum of these tensors.

    Args:
        tensors: What to differentiate.
        grad_tensors: Weights of their elements; may be left out for tensors of one element.
        retain_graph: Keep what was saved, to walk back again; as create_graph if left out.
        create_graph: Record the walk itself, for gradients of gradients.
        inputs: Tensors to stop at; no others get a `grad`.

    """
    roots = list(_roots(_listed(tensors), _listed(grad_tensors), "backward"))
    retain = _retain(retain_graph, create_graph)
    if inputs is None:
        _core.accumulate(roots, retain, create_graph)
        return
    targets = _targets(inputs, "backward")
    for each in targets:
        each.retain_grad()
    only, leading = {id(each) for each in targets}, _leading(roots, targets)
    _core.accumulate(roots, retain, create_graph, only, leading)


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    *,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """Return the gradients of the sum of `outputs` by `inputs`, leaving every `grad` as it is.

    Args:
        outputs: What to differentiate.
        inputs: By what.
        grad_outputs: Weights of the outputs' elements; may be left out for one element.
        retain_graph: Keep what was saved, to walk back again; as create_graph if left out.
        create_graph: Record the walk itself, for gradients of gradients.
        allow_unused: Return None for inputs that take no part; else they are an error.
        materialize_grads: Return zeros for inputs that take no part.

    """
    if materialize_grads and allow_unused is False:
        raise GradError(
            "grad: materialize_grads=True allows unused inputs; leave out allow_unused=False"
        )
    roots = list(_roots(_listed(outputs), _listed(grad_outputs), "grad"))
    targets = _targets(inputs, "grad")
    retain = _retain(retain_graph, create_graph)
    result = _collected(roots, targets, retain, create_graph, _leading(roots, targets))
    if materialize_grads:
        return tuple(
            _zeros(each) if gradient is None else gradient
            for each, gradient in zip(targets, result, strict=True)
        )
    for place, gradient in enumerate(result):
        if gradient is None and not allow_unused:
            raise GradError(
                f"grad: input {place} does not take part in the outputs; allow_unused=True "
                "returns None for it"
            )
    return tuple(result)


def _zeros(like: Tensor) -> Tensor:
    from tapegrad.tensors.creation import zeros_like

    return zeros_like(like)


def grad_of_part(
    outputs: Sequence[Tensor],
    weights: Sequence[Tensor | None],
    inputs: Sequence[Tensor],
    start: int,
) -> list[Any]:
    """Return gradients by `inputs` of what was computed since node `start`, and no further.

    What is older has its part in a walk that is under way, which calls the inputs' hooks, too. With
    gradients recorded, those of the part are, as well.
    """
    given = [
        (out, weight) for out, weight in zip(outputs, weights, strict=True) if weight is not None
    ]
    roots = [(_core.edge_of(out), weight) for out, weight in given]
    nodes, _ = part_since(start, [out for out, _ in given])
    leading = {node: node.number >= start for node in nodes}
    return _collected(roots, inputs, MODE.enabled, MODE.enabled, leading, hooks=False)


def part_since(start: int, outputs: Sequence[Tensor]) -> tuple[set[Node], list[Tensor]]:
    """Return the nodes from `start` on that outputs come from, with those that they begin at.

    Also the tensors where they begin: leaves, and stand-ins for results that are older.
    """
    nodes: set[Node] = set()
    begins: dict[Any, Tensor] = {}
    waiting = [(_core.edge_of(out), out._array.shape, out._array.dtype) for out in outputs]
    while waiting:
        edge, shape, dtype = waiting.pop()
        if isinstance(edge, tuple) and edge[0].number >= start:
            if edge[0] not in nodes:
                nodes.add(edge[0])
                waiting += zip(edge[0].edges, edge[0].shapes, edge[0].dtypes, strict=True)
        elif isinstance(edge, tuple):
            nodes.add(edge[0])
            begins[edge] = edge[0]._result(np.broadcast_to(np.zeros((), dtype), shape), edge[1])
        elif edge is not None:
            begins[id(edge)] = edge
    return nodes, list(begins.values())


def _collected(
    roots: list[tuple[Edge, Tensor]],
    targets: Sequence[Tensor],
    retain: bool,
    create_graph: bool,
    leading: dict[Node, bool],
    hooks: bool = True,
) -> list[Any]:
    """Return gradients by tensors, None for what is not reached; one named twice has it twice."""
    keys = [_key(each) for each in targets]
    places = {key: place for place, key in enumerate(keys)}
    leaves = {key: place for key, place in places.items() if isinstance(key, int)}
    results = {key: place for key, place in places.items() if isinstance(key, tuple)}
    found: list[Any] = [None] * len(keys)
    _core.collect(roots, retain, create_graph, leaves, results, found, leading, hooks)
    return [found[places[key]] for key in keys]


def _key(tensor: Tensor) -> Any:
    """Return what the walk knows a tensor by."""
    return id(tensor) if tensor._node is None else (tensor._node, tensor._index)


def _targets(inputs: Any, what: str) -> list[Tensor]:
    targets = _listed(inputs)
    if not targets and what == "backward":
        raise GradError("backward: expected at least one tensor as `inputs`, got none")
    for each in targets:
        if not isinstance(each, _core.TensorState):
            raise DTypeError(f"{what}: expected tensors as inputs, got {type(each).__name__}")
        if not each.requires_grad:  # type: ignore[attr-defined]
            raise GradError(
                f"{what}: expected inputs that require gradients; make them with requires_grad=True"
            )
    return targets


def _retain(retain_graph: bool | None, create_graph: bool) -> bool:
    return create_graph if retain_graph is None else retain_graph


def _leading(roots: list[tuple[Edge, Tensor]], targets: list[Tensor]) -> dict[Node, bool]:
    """Return the nodes from which a target can be reached, and whether one is behind them."""
    leaves = {id(each) for each in targets if each._node is None}
    ends = {each._node for each in targets}
    order: list[Node] = []
    seen: set[Node] = set()
    waiting = [edge[0] for edge, _ in roots if isinstance(edge, tuple)]
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            order.append(node)
            waiting += [edge[0] for edge in node.edges if isinstance(edge, tuple)]
    leading: dict[Node, bool] = {}
    for node in sorted(order, key=lambda each: each.number):
        goes_on = False
        for edge in node.edges:
            goes_on |= edge[0] in leading if isinstance(edge, tuple) else id(edge) in leaves
        if goes_on or node in ends:
            leading[node] = goes_on
    return leading


def _listed(given: Any) -> list[Any]:
    if given is None:
        return []
    return list(given) if isinstance(given, (list, tuple, Iterator, ValuesView)) else [given]


def _roots(
    tensors: list[Tensor], weights: list[Tensor | None], what: str
) -> Iterator[tuple[Edge, Tensor]]:
    """Yield where the walk begins, with the first gradients."""
    if weights and len(weights) != len(tensors):
        raise ShapeError(
            f"{what}: expected as many weights as tensors, got {len(weights)} and {len(tensors)}"
        )
    for tensor, weight in itertools.zip_longest(tensors, weights):
        for each in (tensor, tensor if weight is None else weight):
            if not isinstance(each, _core.TensorState):
                raise DTypeError(
                    f"{what}: expected tensors, got {type(each).__name__}; make one with tg.tensor"
                )
        if not tensor.requires_grad:
            raise GradError(
                f"{what}: the tensor does not depend on any that requires gradients; make leaves "
                "with requires_grad=True, outside no_grad()"
            )
        yield _core.edge_of(tensor), _first(tensor, weight, what)


def _first(tensor: Tensor, weight: Tensor | None, what: str) -> Tensor:
    from tapegrad.tensors.creation import ones_like

    if weight is None:
        if tensor._array.size != 1:
            option = "gradient" if what == "backward" else "grad_outputs"
            raise GradError(
                f"{what}: a tensor of shape {tensor.shape} needs weights of its elements; reduce "
                f"it to one number (y.sum()) or pass {option}"
            )
        return ones_like(tensor)
    if weight.shape != tensor.shape:
        raise ShapeError(f"{what}: expected weights of shape {tensor.shape}, got {weight.shape}")
    if not weight.dtype.is_floating_point:
        raise DTypeError(f"{what}: expected floating point weights, got {weight.dtype}")
    if weight._device is not tensor._device:
        raise DeviceError(
            f"{what}: expected weights of {tensor._device.name}, got {weight._device.name}; move "
            f"them with .to({tensor._device.name!r})"
        )
    return weight
