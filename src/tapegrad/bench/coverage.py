"""Which of a framework's own operators the cases of a suite run, and which none does.

Both lists come from the framework in its worker: what it has from its registry, what a case runs
by tracing it forward and backward at its smallest size. Nothing is declared, so nothing goes stale.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tapegrad.bench import answers, inputs
from tapegrad.bench.errors import WorkerError
from tapegrad.bench.frameworks import Contender
from tapegrad.bench.process import Worker
from tapegrad.bench.suite import Suite
from tapegrad.bench.suites import operators
from tapegrad.bench.team import ProcessTeam
from tapegrad.worker.case import SIZES, Case

SECONDS = 60.0


@dataclass(frozen=True)
class Coverage:
    """What one framework has, and what of it is measured."""

    framework: str
    version: str
    #: Operators that the framework says it has, by group.
    registered: Mapping[str, Sequence[str]]
    #: Operator that a case ran -> the cases, as their operators are called in the suite.
    reached: Mapping[str, Sequence[str]]
    #: Label of a case that could not be traced -> why.
    untraced: Mapping[str, str]
    #: Why nothing is known, if so.
    reason: str = ""

    @property
    def counts(self) -> dict[str, tuple[int, int]]:
        """Count what is registered and what of it is measured, by group and of `all`."""
        found = {
            group: (len(names), len(self.measured(group)))
            for group, names in self.registered.items()
        }
        both = [sum(column) for column in zip(*found.values(), strict=True)]
        return found | {"all": (both[0], both[1])} if both else found

    def measured(self, group: str) -> list[str]:
        """Return the operators of a group that some case runs."""
        return [name for name in self.registered[group] if name in self.reached]

    def unmeasured(self, group: str) -> list[str]:
        """Return the operators of a group that no case runs."""
        return [name for name in self.registered[group] if name not in self.reached]

    def as_dict(self) -> dict[str, Any]:
        """Turn it into plain values for JSON."""
        names = [name for group in self.registered for name in self.measured(group)]
        return {
            "framework": self.framework,
            "version": self.version,
            "reason": self.reason,
            "counts": {
                group: {"registered": registered, "measured": measured}
                for group, (registered, measured) in self.counts.items()
            },
            "measured": {name: list(self.reached[name]) for name in names},
            "unmeasured": {group: self.unmeasured(group) for group in self.registered},
            "untraced": dict(self.untraced),
        }


@dataclass(frozen=True)
class Category:
    """How much of the suite `operators` is of one kind."""

    name: str
    operators: int
    #: Cases of one size class: an operator has one or more, which differ in attributes or in how
    #: their inputs broadcast.
    variants: int
    #: Operators with two variants or more.
    varied: int


def categories() -> list[Category]:
    """Count the operators and variants of each category of the suite `operators`."""
    found = []
    for name, cases in operators.CATEGORIES.items():
        counts = Counter(case.op for case in cases() if case.size == SIZES[0])
        varied = sum(count > 1 for count in counts.values())
        found.append(Category(name, len(counts), counts.total(), varied))
    return found


def smallest(suite: Suite) -> list[Case]:
    """Return the cases of each operator in the smallest size class that it has."""
    first: dict[str, int] = {}
    for case in suite.cases:
        first[case.op] = min(first.get(case.op, len(SIZES)), SIZES.index(case.size))
    return [case for case in suite.cases if SIZES.index(case.size) == first[case.op]]


def coverage_of(contender: Contender, cases: Iterable[Case]) -> Coverage:
    """Ask a framework what it has and trace the cases."""
    folder = Path(tempfile.mkdtemp(prefix="tapegrad-coverage-"))
    team = ProcessTeam(contender, folder, threads=1, device="cpu", timeout=SECONDS)
    try:
        registered = team.worker(0).ask("registry")["operators"]
        reached: dict[str, dict[str, None]] = {}
        untraced = {}
        for case in cases:
            try:
                for name in _calls(team.worker(0), case, folder):
                    reached.setdefault(name, {})[case.op] = None
            except WorkerError as error:
                untraced[case.label] = str(error)
        version = str(team.greeting()["version"])
        lists = {name: list(ops) for name, ops in reached.items()}
        return Coverage(contender.name, version, registered, lists, untraced)
    except WorkerError as error:
        return Coverage(contender.name, "", {}, {}, {}, reason=f"{error.kind}: {error}")
    finally:
        team.close()
        shutil.rmtree(folder, ignore_errors=True)


def _calls(worker: Worker, case: Case, folder: Path) -> list[str]:
    """Trace a case: forward and backward in one go where it has a backward pass."""
    paths = inputs.save(inputs.make_inputs(case, 0), folder / "inputs")
    offered = worker.ask("prepare", case=case.as_dict(), arrays=paths)["phases"]
    if case.wrt and "forward" in offered:
        outputs = answers.load(worker.ask("check", phase="forward", folder=str(folder / "outputs")))
        cotangents = inputs.make_cotangents(case, list(outputs.values()), 0)
        named = {f"cotangent{index}": each for index, each in enumerate(cotangents)}
        files = inputs.save(named, folder / "cotangents")
        worker.ask("feed", arrays=paths, cotangents=list(files.values()))
    phase = next(name for name in ("step", "forward", "inference") if name in offered)
    calls: list[str] = worker.ask("calls", phase=phase)["calls"]
    worker.ask("forget")
    return calls
