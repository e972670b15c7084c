"""Images on the reference device: convolution and pooling by windows."""

# Kernels take arrays by place and attributes by name.
# ruff: noqa: PLR0917

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tapegrad._core.rules import pooled_size

Array = Any


def _windows(
    x: Array, kernel: Any, stride: Any, padding: Any, dilation: Any, fill: float = 0.0
) -> Array:
    """Return (N, C, H, W, kH, kW): what each window sees."""
    widths = ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2)
    padded = np.pad(x, widths, constant_values=fill)
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    found = sliding_window_view(padded, reach, axis=(2, 3))
    return found[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]


def _grouped(x: Array, groups: int) -> Array:
    """Split the channels of images into groups."""
    return x.reshape(len(x), groups, x.shape[1] // groups, *x.shape[2:])


def conv2d(
    x: Array,
    weight: Array,
    bias: Array | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Array:
    """Return the convolution of images."""
    seen = _windows(x, weight.shape[2:], stride, padding, dilation)
    n, _, h, w = seen.shape[:4]
    split = _grouped(seen, groups)
    kernel = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
    y = np.einsum("ngchwij,gocij->ngohw", split, kernel, optimize=True).reshape(
        n, len(weight), h, w
    )
    return y if bias is None else y + bias.reshape(1, -1, 1, 1)


def weight_grad(
    g: Array, x: Array, shape: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Array:
    """Return the gradient of a convolution by its weight."""
    seen = _windows(x, shape[2:], stride, padding, dilation)[:, :, : g.shape[2], : g.shape[3]]
    split, out = _grouped(seen, groups), _grouped(g, groups)
    return np.einsum("ngohw,ngchwij->gocij", out, split, optimize=True).reshape(shape)


def input_grad(
    g: Array, weight: Array, shape: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Array:
    """Return the gradient of a convolution by its image."""
    n, c, height, width = shape
    padded = np.zeros(
        (n, groups, c // groups, height + 2 * padding[0], width + 2 * padding[1]), g.dtype
    )
    split = _grouped(g, groups)
    kernel = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
    for i in range(weight.shape[2]):
        for j in range(weight.shape[3]):
            part = np.einsum("ngohw,goc->ngchw", split, kernel[..., i, j], optimize=True)
            top, left = i * dilation[0], j * dilation[1]
            padded[
                :,
                :,
                :,
                top : top + stride[0] * g.shape[2] : stride[0],
                left : left + stride[1] * g.shape[3] : stride[1],
            ] += part
    inner = padded[..., padding[0] : padding[0] + height, padding[1] : padding[1] + width]
    return inner.reshape(shape)


def _pool_windows(
    x: Array, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, fill: float
) -> Array:
    sizes = [
        pooled_size(x.shape[2 + d], kernel[d], stride[d], padding[d], dilation[d], ceil_mode)
        for d in (0, 1)
    ]
    need = [
        (sizes[d] - 1) * stride[d] + dilation[d] * (kernel[d] - 1) + 1 - x.shape[2 + d] - padding[d]
        for d in (0, 1)
    ]
    widths = ((0, 0), (0, 0), (padding[0], max(need[0], 0)), (padding[1], max(need[1], 0)))
    padded = np.pad(x, widths, constant_values=fill)
    seen = _windows(padded, kernel, stride, (0, 0), dilation)
    return seen[:, :, : sizes[0], : sizes[1]]


def max_pool2d(
    x: Array, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> tuple[Array, Array]:
    """Return the largest element of each window, and where it is."""
    fill = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    seen = _pool_windows(x, kernel, stride, padding, dilation, ceil_mode, fill)
    flat = seen.reshape(*seen.shape[:4], kernel[0] * kernel[1])
    best = _place_of_largest(flat) if np.isnan(flat).any() else flat.argmax(-1)
    rows = np.arange(seen.shape[2])[:, None] * stride[0] - padding[0]
    columns = np.arange(seen.shape[3]) * stride[1] - padding[1]
    row = rows + (best // kernel[1]) * dilation[0]
    column = columns + (best % kernel[1]) * dilation[1]
    values = np.take_along_axis(flat, best[..., None], -1)[..., 0]
    # The border is as large as pixels that are all minus infinity.
    row = np.where(values == fill, _first_seen(rows, x.shape[2], dilation[0]), row)
    column = np.where(values == fill, _first_seen(columns, x.shape[3], dilation[1]), column)
    return values, (row * x.shape[3] + column).astype(np.int64)


def _place_of_largest(windows: Array) -> Array:
    """Return where the first of the largest elements is, or the last NaN."""
    nan = np.isnan(windows)
    last = windows.shape[-1] - 1 - nan[..., ::-1].argmax(-1)
    return np.where(nan.any(-1), last, windows.argmax(-1))


def _first_seen(starts: Array, size: int, dilation: int) -> Array:
    """Return the first pixel that each window sees, by where the windows start."""
    before = np.maximum(-starts, 0)
    return np.minimum(starts + -(-before // dilation) * dilation, size - 1)


def max_pool2d_backward(g: Array, places: Array, shape: Any) -> Array:
    """Give gradients to where the largest elements were."""
    flat = np.zeros((*shape[:2], shape[2] * shape[3]), g.dtype)
    count = g.shape[2] * g.shape[3]
    index, given = (x.reshape(*shape[:2], count) for x in (places, g))
    np.add.at(flat, (*np.indices(index.shape)[:2], index), given)
    return flat.reshape(shape)


def _shares(x_shape: Any, dtype: Any, attrs: dict[str, Any]) -> tuple[Array, Array]:
    """Return per window which pixels it sees, and one over how many count."""
    one = np.ones((1, 1, *x_shape[2:]), dtype)
    options = {"dilation": (1, 1), "ceil_mode": attrs["ceil_mode"]}
    geometry = (attrs["kernel"], attrs["stride"], attrs["padding"])
    inside = _pool_windows(one, *geometry, **options, fill=0.0)
    if attrs["divisor"]:
        return inside, np.asarray(1.0 / attrs["divisor"])
    if not attrs["count_include_pad"]:
        return inside, 1.0 / inside.sum((-1, -2))
    top, left = attrs["padding"]
    border = np.pad(one, ((0, 0), (0, 0), (top, top), (left, left)), constant_values=1.0)
    counted = _pool_windows(border, attrs["kernel"], attrs["stride"], (0, 0), **options, fill=0.0)
    counted = counted[:, :, : inside.shape[2], : inside.shape[3]]
    return inside, 1.0 / counted.sum((-1, -2))


def avg_pool2d(x: Array, **attrs: Any) -> Array:
    """Return the mean of each window."""
    _, share = _shares(x.shape, x.dtype, attrs)
    seen = _pool_windows(
        x, attrs["kernel"], attrs["stride"], attrs["padding"], (1, 1), attrs["ceil_mode"], 0.0
    )
    return (seen.sum((-1, -2)) * share).astype(x.dtype)


def avg_pool2d_backward(g: Array, shape: Any, **attrs: Any) -> Array:
    """Spread gradients over windows."""
    _, share = _shares(shape, g.dtype, attrs)
    (kh, kw), (sh, sw), (ph, pw) = attrs["kernel"], attrs["stride"], attrs["padding"]
    n, c, height, width = shape
    spread = np.zeros((n, c, height + 2 * ph + kh + sh, width + 2 * pw + kw + sw), g.dtype)
    part = g * share
    for i in range(kh):
        for j in range(kw):
            spread[:, :, i : i + sh * g.shape[2] : sh, j : j + sw * g.shape[3] : sw] += part
    return spread[:, :, ph : ph + height, pw : pw + width].copy()


def _bins(size: int, count: int) -> list[tuple[int, int]]:
    return [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


def adaptive(x: Array, size: tuple[int, int]) -> Array:
    """Return means of windows that cover the image."""
    out = np.empty((*x.shape[:2], *size), x.dtype)
    for i, (top, bottom) in enumerate(_bins(x.shape[2], size[0])):
        for j, (left, right) in enumerate(_bins(x.shape[3], size[1])):
            out[:, :, i, j] = x[:, :, top:bottom, left:right].mean((2, 3))
    return out


def adaptive_backward(g: Array, shape: Any) -> Array:
    """Spread gradients over such windows."""
    out = np.zeros(shape, g.dtype)
    for i, (top, bottom) in enumerate(_bins(shape[2], g.shape[2])):
        for j, (left, right) in enumerate(_bins(shape[3], g.shape[3])):
            count = (bottom - top) * (right - left)
            out[:, :, top:bottom, left:right] += g[:, :, i : i + 1, j : j + 1] / count
    return out
