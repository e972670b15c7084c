"""Tables with a row for each case and phase, and columns for each framework."""

from __future__ import annotations

from collections.abc import Iterator

from tapegrad.bench.report.figures import Mean, Row, Section
from tapegrad.bench.report.table import REFERENCE, Column, Entry, Line, Table
from tapegrad.bench.report.tables.losses import losses_first, note_on_losses
from tapegrad.bench.report.text import mean_entry, ratio_entry, time_entry
from tapegrad.bench.results import in_order
from tapegrad.bench.units import size


def times(section: Section) -> Table:
    """Compare times."""
    others = section.contenders[1:]
    columns = [Column("case", group=True), Column("phase", whole=True)]
    for name in section.contenders:
        columns.append(Column(name, number=True, of=name, what="time"))
        if name in others:
            against = f"against {section.reference}"
            columns.append(Column(f"{name} {against}", number=True, of=name, what=against))
    lines = [*_time_lines(section), *_mean_lines(section)]
    return Table(section.title, tuple(columns), tuple(lines), tuple(note_on_losses(section.rows)))


def memory(section: Section) -> Table | None:
    """Compare memory, if it was measured."""
    measured = [row for row in section.rows if any(figure.memory for figure in row.figures)]
    if not measured:
        return None
    columns = [
        Column("case", group=True),
        Column("phase", whole=True),
        Column("needed", number=True),
    ]
    for name in section.contenders:
        columns += [
            Column(f"{name} {kind}", number=True, of=name, what=kind)
            for kind in ("allocator", "resident")
        ]
    lines = (Line(tuple(_memory_entries(row)), row.command) for row in measured)
    return Table(
        "Memory" if section.kind == "operators" else f"Memory: {section.title}",
        tuple(columns),
        tuple(lines),
        (
            "needed: inputs, cotangents, results and gradients by arithmetic. allocator: the "
            "framework's own peak during one call. resident: the process's peak above its "
            "idle size. n/a: the framework does not tell, or it was not measured.",
        ),
    )


def _time_lines(section: Section) -> Iterator[Line]:
    rows = losses_first(section.rows)
    for row in rows:
        entries = [Entry(row.name), Entry(row.phase)]
        for figure in row.figures:
            entries.append(time_entry(figure))
            if figure.framework != section.reference:
                entries.append(ratio_entry(figure, section.reference))
        yield Line(tuple(entries), row.command, ends=row is rows[-1])


def _mean_lines(section: Section) -> Iterator[Line]:
    """Yield the means, where there is more than one case to average."""
    means = {(mean.phase, mean.framework): mean for mean in section.means}
    phases = list(in_order(phase for phase, _ in means))
    if all(mean.cases < 2 for mean in section.means):
        return
    for phase in phases:
        entries = [Entry("geometric mean"), Entry(phase), REFERENCE]
        for name in section.contenders[1:]:
            entries += [Entry("of ratios", "muted"), _mean_or_none(means.get((phase, name)))]
        yield Line(tuple(entries))


def _mean_or_none(mean: Mean | None) -> Entry:
    return mean_entry(mean) if mean else Entry("no ratio", "muted")


def _memory_entries(row: Row) -> Iterator[Entry]:
    found = [figure.memory for figure in row.figures]
    yield Entry(row.name)
    yield Entry(row.phase)
    yield Entry(size(next(each.needed for each in found if each)), "time")
    for figure in row.figures:
        for count in (
            (figure.memory.allocator, figure.memory.resident) if figure.memory else (None, None)
        ):
            if figure.time is None and figure.memory is None:
                yield Entry(figure.verdict, "word")
            else:
                yield Entry(size(count), "time" if count is not None else "muted")
