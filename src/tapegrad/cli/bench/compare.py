"""`tapegrad bench compare`: what changed from one run to another."""

from __future__ import annotations

from typing import Annotated

import typer

from tapegrad.cli import exit_codes
from tapegrad.cli.bench import changes
from tapegrad.cli.bench.options import MarginOption, RateOption, StoreOption, say


def compare(
    run_a: Annotated[
        str, typer.Argument(metavar="RUN_A", help="The run before: an id, latest~1, SUITE:latest.")
    ],
    run_b: Annotated[str, typer.Argument(metavar="RUN_B", help="The run after.")],
    *,
    margin: MarginOption = 0.03,
    rate: RateOption = 0.05,
    across_devices: Annotated[
        bool, typer.Option("--across-devices", help="Compare cpu with cuda, and say so.")
    ] = False,
    across_machines: Annotated[
        bool, typer.Option("--across-machines", help="Compare different machines, and say so.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Show what did not change, too.")
    ] = False,
    store: StoreOption = None,
) -> None:
    """Say what changed between two runs.

    Decides operator by operator; ends with 1 if anything got slower or broke, and with 4 if the
    runs have nothing in common.
    """
    from tapegrad.bench import regressions
    from tapegrad.bench.regressions.changes import QUIET
    from tapegrad.bench.report.hardware import side_by_side
    from tapegrad.bench.report.term import print_table
    from tapegrad.bench.statistics import FEWEST
    from tapegrad.bench.store import open_store

    asked = {"devices": across_devices, "machines": across_machines}
    across = [kind for kind, wanted in asked.items() if wanted]
    with open_store(store, create=False) as opened:
        found = regressions.compare(opened, run_a, run_b, margin=margin, rate=rate, across=across)
        if found.apart:
            hardware = side_by_side([opened.load(opened.resolve(run).id) for run in (run_a, run_b)])
            typer.echo(f"{hardware.title}, {found.apart}")
            print_table(hardware)
            typer.echo("\n".join([*hardware.notes, "", f"Changes {found.apart}"]))
    shown = [each for each in found.series if everything or each.verdict not in QUIET]
    if shown:
        print_table(changes.table(shown))
    typer.echo(changes.summary(found))
    if found.gone:
        typer.echo(found.missing)
    if found.thin:
        say(
            f"Of the undecided, {len(found.thin)} have fewer than {FEWEST} processes in a run: "
            f"measure with --processes {FEWEST} or more."
        )
    for difference in found.differences:
        say(f"Not the same: {difference.what}: {difference.before}, then {difference.after}")
    if not found.series:
        say("Nothing could be compared: name two runs of one suite with the same frameworks.")
        raise typer.Exit(exit_codes.NOTHING_MEASURED)
    raise typer.Exit(exit_codes.MISSED if found.regressions else exit_codes.FINE)
