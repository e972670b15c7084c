"""How a block is timed: the inner loop, the warm-up, the samples.

A sample is the time of `inner` calls, long enough that the clock's step is below a thousandth of
it, and that no more of them than are kept make up the block. Before the first sample the call is
repeated until its times are stationary: the medians of the two halves of a window agree. Garbage
collection is off while the clock runs.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from statistics import median

import numpy as np
from numpy.typing import NDArray

from tapegrad.worker.adapter import Adapter, Phase

#: The shortest sample, in steps of the clock and in seconds by device. On a GPU one by the clock
#: ends with a wait for the GPU, some microseconds, and one by events does not.
CLOCK_STEPS = 1_000
SHORTEST_SAMPLE = {"cpu": 2e-4, "cuda": 2e-3}
#: Samples in a block, if its time allows.
FEWEST, MOST = 5, 100
#: Written before each call to make caches cold, and the calls of such a block.
FLUSHED_BYTES = 1 << 27
COLD_CALLS = 10
#: Warm-up: window of samples, largest difference of its halves, and its limit in block lengths.
WINDOW = 8
DRIFT = 0.02
WARMUP_BLOCKS = 10
#: A call that takes this many block lengths is its own warm-up: earlier checks have run it. If it
#: takes longer than anything holds a process up, it is not looked at twice.
LONG_CALL = 2
STALL = 0.5


@dataclass(frozen=True)
class Timing:
    """What one block found; samples are seconds per unit of work."""

    samples: list[float]
    inner: int
    warmup_calls: int
    stationary: bool
    cores: float


@cache
def clock_step() -> float:
    """Measure the smallest difference that the clock shows."""
    steps = []
    for _ in range(50):
        start = end = time.perf_counter()
        while end == start:
            end = time.perf_counter()
        steps.append(end - start)
    return min(steps)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the garbage collector away; what exists by now is not looked at again."""
    enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def block(adapter: Adapter, phase: Phase, seconds: float, cold: bool = False) -> Timing:
    """Time one phase for about `seconds`, after warming up, or with cold caches each time."""
    with quiet():
        if cold and phase.setup is None:
            phase.call()
            return _prepared_calls(adapter, phase, flush_caches, seconds, COLD_CALLS)
        if phase.setup is not None:
            return _prepared_calls(adapter, phase, phase.setup, seconds)
        return _looped_calls(adapter, phase, seconds)


@cache
def _elsewhere() -> NDArray[np.float64]:
    return np.zeros(FLUSHED_BYTES // 8)


def flush_caches() -> None:
    """Write so much other memory that nothing of a phase is left in the caches."""
    _elsewhere().__iadd__(1.0)


def _looped_calls(adapter: Adapter, phase: Phase, seconds: float) -> Timing:
    busy, wall = time.process_time(), time.perf_counter()
    inner, first = _inner_calls(adapter, phase, seconds)
    first_cores = (time.process_time() - busy) / (time.perf_counter() - wall)
    calls = 2 * (2 * inner - 1)
    if inner == 1 and first > LONG_CALL * seconds:
        looks = 1 if first > STALL else 2
        return Timing([first / phase.units], 1, looks - 1, True, first_cores)
    warmup, stationary = _warm_up(lambda: adapter.elapsed(phase.call, inner), seconds)
    samples: list[float] = []
    spent = 0.0
    busy, wall = time.process_time(), time.perf_counter()
    while len(samples) < FEWEST or (spent < seconds and len(samples) < MOST):
        samples.append(adapter.elapsed(phase.call, inner))
        spent += samples[-1]
    cores = (time.process_time() - busy) / (time.perf_counter() - wall)
    scale = inner * phase.units
    return Timing([s / scale for s in samples], inner, calls + warmup * inner, stationary, cores)


def _inner_calls(adapter: Adapter, phase: Phase, seconds: float) -> tuple[int, float]:
    """Double the calls until a sample is long enough; returns them and the sample's length.

    A sample may be slow for reasons of its own, so a length counts when it is seen twice. Only of a
    single call that takes long itself, and has been run by checks before, once is enough.
    """
    least = SHORTEST_SAMPLE[adapter.device]
    shortest = max(CLOCK_STEPS * clock_step(), min(least, seconds / FEWEST), seconds / MOST)
    inner = 1
    while inner < 1 << 30:
        elapsed = adapter.elapsed(phase.call, inner)
        if inner == 1 and elapsed > LONG_CALL * seconds and elapsed > STALL:
            break
        elapsed = min(elapsed, adapter.elapsed(phase.call, inner))
        if elapsed >= shortest:
            break
        inner *= 2
    return inner, elapsed


def _warm_up(sample: Callable[[], float], seconds: float) -> tuple[int, bool]:
    """Sample until stationary or out of time; returns the count and whether it became so."""
    recent: list[float] = []
    spent = 0.0
    count = 0
    while spent < WARMUP_BLOCKS * seconds:
        recent.append(sample())
        spent += recent[-1]
        count += 1
        recent = recent[-WINDOW:]
        if len(recent) == WINDOW and _stationary(recent):
            return count, True
    return count, len(recent) >= FEWEST and _stationary(recent)


def _stationary(window: list[float]) -> bool:
    half = len(window) // 2
    before, after = median(window[:half]), median(window[half:])
    return abs(after - before) <= DRIFT * before


def _prepared_calls(
    adapter: Adapter, phase: Phase, setup: Callable[[], object], seconds: float, most: int = MOST
) -> Timing:
    """Time calls that need a fresh start each: no loop, no warm-up, and at least one."""
    samples: list[float] = []
    spent = 0.0
    busy, wall = time.process_time(), time.perf_counter()
    while not samples or (spent < seconds and len(samples) < most):
        setup()
        elapsed = adapter.elapsed(phase.call, 1)
        samples.append(elapsed / phase.units)
        spent += elapsed
    cores = (time.process_time() - busy) / (time.perf_counter() - wall)
    return Timing(samples, 1, 0, True, cores)
