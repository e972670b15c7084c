"""What bars ask of the results of a run: times, and how many times faster."""

from __future__ import annotations

from collections.abc import Callable

from tapegrad.bench import statistics
from tapegrad.bench.results import Block, CellKey, Results
from tapegrad.worker.case import Case

Found = Callable[[Results], float | None]


def time_of(results: Results, case: Case, framework: str, *phases: str) -> float | None:
    """Return the seconds of some phases together; None where one was not measured."""
    parts = [_blocks(results, case, framework, phase) for phase in phases]
    return sum(statistics.estimate(part).time for part in parts) if all(parts) else None


def faster(case: Case, ours: str, theirs: str, phase: str = "step") -> Found:
    """How many times faster ours is than theirs, compared block by block."""

    def found(results: Results) -> float | None:
        sides = [_blocks(results, case, name, phase) for name in (theirs, ours)]
        return statistics.ratio(*sides).value if all(sides) else None

    return found


def quotient(over: float | None, under: float | None, scale: float = 1.0) -> float | None:
    """Divide what was measured; None where one side was not."""
    return None if over is None or under is None else scale * over / under


def _blocks(results: Results, case: Case, framework: str, phase: str) -> list[Block]:
    """Return the blocks of a cell, none where it has no times."""
    key = CellKey(case.key, framework, phase)
    cell = results.cell(key)
    return results.blocks_of(key) if cell is not None and cell.timed else []
