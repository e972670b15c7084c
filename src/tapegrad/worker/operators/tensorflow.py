"""TensorFlow's calls. Images are (batch, row, column, channel) there: they are transposed."""

# Calls take inputs by place and attributes by name, which lambdas give them.
# ruff: noqa: PLR0917, PLW0108

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import tensorflow as tf

from tapegrad.worker.adapter import Unsupported
from tapegrad.worker.case import DTYPES
from tapegrad.worker.operators import FLOAT32, FORWARD, INFERENCE, Fused, updates

#: Why an operator is not in the table.
MISSING = {
    "adaptive_avg_pool2d": "tf.nn has windows of one size only, no adaptive pooling",
    "random_exponential": "tf.random has no exponential distribution",
}


def _last(x: Any) -> Any:
    """Move the channels to the end."""
    return tf.transpose(x, (0, *range(2, x.shape.rank), 1))


def _first(x: Any) -> Any:
    """Move the channels back to the second place."""
    return tf.transpose(x, (0, x.shape.rank - 1, *range(1, x.shape.rank - 1)))


def _edges(padding: int) -> list[list[int]]:
    return [[0, 0], [padding, padding], [padding, padding], [0, 0]]


def _conv2d(x: Any, weight: Any, bias: Any = None, *, stride: int, padding: int) -> Any:
    filters = tf.transpose(weight, (2, 3, 1, 0))
    return _first(_conv2d_last(_last(x), filters, bias, stride=stride, padding=padding))


def _named_edges(padding: int, window: Sequence[int], stride: int) -> Any:
    """Name edges where they have a name: only then oneDNN computes the gradients."""
    if padding == 0:
        return "VALID"
    same = stride == 1 and all(2 * padding == side - 1 for side in window)
    return "SAME" if same else _edges(padding)


def _conv2d_last(x: Any, filters: Any, bias: Any = None, *, stride: int, padding: int) -> Any:
    edges = _named_edges(padding, filters.shape[:2], stride)
    result = tf.nn.conv2d(x, filters, stride, edges)
    return result if bias is None else tf.nn.bias_add(result, bias)


def _conv2d_spread(
    x: Any, weight: Any, bias: Any, stride: int, padding: int, dilation: int = 1, groups: int = 1
) -> Any:
    """Convolve with dilation or in groups, of which oneDNN alone computes the gradients.

    It does so in float32 and with named edges; others are made before.
    """
    del groups  # the channels of the filters tell
    if x.dtype != tf.float32:
        raise Unsupported(
            "tf.nn.conv2d has a gradient with dilation or groups in float32 only on the CPU"
        )
    window = [(side - 1) * dilation + 1 for side in weight.shape[2:]]
    edges, images = _named_edges(padding, window, stride), _last(x)
    if not isinstance(edges, str):
        edges, images = "VALID", tf.pad(images, edges)
    filters = tf.transpose(weight, (2, 3, 1, 0))
    return _first(
        tf.nn.bias_add(tf.nn.conv2d(images, filters, stride, edges, dilations=dilation), bias)
    )


def _conv2d_depthwise(
    x: Any, weight: Any, bias: Any, stride: int, padding: int, groups: int
) -> Any:
    """Convolve each channel alone; padded before, since explicit padding aborts on the CPU."""
    del groups  # as many as there are channels
    filters = tf.transpose(weight, (2, 3, 0, 1))
    padded, steps = tf.pad(_last(x), _edges(padding)), (1, stride, stride, 1)
    return _first(tf.nn.depthwise_conv2d(padded, filters, steps, "VALID") + bias)


def _conv1d(x: Any, weight: Any, bias: Any, stride: int, padding: int) -> Any:
    padded = tf.pad(_last(x), ((0, 0), (padding, padding), (0, 0)))
    return _first(tf.nn.conv1d(padded, tf.transpose(weight, (2, 1, 0)), stride, "VALID") + bias)


def _conv_transpose2d(x: Any, weight: Any, bias: Any, stride: int, padding: int) -> Any:
    filters = tf.transpose(weight, (2, 3, 1, 0))
    _, width, *kernel = weight.shape
    sides = (
        (side - 1) * stride - 2 * padding + k for side, k in zip(x.shape[2:], kernel, strict=True)
    )
    shape = (x.shape[0], *sides, width)
    return _first(tf.nn.conv2d_transpose(_last(x), filters, shape, stride, _edges(padding)) + bias)


def _max_pool2d(x: Any, kernel: int, stride: int, padding: int) -> Any:
    return _first(_max_pool2d_last(_last(x), kernel, stride, padding))


def _max_pool2d_last(x: Any, kernel: int, stride: int, padding: int) -> Any:
    return tf.nn.max_pool2d(x, kernel, stride, _edges(padding))


def _avg_pool2d(x: Any, kernel: int, stride: int) -> Any:
    return _first(_avg_pool2d_last(_last(x), kernel, stride))


def _avg_pool2d_last(x: Any, kernel: int, stride: int) -> Any:
    return tf.nn.avg_pool2d(x, kernel, stride, "VALID")


def _max_pool1d(x: Any, kernel: int, stride: int) -> Any:
    return _first(tf.nn.max_pool1d(_last(x), kernel, stride, "VALID"))


def _avg_pool1d(x: Any, kernel: int, stride: int) -> Any:
    return _first(tf.nn.avg_pool1d(_last(x), kernel, stride, "VALID"))


def _upsample_nearest2d(x: Any, factor: int) -> Any:
    return tf.repeat(tf.repeat(x, factor, 2), factor, 3)


def _gelu(x: Any) -> Any:
    """Apply gelu; in float64 by its formula, since TensorFlow's constant is a float32."""
    return tf.nn.gelu(x) if x.dtype == tf.float32 else x * (1 + tf.math.erf(x * 0.5**0.5)) / 2


def _elu(x: Any, alpha: float) -> Any:
    """Apply elu; by its formula where alpha, which TensorFlow's call lacks, is not 1."""
    if alpha == 1:
        return tf.nn.elu(x)
    return tf.where(x > 0, x, alpha * tf.math.expm1(tf.minimum(x, 0)))


def _leaky_relu(x: Any, slope: float) -> Any:
    """Apply leaky relu; in float64 by its formula, since TensorFlow's slope is a float32."""
    return tf.nn.leaky_relu(x, slope) if x.dtype == tf.float32 else tf.where(x > 0, x, slope * x)


def _glu(x: Any, dim: int) -> Any:
    value, gate = tf.split(x, 2, dim)
    return value * tf.sigmoid(gate)


def _normalised(x: Any, axes: tuple[int, ...], weight: Any, bias: Any, eps: float) -> Any:
    mean, variance = tf.nn.moments(x, axes, keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, bias, weight, eps)


def _per_channel(x: Any) -> Any:
    """Shape a vector so that it goes along the channels of images."""
    return x[:, None, None]


def _layer_norm(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    return _normalised(x, (-1,), weight, bias, eps)


@tf.custom_gradient  # type: ignore[untyped-decorator]
def _copied(x: Any) -> Any:
    """Copy what is a view; the call for it has no gradient of its own."""
    return tf.raw_ops.DeepCopy(x=x), lambda gradient: gradient


def _batch_norm(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    """Normalise by the fused call, which has float32 and channels last only, or by the formula."""
    if x.dtype == tf.float32:
        return _first(_batch_norm_last(_last(x), weight, bias, eps))
    return _normalised(x, (0, 2, 3), _per_channel(weight), _per_channel(bias), eps)


def _batch_norm_training(x: Any, weight: Any, bias: Any, mean: Any, var: Any, eps: float) -> Any:
    y, *found = _batch_norm_training_last(_last(x), weight, bias, mean, var, eps)
    return _first(y), *found


def _batch_norm_last(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    return _batch_norm_training_last(x, weight, bias, None, None, eps)[0]


def _batch_norm_training_last(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, eps: float
) -> Any:
    """Normalise; in float64 by its formula, since TensorFlow's fused call has float32 only."""
    if x.dtype == tf.float32:
        y, mean, var = tf.compat.v1.nn.fused_batch_norm(x, weight, bias, epsilon=eps)
        return y, tf.stop_gradient(mean), tf.stop_gradient(var)
    axes, count = (0, 1, 2), tf.size(x) / x.shape[-1]
    mean, var = tf.nn.moments(x, axes)
    y = tf.nn.batch_normalization(x, mean, var, bias, weight, eps)
    return y, tf.stop_gradient(mean), tf.stop_gradient(var * count / (count - 1))


def _batch_norm_inference(x: Any, weight: Any, bias: Any, mean: Any, var: Any, eps: float) -> Any:
    return _first(_batch_norm_inference_last(_last(x), weight, bias, mean, var, eps))


def _batch_norm_inference_last(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, eps: float
) -> Any:
    if x.dtype == tf.float32:
        return tf.compat.v1.nn.fused_batch_norm(
            x, weight, bias, mean, var, epsilon=eps, is_training=False
        )[0]
    return tf.nn.batch_normalization(x, mean, var, bias, weight, eps)


def _instance_norm(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    return _normalised(x, (2, 3), _per_channel(weight), _per_channel(bias), eps)


def _group_norm(x: Any, weight: Any, bias: Any, groups: int, eps: float) -> Any:
    grouped = tf.reshape(x, (x.shape[0], groups, -1))
    normal = tf.reshape(_normalised(grouped, (2,), None, None, eps), x.shape)
    return normal * _per_channel(weight) + _per_channel(bias)


def _rms_norm(x: Any, weight: Any, eps: float) -> Any:
    return x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), -1, keepdims=True) + eps) * weight


def _cross_entropy(x: Any, target: Any) -> Any:
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(target, x))


def _huber_loss(x: Any, target: Any, delta: float) -> Any:
    error = tf.abs(x - target)
    return tf.reduce_mean(tf.where(error < delta, error**2 / 2, delta * (error - delta / 2)))


def _kl_div(x: Any, target: Any) -> Any:
    return tf.reduce_sum(target * (tf.math.log(target) - x)) / x.shape[0]


def _cosine_similarity(x: Any, y: Any) -> Any:
    return tf.reduce_sum(tf.math.l2_normalize(x, -1) * tf.math.l2_normalize(y, -1), -1)


def _sort(x: Any, descending: bool) -> Any:
    return tf.sort(x, direction="DESCENDING" if descending else "ASCENDING")


def _bernoulli(seed: Any, like: Any, p: float) -> Any:
    return tf.cast(tf.random.uniform(like.shape, dtype=like.dtype) < p, like.dtype)


def _attention(q: Any, k: Any, v: Any, causal: bool) -> Any:
    scores = tf.matmul(q, k, transpose_b=True) / q.shape[-1] ** 0.5
    if causal:
        seen = tf.linalg.band_part(tf.ones(scores.shape[-2:], tf.bool), -1, 0)
        scores = tf.where(seen, scores, tf.constant(float("-inf"), scores.dtype))
    return tf.nn.softmax(scores) @ v


def _multi_head_attention(
    linear: Any, x: Any, weight: Any, bias: Any, out_weight: Any, out_bias: Any, heads: int
) -> Any:
    batch, length, width = x.shape
    parts = tf.split(linear(x, weight, bias), 3, -1)
    shape = (batch, length, heads, width // heads)
    q, k, v = (tf.transpose(tf.reshape(each, shape), (0, 2, 1, 3)) for each in parts)
    joined = tf.transpose(_attention(q, k, v, causal=False), (0, 2, 1, 3))
    return linear(tf.reshape(joined, (batch, length, width)), out_weight, out_bias)


def _linear(x: Any, weight: Any, bias: Any) -> Any:
    return tf.matmul(x, weight, transpose_b=True) + bias


def _dense(x: Any, kernel: Any, bias: Any) -> Any:
    """Do the same with a weight of shape (in, out), as Keras has it."""
    return tf.matmul(x, kernel) + bias


def _lstm_cell(x: Any, h: Any, c: Any, w_x: Any, w_h: Any, b_x: Any, b_h: Any) -> Any:
    i, f, g, o = tf.split(_linear(x, w_x, b_x) + _linear(h, w_h, b_h), 4, -1)
    c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
    return tf.sigmoid(o) * tf.tanh(c), c


def _gru_cell(x: Any, h: Any, w_x: Any, w_h: Any, b_x: Any, b_h: Any) -> Any:
    r_x, z_x, n_x = tf.split(_linear(x, w_x, b_x), 3, -1)
    r_h, z_h, n_h = tf.split(_linear(h, w_h, b_h), 3, -1)
    z = tf.sigmoid(z_x + z_h)
    return (1 - z) * tf.tanh(n_x + tf.sigmoid(r_x + r_h) * n_h) + z * h


OPERATORS: Mapping[str, Callable[..., Any]] = {
    # unary
    "exp": tf.exp,
    "log": tf.math.log,
    "sqrt": tf.sqrt,
    "rsqrt": tf.math.rsqrt,
    "sin": tf.sin,
    "tanh": tf.tanh,
    "sigmoid": tf.sigmoid,
    "erf": tf.math.erf,
    "abs": tf.abs,
    "square": tf.square,
    # binary, with broadcasting
    "add": tf.add,
    "sub": tf.subtract,
    "mul": tf.multiply,
    "div": tf.divide,
    "maximum": tf.maximum,
    "pow": tf.pow,
    # activations
    "relu": tf.nn.relu,
    "gelu": _gelu,
    "silu": tf.nn.silu,
    "elu": _elu,
    "leaky_relu": _leaky_relu,
    "softplus": tf.nn.softplus,
    "hardswish": lambda x: x * tf.nn.relu6(x + 3) / 6,
    "mish": lambda x: x * tf.tanh(tf.nn.softplus(x)),
    "glu": _glu,
    # selection
    "where": tf.where,
    "clip": lambda x, min, max: tf.clip_by_value(x, min, max),
    # reductions
    "sum": lambda x, dim: tf.reduce_sum(x, dim),
    "mean": lambda x, dim: tf.reduce_mean(x, dim),
    "amax": lambda x, dim: tf.reduce_max(x, dim),
    "amin": lambda x, dim: tf.reduce_min(x, dim),
    "prod": lambda x, dim: tf.reduce_prod(x, dim),
    "var": lambda x, dim, correction: (
        tf.math.reduce_variance(x, dim) * (x.shape[dim] / (x.shape[dim] - correction))
    ),
    "norm": lambda x, dim, order: tf.norm(x, order, dim),
    "logsumexp": lambda x, dim: tf.reduce_logsumexp(x, dim),
    "cumsum": lambda x, dim: tf.cumsum(x, dim),
    "argmax": lambda x, dim: tf.argmax(x, dim),
    "argmin": lambda x, dim: tf.argmin(x, dim),
    # products
    "matmul": tf.matmul,
    "bmm": lambda a, b, transpose_b: tf.matmul(a, b, transpose_b=transpose_b),
    "linear": _linear,
    "matvec": tf.linalg.matvec,
    "outer": lambda x, y: x[:, None] * y,
    "einsum": lambda a, b, equation: tf.einsum(equation, a, b),
    # convolutions
    "conv2d": _conv2d,
    "conv2d_pointwise": _conv2d,
    "conv2d_wide": _conv2d,
    "conv2d_strided": _conv2d,
    "conv2d_dilated": _conv2d_spread,
    "conv2d_grouped": _conv2d_spread,
    "conv2d_depthwise": _conv2d_depthwise,
    "conv1d": _conv1d,
    "conv_transpose2d": _conv_transpose2d,
    # pooling and resizing
    "max_pool2d": _max_pool2d,
    "avg_pool2d": _avg_pool2d,
    "max_pool1d": _max_pool1d,
    "avg_pool1d": _avg_pool1d,
    "global_avg_pool2d": lambda x: tf.reduce_mean(x, (2, 3)),
    "upsample_nearest2d": _upsample_nearest2d,
    # normalisation
    "layer_norm": _layer_norm,
    "batch_norm": _batch_norm,
    "batch_norm_training": _batch_norm_training,
    "batch_norm_inference": _batch_norm_inference,
    "instance_norm": _instance_norm,
    "group_norm": _group_norm,
    "rms_norm": _rms_norm,
    "l2_normalize": lambda x, dim: tf.math.l2_normalize(x, dim),
    # softmax
    "softmax": lambda x, dim: tf.nn.softmax(x, dim),
    "log_softmax": lambda x, dim: tf.nn.log_softmax(x, dim),
    "softmin": lambda x, dim: tf.nn.softmax(-x, dim),
    # losses
    "cross_entropy": _cross_entropy,
    "nll_loss": lambda x, target: -tf.reduce_mean(tf.gather(x, target, axis=1, batch_dims=1)),
    "mse_loss": lambda x, target: tf.reduce_mean(tf.math.squared_difference(x, target)),
    "l1_loss": lambda x, target: tf.reduce_mean(tf.abs(x - target)),
    "huber_loss": _huber_loss,
    "bce_with_logits": lambda x, target: tf.reduce_mean(
        tf.nn.sigmoid_cross_entropy_with_logits(target, x)
    ),
    "kl_div": _kl_div,
    "cosine_similarity": _cosine_similarity,
    # lookups
    "embedding": lambda index, weight: tf.nn.embedding_lookup(weight, index),
    "gather": lambda x, index: tf.gather(x, index, axis=1, batch_dims=1),
    "index_select": lambda x, index, dim: tf.gather(x, index, axis=dim),
    "scatter_add": lambda x, index, source: tf.tensor_scatter_nd_add(x, index[:, None], source),
    # order
    "sort": _sort,
    "argsort": tf.argsort,
    "topk": lambda x, k: tf.math.top_k(x, k)[0],
    # shape
    "concat": lambda x, y, dim: tf.concat((x, y), dim),
    "split": lambda x, parts, dim: tf.split(x, parts, dim),
    "stack": lambda x, y, dim: tf.stack((x, y), dim),
    "transpose": tf.transpose,
    "permute": lambda x, dims: tf.transpose(x, dims),
    "reshape": lambda x, shape: _copied(tf.reshape(x, shape)),
    "slice": lambda x, step: x[:, ::step],
    "flip": lambda x, dim: tf.reverse(x, (dim,)),
    "roll": lambda x, shift, dim: tf.roll(x, shift, dim),
    "pad": lambda x, width, mode: tf.pad(x, [(0, 0)] * 2 + [(width, width)] * 2, mode),
    "tile": lambda x, reps: tf.tile(x, reps),
    "repeat": lambda x, repeats, dim: tf.repeat(x, repeats, dim),
    "broadcast_to": tf.broadcast_to,
    "triu": lambda x: tf.linalg.band_part(x, 0, -1),
    # random
    "dropout": lambda x, p: tf.nn.dropout(x, p),
    "random_uniform": lambda seed, like: tf.random.uniform(like.shape, dtype=like.dtype),
    "random_normal": lambda seed, like: tf.random.normal(like.shape, dtype=like.dtype),
    "random_bernoulli": _bernoulli,
    # optimiser updates
    "sgd": updates.sgd,
    "momentum": updates.momentum,
    "rmsprop": partial(updates.rmsprop, tf.sqrt),
    "adam": partial(updates.adam, tf.sqrt),
    # attention and recurrent cells
    "scaled_dot_product_attention": _attention,
    "multi_head_attention": partial(_multi_head_attention, _linear),
    "lstm_cell": _lstm_cell,
    "gru_cell": _gru_cell,
}

#: The same for images with channels last, filters and weights as in TensorFlow (see `layout`).
CHANNELS_LAST: Mapping[str, Callable[..., Any]] = {
    "conv2d": _conv2d_last,
    "max_pool2d": _max_pool2d_last,
    "avg_pool2d": _avg_pool2d_last,
    "global_avg_pool2d": lambda x: tf.reduce_mean(x, (1, 2)),
    "batch_norm": _batch_norm_last,
    "batch_norm_training": _batch_norm_training_last,
    "batch_norm_inference": _batch_norm_inference_last,
    "linear": _dense,
    "multi_head_attention": partial(_multi_head_attention, _dense),
}

#: Operators whose images are transposed on the way in and out, and the types in which they are.
TRANSPOSED: Mapping[str, Sequence[str]] = {
    **{name: DTYPES for name in OPERATORS if name.startswith(("conv", "max_pool", "avg_pool"))},
    "batch_norm": FLOAT32,
}


def _linear_relu(x: Any, weight: Any, bias: Any) -> Any:
    return tf.nn.relu(tf.nn.bias_add(tf.matmul(x, weight, transpose_b=True), bias))


def _linear_gelu(x: Any, weight: Any, bias: Any) -> Any:
    return _gelu(tf.nn.bias_add(tf.matmul(x, weight, transpose_b=True), bias))


#: What there is of fused calls.
FUSED_CALLS: Mapping[str, Fused] = {
    "softmax_cross_entropy": Fused("tf.nn.sparse_softmax_cross_entropy_with_logits", _cross_entropy)
}

#: These, and forms that Grappler, which sees to all that tf.function traces, knows and replaces by
#: fused kernels of float32; gradients run one kernel for each part.
FUSED: Mapping[str, Fused] = {
    **FUSED_CALLS,
    "conv2d_relu": Fused("_FusedConv2D by Grappler", None, FORWARD, FLOAT32),
    "conv2d_batch_norm_relu": Fused(
        "_FusedBatchNormEx by Grappler, after the convolution", None, FORWARD, FLOAT32
    ),
    "linear_relu": Fused("_FusedMatMul by Grappler", _linear_relu, FORWARD, FLOAT32),
    "linear_gelu": Fused("_FusedMatMul by Grappler", _linear_gelu, INFERENCE, FLOAT32),
}
