"""A suite: a named list of cases, and what is worth asking of their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tapegrad.worker.case import Case

if TYPE_CHECKING:
    from tapegrad.bench.results import Results


@dataclass(frozen=True)
class Bar:
    """A figure that a run must reach; `found` returns None where it was not measured."""

    title: str
    bound: float
    found: Callable[[Results], float | None]
    unit: str = "×"
    at_most: bool = False

    def met(self, value: float) -> bool:
        """Tell whether a figure reaches the bar."""
        return value <= self.bound if self.at_most else value >= self.bound


@dataclass(frozen=True)
class Suite:
    """Cases that belong together. A suite file defines one as `SUITE`."""

    name: str
    summary: str
    cases: tuple[Case, ...]
    #: Contenders if the user names none; the first is what the others are compared with.
    frameworks: tuple[str, ...] = ("torch", "jax", "numpy")
    #: Who takes part at a level (`graph`, `operator`, …), where not everybody does.
    at_level: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: What the command line calls the suite that these cases were picked from, if any.
    of: str = ""
    bars: tuple[Bar, ...] = field(default=())
