"""Elementwise operations. All of them are lines of the scalar op table; see `fused`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tapegrad import _core
from tapegrad.errors import DTypeError
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
        self.function = None if self.name == "masked_mul" else self.name
        self.benchmark = self.name if self.name in _BENCHED else ""
        low, high = _DOMAINS[str(line["domain"])]
        shapes: list[list[tuple[int, ...]]] = [[(3, 4)], [()], [(0, 2)], [(1,)]]
        if self.arity == 2:
            shapes = [[(3, 4), (3, 4)], [(3, 4), (4,)], [(2, 1, 3), (4, 1)], [(), (3,)]]
        self.samples = [Sample(Draw(first, low, high), *others) for first, *others in shapes]

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


def _unary(name: str) -> Callable[[Tensor], Tensor]:
    op = TABLE[name]

    def function(x: Tensor) -> Tensor:
        if not isinstance(x, TensorBase):
            raise DTypeError(f"{name}: expected a tensor, got {type(x).__name__}")
        return op.unary(x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return {op.doc}, element by element."
    return function


def _binary(name: str) -> Callable[[Any, Any], Tensor]:
    op = TABLE[name]

    def function(a: Any, b: Any) -> Tensor:
        if not (isinstance(a, TensorBase) or isinstance(b, TensorBase)):
            raise DTypeError(f"{name}: expected at least one tensor, got {type(a).__name__}")
        return op.binary(a, b)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return {op.doc}, element by element; operands broadcast."
    return function


neg, sqrt, square, exp, expm1, log, log1p, log2, log10 = map(
    _unary, ("neg", "sqrt", "square", "exp", "expm1", "log", "log1p", "log2", "log10")
)
sin, cos, tan, asin, acos, atan, sinh, cosh, tanh = map(
    _unary, ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh")
)
sigmoid, relu, erf, erfc, abs, sign, floor, ceil = map(
    _unary, ("sigmoid", "relu", "erf", "erfc", "abs", "sign", "floor", "ceil")
)
mul, div, pow, atan2, hypot, minimum, maximum = map(
    _binary, ("mul", "div", "pow", "atan2", "hypot", "minimum", "maximum")
)
_plain_add, _plain_sub = map(_binary, ("add", "sub"))
lt, le, gt, ge, eq, ne = map(_binary, ("lt", "le", "gt", "ge", "eq", "ne"))
_gelu, _softplus = map(_unary, ("gelu", "softplus"))


def add(a: Any, b: Any, *, alpha: Any = 1) -> Tensor:
    """Return a + alpha * b, element by element; operands broadcast."""
    return _plain_add(a, b if alpha == 1 else b * alpha)


def sub(a: Any, b: Any, *, alpha: Any = 1) -> Tensor:
    """Return a - alpha * b, element by element; operands broadcast."""
    return _plain_sub(a, b if alpha == 1 else b * alpha)


def _where_rule(c: Tensor, a: Tensor, b: Tensor) -> None:
    if not isinstance(c, TensorBase):
        raise DTypeError(f"where: expected a tensor as condition, got {type(c).__name__}")


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
    rule=_where_rule,
    vjp=_where_vjp,
    saves=(0,),
    cost=lambda c, a, b: moved(c.shape, c.shape, c.shape, c.shape),
    samples=[Sample(Draw((3, 4), 0, 2, "bool"), (3, 4), (4,))],
    benchmark="where",
)


def where(condition: Tensor, a: Any, b: Any) -> Tensor:
    """Return a where the condition holds, else b; what is not chosen gets no gradient."""
    from tapegrad.tensors.creation import scalar_like

    like: Any = next((x for x in (a, b) if isinstance(x, TensorBase)), condition)
    found: Tensor = _WHERE(condition, scalar_like(a, like), scalar_like(b, like))
    return found


@composite(Sample((3, 4), Draw((4,), 0, 2, "bool"), value=-1.5))
def masked_fill(x: Tensor, mask: Tensor, value: Any) -> Tensor:
    """Return x with `value` where the mask holds."""
    return where(mask, value, x)


@composite(
    Sample((3, 4), min=-0.5),
    Sample((3, 4), max=0.4),
    Sample((3, 4), min=-0.5, max=0.4),
    Sample((3, 4), (4,), (3, 1)),
    benchmark="clip",
)
def clamp(x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Return x within bounds; the gradient passes where x is not beyond them."""
    if min is None and max is None:
        raise DTypeError("clamp: expected min, max or both, got neither")
    if min is not None:
        x = where(lt(x, min), min, x)
    if max is not None:
        x = where(gt(x, max), max, x)
    return x


@composite(Sample(Draw((3, 4), 0.3, 2)))
def reciprocal(x: Tensor) -> Tensor:
    """Return 1 / x."""
    return div(1.0, x)


@composite(Sample(Draw((3, 4), 0.3, 2)), benchmark="rsqrt")
def rsqrt(x: Tensor) -> Tensor:
    """Return 1 / sqrt(x)."""
    return div(1.0, sqrt(x))


@composite(Sample(Draw((3, 4), 0, 2, "bool")), Sample(Draw((3, 4), 0, 3, "int64")))
def logical_not(x: Tensor) -> Tensor:
    """Return whether each element is 0."""
    return eq(x, 0)


@composite(Sample(Draw((3, 4), 0, 2, "bool"), Draw((4,), 0, 2, "bool")))
def logical_and(a: Tensor, b: Tensor) -> Tensor:
    """Return whether both elements are not 0."""
    return mul(ne(a, 0), ne(b, 0))


@composite(Sample(Draw((3, 4), 0, 2, "bool"), Draw((4,), 0, 2, "bool")))
def logical_or(a: Tensor, b: Tensor) -> Tensor:
    """Return whether one of both elements is not 0."""
    return maximum(ne(a, 0), ne(b, 0))


@composite(Sample((3, 4)))
def isnan(x: Tensor) -> Tensor:
    """Return which elements are NaN."""
    return ne(x, x)


@composite(Sample((3, 4)))
def isinf(x: Tensor) -> Tensor:
    """Return which elements are infinite."""
    return eq(abs(x), float("inf"))


@composite(Sample((3, 4)))
def isfinite(x: Tensor) -> Tensor:
    """Return which elements are neither infinite nor NaN."""
    return lt(abs(x), float("inf"))


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
def _scaled_softplus(x: Any, beta: Any, threshold: Any) -> Any:
    f = _core.functions
    return f.where(f.gt(beta * x, threshold), x, f.softplus(beta * x) / beta)


@composite(Sample((3, 4)), Sample(()), benchmark="silu")
def silu(x: Tensor) -> Tensor:
    """Return x * sigmoid(x)."""
    found: Tensor = _silu(x)
    return found


@composite(Sample((3, 4), approximate="tanh"), Sample((3, 4), approximate="none"))
def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """Return x times the normal distribution of x, or its approximation by tanh."""
    if approximate not in ("none", "tanh"):
        raise DTypeError(f"gelu: expected approximate 'none' or 'tanh', got {approximate!r}")
    found: Tensor = _gelu(x) if approximate == "none" else _tanh_gelu(x)
    return found


@composite(Sample((3, 4)), Sample((3, 4), negative_slope=0.2), benchmark="leaky_relu")
def leaky_relu(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    """Return x, or negative_slope * x below 0."""
    found: Tensor = _sloped_relu(x, negative_slope)
    return found


@composite(Sample((3, 4)), Sample((3, 4), alpha=0.5), benchmark="elu")
def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """Return x, or alpha * (exp(x) - 1) below 0."""
    found: Tensor = _elu(x, alpha)
    return found


@composite(
    Sample((3, 4)), Sample((3, 4), beta=2.0), Sample((3, 4), threshold=0.5), benchmark="softplus"
)
def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Return log(1 + exp(beta * x)) / beta, and x itself where beta * x is above the threshold."""
    found: Tensor = _scaled_softplus(x, beta, threshold)
    return found


__all__ = [
    "abs",
    "acos",
    "add",
    "asin",
    "atan",
    "atan2",
    "ceil",
    "clamp",
    "cos",
    "cosh",
    "div",
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
    "lt",
    "masked_fill",
    "maximum",
    "minimum",
    "mul",
    "ne",
    "neg",
    "pow",
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
    "square",
    "sub",
    "tan",
    "tanh",
    "where",
]
