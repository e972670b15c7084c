"""The functions behind the modules, by PyTorch's names: the tensor engine's operations."""

from __future__ import annotations

from collections.abc import Callable

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
    """Return max(x, 0); with `inplace`, x becomes that."""
    return input.relu_() if inplace else tensors.relu(input)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """Return x * sigmoid(x); with `inplace`, x becomes that."""
    return _changed(input, tensors.silu, inplace)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Return x, or alpha * (exp(x) - 1) below 0; with `inplace`, x becomes that."""
    return _changed(input, lambda x: tensors.elu(x, alpha), inplace)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """Return x, or negative_slope * x below 0; with `inplace`, x becomes that."""
    return _changed(input, lambda x: tensors.leaky_relu(x, negative_slope), inplace)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Return x with a part p of its numbers zero, and the others scaled up by 1 / (1 - p).

    With `inplace`, x becomes that.
    """
    return _changed(input, lambda x: tensors.dropout(x, p, training), inplace)


def _changed(input: Tensor, function: Callable[[Tensor], Tensor], inplace: bool) -> Tensor:
    """Apply a function, or have the input become what it finds; what gradients need is a copy."""
    return input.copy_(function(input.clone())) if inplace else function(input)


def __dir__() -> list[str]:
    return __all__
