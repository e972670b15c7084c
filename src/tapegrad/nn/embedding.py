"""Vectors for numbered things."""

from __future__ import annotations

from typing import Any, Self

from tapegrad.errors import OptionError, ShapeError
from tapegrad.nn import functional as F
from tapegrad.nn import init
from tapegrad.nn.module import Module
from tapegrad.nn.parameter import Parameter
from tapegrad.tensors import Tensor, empty, no_grad
from tapegrad.tensors.dtypes import DType


class Embedding(Module):
    """A table of vectors, looked up by integers.

    Args:
        num_embeddings: Rows of the table.
        embedding_dim: Length of a row.
        padding_idx: A row that begins as zeros and gets no gradient.
        device: Where the table lives.
        dtype: Of the table.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import nn
        >>> nn.Embedding(10, 3)(tg.tensor([[1, 2], [4, 4]])).shape
        (2, 2, 3)

    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        *,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = self._row(padding_idx)
        self.weight = Parameter(empty(num_embeddings, embedding_dim, device=device, dtype=dtype))
        self.reset_parameters()

    def _row(self, padding_idx: int | None) -> int | None:
        if padding_idx is None:
            return None
        rows = self.num_embeddings
        if not -rows <= padding_idx < rows:
            raise OptionError(
                f"Embedding: expected padding_idx within {rows} rows, got {padding_idx}"
            )
        return padding_idx % rows

    def reset_parameters(self) -> None:
        """Draw the table from a normal distribution."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].fill_(0.0)

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None
    ) -> Self:
        """Make a layer that shares the memory of a table."""
        if embeddings.ndim != 2:
            raise ShapeError(
                f"from_pretrained: expected a matrix, got shape {tuple(embeddings.shape)}"
            )
        layer = cls(0, embeddings.shape[1])
        layer.num_embeddings = embeddings.shape[0]
        layer.padding_idx = layer._row(padding_idx)
        layer.weight = Parameter(embeddings, requires_grad=not freeze)
        return layer

    def forward(self, input: Tensor) -> Tensor:
        """Look rows up."""
        return F.embedding(input, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        """Return the layer's options."""
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        return text if self.padding_idx is None else f"{text}, padding_idx={self.padding_idx}"
