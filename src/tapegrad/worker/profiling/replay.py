"""One kind of call, alone: the same function, shapes, types, layouts and attributes."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch.profiler import record_function

from tapegrad.worker.profiling import events
from tapegrad.worker.profiling.model import cotangent
from tapegrad.worker.profiling.trace import Kind, Saved
from tapegrad.worker.profiling.tree import leaves, mapped
from tapegrad.worker.profiling.waiting import Waiting

#: Repetitions: those that only warm up, the fewest and the most that count.
WARM_UP, FEWEST, MOST = 2, 4, 40


class Replay:
    """A call that can be repeated with fresh arguments each time."""

    def __init__(self, kind: Kind, phase: str) -> None:
        self._kind = kind
        self._phase = phase
        self._cotangents: list[Any] = []

    def measured(self, device: str, seconds: float) -> tuple[list[events.Operator], float]:
        """Repeat it for about so long; returns each time, and the share that was waiting."""
        for _ in range(WARM_UP):
            cost = self._cost()
        count = max(FEWEST, min(MOST, round(seconds / max(cost, 1e-9))))
        waiting = Waiting(device)
        shares: list[float] = []

        def run() -> None:
            start, waited = time.perf_counter(), waiting.seconds()
            for _ in range(1 + count):
                self._once()
            waited = waiting.seconds() - waited
            shares.append(waited / (time.perf_counter() - start))

        steps = events.recorded(device, run)
        return [_sum(step) for step in steps[1:]], shares[0]  # the first warms the profiler up

    def _cost(self) -> float:
        """Return what a repetition takes of this process."""
        start = time.process_time()
        self._once()
        return time.process_time() - start

    def _once(self) -> None:
        with record_function(events.ASIDE):
            args, named = self._restored()
        with events.step_range():
            with torch.set_grad_enabled(self._phase != "inference"):
                result = self._kind.function(*args, **named)
            outputs = [tensor for tensor in leaves(result) if tensor.requires_grad]
            if outputs and self._phase == "step":
                self._backward(outputs)

    def _restored(self) -> tuple[Any, Any]:
        """Make arguments of what was saved; those that may be written into are copies."""
        made: dict[int, Any] = {}

        def restore(saved: Saved) -> Any:
            if id(saved) not in made:
                leaf = saved.value.detach().requires_grad_(saved.requires_grad)
                made[id(saved)] = leaf.clone() if self._kind.in_place else leaf
            return made[id(saved)]

        arguments, named = self._kind.arguments, self._kind.named
        return mapped(arguments, restore, Saved), mapped(named, restore, Saved)

    def _backward(self, outputs: list[Any]) -> None:
        if not self._cotangents:
            with record_function(events.ASIDE):
                self._cotangents = [cotangent(output.detach()) for output in outputs]
        torch.autograd.backward(outputs, self._cotangents)


def _sum(step: events.Step) -> events.Operator:
    """Join what one repetition consists of; nodes that are not its own are not counted."""
    total = events.Operator("")
    for operator in step.operators:
        total.add(operator)
    return total
