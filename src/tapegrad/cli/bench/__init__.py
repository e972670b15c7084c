"""`tapegrad bench`: one file for each command."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from tapegrad.cli.bench import (
    audit,
    compare,
    coverage,
    frameworks,
    machine,
    nightly,
    profile,
    report,
    run,
    runs,
)
from tapegrad.cli.bench import list as listing
from tapegrad.cli.exit_codes import explanation
from tapegrad.cli.explain import explained, show_help

SUMMARY = "Compare frameworks: equal work first, then time, memory and a verdict."

app = typer.Typer(rich_markup_mode=None)
app.command("run", epilog=explained(explanation()))(run.run)
app.command("list")(listing.show)
app.command("coverage")(coverage.coverage)
app.add_typer(frameworks.app, name="frameworks", short_help=frameworks.SUMMARY)
app.command("runs")(runs.runs)
app.command("report")(report.report)
app.command("compare")(compare.compare)
app.command("nightly")(nightly.nightly)
app.command("profile")(profile.profile)
app.command("audit")(audit.audit)
app.command("machine")(machine.machine)


@app.callback(
    invoke_without_command=True,
    help=explained(
        "Compares what deep-learning and autograd frameworks do in the same work: forward, "
        "backward, memory, operator by operator. Every result is checked before it is timed, and "
        "no ratio is printed unless both sides were shown to do the same work. Each framework runs "
        "in processes of its own; results are kept in a store.",
        examples={
            "tapegrad bench list": "which suites there are",
            "tapegrad bench run operators --sizes small": "measure one and print the table",
            "tapegrad bench report --format md": "the latest run as Markdown",
        },
    ),
    epilog=explained(explanation()),
)
def bench(context: typer.Context) -> None:
    """Explain itself where no command is given."""
    show_help(context)


def with_defaults(words: Sequence[str]) -> list[str]:
    """Give an option whose value may be left out (`--resume`) its default."""
    filled: list[str] = []
    for index, word in enumerate(words):
        filled.append(word)
        if word == "--resume" and (index + 1 == len(words) or words[index + 1].startswith("-")):
            filled.append(run.LATEST)
    return filled
