"""How parameters begin. All functions fill a tensor in place and return it."""

from __future__ import annotations

import math
from typing import Any
from warnings import warn

from tapegrad.errors import OptionError, ShapeError
from tapegrad.tensors import Generator, Tensor, elementwise, eye, no_grad, rand_like, randn_like
from tapegrad.tensors.arguments import expect_tensors

_GAINS = {
    "linear": 1.0,
    "conv2d": 1.0,
    "sigmoid": 1.0,
    "tanh": 5.0 / 3,
    "relu": math.sqrt(2.0),
    "selu": 0.75,
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Return by how much weights must be larger to keep the size of values behind a function.

    Args:
        nonlinearity: "linear", "conv2d", "sigmoid", "tanh", "relu", "selu" or "leaky_relu".
        param: The slope of a leaky_relu, 0.01 by default.

    Example:
        >>> from tapegrad.nn import init
        >>> round(init.calculate_gain('relu'), 4)
        1.4142

    """
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity not in _GAINS:
        raise OptionError(
            f"calculate_gain: expected one of {', '.join(_GAINS)} or leaky_relu, "
            f"got {nonlinearity!r}"
        )
    return _GAINS[nonlinearity]


def uniform_(
    tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Fill with numbers drawn uniformly from [a, b)."""
    expect_tensors("uniform_", tensor=tensor)
    return _scaled_into(tensor, rand_like(tensor, generator=generator), b - a, a)


def normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Fill with numbers drawn from a normal distribution."""
    expect_tensors("normal_", tensor=tensor)
    return _scaled_into(tensor, randn_like(tensor, generator=generator), std, mean)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with one number.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad.nn import init
        >>> init.constant_(tg.empty(2), 0.5)
        tensor([0.5000, 0.5000])

    """
    expect_tensors("constant_", tensor=tensor)
    with no_grad():
        return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """Fill with ones."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Fill with zeros."""
    return constant_(tensor, 0.0)


def eye_(tensor: Tensor) -> Tensor:
    """Make a matrix the identity."""
    expect_tensors("eye_", tensor=tensor)
    if tensor.ndim != 2:
        raise ShapeError(f"eye_: expected a matrix, got shape {tuple(tensor.shape)}")
    with no_grad():
        return tensor.copy_(eye(*tensor.shape, dtype=tensor.dtype, device=tensor.device))


def xavier_uniform_(
    tensor: Tensor, gain: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Glorot's uniform initialisation: sizes are kept forward and backward, on average."""
    bound = math.sqrt(3.0) * _xavier_std(tensor, gain)
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Glorot's normal initialisation: sizes are kept forward and backward, on average."""
    return normal_(tensor, 0.0, _xavier_std(tensor, gain), generator)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """He's uniform initialisation.

    Args:
        tensor: What to fill.
        a: The slope of the leaky_relu behind the layer.
        mode: "fan_in" keeps the size of values, "fan_out" that of gradients.
        nonlinearity: The function behind the layer.
        generator: Where random numbers come from.

    """
    if _is_empty(tensor):
        return tensor
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """He's normal initialisation; arguments as of `kaiming_uniform_`.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad.nn import init
        >>> init.kaiming_normal_(tg.empty(8, 4), mode='fan_out', nonlinearity='relu').shape
        (8, 4)

    """
    if _is_empty(tensor):
        return tensor
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def _is_empty(tensor: Tensor) -> bool:
    """Tell whether there is nothing to fill, with a warning then, as PyTorch does."""
    expect_tensors("init", tensor=tensor)
    if tensor.numel():
        return False
    warn(f"init: a tensor of shape {tensor.shape} has no elements to fill", stacklevel=3)
    return True


def layer_(weight: Tensor, bias: Tensor | None) -> None:
    """Begin a linear or convolution layer as PyTorch does: uniformly within 1/sqrt(fan_in)."""
    if weight.numel() == 0:
        return
    bound = 1.0 / math.sqrt(_fans(weight)[0])
    uniform_(weight, -bound, bound)
    if bias is not None:
        uniform_(bias, -bound, bound)


@elementwise
def _scaled(drawn: Any, scale: Any, shift: Any) -> Any:
    return drawn * scale + shift


def _scaled_into(tensor: Tensor, drawn: Tensor, scale: float, shift: float) -> Tensor:
    with no_grad():
        _scaled(drawn, scale, shift, out=tensor)
    return tensor


def _xavier_std(tensor: Tensor, gain: float) -> float:
    return gain * math.sqrt(2.0 / sum(_fans(tensor)))


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise OptionError(f"kaiming: expected mode 'fan_in' or 'fan_out', got {mode!r}")
    fan = _fans(tensor)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


def _fans(tensor: Tensor) -> tuple[int, int]:
    """Return how many numbers one output is made of, and how many outputs one input reaches."""
    expect_tensors("init", tensor=tensor)
    if tensor.ndim < 2 or tensor.numel() == 0:
        raise ShapeError(
            "init: expected a weight of two or more dimensions that is not empty, "
            f"got shape {tuple(tensor.shape)}"
        )
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field
