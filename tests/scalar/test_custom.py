"""Python functions as operations."""

from __future__ import annotations

import math
import pickle
import threading
from typing import Any

import numpy as np
import pytest

import tapegrad as tg

untyped: Any = tg
each_dtype = pytest.mark.parametrize("dtype", ["float64", "float32"])


def sine(**options: Any) -> Any:
    return tg.custom(np.sin, lambda g, x: g * np.cos(x), **options)


@each_dtype
def test_values_and_gradients_are_those_of_the_operation(dtype: str, isa: str) -> None:
    x = tg.Graph().inputs(2)
    own = tg.compile(sine()(x[0] * x[1]) * tg.exp(sine()(x[0])), wrt=x, dtype=dtype)
    wanted = tg.compile(tg.sin(x[0] * x[1]) * tg.exp(tg.sin(x[0])), wrt=x, dtype=dtype)
    rows = np.random.default_rng(0).uniform(-2, 2, (1000, 2)).astype(dtype)
    rtol = 1e-13 if dtype == "float64" else 1e-5
    for a, b in zip(own.batch(rows, threads=3), wanted.batch(rows), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)
    for a, b in zip(own(rows[5]), wanted(rows[5]), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)


def test_the_number_of_outputs_may_be_numpys() -> None:
    both = untyped.custom(lambda a: (a, -a), outputs=np.int64(2))
    assert [float(each) for each in both(3.0)] == [3.0, -3.0]


def test_several_operands_and_outputs() -> None:
    polar = tg.custom(
        lambda r, a: (r * np.cos(a), r * np.sin(a)),
        lambda gx, gy, r, a: (
            gx * np.cos(a) + gy * np.sin(a),
            r * (gy * np.cos(a) - gx * np.sin(a)),
        ),
        outputs=2,
        name="polar",
    )
    v = tg.Graph().inputs(2)
    x, y = polar(v[0], v[1])
    program = tg.compile([x * y, x], wrt=v)
    r, a = 2.0, 0.7
    values, jacobian = program([r, a])
    np.testing.assert_allclose(values, [r * r * math.sin(2 * a) / 2, r * math.cos(a)])
    slopes = [[r * math.sin(2 * a), r * r * math.cos(2 * a)], [math.cos(a), -r * math.sin(a)]]
    np.testing.assert_allclose(jacobian, slopes)
    found = tg.compile(list(tg.jvp([x * y, x], v, [1.0, 0.5])))([r, a])
    np.testing.assert_allclose(found, np.array(slopes) @ [1.0, 0.5])
    assert polar(2.0, 0.0) == (2.0, 0.0)


def test_a_vjp_with_a_vjp_gives_second_derivatives() -> None:
    slope = tg.custom(
        lambda g, x: 3 * g * x**2, lambda h, g, x: (3 * h * x**2, 6 * h * g * x), name="slope"
    )
    cube = tg.custom(lambda x: x**3, slope)
    found = tg.hessian(lambda x: tg.sum(cube(each) for each in x) * x[0])([2.0, 3.0])
    wanted = tg.hessian(lambda x: tg.sum(each**3 for each in x) * x[0])([2.0, 3.0])
    np.testing.assert_allclose(found, wanted, rtol=1e-13)
    with pytest.raises(tg.GradError, match="no derivative"):
        tg.hessian(lambda x: sine()(x[0]))([1.0])


def test_the_branch_a_where_does_not_take_does_no_harm() -> None:
    def slope(*arguments: Any) -> Any:
        g, x = arguments[-2:]
        with np.errstate(all="ignore"):
            return g / (2 * np.sqrt(x))

    x = tg.Graph().inputs(1)
    with np.errstate(all="ignore"):
        root = tg.custom(np.sqrt, slope)
        program = tg.compile(tg.where(x[0] > 0, root(x[0]), x[0]), wrt=x)
        assert [program([point])[1][0] for point in (0.0, 4.0)] == [1.0, 0.25]


def power(exponent: float) -> Any:
    """x to a power, as a function from outside with two derivatives."""

    def second(h: Any, g: Any, x: Any) -> Any:
        with np.errstate(all="ignore"):
            slope = exponent * x ** (exponent - 1)
            return h * slope, h * g * (exponent - 1) * slope / x

    slope = tg.custom(lambda g, x: g * exponent * x ** (exponent - 1), second)
    return tg.custom(lambda x: x**exponent, slope)


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_second_derivatives_behind_a_where(mode: Any) -> None:
    """A cotangent of 0 may be the derivative's own, and not that of a branch not taken."""
    x = tg.Graph().inputs(1)
    chosen = tg.where(x[0] > 0, tg.square(power(3.0)(x[0]) - 1), x[0] ** 2)
    left_out = tg.where(x[0] > 0, power(1.5)(x[0]), x[0] ** 2)  # its slope at 0 is that of a root
    both = [tg.jacobian([tg.grad(y, x[0])], x, mode=mode)[0, 0] for y in (chosen, left_out)]
    program = tg.compile(both)
    assert program([1.0]).tolist() == [18.0, 0.75]
    assert program([0.0]).tolist() == [2.0, 2.0]


def test_names_are_shown() -> None:
    x = tg.Graph().input("x")
    assert "my op(x)" in repr(sine(name="my op")(x))
    assert 'label="my op"' in str(tg.to_dot(sine(name="my op")(x)))


def test_functions_of_numbers() -> None:
    calls = []

    def lgamma(x: float) -> float:
        assert isinstance(x, float)
        calls.append(x)
        return math.lgamma(x)

    op = tg.custom(lgamma, lambda g, x: g * (math.lgamma(x + 1e-6) - math.lgamma(x)) / 1e-6,
                   vectorized=False)  # fmt: skip
    x = tg.Graph().inputs(1)
    program = tg.compile(op(x[0]), wrt=x)
    values, _ = program.batch(np.arange(1.0, 11.0)[:, None])
    np.testing.assert_allclose(values, [math.lgamma(k) for k in range(1, 11)], atol=1e-15)
    assert calls == list(range(1, 11))  # rows that fill up a batch are not computed


def test_calls_that_are_the_same_are_made_once() -> None:
    calls: list[int] = []

    def counted(x: Any) -> Any:
        calls.append(len(x))
        return x * 2

    op = tg.custom(counted)
    x = tg.Graph().input()
    assert tg.compile(op(x) + op(x) * op(x))([3.0]) == 42.0
    assert calls == [1]


def test_errors_propagate_from_any_thread() -> None:
    def picky(x: Any) -> Any:
        if (x > 0.99).any():
            raise ZeroDivisionError("too large")
        return x

    op = tg.custom(picky, lambda g, x: g)
    x = tg.Graph().inputs(1)
    program = tg.compile(op(op(x[0]) * 1.0) + tg.exp(x[0]), wrt=x)
    rows = np.linspace(0, 1, 5000)[:, None]
    for threads in (1, 2, 4):
        with pytest.raises(ZeroDivisionError, match="too large"):
            program.batch(rows, threads=threads)
        assert program.batch(rows[:4000], threads=threads)[0][0] == 1.0
    with pytest.raises(ZeroDivisionError):
        program([1.0])
    with pytest.raises(ZeroDivisionError):
        tg.compile(-op(x[0]), wrt=x).minimize([0.5], "sgd", steps=100, lr=0.1)


def test_programs_with_functions_run_in_many_threads() -> None:
    x = tg.Graph().inputs(1)
    program = tg.compile(sine()(x[0]), wrt=x)
    rows = np.linspace(0, 1, 2000)[:, None]
    wanted = program.batch(rows)[0]
    failures: list[Any] = []

    def work() -> None:
        for _ in range(10):
            if program.batch(rows, threads=2)[0].tobytes() != wanted.tobytes():
                failures.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failures


def test_functions_are_no_data() -> None:
    x = tg.Graph().input()
    program = tg.compile(sine(name="my sine")(x))
    for save in (program.to_bytes, lambda: pickle.dumps(program)):
        with pytest.raises(tg.FileError, match="my sine"):
            save()
    with pytest.raises(tg.OptionError, match="my sine"):
        program.to_c()
    assert program.calls == "my sine"


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda x: (x, x), tg.ShapeError, "expected 1 results, got 2"),
        (lambda x: np.zeros(3), tg.ShapeError, "each of 1 rows, got 3"),
        (lambda x: "word", tg.DTypeError, "real numbers, got dtype <U4"),
        (lambda x: None, TypeError, "got None"),
        (lambda x: np.zeros(0), tg.ShapeError, "got 0"),
        (lambda x: x + 1j, tg.DTypeError, "real numbers, got dtype complex128"),
        (lambda x: np.array(["2"]), tg.DTypeError, "real numbers, got dtype <U1"),
        (lambda x: np.array([x[0]], dtype=object), tg.DTypeError, "real numbers, got dtype object"),
        (lambda x: x[:, None], tg.ShapeError, r"got 1 of shape \(1, 1\)"),
    ],
)
def test_wrong_results_are_told(function: Any, error: Any, message: str) -> None:
    x = tg.Graph().input()
    with pytest.raises(error, match=message):
        tg.compile(tg.custom(function)(x))([1.0])
    with pytest.raises(error, match=message):
        tg.custom(function)(1.0)


def test_one_number_is_none_for_each_row() -> None:
    x = tg.Graph().inputs(1)
    rows = np.arange(5.0)[:, None]
    for function in (lambda u: u[:1], np.sum, lambda u: np.array(u[0])):
        with pytest.raises(tg.ShapeError, match="each of 5 rows, got 1 of shape"):
            tg.compile(tg.custom(function)(x[0])).batch(rows)
    constant = tg.custom(lambda u: 2.5, lambda g, u: 0)
    values, gradients = tg.compile(constant(x[0]) * x[0], wrt=x).batch(rows)
    assert values.tolist() == (2.5 * rows[:, 0]).tolist()
    assert gradients.tolist() == [[2.5]] * 5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: untyped.custom(3), "expected a function"),
        (lambda: untyped.custom(np.sin, 3), "vjp"),
        (lambda: untyped.custom(np.sin, outputs=0), "outputs of at least 1, got 0"),
        (lambda: untyped.custom(np.sin, outputs=1001), "outputs below 1001, got 1001"),
        (lambda: untyped.custom(np.sin, outputs=1.0), "outputs to be an integer, got 1.0"),
        (lambda: tg.custom(np.sin)(tg.Graph().input(), "x"), "expected Vars"),
        (lambda: tg.custom(np.sin)(tg.Graph().inputs(2)), "each element of an array.*VarArray"),
        (lambda: tg.custom(np.sin)([1.0, 2.0]), "one by one.*got list"),
        (lambda: tg.custom(np.sin)(tg.Graph().input(), tg.Graph().input()), "two graphs"),
        (lambda: tg.grad(tg.custom(np.sin)(x := tg.Graph().input()), x), "no derivative"),
    ],
)
def test_wrong_arguments_are_told(call: Any, message: str) -> None:
    with pytest.raises(tg.TapegradError, match=message):
        call()
