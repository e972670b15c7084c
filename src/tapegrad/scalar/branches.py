"""Frozen branches of programs: which there are, and which rows of a batch would take others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapegrad import _core
from tapegrad.errors import BranchChanged

#: Rows whose conditions are evaluated at once.
PIECE = 4096

#: Rows and branches that a message names.
SHOWN = 5


@dataclass(frozen=True)
class Branch:
    """An `if` on Vars that was frozen while the graph was recorded."""

    condition: str
    """What was asked, as lt(x, 1.0)."""
    taken: bool
    """What it was for the example values, and has to be at every point."""
    line: str
    """File and line of the branch."""

    def __str__(self) -> str:
        return f"{self.line}: {self.condition} is {str(self.taken).lower()}"


def branches(program: _core.Program) -> tuple[Branch, ...]:
    """Return the frozen branches of a program, in the order in which they were met."""
    return tuple(Branch(*each) for each in program.frozen_branches())


def changed(
    program: _core.Program,
    points: Any,
    shared: Mapping[int, float],
    what: str = "batch",
    first: int = 0,
) -> BranchChanged:
    """Make the error for rows of points of which some would take other branches.

    `shared` has the values of inputs that are no columns of the points, by their places; `what` is
    the call that meets them, and `first` the number of the first row.
    """
    whole = np.asarray(points)
    if shared:
        whole = whole.astype(np.float64)  # rows of integers would round the shared values
    for place in sorted(shared):
        whole = np.insert(whole, place, shared[place], axis=1)
    found, met = _differences(program, whole)
    rows = [first + row for row in found]
    named = ", ".join(map(str, rows[:SHOWN])) + (", ..." if len(rows) > SHOWN else "")
    lines = "".join(f"\n  {branch}" for branch in met[:SHOWN])
    error = BranchChanged(
        f"{what}: {len(rows):,} of {len(points):,} rows take another branch than the one that was "
        f"recorded (rows {named}); record the graph again with example values of theirs, or write "
        f"tg.where. Recorded:{lines}"
    )
    error.rows = rows
    error.branches = met
    return error


def changed_at(
    program: _core.Program, points: Any, message: str, starts: Sequence[int] | None = None
) -> BranchChanged:
    """Make the error for one point (n,), or for points (m, n) that a descent reached.

    `starts` tells where each of these came from, if the descent had several starts.
    """
    found, met = _differences(program, np.atleast_2d(points))
    rows = None if starts is None else sorted({starts[lane] for lane in found})
    error = BranchChanged(message if rows is None else f"minimize: from start {rows[0]} {message}")
    error.rows = rows
    error.branches = met
    return error


def _differences(
    program: _core.Program, points: NDArray[Any]
) -> tuple[list[int], tuple[Branch, ...]]:
    """Return the rows that take other branches, and the branches they leave."""
    frozen, guards = branches(program), program.guard_program()
    taken = np.array([branch.taken for branch in frozen])
    rows: list[int] = []
    left = np.zeros(len(taken), dtype=bool)
    for start in range(0, len(points), PIECE):
        other = (guards.batch(points[start : start + PIECE]) != 0) != taken
        rows += (start + np.flatnonzero(other.any(axis=1))).tolist()
        left |= other.any(axis=0)
    return rows, tuple(frozen[place] for place in np.flatnonzero(left))
