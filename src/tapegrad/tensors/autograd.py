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

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ContextDecorator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tapegrad import _core
from tapegrad.errors import DTypeError, GradError, ShapeError

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


class no_grad(_Switch):  # noqa: N801  PyTorch's name
    """Record nothing within this block or function.

    Example:
        >>> import tapegrad as tg
        >>> x = tg.ones(2, requires_grad=True)
        >>> with tg.no_grad():
        ...     (x * 2).requires_grad
        False

    """

    def __init__(self) -> None:
        super().__init__(enabled=False)


class enable_grad(_Switch):  # noqa: N801
    """Record within this block or function, also inside `no_grad`."""

    def __init__(self) -> None:
        super().__init__(enabled=True)


class inference_mode(_Switch):  # noqa: N801
    """Record nothing; the same as `no_grad` here, where that has no cost to save."""

    def __init__(self, mode: bool = True) -> None:
        super().__init__(enabled=not mode)


class set_grad_enabled(_Switch):  # noqa: N801
    """Record or not within this block or function."""


def is_grad_enabled() -> bool:
    """Tell whether operations are recorded."""
    return MODE.enabled


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
        hooks: dict[int, list[Hook]] | None
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
        inputs: Leaves to stop at; all others keep their `grad`.

    """
    roots = list(_roots(_listed(tensors), _listed(grad_tensors), "backward"))
    only = None if inputs is None else {id(each) for each in _listed(inputs)}
    for each in _listed(inputs):
        if not each.is_leaf:
            raise GradError("backward: `inputs` must be leaves; tg.grad takes other tensors, too")
    _core.accumulate(roots, _retain(retain_graph, create_graph), create_graph, only)


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> tuple[Any, ...]:
    """Return the gradients of the sum of `outputs` by `inputs`, leaving every `grad` as it is."""
    roots = list(_roots(_listed(outputs), _listed(grad_outputs), "grad"))
    targets = _listed(inputs)
    for each in targets:
        if not each.requires_grad:
            raise GradError(
                "grad: expected inputs that require gradients; make them with requires_grad=True"
            )
    found: list[Any] = [None] * len(targets)
    leaves = {id(each): place for place, each in enumerate(targets) if each._node is None}
    wanted = {(each._node, each._index): place for place, each in enumerate(targets) if each._node}
    leading = _leading([edge for edge, _ in roots], leaves, {node for node, _ in wanted})
    retain = _retain(retain_graph, create_graph)
    _core.collect(roots, retain, create_graph, leaves, wanted, found, leading)
    by_identity: dict[Any, Any] = {}
    for place, each in enumerate(targets):  # one that is named twice was found once
        key = id(each) if each._node is None else (each._node, each._index)
        by_identity[key] = found[place] if found[place] is not None else by_identity.get(key)
    result = [
        by_identity[id(each) if each._node is None else (each._node, each._index)]
        for each in targets
    ]
    for place, gradient in enumerate(result):
        if gradient is None and not allow_unused:
            raise GradError(
                f"grad: input {place} does not take part in the outputs; allow_unused=True "
                "returns None for it"
            )
    return tuple(result)


def _retain(retain_graph: bool | None, create_graph: bool) -> bool:
    return create_graph if retain_graph is None else retain_graph


def _leading(edges: Iterable[Edge], leaves: dict[int, int], nodes: set[Node]) -> set[Node]:
    """Return the nodes from which a wanted leaf or node can be reached."""
    leading = set(nodes)
    order: list[Node] = []
    seen: set[Node] = set()
    waiting = [edge[0] for edge in edges if isinstance(edge, tuple)]
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            order.append(node)
            waiting += [edge[0] for edge in node.edges if isinstance(edge, tuple)]
    for node in sorted(order, key=lambda each: each.number):
        for edge in node.edges:
            reached = edge[0] in leading if isinstance(edge, tuple) else id(edge) in leaves
            if edge is not None and reached:
                leading.add(node)
    return leading


def _listed(given: Any) -> list[Any]:
    if given is None:
        return []
    return list(given) if isinstance(given, (list, tuple)) else [given]


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
    return weight
