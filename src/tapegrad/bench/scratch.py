"""Folders for what travels between driver and workers: nothing of them outlives its run.

A folder holds a file that its owner has locked. The system lets go of the lock when the owner ends,
however it ends, so a folder whose lock can be taken is nobody's, and the next run removes it. A
process number would tell less: numbers are used again, and containers that share a folder have the
same ones.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tapegrad.bench.errors import BenchError

PREFIX = "tapegrad-bench-"
OWNED = "owned"
#: With less room than this a folder is full: what did not fit was larger.
ROOM = 1 << 16


class TemporaryFolderError(BenchError, RuntimeError):
    """The folder for temporary files is full or cannot be written."""

    exit_code = 6

    def __init__(self, why: str) -> None:
        where = os.environ.get("TMPDIR") or "/tmp"
        with suppress(OSError):
            where = tempfile.gettempdir()
        state = "is full" if is_full(where) else "cannot be written"
        super().__init__(
            f"The temporary folder {where} {state}: {why}. Make room there, or name another one by "
            "the variable TMPDIR. What a run has measured so far is kept, and --resume goes on."
        )


@contextmanager
def folder() -> Iterator[Path]:
    """Make a folder for as long as the context lasts, and remove what killed runs have left."""
    with writing():
        _sweep(Path(tempfile.gettempdir()))
        made = Path(tempfile.mkdtemp(prefix=PREFIX))
        lock = _own(made)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        os.close(lock)


@contextmanager
def writing() -> Iterator[None]:
    """Say in plain words that something could not be written."""
    try:
        yield
    except OSError as error:
        raise TemporaryFolderError(error.strerror or str(error)) from error


def is_full(place: str | Path) -> bool:
    """Tell whether there is no room left."""
    try:
        return shutil.disk_usage(place).free < ROOM
    except OSError:
        return False


def _own(made: Path) -> int:
    """Lock a folder; the lock has its name only when it is held, so that nobody takes it before."""
    unnamed = made / f"{OWNED}.new"
    lock = os.open(unnamed, os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    unnamed.rename(made / OWNED)
    return lock


def _sweep(place: Path) -> None:
    """Remove folders whose owner is gone."""
    for each in place.glob(f"{PREFIX}*"):
        with suppress(OSError):
            lock = os.open(each / OWNED, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(each, ignore_errors=True)
            finally:
                os.close(lock)
