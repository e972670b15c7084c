"""When a warm-up has come to rest: times made up, and no clock."""

from __future__ import annotations

from itertools import chain, count, repeat

import pytest

from tapegrad.worker import timing
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
