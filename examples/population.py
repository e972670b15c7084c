"""Fit thousands of random graphs, each of them new, and draw what was found and how long it took.

As in "Fastest Autograd in the West", a graph is met for the first time, compiled, and evaluated
10,000 times, forward and backward: here by 64 starts of Adam side by side, which look for inputs in
[-1, 1] that make the mean of all nodes small. The article's C (corrected) and PyTorch evaluate some
of the same graphs on one thread; what these evaluations alone, without building and descending,
would take them for the population is estimated from that.

    pip install 'tapegrad[bench]' && tapegrad bench frameworks install torch
    python examples/population.py --plot population.png
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.progress import track

import tapegrad as tg
from tapegrad.bench.frameworks import find
from tapegrad.worker import graphs, native
from tapegrad.worker.adapters.c import Graph as CGraph
from tapegrad.worker.adapters.tapegrad import record

STARTS, STEPS = 64, 157
EVALUATIONS = STARTS * STEPS
Floats = NDArray[np.float64]
#: Seconds, values and gradients at points.
Timed = tuple[float, Floats, Floats]
Evaluate = Callable[[graphs.OpList, Floats], Timed]


@dataclass(frozen=True)
class Population:
    """The lowest mean of the nodes of each graph, at its starts and fitted, and all the seconds."""

    before: Floats
    after: Floats
    seconds: float


def starts_of(graph: graphs.OpList, seed: int) -> Floats:
    """Return where the fits of a graph begin."""
    return np.random.default_rng(seed).uniform(-1, 1, (STARTS, graph.n_inputs))


def fit(seed: int, operations: int) -> tuple[float, float]:
    """Meet a graph, record it, compile it, fit it; return its lowest mean before and after."""
    graph = graphs.random(operations, seed)
    total, x = record(graph)
    program = tg.compile(total, wrt=x)
    starts = starts_of(graph, seed)
    values, _ = program.batch(starts)
    found = program.minimize(starts, "adam", steps=STEPS, lr=0.05, bounds=(-1, 1))
    return values.min() / graph.n_nodes, found.value.min() / graph.n_nodes


def fit_all(count: int, operations: int) -> Population:
    """Fit graph after graph, with a bar of progress."""
    begin = time.perf_counter()
    fits = [fit(seed, operations) for seed in track(range(count), "fitting")]
    before, after = np.array(fits).T
    return Population(before, after, time.perf_counter() - begin)


def in_c(graph: graphs.OpList, points: Floats) -> Timed:
    """Evaluate in the corrected C, as often as a fit does; the seconds are for one evaluation."""
    rows = np.tile(points, (STEPS, 1))
    values, gradients = np.empty(len(rows)), np.empty(rows.shape)
    pointers = [ctypes.c_void_p(each.ctypes.data) for each in (rows, values, gradients)]
    run, structure = native.c_library()["run_rows"], CGraph(graph)
    begin = time.perf_counter()
    run(ctypes.byref(structure), len(rows), *pointers)
    seconds = (time.perf_counter() - begin) / len(rows)
    return seconds, values[: len(points)], gradients[: len(points)]


def in_torch(graph: graphs.OpList, points: Floats) -> Timed:
    """Evaluate the first point in PyTorch, eager: a new graph has nothing compiled."""
    asked = {"ops": graph.ops, "point": points[0].tolist()}
    told = subprocess.run(
        [str(find("torch").interpreter()), Path(__file__).with_name("population_torch.py")],
        input=json.dumps(asked),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    answer = json.loads(told.stdout)
    return answer["seconds"], np.array([answer["value"]]), np.array([answer["gradient"]])


def estimate(evaluate: Evaluate, timed: int, count: int, operations: int) -> float:
    """Return the seconds that evaluations of `count` graphs would take, from those of a few.

    Raises an error where values or gradients are not those of tapegrad.
    """
    seconds = []
    for seed in range(timed):
        graph = graphs.random(operations, seed)
        points = starts_of(graph, seed)
        total, x = record(graph)
        took, values, gradients = evaluate(graph, points)
        expected = tg.compile(total, wrt=x).batch(points[: len(values)])
        np.testing.assert_allclose(values, expected[0], rtol=1e-9)
        np.testing.assert_allclose(gradients, expected[1], rtol=1e-6, atol=1e-9)
        seconds.append(took)
    return median(seconds) * EVALUATIONS * count


def others() -> dict[str, tuple[Evaluate, int]]:
    """Return who else can be asked on this machine, and on how many graphs they are timed."""
    torch = {"PyTorch, eager": (in_torch, 2)} if find("torch").interpreter() else {}
    return {"corrected C, one thread": (in_c, 20), **torch}


def duration(seconds: float) -> str:
    """Write a time in the unit in which it is a small number."""
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.1f} seconds"


def plot(population: Population, times: dict[str, float], title: str, path: Path) -> None:
    """Draw what the fits gained, and the times."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    figure.suptitle(title)
    means, bars = figure.subplots(1, 2)
    for values, label in ((population.before, "best of 64 starts"), (population.after, "fitted")):
        means.hist(values, bins=60, label=label, alpha=0.8)
    means.set(xlabel="lowest mean of all nodes of a graph", ylabel="graphs")
    means.margins(y=0.3)
    means.legend(loc="upper left")
    names = [name.replace(", ", ",\n") for name in times]
    drawn = bars.barh(names, list(times.values()), color=["tab:green", "0.5", "tab:red"])
    bars.bar_label(drawn, [f" {duration(each)}" for each in times.values()], padding=2)
    bars.set(xscale="log", xlabel="seconds for all graphs")
    bars.set_xlim(1, 100 * max(times.values()))
    bars.invert_yaxis()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Fit the population, ask the others, draw."""
    parser = argparse.ArgumentParser(description="Fit a population of random graphs.")
    parser.add_argument("--graphs", type=int, default=2_000)
    parser.add_argument("--operations", type=int, default=300, help="of each graph")
    parser.add_argument("--plot", type=Path, default=Path("build/population.png"))
    options = parser.parse_args()
    size = options.graphs, options.operations
    if min(size) < 1:
        parser.error(f"expected at least one graph of one operation, got {size[0]} of {size[1]}")
    population = fit_all(*size)
    times = {"tapegrad, measured": population.seconds}
    for name, (evaluate, timed) in others().items():
        times[f"{name}, estimated"] = estimate(evaluate, timed, *size)
    title = f"{size[0]:,} new graphs of {size[1]:,} operations, {EVALUATIONS:,} evaluations each"
    print(title)
    print(f"mean node {population.before.mean():.3f} -> {population.after.mean():.3f}")
    for name, seconds in times.items():
        print(f"{name:36} {duration(seconds)}")
    plot(population, times, title, options.plot)


if __name__ == "__main__":
    main()
