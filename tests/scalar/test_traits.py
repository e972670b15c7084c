"""Runs of short sums and differences that have constants or squares in common."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import tapegrad as tg

Term = Callable[[Any, Any], Any]
#: Enough for a run of each kernel, and two vectors and more of rows.
COUNT, ROWS = 24, 37
#: Terms of two variables; a number, or one that both factors have in common, is what kernels see.
TERMS: dict[str, Term] = {
    "operand": lambda a, b: a,
    "number": lambda a, b: 1.75,
    "product": lambda a, b: a * b,
    "scaled": lambda a, b: b * -0.3,
    "scaled from the left": lambda a, b: 0.7 * a,
    "square": lambda a, b: b * b,
}


def check(formula: Term, dtype: str) -> None:
    """Compare COUNT instances of a formula with NumPy, and a batch with single evaluations."""
    x = tg.Graph().inputs(2 * COUNT)
    program = tg.compile([formula(x[i], x[COUNT + i]) for i in range(COUNT)], dtype=dtype)
    points = np.random.default_rng(0).normal(size=(ROWS, 2 * COUNT)).astype(dtype)
    found = program.batch(points)
    np.testing.assert_array_equal(found, [program(point) for point in points])
    want = formula(points[:, :COUNT].astype(float), points[:, COUNT:].astype(float))
    close = 16 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(found, want, rtol=close, atol=close)


def total(*names: str) -> Term:
    """Return the sum of such terms, which is one node where they are Vars."""

    def value(a: Any, b: Any) -> Any:
        terms = [TERMS[name](a, b) for name in names]
        return sum(terms) if isinstance(a, np.ndarray) else tg.sum(terms)

    return value


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("first", [name for name in TERMS if name != "number"])
def test_sums_of_any_terms_are_those_of_numpy(first: str, dtype: str, isa: str) -> None:
    for second, third in product(TERMS, repeat=2):
        check(total(first, second), dtype)
        check(total(first, second, third), dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("first", TERMS)
def test_differences_of_any_terms_are_those_of_numpy(first: str, dtype: str, isa: str) -> None:
    for second in TERMS:
        if {first, second} != {"number"}:
            check(difference(first, second), dtype)


def difference(first: str, second: str) -> Term:
    """Return the difference of two such terms."""
    return lambda a, b: TERMS[first](a, b) - TERMS[second](a, b)


def test_constants_that_differ_within_a_run_are_each_their_own(isa: str) -> None:
    x = tg.Graph().inputs(COUNT)
    program = tg.compile([x[i] * float(i % 3) + 2.0 * x[i - 1] for i in range(COUNT)])
    points = np.random.default_rng(1).normal(size=(ROWS, COUNT))
    want = points * (np.arange(COUNT) % 3) + 2.0 * np.roll(points, 1, axis=1)
    np.testing.assert_array_equal(program.batch(points), want)


def test_a_run_may_use_its_own_results(isa: str) -> None:
    x = tg.Graph().inputs(2)
    chain = [x[0]]
    for _ in range(COUNT):
        chain.append(chain[-1] * 0.5 + x[1] * x[1])
    program = tg.compile(chain)
    points = np.random.default_rng(2).normal(size=(ROWS, 2))
    want = [points[:, 0]]
    for _ in range(COUNT):
        want.append(want[-1] * 0.5 + points[:, 1] ** 2)
    np.testing.assert_array_equal(program.batch(points), np.transpose(want))
    np.testing.assert_array_equal([program(point) for point in points], np.transpose(want))
