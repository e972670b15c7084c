"""How often verdicts are wrong on invented measurements whose truth is known.

Tests hold `statistics` to its promises by it. Real workers are on trial in `bench/calibration.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from tapegrad.bench.results import Block
from tapegrad.bench.statistics import Values, ratio


class Rates(NamedTuple):
    """How often each verdict was given, and how often the interval held the true ratio."""

    faster: float
    slower: float
    same: float
    undecided: float
    coverage: float


@dataclass(frozen=True)
class Noise:
    """What disturbs measurements, as standard deviations of logarithms, with typical defaults."""

    sample: float = 0.03
    block: float = 0.02
    process: float = 0.015
    outlier: float = math.log(1.3)
    """What an outlier block takes longer by."""
    outliers: float = 0.03
    """The share of outlier blocks."""
    drift: float = 0.05
    """The machine's walk over a run, common to the blocks of one process and round."""
    control: float = 0.012
    """Of a block's control kernels."""


def simulate(
    processes: int = 3,
    rounds: int = 3,
    slowdown: float = 0.0,
    *,
    noise: Noise | None = None,
    samples: int = 10,
    machine: float = 0.0,
    feels: float = 1.0,
    paired: bool = True,
    controls: bool = False,
    margin: float = 0.03,
    trials: int = 1000,
    seed: int = 0,
) -> Rates:
    """Return how often `ratio` gives each verdict on invented measurements.

    Args:
        processes: Worker processes of each side.
        rounds: Visits to each process.
        slowdown: How much slower theirs is: 0 for equals (A/A), 0.05 for 5 %.
        noise: What disturbs the measurements.
        samples: Samples in each block.
        machine: How much slower the machine is in theirs, for paired=False.
        feels: The share of the machine's slowness that reaches the operator; controls feel all.
        paired: As in `ratio`; the two sides are two runs if not.
        controls: As in `ratio`.
        margin: As in `ratio`.
        trials: How many comparisons to invent.
        seed: Of the random numbers.

    Example:
        >>> simulate(5, 5, slowdown=0.5, trials=20).slower
        1.0

    """
    rng = np.random.default_rng(seed)
    noise = noise or Noise()
    verdicts: dict[str, int] = dict.fromkeys(("faster", "slower", "same", "undecided"), 0)
    covered = 0
    for _ in range(trials):
        drift = _drift(rng, noise, processes, rounds)
        other = drift if paired else _drift(rng, noise, processes, rounds)
        invent = partial(_invent, feels=feels, noise=noise, samples=samples, rng=rng)
        theirs = invent("theirs", math.log1p(slowdown), other + math.log1p(machine))
        ours = invent("ours", 0.0, drift)
        found = ratio(theirs, ours, paired=paired, controls=controls, margin=margin)
        verdicts[found.verdict] += 1
        covered += (found.low or 0.0) <= 1 + slowdown <= (found.high or math.inf)
    return Rates(**{name: n / trials for name, n in verdicts.items()}, coverage=covered / trials)


def _drift(rng: np.random.Generator, noise: Noise, processes: int, rounds: int) -> Values:
    """Invent the machine's state at each visit (process, round): a random walk over the run."""
    steps = rng.normal(0, noise.drift / math.sqrt(processes * rounds), (rounds, processes))
    return np.cumsum(steps).reshape(rounds, processes).T


def _invent(
    framework: str,
    effect: float,
    drift: Values,
    *,
    feels: float,
    noise: Noise,
    samples: int,
    rng: np.random.Generator,
) -> list[Block]:
    """Invent the blocks of one cell."""
    centre = effect + feels * drift + rng.normal(0, noise.process, (len(drift), 1))
    centre += rng.normal(0, noise.block, drift.shape)
    centre += noise.outlier * (rng.random(drift.shape) < noise.outliers)
    times = np.exp(centre[..., None] + rng.normal(0, noise.sample, (*drift.shape, samples)))
    kernels = np.exp(drift + rng.normal(0, noise.control, drift.shape))
    return [
        Block("case", framework, "forward", i, r, times[i, r].tolist(), controls={"copy": float(c)})
        for (i, r), c in np.ndenumerate(kernels)
    ]
