"""Slopes of elementwise operations over arrays: what they save, and what they are far out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
import tapegrad.tensors as tt
from tapegrad.tensors.ops.elementwise import TABLE
from tests.oracles.torch import Torch, tapegrad
from tests.tensors.cases import DEVICES
from tests.tensors.torch_calls import derivatives, orders

NAN, INF = float("nan"), float("inf")
#: Operations whose gradient looks at their result alone.
BY_RESULT = ["exp", "sqrt", "tan", "relu", "tanh", "sigmoid"]
#: Those whose slope vanishes far out.
FLAT = ["tanh", "sigmoid", "erf", "erfc", "atan"]
POINTS = [-INF, -1e30, -100.0, -20.0, -3.0, -0.5, -1e-20, 0.0, 0.25, 2.0, 9.0, 50.0, 1e25, INF]


@pytest.mark.parametrize("name", BY_RESULT)
def test_a_slope_by_the_result_saves_the_result_alone(name: str) -> None:
    assert TABLE[name].plan(1) == (0, 1)
    x = tg.tensor([0.5, 0.75], requires_grad=True)
    y = getattr(tg, name)(x)
    with tg.no_grad():
        x += 100.0  # nobody looks at it again
    y.sum().backward()
    want = tg.tensor([0.5, 0.75], dtype="float64", requires_grad=True)
    getattr(tg, name)(want).sum().backward()
    assert x.grad is not None and want.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), want.grad.numpy(), 1e-6)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("name", FLAT)
def test_slopes_are_pytorchs_to_a_rounding_and_finite(
    torch: Torch, name: str, kind: str, device: str
) -> None:
    bound = {"float32": 1e-6, "float64": 1e-14}[kind]
    theirs = torch(derivatives, name, POINTS, kind)
    ours = derivatives(tapegrad(), name, POINTS, kind, device)
    assert all(np.isfinite(each).all() for each in ours)
    np.testing.assert_array_equal(ours[0], ours[1])  # recorded or not
    finite = [np.isfinite(each) for each in theirs]  # PyTorch has NaN at infinity
    for our, their, at in zip(ours, theirs, finite, strict=True):
        np.testing.assert_allclose(our[at], their[at], bound, bound)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", FLAT)
def test_a_branch_not_taken_has_no_gradient(name: str, device: str) -> None:
    x = tt.tensor([NAN, INF, 0.5], device=device, requires_grad=True)
    tg.where(
        tt.tensor([False, False, True], device=device), getattr(tg, name)(x), 1.0
    ).sum().backward()
    assert x.grad is not None
    assert x.grad[:2].tolist() == [0.0, 0.0] and x.grad[2].item() != 0.0


#: With operands, results or slopes that are infinite or NaN where x is 0.
SINGULAR = (
    *("1 / x", "-y / x", "x / x", "x**-1", "tt.reciprocal(x)", "tt.rsqrt(x)", "y % x"),
    *("x * tt.log(x)", "tt.log(x) * y", "tt.log(x)**3", "tt.exp(1 / x)", "tt.atan2(x, x)"),
    *("tt.rsqrt(x * x) * x", "tt.sigmoid(1 / x)", "tt.sin(1 / x)", "y**(1 / x)"),
)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("expression", SINGULAR)
def test_no_operand_of_a_branch_not_taken_has_one(expression: str, device: str) -> None:
    def gradients(*points: float) -> list[Any]:
        x = tt.tensor(points, dtype="float64", device=device, requires_grad=True)
        y = tt.full_like(x, 3.0).requires_grad_()
        out = tg.where(x > 0, eval(expression, {"x": x, "y": y, "tt": tt}), 0.0)
        plain = tt.grad(out.sum(), [x, y], retain_graph=True, materialize_grads=True)
        first = tt.grad(out.sum(), [x, y], create_graph=True, materialize_grads=True)
        total = first[0].sum() + first[1].sum()
        second = tt.grad(total, [x, y], materialize_grads=True) if total.requires_grad else ()
        return [each.detach().numpy() for each in (*plain, *first, *second)]

    for found, alone in zip(gradients(0.0, 2.0), gradients(2.0), strict=True):
        np.testing.assert_array_equal(found, [0.0, *alone])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("function", "want"),
    [
        (tg.erf, [0.0, 2 * np.pi**-0.5, 0.0, -4 * np.pi**-0.5, 0.0, 24 * np.pi**-0.5]),
        (tg.atan, [0.0, 1.0, 0.0, -2.0, 0.0, 24.0]),
        (lambda x: tg.hypot(x, tt.ones_like(x)), [1.0, 0.0, 1.0, 0.0, -3.0, 0.0]),
        (lambda x: (x + 1) ** x, [1.0, 0.0, 2.0, -3.0, 20.0, -90.0]),
    ],
)
def test_derivatives_of_high_order_where_a_factor_is_zero_by_itself(
    function: Callable[[Any], Any], want: list[float], device: str
) -> None:
    x = tt.tensor(0.0, dtype="float64", device=device, requires_grad=True)
    orders = [function(x)]
    for _ in want[1:]:
        orders += tg.grad(orders[-1], [x], create_graph=True)
    np.testing.assert_allclose([each.item() for each in orders], want, 1e-12, 1e-12)


#: Functions that are flat but for steps, at points where `1 / f(x)` and `sqrt(f(x))` are steep.
STEPS = {"sign": 0.0, "floor": 0.5, "ceil": -0.5, "trunc": 0.5, "round": 0.25}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("steep", ["1 / tt.{0}(x)", "tt.sqrt(tt.{0}(x))", "tt.log(tt.{0}(x))"])
@pytest.mark.parametrize("name", STEPS)
def test_steps_have_no_slope_however_steep_what_is_made_of_them(
    torch: Torch, name: str, steep: str, device: str
) -> None:
    arrays = {"x": np.array([STEPS[name], 2.5])}
    theirs = torch(orders, steep.format(name), arrays)
    for our, their in zip(
        orders(tapegrad(), steep.format(name), arrays, device), theirs, strict=True
    ):
        np.testing.assert_allclose(our, their, 1e-12)


def test_a_quotient_rounded_down_has_no_slope_even_at_zero() -> None:
    x = tg.tensor([0.5, 1.5], requires_grad=True)
    (x // 1).sqrt().sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0.0, 0.0]
