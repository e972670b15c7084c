"""Derivatives of functions at Vars: nested in each other, in graphs and in steps of scans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tests.oracles.torch import Torch
from tests.scalar.nested import NESTED, of_pytorch

#: For calls that the types forbid.
untyped: Any = tg

POINT = np.array([0.4, -1.3, 2.1])


@pytest.mark.parametrize("name", NESTED)
def test_nested_derivatives_agree_with_pytorch(name: str, torch: Torch) -> None:
    want = torch(of_pytorch, name, POINT)
    np.testing.assert_allclose(NESTED[name](tg, tg)(POINT), want, rtol=1e-12)


def test_every_transform_gives_vars_at_vars() -> None:
    x = tg.Graph().inputs(3)
    one = lambda x: tg.sum(tg.exp(x) * x[0])  # noqa: E731
    several = lambda x: x[1:] * x[:-1]  # noqa: E731
    weights = [2.0, -1.0]
    along = [1.0, 0.0, 3.0]
    for transform, function, second in [
        (tg.grad, one, None),
        (tg.value_and_grad, one, None),
        (tg.hessian, one, None),
        (tg.hvp, one, along),
        (tg.jacobian, several, None),
        (tg.jvp, several, along),
        (tg.vjp, several, weights),
    ]:
        given = () if second is None else (second,)
        found = untyped.__dict__[transform.__name__](function)(x, *given)
        want = untyped.__dict__[transform.__name__](function)(POINT, *given)
        if not isinstance(found, tuple):
            found, want = (found,), (want,)
        for part, right in zip(found, want, strict=True):
            assert np.shape(part) == np.shape(right)
            np.testing.assert_allclose(
                tg.compile(np.ravel(part).tolist(), inputs=x)(POINT), np.ravel(right), rtol=1e-14
            )


def test_sparse_derivatives_at_vars() -> None:
    x = tg.Graph().inputs(5)
    found = tg.hessian(lambda y: tg.sum((y[1:] - y[:-1] ** 2) ** 2), sparse=True)(x**2)
    assert found.sweeps == 3
    point = np.linspace(-1, 1, 5)
    want = tg.hessian(lambda y: tg.sum((y[1:] - y[:-1] ** 2) ** 2))(point**2)
    np.testing.assert_allclose(found.compile(inputs=x)(point).toarray(), want, rtol=1e-13)


def test_numbers_beside_vars() -> None:
    x = tg.Graph().input()
    found = tg.grad(lambda y: y[0] * y[1] ** 2)([2.0, x])
    assert tg.compile(list(found))([3.0]).tolist() == [9.0, 12.0]
    _, along = tg.jvp(lambda y: y * y)([1.0, 2.0], np.array([x, 0.0]))
    assert tg.compile(list(along))([3.0]).tolist() == [6.0, 0.0]
    inner = tg.grad(lambda y: x * y * y)(x.graph.constant(5.0))
    assert tg.compile(tg.grad(inner, x))([3.0]) == 10.0


def test_what_was_recorded_before_does_not_depend_on_the_argument() -> None:
    x = tg.Graph().input()
    once = -x
    twice = -once  # the same number, and made of the same operations, as the inner argument
    assert tg.compile(tg.grad(lambda y: y * x * twice)(x))([3.0]) == 9.0
    assert tg.compile(tg.grad(lambda y: y * -once)(x))([3.0]) == 3.0


def test_a_gradient_in_a_step_of_a_scan() -> None:
    slope = tg.grad(lambda y: tg.sum(y**2) * y[0])

    def path(x: Any) -> Any:
        end, _ = tg.scan(lambda y, _: (y - 0.1 * slope(y), None), x, length=4)
        return end

    want = POINT
    for _ in range(4):
        want = want - 0.1 * slope(want)
    np.testing.assert_allclose(tg.jvp(path)(POINT, np.zeros(3))[0], want, rtol=1e-13)
    assert tg.gradcheck(lambda x: tg.sum(path(x)), 0.3 * POINT)


def test_wrong_arguments_beside_vars_are_refused() -> None:
    x = tg.Graph().inputs(2)
    with pytest.raises(tg.ShapeError, match="expected one argument, got two"):
        tg.grad(tg.sum)(x, x)
    with pytest.raises(tg.ShapeError, match=r"second argument of shape \(2,\), got none"):
        tg.jvp(tg.exp)(x)
    with pytest.raises(tg.ShapeError, match=r"shape \(2,\), got shape \(1,\)"):
        tg.vjp(tg.exp)(x, [1.0])
    with pytest.raises(tg.GraphError, match="two graphs"):
        tg.grad(tg.sum)([x[0], tg.Graph().input()])
    with pytest.raises(tg.GraphError, match="two graphs"):
        tg.grad(lambda y: y * x[0])(1.0)
    with pytest.raises(tg.DTypeError, match="expected Vars and numbers, got str"):
        untyped.grad(tg.sum)([x[0], "1"])


@pytest.mark.parametrize("start", [0.0, 1])
def test_a_gradient_in_a_step_that_begins_with_a_number(start: float) -> None:
    def path(lam: Any, start: Any) -> Any:
        slope = tg.grad(lambda v: (v - 3) ** 2 + lam * v**2)
        return tg.scan(lambda w, _: (w - 0.1 * slope(w), None), start, length=10)[0]

    want = tg.grad(lambda lam: path(lam, start + 0 * lam))(0.5)
    assert tg.grad(lambda lam: path(lam, start))(0.5) == want
    assert tg.gradcheck(lambda lam: path(lam, start), 0.5)
    lam = tg.Graph().input()
    assert tg.compile(tg.grad(path(lam, start), lam))([0.5]) == want


AT_NUMBERS: list[tuple[Callable[[Any], Any], float]] = [
    (lambda x: tg.grad(lambda y: x**2 * y)(1.0), 4.0),
    (lambda x: tg.grad(lambda y: x**2)(1.0), 0.0),
    (lambda x: tg.grad(tg.sum)([1.0, 2.0])[0] * x, 1.0),
    (lambda x: tg.sum(tg.grad(lambda y: tg.sum(x * y**2))([1.0, 2.0])), 6.0),
    (lambda x: tg.value_and_grad(lambda y: x**2 * y)(3.0)[0], 12.0),
    (lambda x: tg.jvp(lambda y: x**2 * y**2)(3.0, 2.0)[1], 48.0),
    (lambda x: tg.vjp(lambda y: x**2 * y**2)(3.0, 2.0)[1], 48.0),
    (lambda x: tg.hvp(lambda y: x**2 * y**2)(3.0, 2.0), 16.0),
    (lambda x: tg.hessian(lambda y: x**2 * y**2, sparse=True)(3.0).values[0], 8.0),
    (lambda x: tg.grad(lambda y: tg.grad(lambda z: x**2 * y * z)(3.0))(1.0), 4.0),
    (lambda x: tg.grad(lambda y: x * y * tg.grad(lambda z: x * z)(3.0))(1.0), 4.0),
    (lambda x: tg.grad(lambda y: tg.grad(lambda z: x**2 * z)(y) * y)(1.0), 4.0),
]


@pytest.mark.parametrize(("function", "want"), AT_NUMBERS)
def test_functions_that_take_vars_from_around_them_may_be_called_at_numbers(
    function: Callable[[Any], Any], want: float
) -> None:
    assert tg.grad(function)(2.0) == want
    x = tg.Graph().input()
    assert tg.compile(tg.grad(function)(x), inputs=[x])([2.0]) == want


def test_vars_that_were_kept_from_an_earlier_recording_are_refused() -> None:
    kept: list[Any] = []

    def function(x: Any) -> Any:
        kept.append(x)
        return tg.sum(x * np.ravel(kept[0])[0])

    gradient = tg.grad(function)
    assert gradient([1.0]) == 2.0
    with pytest.raises(tg.GraphError, match="takes Vars from around it"):
        gradient([1.0, 2.0])


def test_what_a_function_needs_at_a_number_is_told() -> None:
    x = tg.Graph().input("x")
    inner = tg.grad(lambda y: x * y)
    for call in (inner, lambda _: inner.program(())):
        with pytest.raises(tg.GraphError, match=r"x\.graph\.constant\(1\.0\)"):
            call(1.0)
    assert tg.compile(inner(x.graph.constant(1.0)))([2.0]) == 2.0


@pytest.mark.parametrize("dtype", ["float16", "real", int, 3])
def test_a_dtype_that_programs_do_not_have_is_told_at_once(dtype: Any) -> None:
    for name in ("grad", "value_and_grad", "vjp", "jvp", "hvp", "jacobian", "hessian"):
        with pytest.raises(tg.DTypeError, match=f"{name}: expected dtype 'float64' or 'float32'"):
            getattr(untyped, name)(tg.sum, dtype=dtype)
    with pytest.raises(tg.DTypeError, match="jacobian: expected dtype"):
        untyped.jacobian(tg.exp, sparse=True, dtype=dtype)
