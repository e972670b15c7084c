"""The population of random graphs, a small one."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.examples.conftest import Drawn, example

Floats = NDArray[np.float64]
POPULATION = example("population")


def test_a_population_is_fitted_and_drawn(drawn: Drawn) -> None:
    output = drawn(POPULATION, "--graphs", "4", "--operations", "100")
    assert "4 new graphs of 100 operations, 10,048 evaluations each" in output
    for name in ("tapegrad, measured", "corrected C, one thread", "PyTorch, eager"):
        assert name in output


def test_fits_find_lower_means() -> None:
    population = POPULATION["fit_all"](3, 100)
    assert np.all(population.after < population.before - 0.05)
    assert np.unique(population.after).size == 3


def test_estimates_want_equal_gradients() -> None:
    in_c, estimate = POPULATION["in_c"], POPULATION["estimate"]
    assert estimate(in_c, 1, 1, 100) > 0

    def wrong(graph: object, points: Floats) -> tuple[float, Floats, Floats]:
        seconds, values, gradients = in_c(graph, points)
        return seconds, values, gradients * 1.001

    with pytest.raises(AssertionError, match="1e-06"):
        estimate(wrong, 1, 1, 100)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1.25, "1.2 seconds"), (150, "2.5 minutes"), (3 * 86_400, "3.0 days")],
)
def test_durations(seconds: float, text: str) -> None:
    assert POPULATION["duration"](seconds) == text
