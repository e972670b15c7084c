"""Programs in scipy.optimize.minimize."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.optimize
from numpy.typing import NDArray

import tapegrad as tg

#: Untyped: where SciPy has types, its overloads know no arguments by name.
minimize: Any = scipy.optimize.minimize

N = 6


def valley(x: Any) -> Any:
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def start() -> NDArray[np.float64]:
    return np.tile([-1.2, 1.0], N // 2)


def recorded(dtype: str = "float64") -> tuple[tg.Program, tg.Program]:
    """The valley with its gradient, and products with its Hessian."""
    g = tg.Graph()
    x, v = g.inputs(N), g.inputs(N)
    value = valley(x)
    return (
        tg.compile(value, wrt=x, inputs=x, dtype=dtype),
        tg.compile(tg.hvp(value, x, v), inputs=[*x, *v], dtype=dtype),
    )


@pytest.mark.parametrize("method", ["L-BFGS-B", "BFGS", "CG", "SLSQP"])
def test_gradient_methods_find_the_known_minimum(method: str) -> None:
    program, _ = recorded()
    found = minimize(
        **program.scipy(), x0=start() * 0.9, method=method, tol=1e-10, options={"maxiter": 2000}
    )
    np.testing.assert_allclose(found.x, np.ones(N), atol=1e-4)


@pytest.mark.parametrize("method", ["Newton-CG", "trust-ncg", "trust-krylov"])
@pytest.mark.parametrize("kind", ["program", "function"])
def test_methods_of_second_order_find_the_known_minimum(method: str, kind: str) -> None:
    program, product = recorded()
    hessp: Any = product if kind == "program" else tg.hvp(valley)
    found = minimize(**program.scipy(hessp), x0=start() * 0.9, method=method, tol=1e-9)
    np.testing.assert_allclose(found.x, np.ones(N), atol=1e-6)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_values_and_products_are_scipys_own(dtype: str) -> None:
    program, product = recorded(dtype)
    given = program.scipy(product)
    x, v = start(), np.linspace(-1, 1, N)
    value, gradient = given["fun"](x)
    along = given["hessp"](x, v)
    tolerance = 1e-12 if dtype == "float64" else 1e-5
    assert value == pytest.approx(scipy.optimize.rosen(x), rel=tolerance)
    wanted = scipy.optimize.rosen_der(x)
    np.testing.assert_allclose(gradient, wanted, rtol=tolerance, atol=tolerance * 1000)
    wanted = scipy.optimize.rosen_hess_prod(x, v)
    np.testing.assert_allclose(along, wanted, rtol=tolerance, atol=tolerance * 1000)


def test_float32_programs_are_given_as_float64() -> None:
    program, product = recorded("float32")
    given = program.scipy(product)
    value, gradient = given["fun"](start())
    assert (type(value), gradient.dtype) == (float, np.float64)
    assert given["hessp"](start(), start()).dtype == np.float64
    found = minimize(**program.scipy(), x0=start() * 0.9, method="L-BFGS-B")
    assert found.fun < 1e-3


def test_each_gradient_is_an_array_of_its_own() -> None:
    fun = recorded()[0].scipy()["fun"]
    first = fun(start())[1]
    kept = first.copy()
    fun(np.zeros(N))
    np.testing.assert_array_equal(first, kept)


def test_points_where_the_loss_is_not_finite_are_left_to_scipy() -> None:
    x = tg.Graph().input()
    fun = tg.compile(tg.log(x), wrt=[x]).scipy()["fun"]
    assert np.isnan(fun(np.array([-1.0]))[0])
    assert fun(np.array([1.0]))[0] == 0.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: tg.compile(x[0] * x[1]), "one output and its gradient"),
        (lambda x: tg.compile(list(x), wrt=x), "one output and its gradient"),
        (lambda x: tg.compile(x[0] * x[1], wrt=[x[0], x[0]]), "different input"),
        (lambda x: tg.compile(x[0] * x[1], wrt=[x[0] * x[1]]), "different input"),
    ],
)
def test_programs_that_are_no_loss_are_refused(
    make: Callable[[Any], tg.Program], message: str
) -> None:
    with pytest.raises(tg.GradError, match=message):
        make(tg.Graph().inputs(2)).scipy()


@pytest.mark.parametrize("order", [[2, 0], [0, 1, 2], [2, 1, 0], [1]])
def test_inputs_that_wrt_does_not_name_stay(order: list[int]) -> None:
    g = tg.Graph()
    x, v = g.inputs(3), g.inputs(3)
    loss = (x[0] - x[1]) ** 2 + x[2] ** 4 + (x[1] - 1) ** 2
    program = tg.compile(loss, wrt=[x[i] for i in order], inputs=x)
    product = tg.compile(tg.hvp(loss, x, v), inputs=[*x, *v])
    at = np.array([2.0, 3.0, 1.0])
    _, gradient = program.scipy()["fun"](at)
    whole = np.array([-2.0, 6.0, 4.0])
    moves = np.isin(np.arange(3), order)
    np.testing.assert_allclose(gradient, whole * moves)
    np.testing.assert_allclose(
        program.scipy(product)["hessp"](at, np.ones(3)),
        np.where(moves, [[2, -2, 0], [-2, 4, 0], [0, 0, 12]] @ moves, 0.0),
    )
    for method, hessp in (("L-BFGS-B", None), ("Newton-CG", product)):
        found = minimize(**program.scipy(hessp), x0=at, method=method)
        np.testing.assert_array_equal(found.x[~moves], at[~moves])
        assert found.fun < program(at)[0]


def test_one_output_in_a_sequence_is_a_loss_too() -> None:
    x = tg.Graph().inputs(2)
    value, gradient = tg.compile([x[0] * x[1]], wrt=x).scipy()["fun"](np.array([2.0, 3.0]))
    assert (value, gradient.tolist()) == (6.0, [3.0, 2.0])


def test_products_of_the_wrong_size_are_refused() -> None:
    program, product = recorded()
    with pytest.raises(tg.GradError, match=r"tg\.hvp"):
        program.scipy(program)
    x = tg.Graph().inputs(2)
    with pytest.raises(tg.GradError, match="2 values"):
        tg.compile(x[0] * x[1], wrt=x).scipy(product)
    with pytest.raises(tg.DTypeError, match=r"a program or a function.*got int"):
        program.scipy(3)  # type: ignore[arg-type]
