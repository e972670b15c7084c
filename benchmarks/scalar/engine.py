"""The contenders that run in tapegrad."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import numpy as np

import tapegrad as tg
from benchmarks.scalar.baseline import CHECKED_STEPS, RATE, compare_steps, compare_ways
from benchmarks.scalar.contenders import Contender, compare
from benchmarks.scalar.graphs import Floats, Kind, OpList
from benchmarks.scalar.oracle import Truth

#: Rows by which a freshly compiled program is checked.
PROBED_ROWS = 13

#: Looking members up in the enum for each operation would add 3 ms to recording 10k of them.
SOFTPLUS, PRODUCT, SOFTMAX = Kind.SOFTPLUS, Kind.PRODUCT, Kind.SOFTMAX

SINGLE, MINIMIZE, PREPARE, CALL = "single", "minimize", "record + compile", "call"


def batch_name(dtype: str, threads: int) -> str:
    """Name a batch contender."""
    return f"batch {dtype}" + (f", {threads} threads" if threads > 1 else "")


def record(ops: OpList) -> tuple[tg.Var, Iterable[tg.Var]]:
    """Record a graph as a user would; returns the target and the inputs."""
    graph = tg.Graph()
    inputs = graph.inputs(ops.n_inputs)
    nodes = list(inputs)
    for kind, ins in ops.ops:
        if kind is SOFTPLUS:
            nodes.append(tg.softplus(nodes[ins[0]]))
        elif kind is PRODUCT:
            nodes.append(nodes[ins[0]] * nodes[ins[1]])
        elif kind is SOFTMAX:
            nodes.extend(tg.softmax([nodes[i] for i in ins]))
        elif len(ins) == 2:
            nodes.append(nodes[ins[0]] + nodes[ins[1]])
        else:
            nodes.append(tg.sum([nodes[i] for i in ins]))
    return tg.sum(nodes), inputs


def prepare(ops: OpList, dtype: str = "float64") -> tg.Program:
    """Record and compile."""
    target, inputs = record(ops)
    return tg.compile(target, wrt=inputs, dtype=dtype)


def denormals() -> str:
    """Find out whether a denormal product survives, in single and in batch evaluation."""
    inputs = tg.Graph().inputs(2)
    program = tg.compile(inputs[0] * inputs[1], wrt=inputs)
    point = np.array([1e-200, 1e-115])
    single, _ = program(point)
    batch, _ = program.batch(point[None], threads=1)
    kept = {"single": float(single) != 0, "batch": float(batch[0]) != 0}
    return ", ".join(f"{name} {'keeps' if keeps else 'FLUSHES'}" for name, keeps in kept.items())


def single_contender(program: tg.Program, graph: OpList, truth: Truth, points: Floats) -> Contender:
    """One call for each row, into buffers that are given."""
    targets, grads = np.zeros(len(points)), np.zeros(points.shape)
    rows = list(points)
    outs = [(targets[i : i + 1].reshape(()), grads[i]) for i in range(len(rows))]

    def run() -> None:
        for row, out in zip(rows, outs, strict=True):
            program(row, out=out)

    def check() -> str:
        run()
        return compare(targets, grads, truth)

    return Contender(SINGLE, graph, len(rows), _instructions(program), check, _timed(run))


def batch_contender(
    program: tg.Program, graph: OpList, truth: Truth, points: Floats, *, dtype: str, threads: int
) -> Contender:
    """All rows in one call, into arrays that are given."""
    rows = points.astype(dtype)
    out = np.zeros(len(rows), dtype), np.zeros(rows.shape, dtype)

    def run() -> None:
        program.batch(rows, threads=threads, out=out)

    def check() -> str:
        run()
        targets, grads = out
        return compare(targets, grads, truth, dtype)

    name = batch_name(dtype, threads)
    return Contender(name, graph, len(rows), _instructions(program), check, _timed(run))


def minimize_contender(
    program: tg.Program, graph: OpList, truth: Truth, steps: int, goal: Floats
) -> Contender:
    """Plain gradient descent inside the engine; `goal` is where all its steps lead in C."""
    start = truth.points[0]

    def reach(count: int) -> Floats:
        return np.asarray(program.minimize(start, "sgd", steps=count, lr=RATE).last_x)

    def check() -> str:
        verdict = compare_steps(reach(CHECKED_STEPS), graph, truth)
        return compare_ways(reach(steps), goal, start) if verdict.startswith("ok") else verdict

    def run() -> None:
        reach(steps)

    return Contender(MINIMIZE, graph, steps, _instructions(program), check, _timed(run))


def prepare_contender(graph: OpList, truth: Truth) -> Contender:
    """From a list of operations to a program that can run."""

    def check() -> str:
        targets, grads = prepare(graph).batch(truth.points[:PROBED_ROWS], threads=1)
        return compare(targets, grads, truth)

    def run() -> None:
        prepare(graph)

    return Contender(PREPARE, graph, 1, len(graph.ops), check, _timed(run))


def call_contender(graph: OpList, truth: Truth, evaluations: int) -> Contender:
    """Measure the cost of a call itself, on a graph of two operations."""
    program = prepare(graph)
    point = truth.points[0]
    out = np.zeros(()), np.zeros(graph.n_inputs)

    def check() -> str:
        program(point, out=out)
        return compare(out[0][None], out[1][None], truth)

    def run() -> None:
        for _ in range(evaluations):
            program(point, out=out)

    return Contender(CALL, graph, evaluations, _instructions(program), check, _timed(run))


def _instructions(program: tg.Program) -> int:
    return int(program.stats["instructions"])


def _timed(run: Callable[[], None]) -> Callable[[], float]:
    def seconds() -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    return seconds
