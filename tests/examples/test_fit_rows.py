"""The fit of many rows: parameters against the truth and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import curve_fit

from tests.examples.conftest import Drawn, example

ROWS = example("fit_rows")


@pytest.mark.parametrize("method", ["lm", "lbfgs"])
def test_the_truth_is_found_as_scipy_finds_it(method: str) -> None:
    rows = ROWS["measured"](50_000)
    found = ROWS["fit"](rows, method).found
    np.testing.assert_allclose(found.x, ROWS["TRUTH"], atol=0.1)
    theirs, _ = curve_fit(lambda t, *p: ROWS["curve"](p, t), *rows.T, ROWS["START"])
    np.testing.assert_allclose(found.x, theirs, rtol=1e-3)
    errors = ROWS["curve"](theirs, rows[:, 0]) - rows[:, 1]
    least = np.mean(errors**2) * (0.5 if method == "lm" else 1.0)
    assert found.value == pytest.approx(least, rel=1e-6)


def test_the_fit_is_drawn(drawn: Drawn) -> None:
    output = drawn(ROWS, "--rows", "5000")
    assert "5,000 rows" in output
    assert "lbfgs" in output
    assert "ended by" in output
