"""The processes that one has started, those that try to leave it among them."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PROCESSES = Path("/proc")
#: Of prctl(2): whoever asks for it becomes the parent of all below it that lose theirs.
SET_CHILD_SUBREAPER = 36
#: Bytes that are read at once.
PART = 1 << 14


def adopt() -> None:
    """Keep processes that detach themselves as descendants, where the system can (Linux).

    A process forked twice would else belong to nobody: it could work for this one unseen.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(process: int | str) -> Iterator[int]:
    """Yield the processes that one has started, and those that they have started."""
    for children in of_threads(process, "children"):
        for child in map(int, children.split()):
            yield child
            yield from descendants(child)


def of_threads(process: int | str, name: str) -> Iterator[bytes]:
    """Yield what Linux tells of each thread of a process in a file.

    By the system's own calls: a look takes 0.2 ms with 20 threads, by paths and patterns 0.4, and
    guards look some 200 times at each operator.
    """
    folder = f"{PROCESSES}/{process}/task"
    threads: list[str] = []
    with suppress(OSError):  # it may have ended
        threads = os.listdir(folder)  # noqa: PTH208  paths would take as long as all the rest
    for thread in threads:
        yield _text(f"{folder}/{thread}/{name}")


def _text(path: str) -> bytes:
    """Read a file that may vanish meanwhile."""
    parts = []
    with suppress(OSError):
        file = os.open(path, os.O_RDONLY)
        try:
            while part := os.read(file, PART):
                parts.append(part)
        finally:
            os.close(file)
    return b"".join(parts)
