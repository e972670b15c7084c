"""How changes from one run to another are shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tapegrad.bench.regressions import Comparison, Series
    from tapegrad.bench.report.table import Entry, Table
    from tapegrad.bench.results import CellKey

#: How a verdict is coloured.
KINDS = {
    "regressed": "missed",
    "broken": "missed",
    "improved": "faster",
    "repaired": "faster",
    "same": "same",
    "undecided": "undecided",
}


def table(series: Iterable[Series], confirmed: Mapping[CellKey, bool] | None = None) -> Table:
    """Return a table of series, the worst first; `confirmed` adds what measuring again said."""
    from tapegrad.bench.report.table import Column, Entry, Line, Table

    titles = ["operator", "case", "framework", "phase", "verdict", "after against before"]
    lines = []
    for each in sorted(series, key=lambda each: list(KINDS).index(each.verdict)):
        names = (each.op, each.label, each.framework, each.phase)
        entries = [*map(Entry, names), Entry(each.verdict, KINDS[each.verdict]), _ratio(each)]
        if confirmed is not None:
            entries.append(_confirmation(confirmed[each.key]))
        lines.append(Line(tuple(entries)))
    if confirmed is not None:
        titles.append("measured again")
    return Table("Changes", tuple(map(Column, titles)), tuple(lines))


def summary(comparison: Comparison) -> str:
    """Count the verdicts."""
    counts = Counter(series.verdict for series in comparison.series)
    told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in KINDS if counts[verdict])
    return (
        f"{', '.join(comparison.before)} → {comparison.after}: {told or 'nothing in common'}. "
        f"Differences within {comparison.margin:.0%} make none; of those called, at most "
        f"{comparison.rate:.0%} are false."
    )


def _ratio(series: Series) -> Entry:
    from tapegrad.bench.report.table import Entry
    from tapegrad.bench.report.text import ratio_text

    if series.ratio is None:
        verdicts = f"{series.before}, then {series.after}"
        return Entry(f"{verdicts}: {series.reason}" if series.reason else verdicts)
    return Entry(ratio_text(series.ratio))


def _confirmation(confirmed: bool) -> Entry:
    from tapegrad.bench.report.table import Entry

    return Entry("the same", "missed") if confirmed else Entry("not confirmed", "muted")
