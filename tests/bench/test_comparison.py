"""Tolerances: rounding passes, mistakes do not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapegrad.bench.comparison import BLOCK, Difference, compare, degenerate, relative_error


def wrongness(found: np.ndarray, wanted: np.ndarray, **options: object) -> Difference | float:
    settings = {"dtype": "float32", "terms": 1} | options
    return compare({"output0": found}, {"output0": wanted}, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("terms", [1, 100, 100_000])
def test_sums_in_any_order_pass(dtype: str, terms: int) -> None:
    x = np.random.default_rng(0).standard_normal((20, terms)).astype(dtype)
    truth = x.astype(np.longdouble).sum(1).astype(np.float64)
    forward = np.add.accumulate(x, 1)[:, -1]
    assert isinstance(wrongness(forward, truth, dtype=dtype, terms=terms), float)


@pytest.mark.parametrize("factor", [1 + 1e-4, 0.5, -1.0])
def test_a_small_factor_does_not_pass(factor: float) -> None:
    x = np.random.default_rng(0).standard_normal(1000)
    result = wrongness((x * factor).astype(np.float32), x)
    assert isinstance(result, Difference) and result.error is not None and result.error > 1


@pytest.mark.parametrize("size", [1e-300, 1e-200, 1e160, 1e200, 1.5e308])
def test_numbers_whose_squares_are_none_are_compared(size: float) -> None:
    x = size * np.random.default_rng(0).uniform(0.5, 1.0, 1000)
    assert wrongness(x * (1 + 1e-15), x, dtype="float64") < 1  # type: ignore[operator]
    assert isinstance(wrongness(x * 0.5, x, dtype="float64"), Difference)
    nearly_zero = np.append(x, 0.0)
    assert wrongness(np.append(x, 1e-17 * size), nearly_zero, dtype="float64") < 1  # type: ignore[operator]


def test_one_wrong_element_of_a_million_does_not_pass() -> None:
    x = np.random.default_rng(0).standard_normal(1_000_000)
    found = x.astype(np.float32)
    found[123_456] += 0.01
    assert isinstance(wrongness(found, x), Difference)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (np.ones((2, 3)), "shape 2x3, not 3x2"),
        (np.full((3, 2), np.nan), "not finite"),
        (np.full((3, 2), np.inf), "not finite"),
    ],
)
def test_reasons(found: np.ndarray, reason: str) -> None:
    result = wrongness(found, np.ones((3, 2)))
    assert isinstance(result, Difference) and reason in result.reason


def test_expected_nan_and_infinity_pass() -> None:
    values = np.array([np.nan, np.inf, -np.inf, 1.0])
    assert wrongness(values.astype(np.float32), values) == 0.0
    assert isinstance(wrongness(values[[0, 2, 1, 3]], values), Difference)


def test_a_prefix_passes_only_where_it_is_allowed() -> None:
    rows = np.arange(1.0, 11.0)
    assert wrongness(rows[:4], rows, prefix=True) == 0.0
    assert isinstance(wrongness(rows[:4], rows), Difference)
    assert isinstance(wrongness(rows[:0], rows, prefix=True), Difference)


def test_an_unknown_result_is_refused() -> None:
    result = compare({"grad:y": np.ones(1)}, {"output0": np.ones(1)}, dtype="float32", terms=1)
    assert isinstance(result, Difference) and "grad:y" in result.reason


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (np.zeros(3), "all zero"),
        (np.full(3, 2.0), "constant"),
        (np.array([2.0, np.nan, 2.0]), "constant"),
        (np.ones(3, dtype=bool), "constant"),
        (np.zeros(1), "all zero"),
        (np.full(3, np.nan), "nowhere finite"),
        (np.array([np.inf, -np.inf]), "nowhere finite"),
        (np.empty((0, 3)), "is empty"),
    ],
)
def test_degenerate(array: np.ndarray, reason: str) -> None:
    assert reason in (degenerate({"output0": array}) or "")


def test_meaningful_results_are_not_degenerate() -> None:
    assert degenerate({"output0": np.array([1.0, 2.0]), "grad:x": np.array(3.0)}) is None
    assert degenerate({"output0": np.array([True, False]), "grad:x": np.array([1, 2])}) is None


@given(st.floats(1e-30, 1e30), st.integers(0, 2**32 - 1))
def test_scale_does_not_matter(scale: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal(50)
    found = truth * (1 + 1e-9 * rng.standard_normal(50))
    assert relative_error(found * scale, truth * scale) == pytest.approx(
        relative_error(found, truth), rel=1e-6
    )


@pytest.mark.parametrize("size", [0, 1, BLOCK, BLOCK + 1, 3 * BLOCK - 1])
def test_the_largest_error_is_found_in_any_part(size: int) -> None:
    rng = np.random.default_rng(size)
    truth = rng.standard_normal(size)
    truth[5::7] = np.nan
    truth[3::11] = np.inf
    found = truth * (1 + 1e-6 * rng.standard_normal(size))
    finite = np.isfinite(truth)
    scale = np.sqrt(np.mean(truth[finite] ** 2)) if size else 0.0
    error = np.abs(found[finite] - truth[finite]) / (np.abs(truth[finite]) + scale)
    assert relative_error(found, truth) == pytest.approx(error.max(initial=0.0), rel=1e-9)
    if size:
        found[-1] = 0.0 if np.isnan(truth[-1]) else np.nan
        assert relative_error(found, truth) == np.inf
