"""Program.minimize over rows of data, against SciPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.optimize
from numpy.typing import NDArray

import tapegrad as tg

Array = NDArray[Any]
#: Untyped: where SciPy has types, its overloads know no arguments by name.
optimize: Any = scipy.optimize


def decay(outputs: Callable[[Any], Any], dtype: str = "float64") -> tuple[tg.Program, Array]:
    """A decay of three parameters over rows of two numbers."""
    g = tg.Graph()
    p, t, y = g.inputs(3), g.input("t"), g.input("y")
    rng = np.random.default_rng(0)
    times = rng.uniform(0, 4, 5000)
    rows = np.stack([times, 2 * np.exp(-0.7 * times) + 0.5 + 0.1 * rng.normal(size=5000)], 1)
    error = p[0] * tg.exp(-p[1] * t) + p[2] - y
    return tg.compile(outputs(error), wrt=p, dtype=dtype), rows.astype(dtype)


@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_fits_over_rows_are_scipys(reduce: Any, isa: str) -> None:
    squares, rows = decay(lambda error: 0.5 * error**2)
    errors, _ = decay(lambda error: error)
    t, y = rows.T
    theirs = optimize.least_squares(
        lambda p: p[0] * np.exp(-p[1] * t) + p[2] - y, np.ones(3), xtol=1e-14, ftol=1e-14
    )
    cost = theirs.cost / (len(rows) if reduce == "mean" else 1)
    for program, method in ((squares, "lbfgs"), (errors, "lm")):
        found = program.minimize(np.ones(3), method, rows=rows, reduce=reduce)  # type: ignore[arg-type]
        np.testing.assert_allclose(found.x, theirs.x, rtol=1e-5)
        assert found.value == pytest.approx(cost, rel=1e-9)
        assert found.steps < 100
    first = squares.minimize(np.ones(3), "adam", rows=rows, lr=0.05, steps=800)
    np.testing.assert_allclose(first.x, theirs.x, rtol=1e-2)


def test_lm_over_rows_takes_several_residuals_each() -> None:
    program, rows = decay(lambda error: [error, 0.1 * error**3])
    found = program.minimize(np.ones(3), "lm", rows=rows, reduce="sum")
    t, y = rows.T

    def both(p: Array) -> Array:
        error = p[0] * np.exp(-p[1] * t) + p[2] - y
        return np.concatenate([error, 0.1 * error**3])

    theirs = optimize.least_squares(both, np.ones(3), xtol=1e-14, ftol=1e-14)
    np.testing.assert_allclose(found.x, theirs.x, rtol=1e-6)
    assert found.value == pytest.approx(theirs.cost, rel=1e-10)


@pytest.mark.parametrize("method", ["sgd", "lbfgs", "lm"])
def test_rows_have_the_same_bits_for_any_number_of_threads_and_any_strides(method: Any) -> None:
    program, rows = decay(lambda error: error if method == "lm" else error**2)
    want = program.minimize(np.ones(3), method, rows=rows, steps=12, threads=1)
    for threads, given_rows in ((2, rows), (5, np.asfortranarray(rows)), (None, rows)):
        got = program.minimize(np.ones(3), method, rows=given_rows, steps=12, threads=threads)
        np.testing.assert_array_equal(got.x, want.x)


def test_several_starts_over_rows_equal_single_ones() -> None:
    program, rows = decay(lambda error: error**2)
    starts = np.array([[1.0, 1.0, 0.0], [3.0, 0.1, 0.0], [math.nan, 1.0, 1.0]])
    many = program.minimize(starts, "lbfgs", rows=rows)
    for row in range(3):
        one = program.minimize(starts[row], "lbfgs", rows=rows)
        np.testing.assert_array_equal(many.x[row], one.x)
        assert many.reason[row] == one.reason
    assert many.x.shape == (3, 3)


def test_the_value_over_rows_is_that_of_a_batch() -> None:
    program, rows = decay(lambda error: error**2)
    found = program.minimize(np.ones(3), "sgd", rows=rows, steps=3, lr=0.01)
    value, _ = program.batch(rows, shared=found.x, reduce="mean")
    assert found.value == pytest.approx(value, rel=1e-15)


def test_rows_that_do_not_fit_are_refused() -> None:
    program, rows = decay(lambda error: error**2)
    with pytest.raises(tg.ShapeError, match="rows of the other 2"):
        program.minimize(np.ones(3), rows=rows[:, :1])
    with pytest.raises(tg.ShapeError, match="at least one row"):
        program.minimize(np.ones(3), rows=rows[:0])
    with pytest.raises(tg.ShapeError, match="5 inputs"):
        program.minimize(np.ones(6), rows=rows)
    with pytest.raises(tg.GradError, match="differs from row to row"):
        program.minimize(np.ones(2), rows=np.ones((4, 3)))
    with pytest.raises(tg.OptionError, match="reduce"):
        program.minimize(np.ones(3), rows=rows, reduce="max")  # type: ignore[arg-type]
