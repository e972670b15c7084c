"""Vectors for numbered things."""

from __future__ import annotations

from typing import Any, Self

from tapegrad.errors import OptionError, ShapeError
from tapegrad.nn import functional as F
from tapegrad.nn import init
from tapegrad.nn.module import Module
from tapegrad.nn.parameter import Parameter
from tapegrad.tensors import Tensor, empty, no_grad
from tapegrad.tensors.arguments import expect_tensors
from tapegrad.tensors.dtypes import DType


class Embedding(Module):
    """A table of vectors, looked up by integers.

    Args:
        num_embeddings: Rows of the table.
        embedding_dim: Length of a row.
        padding_idx: A row that begins as zeros and gets no gradient.
        max_norm: The largest norm of a row; those looked up are scaled down to it in place.
        norm_type: Which norm that is.
        scale_grad_by_freq: Divide the gradient of a row by how often a batch names it.
        sparse: Not there: gradients are as large as the table.
        _weight: The table itself, in the place of random numbers.
        _freeze: Whether the table stays as it is in training.
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
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if sparse:
            raise OptionError("Embedding: there are no sparse gradients; leave sparse=True out")
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = self._row(padding_idx)
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        if _weight is not None:
            expect_tensors("Embedding", _weight=_weight)
            if _weight.shape != (num_embeddings, embedding_dim):
                raise ShapeError(
                    f"Embedding: expected _weight of shape {(num_embeddings, embedding_dim)}, got "
                    f"{_weight.shape}"
                )
            self.weight = Parameter(_weight, requires_grad=not _freeze)
            return
        drawn = empty(num_embeddings, embedding_dim, device=device, dtype=dtype)
        self.weight = Parameter(drawn, requires_grad=not _freeze)
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
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Self:
        """Make a layer that shares the memory of a table; options are those of the class."""
        expect_tensors("from_pretrained", embeddings=embeddings)
        if embeddings.ndim != 2:
            raise ShapeError(
                f"from_pretrained: expected a matrix, got shape {tuple(embeddings.shape)}"
            )
        rows, size = embeddings.shape
        options = padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse
        return cls(rows, size, *options, _weight=embeddings, _freeze=freeze)

    def forward(self, input: Tensor) -> Tensor:
        """Look rows up."""
        return F.embedding(
            input,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
        )

    def extra_repr(self) -> str:
        """Return the layer's options."""
        options = {
            "padding_idx": (self.padding_idx, None),
            "max_norm": (self.max_norm, None),
            "norm_type": (self.norm_type, 2.0),
            "scale_grad_by_freq": (self.scale_grad_by_freq, False),
        }
        named = [f"{name}={value}" for name, (value, usual) in options.items() if value != usual]
        return ", ".join([str(self.num_embeddings), str(self.embedding_dim), *named])
