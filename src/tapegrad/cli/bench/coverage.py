"""`tapegrad bench coverage`: what frameworks have and no case measures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tapegrad.cli import exit_codes
from tapegrad.cli.bench.options import names_in, say

if TYPE_CHECKING:
    from tapegrad.bench.coverage import Coverage

FORMATS = ("term", "md", "json")


def coverage(
    frameworks: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FRAMEWORKS]", help="As torch jax. Default: the suite's."),
    ] = None,
    *,
    suite: Annotated[
        str, typer.Option(metavar="NAME", help="A suite, or a file that defines one.")
    ] = "operators",
    format: Annotated[str, typer.Option(metavar="NAME", help="term, md or json.")] = "term",
) -> None:
    """Show which operators of a framework no case measures.

    The framework's registry says what it has; each case, run forward and backward once at its
    smallest size, says what it reaches.
    """
    from tapegrad.bench import suites
    from tapegrad.bench.coverage import coverage_of, smallest
    from tapegrad.bench.errors import UnknownNameError
    from tapegrad.bench.frameworks import find_all

    if format not in FORMATS:
        raise UnknownNameError("format", format, FORMATS)
    chosen = suites.find(suite)
    cases = smallest(chosen)
    asked = find_all(names_in("frameworks", frameworks) or chosen.frameworks)
    found = []
    for contender in asked:
        say(f"{contender.name}: tracing {len(cases)} cases …")
        found.append(coverage_of(contender, cases))
    _show(suite, found, format)
    if all(each.reason for each in found):
        raise typer.Exit(exit_codes.NOTHING_MEASURED)


def _show(suite: str, found: Sequence[Coverage], format: str) -> None:
    from tapegrad.bench.report.coverage import page_of, plain
    from tapegrad.bench.report.markdown import page_markdown
    from tapegrad.bench.report.term import show_page

    match format:
        case "json":
            typer.echo(json.dumps(plain(suite, found), indent=2))
        case "md":
            typer.echo(page_markdown(page_of(suite, found)), nl=False)
        case _:
            show_page(page_of(suite, found))
