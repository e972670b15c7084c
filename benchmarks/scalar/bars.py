"""The bars the engine has to reach, each beside the number it is compared with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.scalar.baseline import LANES, SCALAR, STEPS
from benchmarks.scalar.results import Measure, Results, ratio, spread
from benchmarks.scalar.studies import (
    BATCH_ROWS,
    CALL,
    CHURN,
    EVALUATION,
    N_OPS,
    SCALING,
    SCALING_SIZES,
)

BATCH_64, BATCH_32 = "batch float64", "batch float32"
#: Times faster than scalar C, by contender and family.
AGAINST_SCALAR = {
    BATCH_64: {"chain": 6.0, "random": 6.0, "wide": 6.0, "cheap": 20.0},
    BATCH_32: {"chain": 12.0, "random": 10.0, "cheap": 30.0},
    "single": {"chain": 1.1, "random": 2.0, "wide": 3.5, "cheap": 6.0},
}
SMALLEST, LARGEST = SCALING_SIZES[0][0], SCALING_SIZES[-1][0]


@dataclass(frozen=True)
class Bar:
    """A bound on a measured number."""

    label: str
    bound: float
    measure: Callable[[Results], Measure | None]
    unit: str = "x"
    at_most: bool = False

    def verdict(self, measured: Measure | None) -> str:
        """Whether the median reaches the bound, or at least the number with the least noise."""
        if measured is None:
            return "not measured"
        if self._reached(measured.median):
            return "reached"
        return "at best only" if self._reached(measured.best) else "MISSED"

    def _reached(self, value: float) -> bool:
        return value <= self.bound if self.at_most else value >= self.bound


def _against(ours: str, theirs: str, family: str) -> Callable[[Results], Measure | None]:
    """How many times faster our contender is than theirs on a family."""

    def measured(results: Results) -> Measure | None:
        return ratio(
            results.find(EVALUATION, family, N_OPS, theirs),
            results.find(EVALUATION, family, N_OPS, ours),
        )

    return measured


def _growth(contender: str, family: str) -> Callable[[Results], Measure | None]:
    """Time per operation at the largest size over that at the smallest."""

    def measured(results: Results) -> Measure | None:
        return ratio(
            results.find(SCALING, family, LARGEST, contender),
            results.find(SCALING, family, SMALLEST, contender),
            SMALLEST / LARGEST,
        )

    return measured


def _preparation(results: Results) -> Measure | None:
    """Relate recording and compiling the chain, in percent, to C's time for 10k evaluations."""
    return ratio(
        results.find(SCALING, "chain", N_OPS, "record + compile"),
        results.find(SCALING, "chain", N_OPS, SCALAR),
        100 / BATCH_ROWS,
    )


def _call(results: Results) -> Measure | None:
    series = results.find(CALL, "two ops", 1, "call")
    if series is None:
        return None
    microseconds = [1e6 * seconds for seconds in series.seconds]
    return spread(microseconds, min(microseconds))


def _churn(results: Results) -> Measure | None:
    return ratio(
        results.find(CHURN, "random", N_OPS, SCALAR),
        results.find(CHURN, "random", N_OPS, "record + compile + batch"),
    )


def _memory(results: Results) -> Measure | None:
    early = results.numbers.get("churn megabytes after a tenth", 0.0)
    late = results.numbers.get("churn megabytes at the end", 0.0)
    done = results.find(CHURN, "random", N_OPS, "record + compile + batch")
    if not early or done is None:
        return None
    return spread([late / early], late / early)


def _family_bars(title: str, ours: str, theirs: str, bounds: dict[str, float]) -> list[Bar]:
    return [
        Bar(f"{title}, {family}", bound, _against(ours, theirs, family))
        for family, bound in bounds.items()
    ]


BARS: list[Bar] = [
    *(
        bar
        for ours, bounds in AGAINST_SCALAR.items()
        for bar in _family_bars(f"{ours} / C scalar", ours, SCALAR, bounds)
    ),
    *_family_bars("batch float64 / C 8 lanes", BATCH_64, LANES, {"chain": 1.1, "random": 1.1}),
    *(
        bar
        for dtype in (BATCH_64, BATCH_32)
        for bar in _family_bars(
            f"{dtype}, 2 threads / 1",
            f"{dtype}, 2 threads",
            dtype,
            {"chain": 1.7, "random": 1.7, "wide": 1.7, "cheap": 1.7},
        )
    ),
    *_family_bars("minimize sgd / C steps", "minimize", STEPS, {"chain": 1.1, "random": 2}),
    Bar("record + compile, chain, of 10k C evaluations", 1.5, _preparation, "%", at_most=True),
    *(
        Bar(f"batch, per op at 100k / 1k, {family}", bound, _growth(BATCH_64, family), at_most=True)
        for family, bound in (("chain", 1.5), ("random", 1.5), ("cheap", 2.5))
    ),
    *(
        Bar(
            f"record + compile, per op at 100k / 1k, {family}",
            2,
            _growth("record + compile", family),
            at_most=True,
        )
        for family in ("chain", "random", "cheap")
    ),
    Bar("program(x, out=...) on two ops", 1.2, _call, "µs", at_most=True),
    Bar("different random graphs, end to end / C scalar", 3.5, _churn),
    Bar("resident memory, end / first tenth of them", 1.05, _memory, at_most=True),
]
