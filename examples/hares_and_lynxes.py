"""Calibrate Lotka and Volterra's equations to furs of hares and lynxes, through `tg.scan`.

Six numbers, the four rates and the populations of 1900, are sought by L-BFGS from 64 starts side by
side. The Runge-Kutta steps are a loop within a loop, recorded once: the program is as small for a
thousand steps a year as for one.

The furs, in thousands, are those of the Hudson's Bay Company, 1900 to 1920 (Howard, 2009).

    pip install 'tapegrad[bench]'
    python examples/hares_and_lynxes.py --plot hares.png
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console

import tapegrad as tg

Floats = NDArray[np.float64]
YEARS = np.arange(1900, 1921)
#: Hares, then lynxes, seven years a line.
FURS = np.array(
    [
        [30, 47.2, 70.2, 77.4, 36.3, 20.6, 18.1],
        [21.4, 22, 25.4, 27.1, 40.3, 57, 76.6],
        [52.3, 19.5, 11.2, 7.6, 14.6, 16.2, 24.7],
        [4, 6.1, 9.8, 35.2, 59.4, 41.7, 19],
        [13, 8.3, 9.1, 7.4, 8, 12.3, 19.5],
        [45.7, 51.1, 29.7, 15.8, 9.7, 10.1, 8.6],
    ]
).reshape(2, 21)
#: Births of hares, hares eaten by a lynx, deaths of lynxes, lynxes born of a hare; hares, lynxes.
GUESS = np.array([0.5, 0.02, 0.5, 0.02, 30, 4])


@dataclass(frozen=True)
class Calibration:
    """Parameters and errors of all starts, the best first, and the seconds they took."""

    parameters: Floats
    errors: Floats
    seconds: float


def rates(state: Any, parameters: Any) -> Any:
    """Return how fast both populations change."""
    (hares, lynxes), (births, eaten, deaths, born) = state, parameters
    return np.array([hares * (births - eaten * lynxes), lynxes * (born * hares - deaths)])


def after(state: Any, parameters: Any, step: float) -> Any:
    """Return the populations one step later, by Runge and Kutta's classical rule."""
    k1 = rates(state, parameters)
    k2 = rates(state + step / 2 * k1, parameters)
    k3 = rates(state + step / 2 * k2, parameters)
    k4 = rates(state + step * k3, parameters)
    return state + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def simulate(parameters: Any, points: int, steps: int, spacing: float = 1.0) -> Any:
    """Return the populations (points, 2), `steps` steps of the rule apart: of Vars or numbers."""
    rates_of, start = parameters[:4], parameters[4:]

    def small(state: Any, _: None) -> tuple[Any, None]:
        return after(state, rates_of, spacing / steps), None

    def point(state: Any, _: None) -> tuple[Any, Any]:
        return tg.scan(small, state, length=steps)[0], state

    return tg.scan(point, start, length=points)[1]


def compile_error(steps: int) -> tg.Program:
    """Compile half the squared error of the logarithms, by logarithms of the parameters."""
    g = tg.Graph()
    logs = g.inputs(len(GUESS))
    errors = np.log(simulate(np.exp(logs), len(YEARS), steps)) - np.log(FURS.T)
    return tg.compile(np.sum(errors**2) / 2, wrt=logs)


def calibrate(starts: int, steps: int, seed: int = 0) -> Calibration:
    """Descend from starts around the guess."""
    program = compile_error(steps)
    around = 0.3 * np.random.default_rng(seed).standard_normal((starts, len(GUESS)))
    begin = time.perf_counter()
    found = program.minimize(np.log(GUESS) + around, "lbfgs", steps=300)
    seconds = time.perf_counter() - begin
    order = np.argsort(found.value)
    return Calibration(np.exp(found.x[order]), found.value[order], seconds)


def plot(calibration: Calibration, title: str, path: Path) -> None:
    """Draw the furs with the best curve, and where the starts ended."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    figure.suptitle(title)
    time_axes, ends = figure.subplots(1, 2, width_ratios=(2, 1))
    curve = np.array(simulate(calibration.parameters[0], 401, 4, 0.05))
    for furs, line, name, colour in zip(
        FURS, curve.T, ("hares", "lynxes"), ("tab:orange", "tab:blue"), strict=True
    ):
        time_axes.plot(YEARS, furs, "o", color=colour, label=name)
        time_axes.plot(YEARS[0] + 0.05 * np.arange(401), line, color=colour)
    time_axes.set(ylabel="thousands of furs", xticks=YEARS[::4])
    time_axes.legend()
    ends.plot(calibration.errors, ".", color="0.3")
    ends.set(xlabel="starts, the best first", ylabel="error where it ended", ylim=(0, 10))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Calibrate, print, draw."""
    parser = argparse.ArgumentParser(description="Calibrate an ODE to hares and lynxes.")
    parser.add_argument("--starts", type=int, default=64)
    parser.add_argument("--steps", type=int, default=100, help="of Runge and Kutta's rule a year")
    parser.add_argument("--plot", type=Path, default=Path("build/hares_and_lynxes.png"))
    options = parser.parse_args()
    if min(options.starts, options.steps) < 1:
        parser.error(f"expected at least one start and step, got {options.starts}, {options.steps}")
    with Console().status(f"descending from {options.starts} starts"):
        found = calibrate(options.starts, options.steps)
    together = np.sum(found.errors < found.errors[0] * 1.001)
    title = (
        f"{options.starts} starts, {options.steps * len(YEARS):,} steps of the equations each "
        f"evaluation: {found.seconds:.1f} s"
    )
    print(f"parameters {found.parameters[0].round(4)}, error {found.errors[0]:.6f}")
    print(f"{title}; {together} starts end there")
    plot(found, title, options.plot)


if __name__ == "__main__":
    main()
