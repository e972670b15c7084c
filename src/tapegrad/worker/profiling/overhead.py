"""What recording an event takes: a chain of operators that do next to nothing, with and without.

The difference that the profiler makes to the model's own step would be the better measure, but on a
busy machine it drowns in the noise of long steps; the chain is over in a moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from tapegrad.worker.profiling import events

#: Operators in the chain, and how often it runs.
LINKS, RUNS = 10, 12


def event_seconds(device: str) -> float:
    """Measure what the profiler adds to the chain, by event; the quickest runs count."""
    start = torch.ones(1, requires_grad=True)
    plain = min(_elapsed(start, nullcontext) for _ in range(RUNS))
    profiled: list[float] = []

    def run() -> None:
        profiled.extend(_elapsed(start, events.step_range) for _ in range(RUNS))

    steps = events.recorded(device, run)
    return max(0.0, min(profiled) - plain) / (1 + steps[-1].events)


def _elapsed(start: Any, within: Callable[[], Any]) -> float:
    start.grad = None
    begin = time.perf_counter()
    with within():
        value = start
        for _ in range(LINKS):
            value = torch.relu(value)
        value.backward()
    return time.perf_counter() - begin
