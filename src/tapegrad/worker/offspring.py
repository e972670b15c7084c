"""The processes that one has started, those that try to leave it among them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PROCESSES = Path("/proc")
#: Of prctl(2): whoever asks for it becomes the parent of all below it that lose theirs.
SET_CHILD_SUBREAPER = 36


def adopt() -> None:
    """Keep processes that detach themselves as descendants, where the system can (Linux).

    A process forked twice would else belong to nobody: it could work for this one unseen.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(process: int | str) -> Iterator[int]:
    """Yield the processes that one has started, and those that they have started."""
    for file in (PROCESSES / str(process) / "task").glob("*/children"):
        children = ""
        with suppress(OSError):  # a thread may end meanwhile
            children = file.read_text()
        for child in map(int, children.split()):
            yield child
            yield from descendants(child)
