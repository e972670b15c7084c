"""The functions behind the modules, by PyTorch's names: the tensor engine's operations.

Some of them take `inplace` here, which allows to overwrite the input. Nothing is overwritten: a
result that nobody needs any more is let go at once anyway, and what gradients need must stay.
"""

from __future__ import annotations

from tapegrad import tensors
from tapegrad.tensors import (
    Tensor,
    adaptive_avg_pool2d,
    avg_pool2d,
    batch_norm,
    binary_cross_entropy_with_logits,
    conv2d,
    cross_entropy,
    embedding,
    gelu,
    l1_loss,
    layer_norm,
    linear,
    log_softmax,
    max_pool2d,
    mse_loss,
    nll_loss,
    one_hot,
    pad,
    scaled_dot_product_attention,
    sigmoid,
    softmax,
    softplus,
    tanh,
)

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
    return tensors.relu(input)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """Return x * sigmoid(x)."""
    return tensors.silu(input)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Return x, or alpha * (exp(x) - 1) below 0."""
    return tensors.elu(input, alpha)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """Return x, or negative_slope * x below 0."""
    return tensors.leaky_relu(input, negative_slope)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Return x with a part p of its numbers zero, and the others scaled up by 1 / (1 - p)."""
    return tensors.dropout(input, p, training)


def __dir__() -> list[str]:
    return __all__
