"""What frameworks have and no case measures, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple
from itertools import groupby
from typing import Any

from tapegrad.bench.coverage import Coverage, categories
from tapegrad.bench.report.table import Column, Entry, Line, Page, Table
from tapegrad.bench.suites import operators

#: Cases that a line names; of more it gives the number.
CASES = 4


def plain(suite: str, found: Sequence[Coverage]) -> dict[str, Any]:
    """Return everything as plain values for JSON."""
    own = [asdict(each) for each in categories()] if suite == operators.SUITE.name else []
    return {
        "suite": suite,
        "categories": own,
        "frameworks": [each.as_dict() for each in found],
    }


def page_of(suite: str, found: Sequence[Coverage]) -> Page:
    """Arrange counts, then what is measured, then what is not."""
    told = [each for each in found if not each.reason]
    tables = [_counts(told)] if told else []
    if suite == operators.SUITE.name:
        tables.append(_categories())
    tables += [_measured(each) for each in told]
    return Page(
        title=f"What the suite {suite} measures of each framework's own operators",
        facts=tuple((each.framework, each.version) for each in told),
        tables=tuple(tables),
        remarks=tuple(remark for each in found for remark in _remarks(each)),
    )


def _counts(found: Sequence[Coverage]) -> Table:
    columns = (
        Column("framework", group=True, whole=True),
        Column("operators", whole=True),
        Column("registered", number=True),
        Column("measured", number=True),
        Column("share", number=True),
    )
    lines = [
        _count(each.framework, group, registered, measured)
        for each in found
        for group, (registered, measured) in each.counts.items()
    ]
    return Table("Registered and measured", columns, tuple(lines))


def _count(framework: str, group: str, registered: int, measured: int) -> Line:
    share = f"{measured / registered:.0%}" if registered else "none"
    texts = (framework, group, str(registered), str(measured), share)
    return Line(tuple(map(Entry, texts)), ends=group == "all")


def _categories() -> Table:
    columns = (
        Column("category", whole=True),
        Column("operators", number=True),
        Column("variants", number=True),
        Column("operators with several", number=True),
    )
    lines = (Line(tuple(Entry(str(value)) for value in astuple(each))) for each in categories())
    note = "Variants of an operator differ in attributes or in how inputs broadcast."
    return Table("The suite by category", columns, tuple(lines), (note,))


def _measured(found: Coverage) -> Table:
    lines = [
        Line((Entry(group), Entry(name), Entry(_few(found.reached[name]))))
        for group in found.registered
        for name in found.measured(group)
    ]
    columns = (Column("group", group=True), Column("operator", whole=True), Column("reached by"))
    return Table(f"{found.framework}: measured", columns, tuple(lines))


def _remarks(found: Coverage) -> Iterator[tuple[str, tuple[str, ...]]]:
    if found.reason:
        yield f"{found.framework}: nothing is known", (found.reason,)
    for group in found.registered:
        names = found.unmeasured(group)
        if names:
            letters = groupby(sorted(names, key=str.lower), lambda name: name[0].upper())
            lines = tuple(", ".join(each) for _, each in letters)
            yield f"{found.framework}: no case measures ({group}, {len(names)})", lines
    if found.untraced:
        lines = tuple(f"{label}: {why}" for label, why in found.untraced.items())
        yield f"{found.framework}: cases that could not be traced", lines


def _few(names: Sequence[str]) -> str:
    more = len(names) - CASES
    return ", ".join(names[:CASES]) + (f" and {more} more" if more > 0 else "")
