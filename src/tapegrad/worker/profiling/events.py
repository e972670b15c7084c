"""What PyTorch's profiler recorded, as operators with their time, forward and backward.

A recorded event is a call; calls within it are its children. The events at the top are what the
model asked for, and the nodes that the autograd engine ran. Ranges that a user named are looked
through. A node carries the sequence number that was current when its operator began; operators
that made no node leave the number to the next one, so a node belongs to the last that had it.
Operators within a node that have numbers of their own are a checkpoint's, done once more: their
time is that of the operators that they repeat, in the backward pass.

On a GPU the time of an operator is that of its kernels, and what the processor did meanwhile is not
counted.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

#: Names of our own ranges: one step or repetition, and what is no part of it.
STEP = "tapegrad:step"
ASIDE = "tapegrad:aside"
CALL = "tapegrad:call "
NODE = "autograd::engine::evaluate_function: "
#: Of `at::RecordScope`: ranges that somebody named.
USER_SCOPE = 7
#: And plain calls.
FUNCTION_SCOPE = 0
#: The profiler's own work and calls of CUDA (cudaLaunchKernel, cuMemcpy…), which are no operators.
NOT_OPERATOR = re.compile(r"cu(da)?[A-Z][^:]*$|Activity Buffer|ProfilerStep|\[")


@dataclass(eq=False)
class Operator:
    """One operator at the top of the tree, or several nodes of the engine that are nobody's."""

    name: str
    forward: float = 0.0
    backward: float = 0.0
    #: Recorded events in both; each has taken the profiler some time.
    forward_events: float = 0.0
    backward_events: float = 0.0
    #: The call, of those that were traced, in whose range it stands.
    call: int | None = None

    def add(self, other: Operator) -> None:
        """Take on the time of another."""
        self.forward += other.forward
        self.backward += other.backward
        self.forward_events += other.forward_events
        self.backward_events += other.backward_events

    @property
    def sample(self) -> list[float]:
        """Return seconds and events, as messages carry them."""
        return [self.forward, self.backward, self.forward_events, self.backward_events]


@dataclass
class Step:
    """What was recorded of one step, in order."""

    operators: list[Operator] = field(default_factory=list)
    #: Nodes of the engine that no operator of the step has made, by their name.
    unlinked: dict[str, Operator] = field(default_factory=dict)
    events: int = 0


@dataclass(frozen=True)
class _Top:
    event: Any
    call: int | None


def recorded(device: str, run: Callable[[], None]) -> list[Step]:
    """Run something under the profiler and return the steps that it marked as such."""
    activities = [ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities, acc_events=True) as profiler:
        run()
    on_cpu = torch.autograd.DeviceType.CPU
    events = [event for event in profiler.events() if event.device_type == on_cpu]
    return _steps(events, device)


def step_range() -> Any:
    """Mark what is one step."""
    return record_function(STEP)


def _steps(events: list[Any], device: str) -> list[Step]:
    marks = sorted((e for e in events if e.name == STEP), key=lambda e: e.time_range.start)
    starts = [mark.time_range.start for mark in marks]
    steps = [Step() for _ in marks]
    owners: dict[int, Operator] = {}
    seconds = _kernel_seconds if device == "cuda" else _seconds
    for top in sorted(_tops(events), key=lambda top: top.event.time_range.start):
        index = bisect_right(starts, top.event.time_range.start) - 1
        if index < 0 or top.event.time_range.start > marks[index].time_range.end:
            continue
        count = _count(top.event)
        steps[index].events += count
        if top.event.name.startswith(NODE):
            _add_node(steps[index], owners, top.event, seconds)
        else:
            operator = Operator(top.event.name, seconds(top.event), call=top.call)
            operator.forward_events = _inside(count)
            steps[index].operators.append(operator)
            for event in (top.event, *_below(top.event)):
                if event.sequence_nr >= 0:
                    owners[event.sequence_nr] = operator
    return steps


def _add_node(
    step: Step, owners: dict[int, Operator], event: Any, seconds: Callable[[Any], float]
) -> None:
    """Give a node's time to the operator that made it, and what a checkpoint repeats in it back."""
    name = event.name.removeprefix(NODE)
    owner = owners.get(event.sequence_nr)
    if owner is None:
        owner = step.unlinked.setdefault(name, Operator(name))
    owner.backward += seconds(event)
    owner.backward_events += _inside(_count(event))
    repeated = list(_repeated(event))
    for original, again in zip(_originals(step, owner, repeated), repeated, strict=False):
        for operator, sign in ((owner, -1), (original, 1)):
            operator.backward += sign * seconds(again)
            operator.backward_events += sign * _inside(_count(again))


def _repeated(event: Any) -> Iterator[Any]:
    """Yield what a checkpoint does once more: it is recorded for differentiation, within a node."""
    for child in event.cpu_children:
        if child.scope == FUNCTION_SCOPE and child.sequence_nr >= 0:
            yield child
        else:
            yield from _repeated(child)


def _originals(step: Step, owner: Operator, repeated: list[Any]) -> list[Operator]:
    """Find the operators in a row that were done once more: they begin no later than the owner.

    None, where there are no such: then the time stays with the node.
    """
    if not repeated or owner not in step.operators:
        return []
    names, count = [event.name for event in repeated], len(repeated)
    for start in range(step.operators.index(owner), -1, -1):
        found = step.operators[start : start + count]
        if [operator.name for operator in found] == names:
            return found
    return []


def _inside(count: int) -> float:
    """Return how many events' cost lies within an event: its children's, and half its own."""
    return count - 0.5


def _tops(events: list[Any]) -> Iterator[_Top]:
    for event in events:
        if event.cpu_parent is None:
            yield from _opened(event, None)


def _opened(event: Any, call: int | None) -> Iterator[_Top]:
    """Look through ranges that somebody named; what stands aside is left out."""
    if event.name == ASIDE or NOT_OPERATOR.match(event.name):
        return
    if event.scope != USER_SCOPE:
        yield _Top(event, call)
        return
    if event.name.startswith(CALL):
        call = int(event.name.removeprefix(CALL))
    for child in event.cpu_children:
        yield from _opened(child, call)


def _count(event: Any) -> int:
    return 1 + sum(1 for _ in _below(event))


def _below(event: Any) -> Iterator[Any]:
    for child in event.cpu_children:
        yield child
        yield from _below(child)


def _seconds(event: Any) -> float:
    return float(event.time_range.elapsed_us()) * 1e-6


def _kernel_seconds(event: Any) -> float:
    """Add up the kernels that an event and those within it have launched."""
    events = (event, *_below(event))
    return float(sum(kernel.duration for each in events for kernel in each.kernels)) * 1e-6
