"""The parts of the benchmark. Each adds its samples to the results as it goes."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.scalar import baseline
from benchmarks.scalar.c_process import CProcess
from benchmarks.scalar.contenders import Contender, compare, measure, progress
from benchmarks.scalar.graphs import Floats, Kind, Op, OpList, build
from benchmarks.scalar.oracle import Truth, solve
from benchmarks.scalar.results import Results, Series

if HAS_ENGINE := importlib.util.find_spec("tapegrad") is not None:
    from benchmarks.scalar import engine

EVALUATION, SCALING, CALL, CHURN = "evaluation", "scaling", "call", "churn"

#: Operations in the graphs of the main tables.
N_OPS = 10_000
#: Rows of a batch, and evaluations per round of a contender that takes a row at a time.
BATCH_ROWS = 10_000
SINGLE_ROWS = 1_000
#: Points that are checked against the oracle: one full group of lanes and a rest.
CHECKED_ROWS = 13
#: Sizes of the scaling study: operations, evaluations in C, rows of a batch.
SCALING_SIZES = ((1_000, 4_000, 10_000), (10_000, 500, 2_000), (100_000, 50, 500))
SCALING_FAMILIES = ("chain", "random", "cheap")
#: Evaluations of each graph in the churn study, and the number of graphs its bar speaks of.
CHURN_ROWS = 1_000
CHURN_GRAPHS = 1_000
CALLS = 20_000


@dataclass(frozen=True)
class Bench:
    """What all studies need: the compiled baseline, a place for files, and where results go."""

    binary: Path
    scratch: Path
    results: Results
    rounds: int

    @contextmanager
    def c_process(self, graph: OpList, points: Floats) -> Iterator[CProcess]:
        """Start a C interpreter with files of its own."""
        with (
            TemporaryDirectory(dir=self.scratch) as directory,
            CProcess(self.binary, graph, points, Path(directory)) as process,
        ):
            self.results.machine["denormals in C"] = process.denormals
            yield process


class UnfitGraphError(RuntimeError):
    """A generated graph is no fair benchmark."""


def truth_of(graph: OpList, points: Floats) -> Truth:
    """Ask the oracle at the first points; refuse a graph that collapses or overflows."""
    truth = solve(graph, points[:CHECKED_ROWS])
    complaint = truth.complaint()
    if complaint is None and graph.duplicates() > len(graph.ops) // 100:
        complaint = f"{graph.duplicates()} operations are duplicates"
    if complaint is not None:
        raise UnfitGraphError(f"{graph.family} with {len(graph.ops)} operations: {complaint}")
    return truth


def evaluation(bench: Bench, family: str) -> None:
    """All contenders on one graph of 10k operations."""
    progress(f"{EVALUATION} {family}: checking")
    graph = build(family, N_OPS)
    points = graph.points(BATCH_ROWS)
    truth = truth_of(graph, points)
    with bench.c_process(graph, points) as process:
        contenders = [
            baseline.rows_contender(baseline.SCALAR, process, graph, truth, SINGLE_ROWS),
            baseline.rows_contender(baseline.POINTER, process, graph, truth, SINGLE_ROWS),
            baseline.rows_contender(baseline.LANES, process, graph, truth, SINGLE_ROWS),
            baseline.steps_contender(process, graph, truth, SINGLE_ROWS),
        ]
        if HAS_ENGINE:
            process.run_steps(SINGLE_ROWS, baseline.RATE)
            goal = process.results()[1][0]
            truth = baseline.extend(truth, process, points)
            contenders += _engine_contenders(graph, truth, points, goal)
        measure(EVALUATION, contenders, bench.rounds, bench.results)


def _engine_contenders(
    graph: OpList, truth: Truth, points: Floats, goal: Floats
) -> list[Contender]:
    double, single = engine.prepare(graph, "float64"), engine.prepare(graph, "float32")
    return [
        engine.single_contender(double, graph, truth, points[:SINGLE_ROWS]),
        engine.minimize_contender(double, graph, truth, SINGLE_ROWS, goal),
        engine.batch_contender(double, graph, truth, points, dtype="float64", threads=1),
        engine.batch_contender(double, graph, truth, points, dtype="float64", threads=2),
        engine.batch_contender(single, graph, truth, points, dtype="float32", threads=1),
        engine.batch_contender(single, graph, truth, points, dtype="float32", threads=2),
    ]


def scaling(bench: Bench, family: str) -> None:
    """Batch, recording and compiling at 1k, 10k and 100k operations, all in the same rounds."""
    contenders: list[Contender] = []
    with ExitStack() as stack:
        for n_ops, c_rows, batch_rows in SCALING_SIZES:
            progress(f"{SCALING} {family}: checking {n_ops} operations")
            graph = build(family, n_ops)
            points = graph.points(batch_rows)
            truth = truth_of(graph, points)
            process = stack.enter_context(bench.c_process(graph, points))
            contenders.append(
                baseline.rows_contender(baseline.SCALAR, process, graph, truth, c_rows)
            )
            if HAS_ENGINE:
                program = engine.prepare(graph)
                truth = baseline.extend(truth, process, points)
                contenders += [
                    engine.batch_contender(
                        program, graph, truth, points, dtype="float64", threads=1
                    ),
                    engine.prepare_contender(graph, truth),
                ]
        measure(SCALING, contenders, max(3, bench.rounds // 2), bench.results)


def call(bench: Bench) -> None:
    """Time the call of a program with two operations: a product and the sum of all nodes."""
    if not HAS_ENGINE:
        return
    bench.results.machine["denormals in tapegrad"] = engine.denormals()
    graph = OpList("two ops", 2, [Op(Kind.PRODUCT, (0, 1))])
    truth = solve(graph, graph.points(1))
    measure(CALL, [engine.call_contender(graph, truth, CALLS)], bench.rounds, bench.results)


def churn(bench: Bench, n_graphs: int) -> None:
    """Different random graphs: each is recorded, compiled and run; C only interprets.

    Making the lists of operations, and handing them to C, is outside the times of both sides.
    """
    c_series = Series(CHURN, "random", N_OPS, baseline.SCALAR, CHURN_ROWS, N_OPS)
    series = Series(CHURN, "random", N_OPS, "record + compile + batch", CHURN_ROWS, N_OPS)
    bench.results.series += [c_series, series]
    early = 0.0
    for index in range(n_graphs):
        progress(f"{CHURN}: graph {index + 1} of {n_graphs}")
        graph = build("random", N_OPS, seed=1_000 + index)
        points = graph.points(CHURN_ROWS, seed=index)
        with bench.c_process(graph, points) as process:
            c_seconds = process.run_rows("scalar", CHURN_ROWS)
            targets, grads = process.results()
        if index == 0:
            c_series.verdict = compare(targets, grads, truth_of(graph, points))
        c_series.seconds.append(c_seconds / CHURN_ROWS)
        if HAS_ENGINE and series.ok:
            start = time.perf_counter()
            found = engine.prepare(graph).batch(points, threads=1)
            seconds = time.perf_counter() - start
            series.verdict = _agreement(found, (targets, grads))
            if series.ok:
                series.seconds.append(seconds / CHURN_ROWS)
        if index + 1 == max(1, n_graphs // 10):
            early = resident_megabytes()
    bench.results.numbers["churn graphs"] = n_graphs
    bench.results.numbers["churn megabytes after a tenth"] = early
    bench.results.numbers["churn megabytes at the end"] = resident_megabytes()
    progress(f"{CHURN}: {n_graphs} graphs done\n")


def _agreement(found: tuple[Floats, Floats], wanted: tuple[Floats, Floats]) -> str:
    """Verdict on all rows of a batch against C, itself checked against the oracle."""
    targets, grads = wanted
    truth = Truth(np.empty(0), targets, grads, 1.0, 1.0, 1.0, 1.0)
    return compare(*found, truth)


def resident_megabytes() -> float:
    """Resident memory of this process; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
