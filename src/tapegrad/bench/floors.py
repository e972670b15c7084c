"""The least that a call can take on this machine, whoever makes it.

Two things are known without asking a worker: how many bytes its results have, and, of products and
convolutions, how many operations they take. A time below either was not spent on the work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapegrad.bench import machine, terms, units
from tapegrad.worker import controls
from tapegrad.worker.case import Case

AnyArray = NDArray[Any]

#: A processor may write results this many times faster than the driver copies as many bytes.
WRITE_FACTOR = 8.0
#: A processor may multiply this many times faster than NumPy does here, and at least at this rate,
#: thrice that of any so far (64 operations a cycle at 5 GHz): NumPy's library may be a slow one,
#: and some algorithms need fewer operations.
FLOPS_FACTOR = 10.0
LEAST_FLOPS = 1e12
#: The same of a GPU, bytes and operations a second: several times those of the fastest so far.
GPU_BYTES, GPU_FLOPS = 2e13, 4e15
#: Bytes that are copied at most to find out.
MOST_COPIED = 1 << 26
#: Elements of a result that are looked for among the inputs, and of an input looked at in one go.
SAMPLE = 16
PASS = 1 << 20
#: Operators whose numbers are sums of products, of as many terms as `tapegrad.bench.terms` tells.
PRODUCTS = (
    "matmul",
    "bmm",
    "linear",
    "conv1d",
    "conv2d",
    "conv2d_depthwise",
    "conv2d_dilated",
    "conv2d_grouped",
    "conv2d_pointwise",
    "conv2d_strided",
    "conv2d_wide",
)
ATTENTION = "scaled_dot_product_attention"


@dataclass(frozen=True)
class Floor:
    """The least seconds of a call, and what they are needed for."""

    seconds: float
    reason: str


@dataclass(frozen=True)
class Demand:
    """What a call has to do: bytes to write, and operations of a type where they are known."""

    nbytes: int
    operations: float
    dtype: str

    def floor(self, threads: int, device: str) -> Floor:
        """Return the least time in which anybody does it."""
        found = self._writing(threads, device), self._multiplying(threads, device)
        return max(found, key=lambda each: each.seconds)

    def _writing(self, threads: int, device: str) -> Floor:
        amount = f"{units.size(self.nbytes)} of results"
        if device == "cuda":
            return Floor(self.nbytes / GPU_BYTES, f"no GPU writes {amount} so fast")
        needed = copying(self.nbytes)
        reason = f"to copy {amount} takes {units.seconds(needed)} here"
        return Floor(needed / (WRITE_FACTOR * threads), reason)

    def _multiplying(self, threads: int, device: str) -> Floor:
        if not self.operations:
            return Floor(0.0, "")
        amount = f"{units.number(self.operations / 1e6)} million operations"
        if device == "cuda":
            return Floor(self.operations / GPU_FLOPS, f"no GPU does {amount} so fast")
        rate = multiplying(self.dtype)
        fastest = max(FLOPS_FACTOR * rate, LEAST_FLOPS) * threads
        needed = units.seconds(self.operations / rate)
        return Floor(self.operations / fastest, f"{amount} take NumPy {needed} here")


def operations(case: Case, phase: str, outputs: int) -> float:
    """Return the operations of a phase, zero where they are not known.

    A gradient takes at least as many as the forward go with its `outputs` numbers.

    Example:
        >>> from tapegrad.worker.case import Array
        >>> product = Case("operator", "matmul", (Array("a", (2, 3)), Array("b", (3, 4))))
        >>> operations(product, "forward", outputs=8), operations(product, "step", outputs=8)
        (48.0, 96.0)

    """
    once = case.flops or 2.0 * outputs * _terms(case)
    return 2 * once if phase == "step" else once


def _terms(case: Case) -> int:
    """Return the products behind a number; of a user's own function only the name is known."""
    if case.level != "operator" or not case.reduction:
        return 0
    shapes = {each.name: each.shape for each in case.inputs}
    with suppress(KeyError, IndexError):  # a suite may call its inputs otherwise
        if case.op == ATTENTION:
            return 2 * shapes["k"][-2]
        if case.op in PRODUCTS:
            return terms.terms(case.op, shapes, case.attrs)
    return 0


def computed(truth: Mapping[str, AnyArray], given: Iterable[AnyArray]) -> frozenset[str]:
    """Name the results that no view of the given arrays could show.

    Example:
        >>> x = np.arange(6.0).reshape(2, 3) + 2
        >>> computed({"output0": x.T}, [x])
        frozenset()
        >>> computed({"output0": x**2}, [x])
        frozenset({'output0'})
        >>> computed({"output0": np.fmax(x, 4)}, [x - 4, x])
        frozenset()
        >>> computed({"output0": np.fmax(x - 4, 0)}, [x + 1])
        frozenset({'output0'})

    """
    samples = {name: _sample(array) for name, array in truth.items() if not _repeats(array)}
    new = {
        name: sample
        for name, sample in samples.items()
        if not all(element in (0, 1) for element in sample)
    }
    for source in given:
        # A network has hundreds of results and of weights: one pass over each for all of them.
        near = _found({name: sample[0] for name, sample in new.items()}, source)
        for name in near:
            if all(np.any(source == element) for element in new[name]):
                del new[name]
    return frozenset(new)


def _sample(array: AnyArray) -> AnyArray:
    flat = array.reshape(-1)
    return flat[:: max(1, flat.size // SAMPLE)]


def _repeats(array: AnyArray) -> bool:
    """Tell whether the first and the last part along some axis are the same."""
    return any(
        np.array_equal(array.take(0, axis), array.take(-1, axis))
        for axis, side in enumerate(array.shape)
        if side > 1
    )


def _found(elements: Mapping[str, Any], source: AnyArray) -> list[str]:
    """Name the elements that are somewhere in an array."""
    if not elements:
        return []
    wanted = np.unique(np.array(list(elements.values())))
    seen = np.zeros(len(wanted), dtype=bool)
    flat = source.reshape(-1)
    for low in range(0, flat.size, PASS):
        part = flat[low : low + PASS]
        places = np.minimum(np.searchsorted(wanted, part), len(wanted) - 1)
        seen[places[wanted[places] == part]] = True
    present = set(wanted[seen].tolist())
    return [name for name, element in elements.items() if element.item() in present]


def copying(nbytes: int) -> float:
    """Measure what copying so many bytes takes, less what any call takes."""
    copied = min(nbytes, MOST_COPIED)
    whole = machine.fastest(controls.copying(copied)) - machine.fastest(controls.copying(1))
    return max(0.0, whole) * nbytes / max(copied, 1)


@cache
def multiplying(dtype: str) -> float:
    """Measure once how many operations a second a matrix product does on one processor."""
    return machine.multiplying(dtype)
