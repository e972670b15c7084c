"""Say in words, with what to do, what a database says in codes."""

from __future__ import annotations

import errno
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import sqlalchemy as sa

from tapegrad.bench.store.errors import (
    NotAStoreError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreReadOnlyError,
    StoreUnreachableError,
    StoreUrlError,
)
from tapegrad.errors import TapegradError


class Failure(NamedTuple):
    """One way to fail, by SQLite's primary codes and by beginnings of PostgreSQL's SQLSTATE."""

    error: type[StoreError]
    sqlite: tuple[int, ...]
    postgres: tuple[str, ...]
    words: str


#: What PostgreSQL's driver has no SQLSTATE for: no connection came about, or it was lost.
_NO_STATE = "none"

FAILURES = (
    Failure(
        StoreLockedError,
        (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED),
        ("55P03", "40P01", "40001"),
        "expected to get hold of it, but another process keeps it locked; "
        "wait for that process or end it, then try again",
    ),
    Failure(
        StoreReadOnlyError,
        (sqlite3.SQLITE_READONLY,),
        ("25006", "42501"),
        "expected to write, but it is read-only for this user; "
        "allow this user to write it (a SQLite store: its folder too) or name another store",
    ),
    Failure(
        StoreFullError,
        (sqlite3.SQLITE_FULL,),
        ("53100",),
        "expected room to write, but the disk is full; make room and try again, "
        "what was written before is kept",
    ),
    Failure(
        StoreError,
        (sqlite3.SQLITE_IOERR,),
        ("58030",),
        "expected the disk to read and write, but it refused, as one that is full does; make room "
        "and try again, what was written before is kept",
    ),
    Failure(
        NotAStoreError,
        (sqlite3.SQLITE_NOTADB,),
        (),
        "expected a SQLite database, but the file is something else; name another file",
    ),
    Failure(
        StoreUnreachableError,
        (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH),
        (),
        "expected to open or create the file, but that was refused; "
        "check its folder and the user's rights there, or name another place",
    ),
    Failure(
        StoreUnreachableError,
        (),
        (_NO_STATE, "08", "28", "3D000", "53300", "57P"),
        "expected to open it, but that was refused; "
        "check that the server runs, its address, the user's name and rights",
    ),
    Failure(
        StoreError,
        (sqlite3.SQLITE_CORRUPT,),
        ("XX001", "XX002"),
        "expected a sound database, but it is damaged; put it aside and restore a copy "
        "(a SQLite store: `sqlite3 FILE .recover` reads what can be read)",
    ),
)

_UNIQUE = (sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, "23505")
_FOREIGN = (sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY, "23503")


@contextmanager
def explained(place: str) -> Iterator[None]:
    """Turn what SQLAlchemy, the drivers and the file system raise into a StoreError."""
    try:
        yield
    except sa.exc.IntegrityError as error:
        if is_duplicate(error) or is_orphan(error):
            raise
        raise StoreError(f"store {place}: refused what was to be written: {error.orig}") from error
    except (sa.exc.StatementError, sqlite3.Error) as error:
        raise _explain(error, place) from error
    except (OverflowError, UnicodeError) as error:
        raise StoreError(
            f"store {place}: expected values that a database can hold, got: {error}"
        ) from error
    except OSError as error:
        raise _explain_file(error, place) from error


@contextmanager
def undamaged(place: str) -> Iterator[None]:
    """Say that values are damaged which are no values of ours: nothing else fails while reading."""
    try:
        yield
    except (TapegradError, sa.exc.SQLAlchemyError):
        raise
    except (ValueError, TypeError, LookupError, OverflowError, struct.error) as error:
        raise StoreError(
            f"store {place}: expected a sound database, but a value in it is damaged "
            f"({type(error).__name__}: {error}); restore a copy, or name another store"
        ) from error


def is_duplicate(error: sa.exc.IntegrityError) -> bool:
    """Whether a row with the same key is there already."""
    return _code(error.orig) in _UNIQUE


def is_orphan(error: sa.exc.IntegrityError) -> bool:
    """Whether the run that the row belongs to is not there."""
    return _code(error.orig) in _FOREIGN


def _code(error: BaseException | None) -> int | str | None:
    """Return SQLite's extended code or PostgreSQL's SQLSTATE."""
    code: int | str | None = getattr(error, "sqlite_errorcode", None)
    return getattr(error, "sqlstate", None) if code is None else code


def _explain(error: sa.exc.StatementError | sqlite3.Error, place: str) -> StoreError:
    cause = error.orig if isinstance(error, sa.exc.StatementError) else error
    said = " ".join(str(cause).split())
    if not isinstance(error, (sa.exc.DBAPIError, sqlite3.Error)):
        return StoreError(f"store {place}: expected plain values (JSON), got: {said}")
    code = _code(cause)
    if code is None and isinstance(error, sa.exc.ProgrammingError):
        return StoreUrlError(f"store {place}: expected options that libpq knows, got: {said}")
    for failure in FAILURES:
        if _matches(failure, code):
            return failure.error(f"store {place}: {failure.words} ({said})")
    return StoreError(f"store {place}: failed: {said}")


def _matches(failure: Failure, code: int | str | None) -> bool:
    if isinstance(code, int):
        return code & 0xFF in failure.sqlite
    return (code or _NO_STATE).startswith(failure.postgres)


def _explain_file(error: OSError, place: str) -> StoreError:
    kinds: dict[int | None, type[StoreError]] = {
        errno.EACCES: StoreReadOnlyError,
        errno.EPERM: StoreReadOnlyError,
        errno.EROFS: StoreReadOnlyError,
        errno.ENOSPC: StoreFullError,
        errno.EDQUOT: StoreFullError,
        errno.EEXIST: NotAStoreError,
        errno.ENOTDIR: NotAStoreError,
    }
    kind = kinds.get(error.errno, StoreUnreachableError)
    return kind(
        f"store {place}: expected a file in a folder that can be written, got: {error}; "
        "name another place"
    )
