"""From visits to answers: the share of each operator, alone and in place, and what is left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from tapegrad.bench.profile.visits import Place, RowKey, Time, Visits
from tapegrad.bench.results import Block, Machine
from tapegrad.bench.statistics import Estimate, Ratio, estimate, ratio
from tapegrad.worker.profiling.names import ENGINE

#: Statistics of logarithms need something in place of nothing: half of what recording an event
#: takes, below which no time is seen. On a GPU recording takes nothing, and no clock shows less.
LEAST = 1e-9


class Row(msgspec.Struct, frozen=True):
    """An operator at places that are alike: same shapes, types, layouts and attributes."""

    #: PyTorch's name, and the canonical one; None where it has none.
    name: str
    operator: str | None
    modules: list[str]
    calls: int
    inputs: list[str]
    outputs: list[str]
    dtypes: list[str]
    attributes: list[str]
    #: Seconds in a step, of all calls together; None where there is no such pass.
    forward: Estimate | None
    backward: Estimate | None
    total: Estimate
    #: Of the step without a profiler.
    share: float
    #: Seconds of as many calls alone, forward and backward; `reason` says why there are none.
    alone: Estimate | None
    reason: str
    #: In place against alone.
    ratio: Ratio | None
    #: Whether a worker traced the call; otherwise it is known by its name only.
    traced: bool


class Group(msgspec.Struct, frozen=True):
    """All rows of one operator: by its canonical name where it has one, else by PyTorch's."""

    operator: str
    known: bool
    calls: int
    forward: float
    backward: float
    total: Estimate
    share: float
    #: Rows of it that ran alone: seconds alone, and in place against that.
    alone: float | None
    ratio: Ratio | None

    def gain(self, factor: float) -> float:
        """Return what part of the step would be saved if this were so many times as fast."""
        return self.share * (1 - 1 / factor)


class Profile(msgspec.Struct, frozen=True):
    """Where the time of a model's step goes."""

    model: str
    phase: str
    device: str
    threads: int
    framework: str
    machine: Machine
    #: The step without a profiler.
    step: Estimate
    #: The step with it, against without.
    inflation: Ratio
    #: Events recorded in a step, and the seconds that each takes.
    events: int
    event_seconds: float
    groups: list[Group]
    rows: list[Row]
    #: The step without all operators: dispatch, Python, waiting. Also its extremes, by visit.
    residual: float
    residual_low: float
    residual_high: float
    #: Shares of the step: operators without canonical name, and known by name only.
    unknown: float
    untraced: float
    #: The largest share of the time in which a worker had to wait for a processor.
    waited: float
    status: str
    options: dict[str, Any]

    @property
    def residual_share(self) -> float:
        """Return the part of the step that is no operator's."""
        return self.residual / self.step.time

    def top(self, count: int) -> list[Row]:
        """Return the rows with the largest shares."""
        return self.rows[:count]


def shares(visits: Visits) -> dict[RowKey, float]:
    """Return the share of each row, to choose what is worth running alone."""
    event = visits.event_seconds()
    whole = sum(visit.plain for visit in visits.places.values())
    return {key: sum(map(_total, visits.in_place(key, event).values())) / whole for key in visits}


def evaluate(visits: Visits, *, kernels: bool, **facts: Any) -> Profile:
    """Work out the profile; `kernels` were timed by the GPU, where recording costs them nothing."""
    found = _Evaluation(visits, 0.0 if kernels else visits.event_seconds())
    rows = sorted(map(found.row, visits), key=lambda row: -row.share)
    left = found.left_over()
    return Profile(
        step=found.step,
        inflation=ratio(_blocks(found.profiled), _blocks(found.plain)),
        events=round(max(visit.events for visit in visits.places.values())),
        event_seconds=visits.event_seconds(),
        groups=sorted(found.groups(), key=lambda group: -group.share),
        rows=rows,
        residual=found.step.time - sum(row.total.time for row in rows),
        residual_low=min(left),
        residual_high=max(left),
        unknown=sum(row.share for row in rows if row.operator is None),
        untraced=sum(row.share for row in rows if not row.traced and row.operator not in ENGINE),
        waited=max(visits.waited, default=0.0),
        status="interrupted" if visits.interrupted else "finished",
        **facts,
    )


class _Evaluation:
    """Times of all visits, without what recording an event took."""

    def __init__(self, visits: Visits, event: float) -> None:
        self._visits = visits
        self._least = max(LEAST, event / 2)
        self.plain = {place: visit.plain for place, visit in visits.places.items()}
        self.profiled = {place: visit.profiled for place, visit in visits.places.items()}
        self.step = estimate(_blocks(self.plain))
        self._timed = {key: visits.in_place(key, event) for key in visits}
        self._alone = {
            RowKey(row): {
                place: visits.rows[row]["calls"] * _total(time.without(event))
                for place, time in times.items()
            }
            for row, times in visits.alone.items()
        }

    def left_over(self) -> list[float]:
        """Return what no operator accounts for, visit by visit."""
        return [
            whole - sum(_total(times[place]) for times in self._timed.values())
            for place, whole in self.plain.items()
        ]

    def row(self, key: RowKey) -> Row:
        times = self._timed[key]
        totals = _totals(times)
        total = self._estimate(totals)
        alone = self._alone.get(key, {})
        return Row(
            **self._described(key),
            forward=self._part(total, totals, {at: time.forward for at, time in times.items()}),
            backward=self._part(total, totals, {at: time.backward for at, time in times.items()}),
            total=total,
            share=total.time / self.step.time,
            alone=self._pass(alone),
            reason="" if self._pass(alone) else self._reason(key, alone),
            ratio=self._ratio(totals, alone),
            traced=key.row is not None,
        )

    def groups(self) -> Iterator[Group]:
        members: defaultdict[str, list[RowKey]] = defaultdict(list)
        for key in self._timed:
            described = self._described(key)
            members[described["operator"] or described["name"]].append(key)
        for name, keys in members.items():
            yield self._group(name, keys)

    def _group(self, name: str, keys: list[RowKey]) -> Group:
        totals = _sum(_totals(self._timed[key]) for key in keys)
        total = self._estimate(totals)
        timed = [self._timed[key] for key in keys]
        forward = _sum({at: time.forward for at, time in times.items()} for times in timed)
        backward = _sum({at: time.backward for at, time in times.items()} for times in timed)
        repeated = [key for key in keys if key in self._alone]
        alone = _sum(self._alone[key] for key in repeated)
        return Group(
            operator=name,
            known=self._described(keys[0])["operator"] is not None,
            calls=sum(self._described(key)["calls"] for key in keys),
            forward=_seconds(self._part(total, totals, forward)),
            backward=_seconds(self._part(total, totals, backward)),
            total=total,
            share=total.time / self.step.time,
            alone=(self._estimate(alone).time or None) if alone else None,
            ratio=self._ratio(_sum(_totals(self._timed[key]) for key in repeated), alone),
        )

    def _estimate(self, seconds: Mapping[Place, float]) -> Estimate:
        """Estimate a time; nothing, where no visit has seen any."""
        found = estimate(_blocks(seconds, self._least))
        if max(seconds.values()) > self._least:
            return found
        return msgspec.structs.replace(found, time=0.0, low=None, high=None)

    def _part(
        self, total: Estimate, totals: Mapping[Place, float], seconds: Mapping[Place, float]
    ) -> Estimate | None:
        """Estimate a pass as its part of the total, so that both passes together are the total."""
        found = self._pass(seconds)
        if found is None:
            return None
        scale = total.time * sum(seconds.values()) / sum(totals.values()) / found.time
        ends = {
            name: None if end is None else scale * end
            for name, end in (("low", found.low), ("high", found.high))
        }
        return msgspec.structs.replace(found, time=scale * found.time, **ends)

    def _pass(self, seconds: Mapping[Place, float]) -> Estimate | None:
        found = self._estimate(seconds) if seconds else None
        return found if found is not None and found.time else None

    def _ratio(self, times: Mapping[Place, float], alone: Mapping[Place, float]) -> Ratio | None:
        if not self._pass(times) or not self._pass(alone):
            return None
        return ratio(_blocks(times, self._least), _blocks(alone, self._least))

    def _described(self, key: RowKey) -> dict[str, Any]:
        if key.row is not None:
            return self._visits.rows[key.row]
        unknown: dict[str, Any] = {
            name: [] for name in ("modules", "inputs", "outputs", "dtypes", "attributes")
        }
        return {"name": key.name, "operator": key.operator, "calls": 0} | unknown

    def _reason(self, key: RowKey, alone: Mapping[Place, float]) -> str:
        if alone:
            return "too short to be seen"
        if key.row is None:
            return "no call" if key.operator in ENGINE else "known by its name only"
        return self._visits.failures.get(key.row, "not run alone")


def _seconds(time: Estimate | None) -> float:
    return 0.0 if time is None else time.time


def _totals(times: Mapping[Place, Time]) -> dict[Place, float]:
    return {place: _total(time) for place, time in times.items()}


def _total(time: Time) -> float:
    return time.forward + time.backward


def _sum(parts: Iterable[Mapping[Place, float]]) -> dict[Place, float]:
    """Add up, over the visits that all have in common."""
    given = list(parts)
    common = given[0].keys() if given else ()
    return {
        place: sum(part[place] for part in given)
        for place in common
        if all(place in part for part in given)
    }


def _blocks(seconds: Mapping[Place, float], least: float = LEAST) -> list[Block]:
    return [
        Block("", "", "", place.process, place.round, [max(value, least)])
        for place, value in seconds.items()
    ]
