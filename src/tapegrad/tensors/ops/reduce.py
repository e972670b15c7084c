"""Reductions over dimensions."""

# Arguments come in PyTorch's order.
# ruff: noqa: PLR0917

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from tapegrad import _core
from tapegrad.errors import DTypeError, OptionError, ShapeError
from tapegrad.tensors.autograd import Node
from tapegrad.tensors.fused import elementwise
from tapegrad.tensors.ops import dims as _dims
from tapegrad.tensors.ops import elementwise as _e
from tapegrad.tensors.ops.arithmetic import pow
from tapegrad.tensors.ops.composite import composite
from tapegrad.tensors.ops.shape import in_shape, widened
from tapegrad.tensors.registry import Cost, Draw, Sample, define

if TYPE_CHECKING:
    from tapegrad.tensors.methods import Tensor

_SAMPLES = [
    Sample((3, 4)),
    Sample((3, 4), dim=0),
    Sample((2, 3, 4), dim=-1, keepdim=True),
    Sample((2, 3, 4), dim=(0, 2)),
    Sample((1,)),
    Sample(()),
]
_ONE_DIM = [
    Sample((3, 4), dim=0),
    Sample((2, 3, 4), dim=-1, keepdim=True),
    Sample((5,), dim=0),
]


def _rule(x: Tensor, dims: tuple[int, ...], keepdim: bool) -> tuple[int, ...]:
    return _dims.reduced(x.shape, dims, keepdim)


def _cost(x: Tensor, **_: Any) -> Cost:
    return Cost(x.numel(), x.nbytes)


def _spread(node: Node, g: Tensor) -> Tensor:
    """Give a reduced dimension back, as one element."""
    shape = tuple(1 if d in node.attrs["dims"] else size for d, size in enumerate(node.shapes[0]))
    return in_shape(g, shape)


def _sum_vjp(node: Node, g: Tensor) -> Tensor:
    return widened(_spread(node, g), node.shapes[0])


_SUM = define(
    name="sum",
    doc="the sum over dimensions",
    rule=_rule,
    total=True,
    vjp=_sum_vjp,
    cost=_cost,
    samples=_SAMPLES,
    benchmark="sum",
)


def _prod_vjp(node: Node, g: Tensor) -> Tensor:
    """Multiply all others; by dividing where no element is 0."""
    x, dims = node.inputs[0], node.attrs["dims"]
    if bool(all(_e.ne(x, 0))):
        product: Tensor = _PROD(x, dims=dims, keepdim=True)
        found: Tensor = _spread(node, g) * product / x
        return found
    return _spread(node, g) * _others(x, dims)


def _others(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Return for each element the product of all others along the dimensions."""
    from tapegrad.tensors.ops.shape import backwards, cat

    rest = [d for d in range(x.ndim) if d not in dims]
    order = [*rest, *dims]
    moved = x.permute(order)
    flat = moved.reshape((*[x.shape[d] for d in rest], -1))
    one, last = flat[..., :1] * 0 + 1, [flat.ndim - 1]
    before = _running_product(cat([one, flat[..., :-1]], dim=-1))
    behind = backwards(cat([flat[..., 1:], one], dim=-1), last)
    after = backwards(_running_product(behind), last)
    back = [order.index(d) for d in range(x.ndim)]
    return (before * after).reshape(moved.shape).permute(back)


def _running_product(x: Tensor) -> Tensor:
    from tapegrad.tensors.ops.shape import stack

    found = [x[..., 0]]
    for i in range(1, x.shape[-1]):
        found.append(found[-1] * x[..., i])
    return stack(found, dim=-1)


_PROD = define(
    name="prod",
    doc="the product over dimensions",
    rule=_rule,
    total=True,
    vjp=_prod_vjp,
    saves=(0,),
    cost=_cost,
    samples=[Sample((3, 4)), Sample((3, 4), dim=0), Sample((2, 3), dim=1, keepdim=True)],
    benchmark="prod",
)


def _ties(node: Node, g: Tensor) -> Tensor:
    """Share the gradient among all elements that attain the extreme; NaN wins over all others."""
    x, dims = node.inputs[0], node.attrs["dims"]
    y = in_shape(node.output, _spread(node, g).shape).detach()
    chosen: Tensor = _attains(x.detach(), y)
    count: Tensor = _SUM(chosen, dims=dims, keepdim=True)
    return _spread(node, g) * chosen / count


@elementwise
def _attains(x: Any, extreme: Any) -> Any:
    f = _core.functions
    return f.where(f.eq(x, extreme), 1.0, f.ne(x, x))


_AMAX, _AMIN = [
    define(
        name=name,
        doc=f"the {word} over dimensions; ties share the gradient",
        rule=_rule,
        total=True,
        vjp=_ties,
        saves=(0,),
        keeps=(0,),
        cost=_cost,
        samples=_SAMPLES[:4],
        benchmark=name,
    )
    for name, word in (("amax", "largest"), ("amin", "smallest"))
]


def _picked(node: Node, g: Tensor, _: Any = None) -> Tensor:
    from tapegrad.tensors.ops.index import put_along

    dim, shape = node.attrs["dim"], node.shapes[0]
    if not shape:
        return g
    one = (*shape[:dim], 1, *shape[dim + 1 :])
    return put_along(shape, dim, in_shape(node.outputs[1], one), in_shape(g, one))


_MAX_DIM, _MIN_DIM = [
    define(
        name=f"{name}_dim",
        function=name,
        doc=f"the {word} along one dimension, and where it is",
        rule=lambda x, dim, keepdim: _dims.reduced(x.shape, (dim,), keepdim),
        total=True,
        vjp=_picked,
        keeps=(1,),
        results=2,
        cost=_cost,
        samples=_ONE_DIM,
    )
    for name, word in (("max", "largest"), ("min", "smallest"))
]


_ARGMAX, _ARGMIN = [
    define(
        name=f"arg{name}",
        doc=f"where the {word} element along a dimension is",
        rule=lambda x, dim, keepdim: _dims.reduced(x.shape, (dim,), keepdim),
        total=True,
        vjp=None,
        cost=_cost,
        samples=[Sample((3, 4)), *_ONE_DIM],
        benchmark=f"arg{name}",
    )
    for name, word in (("max", "largest"), ("min", "smallest"))
]


def _cumsum_vjp(node: Node, g: Tensor) -> Tensor:
    from tapegrad.tensors.ops.shape import backwards

    dim = node.attrs["dim"]
    return backwards(_CUMSUM(backwards(g, [dim]), dim=dim), [dim])


_CUMSUM = define(
    name="cumsum",
    doc="running sums along a dimension",
    rule=lambda x, dim: x.shape,
    vjp=_cumsum_vjp,
    cost=_cost,
    samples=[Sample((3, 4), dim=0), Sample((2, 3, 4), dim=-1), Sample((1,), dim=0)],
    benchmark="cumsum",
)
_ANY, _ALL = [
    define(
        name=name,
        doc=f"whether {name} element is not 0",
        rule=_rule,
        total=True,
        vjp=None,
        cost=_cost,
        samples=_SAMPLES[:3],
    )
    for name in ("any", "all")
]


class Extreme(NamedTuple):
    """The largest or smallest elements along a dimension, and where they are."""

    values: Tensor
    indices: Tensor


def sum(input: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """Return the sum over dimensions, of all elements if none is named.

    Whole numbers and bools have int64 sums; `dtype` names another type, in which they wrap around.
    """
    input = input if dtype is None else input.to(dtype)
    found: Tensor = _SUM(
        input, dims=_dims.several("sum", dim, input.ndim, keepdim), keepdim=keepdim
    )
    return found if dtype is None else found.to(dtype)


@composite(*_SAMPLES, benchmark="mean")
def mean(input: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """Return the mean over dimensions, of all elements if none is named."""
    input = input if dtype is None else input.to(dtype)
    _check_floating("mean", input)
    have = input._array.shape
    dims = _dims.several("mean", dim, len(have), keepdim)
    total: Tensor = _SUM(input, dims=dims, keepdim=keepdim)
    found: Tensor = total / math.prod([have[d] for d in dims])
    return found


def _check_floating(op: str, x: Tensor) -> None:
    if x._array.dtype.kind != "f":
        raise DTypeError(f"{op}: expected a floating point tensor, got {x.dtype}; use x.to(float)")


def prod(input: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """Return the product over dimensions, of all elements if none is named."""
    input = input if dtype is None else input.to(dtype)
    found: Tensor = _PROD(
        input, dims=_dims.several("prod", dim, input.ndim, keepdim), keepdim=keepdim
    )
    return found if dtype is None else found.to(dtype)


def _var_vjp(node: Node, g: Tensor) -> Tensor:
    x, dims = node.inputs[0], node.attrs["dims"]
    count = math.prod([node.shapes[0][d] for d in dims]) - node.attrs["correction"]
    far = x - mean(x, dims, keepdim=True)
    slope = far * (2 / count) if count > 0 else _e.where(_e.eq(far, 0), math.nan, math.inf)
    found: Tensor = _spread(node, g) * slope
    return found


_VAR = define(
    name="var",
    doc="the variance over dimensions",
    rule=lambda x, dims, keepdim, correction: _dims.reduced(x.shape, dims, keepdim),
    total=True,
    vjp=_var_vjp,
    saves=(0,),
    cost=_cost,
    samples=[
        *_SAMPLES[:4],
        Sample((3, 4), dim=1, unbiased=False),
        Sample((3, 4), dim=0, correction=2),
    ],
    benchmark="var",
)


def var(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> Tensor:
    """Return the variance over dimensions; `correction` is taken from the number of elements.

    That is 1, or 0 if `unbiased` is False, which may also be all that is given: x.var(False).
    """
    _check_floating("var", input)
    less: float = 1
    if unbiased is not None:
        if not isinstance(unbiased, bool):
            raise DTypeError(f"var: expected unbiased to be True or False, got {unbiased!r}")
        less = int(unbiased)
    elif dim is True or dim is False:
        dim, less = None, int(dim)
    if correction is not None:
        if not isinstance(correction, (int, float)):
            raise DTypeError(f"var: expected correction to be a number, got {correction!r}")
        less = correction
    dims = _dims.several("var", dim, input._array.ndim, keepdim)
    found: Tensor = _VAR(input, dims=dims, keepdim=keepdim, correction=less)
    return found


@composite(*_SAMPLES[:4], Sample((3, 4), dim=1, correction=0))
def std(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> Tensor:
    """Return the standard deviation over dimensions, as of `var`; at 0 its gradient is 0."""
    found: Tensor = _root(var(input, dim, unbiased, keepdim, correction=correction))
    return found


@elementwise
def _root(x: Any) -> Any:
    f = _core.functions
    return f.where(f.eq(x, 0.0), 0.0 * x, f.sqrt(x))


@elementwise
def _power(x: Any, exponent: Any) -> Any:
    f = _core.functions
    return f.where(f.eq(x, 0.0), 0.0 * x, f.pow(x, exponent))


def amax(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Return the largest elements over dimensions; ties share the gradient."""
    found: Tensor = _AMAX(
        input,
        dims=_filled("amax", input, _dims.several("amax", dim, input.ndim, keepdim)),
        keepdim=keepdim,
    )
    return found


def amin(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Return the smallest elements over dimensions; ties share the gradient."""
    found: Tensor = _AMIN(
        input,
        dims=_filled("amin", input, _dims.several("amin", dim, input.ndim, keepdim)),
        keepdim=keepdim,
    )
    return found


def _filled(op: str, x: Tensor, dims: tuple[int, ...]) -> tuple[int, ...]:
    """Return dimensions if there is something to choose from along them."""
    have = x._array.shape
    if 0 in have and not math.prod([have[d] for d in dims]):
        raise ShapeError(f"{op}: expected at least one element to choose, got shape {have}")
    return dims


def _place(op: str, dim: Any, ndim: int, keepdim: Any) -> int:
    """Return one dimension; `keepdim` is looked at as with several."""
    if not isinstance(keepdim, bool):
        _dims.several(op, None, ndim, keepdim)
    return _dims.one(op, dim, ndim)


def _extreme(
    name: str, op: Any, whole: Callable[..., Tensor], x: Tensor, dim: Any, keepdim: bool
) -> Any:
    if dim is None:
        return whole(x)
    place = _place(name, dim, x.ndim, keepdim)
    _filled(name, x, (place,))
    return Extreme(*op(x, dim=place, keepdim=keepdim))


@composite(Sample((3, 4)), *_ONE_DIM)
def max(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    """Return the largest element; along `dim`, also where each is; of two tensors the larger."""
    if other is not None or hasattr(dim, "_array"):
        return _e.maximum(input, _other("max", dim, other))
    return _extreme("max", _MAX_DIM, amax, input, dim, keepdim)


@composite(Sample((3, 4)), *_ONE_DIM)
def min(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    """Return the smallest element; along `dim`, also where each is; of two tensors the smaller."""
    if other is not None or hasattr(dim, "_array"):
        return _e.minimum(input, _other("min", dim, other))
    return _extreme("min", _MIN_DIM, amin, input, dim, keepdim)


def _other(op: str, dim: Any, other: Any) -> Any:
    """Return the second tensor, which may stand in the place of `dim`."""
    if other is not None and dim is not None:
        raise OptionError(f"{op}: expected dim or other, got both; leave one of them out")
    return dim if other is None else other


def _arg(op: Any, name: str, x: Tensor, dim: Any, keepdim: bool) -> Tensor:
    if dim is None:
        _filled(name, x, tuple(range(x.ndim)))
        found: Tensor = op(x.detach().reshape(-1), dim=0, keepdim=False)
        return found.reshape((1,) * x.ndim) if keepdim else found
    place = _place(name, dim, x._array.ndim, keepdim)
    _filled(name, x, (place,))
    indices: Tensor = op(x, dim=place, keepdim=keepdim)
    return indices


def argmax(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Return where the largest element is: along `dim`, or among all, counted in order."""
    return _arg(_ARGMAX, "argmax", input, dim, keepdim)


def argmin(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Return where the smallest element is: along `dim`, or among all, counted in order."""
    return _arg(_ARGMIN, "argmin", input, dim, keepdim)


@composite(
    *_SAMPLES[:4],
    Sample((3, 4), p=1, dim=1),
    Sample((3, 4), p=3.0),
    Sample((3, 4), p=float("inf"), dim=0, keepdim=True),
    Sample((3, 4), p=float("-inf"), dim=0),
    Sample(Draw((3, 4), grad=False), p=0),
    benchmark="norm",
)
def norm(
    input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    """Return the p-norm over dimensions, the root of the sum of squares if p is not named.

    At 0 its gradient is 0. Norms of matrices other than that one are not there.
    """
    input = input if dtype is None else input.to(dtype)
    if not input.is_floating_point():
        raise DTypeError(
            f"norm: expected a floating point tensor, got {input.dtype}; use x.to(float)"
        )
    if isinstance(p, bool) or not (p == "fro" or isinstance(p, (int, float))):
        raise OptionError(f"norm: expected p as a number or 'fro', got {p!r}")
    power = 2.0 if p == "fro" else float(p)
    if power == math.inf:
        return amax(_e.abs(input), dim, keepdim)
    if power == -math.inf:
        return amin(_e.abs(input), dim, keepdim)
    if power == 0.0:
        return sum(_e.ne(input, 0).to(input.dtype), dim, keepdim)
    if power == 1.0:
        return sum(_e.abs(input), dim, keepdim)
    if power < 0.0:
        _filled("norm", input, _dims.several("norm", dim, input.ndim, keepdim))
    size = _e.abs(input)
    if power < 1.0:  # the slope of a power is infinite at 0
        size = _e.where(_e.eq(input, 0), 0.0, size)
    total = sum(pow(size, power), dim, keepdim)
    found: Tensor = _root(total) if power == 2.0 else _power(total, 1 / power)
    return found


def cumsum(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Return running sums along a dimension."""
    input = input if dtype is None else input.to(dtype)
    found: Tensor = _CUMSUM(input, dim=_dims.one("cumsum", dim, input.ndim))
    return found if dtype is None else found.to(dtype)


def any(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Return whether any element is not 0."""
    found: Tensor = _ANY(input, dims=_dims.named("any", dim, input.ndim, keepdim), keepdim=keepdim)
    return found


def all(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Return whether all elements are not 0."""
    found: Tensor = _ALL(input, dims=_dims.named("all", dim, input.ndim, keepdim), keepdim=keepdim)
    return found


__all__ = [
    "all",
    "amax",
    "amin",
    "any",
    "argmax",
    "argmin",
    "cumsum",
    "max",
    "mean",
    "min",
    "norm",
    "prod",
    "std",
    "sum",
    "var",
]
