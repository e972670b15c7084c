"""Derivatives of high order where a factor is 0 by itself, and not because it is masked."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mpmath import mp  # type: ignore[import-untyped]

import tapegrad as tg
from tests.scalar.test_masks import SPOILT

ORDER = 5

#: Functions of Vars, and of mpmath's numbers.
FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "gelu": (tg.gelu, lambda x: x * mp.erfc(-x / mp.sqrt(2)) / 2),
    "erf": (tg.erf, mp.erf),
    "erfc": (tg.erfc, mp.erfc),
    "atan": (tg.atan, mp.atan),
    "tanh": (tg.tanh, mp.tanh),
    "hypot": (lambda x: tg.hypot(x, 1.0), lambda x: mp.sqrt(x * x + 1)),
    "atan2": (lambda x: tg.atan2(x, 1.0), mp.atan),
    "(x + 1)^3 x": (lambda x: tg.pow(x + 1, 3.0) * x, lambda x: (x + 1) ** 3 * x),
    "(x + 1)^x": (lambda x: (x + 1) ** x, lambda x: (x + 1) ** x),
    "(x + 1)^(x^2)": (lambda x: (x + 1) ** (x * x), lambda x: (x + 1) ** (x * x)),
    "where: log^2": (
        lambda x: tg.where(x > -0.5, tg.square(tg.log(x + 1)), 0.0),
        lambda x: mp.log(x + 1) ** 2,
    ),
    "where: square of a square": (
        lambda x: tg.where(x > -0.5, tg.exp(x) * tg.square((x + 1) ** 2 - 1), 0.0),
        lambda x: mp.exp(x) * ((x + 1) ** 2 - 1) ** 2,
    ),
    "where in a scan": (
        lambda x: tg.scan(
            lambda c, t: (tg.where(t > 0, tg.square(tg.sin(c) + c * c), t), None), x, np.ones(2)
        )[0],
        lambda x: _risen(_risen(x)),
    ),
    "masked_mul": (lambda x: tg.masked_mul(tg.sin(x), tg.cos(x)), lambda x: mp.sin(x) * mp.cos(x)),
    "masked_both": (
        lambda x: tg.masked_both(tg.sin(x), tg.expm1(x)),
        lambda x: mp.sin(x) * mp.expm1(x),
    ),
}


def _risen(x: Any) -> Any:
    return (mp.sin(x) + x * x) ** 2


def reverse(y: tg.Var, x: tg.Var) -> tg.Var:
    return tg.grad(y, x)  # type: ignore[no-any-return]


def forward(y: tg.Var, x: tg.Var) -> tg.Var:
    return tg.jvp(y, x, 1.0)


@pytest.mark.parametrize("at", [0.0, 1.0, 0.375])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_of_high_order_are_those_of_mpmath(name: str, at: float) -> None:
    function, oracle = FUNCTIONS[name]
    with mp.workdps(60):
        want = [float(mp.diff(oracle, at, order)) for order in range(ORDER + 1)]
    x = tg.Graph().input("x")
    for modes in ((reverse,), (forward,), (reverse, forward), (forward, reverse)):
        orders = [function(x)]
        for order in range(ORDER):
            orders.append(modes[order % len(modes)](orders[-1], x))
        found = tg.compile(orders, inputs=[x])([at])
        np.testing.assert_allclose(found, want, rtol=1e-8, atol=1e-8)


def test_powers_have_all_third_derivatives_at_the_exponent_0() -> None:
    """Of p^q at q = 0: twice the logarithm of p, over p."""
    p, q = tg.Graph().inputs(2)
    for by in ((q, p, q), (p, q, q), (q, q, p)):
        y = p**q
        for var in by:
            y = tg.grad(y, var)
        assert tg.compile(y, inputs=[p, q])([2.0, 0.0]) == pytest.approx(np.log(2.0), rel=1e-15)


def test_hessians_behind_a_choice_are_symmetric_where_factors_vanish() -> None:
    x, y = point = tg.Graph().inputs(2)
    z = tg.where(x > -1, tg.square(x * y), x)
    for a, b, c in ((x, x, y), (x, y, x), (y, x, x)):
        third = tg.grad(tg.grad(tg.grad(z, a), b), c)
        assert tg.compile(third, inputs=point)([0.0, 3.0]) == 12.0


#: Singular at 0, besides what numbers spoil everywhere.
SINGULAR: dict[str, Callable[[Any], Any]] = {
    "1 / x": lambda x: 1 / x,
    "log": tg.log,
    "sqrt": tg.sqrt,
    "x ** 1.5": lambda x: x**1.5,
    "x ** x": lambda x: x**x,
    "asin": lambda x: tg.asin(1 + x),
    "log of a root": lambda x: tg.log(tg.sqrt(x)) * x**0.3,
    "softmax of poles": lambda x: tg.softmax([1 / x, x, tg.log(x)])[1] * tg.sqrt(x),
    "a choice": lambda x: tg.where(x > 0, tg.log(x), 1 / x),
    "a scan": lambda x: tg.scan(lambda c, _: (tg.sqrt(c) * c + tg.log(x), None), x, length=3)[0],
}


@pytest.mark.parametrize("at", [0.0, -1.0])
@pytest.mark.parametrize("spoilt", [*SPOILT.values(), *SINGULAR.values()])
def test_the_other_branch_leaves_high_orders_alone(spoilt: Callable[[Any], Any], at: float) -> None:
    """x^3 e^x is what is taken."""
    want = np.exp(at) * np.polyval([1, 9, 18, 6], at), np.exp(at) * np.polyval([1, 12, 36, 24], at)
    x = tg.Graph().input("x")
    z = tg.where(x > 0, spoilt(x) * x + spoilt(x) ** 2, tg.exp(x) * x**3)
    for modes in itertools.product((reverse, forward), repeat=2):
        second = modes[1](modes[0](z, x), x)
        third = modes[0](second, x)
        found = tg.compile([third, modes[1](third, x)])([at])
        np.testing.assert_allclose(found, want, rtol=1e-12)
