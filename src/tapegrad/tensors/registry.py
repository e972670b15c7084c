"""The op table: one record per operation, and how a record is applied to tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tapegrad.backends import Backend
from tapegrad.errors import DeviceError, DTypeError
from tapegrad.tensors.autograd import MODE, Node, edge_of
from tapegrad.tensors.base import TensorBase, wrap

if TYPE_CHECKING:
    from tapegrad.tensors.methods import Tensor


@dataclass(frozen=True)
class Cost:
    """What an operation has to do at least: arithmetic, and bytes read and written."""

    flops: float
    bytes: float


@dataclass(frozen=True)
class Draw:
    """How tests draw an operand: its shape, and from where."""

    shape: tuple[int, ...]
    low: float = -2.0
    high: float = 2.0
    #: The number type of whole-number operands; None: the floating point type on test.
    dtype: str | None = None


@dataclass(frozen=True, init=False)
class Sample:
    """Arguments for the operation's function: operands by shape or Draw, then the others."""

    operands: tuple[Draw, ...]
    options: dict[str, Any]

    def __init__(self, *operands: tuple[int, ...] | Draw, **options: Any) -> None:
        drawn = tuple(each if isinstance(each, Draw) else Draw(each) for each in operands)
        object.__setattr__(self, "operands", drawn)
        object.__setattr__(self, "options", options)


@dataclass(frozen=True, eq=False)
class Op:
    """One operation: what it is, when it may be applied, its gradient, cost and samples.

    Kernels are the backends': each has one under the operation's name.
    """

    name: str
    doc: str
    #: Checks operands and attributes; returns the shapes of the results.
    rule: Callable[..., Any]
    #: Gradients by the operands, written in operations: vjp(node, *gradients of the results).
    #: None: results have no gradient.
    vjp: Callable[..., Any] | None
    cost: Callable[..., Cost]
    samples: Sequence[Sample]
    #: The function of `tapegrad` that users call, if it has another name.
    function: str = ""
    #: Its name among the bench's operators, "" if that has none.
    benchmark: str = ""
    #: Operands and results that the gradient looks at.
    saves: tuple[int, ...] = ()
    keeps: tuple[int, ...] = ()
    #: How many results there are, and how many of them (the first) have gradients.
    results: int = 1
    differentiable: int = 1
    #: How often it can be differentiated by its rule alone, for the tests.
    orders: int = 2
    options: dict[str, Any] = field(default_factory=dict)

    def __call__(self, *inputs: Tensor, **attrs: Any) -> Any:
        """Apply it, and record that if a gradient may be wanted."""
        device = common_device(self.name, inputs)
        self.rule(*inputs, **attrs)
        kernel = device.kernels[self.name]
        found = kernel(*[None if x is None else x._array for x in inputs], **attrs)
        if self.results == 1:
            out = wrap(found, device)
            outs: tuple[Tensor, ...] = (out,)
        else:
            outs = tuple([wrap(each, device) for each in found])
        if MODE.enabled and self.vjp is not None:
            for x in inputs:
                if x is not None and x._requires_grad:
                    self._record(inputs, outs, attrs, device)
                    break
        return outs[0] if self.results == 1 else outs

    def _record(
        self,
        inputs: tuple[Any, ...],
        outs: tuple[Tensor, ...],
        attrs: dict[str, Any],
        device: Backend,
    ) -> None:
        node = Node(
            self,
            tuple([None if x is None else edge_of(x) for x in inputs]),
            tuple([x if i in self.saves else None for i, x in enumerate(inputs)]),
            tuple([None if x is None else x._array.shape for x in inputs]),
            tuple([None if x is None else x._array.dtype for x in inputs]),
            attrs,
            device,
        )
        node.count = len(outs)
        if self.keeps:
            node.keep([out if i in self.keeps else None for i, out in enumerate(outs)])
        for index, out in enumerate(outs[: self.differentiable]):
            out._requires_grad = True
            out._node = node
            out._index = index

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return find, (self.name,)


#: All operations by name.
REGISTRY: dict[str, Any] = {}


def define(**fields: Any) -> Op:
    """Enter an operation into the table."""
    op = Op(**fields)
    REGISTRY[op.name] = op
    return op


def find(name: str) -> Any:
    """Return the operation of this name."""
    return REGISTRY[name]


def common_device(name: str, inputs: Sequence[Any]) -> Backend:
    """Return the device of all operands."""
    device: Backend | None = None
    for x in inputs:
        if x is None:
            continue
        if not isinstance(x, TensorBase):
            raise DTypeError(f"{name}: expected tensors, got {type(x).__name__}")
        if device is None:
            device = x._device
        elif x._device is not device:
            raise DeviceError(
                f"{name}: expected tensors of one device, got {device.name} and "
                f"{x._device.name}; move one with .to({device.name!r})"
            )
    if device is None:
        raise DTypeError(f"{name}: expected at least one tensor, got none")
    return device


def moved(*shapes: Sequence[int], flops: float = 0, itemsize: int = 4) -> Cost:
    """Return the cost of touching arrays of these shapes once."""
    return Cost(flops, itemsize * sum(math.prod(shape) for shape in shapes))


def raw(name: str, *inputs: Tensor | None, **attrs: Any) -> Any:
    """Run a backend's kernel that is no operation: a gradient in one piece, not recorded."""
    device = common_device(name, inputs)
    found = device.kernels[name](*[None if x is None else x._array for x in inputs], **attrs)
    if isinstance(found, tuple):
        return tuple(None if each is None else wrap(each, device) for each in found)
    return wrap(found, device)
