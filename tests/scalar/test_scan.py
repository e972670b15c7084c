"""Loops against the same steps unrolled, in NumPy and in high precision."""

from __future__ import annotations

import ctypes
import math
import pickle
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tapegrad as tg
from tapegrad.scalar.nodes import as_var

untyped: Any = tg

#: Lengths on both sides of what one, two and three levels of 4 steps hold.
LENGTHS = [0, 1, 2, 3, 4, 5, 15, 16, 17, 20, 63, 64, 65, 70]


def unrolled(step: Any, carry: Any, xs: Any) -> tuple[Any, list[Any]]:
    ys = []
    for x in xs:
        carry, y = step(carry, x)
        ys.append(y)
    return carry, ys


def programs(length: int, numbers: bool, order: int = 1, dtype: str = "float64") -> list[Any]:
    """The same computation as a scan and unrolled: all results, with derivatives."""
    loops = (lambda *a: tg.scan(*a, checkpoint=4), unrolled)
    return [pendulum(loop, length, numbers, order, dtype) for loop in loops]


def pendulum(loop: Any, length: int, numbers: bool, order: int, dtype: str) -> tg.Program:
    data = np.random.default_rng(length).uniform(-1, 1, (length, 2))
    g = tg.Graph()
    rate, a, b = g.input("rate"), g.input("a"), g.input("b")
    xs: Any = data if numbers else g.inputs(2 * length).reshape(length, 2)
    scale = tg.exp(rate * 0.1)

    def step(carry: Any, x: Any) -> Any:
        p, v = carry
        q = p + rate * v * tg.cos(x[0])
        w = 0.9 * v - tg.sin(p) * x[1] * scale
        return (q, w), q * x[0] + w

    (p, v), ys = loop(step, (a, b), xs)
    wrt = [rate, a, b, *([] if numbers else np.ravel(xs))]
    outputs = [p, v, tg.dot(ys, ys) + rate]
    if order == 2:
        outputs = list(tg.grad(tg.sum(outputs), wrt))
    return tg.compile(outputs, wrt=wrt, dtype=dtype)


def points(program: tg.Program, rows: int = 5) -> Any:
    return np.random.default_rng(7).uniform(0.2, 0.8, (rows, program.n_inputs))


@pytest.mark.parametrize("numbers", [True, False])
@pytest.mark.parametrize("length", LENGTHS)
def test_values_and_derivatives_are_those_of_the_steps(length: int, numbers: bool) -> None:
    scanned, plain = programs(length, numbers)
    for a, b in zip(scanned(points(plain)[0]), plain(points(plain)[0]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("numbers", [True, False])
@pytest.mark.parametrize("length", [1, 4, 17])
def test_second_derivatives(length: int, numbers: bool) -> None:
    scanned, plain = programs(length, numbers, order=2)
    for a, b in zip(scanned(points(plain)[0]), plain(points(plain)[0]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)


def test_batches_give_the_same_bits_on_every_instruction_set(isa: str) -> None:
    scanned, plain = programs(17, True)
    rows = points(plain, 300)
    values, jacobians = scanned.batch(rows, threads=2)
    wanted = plain.batch(rows)
    np.testing.assert_allclose(values, wanted[0], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(jacobians, wanted[1], rtol=1e-12, atol=1e-12)
    for place in (0, 123, 299):
        one, jacobian = scanned(rows[place])
        assert one.tobytes() == values[place].tobytes()
        assert jacobian.tobytes() == jacobians[place].tobytes()


def test_float32() -> None:
    scanned, plain = programs(20, True, dtype="float32")
    rows = points(plain, 40).astype(np.float32)
    for a, b in zip(scanned.batch(rows), plain.batch(rows), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("length", [3, 17, 70])
def test_forward_mode_agrees_with_reverse_mode(length: int) -> None:
    def total(x: Any) -> Any:
        (p, v), ys = tg.scan(
            lambda c, t: ((c[0] + x[0] * c[1], c[1] - tg.sin(c[0] * t)), c[0] * t),
            (x[1], x[2]),
            np.linspace(0, 1, length),
            checkpoint=4,
        )
        return np.array([p, v, tg.sum(ys)], dtype=object)

    x = [0.3, 0.5, 0.7]
    forward = tg.jacobian(total, mode="forward")(x)
    reverse = tg.jacobian(total, mode="reverse")(x)
    np.testing.assert_allclose(forward, reverse, rtol=1e-12)
    assert tg.gradcheck(lambda x: tg.sum(total(x)), x)
    hessian = tg.hessian(lambda x: tg.sum(total(x)))(x)
    np.testing.assert_allclose(hessian, hessian.T, rtol=1e-10)


def test_scans_within_scans() -> None:
    def grid(loop: Any, x: Any) -> Any:
        def outer(carry: Any, a: Any) -> Any:
            inner = lambda c, b: (c + tg.sin(a * b) * x[0] * carry, c)  # noqa: E731
            end, ys = loop(inner, x[1], np.arange(1.0, 7.0))
            return tg.tanh(end), tg.sum(ys)

        end, ys = loop(outer, x[2], np.arange(1.0, 10.0))
        return end + tg.sum(ys)

    scanned = tg.value_and_grad(lambda x: grid(lambda *a: tg.scan(*a, checkpoint=3), x))
    plain = tg.value_and_grad(lambda x: grid(unrolled, x))
    for a, b in zip(scanned([0.3, 0.2, 0.1]), plain([0.3, 0.2, 0.1]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_a_long_recursion_against_high_precision() -> None:
    """GARCH's likelihood: 2,000 steps, derivatives by mpmath's differences."""
    returns = np.random.default_rng(0).standard_normal(2000) * 0.01
    g = tg.Graph()
    omega, alpha, beta = g.inputs(3)

    def step(carry: Any, r: Any) -> Any:
        variance, total = carry
        total = total + tg.log(variance) + r * r / variance
        return (omega + alpha * r * r + beta * variance, total), None

    (_, loss), ys = tg.scan(step, (1e-4, 0.0), returns)
    assert ys is None
    value, gradient = tg.compile(loss, wrt=[omega, alpha, beta])([1e-5, 0.1, 0.8])

    def exact(omega: Any, alpha: Any, beta: Any) -> Any:
        variance, total = mpmath.mpf(1e-4), mpmath.mpf(0)
        for r in map(mpmath.mpf, returns.tolist()):
            total += mpmath.log(variance) + r * r / variance
            variance = omega + alpha * r * r + beta * variance
        return total

    with mpmath.workdps(40):
        at = [mpmath.mpf(p) for p in (1e-5, 0.1, 0.8)]
        assert value == pytest.approx(float(exact(*at)), rel=1e-12)
        for place in range(3):
            h = at[place] * mpmath.mpf(10) ** -15
            ahead = [p + h * (k == place) for k, p in enumerate(at)]
            behind = [p - h * (k == place) for k, p in enumerate(at)]
            slope = (exact(*ahead) - exact(*behind)) / (2 * h)
            assert gradient[place] == pytest.approx(float(slope), rel=1e-10)


def test_the_branch_a_where_does_not_take_does_no_harm() -> None:
    g = tg.Graph()
    x = g.input("x")
    end, _ = tg.scan(lambda c, _: (tg.sqrt(c), None), x, length=100)
    program = tg.compile(tg.where(x > 0, end, 2 * x), wrt=[x])
    assert program([-4.0])[0] == -8.0
    assert program([-4.0])[1].tolist() == [2.0]
    assert program([0.0])[1].tolist() == [2.0]


#: Loops of three rounds with a `where` in them, or above them, of x[0] that may be 0 or less.
MASKED: dict[str, Callable[[Any, Any], Any]] = {
    "what comes from around the loop": lambda loop, x: loop(
        lambda c, _: (tg.where(x[0] > 0, c * tg.log(x[0]), c * x[1]), None), x[1], [0.0] * 3
    )[0],
    "what the loop starts with": lambda loop, x: loop(
        lambda c, _: (tg.where(x[0] > 0, c * x[1], x[1]), None), tg.sqrt(x[0]), [0.0] * 3
    )[0],
    "what a round takes": lambda loop, x: loop(
        lambda c, t: (c * x[1] + tg.where(x[0] > 0, t, x[1]), None),
        x[1],
        [tg.log(x[0]), tg.sqrt(x[0]), x[1]],
    )[0],
    "what a round leaves to the next": lambda loop, x: loop(
        lambda c, _: ((tg.where(x[0] > 0, tg.sqrt(c[1]), x[1]), c[0] * x[0]), None),
        (x[1], x[0]),
        [0.0] * 3,
    )[0][0],
    "what a round gives": lambda loop, x: tg.sum(
        loop(
            lambda c, _: (c * x[1], tg.where(x[0] > 0, c * tg.log(x[0]), c)),
            tg.where(x[0] > 0, tg.sqrt(x[0]), x[1]),
            [0.0] * 3,
        )[1]
    ),
    "a loop in a loop": lambda loop, x: loop(
        lambda c, _: (
            loop(lambda d, _: (tg.where(x[0] > 0, d * tg.log(x[0]), d + x[1]), None), c, [0.0] * 2)[
                0
            ],
            None,
        ),
        tg.where(x[0] > 0, tg.sqrt(x[0]), x[1] * x[1]),
        [0.0] * 3,
    )[0],
    "a loop below": lambda loop, x: tg.where(
        x[0] > 0, loop(lambda c, _: (c * tg.log(x[0]) + x[1], None), x[1], [0.0] * 3)[0], x[1] ** 2
    ),
}


@pytest.mark.parametrize("checkpoint", [2, 64])
@pytest.mark.parametrize("name", MASKED)
def test_a_where_in_a_step_masks_as_it_does_without_a_loop(name: str, checkpoint: int) -> None:
    def scanned(*arguments: Any) -> Any:
        return tg.scan(*arguments, checkpoint=checkpoint)

    found = []
    for loop in (scanned, unrolled):
        x = tg.Graph().inputs(2)
        y = MASKED[name](loop, x)
        first = tg.grad(y, x)
        reverse = [slope for each in first for slope in tg.grad(each, x)]
        forward = tg.jacobian(first, x, mode="forward").ravel()
        along = [tg.jvp(y, each, 1.0) for each in x]
        found.append(tg.compile([y, *first, *reverse, *forward, *along], inputs=x))
    for point in ([0.0, 2.0], [-1.0, 2.0], [0.5, 2.0]):
        got, want = (program(point) for program in found)
        assert np.isfinite(want).all()
        np.testing.assert_allclose(got, want, rtol=1e-13)


#: Loops of three rounds that take square roots of 0: infinite slopes, some with no part in it.
INFINITE: dict[str, Callable[[Any, Any], Any]] = {
    "a carry that stands still": lambda loop, x: tg.sum(
        loop(lambda c, _: ((c[0] * x[1], tg.sqrt(c[1])), None), (x[1], x[0]), [0.0] * 3)[0]
    ),
    "a carry that moves later": lambda loop, x: loop(
        lambda c, _: ((c[0] * x[1], c[0] + tg.sqrt(c[1])), None), (x[1], x[0]), [0.0] * 3
    )[0][1],
    "carries that change places": lambda loop, x: loop(
        lambda c, _: ((tg.sqrt(c[1]), c[0] * x[1]), None), (x[1], x[0]), [0.0] * 3
    )[0][0],
    "a carry that nobody takes": lambda loop, x: loop(
        lambda c, _: ((tg.sqrt(c[0]) ** 2, c[1] * x[1]), None), (x[0], x[1]), [0.0] * 3
    )[0][0],
    "what came before such a loop": lambda loop, x: loop(
        lambda c, _: ((c[0] * x[1], c[1] * x[1]), None), (tg.sqrt(x[0]) ** 2, x[1]), [0.0] * 3
    )[0][0],
    "a where that another carry has": lambda loop, x: tg.sum(
        loop(
            lambda c, _: ((tg.sqrt(c[0]) ** 2, tg.where(c[1] > 0, c[1], x[1])), None),
            (x[0], x[1]),
            [0.0] * 3,
        )[0]
    ),
    "the output of one round": lambda loop, x: loop(
        lambda c, t: (c * x[1], c * tg.sqrt(t)), x[1], [x[0], x[1], x[0]]
    )[1][1],
    "a loop in a loop": lambda loop, x: loop(
        lambda c, _: (
            loop(lambda d, _: ((d[0] * x[1], tg.sqrt(d[1])), None), c, [0.0] * 2)[0],
            None,
        ),
        (x[1], x[0]),
        [0.0] * 3,
    )[0][0],
}


@pytest.mark.parametrize("checkpoint", [2, 64])
@pytest.mark.parametrize("name", INFINITE)
def test_derivatives_are_finite_where_those_of_the_steps_are(name: str, checkpoint: int) -> None:
    def scanned(*arguments: Any) -> Any:
        return tg.scan(*arguments, checkpoint=checkpoint)

    found = []
    for loop in (scanned, unrolled):
        x = tg.Graph().inputs(2)
        y = INFINITE[name](loop, x)
        first = tg.grad(y, x)
        second = tg.jacobian(first, x, mode="forward").ravel()
        along = [tg.jvp(y, each, 1.0) for each in x]
        found.append(tg.compile([y, *first, *second, *along], inputs=x)([0.0, 2.0]))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-14)


def changing(loop: Any, length: int) -> tg.Program:
    """Every other output counts, and every third x moves."""
    x = tg.Graph().inputs(3)
    end, ys = loop(
        lambda c, t: ((c[1] + 0.5 * tg.sin(t), 0.9 * c[0] * x[1]), c[0] * tg.sqrt(t)),
        (x[1], x[0]),
        [x[2] if k % 3 else x[0] for k in range(length)],
    )
    y = tg.sum(ys[::2]) + end[0]
    return tg.compile([y, *tg.grad(y, x), *(tg.jvp(y, each, 1.0) for each in x)], inputs=x)


@pytest.mark.parametrize("length", [7, 300])
def test_patterns_that_change_with_every_round(length: int) -> None:
    found, want = (
        changing(loop, length)([0.4, 0.7, 0.0])
        for loop in (lambda *a: tg.scan(*a, checkpoint=1000), unrolled)
    )
    assert np.isfinite(want[[0, 1, 2, 4, 5]]).all()
    np.testing.assert_allclose(found, want, rtol=1e-12)


def test_a_carry_that_is_a_queue_has_a_gradient_of_few_loops() -> None:
    """Each round of the way back has an adjoint more, and is no loop of its own for that."""
    x = tg.Graph().input()
    queue = [x * k for k in range(100)]
    end, _ = tg.scan(lambda c, _: ([tg.sin(c[0]) + c[-1], *c[:-1]], None), queue, length=60)
    before = len(x.graph)
    tg.grad(end[0], x)
    stored = 60 * len(queue)
    assert len(x.graph) - before < 1.5 * stored


@pytest.mark.parametrize("length", [1_000, 100_000])
def test_size_and_compile_time_do_not_depend_on_the_length(length: int) -> None:
    g = tg.Graph()
    x = g.inputs(3)
    start = time.perf_counter()
    end, _ = tg.scan(
        lambda c, t: ((c[0] + x[2] * c[1], c[1] - x[2] * tg.sin(c[0]) * t), None),
        (x[0], x[1]),
        np.linspace(0, 1, length),
    )
    program = tg.compile(end[0], wrt=x)
    assert time.perf_counter() - start < 0.5
    assert program.stats["slots"] < 2500
    assert program.stats["code_bytes"] < 20_000
    assert len(g) < 2500


# ---- what it takes and gives --------------------------------------------------------------------


def test_structures_are_kept() -> None:
    g = tg.Graph()
    x = g.inputs(4)
    carry = {"a": x[0], "b": [x[1:3], (x[3], 2.0)]}

    def step(c: Any, row: Any) -> Any:
        (m, n), k = row["m"], row["k"]
        moved = {"a": c["a"] + m, "b": [c["b"][0] * n, (c["b"][1][0] - k, c["b"][1][1])]}
        return moved, (c["a"], {"z": c["b"][0] * k})

    rows = {"m": np.arange(6.0).reshape(3, 2), "k": [x[0], 2.0, x[1]]}
    end, ys = tg.scan(step, carry, rows)
    assert end["b"][0].shape == (2,)
    assert ys[0].shape == (3,)
    assert ys[1]["z"].shape == (3, 2)
    flat = [end["a"], *end["b"][0], *end["b"][1], *ys[0], *ys[1]["z"].ravel()]
    found = tg.compile(flat)([1.0, 2.0, 3.0, 4.0])
    assert found.tolist() == [7, 30, 45, -1, 2, 1, 1, 3, 2, 3, 4, 6, 12, 18]
    assert found[3] == 4.0 - 1.0 - 2.0 - 2.0


class Pair(NamedTuple):
    first: Any
    second: Any


def test_named_tuples_are_kept() -> None:
    x = tg.Graph().inputs(2)

    def step(carry: Pair, row: Pair) -> tuple[Pair, Pair]:
        moved = Pair(carry.first + row.first * carry.second, carry.second * row.second)
        return moved, Pair(carry.second, carry.first)

    rows = Pair([1.0, 2.0, 3.0], [0.5, 4.0, 2.0])
    end, ys = tg.scan(step, Pair(x[0], x[1]), rows)
    found = tg.compile([end.first, end.second, *ys.first, *ys.second])([1.0, 2.0])
    last, wanted = tg.scan(step, Pair(1.0, 2.0), rows)  # on numbers, in Python
    assert found.tolist() == [last.first, last.second, *wanted.first, *wanted.second]
    assert isinstance(wanted, Pair)


def test_steps_that_differ_in_nothing_are_recorded_once() -> None:
    x = tg.Graph().inputs(2)
    end, ys = tg.scan(lambda c, _: (c, (x[0] * 2, x)), None, length=3)
    assert end is None
    assert (ys[0].shape, ys[1].shape) == ((3,), (3, 2))
    assert tg.compile(list(ys[1].ravel()))([1.0, 2.0]).tolist() == [1.0, 2.0] * 3
    assert tg.scan(lambda c, _: (c, x[0]), None, length=0)[1].shape == (0,)


def test_numbers_alone_run_in_python() -> None:
    end, ys = tg.scan(lambda c, x: (c + x, (c, 2 * x)), 1.0, [1.0, 2.0, 3.0])
    assert end == 7.0
    assert [each.tolist() for each in ys] == [[1.0, 2.0, 4.0], [2.0, 4.0, 6.0]]
    assert tg.scan(lambda c, x: (c, None), 1.0, length=0) == (1.0, None)


@pytest.mark.parametrize("start", ["a number", "a Var"])
@pytest.mark.parametrize("rate", ["none", "around"])
def test_no_steps_have_outputs_without_rows(start: str, rate: str) -> None:
    given = tg.Graph().inputs(2)
    factor = given[0] if rate == "around" else 3.0
    carry = given[1] if start == "a Var" else 2.0
    end, ys = tg.scan(
        lambda c, x: (c * factor, {"all": x * c, "sum": np.sum(x) / x[0]}), carry, np.ones((0, 3))
    )
    assert tg.compile(as_var(given[0].graph, end, "got"), inputs=given)([5.0, 2.0]) == 2.0
    assert (ys["all"].shape, ys["sum"].shape) == ((0, 3), (0,))


def test_gradients_of_functions_with_scans_of_any_length() -> None:
    def model(p: Any, xs: Any) -> Any:
        end, path = tg.scan(lambda c, x: (c + p * x, c * p), 1.0, xs)
        return end + np.sum(path)

    assert tg.grad(lambda p: model(p, np.ones(2)))(2.0) == 8.0
    assert tg.grad(lambda p: model(p, np.ones(0)))(2.0) == 0.0


def test_outputs_may_be_anything() -> None:
    g = tg.Graph()
    x, y = g.input("x"), g.input("y")
    end, ys = tg.scan(lambda c, t: (y, (1.5, x, c, c, t)), x, [2.0, x, 3.0])
    found = tg.compile([end, *np.ravel(ys)], wrt=[x, y])
    values, jacobian = found([5.0, 7.0])
    assert values.tolist() == [7, 1.5, 1.5, 1.5, 5, 5, 5, 5, 7, 7, 5, 7, 7, 2, 5, 3]
    assert jacobian.sum(axis=0).tolist() == [3 + 1 + 1 + 1, 1 + 2 + 2]


def test_a_scan_without_carry_is_a_map() -> None:
    x = tg.Graph().inputs(200)
    end, ys = tg.scan(lambda _, each: ((), tg.sin(each) * x[0]), (), x, checkpoint=5)
    assert end == ()
    program, plain = tg.compile(tg.sum(ys), wrt=x), tg.compile(tg.sum(tg.sin(x)) * x[0], wrt=x)
    point = np.linspace(0, 1, 200)
    for a, b in zip(program(point), plain(point), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_steps_may_differentiate() -> None:
    """Newton's method for the cube root, with the slope of what the step itself records."""
    g = tg.Graph()
    a = g.input("a")

    def newton(c: Any, _: Any) -> Any:
        f = c**3 - a
        return c - f / tg.grad(f, c), None

    root, _ = tg.scan(newton, 1.0 + 0 * a, length=40)
    value, gradient = tg.compile(root, wrt=[a])([27.0])
    assert value == pytest.approx(3.0, rel=1e-15)
    assert gradient[0] == pytest.approx(1 / 27, rel=1e-12)


def test_what_does_not_change_is_computed_once() -> None:
    g = tg.Graph()
    x = g.input("x")
    end, _ = tg.scan(lambda c, _: (c * tg.exp(x), None), x, length=50)
    assert tg.compile(end).stats["kernels"]["exp"] == 1
    assert tg.compile(end)([0.01]) == pytest.approx(0.01 * math.exp(0.5))


def test_values_in_a_scan_are_those_of_custom_functions_too() -> None:
    cube = tg.custom(lambda x: x**3, lambda g, x: 3 * g * x * x)
    g = tg.Graph()
    x = g.input("x")
    end, _ = tg.scan(lambda c, _: (0.5 * cube(c) + 0.1, None), x, length=70)
    value = x
    for _ in range(70):
        value = 0.5 * value**3 + 0.1
    program, plain = tg.compile(end, wrt=[x]), tg.compile(value, wrt=[x])
    rows = np.linspace(0, 1, 20)[:, None]
    for a, b in zip(program.batch(rows), plain.batch(rows), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-15)


@settings(max_examples=40, deadline=None)
@given(
    length=st.integers(0, 40),
    checkpoint=st.integers(2, 9),
    numbers=st.booleans(),
    carried=st.integers(1, 3),
)
def test_any_length_and_checkpoint(
    length: int, checkpoint: int, numbers: bool, carried: int
) -> None:
    data = np.random.default_rng(length).uniform(0.5, 1.5, length)

    def step(c: Any, x: Any) -> Any:
        mixed = tg.dot(list(c), [x] * carried)
        return np.array([tg.sin(mixed + k) * x for k in range(carried)], dtype=object), mixed

    found = []
    for loop in (lambda *a: tg.scan(*a, checkpoint=checkpoint), unrolled):
        g = tg.Graph()
        c, extra = g.inputs(carried), g.inputs(0 if numbers else length)
        end, ys = loop(step, c, data if numbers else extra)
        program = tg.compile(tg.sum(end) + tg.sum(ys), wrt=[*c, *extra])
        found.append(program(np.concatenate([np.full(carried, 0.3), data[: len(extra)]])))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-11)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-10, atol=1e-12)


def test_keys_of_a_carry_may_come_back_in_another_order() -> None:
    a, b = tg.Graph().inputs(2)

    def step(carry: Any, x: Any) -> Any:
        (inner,) = carry["more"]
        return {"more": [{"q": inner["q"] * 2, "p": inner["p"] + x}], "n": carry["n"] - 1}, None

    start = {"n": 5.0, "more": [{"p": a, "q": b}]}
    end, _ = tg.scan(step, start, np.array([1.0, 2.0]))
    (inner,) = end["more"]
    program = tg.compile([inner["p"], inner["q"], end["n"]], inputs=[a, b])
    assert program([10.0, 20.0]).tolist() == [13.0, 80.0, 3.0]
    with pytest.raises(tg.ShapeError, match="a carry like the one"):
        tg.scan(lambda carry, x: ({"n": carry["n"]}, None), start, length=2)


# ---- out of the process -------------------------------------------------------------------------


@pytest.mark.parametrize("numbers", [True, False])
def test_saved_scans_give_the_same_bits(numbers: bool) -> None:
    program, _ = programs(20, numbers)
    again = pickle.loads(pickle.dumps(program))
    rows = points(program)
    for a, b in zip(program.batch(rows), again.batch(rows), strict=True):
        assert a.tobytes() == b.tobytes()
    assert again.to_bytes() == program.to_bytes()


def test_damaged_scans_do_not_crash() -> None:
    record = programs(20, True)[0].record()
    rng, loaded = np.random.default_rng(0), 0
    for _ in range(1500):
        changed = bytearray(record)
        for place in rng.integers(0, len(record), rng.integers(1, 4)):
            changed[place] = rng.integers(0, 256)
        try:
            again = tg._core.Program(bytes(changed))
        except tg.FileError:
            continue
        loaded += 1
        if again.stats["slots"] < 100_000 and again.n_inputs == 3 and not looks_endless(again):
            again([0.1, 0.2, 0.3])
    assert 1500 / 20 < loaded < 1500 / 2


def looks_endless(program: Any) -> bool:
    def rounds(listing: Any) -> float:
        inner = [loop["count"] * (1 + rounds(loop["body"])) for loop in listing["loops"]]
        return float(sum(inner))

    return rounds(program.listing()) > 1e5


@pytest.mark.parametrize("numbers", [True, False])
def test_c_does_the_same(numbers: bool, tmp_path: Path) -> None:
    program, _ = programs(20, numbers)
    program.to_c(tmp_path / "f.c")
    library = tmp_path / "f.so"
    command = ["gcc", "-std=c99", "-O1", "-Wall", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*command, "-o", library, tmp_path / "f.c", "-lm"], check=True)
    x = points(program)[0]
    values, jacobian = np.empty(3), np.empty((3, program.n_inputs))
    pointers = [each.ctypes.data_as(ctypes.c_void_p) for each in (x, values, jacobian)]
    ctypes.CDLL(str(library)).f(*pointers)
    np.testing.assert_allclose(values, program(x)[0], rtol=1e-12)
    np.testing.assert_allclose(jacobian, program(x)[1], rtol=1e-11, atol=1e-13)


# ---- misuse -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: tg.scan(lambda c, _: (c, None), x), "neither xs nor length"),
        (lambda x: tg.scan(lambda c, _: (c, None), x, [1.0], length=2), "lengths"),
        (lambda x: tg.scan(lambda c, _: (c, None), x, length=-1), "at least 0"),
        (lambda x: untyped.scan(lambda c, _: (c, None), x, length=1.5), "integer"),
        (lambda x: tg.scan(lambda c, _: (c, None), x, length=1, checkpoint=1), "at least 2"),
        (lambda x: untyped.scan(3, x, length=2), "as a function"),
        (lambda x: tg.scan(lambda c, _: (c, c), x, length=2**31), "16,777,215"),
        (lambda x: untyped.scan(lambda c, _: c, x, length=2), "two things"),
        (lambda x: tg.scan(lambda c, _: ((c, c), None), x, length=2), "like the one"),
        (lambda x: tg.scan(lambda c, _: (c, "y"), x, length=2), "expected Vars"),
        (lambda x: tg.scan(lambda c, _: (c, None), "x", length=2), "expected Vars"),
        (lambda x: tg.scan(lambda c, y: (c, None), x, 3.0), "a row for each step"),
        (lambda x: tg.scan(lambda c, y: (c, None), x, ["a"]), "real numbers"),
        (lambda x: tg.scan(lambda c, y: (c * y, None), x, ["2"]), "real numbers, got str"),
        (lambda x: tg.scan(lambda c, y: (c * y, None), x, np.array([1j])), "got complex128"),
        (lambda x: tg.scan(lambda c, y: (c * y, None), x, [x, 1j]), "real numbers, got complex"),
        (lambda x: tg.scan(lambda c, y: (c, None), x, [[1.0, 2.0], [3.0]]), "several lengths"),
        (lambda x: tg.scan(lambda c, _: (c, None), x, length=2**32), "below 4294967295"),
    ],
)
def test_wrong_arguments_are_told(call: Any, message: str) -> None:
    with pytest.raises(tg.TapegradError, match=message):
        call(tg.Graph().input())


def test_arguments_of_a_step_are_of_no_use_outside() -> None:
    x = tg.Graph().input("x")
    kept: list[Any] = []

    def step(c: Any, _: Any) -> Any:
        kept.append(c)
        return c * 2, None

    tg.scan(step, x, length=3)
    with pytest.raises(tg.GraphError, match="used outside"):
        tg.compile(kept[0] + x)
    assert "argument of a scan step" in repr(kept[0])
    assert kept[0].name is None


def test_what_leaves_a_step_is_left_out_of_no_derivative() -> None:
    """It would be, where it enters linearly: its derivative does not depend on the argument."""

    def kept_of(x: Any) -> tuple[Any, Any]:
        kept: list[Any] = []

        def step(c: Any, _: Any) -> Any:
            kept.append(c * 3)
            return c * x, None

        return tg.scan(step, x, length=2)[0], kept[0]

    def function(x: Any) -> Any:
        end, kept = kept_of(x)
        return end + kept

    for derivative, arguments in (
        (tg.grad(function), (2.0,)),
        (tg.value_and_grad(function), (2.0,)),
        (tg.jacobian(function), (2.0,)),
        (tg.jacobian(function, mode="forward"), (2.0,)),
        (tg.jacobian(function, sparse=True), (2.0,)),
        (tg.hessian(function), (2.0,)),
        (tg.hessian(function, sparse=True), (2.0,)),
        (tg.jvp(function), (2.0, 1.0)),
        (tg.vjp(function), (2.0, 1.0)),
        (tg.hvp(function), (2.0, 1.0)),
    ):
        with pytest.raises(tg.GraphError, match="used outside"):
            derivative(*arguments)

    x = tg.Graph().input("x")
    end, kept = kept_of(x)
    for call in (
        lambda: tg.grad(end + kept, x),
        lambda: tg.grad(end, kept),
        lambda: tg.jvp(end + kept, x, 1.0),
        lambda: tg.hessian(end + kept, [x], sparse=True),
    ):
        with pytest.raises(tg.GraphError, match="used outside"):
            call()
    assert tg.compile(tg.grad(end, x))([2.0]) == 12.0


def test_what_leaves_a_step_that_raised_is_noticed() -> None:
    x = tg.Graph().input("x")
    kept: list[Any] = []

    def step(c: Any, _: Any) -> Any:
        kept.append(c)
        raise KeyError("of the step")

    with pytest.raises(KeyError):
        tg.scan(step, x, length=2)
    with pytest.raises(tg.GraphError, match="used outside"):
        tg.grad(x + kept[0], x)


def test_derivatives_in_steps_of_steps_are_of_use_there() -> None:
    slope = tg.grad(lambda y: y**3)

    def inner(c: Any) -> Any:
        return tg.scan(lambda d, _: (d + 0.1 * slope(d) * c, None), c, length=2)[0]

    def outer(x: Any) -> Any:
        return tg.scan(lambda c, _: (slope(c) + tg.grad(inner)(c), None), x, length=2)[0]

    assert tg.gradcheck(outer, 0.2)


def test_branches_in_a_step_are_refused() -> None:
    x = tg.Graph().input("x")
    with pytest.raises(TypeError, match=r"tg\.where"):
        tg.scan(lambda c, _: (c if c > 0 else -c, None), x, length=3)


# ---- which results depend on which operands ------------------------------------------------------


def kinds_of_steps(w: Any) -> dict[str, Any]:
    """Steps of two carried values, by what their results depend on."""
    return {
        "each by itself": lambda c, x: ((c[0], c[1]), x * x),
        "running": lambda c, x: ((c[0] + x * x, c[1]), c[0] * w),
        "the one before": lambda c, x: ((x, c[0]), x * c[0]),
        "two before": lambda c, x: ((x, c[0]), c[1] * x),
        "flat": lambda c, x: ((tg.floor(c[0]) + x, c[1]), tg.where(c[0] > 0, x, 1.0)),
        "a scan": lambda c, x: (c, tg.scan(lambda d, _: (d * x, None), x, length=3)[0]),
    }


@pytest.mark.parametrize("name", kinds_of_steps(None))
@pytest.mark.parametrize("length", [1, 2, 5, 11])
def test_sparse_patterns_are_those_of_the_steps_unrolled(name: str, length: int) -> None:
    def results(loop: Any) -> tuple[Any, Any]:
        x = tg.Graph().inputs(length + 1)
        end, ys = loop(kinds_of_steps(x[-1])[name], (x[-1], 0.5 * x[-1]), x[:-1])
        return x, [*end, *ys]

    point = np.linspace(0.3, 1.3, length + 1)
    found = []
    for loop in (lambda *a: tg.scan(*a, checkpoint=3), unrolled):
        x, outputs = results(loop)
        jacobian = tg.jacobian(outputs, x, sparse=True)
        x, outputs = results(loop)
        hessian = tg.hessian(tg.sum(outputs), x, sparse=True)
        found.append([(each, each.compile()(point).toarray()) for each in (jacobian, hessian)])
    for (ours, matrix), (wanted, right) in zip(*found, strict=True):
        np.testing.assert_array_equal(ours.rows, wanted.rows)
        np.testing.assert_array_equal(ours.columns, wanted.columns)
        np.testing.assert_allclose(matrix, right, rtol=1e-12, atol=1e-13)


def test_a_scan_of_steps_that_do_not_meet_takes_one_sweep() -> None:
    squares = tg.jacobian(lambda x: tg.scan(lambda c, x: (c, x * x), 0.0, x)[1], sparse=True)
    matrix = squares(np.arange(1.0, 301.0))
    assert (matrix.nnz, squares.sweeps) == (300, 1)
    np.testing.assert_array_equal(matrix.diagonal(), 2 * np.arange(1.0, 301.0))


# ---- steps that nothing depends on ---------------------------------------------------------------

#: Functions of a scan whose later steps, or last carried value, are infinite or NaN.
SPOILT_LATER: list[Callable[[Any], Any]] = [
    lambda scan: lambda x: scan(lambda c, _: (tg.log(c), c * c), x)[1][0],
    lambda scan: lambda x: scan(lambda c, _: (c - 1, tg.sqrt(c)), x)[1][0],
    lambda scan: lambda x: scan(lambda c, t: (tg.sqrt(c - 2), c * t), x)[1][0],
    lambda scan: lambda x: scan(lambda c, _: ((c[0] * 0.5, tg.log(c[1])), None), (x, x))[0][0],
    lambda scan: lambda x: scan(lambda c, t: (tg.log(c * t), c), x * x)[1][0] * x,
]


@pytest.mark.parametrize("function", SPOILT_LATER)
@pytest.mark.parametrize("length", [2, 5, 30])
@pytest.mark.parametrize("checkpoint", [2, 64])
def test_steps_that_nothing_depends_on_spoil_no_derivative(
    function: Any, length: int, checkpoint: int
) -> None:
    times = np.linspace(1.0, 0.0, length)
    scanned = function(lambda step, carry: tg.scan(step, carry, times, checkpoint=checkpoint))
    plain = function(lambda step, carry: unrolled(step, carry, times.tolist()))
    point = 2.0
    wanted = tg.value_and_grad(plain)(point)
    assert np.isfinite(wanted).all()
    np.testing.assert_allclose(tg.value_and_grad(scanned)(point), wanted, rtol=1e-14)
    np.testing.assert_allclose(tg.jvp(scanned)(point, 1.0), wanted, rtol=1e-14)
    np.testing.assert_allclose(tg.hessian(scanned)(point), tg.hessian(plain)(point), rtol=1e-13)
