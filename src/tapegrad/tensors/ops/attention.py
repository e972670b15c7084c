"""Attention: weighted means of values, by how queries and keys agree."""

# Arguments come in PyTorch's order.
# ruff: noqa: PLR0917

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tapegrad.errors import DTypeError, ShapeError
from tapegrad.tensors.autograd import MODE, Node
from tapegrad.tensors.ops import dims as _dims
from tapegrad.tensors.ops import elementwise as _e
from tapegrad.tensors.ops.matmul import check_types, matmul
from tapegrad.tensors.ops.shape import in_shape, widened
from tapegrad.tensors.registry import Cost, Sample, define, raw

if TYPE_CHECKING:
    from tapegrad.tensors.methods import Tensor


def _rule(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, is_causal: bool
) -> Any:
    check_types("scaled_dot_product_attention", q, k, v, mask)
    fits = (
        q.ndim == k.ndim == v.ndim == 4
        and q.shape[:2] == k.shape[:2] == v.shape[:2]
        and q.shape[3] == k.shape[3]
        and k.shape[2] == v.shape[2]
    )
    if not fits:
        raise ShapeError(
            "scaled_dot_product_attention: expected query (..., L, E), key (..., S, E) and value "
            f"(..., S, F), got {q.shape}, {k.shape} and {v.shape}"
        )
    scores = (*q.shape[:3], k.shape[2])
    if mask is not None and _dims.broadcast("attn_mask", mask.shape, scores) != scores:
        raise ShapeError(f"attn_mask: expected a shape that expands to {scores}, got {mask.shape}")
    return (*q.shape[:3], v.shape[3])


def _vjp(node: Node, g: Tensor, *_: Any) -> tuple[Any, ...]:
    q, k, v, mask = node.inputs
    scale = node.attrs["scale"]
    p = node.outputs[1]
    if q is None:
        return None, None, matmul(p.detach().transpose(-1, -2), g), None
    if not MODE.enabled and not node.needs[3]:
        return (*raw("attention_backward", g, q, k, v, p, scale=scale), None)
    if MODE.enabled:  # what p is made of takes part
        p = _weights(q, k, _mask(q, k, mask, node.attrs["is_causal"]), scale)
    gp = matmul(g, v.transpose(-1, -2))
    gs = p * (gp - (gp * p).sum(-1, keepdim=True))
    return (
        matmul(gs, k) * scale,
        matmul(gs.transpose(-1, -2), q) * scale,
        matmul(p.transpose(-1, -2), g),
        gs if node.needs[3] else None,
    )


def _weights(q: Tensor, k: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Return the weights of the keys; all 0 for a query that may look at none."""
    scores = matmul(q, k.transpose(-1, -2)) * scale
    if mask is None:
        return scores.softmax(-1)
    nothing = _e.eq(mask.detach(), float("-inf")).all(-1, keepdim=True)
    weights = _e.where(nothing, 0.0, scores + mask).softmax(-1)
    return _e.where(nothing, 0.0, weights)


_ATTENTION = define(
    name="attention",
    function="scaled_dot_product_attention",
    doc="softmax(query @ key.T * scale + mask) @ value, and the weights",
    rule=_rule,
    vjp=_vjp,
    saves=dict.fromkeys((0, 1, 3), (0, 1, 2, 3)),  # the values' gradient needs p alone
    keeps=(1,),
    results=2,
    cost=lambda q, k, v, mask=None, **_: Cost(
        4 * q.numel() * k.shape[2], q.nbytes + k.nbytes + 2 * v.nbytes
    ),
    samples=[
        Sample((2, 3, 4, 5), (2, 3, 6, 5), (2, 3, 6, 2)),
        Sample((1, 2, 4, 3), (1, 2, 4, 3), (1, 2, 4, 3), is_causal=True),
        Sample((1, 2, 4, 3), (1, 2, 5, 3), (1, 2, 5, 3), (4, 5), scale=0.3),
        Sample((1, 4, 3, 2), (1, 2, 5, 2), (1, 1, 5, 3), enable_gqa=True),
    ],
    benchmark="scaled_dot_product_attention",
)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Return softmax(query @ key.T * scale + mask) @ value.

    Args:
        query: (..., L, E)
        key: (..., S, E)
        value: (..., S, F)
        attn_mask: Added to the scores; or bools, true where a query may look at a key.
        dropout_p: Share of the weights that are dropped.
        is_causal: Let query i look at keys up to i only.
        scale: 1 / sqrt(E) if left out.
        enable_gqa: Let several heads of queries (..., H, L, E) share one of keys and values, of
            which there may be fewer: H is a multiple of their number.

    """
    from tapegrad.tensors.random import dropout

    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise ShapeError("scaled_dot_product_attention: expected at least two dimensions")
    if enable_gqa:
        key, value = (_shared(query, each) for each in (key, value))
    batch = _dims.broadcast("attention", query.shape[:-2], key.shape[:-2], value.shape[:-2])
    factor = 1.0 / math.sqrt(query.shape[-1] or 1) if scale is None else scale
    if dropout_p > 0.0:
        weights = _weights(query, key, _mask(query, key, attn_mask, is_causal), factor)
        return matmul(dropout(weights, dropout_p), value)
    mask = _mask(query, key, attn_mask, is_causal, build=False)
    q, k, v = (_four_dims(x, batch) for x in (query, key, value))
    if mask is not None and mask.ndim > 3 and len(batch) > 2:
        mask = _four_dims(mask.expand((*batch, *mask.shape[-2:])), batch)
    found: Tensor = _ATTENTION(q, k, v, mask, scale=factor, is_causal=is_causal)[0]
    return in_shape(found, (*batch, *found.shape[-2:]))


def _shared(query: Tensor, x: Tensor) -> Tensor:
    """Return keys or values with each head as often as queries share it."""
    heads, own = (each.shape[-3] if each.ndim > 2 else 0 for each in (query, x))
    if not own or heads % own:
        raise ShapeError(
            "scaled_dot_product_attention: expected heads of queries to be a multiple of those of "
            f"keys and values where enable_gqa=True, got {query.shape} and {x.shape}"
        )
    return x if heads == own else x.repeat_interleave(heads // own, -3)


def attention_with_weights(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout_p: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Return the result for (B, H, L, E) and the weights (B, H, L, S), both with gradients."""
    from tapegrad.tensors.random import dropout

    scores = matmul(query, key.transpose(-1, -2)) * (1.0 / math.sqrt(query.shape[-1]))
    weights = (scores if mask is None else scores + mask).softmax(-1)
    weights = dropout(weights, dropout_p) if dropout_p > 0.0 else weights
    return matmul(weights, value), weights


def _four_dims(x: Tensor, batch: tuple[int, ...]) -> Tensor:
    x = widened(x, (*batch, *x.shape[-2:]))
    heads = batch[-1] if batch else 1
    return x.reshape((math.prod(batch[:-1]), heads, *x.shape[-2:])) if x.ndim != 4 else x


def _mask(
    q: Tensor, k: Tensor, given: Tensor | None, causal: bool, build: bool = True
) -> Tensor | None:
    """Return what is added to the scores; a causal mask only if it is to be built."""
    from tapegrad.tensors.creation import ones

    if causal:
        if given is not None:
            raise ShapeError(
                "scaled_dot_product_attention: expected attn_mask or is_causal, got both"
            )
        if not build:
            return None
        given = ones((q.shape[-2], k.shape[-2]), dtype="bool", device=q.device).tril()
    if given is None or given._array.dtype.kind == "f":
        return given
    if given._array.dtype.kind != "b":
        raise DTypeError(
            f"scaled_dot_product_attention: expected attn_mask of bool or {q.dtype}, got "
            f"{given.dtype}; use mask.bool(), true where a query may look at a key"
        )
    return _e.where(given, 0.0, float("-inf")).to(q.dtype)


__all__ = ["scaled_dot_product_attention"]
