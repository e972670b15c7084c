"""Random results: what is drawn passes, what was drawn before or is in an order does not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from tapegrad.bench import randomness
from tapegrad.bench.randomness import fingerprint, order, repetition, serial_correlation

RNG = np.random.default_rng(0)
SHAPE = (64, 96)


def drawn() -> np.ndarray:
    return RNG.standard_normal(SHAPE)


IN_ORDER: dict[str, Callable[[], np.ndarray]] = {
    "sorted": lambda: np.sort(drawn(), axis=None).reshape(SHAPE),
    "falling": lambda: -np.sort(drawn(), axis=None).reshape(SHAPE),
    "sorted down the columns": lambda: np.sort(drawn(), axis=None).reshape(SHAPE[::-1]).T,
    "sorted row by row": lambda: np.sort(drawn(), axis=1),
    "each number twice": lambda: np.repeat(drawn().ravel(), 2),
    "zeros first": lambda: np.sort(RNG.random(SHAPE) < 0.3, axis=None).astype(float),
}
DRAWS: dict[str, Callable[[], np.ndarray]] = {
    "normal": drawn,
    "uniform": lambda: RNG.random(SHAPE),
    "zero or one": lambda: (RNG.random(SHAPE) < 0.3).astype(float),
    "dropped": lambda: RNG.random(SHAPE) * (RNG.random(SHAPE) < 0.8),
    "constant": lambda: np.ones(SHAPE),
}


@pytest.mark.parametrize("name", IN_ORDER)
def test_an_order_is_seen(name: str) -> None:
    assert "is in an order" in (order({"output0": IN_ORDER[name]()}) or "")


@pytest.mark.parametrize("name", DRAWS)
def test_drawn_numbers_are_in_no_order(name: str) -> None:
    assert all(order({"output0": DRAWS[name]()}) is None for _ in range(100))


def test_the_serial_correlation_is_that_of_ranks() -> None:
    walk = np.cumsum(RNG.standard_normal(2_000))
    wanted = stats.spearmanr(walk[1:], walk[:-1]).statistic
    assert serial_correlation(walk) == pytest.approx(wanted, abs=0.01)


def test_what_comes_back_was_there() -> None:
    few = [fingerprint({"output0": drawn()}) for _ in range(5)]
    assert "12 calls drew 5 different results" in (repetition([*few, *few, *few[:2]]) or "")
    assert repetition([fingerprint({"output0": drawn()}) for _ in range(12)]) is None
    assert repetition(few[:1] * 12) is None  # a function of its inputs


def test_few_numbers_may_come_back_by_chance() -> None:
    assert fingerprint({"output0": np.zeros(randomness.FEWEST - 1)}) is None


def test_another_distribution_or_shape_is_a_difference() -> None:
    wanted = {"output0": drawn()}
    assert randomness.difference({"output0": drawn()}, wanted) is None
    assert "otherwise" in (randomness.difference({"output0": 1.2 * drawn()}, wanted) or "")
    assert "shape" in (randomness.difference({"output0": drawn().T}, wanted) or "")
    assert "not a result" in (randomness.difference({"odd": drawn()}, wanted) or "")
