"""Arrays of the same values that lie differently in memory, for tests of kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

LAYOUTS = ("plain", "transposed", "sliced", "reversed", "unaligned")


def laid_out(x: Array, layout: str) -> Array:
    """A copy of x that lies as the layout says."""
    if layout == "transposed":
        return np.asfortranarray(x)
    if layout == "sliced":
        wide = np.zeros([2 * size for size in x.shape], x.dtype)
        view = wide[tuple(slice(None, None, 2) for _ in x.shape)]
        view[...] = x
        return view
    if layout == "reversed":
        turned = tuple(slice(None, None, -1) for _ in x.shape)
        return np.ascontiguousarray(x[turned])[turned]
    if layout == "unaligned":
        memory = np.zeros(x.nbytes + 1, np.uint8)
        view = memory[1:].view(x.dtype).reshape(x.shape)
        view[...] = x
        return view
    return np.ascontiguousarray(x)


def normal(shape: tuple[int, ...], dtype: Any = np.float64, seed: int = 0) -> Array:
    """Standard normal numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def tolerance(dtype: Any) -> float:
    """Relative and absolute error to allow."""
    return 2e-6 if np.dtype(dtype) == np.float32 else 1e-13
