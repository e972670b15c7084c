"""The lane executor's interface: pointers and strides, shared inputs, sums over rows, loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import _core

ROWS = [1, 7, 8, 9, 1023, 1024, 1025, 5000]


@pytest.fixture(params=["float64", "float32"])
def program(request: pytest.FixtureRequest) -> tg.Program:
    g = tg.Graph()
    a, b, c = g.inputs(3)
    return tg.compile([tg.exp(a) * b + c, a - b], dtype=request.param)


def columns(program: tg.Program, rows: int) -> list[Any]:
    rng = np.random.default_rng(rows)
    return [rng.normal(size=rows).astype(program.dtype) for _ in range(3)]


@pytest.mark.parametrize("rows", ROWS)
def test_columns_give_the_bits_of_a_batch(program: tg.Program, rows: int) -> None:
    data = columns(program, rows)
    first, second = program.columns(data)
    assert np.array_equal(np.stack([first, second], 1), program.batch(np.stack(data, 1)))


@pytest.mark.parametrize("rows", ROWS)
def test_strided_and_reversed_columns_are_read_in_place(program: tg.Program, rows: int) -> None:
    data = columns(program, rows)
    spread = [np.repeat(column, 3)[::3] for column in data[:2]] + [data[2][::-1]]
    expected = program.columns([data[0], data[1], data[2][::-1].copy()])
    for got, wanted in zip(program.columns(spread), expected, strict=True):
        assert np.array_equal(got, wanted)


@pytest.mark.parametrize("rows", ROWS)
def test_a_number_is_shared_by_all_rows(program: tg.Program, rows: int) -> None:
    a, b, _ = columns(program, rows)
    shared = program.columns([a, b, 0.75])
    filled = program.columns([a, b, np.full(rows, 0.75, program.dtype)])
    for got, wanted in zip(shared, filled, strict=True):
        assert np.array_equal(got, wanted)


def test_numbers_alone_are_one_row(program: tg.Program) -> None:
    assert [len(column) for column in program.columns([1.0, 2.0, 3.0])] == [1, 1]


@pytest.mark.parametrize("rows", ROWS)
def test_sums_over_rows_have_the_same_bits_for_any_number_of_threads(
    program: tg.Program, rows: int
) -> None:
    data = columns(program, rows)
    sums = [program.columns(data, sum=True, threads=threads) for threads in (1, 2, 5)]
    assert sums[0] == sums[1] == sums[2]
    exact = [np.sum(column.astype(np.longdouble)) for column in program.columns(data)]
    scale = [float(np.sum(np.abs(column))) for column in program.columns(data)]
    for got, wanted, size in zip(sums[0], exact, scale, strict=True):
        assert abs(float(got) - float(wanted)) <= 16 * np.finfo(program.dtype).eps * size


@pytest.mark.parametrize("isa", tg.isas())
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("count", [1, 2, 7, 8, 15, 16, 17, 40])
def test_a_row_has_its_results_whatever_its_place_in_a_tile(
    count: int, dtype: str, isa: str
) -> None:
    x = tg.Graph().inputs(count)
    program = tg.compile([*(each * 3 for each in x[::-1]), x[0]], dtype=dtype)
    before = tg.isa()
    tg.set_isa(isa)
    try:
        for rows in (1, 3, 8, 16, 21, 300):
            given = np.random.default_rng(rows).random((rows, count)).astype(dtype)
            expected = np.column_stack([given[:, ::-1] * 3, given[:, 0]]).astype(dtype)
            assert np.array_equal(program.batch(given), expected)
            wide = np.repeat(given, 2, axis=1)
            for other in (wide[:, ::2], np.asfortranarray(given), given[::-1, ::-1][::-1, ::-1]):
                assert np.array_equal(program.batch(other), expected)
            assert np.array_equal(program.batch(given[::-1]), expected[::-1])
    finally:
        tg.set_isa(before)


def test_columns_of_different_lengths_are_refused(program: tg.Program) -> None:
    with pytest.raises(tg.ShapeError, match="one length, got 3 and 4"):
        program.columns([np.ones(3), np.ones(4), 1.0])
    with pytest.raises(tg.ShapeError, match="3 inputs, got 2"):
        program.columns([np.ones(3), np.ones(3)])


def body() -> tg.Program:
    """One round of x, y -> x + k y, y k."""
    g = tg.Graph()
    x, y, k = g.inputs(3)
    return tg.compile([x + k * y, y * k])


@pytest.mark.parametrize("count", [0, 1, 2, 50])
@pytest.mark.parametrize("isa", tg.isas())
def test_a_loop_repeats_its_body(count: int, isa: str) -> None:
    g = tg.Graph()
    a, b, k = g.inputs(3)
    x, y = _core.record_loop(body(), count, [a * 2, b], [k])
    program = tg.compile([x, y, a + b])
    points = np.random.default_rng(0).normal(size=(21, 3))
    want = []
    for p, q, factor in points.tolist():
        u, v = p * 2, q
        for _ in range(count):
            u, v = u + factor * v, v * factor
        want.append([u, v, p + q])
    before = tg.isa()
    tg.set_isa(isa)
    try:
        assert np.array_equal(program.batch(points), want)
        assert [program(point).tolist() for point in points] == want
    finally:
        tg.set_isa(before)


def test_loops_nest_and_follow_each_other() -> None:
    inner = tg.Graph()
    x = inner.input()
    add_one = tg.compile([x + 1])
    middle = tg.Graph()
    y = middle.input()
    add_ten = tg.compile(_core.record_loop(add_one, 10, [y]))
    outer = tg.Graph()
    z = outer.input()
    (first,) = _core.record_loop(add_ten, 10, [z])
    (second,) = _core.record_loop(add_one, 5, [first * 2])
    assert tg.compile([first, second])([0.5]).tolist() == [100.5, 206.0]


def test_a_loop_may_carry_one_value_beside_shared_ones_that_live_on() -> None:
    step = tg.Graph()
    x, k = step.inputs(2)
    times = tg.compile([x * k])
    g = tg.Graph()
    a, b = g.inputs(2)
    (power,) = _core.record_loop(times, 3, [a + 0.5], [b])
    assert tg.compile(power * b)([0.5, 2.0]) == 16.0


def test_a_loop_has_the_derivative_of_its_rounds() -> None:
    g = tg.Graph()
    a, b, k = g.inputs(3)
    x, _ = _core.record_loop(body(), 3, [a, b], [k])
    # a + k b (1 + k + k^2)
    gradient = tg.compile(list(tg.grad(x, [a, b, k])))([0.5, 2.0, 3.0])
    assert gradient.tolist() == [1.0, 3.0 * 13.0, 2.0 * (13.0 + 3.0 * 7.0)]


def test_a_body_that_does_not_fit_is_refused() -> None:
    g = tg.Graph()
    a, b, _ = g.inputs(3)
    with pytest.raises(tg.ShapeError, match="2 inputs, 2 outputs"):
        _core.record_loop(body(), 3, [a, b])
    with pytest.raises(tg.ShapeError, match="at least one carried"):
        _core.record_loop(body(), 3, [])
