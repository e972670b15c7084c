"""Whether two results are the same up to rounding.

Numbers of a result are sums of products; what rounding may do to them grows with the square root
of the number of terms, and with the size of the terms rather than of the sum, since terms cancel.
An element may therefore be off by `FACTOR · eps · sqrt(terms)` of its own size plus the root mean
square of all elements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapegrad.worker.case import Case

AnyArray = NDArray[Any]

FACTOR = 32.0


@dataclass(frozen=True)
class Difference:
    """What is wrong with a result; `error` is a multiple of what is tolerated."""

    reason: str
    error: float | None = None


def terms_of(case: Case, wanted: Mapping[str, AnyArray]) -> int:
    """Return the terms behind one number: the case's own, or as many as inputs reach an output."""
    if case.reduction:
        return case.reduction
    taken = sum(math.prod(array.shape) for array in case.inputs)
    given = sum(array.size for name, array in wanted.items() if name.startswith("output"))
    return max(1, taken // max(given, 1))


def tolerance(dtype: str, terms: float) -> float:
    """Return the relative error that rounding explains."""
    return FACTOR * float(np.finfo(dtype).eps) * float(np.sqrt(max(terms, 1.0)))


def compare(
    found: Mapping[str, AnyArray],
    wanted: Mapping[str, AnyArray],
    *,
    dtype: str,
    terms: int,
    prefix: bool = False,
) -> Difference | float:
    """Compare named arrays; returns the largest error, or what is wrong.

    With `prefix`, a result may hold fewer rows than are known.
    """
    worst = 0.0
    for name, array in found.items():
        if name not in wanted:
            return Difference(f"{name} is not a result of this case")
        truth = wanted[name]
        if prefix and array.ndim and truth.ndim and 0 < len(array) < len(truth):
            truth = truth[: len(array)]
        if array.shape != truth.shape:
            return Difference(f"{name} has shape {_shape(array)}, not {_shape(truth)}")
        if np.isfinite(truth).all() and not np.isfinite(array).all():
            return Difference(f"{name} is not finite")
        error = relative_error(array, truth) / tolerance(dtype, _terms(terms, name, truth, wanted))
        if not error <= 1.0:
            return Difference(f"{name} is off by {error:.3g} × the tolerance", error)
        worst = max(worst, error)
    return worst


def relative_error(found: AnyArray, truth: AnyArray) -> float:
    """Return the largest error of an element in units of its size and of the typical size."""
    if not truth.size:
        return 0.0
    same = (found == truth) | (np.isnan(found) & np.isnan(truth))
    finite = np.isfinite(truth)
    scale = np.sqrt(np.mean(np.square(truth[finite], dtype=np.float64))) if finite.any() else 0.0
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        error = np.abs(found.astype(np.float64) - truth) / (np.abs(truth) + scale)
    return float(np.max(np.where(same, 0.0, np.where(np.isnan(error), np.inf, error))))


def degenerate(arrays: Mapping[str, AnyArray]) -> str | None:
    """Say which result is all zero or constant, and so shows nothing."""
    for name, array in arrays.items():
        if array.size and not np.any(array):
            return f"{name} is all zero"
        if array.size > 1 and np.ptp(array) == 0:
            return f"{name} is constant"
    return None


def _terms(terms: int, name: str, truth: AnyArray, wanted: Mapping[str, AnyArray]) -> float:
    """Estimate the terms behind an element: a gradient also sums over the outputs it reaches."""
    if not name.startswith("grad:"):
        return terms
    outputs = sum(array.size for key, array in wanted.items() if key.startswith("output"))
    return max(terms, outputs / max(truth.size, 1))


def _shape(array: AnyArray) -> str:
    return "x".join(map(str, array.shape)) or "()"
