"""Normalisation.

Gradients in one piece are the backends' kernels; where gradients of gradients are wanted the same
is written in operations.
"""

# Arguments come in PyTorch's order.
# ruff: noqa: PLR0917

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tapegrad.errors import OptionError, ShapeError
from tapegrad.tensors.autograd import MODE, Node, no_grad
from tapegrad.tensors.fused import elementwise
from tapegrad.tensors.ops import elementwise as _e
from tapegrad.tensors.ops.composite import composite
from tapegrad.tensors.ops.matmul import check_types
from tapegrad.tensors.registry import Cost, Draw, Sample, define, raw

if TYPE_CHECKING:
    from tapegrad.tensors.methods import Tensor


def _cost(x: Tensor, *_: Any, **attrs: Any) -> Cost:
    return Cost(8 * x.numel(), 3 * x.nbytes)


def _normalised_vjp(
    g: Tensor, x: Tensor, weight: Tensor | None, dims: tuple[int, ...], eps: float, across: Any
) -> tuple[Any, Any, Any]:
    """Return the gradients of y = (x - mean) / std * weight + bias, in operations."""
    centred = x - x.mean(dims, keepdim=True)
    rstd = _e.rsqrt((centred * centred).mean(dims, keepdim=True) + eps)
    normal = centred * rstd
    inner = g if weight is None else g * weight
    drift = inner.mean(dims, keepdim=True)
    tilt = (inner * normal).mean(dims, keepdim=True)
    return rstd * (inner - drift - normal * tilt), (g * normal).sum(across), g.sum(across)


# ---- batch norm ---------------------------------------------------------------------------------


def _channels(x: Tensor, *others: Tensor | None) -> None:
    if x.ndim < 2:
        raise ShapeError(f"batch_norm: expected x (N, C, ...), got {x.shape}")
    for each in others:
        if each is not None and each.shape != x.shape[1:2]:
            raise ShapeError(
                f"batch_norm: expected one number per channel, shape {x.shape[1:2]}, "
                f"got {each.shape}"
            )


def _batch_rule(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Any:
    _channels(x, weight, bias)
    check_types("batch_norm", x, weight, bias)
    if x.numel() // max(x.shape[1], 1) < 2:
        raise ShapeError(
            f"batch_norm: expected more than one value per channel when training, got {x.shape}"
        )
    return x.shape


def _batch_vjp(node: Node, g: Tensor, *_: Any) -> tuple[Any, ...]:
    x, weight, _ = node.inputs
    dims = tuple(d for d in range(g.ndim) if d != 1)
    if x is None:
        return None, None, g.sum(dims)
    if not MODE.enabled:
        _, mean, _, rstd = node.outputs
        found: tuple[Any, ...] = raw("batch_norm_backward", g, x, weight, mean, rstd)
        return found
    shape = (1, -1, *[1] * (x.ndim - 2))
    wide = None if weight is None else weight.reshape(shape)
    return _normalised_vjp(g, x, wide, dims, node.attrs["eps"], dims)


_BATCH = define(
    name="batch_norm_train",
    function=None,
    doc="x normalised over all but its channels; also mean, variance and 1 / std",
    rule=_batch_rule,
    vjp=_batch_vjp,
    saves={0: (0, 1), 1: (0,)},
    keeps=(1, 3),
    results=4,
    cost=_cost,
    samples=[Sample((3, 2, 2, 2), (2,), (2,), eps=1e-5)],
)


@composite(
    Sample((3, 2), running_mean=None, running_var=None, training=True),
    Sample((3, 2, 2, 2), (2,), (2,), running_mean=None, running_var=None, training=True),
    Sample((3, 2, 2), Draw((2,), grad=False), Draw((2,), 0.5, 2, grad=False), (2,), (2,), eps=1e-3),
    benchmark="batch_norm",
)
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Return x normalised over all but its channels.

    When training, by the statistics of x, of which the running ones take a part; else by the
    running ones.
    """
    _channels(input, running_mean, running_var, weight, bias)
    known = running_mean is not None and running_var is not None
    if not input.numel() and (training or not known):  # as PyTorch: of no sample, no statistics
        return _by_statistics(input, *_no_statistics(input), weight, bias, eps)
    if not known and (not training or running_mean is not running_var):
        raise OptionError(
            "batch_norm: expected running_mean and running_var, or neither of them where "
            "training=True, got None; pass both, or batch_norm(x, None, None, training=True)"
        )
    if not training:
        return _by_statistics(input, running_mean, running_var, weight, bias, eps)  # type: ignore[arg-type]
    y, mean, var, _ = _BATCH(input, weight, bias, eps=eps)
    if running_mean is not None and running_var is not None:
        count = input.numel() // input.shape[1]
        shares = 1 - momentum, momentum, momentum * count / (count - 1)
        running = running_mean, running_var
        with no_grad():
            _blended(*running, mean, var, *shares, out=running)
    found: Tensor = y
    return found


def _no_statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    channels = x.shape[1:2]
    return x.new_zeros(channels), x.new_ones(channels)


def _by_statistics(
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> Tensor:
    """Normalise by given statistics: one scale and one shift per channel."""
    shape = (1, -1, *[1] * (x.ndim - 2))
    scale = _e.rsqrt(var + eps)
    scale = scale if weight is None else scale * weight
    shift = -mean * scale
    shift = shift if bias is None else shift + bias
    found: Tensor = _scaled(x, scale.reshape(shape), shift.reshape(shape))
    return found


@elementwise
def _blended(
    old_mean: Any, old_var: Any, mean: Any, var: Any, keep: Any, take: Any, unbiased: Any
) -> Any:
    return keep * old_mean + take * mean, keep * old_var + unbiased * var


@elementwise
def _scaled(x: Any, scale: Any, shift: Any) -> Any:
    return x * scale + shift


# ---- layer norm ---------------------------------------------------------------------------------


def _layer_rule(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, dims: int, eps: float
) -> tuple[int, ...]:
    check_types("layer_norm", x, weight, bias)
    last = x.shape[x.ndim - dims :]
    for each in (weight, bias):
        if each is not None and each.shape != last:
            raise ShapeError(f"layer_norm: expected weights of shape {last}, got {each.shape}")
    return x.shape


def _layer_vjp(node: Node, g: Tensor, *_: Any) -> tuple[Any, ...]:
    x, weight, _ = node.inputs
    dims = node.attrs["dims"]
    if x is None:
        return None, None, g  # the walk sums over all but the last dimensions
    if not MODE.enabled:
        _, mean, rstd = node.outputs
        found: tuple[Any, ...] = raw(
            "layer_norm_backward", g, x, weight, mean, rstd, dims=dims, needs=node.needs
        )
        return found
    last = tuple(range(x.ndim - dims, x.ndim))
    rest = list(range(x.ndim - dims))
    gx, gw, gb = _normalised_vjp(g, x, weight, last, node.attrs["eps"], rest)
    return (gx, gw, gb) if rest else (gx, g * _normal(x, last, node.attrs["eps"]), g)


def _normal(x: Tensor, dims: tuple[int, ...], eps: float) -> Tensor:
    centred = x - x.mean(dims, keepdim=True)
    return centred * _e.rsqrt((centred * centred).mean(dims, keepdim=True) + eps)


_LAYER = define(
    name="layer_norm",
    doc="x normalised over its last dimensions",
    rule=_layer_rule,
    vjp=_layer_vjp,
    saves={0: (0, 1), 1: (0,)},
    keeps=(1, 2),
    results=3,
    cost=_cost,
    samples=[
        Sample((3, 4), normalized_shape=(4,)),
        Sample((2, 3, 4), normalized_shape=(3, 4)),
        Sample((2, 3, 4), (4,), (4,), normalized_shape=(4,), eps=1e-3),
        Sample((3, 4), (3, 4), normalized_shape=(3, 4)),
    ],
    benchmark="layer_norm",
)


def layer_norm(
    input: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Return x normalised over its last dimensions, which have this shape."""
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not shape:
        raise ShapeError(f"layer_norm: expected at least one size to normalise over, got {shape}")
    if input.shape[-len(shape) :] != shape:
        raise ShapeError(f"layer_norm: expected last dimensions {shape}, got {input.shape}")
    found: Tensor = _LAYER(input, weight, bias, dims=len(shape), eps=eps)[0]
    return found


__all__ = ["batch_norm", "layer_norm"]
