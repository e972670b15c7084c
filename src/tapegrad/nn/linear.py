"""Affine maps, and what does nothing."""

from __future__ import annotations

from typing import Any

from tapegrad.nn import functional as F
from tapegrad.nn import init
from tapegrad.nn.module import Module
from tapegrad.nn.parameter import Parameter
from tapegrad.tensors import Tensor, empty, flatten
from tapegrad.tensors.dtypes import DType


class Identity(Module):
    """Returns its input; takes any arguments, so that it can stand for any layer.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import nn
        >>> nn.Identity()(tg.ones(2))
        tensor([1., 1.])

    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        """Return the input."""
        return input


class Linear(Module):
    """x @ weight.T + bias, over the last dimension of x.

    Args:
        in_features: Size of the last dimension of inputs.
        out_features: Size of that of outputs.
        bias: Whether there is a bias.
        device: Where its parameters live.
        dtype: Of its parameters.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import nn
        >>> nn.Linear(2, 3)(tg.ones(5, 2)).shape
        (5, 3)

    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(empty(out_features, in_features, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias uniformly within 1/sqrt(in_features)."""
        init.layer_(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Compute the map."""
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Return the layer's options."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


class Flatten(Module):
    """Makes one dimension of those from start_dim to end_dim.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import nn
        >>> nn.Flatten()(tg.ones(2, 3, 4)).shape
        (2, 12)

    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        """Flatten the input; no copy where its memory allows it."""
        return flatten(input, self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        """Return the layer's options."""
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"
