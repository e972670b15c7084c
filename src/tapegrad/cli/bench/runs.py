"""`tapegrad bench runs`: what is in the store."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from tapegrad.cli.bench.options import StoreOption, say

if TYPE_CHECKING:
    from tapegrad.bench.report.table import Line, Table
    from tapegrad.bench.results import Run
    from tapegrad.bench.store import Store, Summary


def runs(
    *,
    suite: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only the runs of this suite.")
    ] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, help="So many at most. Default: 20.")
    ] = 20,
    store: StoreOption = None,
) -> None:
    """List the runs that are kept, newest first.

    An id, or the beginning of one, names a run in `report`, `compare` and `run --resume`.
    """
    from tapegrad.bench.report.term import print_table
    from tapegrad.bench.store import open_store

    with open_store(store, create=False) as opened:
        found = opened.summaries(suite, limit + 1)
        if not found:
            _nothing(opened, suite)
            return
    print_table(_table(found[:limit]))
    if len(found) > limit:
        say(f"There are older ones: --limit {2 * limit} shows more.")


def _nothing(store: Store, suite: str | None) -> None:
    """Say that there is nothing; refuse a suite of which there is no run among others."""
    from tapegrad.bench.errors import UnknownNameError

    known = sorted({run.suite for run in store.runs()})
    if suite is not None and known:
        raise UnknownNameError("run of the suite", suite, known)
    say(f"The store {store.place} is empty; `tapegrad bench run` fills it.")


def _table(found: list[Summary]) -> Table:
    from tapegrad.bench.report.table import Column, Table

    columns = (
        Column("run", whole=True),
        Column("suite", spare=True),
        Column("started", whole=True),
        Column("status", whole=True),
        Column("took", number=True, spare=True),
        Column("contenders"),
        Column("cells", number=True, spare=True),
        Column("blocks", number=True, spare=True),
        Column("machine", spare=True),
    )
    return Table("Runs", columns, tuple(map(_line, found)))


def _line(summary: Summary) -> Line:
    from tapegrad.bench.report.table import Entry, Line

    run = summary.run
    started = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.started))
    return Line(
        (
            Entry(run.id),
            Entry(run.suite),
            Entry(started),
            Entry(run.status, "text" if run.status == "finished" else "word"),
            Entry(_duration(run)),
            Entry(", ".join(summary.contenders) or "none"),
            Entry(f"{summary.cells:,}"),
            Entry(f"{summary.blocks:,}"),
            Entry(run.machine.name),
        )
    )


def _duration(run: Run) -> str:
    """Say how long it was from the start of a run to its last end, breaks included."""
    if run.finished is None:
        return "n/a"
    minutes, seconds = divmod(round(run.finished - run.started), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
