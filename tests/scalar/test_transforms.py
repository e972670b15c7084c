"""grad of Vars to any order; grad and value_and_grad of functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mpmath import mp  # type: ignore[import-untyped]

import tapegrad as tg

#: For calls that the types forbid.
untyped: Any = tg


def at(vars_: Any, *point: float) -> Any:
    return tg.compile(vars_)(list(point))


# ---- grad of Vars ------------------------------------------------------------------------------


def _logistic(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


#: A function, and its derivatives of order 1 to 4 as NumPy text.
ORDERS: dict[str, tuple[Any, list[Any]]] = {
    "exp": (tg.exp, [np.exp] * 4),
    "sin": (tg.sin, [np.cos, lambda x: -np.sin(x), lambda x: -np.cos(x), np.sin]),
    "log": (
        tg.log,
        [lambda x, k=k: -((-1) ** k) * math.factorial(k - 1) / x**k for k in (1, 2, 3, 4)],
    ),
    "x**4": (
        lambda x: x**4,
        [lambda x: 4 * x**3, lambda x: 12 * x**2, lambda x: 24 * x, lambda x: 24.0],
    ),
    "1/x": (
        lambda x: 1 / x,
        [lambda x, k=k: (-1) ** k * math.factorial(k) / x ** (k + 1) for k in (1, 2, 3, 4)],
    ),
    "x**2.5": (
        lambda x: x**2.5,
        [
            lambda x: 2.5 * x**1.5,
            lambda x: 3.75 * x**0.5,
            lambda x: 1.875 * x**-0.5,
            lambda x: -0.9375 * x**-1.5,
        ],
    ),
    "exp sin": (
        lambda x: tg.exp(tg.sin(x)),
        [
            lambda x: np.exp(np.sin(x)) * np.cos(x),
            lambda x: np.exp(np.sin(x)) * (np.cos(x) ** 2 - np.sin(x)),
            lambda x: np.exp(np.sin(x)) * np.cos(x) * (np.cos(x) ** 2 - 3 * np.sin(x) - 1),
            lambda x: (
                np.exp(np.sin(x))
                * (
                    np.cos(x) ** 4
                    - 6 * np.cos(x) ** 2 * np.sin(x)
                    - 4 * np.cos(x) ** 2
                    + 3 * np.sin(x) ** 2
                    + np.sin(x)
                )
            ),
        ],
    ),
    "logsumexp": (
        lambda x: tg.logsumexp([x, 0.0]),
        [
            _logistic,
            lambda x: _logistic(x) * (1 - _logistic(x)),
            lambda x: _logistic(x) * (1 - _logistic(x)) * (1 - 2 * _logistic(x)),
            lambda x: (
                _logistic(x) * (1 - _logistic(x)) * (1 - 6 * _logistic(x) + 6 * _logistic(x) ** 2)
            ),
        ],
    ),
    "softmax": (
        lambda x: tg.softmax([x, 0.0])[0],
        [
            lambda x: _logistic(x) * (1 - _logistic(x)),
            lambda x: _logistic(x) * (1 - _logistic(x)) * (1 - 2 * _logistic(x)),
            lambda x: (
                _logistic(x) * (1 - _logistic(x)) * (1 - 6 * _logistic(x) + 6 * _logistic(x) ** 2)
            ),
        ],
    ),
    "prod": (
        lambda x: tg.prod([x, x, x, x, x]),
        [
            lambda x: 5 * x**4,
            lambda x: 20 * x**3,
            lambda x: 60 * x**2,
            lambda x: 120 * x,
        ],
    ),
}


@pytest.mark.parametrize("name", ORDERS)
def test_derivatives_of_order_one_to_four(name: str, isa: str) -> None:
    function, wanted = ORDERS[name]
    x = tg.Graph().input()
    y, outputs = function(x), []
    for _ in wanted:
        y = tg.grad(y, x)
        outputs.append(y)
    for point in (0.3, 0.9, 2.1):
        got = at(outputs, point)
        want = [float(f(np.float64(point))) for f in wanted]
        np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_hessians_are_symmetric(n: int) -> None:
    x = tg.Graph().inputs(n)
    y = (
        tg.sum(tg.softmax(x * x))
        + tg.softmax(x)[0] * tg.logsumexp(x)
        + tg.prod(x) / (2 + x[0] ** 2)
    )
    hessian = [tg.grad(first, x) for first in tg.grad(y, x)]
    got = at([v for row in hessian for v in row], *np.linspace(0.3, 1.1, n)).reshape(n, n)
    np.testing.assert_allclose(got, got.T, rtol=1e-12, atol=1e-14)


def test_mixed_third_derivatives_do_not_depend_on_the_order() -> None:
    x, y = tg.Graph().inputs(2)
    f = tg.sin(x * y) * tg.exp(x - y) + tg.hypot(x, y) + tg.pow(x, y) + tg.atan2(x, y)
    orders = [(x, x, y), (x, y, x), (y, x, x)]
    outputs = []
    for order in orders:
        z = f
        for var in order:
            z = tg.grad(z, var)
        outputs.append(z)
    got = at(outputs, 0.7, 1.3)
    np.testing.assert_allclose(got, got[0], rtol=1e-12)


def test_gradient_has_the_shape_of_wrt() -> None:
    g = tg.Graph()
    x = g.inputs(6).reshape(2, 3)
    y = tg.sum((x * x).ravel())
    assert tg.grad(y, x).shape == (2, 3)
    assert tg.grad(y, list(x.ravel())).shape == (6,)
    assert isinstance(tg.grad(y, x[0, 0]), tg.Var)
    assert tg.grad(y, []).shape == (0,)
    assert tg.grad(y, (v for v in x[0])).shape == (3,)
    np.testing.assert_array_equal(at(list(tg.grad(y, x).ravel()), *range(6)), 2.0 * np.arange(6))


def test_grad_of_what_does_not_depend_is_zero() -> None:
    g = tg.Graph()
    x, y = g.inputs(2)
    zero = tg.grad(tg.exp(x), y)
    assert zero.op == "constant"
    assert at(zero, 1.0, 2.0) == 0.0
    assert at(tg.grad(g.constant(3.0), x), 1.0, 2.0) == 0.0
    assert at(tg.grad(zero, x), 1.0, 2.0) == 0.0


def test_grad_by_itself_is_one_and_by_intermediates_the_partial_slope() -> None:
    x = tg.Graph().input()
    u = tg.exp(x)
    v = u * u + x
    assert at(tg.grad(v, v), 0.5) == 1.0
    assert at(tg.grad(v, u), 0.5) == pytest.approx(2 * math.exp(0.5))
    assert at(tg.grad(x, u), 0.5) == 0.0
    got = tg.grad(v, [u, x, u])
    assert got[0].index == got[2].index


def test_grad_by_softmax_projections() -> None:
    x = tg.Graph().inputs(3)
    p = tg.softmax(x)
    loss = p[0] * p[1] + p[2] ** 2
    point = [0.1, -0.4, 0.7]
    values = np.exp(point) / np.exp(point).sum()
    got = at(list(tg.grad(loss, p)), *point)
    np.testing.assert_allclose(got, [values[1], values[0], 2 * values[2]], rtol=1e-14)
    both = tg.grad(loss, [*p, *x])
    alone = tg.grad(loss, x)
    np.testing.assert_array_equal(at(list(both[3:]), *point), at(list(alone), *point))


def test_gradients_are_vars_to_compute_with() -> None:
    x = tg.Graph().inputs(2)
    y = x[0] ** 2 * x[1]
    g = tg.grad(y, x)
    penalty = y + tg.dot(g, g)
    got = at(list(tg.grad(penalty, x)), 2.0, 3.0)
    # y + 4 a^2 b^2 + a^4
    np.testing.assert_allclose(got, [2 * 6 + 8 * 2 * 9 + 4 * 8, 4 + 8 * 4 * 3], rtol=1e-14)


def test_grad_adds_nothing_when_asked_again() -> None:
    x = tg.Graph().inputs(3)
    y = tg.logsumexp(x) * tg.sin(x[0]) + tg.where(x[1] > 0, tg.log(x[1]), x[2])
    first = tg.grad(y, x)
    nodes = len(x[0].graph)
    second = tg.grad(y, x)
    assert len(x[0].graph) == nodes
    assert [v.index for v in first] == [v.index for v in second]


@pytest.mark.parametrize(
    "call",
    [
        untyped.grad,
        lambda x: untyped.grad(3.0),
        lambda x: untyped.grad("x", x),
        lambda x: untyped.grad(x, 3.0),
        lambda x: untyped.grad(x, [x, 3.0]),
        lambda x: untyped.grad(x, None),
        lambda x: untyped.grad([x], x),
        lambda x: untyped.value_and_grad(3.0)([1.0]),
    ],
)
def test_wrong_arguments_are_type_errors(call: Any) -> None:
    with pytest.raises(TypeError):
        call(tg.Graph().input())


@pytest.mark.parametrize("wrong", [3, "x", tg.Graph().input("x")], ids=["int", "str", "Var"])
def test_what_is_no_function_is_refused_at_once(wrong: Any) -> None:
    kind = type(wrong).__name__
    with pytest.raises(tg.DTypeError, match=f"value_and_grad: expected a function, got {kind}"):
        untyped.value_and_grad(wrong)
    with pytest.raises(tg.DTypeError, match=f"gradcheck: expected a function, got {kind}"):
        untyped.gradcheck(wrong, wrong)


def test_derivatives_of_functions_say_what_they_are() -> None:
    assert repr(tg.grad(bowl)) == "<grad of bowl>"
    assert repr(tg.hessian(bowl, sparse=True)) == "<hessian of bowl>"


def test_grad_of_a_function_by_vars_is_refused() -> None:
    x: Any = tg.Graph().input()
    with pytest.raises(TypeError):
        untyped.grad(lambda z: z * z, x)


# ---- functions ---------------------------------------------------------------------------------


def bowl(x: Any) -> Any:
    """A bowl around the origin."""
    return tg.sum((x * x).ravel()) if isinstance(x, np.ndarray) else x * x


@pytest.mark.parametrize(
    "point",
    [
        0.5,
        [1.0, 2.0, 3.0],
        [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
        np.ones((2, 1, 3)),
        [7],
        np.int64(3),
    ],
)
def test_gradients_of_functions_have_the_shape_of_the_point(point: Any) -> None:
    value, gradient = tg.value_and_grad(bowl)(point)
    array = np.asarray(point, dtype=float)
    assert value == (array**2).sum()
    assert gradient.shape == array.shape
    np.testing.assert_array_equal(gradient, 2 * array)
    np.testing.assert_array_equal(tg.grad(bowl)(point), 2 * array)


def test_a_function_is_recorded_once_per_shape() -> None:
    calls = []

    def function(x: Any) -> Any:
        calls.append(np.shape(x))
        return bowl(x)

    f = tg.value_and_grad(function)
    for point in (
        [1.0, 2.0],
        [3.0, 4.0],
        (5, 6),
        np.array([7, 8], np.float32),
        np.array([1.0, 2, 3, 4])[::2],
    ):
        assert f(point)[0] == float((np.asarray(point, float) ** 2).sum())
    assert calls == [(2,)]
    f([1.0])
    f([[1.0], [2.0]])
    f([[1.0, 2.0]])
    f(3.0)
    f([9.0, 9.0])
    assert calls == [(2,), (1,), (2, 1), (1, 2), ()]


@pytest.mark.parametrize("shape", [3, (3,), [3], (np.int64(3),)])
def test_programs_of_functions_take_shapes_as_numpy_does(shape: Any) -> None:
    gradient = tg.grad(bowl)
    assert gradient.program(shape) is gradient.program((3,))


@pytest.mark.parametrize("shape", [0, (0,), (2, -1), -3, "ab", (2.5,), None])
def test_shapes_that_make_no_sense_are_told(shape: Any) -> None:
    with pytest.raises((tg.ShapeError, tg.DTypeError), match="grad: expected a shape"):
        tg.grad(bowl).program(shape)


def test_a_function_that_raises_is_recorded_again() -> None:
    calls = []

    def function(x: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise KeyError("inside")
        return bowl(x)

    f = tg.grad(function)
    with pytest.raises(KeyError, match="inside"):
        f([1.0])
    assert f([1.0]).tolist() == [2.0]


def test_float32_functions_compute_in_float32() -> None:
    value, gradient = tg.value_and_grad(bowl, dtype="float32")([0.1, 0.2])
    assert gradient.dtype == np.float32
    assert value == pytest.approx(0.05, rel=1e-6)
    assert tg.grad(bowl)([0.1]).dtype == np.float64


@pytest.mark.parametrize(
    "constant", [3, 3.0, np.float32(3), np.int64(3), np.array(3.0), np.array([3.0]), True]
)
def test_constant_functions_have_gradient_zero(constant: Any) -> None:
    value, gradient = tg.value_and_grad(lambda x: constant)([1.0, 2.0])
    assert (value, gradient.tolist()) == (float(np.ravel(constant)[0]), [0.0, 0.0])


def test_a_result_in_an_array_of_one_is_taken() -> None:
    wraps: list[Callable[[Any], Any]] = [
        lambda v: np.array([v]),
        np.array,
        lambda v: np.array([[v]]),
    ]
    for wrap in wraps:
        gradient = tg.grad(lambda x: wrap(tg.sum(x)))  # noqa: B023  used in this round only
        assert gradient([1.0, 2.0]).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "returned",
    [
        lambda x: x,
        lambda x: x * x,
        lambda x: None,
        lambda x: (tg.sum(x), 1.0),
        lambda x: "loss",
        lambda x: 1j,
        lambda x: np.array([1.0, 2.0]),
        lambda x: {},
    ],
)
def test_wrong_returns_say_what_is_expected(returned: Any) -> None:
    with pytest.raises(tg.DTypeError, match="one Var"):
        tg.value_and_grad(returned)([1.0, 2.0])
    with pytest.raises(tg.DTypeError, match="one Var"):
        tg.grad(returned)([1.0, 2.0])


def test_a_function_that_returns_a_var_of_another_graph_is_refused() -> None:
    other = tg.Graph().input()
    with pytest.raises((tg.GraphError, tg.CompileError)):
        tg.grad(lambda x: other * other)([1.0])


@pytest.mark.parametrize("point", [[], np.empty((0, 3)), np.empty((2, 0))])
def test_empty_points_are_shape_errors(point: Any) -> None:
    with pytest.raises(tg.ShapeError, match="empty"):
        tg.grad(bowl)(point)


@pytest.mark.parametrize("point", ["a", [1j], ["a"], [[1.0], [2.0, 3.0]], object()])
def test_points_that_are_not_numbers_raise(point: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        tg.grad(bowl)(point)


@pytest.mark.parametrize(
    ("point", "kind"),
    [
        ({"a": 1.0}, "dict"),
        ("a", "str"),
        (None, "NoneType"),
        (1j, "complex"),
        ([None], "NoneType"),
        (np.timedelta64(3), "timedelta64"),
    ],
)
@pytest.mark.parametrize("derivative", [tg.value_and_grad, tg.jacobian, tg.hessian])
def test_points_that_are_not_numbers_are_told_before_recording(
    derivative: Any, point: Any, kind: str
) -> None:
    def function(x: Any) -> Any:
        raise AssertionError("recorded")

    for options in ({}, {"sparse": True} if derivative is not tg.value_and_grad else {}):
        with pytest.raises(tg.DTypeError, match=f"expected an array of numbers, got {kind}$"):
            derivative(function, **options)(point)


def test_rows_of_several_lengths_are_told() -> None:
    with pytest.raises(tg.ShapeError, match="grad: expected an array, got rows of several lengths"):
        tg.grad(bowl)([[1.0], [2.0, 3.0]])


def test_what_reduces_arrays_of_any_shape_is_named() -> None:
    with pytest.raises(tg.DTypeError, match=r"reduce arrays with np\.sum"):
        tg.grad(lambda x: x**2)([[1.0, 2.0], [3.0, 4.0]])
    assert tg.grad(lambda x: np.sum(x**2))([[1.0, 2.0], [3.0, 4.0]])[1, 1] == 8.0


def swapped(x: Any) -> Any:
    x[0], x[1] = x[1], x[0]
    return np.stack([x[0] ** 2, 3 * x[1]])


def in_place(x: Any) -> Any:
    x[1:] += 2 * x[:-1]
    x[0] = 5.0
    return x**2


@pytest.mark.parametrize("function", [swapped, in_place])
def test_functions_may_write_into_their_argument(function: Any) -> None:
    point = np.array([1.5, -2.0])
    wanted = function(point.copy())
    slopes = np.column_stack(
        [(function(point + step) - function(point - step)) / 2e-3 for step in 1e-3 * np.eye(2)]
    )
    np.testing.assert_allclose(tg.jacobian(function)(point), slopes, atol=1e-9)
    np.testing.assert_allclose(
        tg.jacobian(function, sparse=True)(point).toarray(), slopes, atol=1e-9
    )
    values, along = tg.jvp(function)(point, [1.0, 0.0])
    np.testing.assert_allclose(values, wanted)
    np.testing.assert_allclose(along, slopes[:, 0], atol=1e-9)
    np.testing.assert_allclose(tg.vjp(function)(point, [0.0, 1.0])[1], slopes[1], atol=1e-9)
    assert tg.gradcheck(function, point)
    assert tg.locate_nonfinite(tg.jacobian(function), point) is None
    np.testing.assert_array_equal(point, [1.5, -2.0])


def test_documentation_of_the_function_is_kept() -> None:
    assert tg.grad(bowl).__doc__ == "A bowl around the origin."


def test_branches_of_python_raise_while_recording() -> None:
    with pytest.raises(TypeError, match=r"tg\.where"):
        tg.grad(lambda x: x[0] if x[0] > 0 else -x[0])([1.0])


def test_functions_of_numpy_on_the_argument_work() -> None:
    value, gradient = tg.value_and_grad(lambda x: np.sum(np.exp(x) * x))([0.0, 1.0])
    assert value == pytest.approx(math.e)
    np.testing.assert_allclose(gradient, [1.0, 2 * math.e], rtol=1e-14)


@pytest.mark.parametrize("a", [1.0, 5.0, 20.0, 40.0, 300.0, -20.0, -300.0])
def test_slopes_far_out_keep_their_relative_accuracy(a: float) -> None:
    x = tg.Graph().input()
    slopes = tg.compile([tg.grad(tg.sigmoid(x), x), tg.grad(tg.tanh(x), x)])([a])
    exact = [mp.exp(-a) / (1 + mp.exp(-a)) ** 2, mp.sech(a) ** 2]
    for got, want in zip(slopes, exact, strict=True):
        assert abs(got - want) <= 1e-14 * want
