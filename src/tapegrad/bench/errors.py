"""What the bench raises, each with the exit code that the command line ends with."""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable

from tapegrad.errors import TapegradError

#: What others call something that has another name here.
ALIASES = {"gpu": "cuda", "nvidia": "cuda", "pytorch": "torch"}


class BenchError(TapegradError):
    """The base of all errors of the bench."""

    exit_code = 2


class UnknownNameError(BenchError, LookupError):
    """A suite, framework, operator, size, phase or device that does not exist."""

    def __init__(self, kind: str, name: str, known: Iterable[str], advice: str = "") -> None:
        names = list(known)
        meant = [other for other in names if other == ALIASES.get(name.lower())]
        close = meant or difflib.get_close_matches(name, names, n=3, cutoff=0.6)
        guess = f"Did you mean {' or '.join(close)}?" if close else ""
        listing = f"There are: {', '.join(names)}." if names else "There is none at all."
        sentences = (
            f"There is no {kind} {name!r}.",
            guess,
            listing if len(names) <= 20 else "",
            advice,
        )
        super().__init__(" ".join(filter(None, sentences)))


class MalformedFileError(BenchError, ValueError):
    """A user's suite or adapter file cannot be used."""


class OutputError(BenchError, RuntimeError):
    """A file that was asked for could not be written: there is no room, or no such place."""

    def __init__(self, path: object, error: OSError) -> None:
        super().__init__(f"{path} cannot be written: {error.strerror}.")
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            self.exit_code = 6


class InstallError(BenchError, RuntimeError):
    """A framework could not be installed."""

    exit_code = 5


class WorkerError(BenchError, RuntimeError):
    """A worker could not do what it was asked: `kind` is the verdict that its cell gets."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
