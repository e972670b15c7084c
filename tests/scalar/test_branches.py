"""Frozen branches: listed, and checked at every point, row and step."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import numpy as np
import pytest

import tapegrad as tg

untyped: Any = tg
each_dtype = pytest.mark.parametrize("dtype", ["float64", "float32"])


def huber(x: Any) -> Any:
    """Python's own branches, on numbers and on Vars."""
    if abs(x) < 1.0:
        return 0.5 * x * x
    return abs(x) - 0.5


def recorded(value: float, **options: Any) -> tg.Program:
    g = tg.Graph(branches="freeze")
    x = g.input("x", value=value)
    return tg.compile(huber(x), wrt=[x], **options)


@each_dtype
@pytest.mark.parametrize("value", [0.3, -0.7, 2.0, -5.0])
def test_the_branch_of_the_example_is_taken(value: float, dtype: str) -> None:
    program = recorded(value, dtype=dtype)
    found, gradient = program([value])
    assert found == pytest.approx(huber(value))
    assert gradient[0] == pytest.approx(np.clip(value, -1, 1))
    (branch,) = program.branches
    assert branch.taken == (abs(value) < 1)
    source, first = inspect.getsourcelines(huber)
    place = first + next(k for k, line in enumerate(source) if "if abs" in line)
    assert branch.line == f"{__file__}:{place}"
    assert branch.condition.startswith("lt(")


@each_dtype
@pytest.mark.parametrize("point", [1.0, -3.0, float("nan"), float("inf")])
def test_a_point_of_another_branch_raises(point: float, dtype: str) -> None:
    with pytest.raises(tg.BranchChanged, match=r"lt\(.*was true.*test_branches.py"):
        recorded(0.5, dtype=dtype)([point])
    assert recorded(3.0)([5.0])[0] == 4.5
    with pytest.raises(tg.BranchChanged, match="was false"):
        recorded(3.0)([0.5])


def test_a_batch_names_the_rows(isa: str) -> None:
    program = recorded(0.5)
    rows = np.linspace(-0.9, 0.9, 10_001)[:, None]
    values, gradients = program.batch(rows, threads=2)
    np.testing.assert_allclose(values, 0.5 * rows[:, 0] ** 2, rtol=1e-15)
    np.testing.assert_allclose(gradients, rows, rtol=1e-15)
    rows[[3, 777, 10_000]] = [[1.0], [-2.0], [np.nan]]
    with pytest.raises(tg.BranchChanged, match=r"3 of 10,001 rows.*rows 3, 777, 10000") as caught:
        program.batch(rows)
    assert caught.value.rows == [3, 777, 10_000]
    assert caught.value.branches == program.branches
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.rows == caught.value.rows


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.bool_, np.float32])
def test_shared_values_are_not_rounded_to_the_rows(dtype: Any) -> None:
    g = tg.Graph(branches="freeze")
    a, t = g.input("a", value=0.7), g.input("t", value=0.0)
    program = tg.compile(a * t if abs(a + t - 0.7) < 1e-12 else a, wrt=[a])
    rows = np.array([[0], [0], [1]]).astype(dtype)
    with pytest.raises(tg.BranchChanged) as caught:
        program.batch(rows, shared={"a": 0.7})
    assert caught.value.rows == [2]


def test_every_row_is_right_or_named() -> None:
    g = tg.Graph(branches="freeze")
    x = g.inputs(2, values=[0.5, 2.0])
    program = tg.compile(huber(x[0]) + huber(x[1]), wrt=x)
    assert len(program.branches) == 2
    rows = np.random.default_rng(0).uniform(-3, 3, (400, 2))
    wrong = ~((np.abs(rows[:, 0]) < 1) & (np.abs(rows[:, 1]) >= 1))
    with pytest.raises(tg.BranchChanged) as caught:
        program.batch(rows)
    assert caught.value.rows == np.flatnonzero(wrong).tolist()
    values, _ = program.batch(rows[~wrong])
    np.testing.assert_allclose(values, [huber(a) + huber(b) for a, b in rows[~wrong].tolist()])


@pytest.mark.parametrize("method", ["sgd", "adam"])
@pytest.mark.parametrize("starts", [[3.0], [[3.0], [2.5], [2.9]]])
def test_minimize_stops_where_a_step_leaves_the_branch(method: Any, starts: Any) -> None:
    program = recorded(3.0)
    with pytest.raises(tg.BranchChanged, match="was false"):
        program.minimize(np.array(starts), method, steps=1000, lr=0.1)
    assert program.minimize(np.array(starts), method, steps=3, lr=0.1).steps == 3


@pytest.mark.parametrize("method", ["sgd", "adam"])
def test_a_start_that_has_ended_does_not_go_past_a_branch(method: Any) -> None:
    g = tg.Graph(branches="freeze")
    x = g.input("x", value=1.0)
    program = tg.compile(x**2 if x > 0.5 else -x, wrt=[x])
    starts = np.array([[1.5], [60.0]])
    found = program.minimize(starts, method, steps=15, lr=0.1, target=1.4)
    alone = program.minimize(starts[0], method, steps=15, lr=0.1, target=1.4)
    assert found.reason[0] == alone.reason == "target"
    np.testing.assert_array_equal(found.x[0], alone.x)


def test_the_branches_that_are_left_are_told_wherever_it_happens() -> None:
    g = tg.Graph(branches="freeze")
    x = g.inputs(2, values=[0.5, 2.0])
    program = tg.compile(huber(x[0]) + huber(x[1]), wrt=x)
    first, second = program.branches
    for point, left in (([2.0, 2.0], (first,)), ([2.0, 0.0], (first, second))):
        with pytest.raises(tg.BranchChanged) as caught:
            program(point)
        assert (caught.value.rows, caught.value.branches) == (None, left)
    for starts, left_from in (([0.5, 1.2], None), ([[0.5, 9.0], [0.5, 1.2], [0.5, 8.0]], [1])):
        with pytest.raises(tg.BranchChanged, match="was false") as caught:
            program.minimize(np.array(starts), "sgd", lr=0.1)
        assert (caught.value.rows, caught.value.branches) == (left_from, (second,))
    far = np.full((100, 2), [0.5, 9.0])
    far[77] = [0.5, 1.2]
    with pytest.raises(tg.BranchChanged, match=r"minimize: from start 77 a point takes") as caught:
        program.minimize(far, "sgd", lr=0.1, threads=2)
    assert caught.value.rows == [77]
    with pytest.raises(tg.BranchChanged, match=r"profile: 1 of 2 rows") as caught:
        program.profile([[0.5, 2.0], [0.5, 0.5]])
    assert (caught.value.rows, caught.value.branches) == ([1], (second,))
    with pytest.raises(tg.BranchChanged, match=r"columns: 2 of 3 rows.*rows 0, 2") as caught:
        program.columns([0.5, np.array([0.1, 5.0, 0.2])])
    assert (caught.value.rows, caught.value.branches) == ([0, 2], (second,))


@pytest.mark.parametrize("method", ["sgd", "lbfgs", "lm"])
def test_a_fit_names_the_rows_that_leave_a_branch(method: Any) -> None:
    g = tg.Graph(branches="freeze")
    x, y = g.inputs(2, values=[0.0, 0.0])
    residual = 3 * (x - y) if x - y < 1 else x * 0
    program = tg.compile(residual if method == "lm" else residual**2, wrt=[x])
    rows = np.zeros((10_000, 1))
    assert program.minimize([0.5], method, rows=rows, steps=20).value < 0.3
    rows[[5, 7_777]] = -1e3
    with pytest.raises(tg.BranchChanged, match=r"minimize: 2 of 10,000 rows.*5, 7777") as caught:
        program.minimize([0.5], method, rows=rows)
    assert caught.value.rows == [5, 7_777]
    assert caught.value.branches == program.branches


def test_comparisons_combine_as_in_python() -> None:
    g = tg.Graph(branches="freeze")
    x, y, z = g.inputs(3, values=[1.0, 2.0, 3.0])
    assert x < y < z
    assert not (x > y or y > z)
    assert [v.index for v in sorted([z, x, y])] == [0, 1, 2]
    assert max(x, z, y) is z
    assert (x if x else y) is x
    program = tg.compile(x + y)
    assert all(branch.line.startswith(__file__) for branch in program.branches)
    assert program([1.5, 2.0, 3.0]) == 3.5
    with pytest.raises(tg.BranchChanged):
        program([0.0, 2.0, 3.0])  # x is no longer true
    with pytest.raises(tg.BranchChanged):
        program([1.0, 2.0, 2.0])  # y < z no longer


def test_a_condition_is_one_guard_however_often_it_is_asked() -> None:
    g = tg.Graph(branches="freeze")
    x = g.input("x", value=1.0)
    for _ in range(100):
        assert x > 0
    assert len(tg.compile(x * 2).branches) == 1


def test_a_comparison_with_itself_asks_for_nan() -> None:
    g = tg.Graph(branches="freeze")
    x = g.input("x", value=2.0)
    program = tg.compile(x * x if x == x else g.constant(1.0), wrt=[x])  # noqa: PLR0124
    assert [branch.condition for branch in program.branches] == ["eq(x, x)"]
    assert program([3.0])[0] == 9.0
    with pytest.raises(tg.BranchChanged):
        program([np.nan])
    n = g.input("n", value=np.nan)
    assert not n == n  # noqa: PLR0124, SIM201


def test_vars_without_examples_are_members_of_sets_all_the_same() -> None:
    x = tg.Graph(branches="freeze").input("x")
    assert x.T * 1.0 in {x}


def test_values_are_those_of_the_example() -> None:
    g = tg.Graph(branches="freeze")
    x = g.inputs(3, values=[0.1, 0.2, 0.3])
    soft = tg.softmax(x)
    end, _ = tg.scan(lambda c, _: (c * x[1] + 1, None), x[0], length=100)
    made = [tg.exp(x[0]), soft[2], tg.sum(x), tg.where(x[0] > 1, x[1], x[2]), end]
    wanted = tg.compile(made)([0.1, 0.2, 0.3])
    assert [var.value for var in made] == pytest.approx(wanted.tolist(), rel=1e-15)
    assert g.constant(2.0).value == 2.0
    assert tg.Graph().input().value is None


def test_programs_without_branches_have_none() -> None:
    g = tg.Graph(branches="freeze")
    x = g.input("x", value=1.0)
    assert tg.compile(x * 2).branches == ()
    assert tg.compile(tg.Graph().input()).branches == ()


def test_derivatives_as_vars_keep_the_guards() -> None:
    g = tg.Graph(branches="freeze")
    x = g.input("x", value=0.5)
    slope = tg.grad(huber(x), x)
    program = tg.compile(slope)
    assert program([0.25]) == 0.25
    with pytest.raises(tg.BranchChanged):
        program([2.0])


def test_saved_programs_check_as_well() -> None:
    program = recorded(0.5)
    again = tg.Program.from_bytes(program.to_bytes())
    assert again.branches == program.branches
    assert again([0.25])[0] == program([0.25])[0]
    with pytest.raises(tg.BranchChanged):
        again([1.5])
    assert again.to_bytes() == program.to_bytes()


def test_damaged_guards_do_not_crash() -> None:
    record = recorded(0.5).record()
    rng, loaded = np.random.default_rng(1), 0
    for _ in range(2000):
        changed = bytearray(record)
        for place in rng.integers(0, len(record), rng.integers(1, 4)):
            changed[place] = rng.integers(0, 256)
        try:
            again = tg._core.Program(bytes(changed))
            loaded += 1
            again(np.ones(again.n_inputs))
        except (tg.FileError, tg.BranchChanged):
            continue
    assert 2000 / 20 < loaded < 2000 / 2


def test_c_cannot() -> None:
    with pytest.raises(tg.OptionError, match="frozen branches"):
        recorded(0.5).to_c()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: untyped.Graph(branches="both"), "'raise' or 'freeze'"),
        (lambda: tg.Graph().input(value=1.0), 'branches="freeze"'),
        (lambda: tg.Graph().inputs(1, values=[1.0]), 'branches="freeze"'),
        (lambda: tg.Graph(branches="freeze").inputs(2, values=[1.0]), "expected 2 values"),
        (lambda: bool(tg.Graph(branches="freeze").input() > 0), "example values"),
    ],
)
def test_wrong_arguments_are_told(call: Any, message: str) -> None:
    with pytest.raises(tg.TapegradError, match=message):
        call()


def test_a_branch_on_an_input_that_a_program_does_not_take_is_told() -> None:
    g = tg.Graph(branches="freeze")
    x, y = g.inputs(2, values=[1.0, 2.0])
    assert x < y
    with pytest.raises(tg.CompileError, match="frozen branches need input 1"):
        tg.compile(x * 2, inputs=[x])
