"""Tables of CNN models and layers, in the shape of a published comparison of PyTorch with Flux.

One for each device, with a row for each framework, and the winner of each column in bold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tapegrad.bench.report.command import command_for
from tapegrad.bench.report.figures import NOT_MEASURED, Figure, Report, Row, Section
from tapegrad.bench.report.published import Quoted, notes_for
from tapegrad.bench.report.table import Column, Entry, Line, Table
from tapegrad.bench.report.tables.losses import losses_first, note_on_losses
from tapegrad.bench.report.text import NO_RATIO, mean_entry, ratio_entry, time_entry
from tapegrad.bench.results import Memory, in_order
from tapegrad.bench.units import size

FIRST = {"models": "Model", "layers": "Layer"}
WHAT = {
    "models": "Batches of 8 images (4 for ResNet-101 and ResNet-152) of 3 x 224 x 224, unless a "
    "name says otherwise.",
    "layers": "A batch of 1, images of 3 x 224 x 224 and 64 filters, unless a name says otherwise.",
}
#: The phase that these tables call the total.
STEP = "step"
TOTAL = "total"
STEP_NOTE = "Total: forward and backward in one go, measured as a whole."
WINNERS = (
    "Bold: faster than each of the others measured here, the interval of the ratio leaves out 1 "
    "and it is more than 3 % away. No bold: undecided, or too close to matter."
)
NOTHING = Entry("none", "muted")
#: In the row of means, where columns of times hold ratios too.
AS_TOTAL = Entry("as in Total", "muted")
NOT_PUBLISHED = Entry("not published", "muted")


def table(report: Report, section: Section) -> Table:
    """Compare the frameworks on all models, or all layers."""
    phases = list(_phases(section))
    rows = {(row.name, _column(row.phase)): row for row in section.rows}
    names = list(dict.fromkeys(row.name for row in losses_first(section.rows)))
    measured = any(figure.memory for row in section.rows for figure in row.figures)
    lines = [
        line
        for name in names
        for line in _group(report, section, {p: rows.get((name, p)) for p in phases}, measured)
    ]
    against = f"Total against {section.reference}"
    columns = [
        Column(FIRST[section.kind], group=True, whole=True),
        Column("Framework"),
        *(Column(phase.capitalize(), number=True) for phase in phases),
        *([Column(against, number=True)] if TOTAL in phases else []),
        *([Column("Allocator", number=True), Column("Resident", number=True)] if measured else []),
    ]
    lines += _overall(section, phases, measured)
    title = f"{section.title} on {report.device}"
    return Table(title, tuple(columns), tuple(lines), tuple(_notes(report, section)))


def _phases(section: Section) -> Iterator[str]:
    """Yield the columns."""
    return (_column(phase) for phase in in_order(row.phase for row in section.rows))


def _column(phase: str) -> str:
    return TOTAL if phase == STEP else phase


def _group(
    report: Report, section: Section, rows: dict[str, Row | None], measured: bool
) -> list[Line]:
    """Return the lines of one model: ours, then what is published."""
    first = next(row for row in rows.values() if row is not None)
    lines = [_line(report, section, name, first, rows, measured) for name in section.contenders]
    quoted = [each for each in section.published if each.name == first.name]
    for framework in dict.fromkeys(each.framework for each in quoted):
        theirs = [each for each in quoted if each.framework == framework]
        lines.append(_quoted_line(first.name, list(rows), theirs, measured))
    return [*lines[:-1], replace(lines[-1], ends=True)]


def _line(  # noqa: PLR0917  all that a line is about
    report: Report,
    section: Section,
    framework: str,
    first: Row,
    rows: dict[str, Row | None],
    measured: bool,
) -> Line:
    figures = {phase: _of(row, framework) for phase, row in rows.items()}
    version = report.version(framework)
    entries = [Entry(first.name), Entry(f"{framework} {version}".strip())]
    for phase, row in rows.items():
        wins = row is not None and row.winner == framework
        entries.append(replace(time_entry(figures[phase]), bold=wins))
    if TOTAL in rows:
        entries.append(ratio_entry(figures[TOTAL], section.reference))
    if measured:
        entries += _memory([figure.memory for figure in figures.values()])
    labels = (row.label for row in rows.values() if row is not None)
    return Line(tuple(entries), command_for(report.run, labels))


def _of(row: Row | None, framework: str) -> Figure:
    if row is None:
        return Figure(framework, NOT_MEASURED)
    return next(figure for figure in row.figures if figure.framework == framework)


def _memory(found: list[Memory | None]) -> Iterator[Entry]:
    """Yield the most that any phase took."""
    known = [each for each in found if each is not None]
    for counts in ([each.allocator for each in known], [each.resident for each in known]):
        most = max((count for count in counts if count is not None), default=None)
        yield Entry(size(most), "time" if most is not None else "muted")


def _quoted_line(name: str, phases: list[str], quoted: list[Quoted], measured: bool) -> Line:
    times = {each.phase: each.printed for each in quoted}
    entries = [Entry(name), Entry(f"{quoted[0].framework}, {quoted[0].source}", "muted")]
    entries += [
        Entry(times[phase], "muted") if phase in times else NOT_PUBLISHED for phase in phases
    ]
    if TOTAL in phases:
        entries.append(Entry(NO_RATIO, "muted"))
    return Line((*entries, *[NOT_PUBLISHED] * (2 * measured)))


def _overall(section: Section, phases: list[str], measured: bool) -> Iterator[Line]:
    """Yield the geometric means of the ratios, where there are several to average."""
    means = {(mean.framework, _column(mean.phase)): mean for mean in section.means}
    if all(mean.cases < 2 for mean in means.values()):
        return
    for name in section.contenders[1:]:
        found = [means.get((name, phase)) for phase in phases]
        entries = [Entry("overall"), Entry(f"{name} against {section.reference}")]
        entries += [mean_entry(mean) if mean else NOTHING for mean in found]
        if TOTAL in phases:
            entries.append(AS_TOTAL)
        yield Line((*entries, *[NOTHING] * (2 * measured)))


def _notes(report: Report, section: Section) -> Iterator[str]:
    yield WHAT[section.kind]
    if any(row.phase == STEP for row in section.rows):
        yield STEP_NOTE
    if len(section.contenders) > 1:
        yield WINNERS
    yield from note_on_losses(section.rows)
    yield from notes_for(section.kind, section.title, report.device)
