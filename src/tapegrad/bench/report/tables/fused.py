"""The table of fused operators: what a framework's own call takes, and what its parts take."""

from __future__ import annotations

from tapegrad.bench.report.figures import NOT_MEASURED, FusedRow
from tapegrad.bench.report.table import Column, Entry, Line, Table
from tapegrad.bench.report.text import NO_RATIO, ratio_text, time_entry

NOTES = (
    "parts: the sum of what the parts take when each is called on its own, with its result "
    "written to memory and read again; computed from their own times.",
    "how: what the framework really does in that phase and type. composed: it has no kernel for "
    "all of it (a call such as cross_entropy runs those of the parts), so the parts are called one "
    "after the other. compiled: what is fused is the compiler's choice. "
    "The parts were measured at other moments, so the interval of the ratio "
    "also covers what the machine did meanwhile, as the control kernels show it.",
)
#: Said where a part was not among the cases.
LEFT_OUT = (
    "not measured: --filter chose the fused operator without its parts; name them too, as in "
    "add_relu,add,relu, or let -v show the whole command of a row."
)


def table(rows: list[FusedRow]) -> Table:
    """Compare fused calls with their parts, framework by framework."""
    columns = (
        Column("operator", group=True),
        Column("phase", group=True, whole=True),
        Column("framework", whole=True),
        Column("fused", number=True),
        Column("parts", number=True),
        Column("fused against parts", number=True),
        Column("how"),
    )
    ends = [
        index + 1 == len(rows)
        or (row.case, row.phase) != (rows[index + 1].case, rows[index + 1].phase)
        for index, row in enumerate(rows)
    ]
    lines = (_line(row, last) for row, last in zip(rows, ends, strict=True))
    left_out = any(row.parts.verdict == NOT_MEASURED for row in rows)
    notes = (*NOTES, LEFT_OUT) if left_out else NOTES
    return Table("Fused operators against their parts", columns, tuple(lines), notes)


def _line(row: FusedRow, last: bool) -> Line:
    ratio = row.parts.ratio
    compared = Entry(ratio_text(ratio), ratio.verdict) if ratio else Entry(NO_RATIO, "muted")
    entries = (
        Entry(row.label),
        Entry(row.phase),
        Entry(row.framework),
        time_entry(row.fused),
        time_entry(row.parts),
        compared,
        Entry(row.how),
    )
    return Line(entries, row.command, ends=last)
