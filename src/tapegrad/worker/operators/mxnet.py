"""MXNet's calls: those of `mx.nd`, and of `mx.np` where only that has one or gives scalars."""

# Calls take inputs by place and attributes by name, which lambdas give them.
# ruff: noqa: PLR0917, PLW0108

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd, nd

from tapegrad.worker.adapter import Unsupported
from tapegrad.worker.operators import FLOAT32, Fused, updates

#: Why an operator is not in the table.
MISSING = {
    "scatter_add": "no call adds rows at indices: nd.scatter_nd keeps one row of equal indices",
}


def _of_numpy(call: Callable[..., Any]) -> Callable[..., Any]:
    """Let a call of `mx.np` take and give arrays of `mx.nd`; they share their memory."""

    def converted(*inputs: Any, **attrs: Any) -> Any:
        return call(*(each.as_np_ndarray() for each in inputs), **attrs).as_nd_ndarray()

    return converted


def _by_type(call: Callable[..., Any], formula: Callable[..., Any]) -> Callable[..., Any]:
    """Take a formula in float64: MXNet keeps the attributes of many calls in float32."""

    def chosen(x: Any, *inputs: Any, **attrs: Any) -> Any:
        return (formula if x.dtype == np.float64 else call)(x, *inputs, **attrs)

    return chosen


_mean_of_all = _of_numpy(mx.np.mean)
_sum_of_all = _of_numpy(mx.np.sum)
_tril = _of_numpy(mx.np.tril)
_clip = _by_type(
    lambda x, min, max: nd.clip(x, min, max),
    lambda x, min, max: nd.maximum(nd.minimum(x, max), min),
)


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
    sides = len(kernel)
    return nd.Convolution(
        *(x, weight) if bias is None else (x, weight, bias),
        no_bias=bias is None,
        kernel=kernel,
        num_filter=weight.shape[0],
        stride=(stride,) * sides,
        pad=(padding,) * sides,
        dilate=(dilation,) * sides,
        num_group=groups,
    )


def _conv_transpose2d(x: Any, weight: Any, bias: Any, stride: int, padding: int) -> Any:
    return nd.Deconvolution(
        x,
        weight,
        bias,
        no_bias=False,
        kernel=weight.shape[2:],
        num_filter=weight.shape[1],
        stride=(stride,) * 2,
        pad=(padding,) * 2,
    )


def _pool(x: Any, kind: str, kernel: int, stride: int, padding: int = 0) -> Any:
    """Pool in as many dimensions as there are."""
    sides = x.ndim - 2
    return nd.Pooling(
        x,
        pool_type=kind,
        kernel=(kernel,) * sides,
        stride=(stride,) * sides,
        pad=(padding,) * sides,
    )


def _max_pool(x: Any, kernel: int, stride: int, padding: int = 0) -> Any:
    return _pool(x, "max", kernel, stride, padding)


def _avg_pool(x: Any, kernel: int, stride: int) -> Any:
    return _pool(x, "avg", kernel, stride)


def _global_avg_pool2d(x: Any) -> Any:
    """Average by pooling, which takes a tenth of the time of `nd.mean`."""
    return nd.flatten(nd.Pooling(x, pool_type="avg", kernel=(1, 1), global_pool=True))


def _glu(x: Any, dim: int) -> Any:
    value, gate = nd.split(x, num_outputs=2, axis=dim)
    return value * nd.sigmoid(gate)


def _elu(x: Any, alpha: float) -> Any:
    return nd.where(x > 0, x, alpha * nd.expm1(nd.minimum(x, 0)))


def _var(x: Any, dim: int, correction: int) -> Any:
    """Scale the variance of `nd.moments`: that of `mx.np.var` has a wrong gradient."""
    _, variance = nd.moments(x, axes=(dim,))
    return variance * (x.shape[dim] / (x.shape[dim] - correction))


def _norm(x: Any, dim: int, order: int) -> Any:
    if order not in (1, 2):
        raise Unsupported("nd.norm has the orders 1 and 2 only")
    return nd.norm(x, order, dim)


def _logsumexp(x: Any, dim: int) -> Any:
    most = nd.BlockGrad(nd.max(x, axis=dim, keepdims=True))
    total = nd.log(nd.sum(nd.exp(nd.broadcast_sub(x, most)), axis=dim, keepdims=True))
    return nd.squeeze(total + most, axis=dim)


def _linear(x: Any, weight: Any, bias: Any) -> Any:
    return nd.FullyConnected(x, weight, bias, num_hidden=weight.shape[0], flatten=False)


def _einsum(a: Any, b: Any, equation: str) -> Any:
    return mx.np.einsum(equation, a.as_np_ndarray(), b.as_np_ndarray()).as_nd_ndarray()


def _per_channel(x: Any) -> Any:
    """Shape a vector so that it goes along the channels of images."""
    return nd.reshape(x, shape=(-1, 1, 1))


def _normalised(x: Any, axes: tuple[int, ...], eps: float) -> Any:
    """Subtract the mean over the axes and divide by the standard deviation."""
    centred = nd.broadcast_sub(x, nd.mean(x, axis=axes, keepdims=True))
    variance = nd.mean(nd.square(centred), axis=axes, keepdims=True)
    return nd.broadcast_mul(centred, nd.rsqrt(variance + eps))


def _scaled(x: Any, weight: Any, bias: Any) -> Any:
    return nd.broadcast_add(nd.broadcast_mul(x, weight), bias)


def _scaled_by_channel(x: Any, weight: Any, bias: Any) -> Any:
    return _scaled(x, _per_channel(weight), _per_channel(bias))


def _layer_norm(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    return _scaled(_normalised(x, (-1,), eps), weight, bias)


def _instance_norm(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    return _scaled_by_channel(_normalised(x, (2, 3), eps), weight, bias)


@cache
def _running(channels: int, dtype: Any) -> tuple[Any, Any]:
    """Make the running mean and variance that MXNet wants to update."""
    return nd.zeros(channels, dtype=dtype), nd.ones(channels, dtype=dtype)


def _batch_norm(
    x: Any, weight: Any, bias: Any, eps: float, call: Callable[..., Any] = nd.BatchNorm, **more: Any
) -> Any:
    """Normalise by the batch's own statistics, also outside of training."""
    running = _running(x.shape[1], x.dtype)
    with autograd.train_mode():
        return call(x, weight, bias, *running, eps=eps, fix_gamma=False, **more)


def _batch_norm_training(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, eps: float
) -> tuple[Any, Any, Any]:
    """Normalise; where MXNet says variance it gives one over the standard deviation."""
    del mean, var  # the batch's own are used
    count = x.size // x.shape[1]
    result, mean, deviation = _batch_norm(x, weight, bias, eps, output_mean_var=True)
    with autograd.pause():
        var = (1 / nd.square(deviation) - eps) * (count / (count - 1))
    return result, mean, var


def _batch_norm_inference(x: Any, weight: Any, bias: Any, mean: Any, var: Any, eps: float) -> Any:
    return nd.BatchNorm(x, weight, bias, mean, var, eps=eps, fix_gamma=False, use_global_stats=True)


@cache
def _neutral(groups: int, dtype: Any) -> tuple[Any, Any]:
    """Make a weight and a bias that change nothing."""
    return nd.ones(groups, dtype=dtype), nd.zeros(groups, dtype=dtype)


def _in_groups(x: Any, groups: int, eps: float) -> Any:
    return nd.GroupNorm(x, *_neutral(groups, x.dtype), num_groups=groups, eps=eps)


def _in_groups_by_formula(x: Any, groups: int, eps: float) -> Any:
    grouped = nd.reshape(x, shape=(x.shape[0], groups, -1))
    return nd.reshape(_normalised(grouped, (2,), eps), shape=x.shape)


def _group_norm(x: Any, weight: Any, bias: Any, groups: int, eps: float) -> Any:
    """Normalise in groups; MXNet has a weight for each group, so those of channels come after."""
    normal = _by_type(_in_groups, _in_groups_by_formula)(x, groups=groups, eps=eps)
    return _scaled_by_channel(normal, weight, bias)


def _rms_norm(x: Any, weight: Any, eps: float) -> Any:
    scale = nd.rsqrt(nd.mean(nd.square(x), axis=-1, keepdims=True) + eps)
    return nd.broadcast_mul(nd.broadcast_mul(x, scale), weight)


def _l2_normalize(x: Any, dim: int) -> Any:
    """Divide by the norm; MXNet's call takes that over all dimensions but the first."""
    if x.ndim == 2 and dim in (1, -1):
        return nd.L2Normalization(x, eps=1e-24)
    return nd.broadcast_div(x, nd.norm(x, axis=dim, keepdims=True))


def _nll_loss(x: Any, target: Any) -> Any:
    return -_mean_of_all(nd.pick(x, target))


def _huber_loss(x: Any, target: Any, delta: float) -> Any:
    return _mean_of_all(nd.smooth_l1(x - target, scalar=delta**-0.5)) * delta


def _bce_with_logits(x: Any, target: Any) -> Any:
    return _mean_of_all(nd.relu(x) - x * target + _softplus(-nd.abs(x)))


def _softplus(x: Any) -> Any:
    return nd.Activation(x, act_type="softrelu")


def _kl_div(x: Any, target: Any) -> Any:
    return _sum_of_all(target * (nd.log(target) - x)) / x.shape[0]


def _cosine_similarity(x: Any, y: Any) -> Any:
    return nd.sum(_l2_normalize(x, -1) * _l2_normalize(y, -1), axis=-1)


def _embedding(index: Any, weight: Any) -> Any:
    rows, width = weight.shape
    return nd.Embedding(index, weight, input_dim=rows, output_dim=width)


def _gather(x: Any, index: Any) -> Any:
    rows = nd.broadcast_like(
        nd.reshape(nd.arange(x.shape[0], dtype=index.dtype), shape=(-1, 1)), index
    )
    return nd.gather_nd(x, nd.stack(rows, index))


def _pad(x: Any, width: int, mode: str) -> Any:
    return nd.pad(x, mode=mode, pad_width=(0,) * 4 + (width,) * 4)


def _bernoulli(seed: Any, like: Any, p: float) -> Any:
    return mx.npx.random.bernoulli(p, size=like.shape, dtype=like.dtype).as_nd_ndarray()


def _adam(
    p: Any, g: Any, m: Any, v: Any, lr: float, beta1: float, beta2: float, eps: float, decay: float
) -> Any:
    """Update copies of the moments; the corrections of a first step are in the rate and in eps."""
    m, v = m.copy(), v.copy()
    root = (1 - beta2) ** 0.5
    new = nd.contrib.adamw_update(
        p,
        g,
        m,
        v,
        rescale_grad=_one(),
        lr=lr * root / (1 - beta1),
        eta=1.0,
        beta1=beta1,
        beta2=beta2,
        epsilon=eps * root,
        wd=lr * decay,
    )
    return new, m, v


@cache
def _one() -> Any:
    return nd.ones(1)


def _attention(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """Attend in one batch of all heads; a causal row sees as many columns as its number says."""
    batch, heads = q.shape[:2]
    q, k, v = (nd.reshape(each, shape=(-3, 0, 0)) for each in (q, k, v))
    joined = _attention_of_batch(q, k, v, causal)
    return nd.reshape(joined, shape=(-4, batch, heads, 0, 0))


def _attention_of_batch(q: Any, k: Any, v: Any, causal: bool) -> Any:
    scores = nd.batch_dot(q, k, transpose_b=True) * q.shape[-1] ** -0.5
    if causal:
        seen = nd.arange(1, scores.shape[-1] + 1, dtype="int32")
        seen = nd.broadcast_axis(nd.expand_dims(seen, axis=0), axis=0, size=scores.shape[0])
        return nd.batch_dot(nd.softmax(scores, length=seen, use_length=True), v)
    return nd.batch_dot(nd.softmax(scores), v)


def _multi_head_attention(
    x: Any, weight: Any, bias: Any, out_weight: Any, out_bias: Any, heads: int
) -> Any:
    batch, length, width = x.shape
    parts = nd.reshape(_linear(x, weight, bias), shape=(batch, length, 3, heads, -1))
    q, k, v = nd.split(
        nd.transpose(parts, axes=(2, 0, 3, 1, 4)), num_outputs=3, axis=0, squeeze_axis=True
    )
    joined = nd.transpose(_attention(q, k, v, causal=False), axes=(0, 2, 1, 3))
    return _linear(nd.reshape(joined, shape=(batch, length, width)), out_weight, out_bias)


def _lstm_cell(x: Any, h: Any, c: Any, w_x: Any, w_h: Any, b_x: Any, b_h: Any) -> Any:
    gates = _linear(x, w_x, b_x) + _linear(h, w_h, b_h)
    i, f, g, o = nd.split(gates, num_outputs=4)
    c = nd.sigmoid(f) * c + nd.sigmoid(i) * nd.tanh(g)
    return nd.sigmoid(o) * nd.tanh(c), c


def _gru_cell(x: Any, h: Any, w_x: Any, w_h: Any, b_x: Any, b_h: Any) -> Any:
    r_x, z_x, n_x = nd.split(_linear(x, w_x, b_x), num_outputs=3)
    r_h, z_h, n_h = nd.split(_linear(h, w_h, b_h), num_outputs=3)
    z = nd.sigmoid(z_x + z_h)
    return (1 - z) * nd.tanh(n_x + nd.sigmoid(r_x + r_h) * n_h) + z * h


OPERATORS: Mapping[str, Callable[..., Any]] = {
    # unary
    "exp": nd.exp,
    "log": nd.log,
    "sqrt": nd.sqrt,
    "rsqrt": nd.rsqrt,
    "sin": nd.sin,
    "tanh": nd.tanh,
    "sigmoid": nd.sigmoid,
    "erf": nd.erf,
    "abs": nd.abs,
    "square": nd.square,
    # binary, with broadcasting
    "add": nd.add,
    "sub": nd.subtract,
    "mul": nd.multiply,
    "div": nd.divide,
    "maximum": nd.maximum,
    "pow": nd.power,
    # activations
    "relu": nd.relu,
    "gelu": _by_type(
        lambda x: nd.LeakyReLU(x, act_type="gelu"), lambda x: x * (1 + nd.erf(x * 0.5**0.5)) / 2
    ),
    "silu": lambda x: x * nd.sigmoid(x),
    "elu": _by_type(lambda x, alpha: nd.LeakyReLU(x, act_type="elu", slope=alpha), _elu),
    "leaky_relu": _by_type(
        lambda x, slope: nd.LeakyReLU(x, act_type="leaky", slope=slope),
        lambda x, slope: nd.where(x > 0, x, slope * x),
    ),
    "softplus": _softplus,
    "hardswish": _by_type(
        lambda x: x * nd.hard_sigmoid(x, alpha=1 / 6, beta=0.5),
        lambda x: x * nd.clip(x + 3, 0, 6) / 6,
    ),
    "mish": lambda x: x * nd.tanh(_softplus(x)),
    "glu": _glu,
    # selection
    "where": nd.where,
    "clip": _clip,
    # reductions
    "sum": lambda x, dim: nd.sum(x, axis=dim),
    "mean": lambda x, dim: nd.mean(x, axis=dim),
    "amax": lambda x, dim: nd.max(x, axis=dim),
    "amin": lambda x, dim: nd.min(x, axis=dim),
    "prod": lambda x, dim: nd.prod(x, axis=dim),
    "var": _var,
    "norm": _norm,
    "logsumexp": _logsumexp,
    "cumsum": lambda x, dim: nd.cumsum(x, axis=dim % x.ndim),
    "argmax": lambda x, dim: nd.argmax(x, axis=dim),
    "argmin": lambda x, dim: nd.argmin(x, axis=dim),
    # products
    "matmul": nd.dot,
    "bmm": lambda a, b, transpose_b: nd.batch_dot(a, b, transpose_b=transpose_b),
    "linear": _linear,
    "matvec": nd.dot,
    "outer": _of_numpy(mx.np.outer),
    "einsum": _einsum,
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
    "global_avg_pool2d": _global_avg_pool2d,
    "adaptive_avg_pool2d": lambda x, parts: nd.contrib.AdaptiveAvgPooling2D(x, output_size=parts),
    "upsample_nearest2d": lambda x, factor: nd.UpSampling(x, scale=factor, sample_type="nearest"),
    # normalisation
    "layer_norm": _by_type(nd.LayerNorm, _layer_norm),
    "batch_norm": _batch_norm,
    "batch_norm_training": _batch_norm_training,
    "batch_norm_inference": _batch_norm_inference,
    "instance_norm": _by_type(nd.InstanceNorm, _instance_norm),
    "group_norm": _group_norm,
    "rms_norm": _rms_norm,
    "l2_normalize": _l2_normalize,
    # softmax
    "softmax": lambda x, dim: nd.softmax(x, axis=dim),
    "log_softmax": lambda x, dim: nd.log_softmax(x, axis=dim),
    "softmin": lambda x, dim: nd.softmin(x, axis=dim),
    # losses
    "cross_entropy": lambda x, target: _nll_loss(nd.log_softmax(x), target),
    "nll_loss": _nll_loss,
    "mse_loss": lambda x, target: _mean_of_all(nd.square(x - target)),
    "l1_loss": lambda x, target: _mean_of_all(nd.abs(x - target)),
    "huber_loss": _huber_loss,
    "bce_with_logits": _bce_with_logits,
    "kl_div": _kl_div,
    "cosine_similarity": _cosine_similarity,
    # lookups
    "embedding": _embedding,
    "gather": _gather,
    "index_select": lambda x, index, dim: nd.take(x, index, axis=dim),
    # order
    "sort": lambda x, descending: nd.sort(x, axis=-1, is_ascend=not descending),
    "argsort": lambda x: nd.argsort(x, dtype="int64"),
    "topk": lambda x, k: nd.topk(x, k=k, ret_typ="value"),
    # shape
    "concat": lambda x, y, dim: nd.concat(x, y, dim=dim),
    "split": lambda x, parts, dim: nd.split(x, num_outputs=parts, axis=dim),
    "stack": lambda x, y, dim: nd.stack(x, y, axis=dim),
    "transpose": nd.transpose,
    "permute": lambda x, dims: nd.transpose(x, axes=dims),
    "reshape": lambda x, shape: nd.reshape(x, shape=shape),
    "slice": lambda x, step: nd.slice(x, begin=(None, None), end=(None, None), step=(1, step)),
    "flip": lambda x, dim: nd.flip(x, axis=dim % x.ndim),
    "roll": lambda x, shift, dim: _of_numpy(mx.np.roll)(x, shift=shift, axis=dim),
    "pad": _pad,
    "tile": lambda x, reps: nd.tile(x, reps=reps),
    "repeat": lambda x, repeats, dim: nd.repeat(x, repeats=repeats, axis=dim),
    "broadcast_to": lambda x, shape: _of_numpy(mx.np.broadcast_to)(x, shape=shape),
    "triu": lambda x: x - _tril(x, k=-1),
    # random
    "dropout": lambda x, p: nd.Dropout(x, p=p, mode="always"),
    "random_uniform": lambda seed, like: nd.random_uniform(shape=like.shape, dtype=like.dtype),
    "random_normal": lambda seed, like: nd.random_normal(shape=like.shape, dtype=like.dtype),
    "random_exponential": lambda seed, like: nd.random_exponential(
        shape=like.shape, dtype=like.dtype
    ),
    "random_bernoulli": _bernoulli,
    # optimiser updates
    "sgd": _by_type(
        lambda p, g, lr, decay: nd.sgd_update(p, g, lr=lr, wd=decay),
        updates.sgd,
    ),
    "momentum": updates.momentum,
    "rmsprop": partial(updates.rmsprop, nd.sqrt),
    "adam": _by_type(_adam, partial(updates.adam, nd.sqrt)),
    # attention and recurrent cells
    "scaled_dot_product_attention": _attention,
    "multi_head_attention": _multi_head_attention,
    "lstm_cell": _lstm_cell,
    "gru_cell": _gru_cell,
}


def _conv2d_batch_norm_relu(
    x: Any, weight: Any, gamma: Any, beta: Any, stride: int, padding: int, eps: float
) -> Any:
    convolved = _conv(x, weight, stride=stride, padding=padding)
    return _batch_norm(convolved, gamma, beta, eps, nd.contrib.BatchNormWithReLU)


def _softmax_cross_entropy(x: Any, target: Any) -> Any:
    """Divide the sum over all rows, which MXNet gives, by their number."""
    return _sum_of_all(nd.softmax_cross_entropy(x, nd.cast(target, x.dtype))) / x.shape[0]


#: What there is of fused calls.
FUSED: Mapping[str, Fused] = {
    "conv2d_batch_norm_relu": Fused(
        "nd.contrib.BatchNormWithReLU, after the convolution",
        _conv2d_batch_norm_relu,
        dtypes=FLOAT32,
    ),
    "softmax_cross_entropy": Fused("nd.softmax_cross_entropy", _softmax_cross_entropy),
}
