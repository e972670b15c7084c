"""The branch that a `where` does not take does no harm, whatever numbers stand in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapegrad as tg

nan, inf = np.nan, np.inf

#: NaN or infinite, or with such derivatives, by numbers that they hold.
SPOILT: dict[str, Callable[[Any], Any]] = {
    "x * nan": lambda x: x * nan,
    "x * inf": lambda x: x * inf,
    "x / 0": lambda x: x / 0.0,
    "nan / x": lambda x: nan / x,
    "(x nan - 1)^2": lambda x: (x * nan - 1) ** 2,
    "(x + nan) x": lambda x: (x + nan) * x,
    "too large": lambda x: x * 1e300 * 1e300,
    "dot": lambda x: tg.dot([x, x * x], [nan, inf]),
    "sum": lambda x: tg.sum([x * nan, x * x * inf, tg.sin(x) * nan]),
    "prod": lambda x: tg.prod([x, nan, x]),
    "prod of many": lambda x: tg.prod([x, x, inf, x * nan, 0.0]),
    "max": lambda x: tg.max([x * nan, x * inf, x]),
    "exp": lambda x: tg.exp(x * inf),
    "log": lambda x: tg.log(x * inf),
    "nan ** x": lambda x: nan**x,
    "0 ** x": lambda x: 0.0**x,
    "x ** nan": lambda x: x**nan,
    "hypot": lambda x: tg.hypot(x * inf, nan),
    "atan2": lambda x: tg.atan2(x, nan * x),
    "softmax": lambda x: tg.softmax([x * nan, x])[0],
    "logsumexp": lambda x: tg.logsumexp([x * inf, x, nan * x]),
}
each_spoilt = pytest.mark.parametrize("spoilt", SPOILT.values(), ids=SPOILT.keys())


@each_spoilt
def test_numbers_of_the_other_branch_leave_derivatives_alone(
    spoilt: Callable[[Any], Any], isa: str
) -> None:
    """3 x^2 y is what is taken, and its derivatives are known."""
    g = tg.Graph()
    x, y = point = [g.input("x"), g.input("y")]
    z = tg.where(x > 0, spoilt(x) * y + spoilt(y) * x, 3 * x * x * y)
    value, gradient = tg.compile(z, wrt=point)([-1.0, -2.0])
    assert (value, *gradient) == (-6.0, 12.0, 3.0)
    wanted = [[-12.0, -6.0], [-6.0, 0.0]]
    first = tg.grad(z, point)
    for second in (tg.hessian(z, point), tg.jacobian(first, point, mode="reverse")):
        found = tg.compile(list(second.ravel()), inputs=point)([-1.0, -2.0])
        assert found.reshape(2, 2).tolist() == wanted
    sparse = tg.hessian(z, point, sparse=True).compile(inputs=point)
    assert sparse([-1.0, -2.0]).toarray().tolist() == wanted
    third = tg.grad(tg.grad(first[0], x), y)
    assert tg.compile(third, inputs=point)([-1.0, -2.0]) == 6.0


@each_spoilt
def test_numbers_of_the_other_branch_leave_steps_alone(spoilt: Callable[[Any], Any]) -> None:
    """Two steps of c -> 3 c^2 make 27 c^4."""
    c = tg.Graph().input("c")
    end, _ = tg.scan(lambda c, x: (tg.where(x > 0, spoilt(c), 3 * c * c), None), c, -np.ones(2))
    assert tg.compile(end, wrt=[c])([0.5])[1].tolist() == [27 * 4 * 0.5**3]


def test_missing_data_is_left_out_of_a_loss() -> None:
    data = np.array([1.0, np.nan, 2.0])

    def loss(w: Any) -> Any:
        return np.sum(np.where((w > 0) & ~np.isnan(data), (w * data - 1) ** 2, 0.0))

    value, slope = tg.value_and_grad(loss)(0.5)
    there = data[[0, 2]]
    assert value == loss(0.5) == np.sum((0.5 * there - 1) ** 2)
    assert slope == np.sum(2 * (0.5 * there - 1) * there)


def test_a_row_does_not_depend_on_the_outputs_before_it() -> None:
    x = tg.Graph().input("x")
    e = tg.exp(x)
    b, a = tg.sigmoid(e), tg.where(x < 0, e, 1.0)
    (alone,) = tg.compile([b], wrt=[x])([800.0])[1].ravel()
    for outputs, place in (([a, b], 1), ([b, a], 0), ([a, b, a, b], 3)):
        rows = tg.compile(outputs, wrt=[x])([800.0])[1].ravel()
        np.testing.assert_array_equal(rows[place], alone)
        found = tg.locate_nonfinite(outputs, [800.0], wrt=[x])
        assert (found is None) == bool(np.isfinite(rows).all())


def test_outputs_behind_a_choice_cost_what_they_cost_before_it() -> None:
    x = tg.Graph().inputs(20)
    chosen, total = tg.where(x[0] > 0, x[0], x[1]), tg.dot(x[1:] * x[:-1], tg.sin(x[1:]))
    counts = [
        tg.compile(outputs, wrt=x).stats["instructions"]
        for outputs in ([chosen, total], [total, chosen])
    ]
    assert counts[0] == counts[1]
