"""Reports for the terminal."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import replace

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from tapegrad.bench.report.figures import report_on
from tapegrad.bench.report.page import AGAIN, NOTES, REASONS, page_of
from tapegrad.bench.report.table import Line, Page, Table, tall, without_last_spare
from tapegrad.bench.results import Results

STYLES = {
    "text": "",
    "time": "",
    "faster": "green",
    "slower": "red",
    "same": "cyan",
    "undecided": "yellow",
    "word": "magenta",
    "muted": "bright_black",
    "met": "green",
    "missed": "bold red",
    "not measured": "magenta",
}
#: For files and pipes, where nothing limits the width.
WIDE = 400
#: Remarks are broken here.
PROSE = 100


def render(results: Results, console: Console | None = None, *, verbose: bool = False) -> None:
    """Print the report on a run; `verbose` adds the command of each row."""
    chosen = console or Console(highlight=False)
    if chosen.is_terminal:
        print_page(page_of(report_on(results)), chosen, verbose=verbose)
    else:
        chosen.file.write(report_text(results, verbose=verbose))


def table_text(results: Results) -> str:
    """Return the tables of a run as plain text, without method and commands."""
    page = page_of(report_on(results))
    remarks = tuple(remark for remark in page.remarks if remark[0] in (REASONS, NOTES))
    return _plain(lambda console: _print_body(replace(page, remarks=remarks), console))


def report_text(results: Results, *, verbose: bool = False) -> str:
    """Return the whole report as plain text."""
    page = page_of(report_on(results))
    return _plain(lambda console: print_page(page, console, verbose=verbose)) + "\n"


def print_table(table: Table) -> None:
    """Print one table without its title."""
    console = Console(highlight=False)
    if console.is_terminal:
        console.print(_fitting(table, console))
    else:
        console.file.write(_plain(lambda wide: wide.print(_draw(table))) + "\n")


def show_page(page: Page) -> None:
    """Print a report to stdout, as wide as it likes where that is no terminal."""
    console = Console(highlight=False)
    if console.is_terminal:
        print_page(page, console)
    else:
        console.file.write(_plain(lambda wide: print_page(page, wide)) + "\n")


def _plain(write: Callable[[Console], None]) -> str:
    """Return what is written to a console without colours and limits."""
    file = io.StringIO()
    write(Console(file=file, width=WIDE, color_system=None))
    return "\n".join(line.rstrip() for line in file.getvalue().rstrip().splitlines())


def print_page(page: Page, console: Console, *, verbose: bool = False) -> None:
    """Print a report."""
    console.print(Text(page.title, style="bold"))
    facts = RichTable.grid(padding=(0, 2))
    for name, value in page.facts:
        facts.add_row(Text(name, style="bright_black"), Text(value))
    console.print(Padding(facts, (0, 0, 0, 2)))
    console.print()
    _print_body(page, console, verbose=verbose)


def _print_body(page: Page, console: Console, *, verbose: bool = False) -> None:
    for table in page.tables:
        console.print(Text(table.title, style="bold"))
        console.print(_fitting(table, console))
        for note in table.notes:
            console.print(_indented(note, "bright_black"), width=min(PROSE, console.width))
        console.print()
        if verbose:
            _print_remark("Commands, row by row", tuple(_commands(table)), console, WIDE)
    for heading, lines in page.remarks:
        _print_remark(heading, lines, console, WIDE if heading == AGAIN else PROSE)


def _print_remark(heading: str, lines: tuple[str, ...], console: Console, width: int) -> None:
    console.print(Text(heading, style="bold"))
    for line in lines:
        console.print(_indented(line), width=min(width, console.width))
    console.print()


def _indented(text: str, style: str = "") -> Padding:
    return Padding(Text(text, style=style), (0, 0, 0, 2))


def _fitting(table: Table, console: Console) -> RichTable:
    """Draw a table, with rows instead of columns for contenders where it is too wide.

    Columns that can be spared are then left out, until the rest fits or there are none.
    """
    drawn = _draw(table)
    if _fits(drawn, console):
        return drawn
    narrow: Table | None = tall(table)
    while narrow is not None and not _fits(drawn := _draw(narrow), console):
        narrow = without_last_spare(narrow)
    return drawn


def _fits(drawn: RichTable, console: Console) -> bool:
    wide = console.options.update(width=WIDE)
    return Measurement.get(console, wide, drawn).maximum <= console.width


def _draw(table: Table) -> RichTable:
    """Make a rich table."""
    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=True, show_edge=False)
    for column in table.columns:
        drawn.add_column(
            Text(column.title),
            justify="right" if column.number else "left",
            no_wrap=column.whole,
            overflow="fold",
            header_style="bold",
        )
    previous: Line | None = None
    for line in table.lines:
        drawn.add_row(*_texts(table, line, previous), end_section=line.ends)
        previous = line
    return drawn


def _texts(table: Table, line: Line, previous: Line | None) -> Iterator[Text]:
    """Write a row; what a group has in common is said in its first row."""
    repeated = previous is not None
    for index, (column, entry) in enumerate(zip(table.columns, line.entries, strict=True)):
        if column.group:
            repeated = repeated and previous is not None and previous.entries[index] == entry
        text = "" if column.group and repeated else entry.text
        yield Text(text, style=f"{STYLES[entry.kind]} bold" if entry.bold else STYLES[entry.kind])


def _commands(table: Table) -> Iterator[str]:
    return iter(dict.fromkeys(line.command for line in table.lines if line.command))
