"""What is measured: a contender on one graph, its check against the oracle, and the rounds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.scalar.graphs import Floats, OpList
from benchmarks.scalar.oracle import Truth
from benchmarks.scalar.results import Results, Series

#: Largest error of an element, relative to the larger of its size and one.
TOLERANCE = {"float64": 1e-10, "float32": 2e-4}


@dataclass
class Contender:
    """One way to evaluate a graph."""

    name: str
    graph: OpList
    evaluations: int
    instructions: int
    #: Runs once and returns "ok ..." or "wrong: ..."; also the warm-up.
    check: Callable[[], str]
    #: Runs all evaluations once and returns the seconds they took.
    run: Callable[[], float]


def compare(
    targets: NDArray[np.floating], grads: NDArray[np.floating], truth: Truth, dtype: str = "float64"
) -> str:
    """Verdict on every target and every gradient element, as far as the truth is known."""
    rows = min(len(targets), len(truth.targets))
    if not (np.isfinite(targets).all() and np.isfinite(grads).all()):
        return "wrong: not finite"
    error = max(
        _error(targets[:rows], truth.targets[:rows]), _error(grads[:rows], truth.grads[:rows])
    )
    verdict = "ok" if error <= TOLERANCE[dtype] else "wrong:"
    return f"{verdict} error {error:.0e}"


def _error(found: NDArray[np.floating], wanted: Floats) -> float:
    return float(np.max(np.abs(found - wanted) / np.maximum(np.abs(wanted), 1.0)))


def measure(study: str, contenders: Sequence[Contender], rounds: int, results: Results) -> None:
    """Check all contenders, then time those that agree, in turn, for a number of rounds.

    Samples enter `results` as they are taken, so an interrupted run keeps what it has.
    """
    entrants: list[tuple[Contender, Series]] = []
    for contender in contenders:
        graph = contender.graph
        series = Series(
            study,
            graph.family,
            len(graph.ops),
            contender.name,
            contender.evaluations,
            contender.instructions,
            _verdict(contender),
        )
        results.series.append(series)
        if series.ok:
            entrants.append((contender, series))
        else:
            progress(f"{graph.family} {len(graph.ops)}: {contender.name} is {series.verdict}\n")
    label = f"{study} {contenders[0].graph.family}"
    for index in range(rounds):
        progress(f"{label}: round {index + 1} of {rounds}")
        for contender, series in entrants:
            series.seconds.append(contender.run() / contender.evaluations)
    progress(f"{label}: {rounds} rounds done\n")


def _verdict(contender: Contender) -> str:
    """Run the check; a contender that cannot run is as wrong as one that disagrees."""
    try:
        return contender.check()
    except Exception as error:
        return f"wrong: {type(error).__name__}: {error}"


def progress(text: str) -> None:
    """Show where the run is; on a terminal the line is overwritten."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    elif text.endswith("\n"):
        print(text, end="", file=sys.stderr, flush=True)
