"""Where a store is: from what the user says to a URL, and to a file if it is one."""

from __future__ import annotations

import os
from pathlib import Path

import sqlalchemy as sa

from tapegrad.bench.store.errors import (
    NotAStoreError,
    StoreMissingError,
    StoreReadOnlyError,
    StoreUnreachableError,
    StoreUrlError,
)

_MAGIC = b"SQLite format 3\0"
_DRIVERS = {
    "sqlite": "sqlite+pysqlite",
    "sqlite+pysqlite": "sqlite+pysqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}


def data_folder() -> Path:
    """Return the folder for the user's data: `$TAPEGRAD_DATA` or where the desktop wants it."""
    if chosen := os.environ.get("TAPEGRAD_DATA"):
        return Path(chosen)
    home = os.environ.get("XDG_DATA_HOME")
    return (Path(home) if home else Path.home() / ".local" / "share") / "tapegrad"


def locate(url: str | Path | None) -> sa.URL:
    """Return the URL that a text, a path or None (the default file) means."""
    if url is None:
        return _file_url(data_folder() / "results.sqlite")
    if isinstance(url, Path) or "://" not in url:
        if not str(url).strip():
            raise StoreUrlError("store: expected a path or a URL, got an empty text")
        return _file_url(Path(url))
    return _parse(url)


def file_of(url: sa.URL) -> Path | None:
    """Return the file of a SQLite store; None for memory, SQLite's own URIs and servers."""
    if url.get_backend_name() != "sqlite" or url.query.get("uri"):
        return None
    return None if url.database in (None, "", ":memory:") else Path(url.database or "")


def in_memory(url: sa.URL) -> bool:
    """Tell whether a store ends with the process that opened it."""
    if url.get_backend_name() != "sqlite":
        return False
    unnamed = (url.database or "").removeprefix("file:") in ("", ":memory:")
    return unnamed or url.query.get("mode") == "memory" or url.query.get("vfs") == "memdb"


def check_file(path: Path, *, create: bool = True) -> None:
    """Make the folder, and refuse what is no SQLite database before SQLite gets to touch it."""
    if path.is_dir():
        raise NotAStoreError(f"store {path}: expected a file, got a folder; name a file in it")
    if not create and not path.exists():
        raise StoreMissingError(f"there is no store {path}; `tapegrad bench run` makes one")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        if not os.access(path.parent, os.W_OK):
            raise StoreReadOnlyError(
                f"store {path}: expected to create the file, but its folder is read-only; "
                "make the folder writable or name another place"
            )
        return
    if not os.access(path, os.R_OK):
        raise StoreUnreachableError(
            f"store {path}: expected a file that this user may read; change its rights"
        )
    with path.open("rb") as file:
        start = file.read(len(_MAGIC))
    if start not in (b"", _MAGIC):
        raise NotAStoreError(
            f"store {path}: expected a SQLite database, got a file that begins with {start!r}; "
            "name another file"
        )


def frozen(path: Path) -> bool:
    """Whether the store lies where nothing can be written, as on a mounted artifact.

    SQLite refuses to read a file in WAL mode there, since it cannot put its index beside it,
    unless it is told that nobody changes the file.
    """
    log = path.with_name(path.name + "-wal")
    return path.exists() and not os.access(path.parent, os.W_OK) and not log.exists()


def _file_url(path: Path) -> sa.URL:
    at_home = path.parts[:1] == ("~",)
    return sa.URL.create(_DRIVERS["sqlite"], database=str(path.expanduser() if at_home else path))


def _parse(text: str) -> sa.URL:
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError) as error:
        raise StoreUrlError(
            "store: expected a path, sqlite:///PATH or postgresql://USER@HOST:PORT/DATABASE, "
            f"got a text that is no URL ({type(error).__name__}); percent-encode odd characters"
        ) from None  # the text may hold a password
    if url.drivername not in _DRIVERS:
        raise StoreUrlError(
            f"store: expected sqlite:// or postgresql://, got {url.drivername}://; "
            "other databases and drivers are not supported"
        )
    if url.get_backend_name() == "sqlite" and (url.host or url.username or url.port):
        raise StoreUrlError(
            f"store: expected sqlite:///PATH (three slashes, four before an absolute path), "
            f"got {url.render_as_string()}"
        )
    if url.get_backend_name() == "sqlite" and url.query and not url.query.get("uri"):
        raise StoreUrlError(
            "store: expected sqlite:///PATH without parameters, got "
            f"{', '.join(sorted(url.query))}; those of SQLite's own need sqlite:///file:PATH?uri=true"
        )
    return url.set(drivername=_DRIVERS[url.drivername])
