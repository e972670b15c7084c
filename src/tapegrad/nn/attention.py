"""Attention with several heads."""

from __future__ import annotations

import math
from typing import Any

from tapegrad.errors import DTypeError, OptionError, ShapeError
from tapegrad.nn import functional as F
from tapegrad.nn import init
from tapegrad.nn.linear import Linear
from tapegrad.nn.module import Module
from tapegrad.nn.parameter import Parameter
from tapegrad.tensors import Tensor, bool_, cat, empty, full, ones, zeros
from tapegrad.tensors.arguments import expect_tensors
from tapegrad.tensors.dtypes import DType
from tapegrad.tensors.ops.attention import attention_with_weights


class MultiheadAttention(Module):
    """Attention whose queries, keys and values are linear in the inputs, in several heads.

    Args:
        embed_dim: Size of queries and outputs; each head has a part of it.
        num_heads: How many heads.
        dropout: Probability with which attention weights are dropped in training.
        bias: Whether the linear maps have biases.
        add_bias_kv: Whether a learnt key and value is added to each sequence.
        add_zero_attn: Whether a key and value of zeros is added to each sequence.
        kdim: Size of keys, if it is not embed_dim.
        vdim: Size of values, if it is not embed_dim.
        batch_first: Whether inputs are (batch, time, size), not (time, batch, size).
        device: Where parameters live.
        dtype: Of parameters.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import nn
        >>> x = tg.ones(2, 5, 8)
        >>> output, weights = nn.MultiheadAttention(8, 2, batch_first=True)(x, x, x)
        >>> output.shape, weights.shape
        ((2, 5, 8), (2, 5, 5))

    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if embed_dim < 1 or num_heads < 1 or embed_dim % num_heads:
            raise OptionError(
                "MultiheadAttention: expected embed_dim to be a multiple of num_heads, "
                f"got {embed_dim} and {num_heads}"
            )
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.dropout = dropout
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.add_zero_attn = add_zero_attn
        self.batch_first = batch_first
        placed = {"device": device, "dtype": dtype}
        together = self.kdim == embed_dim and self.vdim == embed_dim
        shapes = {
            "in_proj_weight": (3 * embed_dim, embed_dim) if together else None,
            "q_proj_weight": None if together else (embed_dim, embed_dim),
            "k_proj_weight": None if together else (embed_dim, self.kdim),
            "v_proj_weight": None if together else (embed_dim, self.vdim),
            "in_proj_bias": (3 * embed_dim,) if bias else None,
            "bias_k": (1, 1, embed_dim) if add_bias_kv else None,
            "bias_v": (1, 1, embed_dim) if add_bias_kv else None,
        }
        for name, shape in shapes.items():
            values = None if shape is None else Parameter(empty(shape, **placed))
            self.register_parameter(name, values)
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias, **placed)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights as Glorot does; biases are zero."""
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            if (weight := getattr(self, name)) is not None:
                init.xavier_uniform_(weight)
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                init.zeros_(bias)
        for learnt in (self.bias_k, self.bias_v):
            if learnt is not None:
                init.xavier_normal_(learnt)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return (output, weights).

        Args:
            query: (L, N, size), (N, L, size) if batch_first, or (L, size) without a batch.
            key: As query, with S for L.
            value: As key.
            key_padding_mask: (N, S) or (S): True where a key is to be left out, or numbers that
                are added to the scores.
            need_weights: Whether to return weights; None is faster.
            attn_mask: (L, S) or (N * heads, L, S), of the same two kinds.
            average_attn_weights: Whether weights are the mean over heads: (N, L, S), not
                (N, heads, L, S).
            is_causal: Whether keys later than a query are left out; attn_mask need not say so.

        """
        batched = self._check(query, key, value)
        mask = self._mask(query, key, key_padding_mask, attn_mask, is_causal, batched)
        q, k, v = (self._batch_first(each, batched) for each in (query, key, value))
        q, k, v = self._projected(q, k, v, key is value and query is key)
        k, v, mask = self._lengthened(k, v, mask)
        q, k, v = (self._heads(each) for each in (q, k, v))
        dropout = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            output, weights = attention_with_weights(q, k, v, mask, dropout)
            weights = weights.mean(1) if average_attn_weights else weights
            weights = weights if batched else weights.squeeze(0)
        else:
            output = F.scaled_dot_product_attention(q, k, v, mask, dropout)
        output = self.out_proj(output.transpose(1, 2).flatten(2))
        if not batched:
            return output.squeeze(0), weights
        return output if self.batch_first else output.transpose(0, 1), weights

    def _check(self, query: Tensor, key: Tensor, value: Tensor) -> bool:
        """Return whether there is a batch, if the inputs fit each other."""
        expect_tensors("MultiheadAttention", query=query, key=key, value=value)
        sizes = self.embed_dim, self.kdim, self.vdim
        inputs = query, key, value
        if not (
            query.ndim in (2, 3)
            and key.ndim == value.ndim == query.ndim
            and key.shape[:-1] == value.shape[:-1]
            and all(each.shape[-1] == size for each, size in zip(inputs, sizes, strict=True))
        ):
            raise ShapeError(
                "MultiheadAttention: expected query, key and value of 2 or 3 dimensions that end "
                f"with {sizes}, keys as many as values, got shapes "
                + ", ".join(str(tuple(each.shape)) for each in inputs)
            )
        batch = 0 if self.batch_first else 1
        if query.ndim == 3 and query.shape[batch] != key.shape[batch]:
            raise ShapeError(
                "MultiheadAttention: expected query and key of one batch size in dimension "
                f"{batch}, got {query.shape[batch]} and {key.shape[batch]}"
            )
        return query.ndim == 3

    def _batch_first(self, input: Tensor, batched: bool) -> Tensor:
        if not batched:
            return input.unsqueeze(0)
        return input if self.batch_first else input.transpose(0, 1)

    def _projected(
        self, query: Tensor, key: Tensor, value: Tensor, same: bool
    ) -> tuple[Tensor, ...]:
        """Map the inputs linearly; by one product where all are the same tensor."""
        bias = self.in_proj_bias
        if self.in_proj_weight is not None and same:
            return tuple(F.linear(query, self.in_proj_weight, bias).chunk(3, -1))
        if self.in_proj_weight is not None:
            weights = self.in_proj_weight.chunk(3)
        else:
            weights = self.q_proj_weight, self.k_proj_weight, self.v_proj_weight
        biases = (None, None, None) if bias is None else bias.chunk(3)
        return tuple(map(F.linear, (query, key, value), weights, biases))

    def _lengthened(
        self, key: Tensor, value: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Add the learnt key and value and the ones of zeros, which no mask leaves out."""
        added = []
        if self.bias_k is not None:
            added.append((self.bias_k, self.bias_v))
        if self.add_zero_attn:
            nought = zeros(1, 1, self.embed_dim, dtype=key.dtype, device=key.device)
            added.append((nought, nought))
        for more_key, more_value in added:
            shape = (key.shape[0], 1, self.embed_dim)
            key = cat([key, more_key.expand(shape)], 1)
            value = cat([value, more_value.expand(shape)], 1)
            mask = None if mask is None else F.pad(mask, (0, 1))
        return key, value, mask

    def _heads(self, input: Tensor) -> Tensor:
        """Split (N, T, size) into (N, heads, T, size of a head)."""
        batch, length, _ = input.shape
        return input.reshape(batch, length, self.num_heads, self.head_dim).transpose(1, 2)

    def _mask(
        self,
        query: Tensor,
        key: Tensor,
        padding: Tensor | None,
        attention: Tensor | None,
        is_causal: bool,
        batched: bool,
    ) -> Tensor | None:
        """Return what is added to scores (N, heads, L, S), or None; broadcast where it can be."""
        time = -2 if not batched or self.batch_first else 0
        length, keys = query.shape[time], key.shape[time]
        batch = 1 if not batched else query.shape[1 if time == 0 else 0]
        parts = []
        if attention is not None:
            shapes = ((length, keys), (batch * self.num_heads, length, keys))
            _check_mask("attn_mask", attention, shapes)
            whole = attention.ndim == 2
            shape = (1, 1, *shapes[0]) if whole else (batch, self.num_heads, length, keys)
            parts.append(_added(attention, query).reshape(shape))
        elif is_causal:
            later = ones(length, keys, dtype=bool_, device=query.device).triu(1)
            parts.append(_added(later, query).reshape(1, 1, length, keys))
        if padding is not None:
            _check_mask("key_padding_mask", padding, ((batch, keys) if batched else (keys,),))
            parts.append(_added(padding, query).reshape(batch, 1, 1, keys))
        return sum(parts[1:], parts[0]) if parts else None


def _added(mask: Tensor, like: Tensor) -> Tensor:
    """Return a mask as numbers to add to scores: minus infinity where it is True."""
    if mask.dtype != bool_:
        return mask.to(like.dtype)
    nought = full((), 0.0, dtype=like.dtype, device=like.device)
    return nought.expand(mask.shape).masked_fill(mask, -math.inf)


def _check_mask(name: str, mask: Tensor, shapes: tuple[tuple[int, ...], ...]) -> None:
    expect_tensors("MultiheadAttention", **{name: mask})
    if mask.dtype != bool_ and not mask.is_floating_point():
        raise DTypeError(f"{name}: expected bool or floats, got {mask.dtype}")
    if tuple(mask.shape) not in shapes:
        raise ShapeError(
            f"{name}: expected shape {' or '.join(map(str, shapes))}, got {tuple(mask.shape)}"
        )
