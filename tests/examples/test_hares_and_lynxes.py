"""The calibration of hares and lynxes against SciPy's integrator and least squares."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import solve_ivp
from scipy.optimize import least_squares

from tests.examples.conftest import Drawn, example

Floats = NDArray[np.float64]
HARES = example("hares_and_lynxes")
FURS, GUESS = HARES["FURS"], HARES["GUESS"]


def populations(parameters: Floats) -> Floats:
    """Return both populations (2, 21), by a rule of eighth order that chooses its steps."""
    births, eaten, deaths, born = parameters[:4]
    solved = solve_ivp(
        lambda _, y: [y[0] * (births - eaten * y[1]), y[1] * (born * y[0] - deaths)],
        (0, 20),
        parameters[4:],
        method="DOP853",
        t_eval=np.arange(21),
        rtol=1e-9,
        atol=1e-9,
    )
    found: Floats = solved.y
    return found


def test_scipy_finds_the_same_parameters() -> None:
    def errors(logs: Floats) -> Floats:
        return np.ravel(np.log(populations(np.exp(logs))) - np.log(FURS))

    expected = least_squares(errors, np.log(GUESS), xtol=1e-10)
    found = HARES["calibrate"](8, 20)
    np.testing.assert_allclose(found.parameters[0], np.exp(expected.x), rtol=1e-4)
    assert found.errors[0] == pytest.approx(expected.cost, rel=1e-6)
    assert np.all(np.diff(found.errors) >= 0)


def test_numbers_are_simulated_by_the_same_text() -> None:
    path = np.array(HARES["simulate"](GUESS, 21, 50), dtype=float)
    np.testing.assert_allclose(path.T, populations(GUESS), rtol=1e-5)


def test_the_program_does_not_grow_with_the_steps() -> None:
    few, many = (str(HARES["compile_error"](steps)) for steps in (10, 1000))
    assert few == many


def test_the_curves_are_drawn(drawn: Drawn) -> None:
    assert "8 starts, 210 steps" in drawn(HARES, "--starts", "8", "--steps", "10")
