"""Change points: exactness against brute force, outliers, false alarms and power."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapegrad.bench import changepoints
from tapegrad.bench.changepoints import SHORTEST, Night, changes, latest_change, segments
from tapegrad.errors import OptionError


def nights(*seconds: float) -> list[Night]:
    return [Night(f"c{i}", [value]) for i, value in enumerate(seconds)]


def noisy(
    rng: np.random.Generator, n: int = 40, after: int = 0, step: float = 0.0, outliers: float = 0.03
) -> list[Night]:
    logs = 0.015 * rng.standard_normal(n) + math.log(1.3) * (rng.random(n) < outliers)
    logs[n - after :] += math.log1p(step)
    return nights(*np.exp(logs))


def brute_force(values: np.ndarray, penalty: float) -> float:
    """The least cost of all segmentations."""
    n, costs = values.size, []
    for k in range(n // SHORTEST):
        for inner in itertools.combinations(range(1, n), k):
            ends = list(itertools.pairwise([0, *inner, n]))
            if all(b - a >= SHORTEST for a, b in ends):
                parts = (values[a:b] for a, b in ends)
                costs.append(sum(np.abs(v - np.median(v)).sum() + penalty for v in parts))
    return float(min(costs))


@given(st.lists(st.floats(0.5, 2), min_size=SHORTEST, max_size=11), st.floats(0.01, 1))
def test_no_segmentation_is_cheaper(seconds: list[float], penalty: float) -> None:
    values = np.log(seconds)
    table = changepoints._deviations(values)
    cuts = changepoints._best_cuts(table, penalty)
    cost = sum(table[a, b] + penalty for a, b in itertools.pairwise(cuts))
    assert cost == pytest.approx(brute_force(values, penalty))


@given(st.lists(st.floats(0.5, 2), min_size=1, max_size=30))
def test_segments_tile_the_series(seconds: list[float]) -> None:
    found = segments(nights(*seconds))
    assert (found[0].start, found[-1].stop) == (0, len(seconds))
    assert all(a.stop == b.start for a, b in itertools.pairwise(found))
    assert all(s.stop - s.start >= min(SHORTEST, len(seconds)) for s in found)
    assert [c.index for c in changes(nights(*seconds))] == [s.start for s in found[1:]]


@pytest.mark.parametrize("factor", [2.0, 1.1, 0.5])
def test_a_step_is_named(factor: float) -> None:
    series = [Night(f"c{i}", [(factor if i >= 20 else 1) * (1 + i % 3 / 200)]) for i in range(30)]
    found = latest_change(series)
    assert found is not None
    assert (found.index, found.label) == (20, "c20")
    assert found.ratio == pytest.approx(factor, rel=0.01)
    assert found.after == pytest.approx(found.before * found.ratio)
    assert found.p < 0.001


def test_the_latest_of_several_changes_is_returned() -> None:
    rng = np.random.default_rng(3)
    levels = np.repeat([1.0, 2.0, 1.5], 12) * np.exp(0.01 * rng.standard_normal(36))
    assert [c.index for c in changes(nights(*levels))] == [12, 24]
    found = latest_change(nights(*levels))
    assert found is not None
    assert found.label == "c24"
    assert found.ratio == pytest.approx(0.75, rel=0.02)


def test_outlier_nights_are_no_change() -> None:
    rng = np.random.default_rng(4)
    seconds = np.exp(0.01 * rng.standard_normal(40))
    seconds[[5, 17, 30, 39]] *= [3, 0.3, 10, 5]
    assert changes(nights(*seconds)) == []


def test_a_night_counts_by_its_median() -> None:
    series = [Night(str(i), [1.0, 1.0 + i % 2 / 100, 50.0 if i == 7 else 1.0]) for i in range(12)]
    assert changes(series) == []


def test_a_step_within_the_margin_is_not_reported() -> None:
    series = nights(*([1.0, 1.001] * 10 + [1.02, 1.021] * 10))
    assert len(changes(series)) == 1
    assert latest_change(series) is None
    assert latest_change(series, margin=0.01) is not None


def test_only_recent_nights_are_searched() -> None:
    n = changepoints.RECENT
    series = nights(*[2.0] * 20, *[1.0] * n)
    assert segments(series) == [(20, n + 20, 1.0)]


@pytest.mark.parametrize("series", [[], nights(math.nan), nights(0.0), [Night("empty", [])]])
def test_nonsense_is_refused(series: list[Night]) -> None:
    with pytest.raises(OptionError, match="changepoints: expected"):
        latest_change(series)


# How often it is wrong: 200 trials with noise of 1.5 % a night and 3 % outlier nights of +30 %.


def test_constant_series_seldom_have_changes() -> None:
    rng = np.random.default_rng(0)
    found = [noisy(rng) for _ in range(200)]
    assert np.mean([bool(changes(series)) for series in found]) <= 0.05
    assert np.mean([latest_change(series) is not None for series in found]) <= 0.02


@pytest.mark.parametrize(
    ("step", "after", "power"), [(0.05, 10, 0.9), (0.1, 5, 0.85), (0.5, 3, 0.9)]
)
def test_steps_are_found(step: float, after: int, power: float) -> None:
    rng = np.random.default_rng(0)
    found = [latest_change(noisy(rng, 40, after, step)) for _ in range(100)]
    assert np.mean([c is not None and c.ratio > 1 for c in found]) >= power
