"""Whether numbers look drawn: by their distribution, by their order, and by not coming back.

This shows that an operator returns numbers of the right kind. It does not show that they were
drawn within the clock: who draws so many beforehand that none comes back is not seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tapegrad.bench.inputs import Arrays

#: What is assumed (equal distributions, no order) is rejected below this probability.
LEAST_P = 1e-6
#: Fewer numbers than these may come back by chance; of more, the first show whether there is an
#: order.
FEWEST, ENOUGH = 1 << 10, 1 << 16


def difference(found: Arrays, wanted: Arrays) -> str | None:
    """Say what is wrong with random results beside others, by the Kolmogorov-Smirnov test."""
    for name, array in found.items():
        if name not in wanted:
            return f"{name} is not a result of this case"
        if array.shape != wanted[name].shape:
            return f"{name} has shape {array.shape}, not {wanted[name].shape}"
        p = stats.ks_2samp(array.ravel(), wanted[name].ravel(), method="asymp").pvalue
        if not p >= LEAST_P:
            return f"{name} is distributed otherwise (p = {p:.1g})"
    return None


def order(results: Arrays) -> str | None:
    """Say which results are in an order: a number tells something about the next one."""
    for name, array in results.items():
        some = array.reshape(-1)[:ENOUGH]
        correlation = serial_correlation(some)
        p = math.erfc(abs(correlation) * math.sqrt(some.size / 2))
        if p < LEAST_P:
            return f"{name} is in an order: neighbours correlate by {correlation:.2g}"
    return None


def serial_correlation(array: NDArray[np.floating]) -> float:
    """Return how ranks of neighbours correlate: 0 of independent numbers, 1 of sorted ones.

    Example:
        >>> round(serial_correlation(np.arange(100.0)), 2)
        0.97

    """
    ranks = stats.rankdata(array)
    centred = ranks - ranks.mean()
    squares = float(np.sum(centred**2))
    return float(np.sum(centred[1:] * centred[:-1])) / squares if squares else 0.0


def fingerprint(results: Arrays) -> int | None:
    """Return a number that equal results share; none where results may be equal by chance."""
    if any(array.size < FEWEST for array in results.values()):
        return None
    return hash(tuple(array.tobytes() for array in results.values()))


def repetition(draws: Sequence[int | None]) -> str | None:
    """Say whether calls on the same inputs, by their fingerprints, draw anew and yet repeat.

    A function of its inputs, seed included, gives the same numbers each time: that is another way.

    Example:
        >>> repetition([1, 2, 1, 2])
        '4 calls drew 2 different results, which must have been there'
        >>> repetition([1, 1, 1, 1]), repetition([1, 2, 3, 4])
        (None, None)

    """
    different = len(set(draws))
    if different in (1, len(draws)):
        return None
    return f"{len(draws)} calls drew {different} different results, which must have been there"
