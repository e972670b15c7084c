"""The version of the tables: create them, recognise them, bring older ones up to date."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import sqlalchemy as sa

from tapegrad.bench.store.errors import (
    NotAStoreError,
    StoreError,
    StoreMissingError,
    StoreNewerError,
    StoreReadOnlyError,
)
from tapegrad.bench.store.tables import HEAD, metadata, version

#: Any number that nobody else takes: it names our lock on a PostgreSQL database.
_ADVISORY_LOCK = 0x7461_7065


def bring_to_head(
    reader: sa.Engine, writer: sa.Engine, path: Path | None, place: str, *, create: bool = True
) -> None:
    """Create the tables in an empty database or bring those of an older tapegrad up to date."""
    with reader.connect() as connection:
        found = stored_version(connection)
        if found is None:
            _refuse_foreign(connection, place)
            if not create:
                raise StoreMissingError(
                    f"there is no run in {place}: it is empty; `tapegrad bench run` fills it"
                )
    if found is None:
        _create(writer, place)
    elif found != HEAD:
        _refuse_newer(found, place)
        _bring_up_to_date(writer, path, place)


def stored_version(connection: sa.Connection) -> str | None:
    """Return the revision of the tables; None where there are none of ours."""
    if not sa.inspect(connection).has_table(version.name):
        return None
    return connection.scalar(sa.select(version.c.version_num))


def upgrade(connection: sa.Connection, revision: str = "head") -> None:
    """Run the migrations up to a revision in the connection's transaction."""
    # Alembic takes 75 ms to import, and is needed once in the life of a version.
    from alembic import command, util
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", "tapegrad.bench.store:migrations")
    try:
        command.upgrade(config, revision)
    except util.CommandError as error:
        raise StoreError(f"store: expected tables of a known version: {error}") from error


def _create(writer: sa.Engine, place: str) -> None:
    with writer.begin() as connection:
        _hold(connection)
        found = stored_version(connection)
        if found is None:
            _refuse_foreign(connection, place)
            version.create(connection)
            metadata.create_all(connection, checkfirst=False)
            connection.execute(version.insert().values(version_num=HEAD))


def _bring_up_to_date(writer: sa.Engine, path: Path | None, place: str) -> None:
    with writer.begin() as connection:
        _hold(connection)
        found = stored_version(connection) or HEAD
        _refuse_newer(found, place)
        if found != HEAD:
            with _copy_kept(path, found, place):
                upgrade(connection)


@contextmanager
def _copy_kept(path: Path | None, found: str, place: str) -> Iterator[None]:
    """Copy a file before its tables change; the copy goes if they do not change after all."""
    if path is None:
        yield
        return
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        raise StoreReadOnlyError(
            f"store {place}: expected to bring its tables from version {found} to {HEAD}, but it "
            "is read-only for this user; copy it to a folder that can be written and open the copy"
        )
    copy = _back_up(path, found)
    try:
        yield
    except BaseException:
        copy.unlink()
        raise


def _hold(connection: sa.Connection) -> None:
    """Let one process at a time change tables; SQLite's BEGIN IMMEDIATE does so by itself."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))


def _refuse_newer(found: str, place: str) -> None:
    if not found.isdecimal() or found > HEAD:  # ours are numbers
        raise StoreNewerError(
            f"store {place}: expected tables of version {HEAD} or older, got version {found}, "
            "made by a newer tapegrad; upgrade tapegrad or name another store"
        )


def _refuse_foreign(connection: sa.Connection, place: str) -> None:
    """Refuse a SQLite file of something else, or a PostgreSQL schema with tables of our names."""
    tables = set(sa.inspect(connection).get_table_names())
    in_the_way = tables if connection.dialect.name == "sqlite" else tables & set(metadata.tables)
    if in_the_way:
        raise NotAStoreError(
            f"store {place}: expected an empty database or a store of tapegrad, got tables of "
            f"something else: {', '.join(sorted(in_the_way)[:5])}; name another file or database"
        )


def _back_up(path: Path, found: str) -> Path:
    """Copy the file, its write-ahead log included, before its tables change."""
    copy = _free_name(path, f"v{int(found)}.bak")
    unfinished = copy.with_name(copy.name + ".part")
    try:
        with (
            closing(sqlite3.connect(path)) as source,
            closing(sqlite3.connect(unfinished)) as target,
        ):
            source.backup(target)
            # One file that needs no other beside it.
            target.execute("PRAGMA journal_mode=DELETE")
        return unfinished.rename(copy)
    finally:
        unfinished.unlink(missing_ok=True)


def _free_name(path: Path, ending: str) -> Path:
    """Return a name beside the file that no earlier copy has."""
    copy, number = path.with_name(f"{path.name}.{ending}"), 2
    while copy.exists():
        copy, number = path.with_name(f"{path.name}.{ending}.{number}"), number + 1
    return copy
