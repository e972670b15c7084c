"""What each pass does to a program, seen in its figures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tapegrad as tg


def kernels(program: tg.Program) -> dict[str, int]:
    found: dict[str, int] = program.stats["kernels"]
    return found


def inputs(count: int) -> Any:
    return tg.Graph().inputs(count)


# ---- derive ------------------------------------------------------------------------------------


def test_an_adjoint_is_one_instruction_however_many_users_contribute() -> None:
    x, a, b, c = inputs(4)
    program = tg.compile(x * a + x * b + tg.exp(x) + c * x, wrt=[x])
    # d/dx = a + b + c + exp(x): one sum
    assert kernels(program)["sum4"] == 1


def test_nothing_is_derived_for_inputs_that_are_not_asked_for() -> None:
    x, y = inputs(2)
    only_x = tg.compile(tg.sin(x) * tg.log(y), wrt=[x]).stats["instructions"]
    both = tg.compile(tg.sin(x) * tg.log(y), wrt=[x, y]).stats["instructions"]
    assert only_x < both


def test_the_gradient_of_a_softmax_is_one_instruction() -> None:
    x = inputs(4)
    program = tg.compile(tg.dot(tg.softmax(x), [1.0, 2.0, 3.0, 4.0]), wrt=x)
    assert kernels(program)["softmax_vjp"] == 1


def test_numbers_on_both_sides_of_a_product_become_one() -> None:
    x = inputs(1)
    program = tg.compile(100 * x[0] ** 2, wrt=x)
    assert kernels(program) == {"square": 1, "mul": 2}  # x², 100 x², 200 x
    assert program([3.0])[1].tolist() == [600.0]


@pytest.mark.parametrize(
    ("scale", "dtype"),
    [(1e-200, "float64"), (1e200, "float64"), (1e-25, "float32"), (1e25, "float32")],
)
def test_numbers_are_not_joined_where_their_product_would_vanish_or_overflow(
    scale: float, dtype: str
) -> None:
    x, y = inputs(2)
    program = tg.compile((scale * x) * (scale * y), wrt=[x], dtype=dtype)
    _, gradient = program([1.0, scale**-1.5])
    assert gradient[0] == pytest.approx(scale**0.5, rel=1e-5, abs=0)


# ---- lower -------------------------------------------------------------------------------------


def test_dead_code_is_left_out() -> None:
    x, y = inputs(2)
    for _ in range(50):
        y = tg.exp(y) * x
    assert tg.compile(x + 1).stats["instructions"] == 1


def test_a_product_used_once_by_a_sum_becomes_part_of_it() -> None:
    x, y, z = inputs(3)
    assert kernels(tg.compile(x * y + z)) == {"muladd": 1}
    assert kernels(tg.compile([x * y + z, x * y])) == {"mul": 1, "add": 1}


def test_a_square_used_once_by_a_sum_becomes_part_of_it() -> None:
    x, y = inputs(2)
    assert kernels(tg.compile(x**2 + y)) == {"muladd": 1}
    assert kernels(tg.compile([x**2 + y, x**2])) == {"square": 1, "add": 1}


def test_a_product_used_once_by_a_difference_becomes_part_of_it() -> None:
    x, y, z = inputs(3)
    point = [1 + 2.0**-30, 1 - 2.0**-30, 1.0]
    for difference, kernel in (
        (z - x * y, "sub product"),
        (x * y - z, "product sub"),
        (z - x**2, "sub product"),
    ):
        program = tg.compile(difference)
        assert kernels(program) == {kernel: 1}
        assert program(point) == tg.compile([difference, x * y, x**2])(point)[0]
    assert tg.compile(z - x * y)(point) == 0.0  # rounded twice
    assert kernels(tg.compile(x * y - y * z)) == {"mul": 1, "sub product": 1}


def test_products_of_a_sum_round_one_by_one() -> None:
    x, y, z = inputs(3)
    point = [1 + 2.0**-30, 1 - 2.0**-30, -1.0]
    assert tg.compile(x * y + z)(point) == point[0] * point[1] + point[2] == 0.0


def test_functions_that_share_their_costly_part_are_computed_together() -> None:
    x = inputs(1)
    assert kernels(tg.compile(tg.softplus(x[0]), wrt=x)) == {"softplus+sigmoid": 1}
    assert kernels(tg.compile(tg.sin(x[0]), wrt=x)) == {"sin+cos": 1}
    assert kernels(tg.compile([tg.cos(x[0]), tg.sin(x[0])])) == {"sin+cos": 1}
    assert kernels(tg.compile(tg.sin(x[0]))) == {"sin": 1}


@pytest.mark.parametrize(("n", "expected"), [(16, {"sum16": 1}), (17, {"sum16": 1, "add": 1})])
def test_long_sums_are_trees_of_chunks(n: int, expected: dict[str, int]) -> None:
    assert kernels(tg.compile(tg.sum(inputs(n)))) == expected


def test_the_error_of_a_long_sum_grows_with_the_logarithm_of_its_length() -> None:
    n = 100_000
    program = tg.compile(tg.sum(inputs(n)))
    values = np.random.default_rng(0).random(n)
    exact = float(np.sum(values.astype(np.longdouble)))
    assert abs(program(values) - exact) <= 8 * np.finfo(float).eps * exact


# ---- schedule ----------------------------------------------------------------------------------


def test_independent_instructions_of_a_kind_are_one_run_and_share_vectors() -> None:
    x = inputs(64)
    stats = tg.compile([f(v) for v in x for f in (tg.exp, tg.log)]).stats
    assert stats["runs"] == 2
    assert stats["packed"] == 128
    assert stats["pack_width"] > 1


def test_a_chain_of_one_function_shares_no_vectors() -> None:
    v = inputs(1)[0]
    for _ in range(100):
        v = tg.exp(-v)
    stats = tg.compile(v).stats
    assert stats["packed"] == 0
    assert stats["pack_width"] == 0


def test_a_chain_of_additions_is_one_run() -> None:
    x = inputs(2)
    v = x[0]
    for _ in range(500):
        v = v + x[1]
    program = tg.compile(v)
    assert program.stats["runs"] == 1
    assert program([1.0, 0.25]) == 126.0


def valley(x: Any) -> Any:
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def test_what_is_recorded_array_by_array_runs_piece_by_piece() -> None:
    x = inputs(2_000)
    program = tg.compile(valley(x), wrt=x)
    # Inputs, of which gradients take the places, and what the regions of 512 work with.
    assert program.stats["slots"] < 2_000 + 600
    point = np.random.default_rng(0).random(2_000)
    value, gradient = program(point)
    assert value == pytest.approx(valley(point), rel=1e-13)
    off = point[1:] - point[:-1] ** 2
    expected = np.zeros(2_000)
    expected[:-1] = -400 * point[:-1] * off - 2 * (1 - point[:-1])
    expected[1:] += 200 * off
    np.testing.assert_allclose(gradient, expected, rtol=1e-12, atol=1e-12)


def test_a_sparse_hessian_computes_nothing_but_its_entries() -> None:
    x = inputs(1_000)
    program = tg.hessian(valley(x), x, sparse=True).compile().program
    assert program.stats["instructions"] < 4 * 1_000


# ---- slots -------------------------------------------------------------------------------------


def test_slots_are_used_again_as_soon_as_values_are_dead() -> None:
    x = inputs(2)
    v = x[0]
    for _ in range(1000):
        v = tg.sin(v) * x[1]
    assert tg.compile(v).stats["slots"] <= 4


def test_forward_values_are_kept_only_while_the_gradient_needs_them() -> None:
    x = inputs(100)
    v = tg.sum(x)
    for k in range(1000):
        v = v + x[k % 100]
    # a sum's gradient needs no value of the forward pass
    assert tg.compile(v, wrt=x).stats["slots"] < 250


def test_compile_time_does_not_explode_with_the_width_of_a_softmax() -> None:
    x = inputs(20_000)
    y = tg.softmax(x)
    program = tg.compile([tg.exp(s) * v for s, v in zip(y, x, strict=True)])
    assert program.stats["passes"]["slots"] < 50 * program.stats["passes"]["lower"]


# ---- encode ------------------------------------------------------------------------------------


def test_programs_with_more_slots_than_16_bits_count_give_the_same_results() -> None:
    n = 70_000
    x = inputs(n)
    wide = tg.compile([tg.exp(v) + 0.5 * v for v in x])
    assert wide.stats["slots"] > 65_535
    values = np.random.default_rng(0).random(n)
    narrow_x = inputs(10)
    narrow = tg.compile([tg.exp(v) + 0.5 * v for v in narrow_x])
    assert np.array_equal(wide(values)[:10], narrow(values[:10]))
    assert np.array_equal(wide.batch(values[None])[0], wide(values))
