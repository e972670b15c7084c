"""Whether two results are the same up to rounding.

Numbers of a result are sums of products; what rounding may do to them grows with the square root
of the number of terms, and with the size of the terms rather than of the sum, since terms cancel.
An element may therefore be off by `FACTOR · eps · sqrt(terms)` of its own size plus the root mean
square of all elements.

The gradient of a matrix or a filter sums over all products that it takes part in, often far more
than there are in one output. Their sum may add `SUM_FACTOR · eps · sqrt(products)`. For the filters
of a convolution with 127,008 products to each, in eps: one float32 sum from the first to the last
is off by 94, cuDNN's fastest algorithm by 2,200, TF32 in place of float32 by 7,300; tolerated are
3,600.

Gradients of deep networks in float32 are another matter, since they do not depend continuously on
rounding. An activation that is nearer to the kink of its ReLU than its own error may fall on either
side, and takes its part of the gradient with it: single elements of a gradient are then off by a
tenth and more. But the share of such activations in a layer is about their relative error, here
`FACTOR · eps · sqrt(layers)` since every layer adds its own; their parts are as good as
independent, so that in each layer the gradient's norm is off by the root of the share, and over all
layers by `sqrt(layers · FACTOR · eps · sqrt(layers))`. PyTorch in float32 against float64, the
gradient that is off most, at 224 pixels:

    layers with kinks    18 (ResNet-18)   20 (VGG16)   50 (ResNet-50)   152 (ResNet-152)
    off by               0.0014           0.0031       0.0062           0.017
    tolerated            0.017            0.018        0.037            0.085

In float64 the expected number of such activations is below one in a million networks, and elements
are compared.

Some gradients of networks are zero but for rounding: a batch norm takes the bias in front of it
away again. What rounding makes of them is measured by the gradients beside them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapegrad.worker.case import Case
from tapegrad.worker.networks import network_of

AnyArray = NDArray[Any]

FACTOR = 32.0
SUM_FACTOR = 8.0
#: Elements that are compared at a time.
BLOCK = 1 << 15
#: A size beyond it would excuse any error.
LARGEST = float(np.finfo(np.float64).max)
#: Operators whose derivative jumps.
KINKED = ("relu", "max_pool2d")
#: Over all elements but those that are no numbers.
_least = partial(np.fmin.reduce, axis=None)
_most = partial(np.fmax.reduce, axis=None)


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


def kinks_of(case: Case) -> int:
    """Count the layers of a network behind whose kinks gradients jump; zero in float64."""
    network = network_of(case) if case.level == "model" else None
    if network is None or case.dtype == "float64":
        return 0
    return sum(node.op in KINKED for node in network.nodes)


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
    network: bool = False,
    kinks: int = 0,
) -> Difference | float:
    """Compare named arrays; returns the largest error, or what is wrong.

    With `prefix`, a result may hold fewer rows than are known. Of a `network`, gradients may be
    zero but for rounding. With `kinks`, gradients are compared by their norms.
    """
    worst = 0.0
    least = tolerance(dtype, terms) * _typical_gradient(wanted) if network else 0.0
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
        if name.startswith("grad:") and typical_size(truth) < least:
            error = typical_size(array) / least
        elif kinks and name.startswith("grad:"):
            error = norm_error(array, truth) / math.sqrt(kinks * tolerance(dtype, kinks))
        else:
            error = relative_error(array, truth) / _allowed(dtype, terms, name, wanted)
        if not error <= 1.0:
            return Difference(f"{name} is off by {error:.3g} × the tolerance", error)
        worst = max(worst, error)
    return worst


def relative_error(found: AnyArray, truth: AnyArray) -> float:
    """Return the largest error of an element in units of its size and of the typical size."""
    scale = typical_size(truth, finite=True)
    worst = 0.0
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        for left, right in _blocks(found, truth):
            exact = right.astype(np.float64)
            error = np.abs(left - exact) / np.minimum(np.abs(exact) + scale, LARGEST)
            if np.isnan(most := np.max(error)):
                same = (left == right) | (np.isnan(left) & np.isnan(right))
                most = np.max(np.where(same, 0.0, np.where(np.isnan(error), np.inf, error)))
            worst = max(worst, float(most))
    return worst


def norm_error(found: AnyArray, truth: AnyArray) -> float:
    """Return the norm of the error in units of the norm of the truth."""
    squares = 0.0
    for left, right in _blocks(found, truth):
        squares += float(np.sum(np.square(left - right.astype(np.float64))))
    norm, error = typical_size(truth) * math.sqrt(truth.size), math.sqrt(squares)
    return error / norm if norm else math.inf if error else 0.0


def degenerate(arrays: Mapping[str, AnyArray]) -> str | None:
    """Say which result is empty, nowhere finite, all zero or constant, and so shows nothing."""
    if not arrays:
        return "there is no result"
    for name, array in arrays.items():
        if not array.size:
            return f"{name} is empty"
        if not np.isfinite(array).any():
            return f"{name} is nowhere finite"
        if not np.any(array):
            return f"{name} is all zero"
        if array.size > 1 and _least(array) == _most(array):
            return f"{name} is constant"
    return None


def _allowed(dtype: str, terms: int, name: str, wanted: Mapping[str, AnyArray]) -> float:
    """Return what rounding explains: a gradient also sums over the outputs that it reaches."""
    if not name.startswith("grad:"):
        return tolerance(dtype, terms)
    outputs = sum(array.size for key, array in wanted.items() if key.startswith("output"))
    reached = outputs / max(wanted[name].size, 1)
    allowed = tolerance(dtype, max(terms, reached))
    if wanted[name].ndim > 1 and terms > 1 and reached > 1:
        allowed += SUM_FACTOR / FACTOR * tolerance(dtype, terms * reached)
    return allowed


def typical_size(array: AnyArray, *, finite: bool = False) -> float:
    """Return the root mean square of an array, or of its `finite` elements.

    Example:
        >>> typical_size(np.array([3e200, 4e200, np.nan]), finite=True) / 5e200 * 2**0.5
        1.0

    """
    found = _root_mean_square(array, 1.0, finite)
    if 0 < found < math.inf:
        return found
    unit = _largest(array)  # squares may be too large for a number, or too small
    return unit * _root_mean_square(array, unit, finite) if unit else found


def _root_mean_square(array: AnyArray, unit: float, finite: bool) -> float:
    squares, count = 0.0, 0
    for (block,) in _blocks(array):
        if finite and not np.isfinite(block).all():
            block = block[np.isfinite(block)]  # noqa: PLW2901
        with np.errstate(over="ignore", under="ignore"):
            scaled = block if unit == 1.0 else block / unit
            squares += float(np.sum(np.square(scaled, dtype=np.float64)))
        count += block.size
    return math.sqrt(squares / count) if count else 0.0


def _largest(array: AnyArray) -> float:
    """Return the largest finite size of an element."""
    blocks = (block[np.isfinite(block)] for (block,) in _blocks(array))
    return max((float(np.max(np.abs(block))) for block in blocks if block.size), default=0.0)


def _blocks(*arrays: AnyArray) -> Iterator[tuple[AnyArray, ...]]:
    """Go through arrays of one shape in parts that stay in the cache: weights are many."""
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, flat[0].size, BLOCK):
        yield tuple(each[start : start + BLOCK] for each in flat)


def _typical_gradient(wanted: Mapping[str, AnyArray]) -> float:
    """Return the median of the sizes of all gradients."""
    sizes = [typical_size(array) for name, array in wanted.items() if name.startswith("grad:")]
    return float(np.median(sizes)) if sizes else 0.0


def _shape(array: AnyArray) -> str:
    return "x".join(map(str, array.shape)) or "()"
