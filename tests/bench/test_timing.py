"""When a warm-up has come to rest: times made up, and no clock."""

from __future__ import annotations

from itertools import chain, count, repeat

import numpy as np
import pytest

from tapegrad.worker import timing
from tapegrad.worker.adapter import Adapter, Call, Phase
from tapegrad.worker.timing import WARMUP_BLOCKS, WINDOW, _warm_up


@pytest.mark.parametrize("factor", [0.97, 1.03])
def test_times_that_drift_either_way_have_not_settled(factor: float) -> None:
    times = (1e-3 * factor**n for n in count())
    calls, stationary = _warm_up(lambda: next(times), seconds=0.002)
    assert not stationary and calls >= WINDOW


def test_a_warm_up_ends_when_times_are_steady() -> None:
    times = chain((2e-3, 1.8e-3, 1.5e-3, 1.2e-3), repeat(1e-3))
    calls, stationary = _warm_up(lambda: next(times), seconds=0.02)
    assert stationary and WINDOW < calls < 4 + WINDOW + 1


def test_who_runs_out_of_time_has_not_settled_unless_the_times_say_so() -> None:
    seconds = 0.02
    few = WARMUP_BLOCKS * seconds / 2
    assert _warm_up(lambda: few, seconds) == (2, False)
    steady = WARMUP_BLOCKS * seconds / timing.FEWEST
    assert _warm_up(lambda: steady, seconds) == (timing.FEWEST, True)


class _Stalls(Adapter):
    """Calls of a microsecond; in one loop the process is held up."""

    def __init__(self, stall: float, at: int) -> None:
        super().__init__("cpu", 1)
        self._stall, self._at = stall, at
        self.loops: list[int] = []

    def version(self) -> str:
        return "1"

    def elapsed(self, call: Call, calls: int) -> float:
        self.loops.append(calls)
        held_up = self._stall if len(self.loops) == self._at else 0.0
        return 1e-6 * calls + held_up


@pytest.mark.parametrize("seconds", [0.02, 0.1, 1.0, 10.0])
def test_blocks_take_the_time_asked_for(seconds: float) -> None:
    found = timing.block(_Stalls(0.0, 1), Phase(lambda: None), seconds)
    assert timing.MOST / 2 <= len(found.samples) <= timing.MOST
    assert sum(found.samples) * found.inner == pytest.approx(seconds, rel=0.05)


@pytest.mark.parametrize("at", [1, 2, 5, 9])
def test_a_stall_while_the_loop_is_found_is_no_call(at: int) -> None:
    adapter = _Stalls(0.06, at)
    found = timing.block(adapter, Phase(lambda: None), seconds=0.02)
    assert found.inner > 100
    assert float(np.median(found.samples)) == pytest.approx(1e-6)
    told = found.warmup_calls + found.inner * len(found.samples)
    assert told == sum(adapter.loops)


@pytest.mark.parametrize(("seconds", "calls"), [(0.1, 2), (0.9, 1)])
def test_a_long_call_is_its_own_warm_up(seconds: float, calls: int) -> None:
    class Long(_Stalls):
        def elapsed(self, call: Call, calls: int) -> float:
            return super().elapsed(call, calls) * seconds * 1e6

    adapter = Long(0.0, 0)
    found = timing.block(adapter, Phase(lambda: None), seconds=0.02)
    assert found.samples == pytest.approx([seconds])
    assert (found.inner, found.warmup_calls) == (1, calls - 1)
    assert adapter.loops == [1] * calls
