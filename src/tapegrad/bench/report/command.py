"""The one-line command that measures a row again."""

from __future__ import annotations

import glob
import shlex
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from tapegrad.bench.results import Run
from tapegrad.errors import TapegradError

#: Options with the values that need no mention.
DEFAULTS: dict[str, Any] = {
    "cases": "",
    "dtype": "",
    "device": "cpu",
    "threads": 1,
    "processes": 3,
    "rounds": 3,
    "block": 0.02,
    "cache": "warm",
    "timeout": 60.0,
    "seed": 0,
}


def command_for(run: Run, label: str | Iterable[str], phase: str = "") -> str:
    """Return the command for one case, or several, in one phase or in all that the run had.

    A user's own functions have none.

    Example:
        >>> from tapegrad.bench.results import Machine, Run
        >>> options = {"suite": "operators", "frameworks": ["torch", "jax"], "rounds": 5}
        >>> run = Run("r", "operators", 0.0, Machine("f", "laptop"), options)
        >>> command_for(run, "exp 32x64", "forward")
        "tapegrad bench run operators --frameworks torch,jax --filter 'exp 32x64' \
--phases forward --rounds 5"

    """
    if "suite" not in run.options:
        return ""
    labels = [label] if isinstance(label, str) else label
    return " ".join(shlex.quote(word) for word in _words(run.options, labels, phase))


def pattern_for(run: Run) -> str:
    """Return the command for any row, with CASE and PHASE to be filled in."""
    command = command_for(run, "CASE", "PHASE")
    return command.replace("--filter CASE", "--filter 'CASE'")


def _words(options: dict[str, Any], labels: Iterable[str], phase: str) -> Iterator[str]:
    yield from ("tapegrad", "bench", "run", str(options["suite"]))
    if options.get("frameworks"):
        yield from ("--frameworks", ",".join(dict.fromkeys(options["frameworks"])))
    yield from ("--filter", ",".join(map(_pattern, dict.fromkeys(labels))))
    for name in ("shape", "attr"):
        for value in options.get(name, []):
            yield from (f"--{name}", value)
    phases = phase or ",".join(options.get("phases", []))
    if phases:
        yield from ("--phases", phases)
    own = _defaults_of(str(options["suite"]))
    for name, default in DEFAULTS.items():
        value = options.get(name, default)
        if value != default or value != own.get(name, default):
            yield from (f"--{name}", str(value))
    if options.get("memory"):
        yield "--memory"


@cache
def _defaults_of(name: str) -> Mapping[str, Any]:
    """Return the options that a suite has of its own, if it is still there."""
    from tapegrad.bench import suites

    try:
        return suites.find(name).defaults
    except TapegradError:
        return {}


def _pattern(label: str) -> str:
    """Return a pattern that matches this label: it may hold what patterns are made of."""
    return glob.escape(label).replace(",", "?")
