"""Functions of many variables, written once for arrays of any framework.

Unlike a graph of `tapegrad.worker.graphs` a formula has constants, and is written as users write
one: with slices. It is asked for its value and gradient, or for the entries of its Hessian that are
not always zero. Those are derived here by hand, so that what is right depends on nobody's
differentiation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapegrad.worker.case import Case
from tapegrad.worker.graphs import Floats

#: What a case asks of a formula: value and gradient, or the sparse Hessian.
DERIVATIVES = ("gradient", "hessian")


@dataclass(frozen=True)
class Formula:
    """A function of so many variables as there are elements in an array."""

    #: The terms whose sum is the value, of an array of variables.
    terms: Callable[[Any], Any]
    #: Derivatives of the value by hand, one column a point; entries of the Hessian go by rows.
    gradient: Callable[[Floats], Floats]
    hessian: Callable[[Floats], Floats]
    #: Operations of the value for each variable.
    ops: int


def of_case(case: Case) -> Formula:
    """Look up the formula that a case asks for."""
    return FORMULAS[case.attrs["formula"]]


def n_variables(case: Case) -> int:
    """Tell how many variables the case's points have."""
    return case.inputs[0].shape[1]


def evaluate(case: Case, points: Floats) -> tuple[Floats, ...]:
    """Return values (rows,) and gradients (rows, variables), or entries of Hessians (rows, n)."""
    formula, x = of_case(case), points.T
    if case.op == "hessian":
        return (np.ascontiguousarray(formula.hessian(x).T),)
    return formula.terms(x).sum(axis=0), np.ascontiguousarray(formula.gradient(x).T)


def _rosenbrock(x: Any) -> Any:
    """Write the chained Rosenbrock function: a curved valley between each two neighbours."""
    return 100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2


def _rosenbrock_gradient(x: Floats) -> Floats:
    off_valley = x[1:] - x[:-1] ** 2
    gradient = np.zeros_like(x)
    gradient[:-1] = -400 * x[:-1] * off_valley - 2 * (1 - x[:-1])
    gradient[1:] += 200 * off_valley
    return gradient


def _rosenbrock_hessian(x: Floats) -> Floats:
    """Return the three diagonals as they stand in the rows: d0 a0, a0 d1 a1, a1 d2 a2, …."""
    entries = np.zeros((3 * len(x) - 2, *x.shape[1:]))
    entries[:-1:3] = 1200 * x[:-1] ** 2 - 400 * x[1:] + 2
    entries[3::3] += 200
    entries[1::3] = entries[2::3] = -400 * x[:-1]
    return entries


FORMULAS = {"rosenbrock": Formula(_rosenbrock, _rosenbrock_gradient, _rosenbrock_hessian, ops=8)}
