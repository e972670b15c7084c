"""Exponentials normalised along a dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tapegrad.errors import DTypeError
from tapegrad.tensors.autograd import MODE, Node
from tapegrad.tensors.ops import dims as _dims
from tapegrad.tensors.ops import elementwise as _e
from tapegrad.tensors.registry import Cost, Sample, define, raw

if TYPE_CHECKING:
    from tapegrad.tensors.methods import Tensor

_SAMPLES = [
    Sample((3, 4), dim=-1),
    Sample((2, 3, 4), dim=1),
    Sample((5,), dim=0),
    Sample((2, 1), dim=1),
]


def _check_floating(op: str, x: Tensor) -> None:
    if x._array.dtype.kind != "f":
        raise DTypeError(f"{op}: expected a floating point tensor, got {x.dtype}; use x.float()")


def _rule(name: str) -> Callable[..., tuple[int, ...]]:
    def rule(x: Tensor, dim: int) -> tuple[int, ...]:
        _check_floating(name, x)
        return x.shape

    return rule


def _cost(x: Tensor, **_: Any) -> Cost:
    return Cost(5 * x.numel(), 2 * x.nbytes)


def _softmax_vjp(node: Node, g: Tensor) -> Tensor:
    y, dim = node.output, node.attrs["dim"]
    if not MODE.enabled:
        found: Tensor = raw("softmax_backward", g, y, dim=dim)
        return found
    return y * (g - (g * y).sum(dim, keepdim=True))


def _log_softmax_vjp(node: Node, g: Tensor) -> Tensor:
    y, dim = node.output, node.attrs["dim"]
    if not MODE.enabled:
        found: Tensor = raw("log_softmax_backward", g, y, dim=dim)
        return found
    return g - _e.exp(y) * g.sum(dim, keepdim=True)


_SOFTMAX, _LOG_SOFTMAX = [
    define(
        name=name,
        doc=doc,
        rule=_rule(name),
        vjp=vjp,
        keeps=(0,),
        cost=_cost,
        samples=_SAMPLES,
        benchmark=name,
    )
    for name, doc, vjp in (
        ("softmax", "exponentials divided by their sum along a dimension", _softmax_vjp),
        ("log_softmax", "the logarithm of softmax", _log_softmax_vjp),
    )
]


def softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """Return exponentials divided by their sum along a dimension."""
    input = input if dtype is None else input.to(dtype)
    found: Tensor = _SOFTMAX(input, dim=_dims.one("softmax", dim, input.ndim))
    return found


def log_softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """Return the logarithm of softmax, accurate where that is tiny."""
    input = input if dtype is None else input.to(dtype)
    found: Tensor = _LOG_SOFTMAX(input, dim=_dims.one("log_softmax", dim, input.ndim))
    return found


def _logsumexp_vjp(node: Node, g: Tensor) -> Tensor:
    x, dims = node.inputs[0], node.attrs["dims"]
    shape = tuple(1 if d in dims else size for d, size in enumerate(x.shape))
    y = node.output.reshape(shape)
    nothing = _e.eq(y.detach(), float("-inf"))  # the sum of nothing: no gradient
    return g.reshape(shape) * _e.exp(x - _e.where(nothing, 0.0, y))


_LOGSUMEXP = define(
    name="logsumexp",
    doc="the logarithm of the sum of exponentials over dimensions",
    rule=lambda x, dims, keepdim: _dims.reduced(x.shape, dims, keepdim),
    vjp=_logsumexp_vjp,
    saves=(0,),
    keeps=(0,),
    cost=_cost,
    samples=[
        Sample((3, 4), dim=-1),
        Sample((2, 3, 4), dim=(0, 2), keepdim=True),
    ],
    benchmark="logsumexp",
)


def logsumexp(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """Return log(sum(exp(x))) over dimensions, without overflow; whole numbers give float32."""
    input = input if input._array.dtype.kind == "f" else input.to("float32")
    found: Tensor = _LOGSUMEXP(
        input, dims=_dims.several("logsumexp", dim, input.ndim, keepdim), keepdim=keepdim
    )
    return found


__all__ = ["log_softmax", "logsumexp", "softmax"]
