"""Peak memory of this process."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")
#: Written to CLEAR, this sets the recorded peak back to the present size.
RESET_PEAK = "5"


def reset_peak() -> bool:
    """Forget the peak so far; false where the system cannot."""
    try:
        CLEAR.write_text(RESET_PEAK)
    except OSError:
        return False
    return True


def resident() -> int | None:
    """Return the resident bytes, where the system tells."""
    return _status("VmRSS")


def peak_resident() -> int | None:
    """Return the largest resident size since the last reset."""
    peak = _status("VmHWM")
    if peak is None:
        usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return usage if sys.platform == "darwin" else usage * 1024
    return peak


def _status(field: str) -> int | None:
    try:
        lines = STATUS.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return None
