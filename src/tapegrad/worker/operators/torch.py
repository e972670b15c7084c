"""PyTorch's calls."""

# Calls take inputs by place and attributes by name, which lambdas give them.
# ruff: noqa: PLR0917, PLW0108

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F

from tapegrad.worker.operators import FLOAT32, INFERENCE, Fused


def _max_pool2d(x: Any, kernel: int, stride: int, padding: int) -> Any:
    return F.max_pool2d(x, kernel, stride, padding)


def _layer_norm(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)


def _batch_norm(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    return F.batch_norm(x, None, None, weight, bias, training=True, eps=eps)


def _batch_norm_training(x: Any, weight: Any, bias: Any, mean: Any, var: Any, eps: float) -> Any:
    """Normalise; a momentum of one leaves this batch's own statistics in the running ones."""
    y = F.batch_norm(x, mean, var, weight, bias, training=True, momentum=1.0, eps=eps)
    return y, mean, var


def _batch_norm_inference(x: Any, weight: Any, bias: Any, mean: Any, var: Any, eps: float) -> Any:
    return F.batch_norm(x, mean, var, weight, bias, eps=eps)


def _instance_norm(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    return F.instance_norm(x, weight=weight, bias=bias, eps=eps)


def _group_norm(x: Any, weight: Any, bias: Any, groups: int, eps: float) -> Any:
    return F.group_norm(x, groups, weight, bias, eps)


def _momentum(p: Any, g: Any, v: Any, lr: float, momentum: float, nesterov: bool) -> Any:
    v = torch.add(g, v, alpha=momentum)
    return torch.sub(p, torch.add(g, v, alpha=momentum) if nesterov else v, alpha=lr), v


def _rmsprop(p: Any, g: Any, s: Any, lr: float, decay: float, eps: float) -> Any:
    s = torch.addcmul(decay * s, g, g, value=1 - decay)
    return torch.addcdiv(p, g, s.sqrt() + eps, value=-lr), s


def _adam(
    p: Any, g: Any, m: Any, v: Any, lr: float, beta1: float, beta2: float, eps: float, decay: float
) -> Any:
    m = torch.lerp(g, m, beta1)
    v = torch.addcmul(beta2 * v, g, g, value=1 - beta2)
    scale = torch.sqrt(v / (1 - beta2)) + eps
    return torch.addcdiv(p * (1 - lr * decay), m, scale, value=-lr / (1 - beta1)), m, v


def _attention(q: Any, k: Any, v: Any, causal: bool) -> Any:
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def _multi_head_attention(
    x: Any, weight: Any, bias: Any, out_weight: Any, out_bias: Any, heads: int
) -> Any:
    batch, length, width = x.shape
    parts = F.linear(x, weight, bias).chunk(3, -1)
    q, k, v = (each.view(batch, length, heads, -1).transpose(1, 2) for each in parts)
    joined = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
    return F.linear(joined, out_weight, out_bias)


def _lstm_cell(x: Any, h: Any, c: Any, w_x: Any, w_h: Any, b_x: Any, b_h: Any) -> Any:
    return torch.lstm_cell(x, (h, c), w_x, w_h, b_x, b_h)


OPERATORS: Mapping[str, Callable[..., Any]] = {
    # unary
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "sin": torch.sin,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "erf": torch.erf,
    "abs": torch.abs,
    "square": torch.square,
    # binary, with broadcasting
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
    "pow": torch.pow,
    # activations
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "elu": F.elu,
    "leaky_relu": lambda x, slope: F.leaky_relu(x, slope),
    "softplus": F.softplus,
    "hardswish": F.hardswish,
    "mish": F.mish,
    "glu": F.glu,
    # selection
    "where": torch.where,
    "clip": torch.clip,
    # reductions
    "sum": torch.sum,
    "mean": torch.mean,
    "amax": torch.amax,
    "amin": torch.amin,
    "prod": torch.prod,
    "var": torch.var,
    "norm": lambda x, dim, order: torch.linalg.vector_norm(x, order, dim),
    "logsumexp": torch.logsumexp,
    "cumsum": torch.cumsum,
    "argmax": torch.argmax,
    "argmin": torch.argmin,
    # products
    "matmul": torch.matmul,
    "bmm": lambda a, b, transpose_b: torch.bmm(a, b.transpose(1, 2) if transpose_b else b),
    "linear": F.linear,
    "matvec": torch.mv,
    "outer": torch.outer,
    "einsum": lambda a, b, equation: torch.einsum(equation, a, b),
    # convolutions
    "conv2d": F.conv2d,
    "conv2d_pointwise": F.conv2d,
    "conv2d_wide": F.conv2d,
    "conv2d_strided": F.conv2d,
    "conv2d_dilated": F.conv2d,
    "conv2d_grouped": F.conv2d,
    "conv2d_depthwise": F.conv2d,
    "conv1d": F.conv1d,
    "conv_transpose2d": F.conv_transpose2d,
    # pooling and resizing
    "max_pool2d": _max_pool2d,
    "avg_pool2d": lambda x, kernel, stride: F.avg_pool2d(x, kernel, stride),
    "max_pool1d": lambda x, kernel, stride: F.max_pool1d(x, kernel, stride),
    "avg_pool1d": lambda x, kernel, stride: F.avg_pool1d(x, kernel, stride),
    "global_avg_pool2d": lambda x: x.mean((2, 3)),
    "adaptive_avg_pool2d": lambda x, parts: F.adaptive_avg_pool2d(x, parts),
    "upsample_nearest2d": lambda x, factor: F.interpolate(x, scale_factor=factor),
    # normalisation
    "layer_norm": _layer_norm,
    "batch_norm": _batch_norm,
    "batch_norm_training": _batch_norm_training,
    "batch_norm_inference": _batch_norm_inference,
    "instance_norm": _instance_norm,
    "group_norm": _group_norm,
    "rms_norm": lambda x, weight, eps: F.rms_norm(x, x.shape[-1:], weight, eps),
    "l2_normalize": lambda x, dim: F.normalize(x, dim=dim),
    # softmax
    "softmax": torch.softmax,
    "log_softmax": torch.log_softmax,
    "softmin": F.softmin,
    # losses
    "cross_entropy": F.cross_entropy,
    "nll_loss": F.nll_loss,
    "mse_loss": F.mse_loss,
    "l1_loss": F.l1_loss,
    "huber_loss": lambda x, target, delta: F.huber_loss(x, target, delta=delta),
    "bce_with_logits": F.binary_cross_entropy_with_logits,
    "kl_div": lambda x, target: F.kl_div(x, target, reduction="batchmean"),
    "cosine_similarity": lambda x, y: F.cosine_similarity(x, y, dim=-1),
    # lookups
    "embedding": F.embedding,
    "gather": lambda x, index: torch.gather(x, 1, index),
    "index_select": lambda x, index, dim: torch.index_select(x, dim, index),
    "scatter_add": lambda x, index, source: torch.index_add(x, 0, index, source),
    # order
    "sort": lambda x, descending: torch.sort(x, descending=descending).values,
    "argsort": torch.argsort,
    "topk": lambda x, k: torch.topk(x, k).values,
    # shape
    "concat": lambda x, y, dim: torch.cat((x, y), dim),
    "split": lambda x, parts, dim: [part.clone() for part in x.tensor_split(parts, dim)],
    "stack": lambda x, y, dim: torch.stack((x, y), dim),
    "transpose": lambda x: x.t().clone(memory_format=torch.contiguous_format),
    "permute": lambda x, dims: x.permute(dims).clone(memory_format=torch.contiguous_format),
    "reshape": lambda x, shape: x.reshape(shape).clone(),
    "slice": lambda x, step: x[:, ::step].clone(memory_format=torch.contiguous_format),
    "flip": lambda x, dim: torch.flip(x, (dim,)),
    "roll": lambda x, shift, dim: torch.roll(x, shift, dim),
    "pad": lambda x, width, mode: F.pad(x, [width] * 4, mode),
    "tile": lambda x, reps: torch.tile(x, reps),
    "repeat": lambda x, repeats, dim: x.repeat_interleave(repeats, dim),
    "broadcast_to": lambda x, shape: x.expand(shape).clone(memory_format=torch.contiguous_format),
    "triu": torch.triu,
    # random
    "dropout": F.dropout,
    "random_uniform": lambda seed, like: torch.rand_like(like),
    "random_normal": lambda seed, like: torch.randn_like(like),
    "random_exponential": lambda seed, like: torch.empty_like(like).exponential_(),
    "random_bernoulli": lambda seed, like, p: torch.empty_like(like).bernoulli_(p),
    # optimiser updates
    "sgd": lambda p, g, lr, decay: torch.sub(p, torch.add(g, p, alpha=decay), alpha=lr),
    "momentum": _momentum,
    "rmsprop": _rmsprop,
    "adam": _adam,
    # attention and recurrent cells
    "scaled_dot_product_attention": _attention,
    "multi_head_attention": _multi_head_attention,
    "lstm_cell": _lstm_cell,
    "gru_cell": torch.gru_cell,
}


def _by_onednn(x: Any) -> bool:
    """Tell whether oneDNN's fused calls can be used: PyTorch cannot differentiate them."""
    enabled = torch.backends.mkldnn.is_available() and torch._C._get_mkldnn_enabled()
    return bool(enabled and x.is_cpu and x.dtype == torch.float32 and not torch.is_grad_enabled())


def _conv2d_relu(x: Any, weight: Any, bias: Any, stride: int, padding: int) -> Any:
    if not _by_onednn(x):
        return F.relu(F.conv2d(x, weight, bias, stride, padding))
    steps = [stride] * 2, [padding] * 2, [1, 1], 1
    return torch.ops.mkldnn._convolution_pointwise(x, weight, bias, *steps, "relu", [], "")


def _linear_relu(x: Any, weight: Any, bias: Any) -> Any:
    if not _by_onednn(x):
        return F.relu(F.linear(x, weight, bias))
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "relu", [], "")


def _linear_gelu(x: Any, weight: Any, bias: Any) -> Any:
    if not _by_onednn(x):
        return F.gelu(F.linear(x, weight, bias))
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "gelu", [], "none")


def _add_relu(x: Any, y: Any) -> Any:
    with_gradients = torch.is_grad_enabled() or not x.is_cpu
    return F.relu(torch.add(x, y)) if with_gradients else torch._add_relu(x, y)


#: What there is of fused calls, all for inference in float32 on the CPU only.
FUSED: Mapping[str, Fused] = {
    name: Fused(call, function, INFERENCE, FLOAT32)
    for name, call, function in (
        ("conv2d_relu", "torch.ops.mkldnn._convolution_pointwise", _conv2d_relu),
        ("linear_relu", "torch.ops.mkldnn._linear_pointwise", _linear_relu),
        ("linear_gelu", "torch.ops.mkldnn._linear_pointwise", _linear_gelu),
        ("add_relu", "torch._add_relu", _add_relu),
    )
}
