"""Functions of single numbers, and softmax, as modules."""

from __future__ import annotations

import warnings

from tapegrad.errors import OptionError
from tapegrad.nn import functional as F
from tapegrad.nn.module import Module
from tapegrad.tensors import Tensor
from tapegrad.tensors.arguments import expect_tensors


class _InPlace(Module):
    """An activation that may overwrite its input."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        """Return the layer's options that are not the default."""
        return "inplace=True" if self.inplace else ""


class ReLU(_InPlace):
    """max(x, 0).

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import nn
        >>> nn.ReLU()(tg.tensor([-1.0, 2.0]))
        tensor([0., 2.])

    """

    def forward(self, input: Tensor) -> Tensor:
        """Compute the function."""
        return F.relu(input, self.inplace)


class SiLU(_InPlace):
    """x * sigmoid(x).

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import nn
        >>> nn.SiLU()(tg.tensor([0.0, 100.0]))
        tensor([  0., 100.])

    """

    def forward(self, input: Tensor) -> Tensor:
        """Compute the function."""
        return F.silu(input, self.inplace)


class GELU(Module):
    """x times the normal distribution function of x; approximate="tanh" replaces it by a tanh.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import nn
        >>> nn.GELU()(tg.tensor([0.0, 100.0]))
        tensor([  0., 100.])

    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        if approximate not in ("none", "tanh"):
            raise OptionError(f"GELU: expected approximate 'none' or 'tanh', got {approximate!r}")
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        """Compute the function."""
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        """Return the layer's options."""
        return f"approximate={self.approximate!r}"


class Sigmoid(Module):
    """1 / (1 + exp(-x)).

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import nn
        >>> nn.Sigmoid()(tg.tensor([0.0]))
        tensor([0.5000])

    """

    def forward(self, input: Tensor) -> Tensor:
        """Compute the function."""
        return F.sigmoid(input)


class Tanh(Module):
    """Hyperbolic tangent.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import nn
        >>> nn.Tanh()(tg.tensor([0.0]))
        tensor([0.])

    """

    def forward(self, input: Tensor) -> Tensor:
        """Compute the function."""
        return F.tanh(input)


class Softplus(Module):
    """log(1 + exp(beta * x)) / beta, and x itself where beta * x is above the threshold.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import nn
        >>> nn.Softplus()(tg.tensor([30.0]))
        tensor([30.])

    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        """Compute the function."""
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        """Return the layer's options."""
        return f"beta={self.beta}, threshold={self.threshold}"


class _AlongDim(Module):
    """An activation that mixes the numbers along a dimension.

    Without one it is the first dimension of 0, 1 or 3 dimensions and the second of others, with a
    warning, as in PyTorch.
    """

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def _dim_of(self, input: Tensor) -> int:
        if self.dim is not None:
            return self.dim
        name = type(self).__name__
        expect_tensors(name, input=input)
        warnings.warn(f"{name}: a dimension is chosen; write {name}(dim=...)", stacklevel=4)
        return 0 if input.dim() in {0, 1, 3} else 1

    def extra_repr(self) -> str:
        """Return the layer's options."""
        return f"dim={self.dim}"


class Softmax(_AlongDim):
    """exp(x), divided by its sum along a dimension.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import nn
        >>> nn.Softmax(dim=-1)(tg.zeros(4))
        tensor([0.2500, 0.2500, 0.2500, 0.2500])

    """

    def forward(self, input: Tensor) -> Tensor:
        """Compute the function."""
        return F.softmax(input, self._dim_of(input))


class LogSoftmax(_AlongDim):
    """The logarithm of softmax, computed without forming it.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import nn
        >>> nn.LogSoftmax(dim=-1)(tg.zeros(1))
        tensor([0.])

    """

    def forward(self, input: Tensor) -> Tensor:
        """Compute the function."""
        return F.log_softmax(input, self._dim_of(input))
