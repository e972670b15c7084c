"""What changed from one run to another, operator by operator.

A series is one case in one framework in one phase. Two runs share no moment, so their cells are
compared as a whole and beside the control kernels; of all differences that are called, at most a
given share is false (false-discovery control over all series).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tapegrad.bench import statistics
from tapegrad.bench.errors import BenchError
from tapegrad.bench.results import UNFINISHED, Block, Cell, CellKey, Framework, Results, Run
from tapegrad.bench.statistics import FEWEST, Ratio
from tapegrad.bench.store import Store
from tapegrad.worker.case import Case

#: Ratios within this of 1 make no difference in practice.
MARGIN = 0.03
#: Share of the differences called that may be false.
RATE = 0.05
#: Verdicts that call for action, and those that do not.
BAD = ("regressed", "broken")
QUIET = ("same", "undecided")
#: What a run's options say about the conditions of its times.
CONDITIONS = ("device", "threads", "cache")
#: Why times of two runs may be of different things.
ACROSS = ("machines", "devices")
#: Processes of several runs are numbered apart by this.
APART = 1_000
#: Series that are named where many have gone.
NAMED = 3


class Series(msgspec.Struct, frozen=True):
    """One case in one framework in one phase, before and after."""

    case: str
    framework: str
    phase: str
    #: The case for people, its operator and its level.
    label: str
    op: str
    level: str
    #: `regressed`, `improved`, `same`, `undecided`; `broken` where there is no longer a time, and
    #: `repaired` where there was none.
    verdict: str
    #: How many times as long it takes after; None where one side has no time.
    ratio: Ratio | None
    #: The verdicts of both cells, and what the later one says.
    before: str
    after: str
    reason: str = ""

    @property
    def key(self) -> CellKey:
        """Return the place in a run's table."""
        return CellKey(self.case, self.framework, self.phase)

    @property
    def name(self) -> str:
        """Name the series for people."""
        return _named(self.label, self.phase, self.framework)

    def __str__(self) -> str:
        if self.ratio is None:
            return f"{self.name}: {self.verdict}, {self.after} {self.reason}".strip()
        interval = f" ({self.ratio.low:.3f} to {self.ratio.high:.3f})" if self.ratio.low else ""
        return f"{self.name}: {self.verdict}, takes {self.ratio.value:.3f}{interval} times as long"


class Difference(msgspec.Struct, frozen=True):
    """A condition that was not the same in both runs."""

    what: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.what}: {self.before} -> {self.after}"


class Comparison(msgspec.Struct, frozen=True):
    """What changed from one run, or several, to another."""

    before: list[str]
    after: str
    series: list[Series]
    #: Versions, settings, commits: often the reason to compare, else a warning.
    differences: list[Difference]
    #: Whether the runs are of different machines or devices.
    across: bool
    margin: float
    rate: float
    #: Across what, as `across devices: cpu / cuda`; empty where the runs are of one machine and
    #: device.
    apart: str = ""
    #: Names of the series that had a time and were not measured again: renamed, left out, or their
    #: framework is no longer there.
    gone: list[str] = []

    def of(self, *verdicts: str) -> list[Series]:
        """Return the series with these verdicts."""
        return [series for series in self.series if series.verdict in verdicts]

    @property
    def thin(self) -> list[Series]:
        """Return what has too few processes on either side to be anything but undecided."""
        return [s for s in self.of("undecided") if s.ratio and s.ratio.processes < FEWEST]

    @property
    def regressions(self) -> list[Series]:
        """Return what got worse."""
        return self.of(*BAD)

    @property
    def missing(self) -> str:
        """Say which series were not measured again; empty where all were."""
        return missing(self.gone)

    @property
    def headline(self) -> str:
        """Say what was compared, and how many series are as they were."""
        where = f" ({self.apart})" if self.apart else ""
        quiet = [f"{len(self.of(verdict))} {verdict}" for verdict in QUIET]
        return f"{', '.join(self.before)} -> {self.after}{where}: {', '.join(quiet)}"

    def __str__(self) -> str:
        changed = [str(each) for each in self.series if each.verdict not in QUIET]
        missing = [self.missing] if self.gone else []
        return "\n".join([self.headline, *changed, *missing, *map(str, self.differences)])


def compare(
    store: Store,
    run_a: str,
    run_b: str,
    *,
    margin: float = MARGIN,
    rate: float = RATE,
    across: bool | Collection[str] = False,
) -> Comparison:
    """Tell what changed from run A to run B, operator by operator.

    Args:
        store: Where both runs are.
        run_a: The earlier run: an id, the beginning of one, or `latest~1`.
        run_b: The later run.
        margin: Ratios from 1 / (1 + margin) to 1 + margin make no difference in practice.
        rate: Share of the differences called that may be false.
        across: What may differ: `machines`, `devices`; True for both.

    Example:
        >>> from tapegrad.bench.results import Machine
        >>> from tapegrad.bench.store import open_store
        >>> from tapegrad.worker.case import Array
        >>> case = Case("operator", "softmax", (Array("x", (8, 8)),))
        >>> def enter(store, name, seconds):
        ...     store.begin(Run(name, "quick", 0.0, Machine("f0", "laptop")), [], [case])
        ...     store.add_cell(name, Cell(case.key, "numpy", "forward", "checked"))
        ...     for n in range(9):
        ...         times = [seconds * (1 + 0.001 * (n % 4))]
        ...         store.add_block(name, Block(case.key, "numpy", "forward", n % 3, n // 3, times))
        >>> with open_store(":memory:") as store:
        ...     enter(store, "monday", 1.0)
        ...     enter(store, "tuesday", 1.3)
        ...     found = compare(store, "monday", "tuesday")
        >>> [series.op for series in found.regressions]
        ['softmax']

    """
    check(margin, rate)
    before, after = (store.load(store.resolve(name).id) for name in (run_a, run_b))
    apart = _apart(before.run, after.run)
    _check_across(before.run, after.run, apart, across)
    return Comparison(
        before=[before.run.id],
        after=after.run.id,
        series=list(changes([before], after, margin=margin, rate=rate)),
        differences=list(differences(before, after)),
        across=bool(apart),
        margin=margin,
        rate=rate,
        apart="; ".join(f"across {kind}: {' / '.join(sides)}" for kind, sides in apart.items()),
        gone=list(gone(before, after)),
    )


def _check_across(
    one: Run, other: Run, apart: Mapping[str, tuple[str, str]], across: bool | Collection[str]
) -> None:
    """Refuse ratios across machines and devices that nobody asked for."""
    allowed = (ACROSS if across else ()) if isinstance(across, bool) else across
    for kind, (here, there) in apart.items():
        if kind not in allowed:
            raise BenchError(
                f"Runs {one.id} and {other.id} cannot be compared: one ran on {here}, the other on "
                f"{there}. Times then differ for other reasons than the code; compare across "
                f"{kind} on purpose (--across-{kind}) or not at all."
            )


def check(margin: float, rate: float) -> None:
    """Refuse a margin or a rate that decides nothing."""
    if not 0 <= margin < math.inf:
        raise BenchError(f"margin must be a share of at least 0, as 0.03 for 3 %, not {margin:g}.")
    if not 0 < rate < 1:
        raise BenchError(f"rate must be a share between 0 and 1, as 0.05 for 5 %, not {rate:g}.")


def changes(
    before: Sequence[Results],
    after: Results,
    *,
    margin: float = MARGIN,
    rate: float = RATE,
    since: Mapping[CellKey, int] | None = None,
) -> Iterator[Series]:
    """Compare all series of a run with those of earlier runs, oldest first.

    What never had a time is no series, and what has too few processes is undecided.
    `since` names for a series the first of the earlier runs that counts.
    """
    cases = after.case_by_key()
    earlier = _cells(before)
    blocks = _blocks_by_key([after])
    starts = since or {}
    base = _blocks_by_key(before, starts, {cell.key: cell.precision for cell in after.cells})
    compared = [
        (cases[cell.case], earlier[cell.key], cell, _ratio(blocks, base, cell, margin))
        for cell in after.cells
        if cell.key in earlier
        and cell.case in cases
        and cell.verdict != UNFINISHED
        and (cell.timed or earlier[cell.key].timed)
    ]
    told = statistics.discoveries([ratio.p if ratio else None for *_, ratio in compared], rate)
    for (case, old, new, ratio), sure in zip(compared, told, strict=True):
        yield _series(case, old, new, ratio, _verdict(old, new, ratio, sure))


def gone(before: Results, after: Results) -> Iterator[str]:
    """Name the series that had a time before and are no part of the run after."""
    cases = before.case_by_key()
    measured = {cell.key for cell in after.cells}
    for cell in before.cells:
        if cell.timed and cell.case in cases and cell.key not in measured:
            yield _named(cases[cell.case].label, cell.phase, cell.framework)


def missing(names: Sequence[str]) -> str:
    """Say that series were not measured again; nothing, where there are none."""
    named, more = names[:NAMED], len(names) - NAMED
    rest = f" and {more} more" if more > 0 else ""
    return f"Not measured any more: {', '.join(named)}{rest}" if named else ""


def same_conditions(one: Run, other: Run) -> bool:
    """Tell whether times of two runs may be compared."""
    return not _apart(one, other) and all(
        one.options.get(name) == other.options.get(name) for name in CONDITIONS
    )


def _ratio(
    blocks: Mapping[CellKey, list[Block]],
    base: Mapping[CellKey, list[Block]],
    cell: Cell,
    margin: float,
) -> Ratio | None:
    ours, theirs = base.get(cell.key), blocks.get(cell.key)
    if not cell.timed or not ours or not theirs:
        return None
    return statistics.ratio(theirs, ours, paired=False, controls=True, margin=margin)


def _verdict(old: Cell, new: Cell, ratio: Ratio | None, sure: bool) -> str:
    if old.timed and not new.timed:
        return "broken"
    if new.timed and not old.timed:
        return "repaired"
    if ratio is None or ratio.processes < FEWEST:
        return "undecided"
    if ratio.verdict == "same":
        return "same"
    if not sure:
        return "undecided"
    return {"slower": "regressed", "faster": "improved"}.get(ratio.verdict, "undecided")


def _series(case: Case, old: Cell, new: Cell, ratio: Ratio | None, verdict: str) -> Series:
    return Series(
        *new.key,
        label=case.label,
        op=case.op,
        level=case.level,
        verdict=verdict,
        ratio=ratio,
        before=old.verdict,
        after=new.verdict,
        reason=new.reason or _change_of_type(case, old, new),
    )


def _named(label: str, phase: str, framework: str) -> str:
    return f"{label} {phase} in {framework}"


def _change_of_type(case: Case, old: Cell, new: Cell) -> str:
    """Say why there is no ratio where a series is computed in another type than before."""
    if not (old.timed and new.timed) or old.precision == new.precision:
        return ""
    types = (cell.precision or case.dtype for cell in (new, old))
    return "computes in {}, and in {} before".format(*types)


def _cells(runs: Sequence[Results]) -> dict[CellKey, Cell]:
    """Return the latest verdict on each cell; one without a time does not hide an earlier time."""
    found: dict[CellKey, Cell] = {}
    for cell in (cell for run in runs for cell in run.cells if cell.verdict != UNFINISHED):
        if cell.timed or cell.key not in found:
            found[cell.key] = cell
    return found


def _blocks_by_key(
    runs: Sequence[Results],
    since: Mapping[CellKey, int] | None = None,
    precision: Mapping[CellKey, str] | None = None,
) -> dict[CellKey, list[Block]]:
    """Collect the blocks of timed cells; processes of different runs are different ones.

    Those of a cell that was computed in another `precision` are left out.
    """
    starts, types = since or {}, precision or {}
    found: dict[CellKey, list[Block]] = {}
    for number, run in enumerate(runs):
        timed = {
            cell.key
            for cell in run.cells
            if cell.timed and types.get(cell.key, cell.precision) == cell.precision
        }
        for block in run.blocks:
            if block.key in timed and number >= starts.get(block.key, 0):
                moved = msgspec.structs.replace(block, process=block.process + APART * number)
                found.setdefault(block.key, []).append(moved)
    return found


def _apart(one: Run, other: Run) -> dict[str, tuple[str, str]]:
    """Tell in what times of two runs are of different things: machines, devices."""
    found = {}
    if one.machine.fingerprint != other.machine.fingerprint:
        found["machines"] = one.machine.name, other.machine.name
    devices = tuple(str(run.options.get("device", "cpu")) for run in (one, other))
    if devices[0] != devices[1]:
        found["devices"] = devices[0], devices[1]
    return found


def differences(before: Results, after: Results) -> Iterator[Difference]:
    """Yield what was not the same in two runs: commit, machine, options, frameworks."""
    yield from _between("", {"commit": before.run.commit}, {"commit": after.run.commit})
    yield from _between(
        "machine: ", _lasting(before.run.machine.details), _lasting(after.run.machine.details)
    )
    yield from _between("option ", before.run.options, after.run.options)
    old, new = ({each.name: each for each in run.frameworks} for run in (before, after))
    for name in old.keys() & new.keys():
        yield from _between(f"{name}: ", _conditions(old[name]), _conditions(new[name]))


def _lasting(details: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what was measured, as load and bandwidth: that is another number each time."""
    return {name: value for name, value in details.items() if not isinstance(value, float)}


def _conditions(framework: Framework) -> dict[str, Any]:
    return {
        "version": framework.version,
        "environment": framework.environment,
        **framework.details,
    }


def _between(
    where: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[Difference]:
    for name in dict.fromkeys((*before, *after)):
        if before.get(name) != after.get(name):
            yield Difference(f"{where}{name}", before.get(name), after.get(name))
