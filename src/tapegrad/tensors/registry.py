"""The op table: one record per operation, and how a record is applied to tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tapegrad import _core
from tapegrad.backends import Backend
from tapegrad.errors import DeviceError, DTypeError
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
    #: Whether its gradient is asked for.
    grad: bool = True


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
class Op(_core.OpState):
    """One operation: what it is, when it may be applied, its gradient, cost and samples.

    Kernels are the backends': each has one under the operation's name. A call op(*tensors, **attrs)
    is native: the rule, the kernel of the tensors' device, and a node if a gradient may be wanted.
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
    #: The function of `tapegrad` that users call, if it has another name; None: there is none.
    function: str | None = ""
    #: Its name among the bench's operators, "" if that has none.
    benchmark: str = ""
    #: Operands and results that the gradient looks at; operands may be named for each gradient, by
    #: the operand that it is of: what nobody needs is not saved, and may be changed.
    saves: tuple[int, ...] | Mapping[int, tuple[int, ...]] = ()
    keeps: tuple[int, ...] = ()
    #: How many results there are, and how many of them (the first) have gradients.
    results: int = 1
    differentiable: int = 1
    #: Whether the rule has nothing to check, and is asked for shapes alone.
    total: bool = False
    #: Whether the result may lie on the memory of the operand: changes show in both.
    view: bool = False
    #: How often it can be differentiated by its rule alone, for the tests.
    orders: int = 2
    #: Whether it is a kernel of its device; a way between devices is none.
    has_kernel: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._set_up(
            self.name,
            rule=None if self.total else self.rule,
            vjp=self.vjp,
            plans=self.plans,
            results=self.results,
            tied=self.differentiable,
            view=self.view,
        )

    @property
    def plans(self) -> tuple[int | tuple[int, ...], int]:
        """What a node saves, as bits of operands (of all, or for each gradient) and of results."""
        if not isinstance(self.saves, Mapping):
            return _bits(self.saves), _bits(self.keeps)
        count = max(self.saves) + 1
        return tuple(_bits(self.saves.get(i, ())) for i in range(count)), _bits(self.keeps)

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return find, (self.name,)


def _bits(places: Iterable[int]) -> int:
    return sum(1 << place for place in places)


#: All operations by name.
REGISTRY: dict[str, Any] = {}


def define(kind: type[Op] = Op, **fields: Any) -> Op:
    """Enter an operation into the table."""
    op = kind(**fields)
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
            raise DTypeError(
                f"{name}: expected tensors, got {type(x).__name__}; make one with tg.tensor"
            )
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
