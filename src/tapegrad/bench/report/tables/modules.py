"""Tables of modules, in the shape of tensorgrad's comparison with PyTorch.

One for each module and pass, with “is slower by”: the ratio of times, so less than 1 is faster.
"""

from __future__ import annotations

from collections.abc import Iterator

from tapegrad.bench.report.figures import Mean, Row, Section
from tapegrad.bench.report.published import Quoted, notes_for
from tapegrad.bench.report.table import Column, Entry, Line, Table
from tapegrad.bench.report.tables.losses import losses_first, note_on_losses
from tapegrad.bench.report.text import slower_by_entry, slower_by_mean, time_entry
from tapegrad.bench.results import in_order

SLOWER_BY = "is slower by"
OVERALL = "overall"
NOT_PUBLISHED = Entry("not published", "muted")


def tables(section: Section, device: str) -> Iterator[Table]:
    """Yield a table for each pass."""
    for phase in in_order(row.phase for row in section.rows):
        yield _table(section, device, phase)


def _table(section: Section, device: str, phase: str) -> Table:
    quoted = [each for each in section.published if each.phase == phase]
    rows = losses_first(row for row in section.rows if row.phase == phase)
    lines = [_line(section, row, quoted) for row in rows]
    means = {mean.framework: mean for mean in section.means if mean.phase == phase}
    if any(mean.cases > 1 for mean in means.values()):
        lines[-1] = Line(lines[-1].entries, lines[-1].command, ends=True)
        lines.append(_overall(section, means, quoted))
    return Table(
        f"{section.title} on {device}, {phase}",
        (Column("inputs"), *_columns(section), *_quoted_columns(quoted)),
        tuple(lines),
        (
            *note_on_losses(rows),
            *(notes_for(section.kind, section.title, device, phase) if quoted else ()),
        ),
    )


def _columns(section: Section) -> Iterator[Column]:
    for name in section.contenders:
        yield Column(name, number=True, of=name, what="time")
        if name != section.reference:
            yield Column(f"{name} {SLOWER_BY}", number=True, of=name, what=SLOWER_BY)


def _quoted_columns(quoted: list[Quoted]) -> Iterator[Column]:
    for name in dict.fromkeys(each.framework for each in quoted):
        title = f"{name}, published"
        yield Column(title, number=True, of=title, what="time")
        if _is_compared(quoted, name):
            yield Column(f"{name} {SLOWER_BY}, published", number=True, of=title, what=SLOWER_BY)


def _is_compared(quoted: list[Quoted], framework: str) -> bool:
    return any(each.slower_by for each in quoted if each.framework == framework)


def _line(section: Section, row: Row, quoted: list[Quoted]) -> Line:
    entries = [Entry(row.name)]
    for figure in row.figures:
        entries.append(time_entry(figure))
        if figure.framework != section.reference:
            entries.append(slower_by_entry(figure))
    return Line((*entries, *_quoted_entries(quoted, row.name)), row.command)


def _overall(section: Section, means: dict[str, Mean], quoted: list[Quoted]) -> Line:
    entries = [Entry(OVERALL), Entry("geometric mean", "muted")]
    for name in section.contenders[1:]:
        entries += [Entry("of ratios", "muted"), slower_by_mean(means.get(name))]
    return Line((*entries, *_quoted_entries(quoted, OVERALL)))


def _quoted_entries(quoted: list[Quoted], name: str) -> Iterator[Entry]:
    for framework in dict.fromkeys(each.framework for each in quoted):
        found = [each for each in quoted if (each.framework, each.name) == (framework, name)]
        mark = " (median)" if name == OVERALL else ""
        yield Entry(f"{found[0].printed}{mark}") if found else NOT_PUBLISHED
        if _is_compared(quoted, framework):
            yield Entry(f"{found[0].slower_by}{mark}") if found else NOT_PUBLISHED
