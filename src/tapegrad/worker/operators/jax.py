"""JAX's calls, or formulas that jit makes one program of."""

# Calls take inputs by place and attributes by name, which lambdas give them.
# ruff: noqa: PLR0917, PLW0108

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from tapegrad.worker.operators import updates

#: Why an operator is not in the table.
MISSING = {"adaptive_avg_pool2d": "jax.lax has windows of one size only, no adaptive pooling"}


def _last(x: Any) -> Any:
    """Move the channels to the end."""
    return jnp.moveaxis(x, 1, -1)


def _first(x: Any) -> Any:
    """Move the channels back to the second place."""
    return jnp.moveaxis(x, -1, 1)


def _conv(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    stride: int,
    padding: int,
    dilation: int = 1,
    groups: int = 1,
) -> Any:
    """Convolve in as many dimensions as there are."""
    spatial = x.ndim - 2
    result = jax.lax.conv_general_dilated(
        x,
        weight,
        (stride,) * spatial,
        [(padding, padding)] * spatial,
        rhs_dilation=(dilation,) * spatial,
        feature_group_count=groups,
    )
    return result if bias is None else result + bias.reshape(-1, *[1] * spatial)


def _conv2d_last(x: Any, filters: Any, bias: Any = None, *, stride: int, padding: int) -> Any:
    result = jax.lax.conv_general_dilated(
        x,
        filters,
        (stride, stride),
        [(padding, padding)] * 2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    return result if bias is None else result + bias


def _conv_transpose2d(x: Any, weight: Any, bias: Any, stride: int, padding: int) -> Any:
    turned = jnp.flip(weight, (2, 3)).swapaxes(0, 1)
    edges = [(side - 1 - padding,) * 2 for side in weight.shape[2:]]
    result = jax.lax.conv_general_dilated(x, turned, (1, 1), edges, lhs_dilation=(stride, stride))
    return result + bias[:, None, None]


def _pool(x: Any, start: float, combine: Any, kernel: int, stride: int, padding: int) -> Any:
    spatial = x.ndim - 2
    edges = [(0, 0)] * 2 + [(padding, padding)] * spatial
    window, steps = (1, 1, *[kernel] * spatial), (1, 1, *[stride] * spatial)
    return jax.lax.reduce_window(x, start, combine, window, steps, edges)


def _max_pool(x: Any, kernel: int, stride: int, padding: int = 0) -> Any:
    return _pool(x, -jnp.inf, jax.lax.max, kernel, stride, padding)


def _max_pool2d_last(x: Any, kernel: int, stride: int, padding: int) -> Any:
    edges = [(0, 0), (padding, padding), (padding, padding), (0, 0)]
    window, steps = (1, kernel, kernel, 1), (1, stride, stride, 1)
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, steps, edges)


def _avg_pool2d_last(x: Any, kernel: int, stride: int) -> Any:
    window, steps = (1, kernel, kernel, 1), (1, stride, stride, 1)
    return jax.lax.reduce_window(x, 0.0, jax.lax.add, window, steps, "VALID") / kernel**2


def _avg_pool(x: Any, kernel: int, stride: int) -> Any:
    return _pool(x, 0.0, jax.lax.add, kernel, stride, 0) / kernel ** (x.ndim - 2)


def _upsample_nearest2d(x: Any, factor: int) -> Any:
    return x.repeat(factor, 2).repeat(factor, 3)


def _normalised(x: Any, axes: tuple[int, ...], eps: float) -> Any:
    """Subtract the mean over the axes and divide by the standard deviation."""
    centred = x - x.mean(axes, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.square(centred).mean(axes, keepdims=True) + eps)


def _per_channel(x: Any) -> Any:
    """Shape a vector so that it goes along the channels of images."""
    return x[:, None, None]


def _layer_norm(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    return _normalised(x, (-1,), eps) * weight + bias


def _batch_norm(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    return _normalised(x, (0, 2, 3), eps) * _per_channel(weight) + _per_channel(bias)


def _batch_norm_training(x: Any, weight: Any, bias: Any, mean: Any, var: Any, eps: float) -> Any:
    y, *found = _batch_norm_training_last(_last(x), weight, bias, mean, var, eps)
    return _first(y), *found


def _batch_norm_last(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    return _batch_norm_training_last(x, weight, bias, None, None, eps)[0]


def _batch_norm_training_last(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, eps: float
) -> Any:
    axes, count = (0, 1, 2), x.size // x.shape[-1]
    mean = x.mean(axes)
    centred = x - mean
    var = jnp.square(centred).mean(axes)
    y = centred * jax.lax.rsqrt(var + eps) * weight + bias
    return y, *jax.lax.stop_gradient((mean, var * (count / (count - 1))))


def _batch_norm_inference(x: Any, weight: Any, bias: Any, mean: Any, var: Any, eps: float) -> Any:
    return _first(_batch_norm_inference_last(_last(x), weight, bias, mean, var, eps))


def _batch_norm_inference_last(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, eps: float
) -> Any:
    return (x - mean) * (weight * jax.lax.rsqrt(var + eps)) + bias


def _instance_norm(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    return _normalised(x, (2, 3), eps) * _per_channel(weight) + _per_channel(bias)


def _group_norm(x: Any, weight: Any, bias: Any, groups: int, eps: float) -> Any:
    grouped = _normalised(x.reshape(len(x), groups, -1), (2,), eps).reshape(x.shape)
    return grouped * _per_channel(weight) + _per_channel(bias)


def _rms_norm(x: Any, weight: Any, eps: float) -> Any:
    return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + eps) * weight


def _l2_normalize(x: Any, dim: int) -> Any:
    return x / jnp.linalg.norm(x, axis=dim, keepdims=True)


def _cross_entropy(x: Any, target: Any) -> Any:
    return _nll_loss(jax.nn.log_softmax(x), target)


def _nll_loss(x: Any, target: Any) -> Any:
    return -jnp.take_along_axis(x, target[:, None], axis=1).mean()


def _huber_loss(x: Any, target: Any, delta: float) -> Any:
    error = jnp.abs(x - target)
    return jnp.where(error < delta, error**2 / 2, delta * (error - delta / 2)).mean()


def _bce_with_logits(x: Any, target: Any) -> Any:
    return (jnp.maximum(x, 0) - x * target + jnp.log1p(jnp.exp(-jnp.abs(x)))).mean()


def _kl_div(x: Any, target: Any) -> Any:
    return (target * (jnp.log(target) - x)).sum() / len(x)


def _cosine_similarity(x: Any, y: Any) -> Any:
    return (_l2_normalize(x, -1) * _l2_normalize(y, -1)).sum(-1)


def _pad(x: Any, width: int, mode: str) -> Any:
    return jnp.pad(x, [(0, 0)] * 2 + [(width, width)] * 2, mode=mode)


def _dropout(x: Any, p: float) -> Any:
    """Drop with a key that is part of the program: the draw is done, and is the same each time."""
    keep = jax.random.bernoulli(jax.random.key(0), 1 - p, x.shape)
    return jnp.where(keep, x / (1 - p), 0.0)


def _key(seed: Any) -> Any:
    return jax.random.wrap_key_data(seed.astype(jnp.uint32))


def _bernoulli(seed: Any, like: Any, p: float) -> Any:
    return jax.random.bernoulli(_key(seed), p, like.shape).astype(like.dtype)


def _heads_last_attention(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """Attend; in float64 by a formula, since JAX's own call takes its softmax in float32."""
    if q.dtype != jnp.float64:
        return jax.nn.dot_product_attention(q, k, v, is_causal=causal)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    if causal:
        scores = jnp.where(jnp.tri(*scores.shape[-2:]) > 0, scores, -jnp.inf)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)


def _attention(q: Any, k: Any, v: Any, causal: bool) -> Any:
    q, k, v = (each.swapaxes(1, 2) for each in (q, k, v))
    return _heads_last_attention(q, k, v, causal).swapaxes(1, 2)


def _linear(x: Any, weight: Any, bias: Any) -> Any:
    return x @ weight.T + bias


def _dense(x: Any, kernel: Any, bias: Any) -> Any:
    """Do the same with a weight of shape (in, out)."""
    return x @ kernel + bias


def _multi_head_attention(
    linear: Any, x: Any, weight: Any, bias: Any, out_weight: Any, out_bias: Any, heads: int
) -> Any:
    batch, length, width = x.shape
    parts = jnp.split(linear(x, weight, bias), 3, -1)
    q, k, v = (each.reshape(batch, length, heads, -1) for each in parts)
    joined = _heads_last_attention(q, k, v, causal=False).reshape(batch, length, width)
    return linear(joined, out_weight, out_bias)


def _lstm_cell(x: Any, h: Any, c: Any, w_x: Any, w_h: Any, b_x: Any, b_h: Any) -> Any:
    i, f, g, o = jnp.split(x @ w_x.T + b_x + h @ w_h.T + b_h, 4, -1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def _gru_cell(x: Any, h: Any, w_x: Any, w_h: Any, b_x: Any, b_h: Any) -> Any:
    r_x, z_x, n_x = jnp.split(x @ w_x.T + b_x, 3, -1)
    r_h, z_h, n_h = jnp.split(h @ w_h.T + b_h, 3, -1)
    z = jax.nn.sigmoid(z_x + z_h)
    return (1 - z) * jnp.tanh(n_x + jax.nn.sigmoid(r_x + r_h) * n_h) + z * h


OPERATORS: Mapping[str, Callable[..., Any]] = {
    # unary
    "exp": jnp.exp,
    "log": jnp.log,
    "sqrt": jnp.sqrt,
    "rsqrt": jax.lax.rsqrt,
    "sin": jnp.sin,
    "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid,
    "erf": jax.lax.erf,
    "abs": jnp.abs,
    "square": jnp.square,
    # binary, with broadcasting
    "add": jnp.add,
    "sub": jnp.subtract,
    "mul": jnp.multiply,
    "div": jnp.divide,
    "maximum": jnp.maximum,
    "pow": jnp.power,
    # activations
    "relu": jax.nn.relu,
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "silu": jax.nn.silu,
    "elu": jax.nn.elu,
    "leaky_relu": lambda x, slope: jax.nn.leaky_relu(x, slope),
    "softplus": jax.nn.softplus,
    "hardswish": jax.nn.hard_swish,
    "mish": jax.nn.mish,
    "glu": lambda x, dim: jax.nn.glu(x, dim),
    # selection
    "where": jnp.where,
    "clip": jnp.clip,
    # reductions
    "sum": lambda x, dim: x.sum(axis=dim),
    "mean": lambda x, dim: x.mean(axis=dim),
    "amax": lambda x, dim: x.max(axis=dim),
    "amin": lambda x, dim: x.min(axis=dim),
    "prod": lambda x, dim: x.prod(axis=dim),
    "var": lambda x, dim, correction: x.var(axis=dim, ddof=correction),
    "norm": lambda x, dim, order: jnp.linalg.norm(x, order, dim),
    "logsumexp": lambda x, dim: jax.nn.logsumexp(x, axis=dim),
    "cumsum": lambda x, dim: x.cumsum(axis=dim),
    "argmax": lambda x, dim: x.argmax(axis=dim),
    "argmin": lambda x, dim: x.argmin(axis=dim),
    # products
    "matmul": jnp.matmul,
    "bmm": lambda a, b, transpose_b: a @ (b.swapaxes(1, 2) if transpose_b else b),
    "linear": _linear,
    "matvec": jnp.matmul,
    "outer": jnp.outer,
    "einsum": lambda a, b, equation: jnp.einsum(equation, a, b),
    # convolutions
    "conv2d": _conv,
    "conv2d_pointwise": _conv,
    "conv2d_wide": _conv,
    "conv2d_strided": _conv,
    "conv2d_dilated": _conv,
    "conv2d_grouped": _conv,
    "conv2d_depthwise": _conv,
    "conv1d": _conv,
    "conv_transpose2d": _conv_transpose2d,
    # pooling and resizing
    "max_pool2d": _max_pool,
    "avg_pool2d": _avg_pool,
    "max_pool1d": _max_pool,
    "avg_pool1d": _avg_pool,
    "global_avg_pool2d": lambda x: x.mean((2, 3)),
    "upsample_nearest2d": _upsample_nearest2d,
    # normalisation
    "layer_norm": _layer_norm,
    "batch_norm": _batch_norm,
    "batch_norm_training": _batch_norm_training,
    "batch_norm_inference": _batch_norm_inference,
    "instance_norm": _instance_norm,
    "group_norm": _group_norm,
    "rms_norm": _rms_norm,
    "l2_normalize": _l2_normalize,
    # softmax
    "softmax": lambda x, dim: jax.nn.softmax(x, axis=dim),
    "log_softmax": lambda x, dim: jax.nn.log_softmax(x, axis=dim),
    "softmin": lambda x, dim: jax.nn.softmax(-x, axis=dim),
    # losses
    "cross_entropy": _cross_entropy,
    "nll_loss": _nll_loss,
    "mse_loss": lambda x, target: jnp.square(x - target).mean(),
    "l1_loss": lambda x, target: jnp.abs(x - target).mean(),
    "huber_loss": _huber_loss,
    "bce_with_logits": _bce_with_logits,
    "kl_div": _kl_div,
    "cosine_similarity": _cosine_similarity,
    # lookups
    "embedding": lambda index, weight: weight[index],
    "gather": lambda x, index: jnp.take_along_axis(x, index, 1),
    "index_select": lambda x, index, dim: jnp.take(x, index, dim),
    "scatter_add": lambda x, index, source: x.at[index].add(source),
    # order
    "sort": lambda x, descending: jnp.sort(x, descending=descending),
    "argsort": jnp.argsort,
    "topk": lambda x, k: jax.lax.top_k(x, k)[0],
    # shape
    "concat": lambda x, y, dim: jnp.concatenate((x, y), dim),
    "split": lambda x, parts, dim: jnp.split(x, parts, dim),
    "stack": lambda x, y, dim: jnp.stack((x, y), dim),
    "transpose": lambda x: x.T,
    "permute": lambda x, dims: x.transpose(dims),
    "reshape": lambda x, shape: x.reshape(shape),
    "slice": lambda x, step: x[:, ::step],
    "flip": lambda x, dim: jnp.flip(x, dim),
    "roll": lambda x, shift, dim: jnp.roll(x, shift, dim),
    "pad": _pad,
    "tile": jnp.tile,
    "repeat": lambda x, repeats, dim: x.repeat(repeats, dim),
    "broadcast_to": jnp.broadcast_to,
    "triu": jnp.triu,
    # random
    "dropout": _dropout,
    "random_uniform": lambda seed, like: jax.random.uniform(_key(seed), like.shape, like.dtype),
    "random_normal": lambda seed, like: jax.random.normal(_key(seed), like.shape, like.dtype),
    "random_exponential": lambda seed, like: jax.random.exponential(
        _key(seed), like.shape, like.dtype
    ),
    "random_bernoulli": _bernoulli,
    # optimiser updates
    "sgd": updates.sgd,
    "momentum": updates.momentum,
    "rmsprop": partial(updates.rmsprop, jnp.sqrt),
    "adam": partial(updates.adam, jnp.sqrt),
    # attention and recurrent cells
    "scaled_dot_product_attention": _attention,
    "multi_head_attention": partial(_multi_head_attention, _linear),
    "lstm_cell": _lstm_cell,
    "gru_cell": _gru_cell,
}

#: The same for images with channels last and weights turned (see `layout`), as Flax and Haiku have
#: them: on the CPU XLA would otherwise turn them round before each convolution or product.
CHANNELS_LAST: Mapping[str, Callable[..., Any]] = {
    "conv2d": _conv2d_last,
    "max_pool2d": _max_pool2d_last,
    "avg_pool2d": _avg_pool2d_last,
    "global_avg_pool2d": lambda x: x.mean((1, 2)),
    "batch_norm": _batch_norm_last,
    "batch_norm_training": _batch_norm_training_last,
    "batch_norm_inference": _batch_norm_inference_last,
    "linear": _dense,
    "multi_head_attention": partial(_multi_head_attention, _dense),
}
