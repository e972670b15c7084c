"""Elementwise operations. All of them are lines of the scalar op table; see `fused`.

Those whose types or options need more than a line are in `arithmetic`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from tapegrad import _core
from tapegrad.errors import DTypeError, ShapeError
from tapegrad.tensors.arguments import asks
from tapegrad.tensors.autograd import Node
from tapegrad.tensors.base import TensorBase
from tapegrad.tensors.fused import Elementwise, elementwise
from tapegrad.tensors.ops import dims as _dims
from tapegrad.tensors.ops.composite import composite
from tapegrad.tensors.registry import REGISTRY, Cost, Draw, Sample, define, moved

if TYPE_CHECKING:
    from tapegrad.tensors.methods import Tensor

#: From where tests draw the first operand, by the table's domains.
_DOMAINS = {
    "real": (-2.0, 2.0),
    "positive": (0.2, 2.0),
    "above_minus_one": (-0.8, 2.0),
    "unit": (-0.9, 0.9),
}
#: The table's operations that the bench has, too.
_BENCHED = (
    *("exp", "log", "sqrt", "sin", "tanh", "sigmoid", "erf", "abs", "square"),
    *("add", "sub", "mul", "div", "maximum", "pow", "relu", "gelu"),
)


class TableOp(Elementwise):
    """A line of the scalar op table as a record of this one."""

    results = differentiable = 1
    orders = 2

    def __init__(self, line: Mapping[str, Any]) -> None:
        super().__init__(str(line["name"]), int(line["arity"]), str(line["doc"]))
        self.function = None if self.name.startswith("masked_") else self.name
        self.benchmark = self.name if self.name in _BENCHED else ""
        low, high = _DOMAINS[str(line["domain"])]
        shapes: list[list[tuple[int, ...]]] = [[(3, 4)], [()], [(0, 2)], [(1,)]]
        if self.arity == 2:
            shapes = [[(3, 4), (3, 4)], [(3, 4), (4,)], [(2, 1, 3), (4, 1)], [(), (3,)]]
        smooth = self.name != "floor_divide"  # PyTorch has no derivative of it, not even 0
        self.samples = [
            Sample(
                Draw(first, low, high, grad=smooth), *[Draw(each, grad=smooth) for each in others]
            )
            for first, *others in shapes
        ]

    def rule(self, *operands: Tensor) -> tuple[int, ...]:
        """Return the shape of the result; the kernels check it."""
        return _dims.broadcast(self.name, *[x.shape for x in operands])

    def cost(self, *operands: Tensor) -> Cost:
        """Return the bytes of operands and result; and one operation per element."""
        shape = self.rule(*operands)
        return moved(*[x.shape for x in operands], shape, flops=math.prod(shape))


#: The table's operations by name.
TABLE: dict[str, Elementwise] = {}
for _line in _core.op_table():
    _op = TableOp(_line)
    TABLE[_op.name] = REGISTRY[_op.name] = _op


def unary(name: str) -> Callable[[Tensor], Tensor]:
    op = TABLE[name]

    def function(input: Tensor) -> Tensor:
        if not isinstance(input, TensorBase):
            raise DTypeError(f"{name}: expected a tensor, got {type(input).__name__}")
        return op.unary(input)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return {op.doc}, element by element."
    return asks(function)


#: What elementwise operations take: tensors, and numbers beside a tensor.
OPERANDS = (TensorBase, int, float, np.integer, np.floating, np.bool_)


def no_operands(name: str, input: Any, other: Any) -> DTypeError:
    kinds = " and ".join(type(each).__name__ for each in (input, other))
    return DTypeError(
        f"{name}: expected a tensor and a tensor or a number, got {kinds}; "
        "make tensors with tg.tensor"
    )


def binary(name: str) -> Callable[[Any, Any], Tensor]:
    op = TABLE[name]

    def function(input: Any, other: Any) -> Tensor:
        if isinstance(input, TensorBase):
            if isinstance(other, OPERANDS):
                return op.binary(input, other)
        elif isinstance(other, TensorBase) and isinstance(input, OPERANDS):
            return op.binary(input, other)
        raise no_operands(name, input, other)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return {op.doc}, element by element; operands broadcast."
    return asks(function)


neg, sqrt, exp, expm1, log, log1p, log2, log10 = map(
    unary, ("neg", "sqrt", "exp", "expm1", "log", "log1p", "log2", "log10")
)
sin, cos, tan, asin, acos, atan, sinh, cosh, tanh = map(
    unary, ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh")
)
sigmoid, relu, erf, erfc, abs, sign, floor, ceil, trunc = map(
    unary, ("sigmoid", "relu", "erf", "erfc", "abs", "sign", "floor", "ceil", "trunc")
)
mul, atan2, hypot, minimum, maximum = map(binary, ("mul", "atan2", "hypot", "minimum", "maximum"))
_add, _sub, _div = map(binary, ("add", "sub", "div"))
masked_mul, masked_both = map(binary, ("masked_mul", "masked_both"))
lt, le, gt, ge, eq, ne = map(binary, ("lt", "le", "gt", "ge", "eq", "ne"))
_gelu, _softplus = map(unary, ("gelu", "softplus"))


def _where_vjp(node: Node, g: Tensor) -> tuple[Any, ...]:
    condition = node.inputs[0]
    needs = node.needs
    return (
        None,
        where(condition, g, 0.0) if needs[1] else None,
        where(condition, 0.0, g) if needs[2] else None,
    )


_WHERE = define(
    name="where",
    doc="a where the condition holds, else b",
    rule=lambda c, a, b: _dims.broadcast("where", c.shape, a.shape, b.shape),
    total=True,
    vjp=_where_vjp,
    saves=(0,),
    cost=lambda c, a, b: moved(c.shape, c.shape, c.shape, c.shape),
    samples=[Sample(Draw((3, 4), 0, 2, "bool"), (3, 4), (4,))],
    benchmark="where",
)


@overload
def where(condition: Tensor) -> tuple[Tensor, ...]: ...
@overload
def where(condition: Tensor, input: Any, other: Any) -> Tensor: ...
def where(condition: Tensor, input: Any = None, other: Any = None) -> Any:
    """Return a where the condition holds, else b; what is not chosen gets no gradient.

    Of a condition alone, return where it holds: a tensor of places per dimension.
    """
    if not isinstance(input, TensorBase) or not isinstance(other, TensorBase):
        if input is None and other is None:
            from tapegrad.tensors.ops.search import nonzero

            return nonzero(condition, as_tuple=True)
        input, other = _alike(condition, input, other)
    return _WHERE(condition, input, other)


def _alike(condition: Tensor, a: Any, b: Any) -> tuple[Tensor, Tensor]:
    """Return numbers as tensors of the type of the other operand."""
    from tapegrad.tensors.creation import scalar_like

    tensors: list[Any] = [x for x in (a, b, condition) if isinstance(x, TensorBase)]
    if not tensors:
        raise DTypeError(f"where: expected a tensor as condition, got {type(condition).__name__}")
    return scalar_like("where", a, tensors[0]), scalar_like("where", b, tensors[0])


@composite(Sample((3, 4), Draw((4,), 0, 2, "bool"), value=-1.5))
def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """Return x with `value`, one number, where the mask holds; the type is that of x."""
    from tapegrad.tensors.creation import number_like

    if mask._array.dtype.kind != "b":
        raise DTypeError(f"masked_fill: expected a mask of bool, got {mask.dtype}; use mask.bool()")
    if isinstance(value, TensorBase) and value._array.ndim:
        raise ShapeError(
            f"masked_fill: expected one number as value, got shape {value.shape}; "
            "use tg.where(mask, value, x)"
        )
    return where(mask, number_like("masked_fill", value, input), input)


@composite(
    Sample((3, 4), min=-0.5),
    Sample((3, 4), max=0.4),
    Sample((3, 4), min=-0.5, max=0.4),
    Sample((3, 4), (4,), (3, 1)),
    benchmark="clip",
)
def clamp(input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Return x within bounds; the gradient passes where x is not beyond them."""
    low, high = (-math.inf if min is None else min), (math.inf if max is None else max)
    if min is max is None:
        raise DTypeError("clamp: expected min, max or both, got neither")
    if _is_definite(low) and _is_definite(high) and input._array.dtype.kind == "f":
        found: Tensor = _bounded(input, low, high)
        return found
    for bound in (low, high):
        if not isinstance(bound, OPERANDS):
            raise no_operands("clamp", input, bound)
    if any(_is_nan(bound) for bound in (low, high)):
        return _add(mul(input, 0), math.nan)
    if min is not None:
        input = where(_beyond(lt(input, min), min), min, input)
    if max is not None:
        input = where(_beyond(gt(input, max), max), max, input)
    return input


@composite(Sample((3, 4), min=-0.5), Sample((3, 4), (4,)))
def clamp_min(input: Tensor, min: Any) -> Tensor:
    """Return x, or the bound where x is below it."""
    return clamp(input, min)


@composite(Sample((3, 4), max=0.4), Sample((3, 4), (4,)))
def clamp_max(input: Tensor, max: Any) -> Tensor:
    """Return x, or the bound where x is above it."""
    return clamp(input, None, max)


@composite(Sample((3, 4), min=-0.5, max=0.4))
def clip(input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Return x within bounds, as `clamp` does."""
    return clamp(input, min, max)


def _beyond(found: Tensor, bound: Any) -> Tensor:
    """Return where a bound counts: what lies beyond it, and all where it is NaN."""
    return maximum(found, ne(bound, bound)) if isinstance(bound, TensorBase) else found


@composite(Sample(Draw((3, 4), 0.3, 2)))
def reciprocal(input: Tensor) -> Tensor:
    """Return 1 / x."""
    return _div(1.0, input)


@composite(Sample(Draw((3, 4), 0.3, 2)), benchmark="rsqrt")
def rsqrt(input: Tensor) -> Tensor:
    """Return 1 / sqrt(x)."""
    return _div(1.0, sqrt(input))


@composite(Sample(Draw((3, 4), 0, 2, "bool")), Sample(Draw((3, 4), 0, 3, "int64")))
def logical_not(input: Tensor) -> Tensor:
    """Return whether each element is 0."""
    return eq(input, 0)


@composite(Sample(Draw((3, 4), 0, 2, "bool"), Draw((4,), 0, 2, "bool")))
def logical_and(input: Tensor, other: Tensor) -> Tensor:
    """Return whether both elements are not 0."""
    return mul(ne(input, 0), ne(other, 0))


@composite(Sample(Draw((3, 4), 0, 2, "bool"), Draw((4,), 0, 2, "bool")))
def logical_or(input: Tensor, other: Tensor) -> Tensor:
    """Return whether one of both elements is not 0."""
    return maximum(ne(input, 0), ne(other, 0))


@composite(Sample(Draw((3, 4), 0, 2, "bool"), Draw((4,), 0, 2, "bool")))
def logical_xor(input: Tensor, other: Tensor) -> Tensor:
    """Return whether just one of both elements is not 0."""
    return ne(ne(input, 0), ne(other, 0))


@composite(Sample((3, 4), (4,)), Sample((3, 4), (3, 4), rtol=0.5, atol=0.2))
def isclose(
    input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Tensor:
    """Return which elements differ by at most atol + rtol * |b|, or are the same infinity."""
    input, other = (x.to("int32") if x._array.dtype.kind == "b" else x for x in (input, other))
    near = le(abs(_sub(input, other)), _add(mul(abs(other), rtol), atol))
    found = maximum(eq(input, other), mul(near, isfinite(other)))
    return maximum(found, mul(isnan(input), isnan(other))) if equal_nan else found


@composite(Sample((3, 4)))
def isnan(input: Tensor) -> Tensor:
    """Return which elements are NaN."""
    return ne(input, input)


@composite(Sample((3, 4)))
def isinf(input: Tensor) -> Tensor:
    """Return which elements are infinite."""
    return eq(abs(input), float("inf"))


@composite(Sample((3, 4)))
def isfinite(input: Tensor) -> Tensor:
    """Return which elements are neither infinite nor NaN."""
    return lt(abs(input), float("inf"))


def _is_nan(bound: Any) -> bool:
    return isinstance(bound, float) and math.isnan(bound)


def _is_definite(bound: Any) -> bool:
    """Tell whether a bound is a number of Python's, and not NaN."""
    return isinstance(bound, (int, float)) and bound == bound  # noqa: PLR0124


@elementwise
def _silu(x: Any) -> Any:
    return x * _core.functions.sigmoid(x)


@elementwise
def _tanh_gelu(x: Any) -> Any:
    inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1.0 + _core.functions.tanh(inner))


@elementwise
def _sloped_relu(x: Any, slope: Any) -> Any:
    return _core.functions.where(_core.functions.gt(x, 0.0), x, slope * x)


@elementwise
def _elu(x: Any, alpha: Any) -> Any:
    f = _core.functions
    return f.where(f.gt(x, 0.0), x, alpha * f.expm1(x))


@elementwise
def _bounded(x: Any, low: Any, high: Any) -> Any:
    f = _core.functions
    above = f.where(f.lt(x, low), low, x)
    return f.where(f.gt(above, high), high, above)


@elementwise
def _scaled_softplus(x: Any, beta: Any, threshold: Any) -> Any:
    f = _core.functions
    return f.where(f.gt(beta * x, threshold), x, f.softplus(beta * x) / beta)


@composite(Sample((3, 4)), Sample(()), benchmark="silu")
def silu(input: Tensor) -> Tensor:
    """Return x * sigmoid(x)."""
    found: Tensor = _silu(input)
    return found


@composite(Sample((3, 4), approximate="tanh"), Sample((3, 4), approximate="none"))
def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """Return x times the normal distribution of x, or its approximation by tanh."""
    if approximate not in ("none", "tanh"):
        raise DTypeError(f"gelu: expected approximate 'none' or 'tanh', got {approximate!r}")
    found: Tensor = _gelu(input) if approximate == "none" else _tanh_gelu(input)
    return found


@composite(Sample((3, 4)), Sample((3, 4), negative_slope=0.2), benchmark="leaky_relu")
def leaky_relu(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """Return x, or negative_slope * x below 0."""
    found: Tensor = _sloped_relu(input, negative_slope)
    return found


@composite(Sample((3, 4)), Sample((3, 4), alpha=0.5), benchmark="elu")
def elu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """Return x, or alpha * (exp(x) - 1) below 0."""
    found: Tensor = _elu(input, alpha)
    return found


@composite(
    Sample((3, 4)), Sample((3, 4), beta=2.0), Sample((3, 4), threshold=0.5), benchmark="softplus"
)
def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Return log(1 + exp(beta * x)) / beta, and x itself where beta * x is above the threshold."""
    found: Tensor = _scaled_softplus(input, beta, threshold)
    return found


__all__ = [
    "abs",
    "acos",
    "asin",
    "atan",
    "atan2",
    "ceil",
    "clamp",
    "clamp_max",
    "clamp_min",
    "clip",
    "cos",
    "cosh",
    "elu",
    "eq",
    "erf",
    "erfc",
    "exp",
    "expm1",
    "floor",
    "ge",
    "gelu",
    "gt",
    "hypot",
    "isclose",
    "isfinite",
    "isinf",
    "isnan",
    "le",
    "leaky_relu",
    "log",
    "log1p",
    "log2",
    "log10",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "lt",
    "masked_fill",
    "maximum",
    "minimum",
    "mul",
    "ne",
    "neg",
    "reciprocal",
    "relu",
    "rsqrt",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "sinh",
    "softplus",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
    "where",
]
