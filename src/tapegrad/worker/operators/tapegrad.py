"""Calls of tapegrad's tensors."""

# Calls take inputs by place and attributes by name, which lambdas give them.
# ruff: noqa: PLR0917, PLW0108

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tapegrad.tensors as tg
from tapegrad import scalar
from tapegrad.worker.adapter import Unsupported
from tapegrad.worker.operators import updates

#: Why an operator is not in the table.
MISSING = {
    "hardswish": "tapegrad.nn.functional has no hardswish",
    "mish": "tapegrad.nn.functional has no mish",
    "glu": "tapegrad.nn.functional has no glu",
    "conv1d": "tapegrad.nn.functional has no conv1d",
    "conv_transpose2d": "tapegrad.nn.functional has no conv_transpose2d",
    "max_pool1d": "tapegrad.nn.functional has no max_pool1d",
    "avg_pool1d": "tapegrad.nn.functional has no avg_pool1d",
    "upsample_nearest2d": "tapegrad.nn.functional has no interpolate",
    "instance_norm": "tapegrad.nn.functional has no instance_norm",
    "group_norm": "tapegrad.nn.functional has no group_norm",
    "rms_norm": "tapegrad.nn.functional has no rms_norm",
    "l2_normalize": "tapegrad.nn.functional has no normalize",
    "softmin": "tapegrad.nn.functional has no softmin",
    "huber_loss": "tapegrad.nn.functional has no huber_loss",
    "kl_div": "tapegrad.nn.functional has no kl_div",
    "cosine_similarity": "tapegrad.nn.functional has no cosine_similarity",
    "random_exponential": "tapegrad has no exponential distribution",
    "lstm_cell": "tapegrad.nn has no LSTMCell",
    "gru_cell": "tapegrad.nn has no GRUCell",
}


def _batch_norm(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    return tg.batch_norm(x, None, None, weight, bias, training=True, eps=eps)


def _batch_norm_training(x: Any, weight: Any, bias: Any, mean: Any, var: Any, eps: float) -> Any:
    """Normalise; a momentum of one leaves this batch's own statistics in the running ones."""
    y = tg.batch_norm(x, mean, var, weight, bias, training=True, momentum=1.0, eps=eps)
    return y, mean, var


def _batch_norm_inference(x: Any, weight: Any, bias: Any, mean: Any, var: Any, eps: float) -> Any:
    return tg.batch_norm(x, mean, var, weight, bias, eps=eps)


def _multi_head_attention(
    x: Any, weight: Any, bias: Any, out_weight: Any, out_bias: Any, heads: int
) -> Any:
    batch, length, width = x.shape
    parts = tg.linear(x, weight, bias).chunk(3, -1)
    q, k, v = (each.reshape(batch, length, heads, -1).transpose(1, 2) for each in parts)
    joined = tg.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
    return tg.linear(joined, out_weight, out_bias)


@tg.elementwise
def _sgd(p: Any, g: Any, lr: Any, decay: Any) -> Any:
    return p - lr * (g + decay * p)


@tg.elementwise
def _momentum(p: Any, g: Any, v: Any, lr: Any, momentum: Any, nesterov: Any) -> Any:
    v = g + momentum * v
    return p - lr * (nesterov * (g + momentum * v) + (1 - nesterov) * v), v


@tg.elementwise
def _rmsprop(p: Any, g: Any, s: Any, lr: Any, decay: Any, eps: Any) -> Any:
    return updates.rmsprop(scalar.sqrt, p, g, s, lr=lr, decay=decay, eps=eps)


@tg.elementwise
def _adam(
    p: Any, g: Any, m: Any, v: Any, lr: Any, beta1: Any, beta2: Any, eps: Any, decay: Any
) -> Any:
    rates = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps, "decay": decay}
    return updates.adam(scalar.sqrt, p, g, m, v, **rates)


def _scatter_add(x: Any, index: Any, source: Any) -> Any:
    return tg.scatter_add(x, 0, index.unsqueeze(1).expand(source.shape), source)


def _pad(x: Any, width: int, mode: str) -> Any:
    if mode != "constant":
        raise Unsupported(f"tapegrad.pad has no mode {mode!r}, only 'constant'")
    return tg.pad(x, [width] * 4)


OPERATORS: Mapping[str, Callable[..., Any]] = {
    # unary
    "exp": tg.exp,
    "log": tg.log,
    "sqrt": tg.sqrt,
    "rsqrt": tg.rsqrt,
    "sin": tg.sin,
    "tanh": tg.tanh,
    "sigmoid": tg.sigmoid,
    "erf": tg.erf,
    "abs": tg.abs,
    "square": tg.square,
    # binary, with broadcasting
    "add": tg.add,
    "sub": tg.sub,
    "mul": tg.mul,
    "div": tg.div,
    "maximum": tg.maximum,
    "pow": lambda x, exponent: x**exponent,
    # activations
    "relu": tg.relu,
    "gelu": tg.gelu,
    "silu": tg.silu,
    "elu": tg.elu,
    "leaky_relu": lambda x, slope: tg.leaky_relu(x, slope),
    "softplus": tg.softplus,
    # selection
    "where": tg.where,
    "clip": tg.clamp,
    # reductions
    "sum": tg.sum,
    "mean": tg.mean,
    "amax": tg.amax,
    "amin": tg.amin,
    "prod": tg.prod,
    "var": tg.var,
    "logsumexp": tg.logsumexp,
    "cumsum": tg.cumsum,
    "norm": lambda x, dim, order: tg.norm(x, order, dim),
    "argmax": tg.argmax,
    "argmin": tg.argmin,
    # products
    "matmul": tg.matmul,
    "bmm": lambda a, b, transpose_b: tg.bmm(a, b.transpose(1, 2) if transpose_b else b),
    "linear": tg.linear,
    "matvec": tg.matmul,
    "outer": tg.outer,
    "einsum": lambda a, b, equation: tg.einsum(equation, a, b),
    # convolutions
    **dict.fromkeys(
        (
            "conv2d",
            "conv2d_pointwise",
            "conv2d_wide",
            "conv2d_strided",
            "conv2d_dilated",
            "conv2d_grouped",
            "conv2d_depthwise",
        ),
        tg.conv2d,
    ),
    # pooling
    "max_pool2d": lambda x, kernel, stride, padding: tg.max_pool2d(x, kernel, stride, padding),
    "avg_pool2d": lambda x, kernel, stride: tg.avg_pool2d(x, kernel, stride),
    "global_avg_pool2d": lambda x: x.mean((2, 3)),
    "adaptive_avg_pool2d": lambda x, parts: tg.adaptive_avg_pool2d(x, parts),
    # normalisation
    "layer_norm": lambda x, weight, bias, eps: tg.layer_norm(x, x.shape[-1:], weight, bias, eps),
    "batch_norm": _batch_norm,
    "batch_norm_training": _batch_norm_training,
    "batch_norm_inference": _batch_norm_inference,
    # softmax
    "softmax": tg.softmax,
    "log_softmax": tg.log_softmax,
    # losses
    "cross_entropy": tg.cross_entropy,
    "nll_loss": tg.nll_loss,
    "mse_loss": tg.mse_loss,
    "l1_loss": tg.l1_loss,
    "bce_with_logits": tg.binary_cross_entropy_with_logits,
    # lookups
    "embedding": tg.embedding,
    "gather": lambda x, index: tg.gather(x, 1, index),
    "index_select": lambda x, index, dim: tg.index_select(x, dim, index),
    "scatter_add": _scatter_add,
    # order
    "sort": lambda x, descending: tg.sort(x, descending=descending).values,
    "argsort": tg.argsort,
    "topk": lambda x, k: tg.topk(x, k).values,
    # shape
    "concat": lambda x, y, dim: tg.cat((x, y), dim),
    "split": lambda x, parts, dim: [part.clone() for part in tg.chunk(x, parts, dim)],
    "stack": lambda x, y, dim: tg.stack((x, y), dim),
    "transpose": lambda x: x.t().clone(),
    "permute": lambda x, dims: x.permute(dims).clone(),
    "reshape": lambda x, shape: tg.reshape(x, shape).clone(),
    "slice": lambda x, step: x[:, ::step].clone(),
    "flip": lambda x, dim: tg.flip(x, (dim,)).clone(),
    "pad": _pad,
    "broadcast_to": lambda x, shape: x.expand(shape).clone(),
    "triu": tg.triu,
    "roll": lambda x, shift, dim: tg.roll(x, shift, dim),
    "tile": lambda x, reps: tg.tile(x, reps),
    "repeat": lambda x, repeats, dim: tg.repeat_interleave(x, repeats, dim),
    # random
    "dropout": tg.dropout,
    "random_uniform": lambda seed, like: tg.rand_like(like),
    "random_normal": lambda seed, like: tg.randn_like(like),
    "random_bernoulli": lambda seed, like, p: tg.bernoulli(tg.full_like(like, p)),
    # optimiser updates
    "sgd": lambda p, g, lr, decay: _sgd(p, g, lr, decay),
    "momentum": lambda p, g, v, lr, momentum, nesterov: _momentum(
        p, g, v, lr, momentum, float(nesterov)
    ),
    "rmsprop": lambda p, g, v, lr, decay, eps: _rmsprop(p, g, v, lr, decay, eps),
    "adam": lambda p, g, m, v, lr, beta1, beta2, eps, decay: _adam(
        p, g, m, v, lr, beta1, beta2, eps, decay
    ),
    # attention
    "scaled_dot_product_attention": lambda q, k, v, causal: tg.scaled_dot_product_attention(
        q, k, v, is_causal=causal
    ),
    "multi_head_attention": _multi_head_attention,
}
