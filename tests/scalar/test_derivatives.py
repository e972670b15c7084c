"""jvp, vjp, hvp, jacobian and hessian, of Vars and of functions, dense and sparse."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.optimize import rosen, rosen_der, rosen_hess, rosen_hess_prod

import tapegrad as tg
from tests.scalar.random_graphs import SHAPES, grow

#: For calls that the types forbid.
untyped: Any = tg
POINT = np.array([0.3, -0.7, 1.1, 0.4, -0.2])


def chain(x: Any) -> Any:
    """Rosenbrock's valley in any number of dimensions."""
    return tg.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def curve(x: Any) -> Any:
    """Three numbers of five."""
    return np.array([tg.prod(x), tg.logsumexp(x[:3]), tg.dot(tg.softmax(x), x * x)], dtype=object)


def test_the_valley_agrees_with_scipy(isa: str) -> None:
    v = np.linspace(-1, 1, 5)
    value, gradient = tg.value_and_grad(chain)(POINT)
    np.testing.assert_allclose(value, rosen(POINT), rtol=1e-13)
    np.testing.assert_allclose(gradient, rosen_der(POINT), rtol=1e-12)
    np.testing.assert_allclose(tg.hessian(chain)(POINT), rosen_hess(POINT), rtol=1e-12)
    np.testing.assert_allclose(tg.hvp(chain)(POINT, v), rosen_hess_prod(POINT, v), rtol=1e-12)
    sparse = tg.hessian(chain, sparse=True)
    matrix = sparse(POINT)
    assert isinstance(matrix, scipy.sparse.csr_array)
    np.testing.assert_allclose(matrix.toarray(), rosen_hess(POINT), rtol=1e-12)


def test_a_long_valley_takes_a_handful_of_sweeps() -> None:
    n = 10_000
    hessian = tg.hessian(chain, sparse=True)
    x = np.linspace(-1, 1, n)
    matrix = hessian(x)
    assert hessian.sweeps == 3
    assert matrix.shape == (n, n)
    assert matrix.nnz == 3 * n - 2
    v = np.sin(np.arange(n))
    np.testing.assert_allclose(matrix @ v, rosen_hess_prod(x, v), rtol=1e-11, atol=1e-9)


def test_an_arrow_takes_two_sweeps() -> None:
    """The first variable meets all others: columns alone would take as many sweeps as there are."""
    hessian = tg.hessian(lambda x: tg.sum(x[0] * x[1:] ** 2), sparse=True)
    x = np.arange(1.0, 51.0)
    found = hessian(x).toarray()
    wanted = np.diag(np.r_[0.0, np.full(49, 2 * x[0])])
    wanted[0, 1:] = wanted[1:, 0] = 2 * x[1:]
    np.testing.assert_allclose(found, wanted, rtol=1e-14)
    assert hessian.sweeps == 2


@pytest.mark.parametrize("derivative", ["hessian", "jacobian"])
def test_a_variable_or_an_output_that_meets_all_others_takes_linear_time(derivative: str) -> None:
    def seconds(n: int) -> float:
        x = tg.Graph().inputs(n)
        arrow = tg.sum(x[0] * x[1:] ** 2)
        outputs = np.append(x[1:] * x[:-1], arrow)
        started = time.process_time()
        if derivative == "hessian":
            assert tg.hessian(arrow, x, sparse=True).sweeps == 2
        else:
            assert tg.jacobian(outputs, x, sparse=True).sweeps == 3
        return time.process_time() - started

    assert min(seconds(32_000) for _ in range(2)) < 24 * max(seconds(4_000) for _ in range(3))


@given(st.data())
@settings(deadline=None)
def test_fewest_groups_are_those_of_the_mode_with_fewer(data: Any) -> None:
    n, m = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 12))
    x = tg.Graph().inputs(n)
    some = st.lists(st.integers(0, n - 1), min_size=1, max_size=n)
    outputs = [tg.prod(list(tg.exp(x[data.draw(some)]))) for _ in range(m)]
    sweeps = {
        mode: tg.jacobian(outputs, x, sparse=True, mode=mode).sweeps
        for mode in ("forward", "reverse", "auto")
    }
    assert sweeps["auto"] == min(sweeps["forward"], sweeps["reverse"])
    found = tg.hessian(tg.sum(outputs), x, sparse=True)
    dense = tg.compile(tg.hessian(tg.sum(outputs), x).ravel(), inputs=x)
    point = np.linspace(-1, 1, n)
    np.testing.assert_allclose(
        found.compile(inputs=x)(point).toarray(), dense(point).reshape(n, n), rtol=1e-10, atol=1e-12
    )


def differences(function: Any, x: Any, step: float = 1e-6) -> Any:
    """The Jacobian by central differences of the replayed values."""
    program = tg.jvp(function)
    zero = np.zeros_like(x)
    columns = [
        (program(x + step * unit, zero)[0] - program(x - step * unit, zero)[0]) / (2 * step)
        for unit in np.eye(len(x))
    ]
    return np.stack(columns, axis=-1)


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse"])
def test_jacobians_agree_with_differences(mode: Any, isa: str) -> None:
    wanted = differences(curve, POINT)
    dense = tg.jacobian(curve, mode=mode)(POINT)
    np.testing.assert_allclose(dense, wanted, rtol=1e-7, atol=1e-9)
    sparse = tg.jacobian(curve, mode=mode, sparse=True)
    np.testing.assert_allclose(sparse(POINT).toarray(), wanted, rtol=1e-7, atol=1e-9)


def test_products_agree_with_the_jacobian() -> None:
    jacobian = tg.jacobian(curve)(POINT)
    v, u = np.linspace(1, 2, 5), np.array([1.0, -2.0, 0.5])
    values, along = tg.jvp(curve)(POINT, v)
    np.testing.assert_allclose(along, jacobian @ v, rtol=1e-13)
    again, back = tg.vjp(curve)(POINT, u)
    np.testing.assert_allclose(back, u @ jacobian, rtol=1e-13)
    np.testing.assert_array_equal(values, again)


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    shape=st.sampled_from(SHAPES),
    inputs=st.integers(1, 6),
    steps=st.integers(0, 40),
    seed=st.integers(0, 2**32 - 1),
)
def test_forward_and_reverse_agree_on_random_graphs(
    shape: str, inputs: int, steps: int, seed: int
) -> None:
    grown = grow(shape, inputs, steps, seed, True)
    y, x, v = grown.vars[-1], grown.inputs, grown.direction
    forward = tg.jvp(y, x, v)
    second = tg.hvp(y, x, v)
    sparse = tg.hessian(y, x, sparse=True)
    found = tg.compile([forward, *second, *sparse.values])(grown.point)
    want = grown.duals[-1]
    scale = max(1.0, *(dual.size for dual in grown.duals))
    close = {"rtol": 1e-8, "atol": 1e-9 * scale}
    np.testing.assert_allclose(found[0], np.dot(want.gradient, v), **close)
    np.testing.assert_allclose(found[1 : len(x) + 1], want.curved, **close)
    matrix = np.zeros((len(x), len(x)))
    matrix[sparse.rows, sparse.columns] = found[len(x) + 1 :]
    np.testing.assert_allclose(matrix @ v, want.curved, **close)


def random_structure(rng: np.random.Generator, rows: int, columns: int, density: float) -> Any:
    return rng.random((rows, columns)) < density


@pytest.mark.parametrize("seed", range(20))
def test_sparse_jacobians_have_exactly_the_pattern(seed: int) -> None:
    rng = np.random.default_rng(seed)
    structure = random_structure(rng, 12, 9, 0.25)

    def function(x: Any) -> Any:
        return [
            tg.sum([tg.sin((i + 1) * x[j]) for j in np.flatnonzero(row)] or [0.0])
            for i, row in enumerate(structure)
        ]

    x = rng.standard_normal(9)
    wanted = np.where(
        structure, (np.arange(12)[:, None] + 1) * np.cos(np.outer(np.arange(12) + 1, x)), 0
    )
    for mode in ("auto", "forward", "reverse"):
        jacobian = tg.jacobian(function, mode=mode, sparse=True)
        found = jacobian(x)
        assert found.nnz == structure.sum()
        np.testing.assert_allclose(found.toarray(), wanted, rtol=1e-12, atol=1e-14)
        fewest = structure.sum(axis=1).max() if mode == "forward" else structure.sum(axis=0).max()
        assert mode == "auto" or fewest <= jacobian.sweeps <= min(9, 2 * fewest)


@pytest.mark.parametrize("seed", range(20))
def test_sparse_hessians_of_random_structure(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 15
    pairs = [(i, j) for i in range(n) for j in range(i + 1) if rng.random() < 0.15]

    def function(x: Any) -> Any:
        return tg.sum([tg.sin(x[i] * (k + 1)) * x[j] for k, (i, j) in enumerate(pairs)] or [0.0])

    x = rng.standard_normal(n)
    dense = tg.hessian(function)(x)
    sparse = tg.hessian(function, sparse=True)
    np.testing.assert_allclose(sparse(x).toarray(), dense, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(dense, dense.T, rtol=1e-12, atol=1e-13)


def test_what_has_the_number_0_for_a_tangent_stands_still() -> None:
    x, y = tg.Graph().inputs(2)
    moved = tg.jvp([tg.sqrt(x) * y, y * y], [x, y], [0.0, 1.0])
    # The derivative of sqrt is infinite at 0, and nobody asked for it.
    assert tg.compile(list(moved))([0.0, 3.0]).tolist() == [0.0, 6.0]


def test_steps_do_not_count_as_dependence() -> None:
    x = tg.Graph().inputs(3)
    found = tg.jacobian([tg.floor(x[0]) * x[1], tg.where(x[0] > 0, x[1], x[2])], x, sparse=True)
    assert list(zip(found.rows.tolist(), found.columns.tolist(), strict=True)) == [
        (0, 1),
        (1, 1),
        (1, 2),
    ]


def test_the_branch_not_taken_does_no_harm() -> None:
    x = tg.Graph().inputs(1)
    y = tg.where(x[0] > 0, tg.log(x[0]), x[0] * 3)
    assert tg.compile([tg.jvp(y, x[0], 1.0)])([0.0]).tolist() == [3.0]
    assert tg.hessian(lambda x: tg.where(x[0] > 0, tg.log(x[0]), x[0] ** 2))([0.0]).tolist() == [
        [2.0]
    ]


def test_shapes_of_arguments_and_results_are_kept() -> None:
    point = np.arange(6.0).reshape(2, 3)
    assert tg.jacobian(lambda x: x * x)(point).shape == (2, 3, 2, 3)
    assert tg.hessian(lambda x: tg.sum((x * x).ravel()))(point).shape == (2, 3, 2, 3)
    assert tg.jacobian(lambda x: x * 2)(3.0) == 2.0
    values, along = tg.jvp(lambda x: x @ x.T)(point, np.ones((2, 3)))
    np.testing.assert_allclose(along, np.ones((2, 3)) @ point.T + point @ np.ones((3, 2)))
    assert values.shape == (2, 2)


def test_seeds_may_be_vars_and_named_twice() -> None:
    g = tg.Graph()
    x, v = g.input(), g.input()
    twice = tg.jvp(x * x, [x, x], [v, 1.0])
    assert tg.compile([twice])([3.0, 2.0]).tolist() == [18.0]


def perturbed(function: Any, makers: list[Any], point: Any) -> tuple[Any, Any]:
    """Jacobian and Hessian of the sum by central differences.

    A variable is what its maker gives, plus a change of its own; whoever uses it sees both.
    """
    n, size = len(makers), 2.0**-12

    def at(*moves: tuple[int, int]) -> Any:
        changes = np.zeros(n)
        for place, sign in moves:
            changes[place] += sign * size
        made: list[Any] = []
        for maker, change in zip(makers, changes, strict=True):
            made.append(maker(point, made) + change)
        return np.array(function(made))

    signs = (1, -1)
    columns = [(at((i, 1)) - at((i, -1))) / (2 * size) for i in range(n)]
    second = [
        [
            sum(s * t * at((i, s), (j, t)).sum() for s in signs for t in signs) / (4 * size**2)
            for j in range(n)
        ]
        for i in range(n)
    ]
    return np.array(columns).T, np.array(second)


def test_variables_that_depend_on_each_other_have_total_derivatives_in_every_mode() -> None:
    makers: list[Any] = [
        lambda x, made: x[0],
        lambda x, made: x[1],
        lambda x, made: made[0] * made[1],
        lambda x, made: tg.sin(made[2]) + made[1],
    ]

    def function(v: Any) -> list[Any]:
        return [v[2] ** 2 + v[0], v[3] * v[2] + v[1] ** 3, tg.exp(v[3] / 4) * v[0]]

    point = [0.7, 1.3]
    x = tg.Graph().inputs(2)
    wrt: list[Any] = []
    for maker in makers:
        wrt.append(maker(x, wrt))
    outputs = function(wrt)
    jacobian, hessian = perturbed(function, makers, point)

    def at(vars_: Any) -> Any:
        return tg.compile(np.ravel(vars_), inputs=x)(point)

    for chosen in ([0, 1, 2, 3], [2, 0], [3, 1], [3, 2], [0, 2, 2]):
        by = [wrt[i] for i in chosen]
        n, weights = len(by), np.arange(1.0, 4.0)
        want = jacobian[:, chosen]
        for mode in ("auto", "forward", "reverse"):
            got = at(tg.jacobian(outputs, by, mode=mode)).reshape(3, n)
            np.testing.assert_allclose(got, want, rtol=1e-6)
            sparse = tg.jacobian(outputs, by, sparse=True, mode=mode).compile(inputs=x)
            np.testing.assert_allclose(sparse(point).toarray(), want, rtol=1e-6)
        direction = weights[:n] if n <= 3 else np.arange(1.0, n + 1)
        np.testing.assert_allclose(at(tg.jvp(outputs, by, direction)), want @ direction, rtol=1e-6)
        np.testing.assert_allclose(at(tg.vjp(outputs, by, weights)), weights @ want, rtol=1e-6)
        total = tg.sum(outputs)
        want = hessian[np.ix_(chosen, chosen)]
        np.testing.assert_allclose(at(tg.hessian(total, by)).reshape(n, n), want, rtol=1e-5)
        np.testing.assert_allclose(at(tg.hvp(total, by, direction)), want @ direction, rtol=1e-5)
        sparse = tg.hessian(total, by, sparse=True).compile(inputs=x)
        np.testing.assert_allclose(sparse(point).toarray(), want, rtol=1e-5)


def test_sparse_hessians_by_a_var_that_the_gradient_uses_are_the_dense_ones() -> None:
    """The slope of exp(x) is exp(x), so the gradient by x moves with that Var: not symmetric."""
    x, y = point = list(tg.Graph().inputs(2))
    m = tg.exp(x)
    output, wrt = m + x * y, [x, y, m]
    wanted = [[np.exp(0.5), 1, 1], [1, 0, 0], [0, 0, 0]]
    dense = tg.compile(tg.hessian(output, wrt).ravel(), inputs=point)([0.5, 2.0])
    sparse = tg.hessian(output, wrt, sparse=True).compile(inputs=point)([0.5, 2.0])
    np.testing.assert_allclose(dense.reshape(3, 3), wanted, rtol=1e-15)
    np.testing.assert_allclose(sparse.toarray(), wanted, rtol=1e-15)


@pytest.mark.parametrize("seed", range(40))
def test_sparse_hessians_agree_on_variables_in_the_middle_of_random_graphs(seed: int) -> None:
    grown = grow(SHAPES[seed % len(SHAPES)], 4, 15, seed, True)
    known = [var for var in grown.vars if var.op != "constant"]
    wrt = [known[i] for i in np.random.default_rng(seed).choice(len(known), 4)]
    dense = tg.hessian(known[-1], wrt).ravel()
    want = tg.compile(dense, inputs=grown.inputs)(grown.point).reshape(4, 4)
    got = tg.hessian(known[-1], wrt, sparse=True).compile(inputs=grown.inputs)(grown.point)
    np.testing.assert_allclose(got.toarray(), want, rtol=1e-9, atol=1e-10 * max(1, want.max()))


@pytest.mark.parametrize("seed", range(40))
def test_modes_agree_on_variables_in_the_middle_of_random_graphs(seed: int) -> None:
    grown = grow(SHAPES[seed % len(SHAPES)], 4, 30, seed, True)
    known = [var for var in grown.vars if var.op != "constant"]
    wrt = [known[i] for i in np.random.default_rng(seed).choice(len(known), 4)]
    outputs = [known[-1], known[-2], wrt[0]]
    reverse, forward = (tg.jacobian(outputs, wrt, mode=mode) for mode in ("reverse", "forward"))
    sparse = tg.jacobian(outputs, wrt, sparse=True).compile(inputs=grown.inputs)
    program = tg.compile(np.ravel([reverse, forward]), inputs=grown.inputs)
    want, got = program(grown.point).reshape(2, 3, 4)
    close = {"rtol": 1e-9, "atol": 1e-10 * max(1.0, np.abs(want).max())}
    np.testing.assert_allclose(got, want, **close)
    np.testing.assert_allclose(sparse(grown.point).toarray(), want, **close)


def test_results_of_one_operation_may_be_variables_with_their_operands() -> None:
    x = tg.Graph().inputs(3)
    soft = tg.softmax(x)
    end, _ = tg.scan(lambda c, _: (c * x[0], None), soft[1], length=3)
    wrt = [*x, soft[1], end]
    outputs = [soft[0] * soft[1], end * soft[1] + x[2]]
    modes = [tg.jacobian(outputs, wrt, mode=mode) for mode in ("forward", "reverse")]
    forward, reverse = (tg.compile(each.ravel(), inputs=x)([0.1, -0.4, 0.7]) for each in modes)
    np.testing.assert_allclose(forward, reverse, rtol=1e-14)


def test_derivatives_without_entries_are_empty() -> None:
    point = np.ones(2)
    flat = tg.hessian(np.sum, sparse=True)
    assert (flat(point).shape, flat(point).nnz, flat.sweeps) == ((2, 2), 0, 0)
    constant = tg.jacobian(lambda x: np.ones(3), sparse=True, dtype="float32")
    assert (constant(point).shape, constant(point).dtype, constant.sweeps) == (
        (3, 2),
        np.float32,
        0,
    )
    assert tg.jacobian(lambda x: x[:0], sparse=True)(point).shape == (0, 2)
    assert tg.jacobian(lambda x: x[:0])(point).shape == (0, 2)
    assert [part.shape for part in tg.jvp(lambda x: x[:0])(point, point)] == [(0,), (0,)]
    x = tg.Graph().inputs(2)
    program = tg.hessian(x[0] + x[1], x, sparse=True).compile()
    assert (program(point).shape, program(point).nnz, program.sweeps) == ((2, 2), 0, 0)
    rows = program.program.batch(np.ones((3, 2)))
    assert program.matrix(rows[0]).nnz == 0
    assert tg.jacobian([], x, sparse=True).compile()(point).shape == (0, 2)


@pytest.mark.parametrize(
    ("point", "want"),
    [
        ([0.0, 2.0], [[2.0, 0.0], [0.0, 0.0]]),
        ([0.0, 3.0], [[0.0, 0.0], [0.0, 0.0]]),
        ([0.0, 1.5], [[np.inf, 0.0], [0.0, 0.0]]),
        ([0.0, 1.0], [[0.0, -np.inf], [-np.inf, 0.0]]),
        ([2.0, 3.0], [[12.0, 4 + 12 * np.log(2)], [4 + 12 * np.log(2), 8 * np.log(2) ** 2]]),
    ],
)
def test_powers_of_zero_vanish_faster_than_their_logarithm_grows(point: Any, want: Any) -> None:
    x = tg.Graph().inputs(2)
    y = x[0] ** x[1]
    twice = [tg.grad(tg.grad(y, a), b) for a in x for b in x]
    crossed = [tg.jvp(tg.grad(y, a), b, 1.0) for a in x for b in x]
    opposite = [tg.grad(tg.jvp(y, a, 1.0), b) for a in x for b in x]
    for found in (twice, crossed, opposite):
        np.testing.assert_allclose(tg.compile(found)(point), np.ravel(want), rtol=1e-14)


def test_powers_of_the_number_zero_are_those_of_a_variable_that_is_zero() -> None:
    q = tg.Graph().input("q")
    y = 0.0**q
    slope = tg.grad(y, q)
    orders = [slope, tg.grad(slope, q), tg.grad(tg.grad(slope, q), q), tg.grad(y * q, q)]
    orders += [tg.grad(tg.grad(tg.where(q > 0, y, 1.0), q), q), tg.grad(tg.jvp(y, q, 1.0), q)]
    assert tg.compile(orders)([2.0]).tolist() == [0.0] * len(orders)
    assert tg.grad(tg.grad(lambda q: 0.0**q))(2.0) == 0.0


def test_third_derivatives_of_powers_of_zero() -> None:
    x = tg.Graph().inputs(2)
    y = x[0] ** x[1]
    # By q, q and p: p^(q - 1) log p (q log p + 2), which is 0 at p = 0 and q = 3.
    orders = [(x[1], x[1], x[0]), (x[1], x[0], x[1]), (x[1], x[1], x[1])]
    found = [tg.grad(tg.grad(tg.grad(y, a), b), c) for a, b, c in orders]
    assert tg.compile(found)([0.0, 3.0]).tolist() == [0.0, 0.0, 0.0]
    p, q = 1.5, 2.5
    slope = p ** (q - 1) * np.log(p) * (q * np.log(p) + 2)
    want = [slope, slope, p**q * np.log(p) ** 3]
    np.testing.assert_allclose(tg.compile(found)([p, q]), want, rtol=1e-13)


def test_outputs_that_do_not_move_are_zero() -> None:
    x = tg.Graph().inputs(2)
    assert tg.compile(tg.jvp([x[1], x[0]], x[0], 1.0))([5.0, 6.0]).tolist() == [0.0, 1.0]
    assert tg.jacobian(lambda x: [1.0, x[0]])([2.0, 3.0]).tolist() == [[0.0, 0.0], [1.0, 0.0]]


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda x: untyped.jvp([x], [x], [1.0, 2.0]), "shape of wrt"),
        (lambda x: untyped.vjp([x], [x], [1.0, 2.0]), "shape of outputs"),
        (lambda x: untyped.jacobian([x], [x], mode="sideways"), "mode"),
        (lambda x: untyped.jacobian(lambda x: x, mode="sideways"), "mode"),
        (lambda x: untyped.jvp([x], [x]), "tangents"),
        (lambda x: untyped.jvp([x]), "differentiate by"),
        (lambda x: untyped.jvp(3.0, x, 1.0), "Vars"),
        (lambda x: untyped.jvp([x], [x], ["a"]), "Vars and numbers"),
        (lambda x: tg.jvp(lambda x: x)([1.0]), "second argument"),
        (lambda x: tg.jvp(lambda x: x)([1.0], [1.0, 2.0]), "second argument"),
        (lambda x: tg.jacobian(lambda x: x)([1.0], [1.0]), "one argument"),
        (lambda x: untyped.jvp([x], [tg.Graph().input()], [1.0]), "two graphs"),
        (lambda x: tg.jacobian(lambda x: x, sparse=True).sweeps, "first call"),
        (lambda x: tg.hessian(lambda x: x)([1.0, 2.0]), "one Var"),
        (lambda x: untyped.hessian(lambda x: x, x), "when called"),
    ],
)
def test_wrong_arguments_say_what_is_expected(call: Any, complaint: str) -> None:
    with pytest.raises(tg.TapegradError, match=complaint):
        call(tg.Graph().input())


def _chained(operations: list[tuple[str, int, float]], x: Any, shift: tuple[int, Any]) -> list[Any]:
    """Signs, multiples and products of what came before; something is added to one of them."""
    nodes = list(x)
    for op, place, number in operations:
        a, b = nodes[place % len(nodes)], nodes[-1]
        nodes.append(-a if op == "neg" else number * a if op == "multiple" else a * b)
        if len(nodes) - 1 == shift[0]:
            nodes[-1] = nodes[-1] + shift[1]
    return nodes


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["neg", "multiple", "times"]),
            st.integers(0, 20),
            st.sampled_from([-2.0, 0.5, 3.0]),
        ),
        min_size=2,
        max_size=8,
    ),
    st.integers(0, 20),
)
def test_second_derivatives_by_what_is_computed(
    operations: list[tuple[str, int, float]], which: int
) -> None:
    """Derivatives of a gradient by signs and multiples, which sums of derivatives would leave out.

    The same comes by an input that is added to the node.
    """
    point = [0.7, -1.3]
    place = 2 + which % len(operations)
    x = tg.Graph().inputs(2)
    nodes = _chained(operations, x, (-1, 0.0))
    by = nodes[place]
    y = tg.Graph().inputs(2)
    added = y[0].graph.input()
    shifted = _chained(operations, y, (place, added))
    if sum(each is by or hash(each) == hash(by) for each in nodes) > 1:
        return  # equal operations are one Var, to which nothing can be added in one place only
    for mode in ("forward", "reverse"):
        slopes = [tg.grad(tg.sum(nodes), each) for each in x]
        found = tg.jacobian(slopes, [by], mode=mode)
        wanted = tg.jacobian([tg.grad(tg.sum(shifted), each) for each in y], [added], mode=mode)
        np.testing.assert_allclose(
            tg.compile(np.ravel(found).tolist(), inputs=x)(point),
            tg.compile(np.ravel(wanted).tolist(), inputs=[*y, added])([*point, 0.0]),
            rtol=1e-12,
        )


def test_a_derivative_depends_on_the_sign_that_it_has_as_a_factor() -> None:
    g = tg.Graph()
    x, z = g.input(), g.input()
    minus, twice = -x, 2 * x
    found = [
        tg.grad(tg.grad(-(z * minus), z), minus),
        tg.grad(tg.grad(3 * (z * twice), z), twice),
    ]
    slope = tg.grad(x * x, x)  # a derivative is known, too
    found.append(tg.grad(tg.grad(3 * (z * slope), z), slope))
    assert tg.compile(found)([5.0, 7.0]).tolist() == [-1.0, 3.0, 3.0]


@pytest.mark.parametrize(
    "derivative",
    [
        lambda f, x: tg.jvp(f)(x, 1.0)[1],
        lambda f, x: tg.jacobian(f, mode="forward")(x),
        lambda f, x: tg.jacobian(f, sparse=True, mode="forward")(x).values[0],
    ],
    ids=["jvp", "forward", "sparse"],
)
def test_forward_mode_looks_at_what_lies_between_variables_and_outputs(derivative: Any) -> None:
    def seconds(nodes: int) -> float:
        x = tg.Graph().inputs(2)
        start = x[0]
        for _ in range(nodes):
            start = start * x[1]
        times = []
        for _ in range(20):
            begin = time.perf_counter()
            derivative(lambda y: (y - 3) ** 2 + x[1] * y**2, start)
            times.append(time.perf_counter() - begin)
        return min(times)

    assert seconds(1_000_000) < 10 * seconds(10)


def test_outputs_before_their_variables_do_not_move() -> None:
    x, y = tg.Graph().inputs(2)
    before, between = x * x, x * y
    late = tg.exp(y)
    outputs, wrt = [before, between, y], [late, y]
    assert tg.compile(tg.jvp(outputs, wrt, [2.0, 3.0]))([5.0, 7.0]).tolist() == [0.0, 15.0, 3.0]
    sparse = tg.jacobian(outputs, wrt, sparse=True, mode="forward")
    assert list(zip(sparse.rows, sparse.columns, strict=True)) == [(1, 1), (2, 1)]
    assert tg.jacobian([x], [late], sparse=True).nnz == 0


def test_sweeps_at_vars_are_known_too() -> None:
    squares = tg.jacobian(lambda x: x**2, sparse=True)
    found = squares(tg.Graph().inputs(3))
    assert squares.sweeps == found.sweeps == 1
