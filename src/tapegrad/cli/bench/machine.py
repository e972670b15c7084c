"""`tapegrad bench machine`: what results are compared on."""

from __future__ import annotations

from typing import Annotated

import typer


def machine(
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Measure copy bandwidth and matrix products of one core."),
    ] = False,
) -> None:
    """Describe this machine.

    Shows its fingerprint, what else changes its speed and, with --measure, how fast it is. Runs on
    machines with equal fingerprints may be compared.
    """
    from tapegrad.bench import machine
    from tapegrad.bench.report.page import RATES
    from tapegrad.bench.report.table import Column, Entry, Line, Table
    from tapegrad.bench.report.term import print_table

    here = machine.describe()
    facts = {"name": here.name, "fingerprint": here.fingerprint, **here.details}
    facts["load"] = f"{facts['load']:.2f}"
    if measure:
        facts |= {name: RATES[name](rate) for name, rate in machine.probe().items()}
    lines = (Line((Entry(name, "muted"), Entry(str(value)))) for name, value in facts.items())
    columns = Column("what", whole=True), Column("value")
    print_table(Table("Machine", columns, tuple(lines)))
