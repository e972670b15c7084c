"""Rows where tapegrad loses come first in every table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tapegrad.bench.report.figures import Row

LOSSES = "Rows where tapegrad loses come first, the greatest loss on top."


def losses_first(rows: Iterable[Row]) -> list[Row]:
    """Return the rows, those where tapegrad loses on top."""
    return sorted(rows, key=lambda row: -(row.lost_by or 0.0))


def note_on_losses(rows: Iterable[Row]) -> Iterator[str]:
    """Say so, where there are any."""
    if any(row.lost_by for row in rows):
        yield LOSSES
