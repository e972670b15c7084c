"""Derivatives of high order far out, where the function is flat or straight."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tests.scalar.reference import FORMATS

#: What the first derivatives are far to the left and far to the right; all others are 0.
SLOPES = {
    "tanh": (0.0, 0.0),
    "sigmoid": (0.0, 0.0),
    "atan": (0.0, 0.0),
    "erf": (0.0, 0.0),
    "erfc": (0.0, 0.0),
    "softplus": (0.0, 1.0),
    "gelu": (0.0, 1.0),
}
ORDERS = 4
#: From where exponentials vanish to where squares, and at last doubles, overflow.
FAR = [100.0, 200.0, 300.0, 356.0, 400.0, 711.0, 800.0, 1e10, 1e19, 1e20, 1.5e38, 3e38]
FARTHER = [1e100, 1e154, 1.3e154, 1.4e154, 1e200, 5e307, 1e308, 1.7e308]


def mixed(y: tg.Var, x: tg.Var) -> list[list[tg.Var]]:
    """Derivatives by order, by forward and reverse mode in all successions."""
    found, latest = [], [y]
    for _ in range(ORDERS):
        latest = [slope for each in latest for slope in (tg.grad(each, x), tg.jvp(each, x, 1.0))]
        found.append(latest)
    return found


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("name", SLOPES)
def test_derivatives_of_any_order_and_succession_are_finite(
    name: str, dtype: str, isa: str
) -> None:
    x = tg.Graph().input()
    first, *higher = mixed(getattr(tg, name)(x), x)
    program = tg.compile([*first, *(slope for order in higher for slope in order)], dtype=dtype)
    points = np.array([FAR if dtype == "float32" else [*FAR, *FARTHER]]).T
    for side, slope in zip((-1, 1), SLOPES[name], strict=True):
        got = program.batch((side * points).astype(dtype))
        # atan has 1 / x**2, the others less than exp(-100).
        allowed = np.minimum(1.0, 2 * points**-2) if name == "atan" else 1e-40
        assert np.all(np.abs(got[:, :2] - slope) <= allowed)
        assert np.all(np.abs(got[:, 2:]) <= (allowed if name == "atan" else 1e-40))


@pytest.mark.parametrize("point", [0.0, -0.0, 0.3, -0.3, 2.0, -2.0])
def test_tanh_is_smooth_where_its_slope_changes_sides(point: float) -> None:
    x = tg.Graph().input()
    y = math.tanh(point)
    want = [  # polynomials in y, by (1 - y^2) d/dy
        1 - y**2,
        -2 * y + 2 * y**3,
        -2 + 8 * y**2 - 6 * y**4,
        16 * y - 40 * y**3 + 24 * y**5,
    ]
    for order, found in zip(want, mixed(tg.tanh(x), x), strict=True):
        np.testing.assert_allclose(tg.compile(found)([point]), order, rtol=1e-13, atol=1e-14)


def test_hessians_far_out_are_zero() -> None:
    def total(x: Any) -> Any:
        return np.sum(np.tanh(x))

    want = np.diag([0.0, -2 * math.tanh(1.0) / math.cosh(1.0) ** 2])
    point = [400.0, 1.0]
    np.testing.assert_allclose(tg.hessian(total)(point), want, rtol=1e-14)
    np.testing.assert_allclose(tg.hvp(total)(point, [1.0, 1.0]), want.sum(axis=1), rtol=1e-14)


@pytest.mark.parametrize("point", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", SLOPES)
def test_nan_is_passed_on_and_infinity_is_the_limit(name: str, point: float) -> None:
    x = tg.Graph().input()
    slope = tg.compile(tg.grad(getattr(tg, name)(x), x))([point])
    np.testing.assert_equal(slope, point if math.isnan(point) else SLOPES[name][point > 0])
