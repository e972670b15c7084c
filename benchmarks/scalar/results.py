"""What a run has measured: series of samples, and ratios between them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Series:
    """Samples of one contender on one graph, in seconds per evaluation."""

    study: str
    family: str
    n_ops: int
    contender: str
    evaluations: int
    instructions: int
    verdict: str = "ok"
    seconds: list[float] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether the contender agreed with the oracle."""
        return self.verdict.startswith("ok")

    @property
    def median(self) -> float:
        """Median seconds per evaluation."""
        return statistics.median(self.seconds)


@dataclass(frozen=True)
class Measure:
    """A measured number: median and range over the rounds, and its value with the least noise."""

    median: float
    low: float
    high: float
    best: float


@dataclass
class Results:
    """All series of a run, and single numbers that are no series."""

    machine: dict[str, str] = field(default_factory=dict)
    series: list[Series] = field(default_factory=list)
    numbers: dict[str, float] = field(default_factory=dict)

    def find(self, study: str, family: str, n_ops: int, contender: str) -> Series | None:
        """Look up the series with samples under these names."""
        wanted = (study, family, n_ops, contender)
        for series in self.series:
            if (series.study, series.family, series.n_ops, series.contender) == wanted:
                return series if series.ok and series.seconds else None
        return None

    def as_json(self) -> dict[str, Any]:
        """Everything, ready for `json.dump`."""
        return asdict(self)


def ratio(over: Series | None, under: Series | None, scale: float = 1.0) -> Measure | None:
    """`over / under * scale`, round by round: what disturbs a round disturbs both."""
    if over is None or under is None:
        return None
    pairs = zip(over.seconds, under.seconds, strict=False)
    return spread([scale * a / b for a, b in pairs], scale * min(over.seconds) / min(under.seconds))


def spread(samples: Sequence[float], best: float) -> Measure | None:
    """Median of the samples with the range of their middle 80 %."""
    if not samples:
        return None
    ordered = sorted(samples)
    edge = len(ordered) // 10
    return Measure(statistics.median(ordered), ordered[edge], ordered[-1 - edge], best)
