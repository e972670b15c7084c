"""Peak memory of this process, and of those that it has started."""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tapegrad.worker.offspring import PROCESSES, descendants

STATUS = PROCESSES / "self" / "status"
CLEAR = Path("/proc/self/clear_refs")
#: Written to CLEAR, this sets the recorded peak back to the present size.
RESET_PEAK = "5"
#: Kinds of resident memory that Linux tells apart: of no file, of files, shared.
KINDS = ("RssAnon", "RssFile", "RssShmem")


def reset_peak() -> bool:
    """Forget the peak so far; false where the system cannot."""
    try:
        CLEAR.write_text(RESET_PEAK)
    except OSError:
        return False
    return True


def give_back() -> None:
    """Give the system what was let go of and the C library keeps, where it can be told to."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def resident() -> dict[str, int] | None:
    """Return the resident bytes by kind, where the system tells."""
    found = {kind: _status(kind) for kind in KINDS}
    known = {kind: size for kind, size in found.items() if size is not None}
    return known or None


def growth(before: Mapping[str, int], after: Mapping[str, int]) -> int:
    """Add up what there is more of each kind: the system takes pages of files back at any time.

    Example:
        >>> growth({"RssAnon": 100, "RssFile": 80}, {"RssAnon": 130, "RssFile": 20})
        30

    """
    return sum(max(0, size - before.get(kind, 0)) for kind, size in after.items())


def peak_resident() -> int | None:
    """Return the largest resident size since the last reset."""
    peak = _status("VmHWM")
    if peak is None:
        usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return usage if sys.platform == "darwin" else usage * 1024
    return peak


def peak_of_children() -> int:
    """Add up the largest sizes of all processes that this one has started, and theirs.

    Pages that a fork shares with others count once. Of those that have ended, the system knows the
    largest.
    """
    ended = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    living = sum(map(_own_peak, descendants("self")))
    return living + (ended if sys.platform == "darwin" else ended * 1024)


def _own_peak(process: int) -> int:
    """Return the largest size of a process, less what it shares."""
    folder = PROCESSES / str(process)
    peak, size = (_status(field, folder / "status") or 0 for field in ("VmHWM", "VmRSS"))
    alone = _status("Pss", folder / "smaps_rollup")
    return max(0, peak - (size - alone)) if alone is not None else peak


def _status(field: str, file: Path = STATUS) -> int | None:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return None
