"""Reports in Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from tapegrad.bench.report.figures import report_on
from tapegrad.bench.report.page import AGAIN, page_of
from tapegrad.bench.report.table import Entry, Page, Table
from tapegrad.bench.results import Results


def markdown(results: Results, *, verbose: bool = False) -> str:
    """Return the report on a run; a verbose one has the command that repeats each row."""
    return page_markdown(page_of(report_on(results)), verbose=verbose)


def page_markdown(page: Page, *, verbose: bool = False) -> str:
    """Return a whole page."""
    return "\n".join(_page(page, verbose)) + "\n"


def _page(page: Page, verbose: bool) -> Iterator[str]:
    yield f"# {page.title}"
    yield ""
    yield from (f"- {name}: {_escaped(value)}" for name, value in page.facts)
    for table in page.tables:
        yield from ("", f"## {table.title}", "")
        yield from _table(table, verbose)
        for note in table.notes:
            yield from ("", _escaped(note))
    for heading, lines in page.remarks:
        code = heading == AGAIN
        yield from ("", f"## {heading}", "")
        yield from (f"- `{line}`" if code else f"- {_escaped(line)}" for line in lines)


def _table(table: Table, verbose: bool) -> Iterator[str]:
    commands = verbose and any(line.command for line in table.lines)
    titles = [column.title for column in table.columns] + ["command"] * commands
    rules = ["---:" if column.number else "---" for column in table.columns] + ["---"] * commands
    yield _row(titles)
    yield _row(rules)
    for line in table.lines:
        code = [f"`{line.command}`" if line.command else "of the rows above"] * commands
        yield _row([*map(_entry, line.entries), *code])


def _entry(entry: Entry) -> str:
    text = _escaped(entry.text)
    return f"**{text}**" if entry.bold else text


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _escaped(text: str) -> str:
    """Keep what is meant literally from being read as emphasis or HTML."""
    for sign in "\\*_<`":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("\n", " ")
