"""Open a store: connect, recognise or create its tables."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from tapegrad.bench.store.errors import StoreUnreachableError
from tapegrad.bench.store.failures import explained
from tapegrad.bench.store.location import check_file, file_of, frozen, locate
from tapegrad.bench.store.schema import bring_to_head
from tapegrad.bench.store.store import Store

#: Set on connections that are going to write.
_WRITES = "tapegrad_writes"


def open_store(
    url: str | Path | None = None, *, patience: float = 10.0, create: bool = True
) -> Store:
    """Open a store, create it if it is not there, bring it up to date if it is older.

    Args:
        url: A path (a SQLite file), `sqlite:///…` or `postgresql://…`; None takes
            `results.sqlite` in the user's data folder.
        patience: Seconds to wait for a lock that another process holds, or for a server.
        create: Whether to create what is not there, a file or its tables: who only reads refuses
            that.

    Example:
        >>> from tapegrad.bench.store import open_store
        >>> with open_store(":memory:") as store:
        ...     store.runs()
        []

    """
    located = locate(url)
    path = file_of(located)
    place = str(path) if path else located.render_as_string()
    with explained(place):
        if path is not None:
            check_file(path, create=create)
            located = _read_only(path) if frozen(path) else located
        engine = _connectable(located, patience, place)
        writer = engine.execution_options(**{_WRITES: True})
        reader = _snapshots(engine)
        try:
            bring_to_head(reader, writer, path, place, create=create)
            if path is not None:
                _log_ahead(engine)
        except BaseException:
            engine.dispose()
            raise
    return Store(reader, writer, place)


def _read_only(path: Path) -> sa.URL:
    return sa.URL.create(
        "sqlite+pysqlite",
        database=path.resolve().as_uri(),
        query={"uri": "true", "immutable": "1"},
    )


def _connectable(url: sa.URL, patience: float, place: str) -> sa.Engine:
    """Return an engine whose transactions wait for locks, and no longer than asked."""
    if url.get_backend_name() == "sqlite":
        engine = sa.create_engine(url, connect_args={"timeout": patience})
        sa.event.listen(engine, "connect", _set_up_sqlite)
        sa.event.listen(engine, "begin", _begin_sqlite)
        return engine
    if "connect_timeout" not in url.query:
        url = url.update_query_dict({"connect_timeout": str(max(2, round(patience)))})
    try:
        engine = sa.create_engine(url, pool_pre_ping=True)
    except ModuleNotFoundError as error:
        raise StoreUnreachableError(
            f"store {place}: expected PostgreSQL's driver, but it is not installed; "
            'run `pip install "psycopg[binary]"`'
        ) from error

    def set_up(connection: Any, _record: object) -> None:
        connection.execute(f"SET lock_timeout = {round(patience * 1000)}")
        connection.commit()

    sa.event.listen(engine, "connect", set_up)
    return engine


def _snapshots(engine: sa.Engine) -> sa.Engine:
    """Return an engine whose transactions see one state throughout, as SQLite's always do."""
    if engine.dialect.name == "sqlite":
        return engine
    return engine.execution_options(isolation_level="REPEATABLE READ")


def _log_ahead(engine: sa.Engine) -> None:
    """Let SQLite append commits to a log beside the file: no wait for the disk at each commit.

    The file remembers. Where it cannot be changed the store works without, only slower.
    """
    with closing(engine.raw_connection()) as pooled, suppress(sqlite3.OperationalError):
        cursor = pooled.cursor()
        cursor.execute("PRAGMA journal_mode")
        if cursor.fetchone() != ("wal",):
            cursor.execute("PRAGMA journal_mode=WAL")


def _set_up_sqlite(connection: Any, _record: object) -> None:
    # Python's own transactions begin too late for DDL; `_begin_sqlite` begins them.
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys=ON")
    # With WAL, NORMAL keeps every commit when the process dies; a power cut may take the last.
    connection.execute("PRAGMA synchronous=NORMAL")


def _begin_sqlite(connection: sa.Connection) -> None:
    # IMMEDIATE waits for the lock; a transaction that finds out late that it writes cannot wait.
    writes = connection.get_execution_options().get(_WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
