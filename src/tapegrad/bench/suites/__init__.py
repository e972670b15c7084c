"""One file per suite; each defines `SUITE`."""

from __future__ import annotations

import importlib.util
import sys
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path

from tapegrad.bench.errors import MalformedFileError, UnknownNameError
from tapegrad.bench.suite import Suite


def names() -> list[str]:
    """Return the names of the suites that ship with the package."""
    files = Path(__file__).parent.glob("[!_]*.py")
    return sorted(file.stem.replace("_", "-") for file in files)


def find(name: str) -> Suite:
    """Return a suite by name, or from a file of the user's."""
    if name.endswith(".py"):
        return _from_file(Path(name))
    if name not in names():
        raise UnknownNameError("suite", name, names(), "A path to a suite file works too.")
    suite: Suite = import_module(f"tapegrad.bench.suites.{name.replace('-', '_')}").SUITE
    return suite


def work_at(level: str) -> set[str]:
    """Return what the suites that ship call operators, layers, … of a level."""
    return {case.op for name in names() for case in find(name).cases if case.level == level}


def _from_file(file: Path) -> Suite:
    spec = importlib.util.spec_from_file_location(f"tapegrad_suite_{file.stem}", file)
    if not file.is_file() or spec is None or spec.loader is None:
        raise MalformedFileError(f"There is no suite file {file}.")
    module = importlib.util.module_from_spec(spec)
    try:
        with redirect_stdout(sys.stderr):  # which reports keep for themselves
            spec.loader.exec_module(module)
    except SystemExit as error:
        raise MalformedFileError(
            f"{file} ends the program by sys.exit({error.code!r}); a suite file only defines SUITE."
        ) from error
    except Exception as error:
        raise MalformedFileError(f"{file}: {type(error).__name__}: {error}") from error
    suite = getattr(module, "SUITE", None)
    if not isinstance(suite, Suite):
        raise MalformedFileError(f"{file} does not define SUITE, a tapegrad.bench.Suite.")
    suite.check(str(file))
    return suite
