"""Normalisation on the reference device."""

# Kernels take arrays by place and attributes by name.
# ruff: noqa: PLR0917

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = Any


def _mean(x: Array, dims: tuple[int, ...]) -> Array:
    """Return means, 0 of nothing."""
    return x.sum(dims, keepdims=True) / max(1, math.prod(x.shape[d] for d in dims))


def _standardised(x: Array, dims: tuple[int, ...], eps: float) -> tuple[Array, Array, Array, Array]:
    mean = _mean(x, dims)
    var = _mean((x - mean) ** 2, dims)
    rstd = 1 / np.sqrt(var + eps)
    return (x - mean) * rstd, mean, var, rstd


def _gradient(g: Array, normal: Array, rstd: Array, dims: tuple[int, ...]) -> Array:
    drift, tilt = _mean(g, dims), _mean(g * normal, dims)
    return rstd * (g - drift - normal * tilt)


def _per_channel(x: Array | None, ndim: int) -> Any:
    return 1.0 if x is None else x.reshape(1, -1, *[1] * (ndim - 2))


def batch_norm(x: Array, weight: Array | None, bias: Array | None, eps: float) -> tuple[Array, ...]:
    """Standardise each channel over the batch; mean, variance and 1/deviation come along."""
    dims = tuple(d for d in range(x.ndim) if d != 1)
    normal, mean, var, rstd = _standardised(x, dims, eps)
    shift = 0.0 if bias is None else _per_channel(bias, x.ndim)
    y = normal * _per_channel(weight, x.ndim) + shift
    return (y.astype(x.dtype), *[each.reshape(-1).astype(x.dtype) for each in (mean, var, rstd)])


def batch_norm_backward(
    g: Array, x: Array, weight: Array | None, mean: Array, rstd: Array
) -> tuple[Any, ...]:
    """Return the gradients by the batch, the weight and the bias."""
    dims = tuple(d for d in range(x.ndim) if d != 1)
    wide = _per_channel(rstd, x.ndim)
    normal = (x - _per_channel(mean, x.ndim)) * wide
    gx = _gradient(g * _per_channel(weight, x.ndim), normal, wide, dims)
    return gx.astype(x.dtype), (g * normal).sum(dims).astype(x.dtype), g.sum(dims)


def layer_norm(
    x: Array, weight: Array | None, bias: Array | None, dims: int, eps: float
) -> tuple[Array, ...]:
    """Standardise the last dimensions of each row; mean and 1/deviation come along."""
    last = tuple(range(x.ndim - dims, x.ndim))
    normal, mean, _, rstd = _standardised(x, last, eps)
    y = normal * (1.0 if weight is None else weight) + (0.0 if bias is None else bias)
    return y.astype(x.dtype), mean.astype(x.dtype), rstd.astype(x.dtype)


def layer_norm_backward(
    g: Array,
    x: Array,
    weight: Array | None,
    mean: Array,
    rstd: Array,
    dims: int,
    needs: tuple[bool, ...],
) -> tuple[Any, ...]:
    """Return the gradients by the rows, the weight and the bias."""
    last, rest = tuple(range(x.ndim - dims, x.ndim)), tuple(range(x.ndim - dims))
    shape = (*x.shape[: x.ndim - dims], *[1] * dims)
    wide = rstd.reshape(shape)
    normal = (x - mean.reshape(shape)) * wide
    gx = _gradient(g * (1.0 if weight is None else weight), normal, wide, last)
    found = gx.astype(x.dtype), (g * normal).sum(rest), g.sum(rest)
    return tuple(each if want else None for each, want in zip(found, needs, strict=True))
