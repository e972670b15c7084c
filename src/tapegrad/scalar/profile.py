"""Where the time of a program goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tapegrad import _core
from tapegrad.errors import ShapeError

#: Instructions to time in all: evaluations are repeated until there are so many.
WORK = 3_000_000
REPEATS = (5, 200)


@dataclass(frozen=True)
class KernelTime:
    """One kind of instruction."""

    name: str
    """As `explain` calls it: exp, muladd, sum3, softmax, loop, ..."""
    instructions: int
    """How many the program has."""
    runs: int
    """In how many runs of one kernel they are."""
    seconds: float
    """What they take together in one evaluation (of all rows at once)."""


@dataclass(frozen=True)
class Profile:
    """Time per kind of instruction; `print` it. Made by `Program.profile`."""

    kernels: tuple[KernelTime, ...]
    """The slowest first."""
    seconds: float
    """One evaluation as a whole."""
    rows: int
    """Rows that are evaluated at once: 1 for a point."""

    def __str__(self) -> str:
        timed = sum(kernel.seconds for kernel in self.kernels) or 1.0
        rows = "1 row" if self.rows == 1 else f"{self.rows} rows"
        lines = [
            f"{self.seconds * 1e6:.2f} us for {rows}",
            f"{'kernel':<16}{'count':>9}{'runs':>8}{'us':>10}{'ns each':>10}{'share':>8}",
        ]
        for kernel in self.kernels:
            each = kernel.seconds / kernel.instructions * 1e9
            lines.append(
                f"{kernel.name:<16}{kernel.instructions:>9,}{kernel.runs:>8,}"
                f"{kernel.seconds * 1e6:>10.2f}{each:>10.1f}{kernel.seconds / timed:>8.0%}"
            )
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)


def profile(program: _core.Program, x: ArrayLike) -> Profile:
    """Time every kind of instruction at a point (n,), or at rows (m, n) side by side."""
    points = x if isinstance(x, np.ndarray) else np.asarray(x)
    if points.ndim not in (1, 2):
        raise ShapeError(f"profile: expected a point or rows of points, got shape {points.shape}")
    few, many = REPEATS
    work: Any = program.stats["instructions"] + 1
    repeats = min(max(WORK // work, few), many)
    found, seconds, rows = program.measure_kernels(np.atleast_2d(points), repeats)
    kernels = sorted((KernelTime(*each) for each in found), key=lambda each: -each.seconds)
    return Profile(tuple(kernels), seconds, rows)
