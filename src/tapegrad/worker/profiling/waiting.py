"""How long this thread was ready to run while others had the processor."""

from __future__ import annotations

import os
from pathlib import Path

#: Where Linux counts the nanoseconds that a thread ran and waited.
SCHEDULE = Path("/proc/thread-self/schedstat")


class Waiting:
    """Reads the count in 2 µs; a GPU goes on while the processor waits, so there it is zero."""

    def __init__(self, device: str) -> None:
        there = device != "cuda" and SCHEDULE.exists()
        self._file = os.open(SCHEDULE, os.O_RDONLY) if there else None

    def seconds(self) -> float:
        """Return the seconds so far."""
        return 0.0 if self._file is None else int(os.pread(self._file, 100, 0).split()[1]) * 1e-9
