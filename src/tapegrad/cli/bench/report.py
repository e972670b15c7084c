"""`tapegrad bench report`: show a run again, or several as one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tapegrad.cli.bench.options import ChartOption, StoreOption, check_chart, say

if TYPE_CHECKING:
    from tapegrad.bench.results import Results

FORMATS = ("term", "md", "json", "csv")
#: What is written where a file's name does not end in a format's name.
ENDINGS = {"": "term", "txt": "term"}


def report(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]...",
            help="A run's id or the beginning of one, latest (default), latest~2, SUITE:latest, or "
            "a JSON file that this command wrote. Several runs of one suite are shown as one.",
        ),
    ] = None,
    *,
    format: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="term, md, json or csv. Default: as --output ends; term for .txt and without.",
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Write to a file.")] = None,
    store: StoreOption = None,
    chart: ChartOption = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Add the command that repeats each row.")
    ] = False,
) -> None:
    """Show the results of a run again, or of several as one.

    Several must be of one suite, machine and design. Each case comes from the run that settled most
    of it.
    """
    chosen = _format(format, output)
    check_chart(chart)
    results = _results(runs or ["latest"], store)
    if chosen == "term" and output is None:
        from tapegrad.bench.report import render

        render(results, verbose=verbose)
    else:
        _write(_text(results, chosen, verbose), output)
    if chart is not None:
        from tapegrad.bench.report.chart import draw

        draw(results, chart)
        say(f"Chart: {chart}")


def _format(name: str | None, output: Path | None) -> str:
    from tapegrad.bench.errors import UnknownNameError

    ending = output.suffix.lstrip(".").lower() if output else ""
    chosen = name or ENDINGS.get(ending, ending)
    if chosen not in FORMATS:
        raise UnknownNameError("format", chosen, FORMATS)
    return chosen


def _results(runs: list[str], url: str | None) -> Results:
    from tapegrad.bench.joining import joined, shared

    loaded = [_run(run, url) for run in runs]
    several = list({results.run.id: results for results in loaded}.values())
    found = joined(several)
    if count := shared(several):
        are = "1 case is" if count == 1 else f"{count} cases are"
        say(f"{are} in several runs: shown is the one with most times, of equals the last.")
    return found


def _run(run: str, url: str | None) -> Results:
    from tapegrad.bench.report import load
    from tapegrad.bench.store import open_store

    if run.endswith(".json"):
        return load(run)
    with open_store(url, create=False) as store:
        return store.load(store.resolve(run).id)


def _text(results: Results, format: str, verbose: bool) -> str:
    from tapegrad.bench import report as formats

    match format:
        case "md":
            return formats.markdown(results, verbose=verbose)
        case "json":
            return formats.json_text(results)
        case "csv":
            return formats.csv_text(results)
        case _:
            return formats.report_text(results, verbose=verbose)


def _write(text: str, output: Path | None) -> None:
    from tapegrad.bench.errors import OutputError

    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(output, error) from None
    say(f"Written: {output}")
