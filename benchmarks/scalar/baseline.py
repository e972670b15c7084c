"""The contenders written in C."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.scalar.c_process import CProcess
from benchmarks.scalar.contenders import Contender, compare
from benchmarks.scalar.graphs import Floats, OpList
from benchmarks.scalar.oracle import Truth, descend

SCALAR, POINTER, LANES, STEPS = "C scalar", "C by pointer", "C 8 lanes", "C steps"

#: Rate of the gradient steps, and how many of them are checked against the oracle.
RATE = 1e-6
CHECKED_STEPS = 10
#: Largest error of the way they lead, relative to its length: a difference of numbers near one,
#: about 1e-5 long, has a rounding error of 1e-11 of its own.
STEPS_TOLERANCE = 1e-9


def rows_contender(
    name: str, process: CProcess, graph: OpList, truth: Truth, evaluations: int
) -> Contender:
    """Distinct rows, one after the other (`SCALAR`, `POINTER`) or eight at a time (`LANES`)."""
    command = {SCALAR: "scalar", POINTER: "pointer", LANES: "lanes"}[name]

    def check() -> str:
        process.run_rows(command, len(truth.targets))
        return compare(*process.results(), truth)

    def run() -> float:
        return process.run_rows(command, evaluations)

    return Contender(name, graph, evaluations, len(graph.ops), check, run)


def steps_contender(process: CProcess, graph: OpList, truth: Truth, evaluations: int) -> Contender:
    """Gradient steps, each from where the last one led."""

    def check() -> str:
        process.run_steps(CHECKED_STEPS, RATE)
        return compare_steps(process.results()[1][0], graph, truth)

    def run() -> float:
        return process.run_steps(evaluations, RATE)

    return Contender(STEPS, graph, evaluations, len(graph.ops), check, run)


def extend(truth: Truth, process: CProcess, points: Floats) -> Truth:
    """Continue the oracle's rows, which are the first, with C's answers at the other points."""
    process.run_rows("scalar", len(points))
    targets, grads = process.results()
    known = len(truth.targets)
    if not compare(targets[:known], grads[:known], truth).startswith("ok"):
        return truth
    targets[:known], grads[:known] = truth.targets, truth.grads
    return replace(truth, points=points, targets=targets, grads=grads)


def compare_steps(reached: Floats, graph: OpList, truth: Truth) -> str:
    """Verdict on the point reached by `CHECKED_STEPS` steps from the first of the points."""
    start = truth.points[0]
    return compare_ways(reached, descend(graph, start, CHECKED_STEPS, RATE), start)


def compare_ways(reached: Floats, goal: Floats, start: Floats) -> str:
    """Verdict on a point reached from `start` where `goal` is the right one."""
    wanted = goal - start
    error = float(np.max(np.abs(reached - start - wanted))) / float(np.max(np.abs(wanted)))
    verdict = "ok" if error <= STEPS_TOLERANCE else "wrong:"
    return f"{verdict} error {error:.0e}"
