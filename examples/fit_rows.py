"""Fit two decays over a constant, five parameters, to a million noisy rows.

The program is the error of one row. Levenberg-Marquardt wants the errors themselves; L-BFGS wants
their squares, and goes on from any value and gradient.

    pip install 'tapegrad[bench]'
    python examples/fit_rows.py --plot rows.png
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console

import tapegrad as tg

Floats = NDArray[np.float64]
TRUTH = np.array([1.5, 2.0, 0.8, 0.2, 0.4])
START = np.array([2.0, 3.0, 1.0, 0.1, 0.0])
NOISE = 0.05
#: Rows that are drawn: more would be a block of ink.
DRAWN = 2000


@dataclass(frozen=True)
class Fit:
    """What a method found, and the seconds it took."""

    method: str
    found: tg.Minimum
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.method:6} {self.found.x.round(3)} after {self.found.steps} evaluations, "
            f"{self.seconds:.2f} s; ended by {self.found.reason}"
        )


def curve(p: Any, t: Any) -> Any:
    """Return the model at a time: the same text for numbers and for Vars."""
    return p[0] * np.exp(-p[1] * t) + p[2] * np.exp(-p[3] * t) + p[4]


def measured(rows: int) -> Floats:
    """Return rows of a time and a value, column by column in memory."""
    rng = np.random.default_rng(0)
    t = rng.uniform(0, 5, rows)
    return np.array([t, curve(TRUTH, t) + NOISE * rng.standard_normal(rows)]).T


def fit(rows: Floats, method: Literal["lm", "lbfgs"]) -> Fit:
    """Fit the parameters to all rows."""
    g = tg.Graph()
    p, t, y = g.inputs(5), g.input("t"), g.input("y")
    error = curve(p, t) - y
    program = tg.compile(error if method == "lm" else error**2, wrt=p)
    begin = time.perf_counter()
    found = program.minimize(START, method, rows=rows, bounds=(0, None), steps=500)
    return Fit(method, found, time.perf_counter() - begin)


def plot(rows: Floats, fits: list[Fit], title: str, path: Path) -> None:
    """Draw some of the rows with the curves, and how far the parameters are from the truth."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    figure.suptitle(title)
    curves, errors = figure.subplots(1, 2, width_ratios=(2, 1))
    curves.plot(*rows[:DRAWN].T, ".", color="0.8", markersize=2, label=f"{DRAWN:,} of the rows")
    times = np.linspace(0, 5, 400)
    curves.plot(times, curve(START, times), ":", color="0.4", label="start")
    for line, marker, each in zip(("-", "--"), ("o", "x"), fits, strict=True):
        curves.plot(times, curve(each.found.x, times), line, label=each.method)
        errors.plot(np.abs(each.found.x - TRUTH), marker, fillstyle="none", label=each.method)
    curves.set(xlabel="time", ylabel="value")
    curves.legend()
    errors.set(xlabel="parameter", ylabel="distance from the truth", yscale="log")
    errors.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Fit, print, draw."""
    parser = argparse.ArgumentParser(description="Fit five parameters to many rows.")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--plot", type=Path, default=Path("build/fit_rows.png"))
    options = parser.parse_args()
    if options.rows < len(TRUTH):
        parser.error(f"expected at least {len(TRUTH)} rows, got {options.rows}")
    with Console().status(f"fitting {options.rows:,} rows"):
        rows = measured(options.rows)
        fits = [fit(rows, "lm"), fit(rows, "lbfgs")]
    print(f"{len(rows):,} rows; truth {TRUTH}")
    print(*fits, sep="\n")
    plot(rows, fits, f"five parameters, {len(rows):,} rows", options.plot)


if __name__ == "__main__":
    main()
