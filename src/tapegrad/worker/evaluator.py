"""From a list of operations to targets and gradients: what all contenders for scalar graphs share.

A contender says how it builds its own form of a graph, how it makes that runnable, and what it
evaluates in one call. Nothing is built or compiled before it is first needed: some take minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np

from tapegrad.worker import formulas, graphs
from tapegrad.worker.adapter import AnyArray, Phase, Unsupported, Work
from tapegrad.worker.case import Case
from tapegrad.worker.formulas import Formula
from tapegrad.worker.graphs import Floats, OpList

#: Targets (rows,) and gradients (rows, inputs), or entries of Hessians (rows, entries).
Result = tuple[AnyArray, ...]
#: Evaluates points, one a row.
Run = Callable[[AnyArray], Result]
Built = TypeVar("Built")
Given = TypeVar("Given")
#: All points in one call.
MANY = 1 << 62


@dataclass(frozen=True)
class Evaluator(Generic[Built]):
    """One way to evaluate a graph."""

    #: Turns the operations into the contender's own graph, function or source.
    build: Callable[[OpList], Built]
    #: Makes that runnable, for points like these.
    compile: Callable[[Built, AnyArray], Run]
    #: Those that mean something here: who interprets has nothing to compile.
    phases: tuple[str, ...] = ("build", "compile", "step")
    #: Operations evaluated in one call, over all rows: enough for some milliseconds.
    ops_per_call: int = MANY
    #: Writes a formula of so many variables in the same form; None: it takes lists of operations.
    write: Callable[[Formula, int], Built] | None = None
    #: The type of the points it is given, where that is not the case's own.
    precision: str | None = None
    notes: Sequence[str] = field(default=())


def evaluations(evaluator: Evaluator[Built], case: Case, arrays: Mapping[str, AnyArray]) -> Work:
    """Make the evaluation of a graph or formula at the first rows of the points ready."""
    build, ops = _builder(evaluator, case)
    rows = max(1, evaluator.ops_per_call // ops)
    points = Points(case, arrays, rows, evaluator.precision)
    runs: list[Run] = []
    fresh: list[Built] = []

    def forget() -> None:
        fresh[:] = [build()]

    def compile_fresh() -> Run:
        run = evaluator.compile(fresh[0], points.rows)
        if not runs:  # steps stay with the first one: some get faster while they run
            runs.append(run)
        return run

    def step() -> Result:
        if not runs:
            forget()
            compile_fresh()
        return runs[0](points.rows)

    def read(phase: str, result: Any) -> dict[str, AnyArray]:
        match phase:
            case "build":
                return {}
            case "compile":
                return named(result(points.rows))
            case _:
                return named(result)

    phases = {
        "build": Phase(build),
        "compile": Phase(compile_fresh, setup=forget),
        "step": Phase(step, units=len(points.rows)),
    }
    return Work(
        phases={name: phases[name] for name in evaluator.phases},
        feed=points.feed,
        arrays=read,
        precision=evaluator.precision,
        notes=list(evaluator.notes),
    )


def _builder(evaluator: Evaluator[Built], case: Case) -> tuple[Callable[[], Built], int]:
    """Return what builds the case's graph or formula, and how many operations that has."""
    if case.op in ("graph", "call"):
        graph = graphs.of_case(case)
        return partial(evaluator.build, graph), len(graph.ops)
    if case.op not in formulas.DERIVATIVES or evaluator.write is None:
        raise Unsupported(f"no {case.op} in this contender")
    formula, n_variables = formulas.of_case(case), formulas.n_variables(case)
    return partial(evaluator.write, formula, n_variables), formula.ops * n_variables


def descent(
    prepare: Callable[[OpList], Callable[[Floats, int, float], AnyArray]],
    case: Case,
    arrays: Mapping[str, AnyArray],
) -> Work:
    """Make gradient steps ready, each from where the last one led, from the first of the points."""
    steps, rate = case.attrs["steps"], case.attrs["rate"]
    points = Points(case, arrays, 1)
    prepared: list[Callable[[Floats, int, float], AnyArray]] = []

    def step() -> AnyArray:
        if not prepared:
            prepared.append(prepare(graphs.of_case(case)))
        return prepared[0](points.rows[0], steps, rate)

    return Work(
        phases={"step": Phase(step, units=steps)},
        feed=points.feed,
        arrays=lambda _, reached: {"output0": np.array(reached)},
    )


def churn(
    hand_over: Callable[[OpList], Given],
    run: Callable[[Given, Floats], Result],
    case: Case,
    arrays: Mapping[str, AnyArray],
    precision: str | None = None,
) -> Work:
    """Make a call ready that meets a new graph each time, from the case's seed on after a feed.

    Making the list of operations and handing it over is outside the clock. With the attribute
    `graphs` a call goes through so many of them, for the memory they leave behind; then all but the
    first are made inside the clock. A result is that of the call's last graph. What is right for
    later calls nobody knows: when their result is read, the first call is made again in its place.
    """
    count = case.attrs.get("graphs", 1)
    points = Points(case, arrays, case.inputs[0].shape[0], precision)
    waiting: list[Given] = []
    made = [0]

    def make() -> Given:
        made[0] += 1
        return hand_over(graphs.of_case(case, offset=made[0] - 1))

    def setup() -> None:
        waiting[:] = [make()]

    def step() -> tuple[int, Result]:
        for _ in range(count):
            result = run(waiting.pop() if waiting else make(), points.rows)
        return made[0], result

    def start_again() -> None:
        waiting.clear()
        made[0] = 0

    def feed(arrays: Mapping[str, AnyArray], cotangents: Sequence[AnyArray]) -> None:
        points.feed(arrays, cotangents)
        start_again()

    def read(phase: str, outcome: tuple[int, Result]) -> dict[str, AnyArray]:
        del phase
        seen, result = outcome
        if seen > count:
            start_again()
            _, result = step()
        return named(result)

    return Work(
        phases={"step": Phase(step, units=count, setup=setup)},
        feed=feed,
        arrays=read,
        precision=precision,
    )


class Points:
    """The first rows of a case's points, in memory that stays."""

    def __init__(
        self, case: Case, arrays: Mapping[str, AnyArray], rows: int, dtype: str | None = None
    ) -> None:
        self._name = case.inputs[0].name
        given = arrays[self._name][:rows]
        self.rows: AnyArray = np.array(given, dtype=dtype or case.dtype, order="C")

    def feed(self, arrays: Mapping[str, AnyArray], cotangents: Sequence[AnyArray]) -> None:
        """Replace the points."""
        del cotangents
        self.rows[:] = arrays[self._name][: len(self.rows)]


def one_by_one(evaluate: Callable[[Floats], tuple[Any, ...]], entries: int | None = None) -> Run:
    """Evaluate row by row what takes one point; with `entries`, so many of a Hessian alone."""

    def run(points: Floats) -> Result:
        results = room(points, entries)
        for row, point in enumerate(points):
            for result, found in zip(results, evaluate(point), strict=True):
                result[row] = found
        return results

    return run


def room(points: AnyArray, entries: int | None = None) -> Result:
    """Return memory for targets and gradients at all points, or for entries of Hessians."""
    if entries is not None:
        return (np.empty((len(points), entries), points.dtype),)
    return np.empty(len(points), points.dtype), np.empty(points.shape, points.dtype)


def eager(
    evaluate: Callable[[OpList, Floats], tuple[Any, Any]], ops_per_call: int
) -> Evaluator[OpList]:
    """Describe a contender that goes through the operations anew at each point."""
    return Evaluator(
        build=lambda graph: graph,
        compile=lambda graph, _: one_by_one(lambda point: evaluate(graph, point)),
        phases=("step",),
        ops_per_call=ops_per_call,
    )


def keeps_denormals(
    run: Callable[[OpList, AnyArray], Result], precision: str | None = None
) -> bool:
    """Tell whether a product that is a denormal number survives; flushing it would be faster."""
    dtype = np.dtype(precision or "float64")
    graph = replace(graphs.product(), target="last")
    targets, *_ = run(graph, np.array([[np.finfo(dtype).tiny, 0.25]], dtype))
    return bool(targets[0])


def named(result: Result) -> dict[str, AnyArray]:
    """Name targets and gradients, or entries, as `Work.arrays` returns them."""
    return dict(zip(("output0", "grad:x"), map(np.array, result), strict=False))
