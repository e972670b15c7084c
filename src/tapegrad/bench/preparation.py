"""Whether scalar graphs take as long to build and compile as is told.

These phases have no results, so their clock alone says what they did. But somebody must do it: a
graph that nobody has seen yields its first results after building, compiling and one step.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tapegrad.bench import units
from tapegrad.bench.process import Worker
from tapegrad.bench.watch import undisturbed
from tapegrad.worker import graphs
from tapegrad.worker.case import Case

#: Phases whose results nobody sees: they are as right as what `step` does with them.
PREPARATION = ("build", "compile")
#: First results may take this multiple of what is told, which may be of warmer caches; plus a
#: multiple of making the list of operations, and a slack.
FACTOR = 3.0
MAKING_FACTOR = 3.0
SLACK = 0.1
#: Graphs that are tried, each larger by some operations and from another seed.
ATTEMPTS = 3
MORE_OPERATIONS = 4
OTHER_SEED = 1_000


def has_others(case: Case) -> bool:
    """Tell whether there are other graphs like that of a case."""
    return case.level == "graph" and case.op == "graph"


def doubt(
    worker: Worker, case: Case, told: float, first_results: Callable[[Case], object]
) -> str | None:
    """Say what is wrong if graphs never seen before take much longer than is told."""
    for attempt in range(1, ATTEMPTS + 1):
        other = _another(case, attempt)
        start = time.perf_counter()
        graphs.of_case(other)
        making = time.perf_counter() - start
        found, _ = undisturbed(worker, partial(first_results, other))
        if found <= FACTOR * told + MAKING_FACTOR * making + SLACK:
            return None
    return (
        f"a graph never seen before has its first results after {units.seconds(found)}, and "
        f"build, compile and step are told as {units.seconds(told)} together"
    )


def _another(case: Case, number: int) -> Case:
    changes = {
        "ops": case.attrs["ops"] + MORE_OPERATIONS * number,
        "seed": case.attrs.get("seed", 0) + OTHER_SEED * number,
    }
    return replace(case, attrs={**case.attrs, **changes})
