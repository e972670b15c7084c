"""What the command line ends with: one table, shown by --help and in the docs."""

from __future__ import annotations

FINE = 0
MISSED = 1
USAGE = 2
STORE = 3
NOTHING_MEASURED = 4
INSTALL = 5
NO_ROOM = 6
DEFECT = 70
INTERRUPTED = 130
READER_LEFT = 141

MEANINGS = {
    FINE: "fine",
    MISSED: "a regression, a bar that was missed, or a fault that the audit did not flag",
    USAGE: "wrong usage: an unknown name or option, a malformed file",
    STORE: "the store is missing, locked, full, read-only, unreachable or from a newer version",
    NOTHING_MEASURED: "nothing could be measured, or compared",
    INSTALL: "a framework could not be installed",
    NO_ROOM: "the folder for temporary files (TMPDIR), or the output, is full or cannot be written",
    DEFECT: "a defect of tapegrad itself, shown with its traceback; please report it",
    INTERRUPTED: "interrupted by Ctrl-C or SIGTERM; what was measured is kept",
    READER_LEFT: "whoever read the output stopped before its end, as `head` does",
}


def code_of(error: Exception) -> int:
    """Return the code for an error of this library."""
    from tapegrad.bench.store import StoreError, StoreUrlError, UnknownRunError

    if isinstance(error, (StoreUrlError, UnknownRunError)):
        return USAGE
    if isinstance(error, StoreError):
        return STORE
    return int(getattr(error, "exit_code", USAGE))


def explanation() -> str:
    """Return the table for --help."""
    lines = (f"  {code:>3}  {meaning}" for code, meaning in MEANINGS.items())
    return "\n".join(["Exit codes:", *lines])
