"""Dropout."""

from __future__ import annotations

from tapegrad.errors import OptionError
from tapegrad.nn import functional as F
from tapegrad.nn.module import Module
from tapegrad.tensors import Tensor


class Dropout(Module):
    """While training, sets numbers to zero with probability p and scales the others by 1/(1-p).

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import nn
        >>> nn.Dropout(0.5).eval()(tg.ones(2))
        tensor([1., 1.])

    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise OptionError(f"Dropout: expected a probability in [0, 1], got {p}")
        self.p = p
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Drop numbers in training mode; return the input in evaluation mode."""
        return F.dropout(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        """Return the layer's options."""
        return f"p={self.p}, inplace={self.inplace}"
