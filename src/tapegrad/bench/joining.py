"""Several runs of one suite as one: a suite may be measured in parts, or go on another day.

A case comes from one of the runs as a whole, so that a ratio never compares two moments. It is the
run that settled most of its cells, and of equals the last one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import structs

from tapegrad.bench.errors import BenchError
from tapegrad.bench.results import UNFINISHED, Framework, Results

#: Options that decide what a time means: runs that differ in one of them are not one.
SAME = ("device", "threads", "processes", "rounds", "block", "cache", "seed")


def joined(several: Sequence[Results]) -> Results:
    """Make one of runs of the same suite, machine, options and framework versions."""
    first, *others = several
    for other in others:
        _expect_alike(first, other)
    if not others:
        return first
    source = _sources(several)
    parts = [
        (results, {key for key, each in source.items() if each is results}) for results in several
    ]
    cases = {key: content for results in several for key, content in _cases(results).items()}
    return Results(
        run=structs.replace(
            first.run,
            id=", ".join(results.run.id for results in several),
            commit=first.run.commit if len({each.run.commit for each in several}) == 1 else "",
            options=first.run.options | {"frameworks": list(_frameworks(several)), "filter": []},
            finished=several[-1].run.finished,
        ),
        frameworks=list(_frameworks(several).values()),
        cases=list(cases.values()),
        cells=[cell for results, keys in parts for cell in results.cells if cell.case in keys],
        blocks=[block for results, keys in parts for block in results.blocks if block.case in keys],
        memory=[each for results, keys in parts for each in results.memory if each.case in keys],
    )


def _sources(several: Sequence[Results]) -> dict[str, Results]:
    """Choose a run for each case."""
    source: dict[str, Results] = {}
    most: dict[str, int] = {}
    for results in several:
        settled = Counter(cell.case for cell in results.cells if cell.verdict != UNFINISHED)
        for key in _cases(results):
            if settled[key] >= most.get(key, 0):
                source[key], most[key] = results, settled[key]
    return source


def _cases(results: Results) -> dict[str, dict[str, object]]:
    return dict(zip(results.case_by_key(), results.cases, strict=True))


def _frameworks(several: Sequence[Results]) -> dict[str, Framework]:
    return {each.name: each for results in several for each in results.frameworks}


def _expect_alike(first: Results, other: Results) -> None:
    """Refuse to show times side by side that mean different things."""
    versions = {each.name: each.version for each in first.frameworks}
    pairs = [
        ("suite", first.run.suite, other.run.suite),
        ("machine", first.run.machine.name, other.run.machine.name),
        *((name, first.run.options.get(name), other.run.options.get(name)) for name in SAME),
        *(
            (f"version of {each.name}", versions[each.name], each.version)
            for each in other.frameworks
            if each.name in versions
        ),
    ]
    for what, here, there in pairs:
        if here != there:
            raise BenchError(
                f"Runs {first.run.id} and {other.run.id} are not one: {what} {here} and {there}. "
                "`tapegrad bench compare` sets runs against each other."
            )
