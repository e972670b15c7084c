"""From records to rows and back."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa

from tapegrad.bench.printable import printable
from tapegrad.bench.results import AGAIN, Run
from tapegrad.bench.store.tables import runs

Record = TypeVar("Record", bound=msgspec.Struct)

#: Fields of a run that are columns of the same name; its machine has three of its own.
_PLAIN = tuple(name for name in Run.__struct_fields__ if name != "machine")


def row_of(run_id: str, record: msgspec.Struct) -> dict[str, Any]:
    """Return the row of a framework, cell, block or memory."""
    return {"run_id": run_id, **msgspec.structs.asdict(record)}


def columns_of(table: sa.Table, kind: type[msgspec.Struct]) -> list[sa.Column[Any]]:
    """Return the columns of a record, in the order of its fields."""
    return [table.c[name] for name in kind.__struct_fields__]


def records(
    connection: sa.Connection, kind: type[Record], table: sa.Table, run_id: str
) -> list[Record]:
    """Read the records of a run in the order in which they came."""
    query = sa.select(*columns_of(table, kind)).where(table.c.run_id == run_id)
    return [read(kind, row) for row in connection.execute(query.order_by(table.c.id))]


def read(kind: type[Record], fields: Iterable[Any]) -> Record:
    """Read a record from its fields; raises where they are damaged."""
    return msgspec.convert(printable(dict(zip(kind.__struct_fields__, fields, strict=True))), kind)


def row_of_run(run: Run) -> dict[str, Any]:
    """Return the row of a run."""
    row = {name: getattr(run, name) for name in _PLAIN}
    return row | {
        "machine": run.machine.fingerprint,
        "machine_name": run.machine.name,
        "machine_details": run.machine.details,
    }


def read_runs(connection: sa.Connection, query: sa.Select[Any]) -> list[Run]:
    """Read the runs that a `select(runs)` finds."""
    return [_run(row) for row in connection.execute(query)]


def newest(suite: str | None = None, machine: str | None = None) -> sa.Select[Any]:
    """Select the runs of a suite, of a machine or all, newest first."""
    query = sa.select(runs).order_by(runs.c.started.desc(), runs.c.id.desc())
    if suite is not None:
        query = query.where(runs.c.suite == suite)
    return query if machine is None else query.where(runs.c.machine == machine)


def without_confirmations(query: sa.Select[Any]) -> sa.Select[Any]:
    """Leave out runs that only measured another run's alarms again."""
    return query.where(sa.not_(runs.c.suite.endswith(AGAIN, autoescape=True)))


def _run(row: sa.Row[Any]) -> Run:
    content = row._mapping
    names = {"fingerprint": "machine", "name": "machine_name", "details": "machine_details"}
    machine = {field: content[column] for field, column in names.items()}
    read = {name: content[name] for name in _PLAIN} | {"machine": machine}
    run = msgspec.convert(printable(read), Run)
    time.localtime(run.started)  # which raises where it is no moment
    return run
