"""A suite: a named list of cases, and what is worth asking of their results."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tapegrad.bench.errors import MalformedFileError
from tapegrad.bench.printable import NAME, is_name
from tapegrad.bench.results import AGAIN, Results
from tapegrad.worker.case import LEVELS, SIZES, Case


@dataclass(frozen=True)
class Bar:
    """A figure that a run must reach; `found` returns None where it was not measured."""

    title: str
    bound: float
    found: Callable[[Results], float | None]
    unit: str = "×"
    at_most: bool = False

    def met(self, value: float) -> bool:
        """Tell whether a figure reaches the bar."""
        return value <= self.bound if self.at_most else value >= self.bound


@dataclass(frozen=True)
class Suite:
    """Cases that belong together. A suite file defines one as `SUITE`."""

    name: str
    summary: str
    cases: tuple[Case, ...]
    #: Contenders if the user names none; the first is what the others are compared with.
    frameworks: tuple[str, ...] = ("torch", "tapegrad", "jax", "tensorflow", "mxnet", "numpy")
    #: Who takes part at a level (`graph`, `operator`, …), where not everybody does.
    at_level: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: The same by size: who takes minutes for a large case is left out of it.
    at_size: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: Levels at which memory is measured if that is asked for; empty: at all.
    memory_at: tuple[str, ...] = ()
    #: What the command line calls the suite that these cases were picked from, if any.
    of: str = ""
    bars: tuple[Bar, ...] = field(default=())
    #: Options of a run that the user does not give, as {"threads": 2}.
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def takes_part(self, framework: str, case: Case) -> bool:
        """Tell whether a contender is meant for a case, if the user names none."""
        chosen = self.at_level.get(case.level), self.at_size.get(case.size)
        return all(names is None or framework in names for names in chosen)

    def weighs(self, case: Case) -> bool:
        """Tell whether the memory of a case is measured if that is asked for."""
        return not self.memory_at or case.level in self.memory_at

    def check(self, where: str = "") -> None:
        """Refuse a suite that could not be measured; `where` is its file, if it has one."""
        for flaw in self._flaws():
            raise MalformedFileError(f"{where or f'suite {self.name}'}: {flaw}")

    def _flaws(self) -> Iterator[str]:
        yield from self._flaws_of_name()
        if not _all(self.cases, Case) or not self.cases:
            yield f"cases must be a tuple of at least one Case, not {_told(self.cases, Case)}."
        yield from self._flaws_of_cases()
        yield from _flaws_of_names("frameworks", self.frameworks)
        yield from _flaws_of_choice("level", self.at_level, LEVELS)
        yield from _flaws_of_choice("size", self.at_size, SIZES)
        yield from _flaws_of_names("memory_at", self.memory_at)
        for level in self.memory_at:
            if level not in LEVELS:
                yield f"memory_at: there is no level {level!r}. There are: {', '.join(LEVELS)}."
        yield from _flaws_of_defaults(self.defaults)
        if not _all(self.bars, Bar):
            yield f"bars must be a tuple of Bar, not {_told(self.bars, Bar)}."

    def _flaws_of_name(self) -> Iterator[str]:
        """Refuse what would not name a run: runs are called after their suite."""
        if not (isinstance(self.name, str) and self.name):
            yield f"a suite's name must be a text, not {self.name!r}."
        elif re.search(r"[\s/]", self.name):
            yield f"a suite's name may hold neither spaces nor slashes: {self.name!r}."
        elif not is_name(self.name):
            yield f"a suite's name is {NAME}, not {self.name!r}."
        elif self.name.endswith(AGAIN) and not self.of:
            yield f"{AGAIN} ends the names of runs that measure alarms again: not {self.name!r}."

    def _flaws_of_cases(self) -> Iterator[str]:
        seen: dict[str, int] = {}
        for number, case in enumerate(self.cases, start=1):
            for flaw in case.flaws():
                yield f"case {number} ({case.op}): {flaw}"
            first = seen.setdefault(case.key, number)
            if first != number:
                yield (
                    f"cases {first} and {number} are the same work, {case.label}; size, phases "
                    "and flops make no difference. Leave one out."
                )


def _flaws_of_choice(what: str, given: object, known: tuple[str, ...]) -> Iterator[str]:
    """Yield what is wrong with contenders by level or size."""
    if not isinstance(given, Mapping):
        yield f"at_{what} must be a dictionary from {what}s to names, not {given!r}."
        return
    for key, names in given.items():
        if key not in known:
            yield f"at_{what}: there is no {what} {key!r}. There are: {', '.join(known)}."
        yield from _flaws_of_names(f"at_{what}[{key!r}]", names)


def _flaws_of_defaults(given: object) -> Iterator[str]:
    if not isinstance(given, Mapping):
        yield f'defaults must be a dictionary like {{"threads": 2}}, not {given!r}.'


def _flaws_of_names(what: str, names: object) -> Iterator[str]:
    if not _all(names, str):
        yield f'{what} must be a tuple of names like ("torch", "numpy"), not {_told(names, str)}.'


def _all(values: object, kind: type) -> bool:
    return isinstance(values, (tuple, list)) and all(isinstance(each, kind) for each in values)


def _told(values: object, kind: type) -> str:
    """Say what came in place of a tuple: the first thing in it that does not belong there."""
    if not isinstance(values, (tuple, list)):
        return f"{repr(values)[:60]} ({type(values).__name__})"
    wrong = [each for each in values if not isinstance(each, kind)]
    return (
        f"one with {repr(wrong[0])[:60]} ({type(wrong[0]).__name__})" if wrong else "an empty one"
    )
