"""Greeks of a basket option over a million paths: one sweep against bump-and-revalue.

The program is the discounted payoff of one path. Spots, volatilities, the rate and the correlation
are shared by all paths, normal draws are a path's own, and one batch gives the price with all its
derivatives. Bumping gives each Greek by two more prices, over the same paths.

    pip install 'tapegrad[bench]'
    python examples/basket_greeks.py --plot greeks.png
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.progress import track

import tapegrad as tg

ASSETS = 5
NAMES = [
    *(f"delta {i}" for i in range(ASSETS)),
    *(f"vega {i}" for i in range(ASSETS)),
    "rho",
    "correlation",
]
#: Spots, volatilities, rate, correlation.
MARKET = np.array([100, 90, 110, 95, 105, 0.2, 0.3, 0.25, 0.35, 0.15, 0.03, 0.4])
WEIGHTS = np.full(ASSETS, 1 / ASSETS)
STRIKE, YEARS = 100.0, 1.0
#: Parts that the paths are cut into: their scatter gives the standard errors.
BLOCKS = 20
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Greeks:
    """Price and Greeks in one array, their standard errors, and the seconds they took."""

    values: Floats
    errors: Floats
    seconds: float


def record(weights: Floats) -> tuple[tg.Var, NDArray[np.object_]]:
    """Record the payoff of a path; the Vars of the market come with it."""
    g = tg.Graph()
    market, draws = g.inputs(len(MARKET)), g.inputs(ASSETS + 1)
    spots, vols, (rate, correlation) = market[:ASSETS], market[ASSETS:-2], market[-2:]
    # One draw for all assets and one for each: any two then have this correlation.
    normal = tg.sqrt(correlation) * draws[0] + tg.sqrt(1 - correlation) * draws[1:]
    drift = (rate - vols**2 / 2) * YEARS
    prices = spots * np.exp(drift + vols * np.sqrt(YEARS) * normal)
    payoff = tg.maximum(weights @ prices - STRIKE, 0.0)
    return tg.exp(-rate * YEARS) * payoff, market


def paths(count: int, seed: int = 0) -> list[Floats]:
    """Draw the normal numbers of all paths, in blocks, column by column in memory."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((ASSETS + 1, count // BLOCKS)).T for _ in range(BLOCKS)]


def summary(blocks: list[Floats], seconds: float) -> Greeks:
    """Turn the means of blocks into means of all, with errors."""
    errors = np.std(blocks, 0, ddof=1) / np.sqrt(len(blocks))
    return Greeks(np.mean(blocks, 0), errors, seconds)


def by_sweep(draws: list[Floats], weights: Floats = WEIGHTS) -> Greeks:
    """Get the price and all derivatives from one pass over the paths."""
    payoff, market = record(weights)
    program = tg.compile(payoff, wrt=market)
    begin = time.perf_counter()
    blocks = []
    for block in track(draws, "one sweep     "):
        price, greeks = program.batch(block, shared=MARKET, reduce="mean")
        blocks.append(np.array([price, *greeks]))
    return summary(blocks, time.perf_counter() - begin)


def by_bumps(draws: list[Floats], weights: Floats = WEIGHTS, size: float = 1e-3) -> Greeks:
    """Get each derivative from two prices, the market moved up and down by a part of itself."""
    program = tg.compile(record(weights)[0])
    begin = time.perf_counter()
    moves = np.diag(size * MARKET)
    blocks = []
    for block in track(draws, "bump, revalue "):
        price = program.batch(block, shared=MARKET, reduce="mean")
        ups, downs = (
            np.array([program.batch(block, shared=each, reduce="mean") for each in moved])
            for moved in (MARKET + moves, MARKET - moves)
        )
        blocks.append(np.array([price, *((ups - downs).ravel() / (2 * size * MARKET))]))
    return summary(blocks, time.perf_counter() - begin)


def plot(sweep: Greeks, bumps: Greeks, title: str, path: Path) -> None:
    """Draw the Greeks of both ways, how far they are apart, and their seconds."""
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    figure.suptitle(title)
    sizes, apart, bars = figure.subplots(1, 3, width_ratios=(1.3, 1.3, 0.7))
    sizes.bar(NAMES, sweep.values[1:], color="lightsteelblue", label="one sweep")
    sizes.plot(NAMES, bumps.values[1:], "kx", label="bump and revalue")
    sizes.set(title="derivatives of the price", yscale="log")
    sizes.legend(loc="upper left")
    apart.bar(NAMES, (bumps.values - sweep.values)[1:] / sweep.errors[1:], color="0.5")
    apart.axhline(0, color="k", lw=0.8)
    apart.set(title="bumps - sweep, in standard errors")
    for axes in (sizes, apart):
        axes.tick_params(axis="x", rotation=60)
    drawn = bars.bar(["one sweep", "bumps"], [sweep.seconds, bumps.seconds], color="lightsteelblue")
    bars.bar_label(drawn, fmt="%.2f s")
    bars.set(title="seconds")
    bars.margins(y=0.1)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Compute both ways, print, draw."""
    parser = argparse.ArgumentParser(description="Greeks of a basket option.")
    parser.add_argument("--paths", type=int, default=1_000_000)
    parser.add_argument("--plot", type=Path, default=Path("build/basket_greeks.png"))
    options = parser.parse_args()
    if options.paths < BLOCKS:
        parser.error(f"expected a path for each of the {BLOCKS} blocks, got {options.paths}")
    draws = paths(options.paths)
    sweep, bumps = by_sweep(draws), by_bumps(draws)
    rows = zip(["price", *NAMES], sweep.values, sweep.errors, bumps.values, strict=True)
    for name, value, error, bumped in rows:
        print(f"{name:12} {value:9.4f} ± {error:.4f}   bumped {bumped:9.4f}")
    title = (
        f"{options.paths:,} paths: price and {len(NAMES)} Greeks in {sweep.seconds:.2f} s, "
        f"by bumps in {bumps.seconds:.2f} s"
    )
    print(title)
    plot(sweep, bumps, title, options.plot)


if __name__ == "__main__":
    main()
