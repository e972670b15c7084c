"""`tapegrad bench list`: suites, and the cases of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tapegrad.bench.report.table import Table
    from tapegrad.bench.suite import Suite
    from tapegrad.worker.case import Case


def show(
    suite: Annotated[
        str | None,
        typer.Argument(metavar="[SUITE]", help="A suite, or a file that defines one."),
    ] = None,
) -> None:
    """List the suites, or the cases of one."""
    from tapegrad.bench import suites
    from tapegrad.bench.report.term import print_table

    if suite is None:
        table = _suites([suites.find(name) for name in suites.names()])
    else:
        table = _cases(suites.find(suite))
    print_table(table)


def _suites(suites: list[Suite]) -> Table:
    from tapegrad.bench.report.table import Column, Entry, Line, Table

    columns = (
        Column("suite", whole=True),
        Column("cases", number=True),
        Column("frameworks"),
        Column("what"),
    )
    lines = (
        Line(
            (
                Entry(suite.name),
                Entry(f"{len(suite.cases):,}"),
                Entry(", ".join(suite.frameworks)),
                Entry(suite.summary),
            )
        )
        for suite in suites
    )
    return Table("Suites", columns, tuple(lines))


def _cases(suite: Suite) -> Table:
    from tapegrad.bench.report.table import Column, Entry, Line, Table

    titles = ("case", "inputs", "level", "size", "type", "phases")
    lines = (
        Line(
            (
                Entry(case.label),
                Entry(_names(case)),
                Entry(case.level),
                Entry(case.size),
                Entry(case.dtype),
                Entry(", ".join(case.phases)),
            )
        )
        for case in suite.cases
    )
    return Table(suite.name, tuple(map(Column, titles)), tuple(lines))


def _names(case: Case) -> str:
    """Of its inputs; a model has hundreds."""
    names = [array.name for array in case.inputs]
    shown = names if len(names) <= 8 else [*names[:3], f"… and {len(names) - 3} more"]
    return ", ".join(shown)
