"""Several runs of one suite as one: a suite may be measured in parts, or go on another day.

A case comes from one of the runs as a whole, so that a ratio never compares two moments. It is the
run that has times of most of its cells, then the one that settled most, and of equals the last one.
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
    runs = [results.run for results in several]
    # Without a suite among the options there is no command: that of one run repeats no other's row.
    options = {name: value for name, value in first.run.options.items() if name in SAME}
    return Results(
        run=structs.replace(
            first.run,
            id=", ".join(run.id for run in runs),
            started=min(run.started for run in runs),
            status=next((run.status for run in runs if run.status != "finished"), "finished"),
            commit=first.run.commit if len({run.commit for run in runs}) == 1 else "",
            options=options,
            finished=max((run.finished for run in runs if run.finished), default=None),
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
    most: dict[str, tuple[int, int]] = {}
    for results in several:
        timed = Counter(cell.case for cell in results.cells if cell.timed)
        settled = Counter(cell.case for cell in results.cells if cell.verdict != UNFINISHED)
        for key in _cases(results):
            if (found := (timed[key], settled[key])) >= most.get(key, (0, 0)):
                source[key], most[key] = results, found
    return source


def shared(several: Sequence[Results]) -> int:
    """Count the cases that are in more than one run, of which only one run is shown."""
    counts = Counter(key for results in several for key in _cases(results))
    return sum(count > 1 for count in counts.values())


def _cases(results: Results) -> dict[str, dict[str, object]]:
    return dict(zip(results.case_by_key(), results.cases, strict=True))


def _frameworks(several: Sequence[Results]) -> dict[str, Framework]:
    return {each.name: each for results in several for each in results.frameworks}


def _expect_alike(first: Results, other: Results) -> None:
    """Refuse to show times side by side that mean different things."""
    known = {each.name: each for each in first.frameworks}
    pairs = [
        ("suite", first.run.suite, other.run.suite),
        ("machine", first.run.machine.name, other.run.machine.name),
        ("machine's fingerprint", first.run.machine.fingerprint, other.run.machine.fingerprint),
        *((name, first.run.options.get(name), other.run.options.get(name)) for name in SAME),
        *(
            (f"{what} of {each.name}", getattr(known[each.name], what), getattr(each, what))
            for each in other.frameworks
            if each.name in known
            for what in ("version", "environment")
        ),
    ]
    for what, here, there in pairs:
        if here != there:
            raise BenchError(
                f"Runs {first.run.id} and {other.run.id} are not one: {what} {here} and {there}. "
                "`tapegrad bench compare` sets runs against each other."
            )
