"""A suite every night: what changed, confirmed before anyone is told.

1. Run the suite and compare it, series by series, with the last finished nights under the same
   conditions that measured the series, with false-discovery control. A series that has changed its
   level lately is compared with the nights since.
2. Look for steps in each series' history, which find what creeps up over several nights.
3. Measure again, in new processes, only what alarmed. An alarm counts if the second measurement
   differs from the same nights in the same direction; that of a step, from the nights before it.
"""

from __future__ import annotations

import glob
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import msgspec

from tapegrad.bench import changepoints, frameworks, suites
from tapegrad.bench.changepoints import SHORTEST, Change
from tapegrad.bench.driver import Listener, run
from tapegrad.bench.errors import BenchError
from tapegrad.bench.regressions.changes import (
    BAD,
    MARGIN,
    RATE,
    Comparison,
    Series,
    changes,
    check,
    differences,
    gone,
    missing,
    same_conditions,
)
from tapegrad.bench.results import AGAIN, CellKey, Results, Run
from tapegrad.bench.statistics import FEWEST
from tapegrad.bench.store import Store
from tapegrad.bench.suite import Suite

#: Nights that make the baseline.
NIGHTS = 5
#: Options that choose what is measured; a confirmation chooses for itself.
CHOICES = ("suite", "filter", "shape", "attr", "cases", "sizes", "phases", "frameworks", "dtype")
#: Said where what alarmed was not measured again to the end.
CUT_OFF = (
    "Interrupted while alarms were measured again: those not confirmed are open. "
    "Tonight's run is kept; start another night to decide them."
)
ALARMING = ("regressed", "improved", "broken")


class Step(msgspec.Struct, frozen=True):
    """A step in the history of a series that shows since this night."""

    series: Series
    change: Change

    def __str__(self) -> str:
        return (
            f"{self.series.name}: {self.change.ratio:.3f} times as long since {self.change.label}"
        )


class Alarm(msgspec.Struct, frozen=True):
    """A series that changed, and what a second measurement says."""

    series: Series
    #: The series as measured again; None where that was not possible.
    again: Series | None

    @property
    def confirmed(self) -> bool:
        """Whether both measurements say the same."""
        return self.again is not None and self.again.verdict == self.series.verdict

    def __str__(self) -> str:
        state = "confirmed" if self.confirmed else "not confirmed"
        return f"{self.series} [{state}: {self.again or 'could not be measured again'}]"


class Nightly(msgspec.Struct, frozen=True):
    """What a night found."""

    run: str
    #: `finished` or `interrupted`.
    status: str
    #: None where there was nothing to compare with: the first night is the baseline.
    comparison: Comparison | None
    alarms: list[Alarm]
    steps: list[Step]
    #: Whether there is any time at all.
    measured: bool = True
    #: Names of series that an earlier night measured, where none of them is compared.
    gone: list[str] = []

    @property
    def first(self) -> bool:
        """Whether this night is the baseline."""
        return self.comparison is None

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the run, or the measuring again of what alarmed."""
        return self.status != "finished"

    @property
    def regressions(self) -> list[Series]:
        """Return what got worse for sure."""
        return [a.series for a in self.alarms if a.confirmed and a.series.verdict in BAD]

    @property
    def improvements(self) -> list[Series]:
        """Return what got better for sure."""
        return [a.series for a in self.alarms if a.confirmed and a.series.verdict == "improved"]

    @property
    def exit_code(self) -> int:
        """Return 1 on a confirmed regression, 130 after Ctrl-C, 4 without any time, else 0."""
        if self.regressions:
            return 1
        if self.interrupted:
            return 130
        return 0 if self.measured else 4

    def __str__(self) -> str:
        if self.comparison is None and self.interrupted:
            return (
                f"{self.run} was interrupted: nothing is compared, and what was measured is kept. "
                f"Go on with:\n  tapegrad bench run --resume {self.run}"
            )
        if not self.measured:
            return f"{self.run}: nothing could be measured."
        if self.comparison is None:
            first = f"{self.run} is the first night: it is the baseline of those to come."
            return "\n".join([first, *filter(None, [missing(self.gone)])])
        steps = [f"step in the history of {each}" for each in self.steps]
        alarms = [str(each) for each in self.alarms] or ["nothing changed"]
        other = [str(each) for each in self.comparison.differences]
        if self.comparison.gone:
            other.insert(0, self.comparison.missing)
        cut_off = [CUT_OFF] if self.interrupted else []
        return "\n".join([self.comparison.headline, *alarms, *steps, *other, *cut_off])


def nightly(
    store: Store,
    suite: str | Suite,
    *,
    margin: float = MARGIN,
    rate: float = RATE,
    nights: int = NIGHTS,
    listener: Listener | None = None,
    **options: Any,
) -> Nightly:
    """Run a suite, compare it with the nights before, and confirm what changed.

    Args:
        store: Where all nights are.
        suite: A suite or its name.
        margin: Ratios from 1 / (1 + margin) to 1 + margin make no difference in practice.
        rate: Share of the differences called that may be false.
        nights: How many earlier nights to compare with.
        listener: Hears how the runs go.
        options: As for `bench.run`.

    """
    check(margin, rate)
    if nights < 1:
        raise BenchError(f"nights must be at least 1, not {nights}.")
    found = suites.find(suite) if isinstance(suite, str) else suite
    _expect_processes({**found.defaults, **options})
    tonight = run(suite, store=store, listener=listener, **options)
    before = _earlier(store, tonight, nights)
    if not before or not _finished(tonight):
        measured = any(cell.timed for cell in tonight.cells)
        lost = _gone(store, tonight) if _finished(tonight) else []
        return Nightly(tonight.run.id, tonight.run.status, None, [], [], measured, lost)
    history = _History(store, tonight.run)
    since = history.starts(before, tonight, margin)
    series = list(changes(before, tonight, margin=margin, rate=rate, since=since))
    steps = [step for each in series if (step := history.step(each, margin)) is not None]
    suspects = _suspects(series, steps)
    again = list(_again(store, listener, _choices(found, suspects, tonight)))
    crept = _crept(series, steps)
    second: dict[CellKey, Series] = {}
    for results in again:
        for each in changes(before, results, margin=margin, rate=rate, since=since):
            second[each.key] = each
        for each in _since_steps(store, history, crept, results, margin=margin, rate=rate):
            second[each.key] = each
    comparison = Comparison(
        before=[each.run.id for each in before],
        after=tonight.run.id,
        series=series,
        differences=list(differences(before[-1], tonight)),
        across=False,
        margin=margin,
        rate=rate,
        gone=_gone(store, tonight),
    )
    return Nightly(
        run=tonight.run.id,
        status=next((each.run.status for each in again if not _finished(each)), "finished"),
        comparison=comparison,
        alarms=[Alarm(each, second.get(each.key)) for each in suspects],
        steps=steps,
        measured=any(cell.timed for cell in tonight.cells),
    )


def _expect_processes(options: Mapping[str, Any]) -> None:
    """Refuse a night that could tell nothing, before it is spent."""
    processes = options.get("processes", FEWEST)
    if isinstance(processes, int) and processes < FEWEST:
        raise BenchError(
            f"processes must be at least {FEWEST} in a night, not {processes}: fewer do not tell a "
            "change from the difference between two processes of the same program."
        )


def _again(
    store: Store, listener: Listener | None, choices: Iterable[tuple[Suite, dict[str, Any]]]
) -> Iterator[Results]:
    """Measure what alarmed again; Ctrl-C ends all of it."""
    for suite, options in choices:
        results = run(suite, store=store, listener=listener, **options)
        yield results
        if not _finished(results):
            return


def _finished(results: Results) -> bool:
    return results.run.status == "finished"


def _earlier(store: Store, tonight: Results, nights: int) -> list[Results]:
    """Return of the nights before what tonight is compared with, oldest first.

    That is for each series its last nights: a run of a few cases is none for all the others.
    """
    wanted: dict[str, set[CellKey]] = {}
    usable = _usable(store, tonight.run)
    for cell in tonight.cells:
        known = store.verdicts(*cell.key)
        for run_id in [each.id for each in usable if each.id in known][:nights]:
            wanted.setdefault(run_id, set()).add(cell.key)
    chosen = [each.id for each in reversed(usable) if each.id in wanted]
    return [_only(store.load(run_id), wanted[run_id]) for run_id in chosen]


def _usable(store: Store, tonight: Run) -> list[Run]:
    """Return the finished runs of the suite under the same conditions, newest first."""
    known = store.runs(suite=tonight.suite, machine=tonight.machine.fingerprint)
    return [
        each
        for each in known
        if each.id != tonight.id and each.status == "finished" and same_conditions(each, tonight)
    ]


def _gone(store: Store, tonight: Results) -> list[str]:
    """Name what the last night that was asked for the same measured and tonight did not."""
    asked = [tonight.run.options.get(name) for name in CHOICES]
    for each in _usable(store, tonight.run):
        if [each.options.get(name) for name in CHOICES] == asked:
            return list(gone(store.load(each.id), tonight))
    return []


def _only(results: Results, keys: Collection[CellKey]) -> Results:
    """Leave out the other series of a run."""
    cells = [each for each in results.cells if each.key in keys]
    blocks = [each for each in results.blocks if each.key in keys]
    return msgspec.structs.replace(results, cells=cells, blocks=blocks)


class _History:
    """The nights of each series under tonight's conditions, tonight the last.

    Only times count that were believed, and that are of the type that is computed in tonight.
    """

    def __init__(self, store: Store, tonight: Run) -> None:
        self._store = store
        self._tonight = tonight
        self._nights: dict[CellKey, list[changepoints.Night]] = {}

    def step(self, series: Series, margin: float) -> Step | None:
        """Return the last step of a series if it did not show yesterday."""
        nights = self._of(series.key)
        known = self._known(series.key, margin)
        change = changepoints.latest_change(nights, margin) if nights else None
        if change is None or (known is not None and change.index < known.index + SHORTEST):
            return None
        return Step(series, change)

    def before(self, step: Step) -> list[str]:
        """Return the last runs before a step, as many as surely had one level."""
        stop = step.change.index
        return [night.label for night in self._of(step.series.key)[stop - SHORTEST : stop]]

    def starts(
        self, before: Sequence[Results], tonight: Results, margin: float
    ) -> dict[CellKey, int]:
        """Tell for each series from which of the earlier runs on its level has been the same."""
        labels = [each.run.id for each in before]
        found: dict[CellKey, int] = {}
        for cell in tonight.cells:
            change = self._known(cell.key, margin)
            if change is not None and change.label in labels:
                found[cell.key] = labels.index(change.label)
        return found

    def _known(self, key: CellKey, margin: float) -> Change | None:
        """Return the last step as it showed yesterday."""
        nights = [night for night in self._of(key) if night.label != self._tonight.id]
        return changepoints.latest_change(nights, margin) if nights else None

    def _of(self, key: CellKey) -> list[changepoints.Night]:
        if key not in self._nights:
            machine = self._tonight.machine.fingerprint
            alike = self._alike(key)
            self._nights[key] = [
                changepoints.Night(each.id, [median(block.samples) for block in blocks])
                for each, blocks in self._store.history(*key, machine=machine)
                if each.id in alike
                and each.suite == self._tonight.suite
                and (each.status == "finished" or each.id == self._tonight.id)
                and same_conditions(each, self._tonight)
            ]
        return self._nights[key]

    def _alike(self, key: CellKey) -> set[str]:
        """Return the runs with a time in the type of tonight's."""
        cells = self._store.verdicts(*key)
        tonight = cells.get(self._tonight.id)
        wanted = tonight.precision if tonight else ""
        return {run for run, cell in cells.items() if cell.timed and cell.precision == wanted}


def _since_steps(
    store: Store,
    history: _History,
    steps: Sequence[Step],
    after: Results,
    *,
    margin: float,
    rate: float,
) -> Iterator[Series]:
    """Compare series that crept up to a step with the nights before it, which are long past."""
    measured = {cell.key for cell in after.cells}
    for step in steps:
        key = step.series.key
        if key in measured:
            before = [store.load(label) for label in history.before(step)]
            found = changes(before, after, margin=margin, rate=rate)
            yield from (each for each in found if each.key == key)


def _crept(series: Sequence[Series], steps: Sequence[Step]) -> list[Step]:
    """Return the steps of what did not alarm by itself tonight."""
    alarmed = {each.key for each in series if each.verdict in ALARMING}
    return [step for step in steps if step.series.key not in alarmed]


def _suspects(series: Sequence[Series], steps: Sequence[Step]) -> list[Series]:
    """Return what alarmed tonight, and what has crept up to a step."""
    alarmed = [each for each in series if each.verdict in ALARMING]
    for step in _crept(series, steps):
        verdict = "regressed" if step.change.ratio > 1 else "improved"
        alarmed.append(msgspec.structs.replace(step.series, verdict=verdict))
    return alarmed


def _choices(
    suite: Suite, suspects: Sequence[Series], tonight: Results
) -> Iterator[tuple[Suite, dict[str, Any]]]:
    """Yield runs of only what alarmed, under a suite name of its own, with tonight's options."""
    cases, options = tonight.case_by_key(), tonight.run.options
    paths = {frameworks.find(name).name: name for name in options["frameworks"] or suite.frameworks}
    rest = {name: value for name, value in options.items() if name not in CHOICES}
    for pair in dict.fromkeys((each.framework, each.phase) for each in suspects):
        chosen = [cases[each.case] for each in suspects if (each.framework, each.phase) == pair]
        again = Suite(
            name=f"{suite.name}{AGAIN}",
            summary=f"alarms of {tonight.run.id}",
            cases=tuple(chosen),
            of=str(tonight.run.options["suite"]),
        )
        labels = [glob.escape(case.label) for case in chosen]
        yield (
            again,
            rest
            | {
                "frameworks": [paths[pair[0]]],
                "phases": [pair[1]],
                "filter": labels,
            },
        )
