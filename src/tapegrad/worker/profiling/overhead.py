"""What recording an event takes: chains of an operator that does next to nothing, with and without.

The difference that the profiler makes to the model's own step would be the better measure, but on a
busy machine it drowns in the noise of long steps; a chain is over in a moment. What marks a step
takes as long as dozens of events and is none of them: it drops out of the difference of a long
chain and a short one. The operator calls others as those of models do, since an event within
another takes half as long as one by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch

from tapegrad.worker.profiling import events

#: Operators in the chains, and how often they run.
SHORT, LONG, RUNS = 5, 45, 12


class _Chain(NamedTuple):
    """What the profiler adds to a chain, and the events in it."""

    added: float
    events: int


def event_seconds(device: str) -> float:
    """Measure what the profiler adds by event; the quickest runs count."""
    short, long = _chain(device, SHORT), _chain(device, LONG)
    return max(0.0, long.added - short.added) / (long.events - short.events)


def _chain(device: str, links: int) -> _Chain:
    operands = [torch.ones(shape, requires_grad=True) for shape in ((1, 1), (1, 1), (1,))]
    plain = min(_elapsed(operands, links, nullcontext) for _ in range(RUNS))
    profiled: list[float] = []

    def run() -> None:
        profiled.extend(_elapsed(operands, links, events.step_range) for _ in range(RUNS))

    steps = events.recorded(device, run)
    return _Chain(min(profiled) - plain, steps[-1].events)


def _elapsed(operands: list[Any], links: int, within: Callable[[], Any]) -> float:
    value, weight, bias = operands
    for operand in operands:
        operand.grad = None
    begin = time.perf_counter()
    with within():
        for _ in range(links):
            value = torch.nn.functional.linear(value, weight, bias)
        value.backward()
    return time.perf_counter() - begin
