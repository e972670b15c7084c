"""What workers said about a model: raw times, visit by visit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any, NamedTuple, TypeVar

#: Of the times of a visit one in so many counts, the quickest: something else ran beside the rest.
QUICKEST = 4
#: Seconds that a thread often has the processor for without a break (Linux gives it 3 ms).
SHORT = 1e-3

T = TypeVar("T")
#: What tells a step from others that do other work.
Kind = tuple[tuple[float, ...], ...]


class Place(NamedTuple):
    """One visit: a process and a round."""

    process: int
    round: int


class Time(NamedTuple):
    """Seconds forward and backward, and events that the profiler recorded in them."""

    forward: float
    backward: float
    forward_events: float = 0.0
    backward_events: float = 0.0

    def without(self, event: float) -> Time:
        """Return the time without what recording took: so many seconds for each event."""
        return Time(
            max(0.0, self.forward - event * self.forward_events),
            max(0.0, self.backward - event * self.backward_events),
        )


@dataclass(frozen=True)
class RowKey:
    """A row that was traced, by its number, or one that was not, by its name."""

    row: int | None
    name: str = ""
    operator: str | None = None


@dataclass(frozen=True)
class Visit:
    """A step of a model, with the profiler and without, and its rows."""

    plain: float
    profiled: float
    events: float
    #: What recording an event took.
    event_seconds: float
    rows: dict[RowKey, Time]


@dataclass
class Visits:
    """All that was measured."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    places: dict[Place, Visit] = field(default_factory=dict)
    #: Rows alone, for one call.
    alone: dict[int, dict[Place, Time]] = field(default_factory=dict)
    #: Rows that could not run alone, and why.
    failures: dict[int, str] = field(default_factory=dict)
    #: Shares of the time in which a worker was ready to run and others had the processor.
    waited: list[float] = field(default_factory=list)
    interrupted: bool = False

    def event_seconds(self) -> float:
        """Return what recording one event takes."""
        return median(visit.event_seconds for visit in self.places.values())

    def __iter__(self) -> Iterator[RowKey]:
        """Yield every row once."""
        return iter(dict.fromkeys(key for visit in self.places.values() for key in visit.rows))

    def in_place(self, key: RowKey, event: float) -> dict[Place, Time]:
        """Return the times of a row, without what recording took."""
        none = Time(0.0, 0.0)
        return {
            place: visit.rows.get(key, none).without(event) for place, visit in self.places.items()
        }


def visit_of(answer: dict[str, Any]) -> Visit:
    """Keep the quickest times of a visit, of each kind of step.

    A model may do other work in another step, as one that drops layers does: then the quickest
    steps would be those that do the least. Of steps without profiler it is not known which do what,
    so that all of them count.
    """
    kinds = _kinds(answer["rows"], len(answer["profiled"]))
    plain = answer["plain"] if len({*kinds}) > 1 else _quickest(answer["plain"])
    return Visit(
        plain=fmean(plain),
        profiled=_averaged(kinds, answer["profiled"], lambda times: fmean(_quickest(times))),
        events=median(answer["events"]),
        event_seconds=answer["event_seconds"],
        rows={
            _key(row): time_of(row["samples"], answer["waited"], kinds) for row in answer["rows"]
        },
    )


def _kinds(rows: list[dict[str, Any]], steps: int) -> list[Kind]:
    """Tell steps apart by the events that each row has in them."""
    return [tuple(tuple(row["samples"][step][2:]) for row in rows) for step in range(steps)]


def time_of(
    samples: list[list[float]], waited: list[float], kinds: list[Kind] | None = None
) -> Time:
    """Estimate the time of an operator in a step, forward and backward.

    On a busy machine others take the processor at any moment. The quickest times of a short
    operator escape that; those of a long one do not. Times less the share of their step that was
    waiting are right on average, if the operator is long enough to be met in many steps.
    """
    forward, backward, *events = map(list, zip(*samples, strict=True))
    kinds = kinds or [()] * len(samples)
    passes = (
        _averaged(kinds, [*zip(times, waited, strict=True)], _undisturbed)
        for times in (forward, backward)
    )
    return Time(*passes, *map(fmean, events))


def _averaged(kinds: list[Kind], values: list[T], estimate: Callable[[list[T]], float]) -> float:
    """Estimate for each kind of step, and average over the steps."""
    members: defaultdict[Kind, list[T]] = defaultdict(list)
    for kind, value in zip(kinds, values, strict=True):
        members[kind].append(value)
    return sum(len(alike) * estimate(alike) for alike in members.values()) / len(values)


def _undisturbed(times: list[tuple[float, float]]) -> float:
    """Estimate from times, each with the share of its step that was waiting."""
    quickest = fmean(_quickest(time for time, _ in times))
    if quickest < SHORT:
        return quickest
    return min(quickest, fmean(time * (1 - share) for time, share in times))


def _key(row: dict[str, Any]) -> RowKey:
    if row["row"] is not None:
        return RowKey(row["row"])
    return RowKey(None, row["name"], row["operator"])


def _quickest(times: Iterable[float]) -> list[float]:
    ordered = sorted(times)
    return ordered[: max(1, len(ordered) // QUICKEST)]
