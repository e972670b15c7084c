"""Suite `engine`: tapegrad against the interpreters in C, and the bars it has to reach."""

from __future__ import annotations

from collections.abc import Iterable

from tapegrad.bench.bars import Found, faster, quotient, time_of
from tapegrad.bench.results import Results
from tapegrad.bench.suite import Bar, Suite
from tapegrad.bench.suites.graphs import call, churn, descent, graph
from tapegrad.worker.case import Case
from tapegrad.worker.graphs import FAMILIES

C, LANES = "c", "c-lanes"
SINGLE, BATCH, BATCH_32 = "tapegrad", "tapegrad-batch", "tapegrad-batch-float32"
LOOP = "tapegrad-loop"
OPS = 10_000
SMALLEST, LARGEST = 1_000, 100_000
GROWING = ("chain", "random", "cheap")
#: Evaluations of one graph in the article.
EVALUATIONS = 10_000
#: Graphs that a program meets before and after which its memory is compared. Of those of 1,000
#: operations some just fit into arrays that grow by doubling, and a larger one among many takes a
#: megabyte more.
FEW, MANY = 10, 100

GRAPHS = {family: graph(family, OPS) for family in FAMILIES if family != "product"}
SIZES = {(family, ops): graph(family, ops) for family in GROWING for ops in (SMALLEST, LARGEST)}
DESCENTS = {family: descent(family, OPS) for family in ("chain", "random")}
CALL = call()
CHURN = churn(OPS, rows=1_000)
FEW_GRAPHS, MANY_GRAPHS = (churn(3_000, rows=8, graphs=graphs) for graphs in (FEW, MANY))

#: Times faster than one point after the other in C, by contender and family.
AGAINST_C = {
    BATCH: {"chain": 6.0, "random": 6.0, "wide": 6.0, "cheap": 20.0},
    BATCH_32: {"chain": 12.0, "random": 10.0, "cheap": 30.0},
    SINGLE: {"chain": 1.1, "random": 2.0, "wide": 3.5, "cheap": 6.0},
}


def _growth(family: str, *phases: str) -> Found:
    """Time per operation at the largest size over that at the smallest."""
    small, large = SIZES[family, SMALLEST], SIZES[family, LARGEST]

    def found(results: Results) -> float | None:
        over, under = (time_of(results, case, BATCH, *phases) for case in (large, small))
        return quotient(over, under, SMALLEST / LARGEST)

    return found


def _preparation(results: Results) -> float | None:
    """Relate recording and compiling, in percent, to all evaluations in C."""
    case = GRAPHS["chain"]
    ours = time_of(results, case, BATCH, "build", "compile")
    return quotient(ours, time_of(results, case, C, "step"), 100 / EVALUATIONS)


def _call(results: Results) -> float | None:
    return quotient(time_of(results, CALL, SINGLE, "step"), 1e-6)


def _memory(results: Results) -> float | None:
    """Relate the peak after many graphs to that after few; a run measures it with --memory."""
    peaks = {each.case: each.resident for each in results.memory if each.framework == BATCH}
    return quotient(peaks.get(MANY_GRAPHS.key), peaks.get(FEW_GRAPHS.key))


def _against(ours: str, theirs: str, cases: dict[str, Case], bounds: dict[str, float]) -> list[Bar]:
    return [
        Bar(f"{ours} / {theirs}, {cases[family].op} {family}", bound, found)
        for family, bound in bounds.items()
        for found in [faster(cases[family], ours, theirs)]
    ]


def _bars() -> Iterable[Bar]:
    for ours, bounds in AGAINST_C.items():
        yield from _against(ours, C, GRAPHS, bounds)
    yield from _against(BATCH, LANES, GRAPHS, {"chain": 1.1, "random": 1.1})
    for name in (BATCH, BATCH_32):
        yield from _against(f"{name}@2", name, GRAPHS, dict.fromkeys(GRAPHS, 1.7))
    yield from _against(LOOP, C, DESCENTS, {"chain": 1.1, "random": 2.0})
    title = f"build + compile, chain, of {EVALUATIONS:,} evaluations in C"
    yield Bar(title, 1.5, _preparation, "%", at_most=True)
    for family, bound in (("chain", 1.5), ("random", 1.5), ("cheap", 2.5)):
        title = f"{BATCH}, per operation at 100k / 1k, {family}"
        yield Bar(title, bound, _growth(family, "step"), at_most=True)
        title = f"build + compile, per operation at 100k / 1k, {family}"
        yield Bar(title, 2.0, _growth(family, "build", "compile"), at_most=True)
    yield Bar("program(x, out=…) on two operations", 1.2, _call, "µs", at_most=True)
    yield Bar("new random graphs from the start, / c", 3.5, faster(CHURN, BATCH, C))
    yield Bar(f"peak memory, {MANY} graphs / {FEW}", 1.05, _memory, at_most=True)


SUITE = Suite(
    name="engine",
    summary="tapegrad against C on four kinds of scalar graphs, with the bars it has to reach",
    cases=(
        CALL,
        *GRAPHS.values(),
        *SIZES.values(),
        *DESCENTS.values(),
        CHURN,
        FEW_GRAPHS,
        MANY_GRAPHS,
    ),
    frameworks=(
        C,
        "c-pointer",
        LANES,
        SINGLE,
        BATCH,
        BATCH_32,
        f"{BATCH}@2",
        f"{BATCH_32}@2",
        LOOP,
    ),
    bars=tuple(_bars()),
)
