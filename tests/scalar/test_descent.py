"""Momentum, lbfgs and lm, bounds and stopping rules in Program.minimize, against SciPy."""

from __future__ import annotations

import itertools
import math
import signal
import threading
from typing import Any

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import tapegrad as tg

Array = NDArray[Any]
#: Untyped: where SciPy has types, its overloads know no arguments by name.
optimize: Any = scipy.optimize
each_search = pytest.mark.parametrize("method", ["lbfgs", "lm"])
METHODS = ["sgd", "momentum", "adam", "lbfgs", "lm"]
each_method = pytest.mark.parametrize("method", METHODS)


def rosenbrock(x: Any) -> Any:
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def valley(n: int = 4, dtype: str = "float64") -> tg.Program:
    x = tg.Graph().inputs(n)
    return tg.compile(rosenbrock(x), wrt=x, dtype=dtype)


def residuals(x: Any) -> list[Any]:
    return [*(10 * (x[1:] - x[:-1] ** 2)), *(1 - x[:-1])]


def valley_residuals(n: int = 4, dtype: str = "float64") -> tg.Program:
    """The same valley as a sum of squares; lm halves it."""
    x = tg.Graph().inputs(n)
    return tg.compile(residuals(x), wrt=x, dtype=dtype)


def of(method: str, n: int = 4, dtype: str = "float64") -> tg.Program:
    return valley_residuals(n, dtype) if method == "lm" else valley(n, dtype)


def rate(method: str, lr: float) -> dict[str, Any]:
    """Return the step size as an option, of methods that have one."""
    return {} if method in ("lbfgs", "lm") else {"lr": lr}


def start(n: int = 4) -> Array:
    return np.resize([-1.2, 1.0], n)


# ---- momentum ----------------------------------------------------------------------------------


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_momentum_is_that_of_the_textbook(momentum: float, isa: str) -> None:
    program = valley()
    x, velocity = start(), np.zeros(4)
    for _ in range(50):
        velocity = momentum * velocity + program(x)[1]
        x = x - 1e-4 * velocity
    found = program.minimize(start(), "momentum", steps=50, lr=1e-4, momentum=momentum)
    np.testing.assert_allclose(found.last_x, x, rtol=1e-9)


# ---- lbfgs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 5, 30, 100])
def test_lbfgs_finds_what_scipy_finds_in_as_few_evaluations(n: int) -> None:
    program = valley(n)
    found = program.minimize(start(n), "lbfgs", steps=2000, gtol=1e-6, ftol=0.0)
    theirs = optimize.minimize(
        **program.scipy(),
        x0=start(n),
        method="L-BFGS-B",
        options={"gtol": 1e-6, "ftol": 0.0, "maxiter": 2000, "maxfun": 2000},
    )
    np.testing.assert_allclose(found.x, np.ones(n), atol=1e-5)
    assert found.reason == "gradient"
    assert found.steps < 1.5 * theirs.nfev + 20


@pytest.mark.parametrize("condition", [1.0, 1e3, 1e6])
def test_lbfgs_solves_linear_equations(condition: float) -> None:
    n = 12
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(n, n)))[0]
    matrix = turn @ np.diag(np.geomspace(1, condition, n)) @ turn.T
    wanted = rng.normal(size=n)
    x = tg.Graph().inputs(n)
    away = x - wanted
    program = tg.compile(0.5 * np.dot(away, matrix @ away), wrt=x)
    found = program.minimize(np.zeros(n), "lbfgs", steps=3000, gtol=1e-9, ftol=0.0)
    np.testing.assert_allclose(found.x, wanted, atol=1e-7)


@pytest.mark.parametrize("memory", [1, 3, 50, 2**63 - 1])
def test_lbfgs_works_with_any_memory(memory: int) -> None:
    found = valley(10).minimize(start(10), "lbfgs", steps=3000, memory=memory, ftol=0.0)
    np.testing.assert_allclose(found.x, np.ones(10), atol=1e-6)


def test_lbfgs_history_falls_and_ends_at_its_value() -> None:
    found = valley().minimize(start(), "lbfgs", history=1)
    assert found.history is not None
    assert np.all(np.diff(found.history) <= 1e-14)
    assert found.history[0] == valley()(start())[0]
    assert found.history[-1] == found.value == found.last_value
    assert len(found.history) == found.steps + 1


def test_lbfgs_steps_back_from_infinity_and_nan() -> None:
    x = tg.Graph().input()
    walled = tg.compile(x - tg.log(1 - x * x), wrt=[x])  # NaN beyond 1
    found = walled.minimize([0.0], "lbfgs")
    assert found.x[0] == pytest.approx(1 - math.sqrt(2), abs=1e-7)
    steep = tg.compile(tg.exp(x * x * 50) + x, wrt=[x])  # infinity beyond 4
    theirs = optimize.minimize_scalar(lambda x: math.exp(50 * x * x) + x, bracket=(-0.1, 0.1))
    assert steep.minimize([1.0], "lbfgs").x[0] == pytest.approx(theirs.x, abs=1e-5)


def test_lbfgs_finds_a_kink() -> None:
    x = tg.Graph().inputs(2)
    program = tg.compile(tg.abs(x[0] - 1) + 3 * tg.abs(x[1] + 2), wrt=x)
    found = program.minimize([4.0, 3.0], "lbfgs", steps=500)
    np.testing.assert_allclose(found.x, [1.0, -2.0], atol=1e-4)


def test_a_value_that_falls_for_ever_ends_by_its_steps() -> None:
    x = tg.Graph().inputs(2)
    program = tg.compile(x[0] + x[1], wrt=x)
    found = program.minimize([0.0, 0.0], "lbfgs", steps=100)
    assert found.value < -1e3
    assert math.isfinite(found.value)


# ---- lm ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 5, 20])
def test_lm_finds_what_scipy_finds(n: int, isa: str) -> None:
    program = valley_residuals(n)
    found = program.minimize(start(n), "lm")
    theirs = optimize.least_squares(
        lambda x: program(x)[0], start(n), jac=lambda x: program(x)[1], method="lm", xtol=1e-15
    )
    np.testing.assert_allclose(found.x, theirs.x, atol=1e-7)
    assert found.value == pytest.approx(theirs.cost, abs=1e-14)


def test_lm_with_residuals_that_stay() -> None:
    rng = np.random.default_rng(1)
    t = np.linspace(0, 3, 40)
    y = 2 * np.exp(-0.7 * t) + 0.5 + 0.05 * rng.normal(size=40)
    p = tg.Graph().inputs(3)
    program = tg.compile(list(p[0] * np.exp(-p[1] * t) + p[2] - y), wrt=p)
    found = program.minimize([1.0, 1.0, 0.0], "lm")
    theirs = optimize.least_squares(
        lambda x: program(x)[0],
        [1.0, 1.0, 0.0],
        jac=lambda x: program(x)[1],
        xtol=1e-14,
        ftol=1e-14,
    )
    np.testing.assert_allclose(found.x, theirs.x, rtol=1e-6)
    assert found.value == pytest.approx(theirs.cost, rel=1e-12)
    assert found.steps < 30


def test_lm_solves_linear_least_squares_almost_at_once() -> None:
    rng = np.random.default_rng(2)
    matrix, right = rng.normal(size=(30, 6)), rng.normal(size=30)
    x = tg.Graph().inputs(6)
    found = tg.compile(list(matrix @ x - right), wrt=x).minimize(np.zeros(6), "lm")
    wanted, squares, *_ = np.linalg.lstsq(matrix, right, rcond=None)
    np.testing.assert_allclose(found.x, wanted, atol=1e-8)
    assert found.value == pytest.approx(0.5 * squares[0], rel=1e-12)
    assert found.steps <= 10


def test_lm_does_not_depend_on_units() -> None:
    plain, scaled = tg.Graph().inputs(2), tg.Graph().inputs(2)
    first = tg.compile(residuals(plain), wrt=plain).minimize([-1.2, 1.0], "lm")
    units = np.array([1e6, 1e-4])
    second = tg.compile(residuals(scaled * units), wrt=scaled).minimize(
        np.array([-1.2, 1.0]) / units, "lm", gtol=0.0, ftol=1e-12
    )
    np.testing.assert_allclose(second.x * units, first.x, atol=1e-6)


def test_lm_with_more_unknowns_than_residuals_and_one_that_does_nothing() -> None:
    x = tg.Graph().inputs(3)
    found = tg.compile([x[0] + x[1] - 3], wrt=x).minimize([0.0, 0.0, 7.0], "lm")
    assert found.x[0] + found.x[1] == pytest.approx(3.0, abs=1e-7)
    assert found.x[2] == 7.0


def test_residuals_that_are_zero_end_at_once() -> None:
    found = valley_residuals().minimize(np.ones(4), "lm")
    assert (found.value, found.steps, found.reason) == (0.0, 0, "gradient")


def test_lm_steps_back_from_nan() -> None:
    x = tg.Graph().inputs(1)
    found = tg.compile([tg.log(x[0]), tg.sqrt(x[0]) - 1], wrt=x).minimize([9.0], "lm")
    assert found.x[0] == pytest.approx(1.0, abs=1e-7)


# ---- all of them -------------------------------------------------------------------------------


@each_method
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("n", "count"), [(3, 2), (3, 40), (19, 9)])
def test_lanes_equal_single_starts_bit_for_bit(method: Any, dtype: str, n: int, count: int) -> None:
    program = of(method, n, dtype)
    x0 = np.random.default_rng(count).normal(size=(count, n)).astype(dtype)
    options: dict[str, Any] = {"history": 5, "steps": 60, "gtol": 1e-3, **rate(method, 1e-4)}
    options["bounds"] = (-2.0, np.resize([2.0, 0.5, 3.0], n))
    many = program.minimize(x0, method, **options)
    assert many.history is not None
    for row, first in enumerate(x0):
        one = program.minimize(first, method, **options)
        np.testing.assert_array_equal(many.x[row], one.x)
        np.testing.assert_array_equal(many.last_x[row], one.last_x)
        assert many.value[row] == one.value
        assert many.reason[row] == one.reason
        assert one.history is not None
        np.testing.assert_array_equal(many.history[: len(one.history), row], one.history)
        assert np.all(many.history[len(one.history) :, row] == one.last_value)


@each_method
def test_bits_do_not_depend_on_threads(method: Any) -> None:
    program = of(method, 3)
    x0 = np.random.default_rng(0).normal(size=(3000, 3))
    want = program.minimize(x0, method, steps=20, threads=1, history=3, **rate(method, 1e-4))
    got = program.minimize(x0, method, steps=20, threads=3, history=3, **rate(method, 1e-4))
    for field in ("x", "value", "last_x", "last_value", "history", "reason"):
        np.testing.assert_array_equal(getattr(got, field), getattr(want, field))


@each_method
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("n", "shape"), [(19, ()), (19, (20,)), (8, (3,))])
def test_bits_do_not_depend_on_the_instruction_set(
    method: Any, dtype: str, n: int, shape: tuple[int, ...]
) -> None:
    program = of(method, n, dtype)
    x0 = np.random.default_rng(n).normal(size=(*shape, n)).astype(dtype)
    before = tg.isa()
    found = []
    try:
        for isa in tg.isas():
            tg.set_isa(isa)
            found.append(program.minimize(x0, method, steps=40, history=1, **rate(method, 1e-4)))
    finally:
        tg.set_isa(before)
    for other in found[1:]:
        for field in ("x", "value", "last_x", "last_value", "history"):
            np.testing.assert_array_equal(getattr(other, field), getattr(found[0], field))


@pytest.mark.parametrize("method", ["sgd", "momentum", "adam"])
def test_the_best_points_are_those_of_the_lowest_values(method: Any) -> None:
    program = of(method, 9)
    x0 = np.random.default_rng(1).normal(size=(20, 9))
    seen: list[tuple[Array, Array]] = []
    found = program.minimize(
        x0, method, steps=30, lr=1e-2 if method == "adam" else 3e-4,
        callback=lambda step, x, value: seen.append((x, value)), every=1,
    )  # fmt: skip
    for row in range(20):
        known = [(value[row], x[row]) for x, value in seen if value[row] == found.value[row]]
        assert known
        assert any(np.array_equal(x, found.x[row]) for _, x in known)
        assert found.value[row] <= min(value[row] for _, value in seen)


@each_method
def test_values_are_those_of_the_program_at_the_points(method: Any, isa: str) -> None:
    program = of(method)
    found = program.minimize(start(), method, steps=15, **rate(method, 1e-4))
    for x, value in ((found.x, found.value), (found.last_x, found.last_value)):
        there = program(x)[0]
        assert value == pytest.approx(
            0.5 * np.sum(there**2) if method == "lm" else there, rel=1e-15
        )


@each_search
def test_callbacks_do_not_change_the_way(method: Any) -> None:
    program = of(method)
    want = program.minimize(start(), method, steps=20)
    seen: list[tuple[int, float]] = []
    got = program.minimize(
        start(),
        method,
        steps=20,
        callback=lambda step, x, value: seen.append((step, value)),
        every=3,
    )
    np.testing.assert_array_equal(got.x, want.x)
    assert [step for step, _ in seen] == [3, 6, 9, 12, 15, 18]
    assert all(later <= earlier for (_, earlier), (_, later) in itertools.pairwise(seen))


@each_search
def test_float32_arrives_as_near_as_it_can(method: Any) -> None:
    found = of(method, 2, "float32").minimize(start(2), method, steps=500)
    assert found.x.dtype == np.float32
    np.testing.assert_allclose(found.x, np.ones(2), atol=5e-3)
    assert found.reason in ("gradient", "change", "no descent")


@each_search
def test_inputs_that_are_not_in_wrt_stay(method: Any) -> None:
    x = tg.Graph().inputs(3)
    parts = [x[0] - x[1], 2 * x[2]]
    outputs = parts if method == "lm" else parts[0] ** 2 + parts[1] ** 2
    found = tg.compile(outputs, wrt=[x[2], x[0]]).minimize([0.0, 3.0, 1.0], method)
    np.testing.assert_allclose(found.x, [3.0, 3.0, 0.0], atol=1e-7)
    assert found.x[1] == 3.0


# ---- what is not finite ------------------------------------------------------------------------


@each_method
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_start_that_is_not_finite_ends_and_leaves_others_alone(method: Any, bad: float) -> None:
    program = of(method, 3)
    x0 = np.random.default_rng(0).normal(size=(9, 3))
    want = program.minimize(x0, method, steps=30, **rate(method, 1e-4))
    x0[4] = bad
    got = program.minimize(x0, method, steps=30, **rate(method, 1e-4))
    others = np.arange(9) != 4
    np.testing.assert_array_equal(got.x[others], want.x[others])
    assert got.reason[4] == "not finite"
    np.testing.assert_array_equal(got.x[4], x0[4])


@each_search
def test_a_gradient_that_is_not_finite_ends(method: Any) -> None:
    x = tg.Graph().inputs(1)
    outputs = [tg.sqrt(x[0])] if method == "lm" else tg.sqrt(x[0])
    found = tg.compile(outputs, wrt=x).minimize([0.0], method)
    assert (found.reason, found.value) == ("not finite", 0.0)


# ---- bounds ------------------------------------------------------------------------------------


@each_method
def test_no_point_that_is_looked_at_lies_beyond_the_bounds(method: Any) -> None:
    program = of(method)
    low, high = np.array([-0.5, -1.0, 0.2, -9.0]), np.array([0.5, 0.8, 0.9, 9.0])
    seen: list[Array] = []
    found = program.minimize(
        start(),
        method,
        steps=50,
        bounds=(low, high),
        callback=lambda step, x, value: seen.append(x),
        every=1,
        **rate(method, 1e-3),
    )
    for x in [*seen, found.x, found.last_x]:
        assert np.all((low <= x) & (x <= high))


BOXES = [
    (-0.5, 0.5),
    ([-2.0, -2.0, -2.0, -2.0], [0.3, 2.0, 0.2, 2.0]),
    (-math.inf, [0.9, 0.9, 0.9, 0.5]),
    ([1.2, -1.0, -1.0, -1.0], math.inf),
    (0.25, 0.25),
]


@each_search
@pytest.mark.parametrize("box", BOXES)
def test_the_minimum_within_bounds_is_scipys(method: Any, box: tuple[Any, Any]) -> None:
    found = of(method).minimize(start(), method, steps=3000, bounds=box)
    low, high = (np.broadcast_to(np.asarray(side, float), 4) for side in box)
    theirs = optimize.minimize(
        **valley().scipy(),
        x0=np.clip(start(), low, high),
        method="L-BFGS-B",
        bounds=optimize.Bounds(low, high),
        options={"gtol": 1e-10, "ftol": 1e-16, "maxiter": 5000},
    )
    ours = found.value * 2 if method == "lm" else found.value
    assert ours <= theirs.fun + 1e-8 * (1 + abs(theirs.fun))
    assert found.reason in ("gradient", "change", "no descent")


@pytest.mark.parametrize("method", ["sgd", "momentum", "adam"])
def test_projection_stops_at_the_nearest_point_of_a_bowl(method: Any) -> None:
    x = tg.Graph().inputs(2)
    program = tg.compile((x[0] - 3) ** 2 + (x[1] + 1) ** 2, wrt=x)
    found = program.minimize(
        [0.0, 0.0], method, lr=0.05, steps=2000, bounds=(-2, [1, 2]), gtol=1e-9
    )
    np.testing.assert_allclose(found.x, [1.0, -1.0], atol=1e-7)
    assert found.reason == "gradient"


def test_starts_beyond_the_bounds_are_projected_first() -> None:
    found = valley().minimize([9.0, -9.0, 0.0, 0.5], "sgd", steps=0, bounds=(-1, 1))
    assert found.x.tolist() == [1.0, -1.0, 0.0, 0.5]


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 6),
    st.sampled_from(["lbfgs", "lm"]),
)
@settings(max_examples=60, deadline=None)
def test_convex_quadratics_within_boxes(seed: int, n: int, method: Any) -> None:
    rng = np.random.default_rng(seed)
    matrix, right = rng.normal(size=(n + 2, n)), rng.normal(size=n + 2)
    low = rng.normal(size=n) - 0.5
    high = low + rng.exponential(size=n)
    x = tg.Graph().inputs(n)
    rest = matrix @ x - right
    outputs = list(rest) if method == "lm" else 0.5 * np.dot(rest, rest)
    found = tg.compile(outputs, wrt=x).minimize(
        rng.normal(size=n), method, steps=2000, bounds=(low, high), ftol=0.0
    )
    theirs = optimize.lsq_linear(matrix, right, (low, high), tol=1e-14)
    assert found.value == pytest.approx(theirs.cost, rel=1e-7, abs=1e-10)
    np.testing.assert_allclose(found.x, theirs.x, atol=2e-4)


# ---- when to stop ------------------------------------------------------------------------------


def test_the_gradient_is_as_small_as_asked_for() -> None:
    program = valley()
    for method, lr in (("sgd", 1e-3), ("adam", 0.02), ("lbfgs", 0.0)):
        found = program.minimize(start(), method, steps=20_000, gtol=1e-2, **rate(method, lr))  # type: ignore[arg-type]
        assert found.reason == "gradient"
        assert np.max(np.abs(program(found.last_x)[1])) <= 1e-2
        assert found.steps < 20_000


@each_method
def test_a_target_ends_as_soon_as_it_is_reached(method: Any) -> None:
    program = of(method, 2)
    found = program.minimize(
        start(2), method, steps=20_000, target=0.8, history=1, **rate(method, 1e-3)
    )
    assert found.reason == "target"
    assert found.history is not None
    assert found.history[-1] <= 0.8
    assert np.all(found.history[:-1] > 0.8)


@pytest.mark.parametrize("method", ["sgd", "momentum", "adam"])
def test_patience_ends_where_nothing_gets_better(method: Any) -> None:
    x = tg.Graph().inputs(1)
    program = tg.compile(x[0] ** 2, wrt=x)
    found = program.minimize([1.0], method, lr=3.0, patience=7, steps=100, history=1)
    assert found.reason == "patience"
    assert found.history is not None
    assert len(found.history) == np.argmin(found.history) + 8


def test_patience_ends_a_search_that_has_to_look_twice() -> None:
    found = valley().minimize(start(), "lbfgs", patience=1, history=1)
    assert found.reason == "patience"
    assert found.history is not None
    assert found.history[-1] == found.history[-2]


def test_reasons_of_lanes_do_not_depend_on_each_other() -> None:
    program = valley()
    starts = np.vstack([start(), np.ones(4), start() * 0.5, np.full(4, np.nan), start() * 2])
    many = program.minimize(starts, "lbfgs", patience=1, steps=8)
    for row, first in enumerate(starts):
        assert many.reason[row] == program.minimize(first, "lbfgs", patience=1, steps=8).reason
    assert len(set(many.reason)) >= 3


def test_a_gradient_of_nan_is_not_small() -> None:
    x = tg.Graph().inputs(2)
    program = tg.compile(tg.sqrt(x[0]) * x[0] + x[1] * 1e-9, wrt=x)  # 0 times infinity by x[0]
    assert math.isnan(program([0.0, 0.0])[1][0])
    assert program.minimize([0.0, 0.0], "sgd", steps=1, gtol=1.0).reason != "gradient"


def test_a_change_as_small_as_asked_for_ends() -> None:
    x = tg.Graph().inputs(1)
    program = tg.compile(x[0] ** 2 + 1, wrt=x)
    found = program.minimize([1.0], "sgd", lr=0.1, ftol=1e-3, steps=1000, history=1)
    assert found.reason == "change"
    assert found.history is not None
    changes = -np.diff(found.history) / found.history[:-1]
    assert changes[-1] <= 1e-3
    assert np.all(changes[:-1] > 1e-3)


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("starts", [1, 5])
@pytest.mark.parametrize("method", ["sgd", "momentum", "adam"])
def test_callbacks_do_not_end_what_still_changes(method: Any, starts: int, every: int) -> None:
    """A callback is given the value at its point, which the next step meets again."""
    x0 = np.random.default_rng(0).normal(size=(starts, 4))
    rules: dict[str, Any] = {"ftol": 1e-9, "lr": 1e-4, "steps": 50, "history": 1}
    want = valley().minimize(x0, method, **rules)
    got = valley().minimize(x0, method, **rules, callback=lambda *_: None, every=every)
    assert got.reason.tolist() == want.reason.tolist() == ["steps"] * starts
    for name in ("x", "value", "last_x", "last_value", "history", "steps"):
        np.testing.assert_array_equal(getattr(got, name), getattr(want, name))


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("rule", [{"target": math.inf}, {"gtol": 1.0}])
@pytest.mark.parametrize("method", ["sgd", "momentum", "adam", "lbfgs"])
def test_callbacks_come_once_a_step_where_a_rule_ends_the_run(
    method: Any, rule: dict[str, Any], every: int
) -> None:
    x = tg.Graph().input()
    program = tg.compile(tg.square(x), wrt=x)
    seen: list[int] = []
    found = program.minimize(
        [2.0], method, **rule, steps=1000, callback=lambda s, x, v: seen.append(s), every=every
    )
    assert found.steps < 1000
    assert seen == list(range(every, found.steps + 1, every))
    assert not found.stopped


def test_without_rules_all_steps_are_taken() -> None:
    for method in ("sgd", "momentum", "adam"):
        found = valley().minimize(np.ones(4), method, steps=37)
        assert (found.steps, found.reason) == (37, "steps")


def test_the_callback_and_ctrl_c_are_reasons() -> None:
    found = valley().minimize(start(), steps=50, callback=lambda s, x, v: s == 20, every=10)
    assert (found.reason, found.stopped) == ("callback", True)

    def interrupt(step: int, x: Array, value: Any) -> None:
        raise KeyboardInterrupt

    found = valley().minimize(start(), steps=50, callback=interrupt, every=10)
    assert (found.reason, found.stopped, found.steps) == ("interrupt", True, 10)


@each_search
@pytest.mark.usefixtures("ctrl_c_is_heard")
def test_ctrl_c_keeps_the_best_point(method: Any) -> None:
    x = tg.Graph().inputs(2)
    falls: Any = [tg.exp(-x[0]), tg.exp(-x[1])] if method == "lm" else tg.exp(-x[0]) + x[1] ** 4
    program = tg.compile(falls, wrt=x)
    timer = threading.Timer(0.2, signal.raise_signal, [signal.SIGINT])
    timer.start()
    try:
        found = program.minimize(
            np.ones((4000, 2)), method, steps=10**9, gtol=0.0, ftol=0.0, threads=1
        )
    finally:
        timer.cancel()
        timer.join()
    assert np.all(found.value <= 1.4)
    assert set(found.reason) <= {"interrupt", "no descent", "gradient", "not finite"}


# ---- arguments ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gtol": -1.0}, "gtol"),
        ({"gtol": math.nan}, "gtol"),
        ({"ftol": "small"}, "ftol"),
        ({"target": math.nan}, "target"),
        ({"target": "low"}, "target"),
        ({"patience": 0}, "patience"),
        ({"patience": 1.5}, "patience"),
        ({"method": "momentum", "momentum": 1.0}, "momentum"),
        ({"method": "adam", "momentum": 0.5}, "momentum"),
        ({"method": "lbfgs", "memory": 0}, "memory"),
        ({"method": "lbfgs", "memory": 2**64}, r"memory below 2\*\*63"),
        ({"method": "lbfgs", "patience": 2**64}, r"patience below 2\*\*63"),
        ({"method": "lm", "memory": 3}, "memory"),
        ({"bounds": 3}, "bounds"),
        ({"bounds": [0.0, 1.0]}, "bounds"),
        ({"bounds": (0.0, 1.0, 2.0)}, "bounds"),
        ({"bounds": (1.0, 0.0)}, "low <= high"),
        ({"bounds": (math.nan, 0.0)}, "low <= high"),
        ({"bounds": ("a", "b")}, "bounds"),
        ({"bounds": ("0", "1")}, "bounds"),
        ({"lr": "a"}, "finite lr > 0"),
        ({"lr": -1.0}, "finite lr > 0, got -1.0"),
        ({"lr": 0}, "finite lr > 0"),
        ({"lr": math.inf}, "finite lr > 0"),
        ({"method": "lbfgs", "lr": 0.1}, "lr is an option of method 'sgd', 'momentum' or 'adam'"),
        ({"method": "lm", "lr": 0.1}, "lr"),
        ({"method": "sgd", "betas": (0.5, 0.5)}, "betas is an option of method 'adam'"),
        ({"method": "lbfgs", "eps": 1e-3}, "eps"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(tg.OptionError, match=message):
        valley().minimize(start(), **options)


@pytest.mark.parametrize("number", [np.float32, np.float64, np.float16])
def test_options_may_be_numbers_of_numpys(number: Any) -> None:
    program: Any = valley()
    plain: dict[str, Any] = {"lr": 1e-3, "momentum": 0.5, "gtol": 1e-3, "ftol": 0.0, "target": 1.0}
    given = {name: number(value) for name, value in plain.items()}
    same = {name: float(value) for name, value in given.items()}
    found, wanted = (
        program.minimize(start(), "momentum", steps=np.int64(50), patience=np.int32(9), **options)
        for options in (given, same)
    )
    assert (found.x.tobytes(), found.reason) == (wanted.x.tobytes(), wanted.reason)
    betas = (number(0.5), number(0.75))
    assert program.minimize(start(), betas=betas, target=np.int64(10**6)).reason == "target"


def test_none_is_no_bound() -> None:
    program: Any = valley()
    for loose, meant in (
        ((None, 0.5), (-math.inf, 0.5)),
        ((0.1, None), (0.1, math.inf)),
        (([None, 0.0, None, 0.2], None), ([-math.inf, 0.0, -math.inf, 0.2], math.inf)),
    ):
        found, wanted = (program.minimize(start(), "lbfgs", bounds=each) for each in (loose, meant))
        assert found.x.tolist() == wanted.x.tolist()


def test_bounds_of_the_wrong_shape_are_refused() -> None:
    with pytest.raises(tg.ShapeError, match="bounds"):
        valley().minimize(start(), bounds=([0.0, 0.0], 1.0))


def test_a_program_without_variables_ends_where_it_is() -> None:
    x = tg.Graph().inputs(2)
    no_vars: list[Any] = []
    program = tg.compile(x[0] * x[1], wrt=no_vars)
    for method in ("sgd", "adam", "lbfgs"):
        found = program.minimize([2.0, 3.0], method, steps=3)
        assert (found.x.tolist(), found.value) == ([2.0, 3.0], 6.0)


def test_the_native_loop_takes_no_nonsense_either() -> None:
    program = valley()
    with pytest.raises(KeyError):
        program.descend(start(), "adam", 3, {})


def test_lm_wants_residuals() -> None:
    x = tg.Graph().inputs(2)
    for program in (tg.compile(x[0] * x[1], wrt=x), tg.compile([x[0], x[1]])):
        with pytest.raises(tg.GradError, match="residuals"):
            program.minimize([1.0, 2.0], "lm")
