"""The functions behind the modules, by PyTorch's names: the tensor engine's operations.

Some of them take `inplace` here, which allows to overwrite the input. Nothing is overwritten: a
result that nobody needs any more is let go at once anyway, and what gradients need must stay.
"""

from __future__ import annotations

from tapegrad.tensors import Tensor, random
from tapegrad.tensors.ops import elementwise
from tapegrad.tensors.ops.attention import scaled_dot_product_attention
from tapegrad.tensors.ops.conv import conv2d
from tapegrad.tensors.ops.elementwise import gelu, sigmoid, softplus, tanh
from tapegrad.tensors.ops.index import embedding, one_hot
from tapegrad.tensors.ops.loss import (
    binary_cross_entropy_with_logits,
    cross_entropy,
    l1_loss,
    mse_loss,
    nll_loss,
)
from tapegrad.tensors.ops.matmul import linear
from tapegrad.tensors.ops.norm import batch_norm, layer_norm
from tapegrad.tensors.ops.pool import adaptive_avg_pool2d, avg_pool2d, max_pool2d
from tapegrad.tensors.ops.shape import pad
from tapegrad.tensors.ops.softmax import log_softmax, softmax

__all__ = [
    "adaptive_avg_pool2d",
    "avg_pool2d",
    "batch_norm",
    "binary_cross_entropy_with_logits",
    "conv2d",
    "cross_entropy",
    "dropout",
    "elu",
    "embedding",
    "gelu",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "linear",
    "log_softmax",
    "max_pool2d",
    "mse_loss",
    "nll_loss",
    "one_hot",
    "pad",
    "relu",
    "scaled_dot_product_attention",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "tanh",
]


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """Return max(x, 0)."""
    return elementwise.relu(input)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """Return x * sigmoid(x)."""
    return elementwise.silu(input)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Return x, or alpha * (exp(x) - 1) below 0."""
    return elementwise.elu(input, alpha)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """Return x, or negative_slope * x below 0."""
    return elementwise.leaky_relu(input, negative_slope)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Return x with a part p of its numbers zero, and the others scaled up by 1 / (1 - p)."""
    return random.dropout(input, p, training)
