"""Tables of scalar graphs: one for each graph, with a row for each contender."""

from __future__ import annotations

from collections.abc import Iterator

from tapegrad.bench.report.figures import EVALUATIONS, Graph, GraphRow
from tapegrad.bench.report.published.graphs import SOURCE, Published, note_on
from tapegrad.bench.report.table import Column, Entry, Line, Table
from tapegrad.bench.report.text import ratio_entry, time_entry
from tapegrad.bench.units import seconds, size

TARGETS = {"sum": "sum of all nodes", "last": "last node"}


def evaluation(graph: Graph) -> Table:
    """Compare the contenders on one graph."""
    published = any(row.published for row in graph.rows)
    columns = [
        Column("contender", whole=True),
        Column("build", number=True),
        Column("compile", number=True),
        Column("run", number=True),
        Column(f"run against {graph.reference}", number=True),
        Column(f"total for {EVALUATIONS:,}", number=True),
        Column("computed from n evaluations", number=True),
        Column(f"total against {graph.reference}", number=True),
    ]
    if published:
        columns.append(Column(SOURCE, number=True))
    lines = (_line(graph, row, published) for row in graph.rows)
    target = TARGETS.get(graph.target, graph.target)
    notes = [
        f"run: value and gradient of one evaluation. total for {EVALUATIONS:,}: build + compile + "
        f"{EVALUATIONS:,} × run, always computed, from the number of evaluations that is given. "
        "none: the contender has nothing to do in that phase."
    ]
    return Table(
        f"Graph {graph.family}, {graph.ops:,} operations, gradient of the {target}",
        tuple(columns),
        tuple(lines),
        (*notes, *([note_on(graph.target)] if published else [])),
    )


def memory(graph: Graph) -> Table | None:
    """Compare memory, if it was measured."""
    if not any(row.run.memory for row in graph.rows):
        return None
    titles = ("contender", "needed", "allocator", "resident")
    columns = tuple(Column(title, number=title != "contender") for title in titles)
    lines = (Line(tuple(_memory_entries(row)), graph.command) for row in graph.rows)
    return Table(f"Memory of graph {graph.family}, {graph.ops:,} operations", columns, tuple(lines))


def _memory_entries(row: GraphRow) -> Iterator[Entry]:
    yield Entry(row.framework)
    found = row.run.memory
    if found is None:
        yield from [Entry("n/a" if row.run.time else row.run.verdict, "word")] * 3
    else:
        yield from map(Entry, map(size, (found.needed, found.allocator, found.resident)))


def _line(graph: Graph, row: GraphRow, published: bool) -> Line:
    entries = [
        Entry(row.framework),
        time_entry(row.build),
        time_entry(row.compile),
        time_entry(row.run),
        ratio_entry(row.run, graph.reference),
        time_entry(row.total),
        Entry(f"{row.evaluations:,}" if row.total.time else row.total.verdict, "muted"),
        ratio_entry(row.total, graph.reference),
    ]
    if published:
        entries.append(_published(row.published))
    return Line(tuple(entries), graph.command)


def _published(published: Published | None) -> Entry:
    if published is None:
        return Entry("not published", "muted")
    text = seconds(published.seconds)
    match published.mark:
        case "about":
            return Entry(f"about {text}")
        case "est.":
            return Entry(f"{text} est.")
        case _:
            return Entry(text)
