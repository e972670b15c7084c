"""`tapegrad bench audit`: show that known faults are flagged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from tapegrad.cli import exit_codes
from tapegrad.cli.bench.options import say

if TYPE_CHECKING:
    from tapegrad.bench.audit import Outcome
    from tapegrad.bench.report.table import Line


def audit() -> None:
    """Check that the bench flags known faults.

    Contenders with one fault each, and honest ones, are measured like any framework; ends with 1
    if a fault passes unnoticed or an honest contender is flagged.
    """
    from tapegrad.bench import audit
    from tapegrad.bench.report.table import Column, Table
    from tapegrad.bench.report.term import print_table

    found = audit.audit(
        lambda outcome: say(f"{outcome.name}: {outcome.verdict or outcome.skipped}")
    )
    titles = ("contender", "what it does", "verdict", "flagged by", "reason", "as it must be")
    lines = tuple(_line(outcome) for outcome in found.outcomes)
    print_table(Table("Audit", tuple(map(Column, titles)), lines))
    failed = [outcome.name for outcome in found.outcomes if not outcome.passed]
    if failed:
        say(f"Not as it must be: {', '.join(failed)}.")
    raise typer.Exit(exit_codes.FINE if found.passed else exit_codes.MISSED)


def _line(outcome: Outcome) -> Line:
    from tapegrad.bench.report.table import Entry, Line

    return Line(
        (
            Entry(outcome.name),
            Entry(outcome.does),
            Entry(outcome.verdict or "not tried", "word"),
            Entry(outcome.guard or "no guard", "text" if outcome.guard else "muted"),
            Entry(outcome.reason or outcome.skipped or "none", "muted"),
            Entry(_judged(outcome), "met" if outcome.passed else "missed"),
        )
    )


def _judged(outcome: Outcome) -> str:
    if outcome.skipped:
        return f"skipped: {outcome.skipped}"
    if outcome.passed:
        return "yes"
    return f"no: expected {' or '.join(outcome.expected)}, got {outcome.verdict or 'nothing'}"
