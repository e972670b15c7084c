"""NumPy's calls, or formulas where it has none: in float64 the first witness of what is right."""

# Calls take inputs by place and attributes by name, which lambdas give them.
# ruff: noqa: PLR0917, PLW0108

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

RANDOM = np.random.default_rng()


def _erf(x: Any) -> Any:
    """Error function; NumPy has none, so this is the standard library's, element by element."""
    return np.vectorize(math.erf, otypes=[x.dtype])(x)


def _gelu(x: Any) -> Any:
    return x * (1 + _erf(x / np.sqrt(x.dtype.type(2)))) / 2


def _sigmoid(x: Any) -> Any:
    return 0.5 * (1 + np.tanh(0.5 * x))


def _softplus(x: Any) -> Any:
    return np.logaddexp(x, x.dtype.type(0))


def _glu(x: Any, dim: int) -> Any:
    value, gate = np.split(x, 2, dim)
    return value * _sigmoid(gate)


def _logsumexp(x: Any, dim: int) -> Any:
    return (x - _log_softmax(x, dim)).max(axis=dim)


def _log_softmax(x: Any, dim: int) -> Any:
    shifted = x - x.max(axis=dim, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=dim, keepdims=True))


def _softmax(x: Any, dim: int) -> Any:
    powers = np.exp(x - x.max(axis=dim, keepdims=True))
    return powers / powers.sum(axis=dim, keepdims=True)


def _bmm(a: Any, b: Any, transpose_b: bool) -> Any:
    return a @ (b.swapaxes(1, 2) if transpose_b else b)


def _windows(
    x: Any, kernel: Sequence[int], stride: int, padding: int, dilation: int = 1, fill: float = 0.0
) -> Any:
    """View images as (batch, channel, positions…, kernel…)."""
    axes = range(2, 2 + len(kernel))
    padded = np.pad(x, [(0, 0)] * 2 + [(padding, padding)] * len(kernel), constant_values=fill)
    view = sliding_window_view(padded, [(k - 1) * dilation + 1 for k in kernel], tuple(axes))
    steps = [slice(None, None, stride)] * len(kernel) + [slice(None, None, dilation)] * len(kernel)
    return view[:, :, *steps]


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
    kernel = weight.shape[2:]
    view = _windows(x, kernel, stride, padding, dilation)
    summed = (1, *range(2 + len(kernel), 2 + 2 * len(kernel))), (1, *range(2, 2 + len(kernel)))
    parts = [
        np.moveaxis(np.tensordot(part, filters, summed), -1, 1)
        for part, filters in zip(
            np.split(view, groups, 1), np.split(weight, groups, 0), strict=True
        )
    ]
    result = np.concatenate(parts, 1)
    return result if bias is None else result + bias.reshape(-1, *[1] * len(kernel))


def _conv_transpose2d(x: Any, weight: Any, bias: Any, stride: int, padding: int) -> Any:
    """Add the kernel times each pixel where it stands; what is padding is then cut away."""
    batch, _, rows, columns = x.shape
    _, filters, *kernel = weight.shape
    sides = [(side - 1) * stride + k for side, k in zip((rows, columns), kernel, strict=True)]
    whole = np.zeros((batch, filters, *sides), x.dtype)
    for row, column in np.ndindex(*kernel):
        spots = [
            slice(at, at + (n - 1) * stride + 1, stride)
            for at, n in ((row, rows), (column, columns))
        ]
        whole[:, :, *spots] += np.einsum(
            "bcij,cf->bfij", x, weight[:, :, row, column], optimize=True
        )
    kept = (slice(padding, side - padding) for side in sides)
    return whole[:, :, *kept] + _per_channel(bias)


def _max_pool(x: Any, kernel: int, stride: int, padding: int = 0) -> Any:
    shape = [kernel] * (x.ndim - 2)
    view = _windows(x, shape, stride, padding, fill=-np.inf)
    return view.max(tuple(range(x.ndim, view.ndim)))


def _avg_pool(x: Any, kernel: int, stride: int) -> Any:
    view = _windows(x, [kernel] * (x.ndim - 2), stride, 0)
    return view.mean(tuple(range(x.ndim, view.ndim)))


def _adaptive_avg_pool2d(x: Any, parts: int) -> Any:
    """Average over windows from the floor to the ceiling of each share."""

    def edges(side: int) -> list[slice]:
        return [slice(i * side // parts, -(-(i + 1) * side // parts)) for i in range(parts)]

    rows, columns = edges(x.shape[2]), edges(x.shape[3])
    return np.stack([np.stack([x[:, :, r, c].mean((2, 3)) for c in columns], -1) for r in rows], -2)


def _normalised(x: Any, axes: tuple[int, ...], eps: float) -> Any:
    """Subtract the mean over the axes and divide by the standard deviation."""
    centred = x - x.mean(axis=axes, keepdims=True)
    return centred / np.sqrt(np.square(centred).mean(axis=axes, keepdims=True) + x.dtype.type(eps))


def _per_channel(x: Any) -> Any:
    """Shape a vector so that it goes along the channels of images."""
    return x[:, None, None]


def _layer_norm(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    return _normalised(x, (-1,), eps) * weight + bias


def _batch_norm(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    return _normalised(x, (0, 2, 3), eps) * _per_channel(weight) + _per_channel(bias)


def _batch_norm_training(x: Any, weight: Any, bias: Any, mean: Any, var: Any, eps: float) -> Any:
    del mean, var  # what was found in earlier batches
    found = x.mean(axis=(0, 2, 3)), x.var(axis=(0, 2, 3), ddof=1)
    return _batch_norm(x, weight, bias, eps), *found


def _batch_norm_inference(x: Any, weight: Any, bias: Any, mean: Any, var: Any, eps: float) -> Any:
    scale = weight / np.sqrt(var + x.dtype.type(eps))
    return (x - _per_channel(mean)) * _per_channel(scale) + _per_channel(bias)


def _instance_norm(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    return _normalised(x, (2, 3), eps) * _per_channel(weight) + _per_channel(bias)


def _group_norm(x: Any, weight: Any, bias: Any, groups: int, eps: float) -> Any:
    grouped = _normalised(x.reshape(len(x), groups, -1), (2,), eps).reshape(x.shape)
    return grouped * _per_channel(weight) + _per_channel(bias)


def _rms_norm(x: Any, weight: Any, eps: float) -> Any:
    return x / np.sqrt(np.square(x).mean(-1, keepdims=True) + x.dtype.type(eps)) * weight


def _l2_normalize(x: Any, dim: int) -> Any:
    return x / np.sqrt(np.square(x).sum(axis=dim, keepdims=True))


def _cross_entropy(x: Any, target: Any) -> Any:
    return _nll_loss(_log_softmax(x, -1), target)


def _nll_loss(x: Any, target: Any) -> Any:
    return -x[np.arange(len(target)), target].mean()


def _huber_loss(x: Any, target: Any, delta: float) -> Any:
    error = np.abs(x - target)
    return np.where(error < delta, error**2 / 2, delta * (error - delta / 2)).mean()


def _bce_with_logits(x: Any, target: Any) -> Any:
    return (np.maximum(x, 0) - x * target + np.log1p(np.exp(-np.abs(x)))).mean()


def _kl_div(x: Any, target: Any) -> Any:
    return (target * (np.log(target) - x)).sum() / len(x)


def _cosine_similarity(x: Any, y: Any) -> Any:
    return (_l2_normalize(x, -1) * _l2_normalize(y, -1)).sum(-1)


def _scatter_add(x: Any, index: Any, source: Any) -> Any:
    result = x.copy()
    np.add.at(result, index, source)
    return result


def _sort(x: Any, descending: bool) -> Any:
    ascending = np.sort(x, axis=-1)
    return ascending[..., ::-1].copy() if descending else ascending


def _topk(x: Any, k: int) -> Any:
    return -np.sort(-x, axis=-1)[..., :k]


def _pad(x: Any, width: int, mode: str) -> Any:
    return np.pad(x, [(0, 0)] * 2 + [(width, width)] * 2, mode=mode)  # type: ignore[call-overload]


def _upsample_nearest2d(x: Any, factor: int) -> Any:
    return x.repeat(factor, 2).repeat(factor, 3)


def _dropout(x: Any, p: float) -> Any:
    return x * (RANDOM.random(x.shape, dtype=x.dtype) >= p) / x.dtype.type(1 - p)


def _bernoulli(seed: Any, like: Any, p: float) -> Any:
    return (RANDOM.random(like.shape, like.dtype) < p).astype(like.dtype)


def _momentum(p: Any, g: Any, v: Any, lr: float, momentum: float, nesterov: bool) -> Any:
    v = momentum * v + g
    return p - lr * (g + momentum * v if nesterov else v), v


def _rmsprop(p: Any, g: Any, s: Any, lr: float, decay: float, eps: float) -> Any:
    s = decay * s + (1 - decay) * g * g
    return p - lr * g / (np.sqrt(s) + eps), s


def _adam(
    p: Any, g: Any, m: Any, v: Any, lr: float, beta1: float, beta2: float, eps: float, decay: float
) -> Any:
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    step = m / (1 - beta1) / (np.sqrt(v / (1 - beta2)) + eps)
    return p * (1 - lr * decay) - lr * step, m, v


def _attention(q: Any, k: Any, v: Any, causal: bool) -> Any:
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.dtype.type(q.shape[-1]))
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:]) > 0, scores, -np.inf)
    return _softmax(scores, -1) @ v


def _multi_head_attention(
    x: Any, weight: Any, bias: Any, out_weight: Any, out_bias: Any, heads: int
) -> Any:
    """Project to queries, keys and values, attend in each head, project back."""
    batch, length, width = x.shape
    parts = np.split(x @ weight.T + bias, 3, -1)
    q, k, v = (each.reshape(batch, length, heads, -1).swapaxes(1, 2) for each in parts)
    joined = _attention(q, k, v, causal=False).swapaxes(1, 2).reshape(batch, length, width)
    return joined @ out_weight.T + out_bias


def _lstm_cell(x: Any, h: Any, c: Any, w_x: Any, w_h: Any, b_x: Any, b_h: Any) -> Any:
    i, f, g, o = np.split(x @ w_x.T + b_x + h @ w_h.T + b_h, 4, -1)
    c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
    return _sigmoid(o) * np.tanh(c), c


def _gru_cell(x: Any, h: Any, w_x: Any, w_h: Any, b_x: Any, b_h: Any) -> Any:
    r_x, z_x, n_x = np.split(x @ w_x.T + b_x, 3, -1)
    r_h, z_h, n_h = np.split(h @ w_h.T + b_h, 3, -1)
    z = _sigmoid(z_x + z_h)
    return (1 - z) * np.tanh(n_x + _sigmoid(r_x + r_h) * n_h) + z * h


OPERATORS: Mapping[str, Callable[..., Any]] = {
    # unary
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "erf": _erf,
    "abs": np.abs,
    "square": np.square,
    # binary, with broadcasting
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "maximum": np.maximum,
    "pow": np.power,
    # activations
    "relu": lambda x: np.maximum(x, 0),
    "gelu": _gelu,
    "silu": lambda x: x * _sigmoid(x),
    "elu": lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))),
    "leaky_relu": lambda x, slope: np.where(x > 0, x, slope * x),
    "softplus": _softplus,
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "mish": lambda x: x * np.tanh(_softplus(x)),
    "glu": _glu,
    # selection
    "where": np.where,
    "clip": np.clip,
    # reductions
    "sum": lambda x, dim: x.sum(axis=dim),
    "mean": lambda x, dim: x.mean(axis=dim),
    "amax": lambda x, dim: x.max(axis=dim),
    "amin": lambda x, dim: x.min(axis=dim),
    "prod": lambda x, dim: x.prod(axis=dim),
    "var": lambda x, dim, correction: x.var(axis=dim, ddof=correction),
    "norm": lambda x, dim, order: np.linalg.norm(x, order, dim),
    "logsumexp": _logsumexp,
    "cumsum": lambda x, dim: x.cumsum(axis=dim),
    "argmax": lambda x, dim: x.argmax(axis=dim),
    "argmin": lambda x, dim: x.argmin(axis=dim),
    # products
    "matmul": np.matmul,
    "bmm": _bmm,
    "linear": lambda x, weight, bias: x @ weight.T + bias,
    "matvec": np.matmul,
    "outer": np.outer,
    "einsum": lambda a, b, equation: np.einsum(equation, a, b, optimize=True),
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
    "adaptive_avg_pool2d": _adaptive_avg_pool2d,
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
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "softmin": lambda x, dim: _softmax(-x, dim),
    # losses
    "cross_entropy": _cross_entropy,
    "nll_loss": _nll_loss,
    "mse_loss": lambda x, target: np.square(x - target).mean(),
    "l1_loss": lambda x, target: np.abs(x - target).mean(),
    "huber_loss": _huber_loss,
    "bce_with_logits": _bce_with_logits,
    "kl_div": _kl_div,
    "cosine_similarity": _cosine_similarity,
    # lookups
    "embedding": lambda index, weight: weight[index],
    "gather": lambda x, index: np.take_along_axis(x, index, 1),
    "index_select": lambda x, index, dim: np.take(x, index, dim),
    "scatter_add": _scatter_add,
    # order
    "sort": _sort,
    "argsort": lambda x: np.argsort(x, axis=-1),
    "topk": _topk,
    # shape
    "concat": lambda x, y, dim: np.concatenate((x, y), dim),
    "split": lambda x, parts, dim: [part.copy() for part in np.split(x, parts, dim)],
    "stack": lambda x, y, dim: np.stack((x, y), dim),
    "transpose": lambda x: x.T.copy(),
    "permute": lambda x, dims: x.transpose(dims).copy(),
    "reshape": lambda x, shape: x.reshape(shape).copy(),
    "slice": lambda x, step: x[:, ::step].copy(),
    "flip": lambda x, dim: np.flip(x, dim).copy(),
    "roll": lambda x, shift, dim: np.roll(x, shift, dim),
    "pad": _pad,
    "tile": np.tile,
    "repeat": lambda x, repeats, dim: x.repeat(repeats, dim),
    "broadcast_to": lambda x, shape: np.broadcast_to(x, shape).copy(),
    "triu": np.triu,
    # random
    "dropout": _dropout,
    "random_uniform": lambda seed, like: RANDOM.random(like.shape, like.dtype),
    "random_normal": lambda seed, like: RANDOM.standard_normal(like.shape, like.dtype),
    "random_exponential": lambda seed, like: RANDOM.standard_exponential(like.shape, like.dtype),
    "random_bernoulli": _bernoulli,
    # optimiser updates
    "sgd": lambda p, g, lr, decay: p - lr * (g + decay * p),
    "momentum": _momentum,
    "rmsprop": _rmsprop,
    "adam": _adam,
    # attention and recurrent cells
    "scaled_dot_product_attention": _attention,
    "multi_head_attention": _multi_head_attention,
    "lstm_cell": _lstm_cell,
    "gru_cell": _gru_cell,
}
