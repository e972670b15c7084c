"""`tapegrad bench frameworks`: what is installed, and how to install the rest."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from tapegrad.cli.bench.options import say
from tapegrad.cli.explain import explained

if TYPE_CHECKING:
    from tapegrad.bench.frameworks import Contender
    from tapegrad.bench.report.table import Entry

SUMMARY = "Show which frameworks are installed, and install others."

app = typer.Typer(rich_markup_mode=None)


@app.callback(
    invoke_without_command=True,
    help=explained(
        "Shows which frameworks can be measured, in which version and where they are installed. "
        "A framework is used from an environment of its own, or from this Python if it is there.",
        examples={"tapegrad bench frameworks install torch jax": "make an environment for each"},
    ),
)
def show(context: typer.Context) -> None:
    """Show a table of all frameworks."""
    if context.invoked_subcommand is not None:
        return
    from tapegrad.bench import frameworks
    from tapegrad.bench.report.table import Column, Line, Table
    from tapegrad.bench.report.term import print_table

    columns = (Column("framework", whole=True), Column("version"), Column("where"))
    lines = tuple(Line(_entries(each)) for each in frameworks.shipped().values())
    print_table(Table("Frameworks", columns, lines))


@app.command()
def install(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Frameworks to install.")],
) -> None:
    """Make an environment for each framework, in the user's cache folder (pip and venv)."""
    from tapegrad.bench import frameworks

    for contender in [frameworks.find(name) for name in names]:
        where = contender.interpreter()
        if where is not None:
            say(f"{contender.name} is installed: {where}")
        else:
            frameworks.install(contender, say)
            say(f"{contender.name} is ready.")


def _entries(contender: Contender) -> tuple[Entry, ...]:
    from tapegrad.bench.report.table import Entry

    where = contender.interpreter()
    if where is None:
        advice = f"install it with: tapegrad bench frameworks install {contender.name}"
        return (Entry(contender.name), Entry("not installed", "word"), Entry(advice))
    return (Entry(contender.name), Entry(_version(contender) or "ready"), Entry(str(where)))


def _version(contender: Contender) -> str:
    """Look up the version of the package that it is about, without importing it."""
    from importlib import metadata

    from tapegrad.bench.frameworks import COMPLETE

    package = re.split(r"[^\w.-]", next(iter(contender.requires), ""))[0]
    stem = contender.file.stem
    if package not in (stem, contender.name) and not package.startswith(f"{stem}-"):
        return ""  # a contender of ours, that only needs the package
    listed = contender.environment / COMPLETE
    if listed.exists():
        lines = (line.partition("==") for line in listed.read_text().splitlines())
        versions = {name.replace("_", "-"): number for name, _, number in lines}
        return f"{package} {versions[package]}" if package in versions else ""
    try:
        return f"{package} {metadata.version(package)}"
    except (metadata.PackageNotFoundError, ValueError):
        return ""
