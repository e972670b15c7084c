"""Programs: shapes, inputs and outs of every kind, rows, threads, many outputs."""

from __future__ import annotations

import gc
import math
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tapegrad as tg

#: For calls that the types forbid.
untyped: Any = tg

DTYPES = ["float64", "float32"]
each_dtype = pytest.mark.parametrize("dtype", DTYPES)


def mixed(x: Any) -> Any:
    """A function with sums, products, functions, a choice and a softmax."""
    y = tg.softmax([x[0], x[1] * 2, x[2], x[0] * x[1], 0.5])[1]
    return (
        tg.where(x[0] > x[1], tg.exp(x[0]) * x[2], tg.sin(x[1])) + y * tg.logsumexp(x) + tg.sum(x)
    )


def mixed_program(dtype: str = "float64", **options: Any) -> tg.Program:
    x = tg.Graph().inputs(3)
    return tg.compile(mixed(x), wrt=x, dtype=dtype, **options)


def points(rows: int, dtype: str = "float64") -> NDArray[Any]:
    return np.random.default_rng(rows).normal(size=(rows, 3)).astype(dtype)


POINT = [0.3, -0.2, 1.5]


# ---- shapes ------------------------------------------------------------------------------------


@each_dtype
def test_one_output_gives_a_number(dtype: str) -> None:
    x = tg.Graph().inputs(3)
    value = tg.compile(mixed(x), dtype=dtype)(POINT)
    assert isinstance(value, float)
    assert tg.compile(mixed(x), dtype=dtype).batch([POINT] * 4).shape == (4,)


@each_dtype
def test_several_outputs_give_an_array(dtype: str) -> None:
    x = tg.Graph().inputs(3)
    for outputs in ([mixed(x)], (mixed(x),), np.array([mixed(x), x[0]]), [x[0]] * 5):
        program = tg.compile(outputs, dtype=dtype)
        k = len(outputs)
        assert program(POINT).shape == (k,)
        assert program(POINT).dtype == dtype
        assert program.batch([POINT] * 4).shape == (4, k)
        assert (program.n_outputs, program.n_derivatives, program.n_inputs) == (k, 0, 3)


@each_dtype
@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_wrt_adds_gradients_or_jacobians(n: int, dtype: str) -> None:
    x = tg.Graph().inputs(3)
    value, gradient = tg.compile(mixed(x), wrt=x[:n], dtype=dtype)(POINT)
    assert isinstance(value, float)
    assert (gradient.shape, gradient.dtype) == ((n,), dtype)
    program = tg.compile([mixed(x), x[1]], wrt=x[:n], dtype=dtype)
    values, jacobian = program(POINT)
    assert (values.shape, jacobian.shape, jacobian.dtype) == ((2,), (2, n), dtype)
    values, jacobian = program.batch([POINT] * 5)
    assert (values.shape, jacobian.shape, jacobian.dtype) == ((5, 2), (5, 2, n), dtype)
    assert program.n_derivatives == n


def test_grids_of_outputs_and_wrt_are_taken_in_reading_order() -> None:
    x = tg.Graph().inputs(4)
    grid = x.reshape(2, 2)
    values, jacobian = tg.compile(grid * grid, wrt=grid.T)([1.0, 2.0, 3.0, 4.0])
    assert values.tolist() == [1.0, 4.0, 9.0, 16.0]
    want = np.zeros((4, 4))
    want[[0, 1, 2, 3], [0, 2, 1, 3]] = [2.0, 4.0, 6.0, 8.0]
    np.testing.assert_array_equal(jacobian, want)


def test_inputs_sets_the_order_and_leaves_out_what_is_unused() -> None:
    g = tg.Graph()
    a, b, c = g.input("a"), g.input("b"), g.input("c")
    program = tg.compile(a - c, wrt=[a, c], inputs=[c, a])
    value, gradient = program([1.0, 10.0])
    assert (value, gradient.tolist()) == (9.0, [1.0, -1.0])
    assert tg.compile(a - c, inputs=[c, b, a])([1.0, 5.0, 10.0]) == 9.0
    assert tg.compile(a, inputs=a)([2.0]) == 2.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda a, b: tg.compile(a * b, inputs=[a]), "need input"),
        (lambda a, b: tg.compile(a, inputs=[a, a]), "twice"),
        (lambda a, b: tg.compile(a, inputs=[a * b]), "mul"),
        (lambda a, b: tg.compile([]), "at least one output"),
    ],
)
def test_impossible_programs_are_compile_errors(make: Any, message: str) -> None:
    g = tg.Graph()
    with pytest.raises(tg.CompileError, match=message):
        make(g.input("a"), g.input("b"))


def test_a_missing_input_is_named() -> None:
    g = tg.Graph()
    a, b = g.input("speed"), g.input()
    with pytest.raises(tg.CompileError, match="speed"):
        tg.compile(a * b, inputs=[b])
    with pytest.raises(tg.CompileError, match=r"\b1\b"):  # the unnamed one, by its place
        tg.compile(a * b, inputs=[a])
    with pytest.raises(tg.CompileError, match=r"`wrt`.*speed"):  # no output depends on it
        tg.compile(b, wrt=a, inputs=[b])


@pytest.mark.parametrize(
    "make",
    [
        lambda x: untyped.compile(1.0),
        lambda x: untyped.compile([x, 1.0]),
        lambda x: untyped.compile(None),
        lambda x: untyped.compile([[x]]),
        lambda x: untyped.compile(x, wrt=[1.0]),
        lambda x: untyped.compile(x, wrt=3),
        lambda x: untyped.compile(x, inputs=["x"]),
        lambda x: untyped.compile(x, dtype="int64"),
        lambda x: untyped.compile(x, dtype="float16"),
        lambda x: untyped.compile(x, dtype="complex128"),
        lambda x: untyped.compile(x, dtype="no such"),
        lambda x: untyped.compile(x, dtype=object),
    ],
)
def test_wrong_types_are_dtype_errors(make: Any) -> None:
    with pytest.raises(tg.DTypeError):
        make(tg.Graph().input())


@pytest.mark.parametrize("dtype", [np.float32, "f4", np.dtype("float32"), "<f4"])
def test_every_spelling_of_a_dtype_is_taken(dtype: Any) -> None:
    assert tg.compile(tg.Graph().input(), dtype=dtype).dtype == "float32"


# ---- outputs of every origin -------------------------------------------------------------------


def test_outputs_may_be_inputs_constants_and_each_other() -> None:
    g = tg.Graph()
    x, y = g.inputs(2)
    outputs = [x, g.constant(2.5), x, y, g.constant(2.5), x * y, x * y]
    values, jacobian = tg.compile(outputs, wrt=[x, y, x, x * y])([3.0, 4.0])
    assert values.tolist() == [3.0, 2.5, 3.0, 4.0, 2.5, 12.0, 12.0]
    want = [[1, 0, 1, 0], [0, 0, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0] * 4]
    assert jacobian[:5].tolist() == want
    assert jacobian[:, 3].tolist() == [0, 0, 0, 0, 0, 1, 1]
    rows, jacobians = tg.compile(outputs, wrt=[x, y, x, x * y]).batch([[3.0, 4.0]] * 9)
    assert (rows == values).all()
    assert (jacobians == jacobian).all()


def test_a_constant_program_needs_no_inputs() -> None:
    g = tg.Graph()
    program = tg.compile(tg.exp(g.constant(0.0)) * 3)
    assert program([]) == 3.0
    assert program.batch(np.empty((4, 0))).tolist() == [3.0] * 4
    assert program.batch(np.empty((0, 0))).shape == (0,)
    value, gradient = tg.compile(g.constant(1.0), wrt=[])([])
    assert (value, gradient.shape) == (1.0, (0,))


def test_derivatives_by_intermediates_hold_the_others_fixed() -> None:
    x = tg.Graph().input()
    square = x * x
    y = square * x + square
    _, gradient = tg.compile(y, wrt=[square, x, y])([3.0])
    # by x: wrt stops at square, or sees through it; by square alone it is x + 1
    assert gradient[0] == 4.0
    assert gradient[2] == 1.0
    assert gradient[1] == 3 * 9.0 + 2 * 3.0


def test_derivatives_by_unused_inputs_are_zero() -> None:
    x = tg.Graph().inputs(3)
    value, gradient = tg.compile(tg.exp(x[1]), wrt=x)([math.nan, 0.0, math.inf])
    assert (value, gradient.tolist()) == (1.0, [0.0, 1.0, 0.0])
    later = x[0].graph.input()
    assert at_point(tg.grad(x[0], later), [1.0, 2.0, 3.0, 4.0]) == 0.0
    assert at_point(tg.grad(x[0], tg.exp(later) * x[0]), [1.0, 2.0, 3.0, 4.0]) == 0.0


def at_point(var: Any, point: list[float]) -> float:
    return float(tg.compile(var)(point))


def test_a_program_stays_as_it_was_when_its_graph_grows() -> None:
    g = tg.Graph()
    x, y = g.inputs(2)
    program = tg.compile(x * y, wrt=[x, y])
    before = program([2.0, 3.0])
    z = g.input()
    later = tg.compile(x * y + tg.exp(z) * x, wrt=[x, y, z])
    for _ in range(3000):
        z = tg.sin(z) * x
    after = program([2.0, 3.0])
    assert before[0] == after[0]
    assert before[1].tolist() == after[1].tolist()
    assert later([2.0, 3.0, 0.0])[0] == 8.0


def test_a_program_outlives_its_graph() -> None:
    program = mixed_program()
    gc.collect()
    assert math.isfinite(program(POINT)[0])


def test_many_outputs_have_the_jacobian_of_finite_differences() -> None:
    n, k = 12, 40
    x = tg.Graph().inputs(n)
    outputs = [
        tg.tanh(x[i % n] * x[(3 * i + 1) % n]) + tg.exp(x[(i * i) % n] * 0.3) * (i + 1)
        for i in range(k)
    ]
    program = tg.compile(outputs, wrt=x)
    point = np.sin(np.arange(n))
    _, jacobian = program(point)
    step = 1e-6
    moved = np.vstack([point + step * np.eye(n), point - step * np.eye(n)])
    values = tg.compile(outputs).batch(moved)
    np.testing.assert_allclose(jacobian, ((values[:n] - values[n:]) / (2 * step)).T, atol=1e-6)


def test_a_thousand_outputs_and_inputs() -> None:
    x = tg.Graph().inputs(1000)
    values, jacobian = tg.compile(x * x, wrt=x)(np.arange(1000.0))
    np.testing.assert_array_equal(values, np.arange(1000.0) ** 2)
    np.testing.assert_array_equal(jacobian, np.diag(2 * np.arange(1000.0)))


@pytest.mark.parametrize("instructions", [30, 3000, 40_000])
def test_code_of_every_width_of_words_computes_the_same(instructions: int, isa: str) -> None:
    """Slot numbers outgrow 16 bits in the last one."""
    x = tg.Graph().inputs(4)
    terms = [tg.sin(x[k % 4] * (1 + k / instructions)) for k in range(instructions)]
    partial = [tg.exp(-t) * s for t, s in zip(terms, reversed(terms), strict=True)]
    program = tg.compile([tg.sum(partial), tg.max(terms)], wrt=x)
    point = np.array([0.1, 0.7, -0.4, 1.9])
    inner = np.sin(
        point[np.arange(instructions) % 4] * (1 + np.arange(instructions) / instructions)
    )
    values, jacobian = program(point)
    np.testing.assert_allclose(values[0], (np.exp(-inner) * inner[::-1]).sum(), rtol=1e-10)
    assert values[1] == pytest.approx(inner.max(), rel=1e-14)
    rows, jacobians = program.batch(np.tile(point, (3, 1)))
    assert (rows == values).all()
    assert (jacobians == jacobian).all()


# ---- arrays that come in -----------------------------------------------------------------------

BASE = np.array([[0.5, -1.25, 2.0], [1.0, 0.25, -0.75]])


def _unaligned(a: NDArray[Any]) -> NDArray[Any]:
    memory = np.zeros(a.nbytes + 1, dtype=np.uint8)
    out = memory[1:].view(a.dtype).reshape(a.shape)
    out[...] = a
    assert not out.flags.aligned
    return out


def _read_only(a: NDArray[Any]) -> NDArray[Any]:
    out = a.copy()
    out.flags.writeable = False
    return out


def _field(a: NDArray[Any]) -> NDArray[Any]:
    records = np.zeros(a.shape, dtype=[("tag", "u1"), ("value", a.dtype)])
    records["value"] = a
    return records["value"]


def _wide_field(a: NDArray[Any]) -> NDArray[Any]:
    records = np.zeros(a.shape, dtype=[("value", a.dtype), ("tag", "f4")])
    records["value"] = a
    return records["value"]


LAYOUTS: dict[str, Callable[[NDArray[Any]], Any]] = {
    "contiguous": lambda a: a.copy(),
    "fortran": np.asfortranarray,
    "every other column": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "every other row": lambda a: np.repeat(a, 2, axis=0)[::2] if a.ndim == 2 else a,
    "reversed": lambda a: a[..., ::-1].copy()[..., ::-1],
    "reversed rows": lambda a: a[::-1].copy()[::-1],
    "transposed": lambda a: a.T.copy().T,
    "read-only": _read_only,
    "unaligned": _unaligned,
    "byte-swapped": lambda a: a.astype(a.dtype.newbyteorder()),
    "field of a record": _field,
    "field of a padded record": _wide_field,
    "list": lambda a: a.tolist(),
    "tuple": lambda a: tuple(map(tuple, a)) if a.ndim == 2 else tuple(a),
    "object": lambda a: a.astype(object),
    "float32": lambda a: a.astype(np.float32),
    "float16": lambda a: a.astype(np.float16),
    "long double": lambda a: a.astype(np.longdouble),
    "list of NumPy numbers": lambda a: [list(row) for row in a] if a.ndim == 2 else list(a),
    "memoryview": lambda a: np.ascontiguousarray(a).data,
    "subclass": lambda a: a.view(np.recarray),
    "list of arrays": list,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@each_dtype
def test_points_of_every_layout_are_taken(layout: str, dtype: str) -> None:
    program = mixed_program(dtype)
    rows = BASE.astype(dtype)
    want, gradients = program.batch(rows)
    got = program.batch(LAYOUTS[layout](rows))
    np.testing.assert_array_equal(got[0], want)
    np.testing.assert_array_equal(got[1], gradients)
    for row, value, gradient in zip(rows, want, gradients, strict=True):
        got = program(LAYOUTS[layout](row))
        assert got[0] == value
        np.testing.assert_array_equal(got[1], gradient)


def test_one_row_repeated_by_broadcasting_is_taken() -> None:
    program = mixed_program()
    value, gradient = program(POINT)
    rows, gradients = program.batch(np.broadcast_to(np.array(POINT), (1000, 3)))
    assert (rows == value).all()
    assert (gradients == gradient).all()
    assert program(np.broadcast_to(0.5, (3,)))[0] == program([0.5] * 3)[0]
    same = program.batch(np.broadcast_to(np.array([[0.1], [0.2]]), (2, 3)))[0]
    assert same.tolist() == [program([0.1] * 3)[0], program([0.2] * 3)[0]]


@pytest.mark.parametrize("dtype", ["int8", "uint64", "bool", "int32"])
def test_whole_numbers_are_taken(dtype: str) -> None:
    program = mixed_program()
    assert program(np.array([1, 0, 1]).astype(dtype))[0] == program([1.0, 0.0, 1.0])[0]


@pytest.mark.parametrize(
    "point",
    [[1j, 2, 3], ["1", "2", "3"], np.zeros(3, "m8[s]"), np.zeros(3, "M8[s]"), np.zeros(3, "V8")],
)
def test_points_that_are_not_real_are_dtype_errors(point: Any) -> None:
    with pytest.raises(tg.DTypeError, match="real"):
        mixed_program()(point)
    with pytest.raises(tg.DTypeError, match="real"):
        mixed_program().batch([point] if isinstance(point, list) else point[None])


@pytest.mark.parametrize(
    "point", [None, "abc", object(), {}, [object(), 1.0, 2.0], [[1], [2, 3], 4]]
)
def test_points_that_are_no_arrays_raise(point: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        mixed_program()(point)
    with pytest.raises((TypeError, ValueError)):
        mixed_program().batch(point)


def test_vars_as_point_raise_and_name_compile() -> None:
    x = tg.Graph().inputs(3)
    with pytest.raises(TypeError, match=r"tg\.compile"):
        tg.compile(mixed(x))(x)


@pytest.mark.parametrize(
    "point", [1.0, [], [1.0, 2.0], [1.0] * 4, [POINT], np.zeros((3, 1)), np.zeros(())]
)
def test_points_of_wrong_shape_are_shape_errors(point: Any) -> None:
    with pytest.raises(tg.ShapeError):
        mixed_program()(point)


@pytest.mark.parametrize(
    "rows", [1.0, [], POINT, np.zeros((2, 2)), np.zeros((2, 4)), np.zeros((1, 2, 3)), [[]]]
)
def test_rows_of_wrong_shape_are_shape_errors(rows: Any) -> None:
    with pytest.raises(tg.ShapeError):
        mixed_program().batch(rows)


def test_shape_errors_say_what_was_expected_and_what_came() -> None:
    with pytest.raises(tg.ShapeError, match=r"3 inputs, got 2"):
        mixed_program()([1.0, 2.0])
    with pytest.raises(tg.ShapeError, match=r"\(1, 3\).*batch"):
        mixed_program()([POINT])
    with pytest.raises(tg.ShapeError, match=r"\(3,\)"):
        mixed_program().batch(POINT)


def test_wrong_calls_are_type_errors() -> None:
    program: Any = mixed_program()
    calls: list[Callable[[], Any]] = [
        program,
        lambda: program(POINT, POINT, POINT),
        lambda: program(POINT, typo=1),
        lambda: program(POINT, out=None, typo=1),
        program.batch,
        lambda: program.batch([POINT], rows=3),
    ]
    for call in calls:
        with pytest.raises(TypeError):
            call()


def test_nan_and_infinite_inputs_are_computed_with() -> None:
    x = tg.Graph().inputs(2)
    value, gradient = tg.compile(x[0] * x[1], wrt=x)([math.nan, math.inf])
    assert math.isnan(value)
    assert gradient[0] == math.inf
    assert math.isnan(gradient[1])


def test_inputs_are_left_as_they_are() -> None:
    rows = points(100)
    before = rows.copy()
    mixed_program().batch(rows)
    mixed_program()(rows[0])
    np.testing.assert_array_equal(rows, before)


# ---- arrays that go out ------------------------------------------------------------------------


@each_dtype
@pytest.mark.parametrize("rows", [0, 1, 7, 100])
def test_out_receives_the_results_and_is_returned(rows: int, dtype: str) -> None:
    program = mixed_program(dtype)
    x = points(rows, dtype)
    want = program.batch(x)
    out = (np.full(rows, 7, dtype), np.full((rows, 3), 7, dtype))
    got = program.batch(x, out=out)
    assert got[0] is out[0]
    assert got[1] is out[1]
    np.testing.assert_array_equal(out[0], want[0])
    np.testing.assert_array_equal(out[1], want[1])


def test_out_of_one_point() -> None:
    program = mixed_program()
    want = program(POINT)
    out = (np.zeros(()), np.zeros(3))
    value, gradient = program(POINT, out=out)
    assert value is out[0]
    assert gradient is out[1]
    assert out[0] == want[0]
    np.testing.assert_array_equal(out[1], want[1])
    x = tg.Graph().inputs(3)
    several = tg.compile([x[0], x[1]])
    values = np.zeros(2)
    assert several(POINT, out=values) is values
    assert values.tolist() == POINT[:2]
    assert several(POINT, out=None).tolist() == POINT[:2]


def good_outs() -> tuple[Any, Any]:
    return np.zeros(4), np.zeros((4, 3))


@pytest.mark.parametrize(
    ("which", "wrong", "error"),
    [
        (0, np.zeros(5), tg.ShapeError),
        (0, np.zeros((4, 1)), tg.ShapeError),
        (0, np.zeros(4, "f4"), tg.DTypeError),
        (0, np.zeros(4, ">f8"), (tg.DTypeError, tg.ShapeError)),
        (0, np.zeros(4, complex), tg.DTypeError),
        (0, np.zeros(4, object), tg.DTypeError),
        (0, np.zeros(8)[::2], tg.ShapeError),
        (0, np.zeros(4)[::-1], tg.ShapeError),
        (0, _read_only(np.zeros(4)), tg.ShapeError),
        (0, np.broadcast_to(0.0, 4), tg.ShapeError),
        (0, _unaligned(np.zeros(4)), tg.ShapeError),
        (0, [0.0] * 4, tg.DTypeError),
        (0, None, tg.DTypeError),
        (1, np.zeros((3, 4)), tg.ShapeError),
        (1, np.zeros(12), tg.ShapeError),
        (1, np.asfortranarray(np.zeros((4, 3))), tg.ShapeError),
        (1, np.zeros((4, 3), "f4"), tg.DTypeError),
        (1, _read_only(np.zeros((4, 3))), tg.ShapeError),
    ],
)
def test_wrong_outs_raise_and_nothing_is_written(which: int, wrong: Any, error: Any) -> None:
    outs = list(good_outs())
    outs[which] = wrong
    with pytest.raises(error):
        mixed_program().batch(points(4), out=tuple(outs))
    assert not np.any(outs[1 - which])


@pytest.mark.parametrize("out", [np.zeros(4), (np.zeros(4),), (1, 2, 3), [np.zeros(4)], 5])
def test_out_of_a_program_with_derivatives_is_a_pair(out: Any) -> None:
    with pytest.raises((tg.ShapeError, tg.DTypeError)):
        mixed_program().batch(points(4), out=out)


@pytest.mark.parametrize("shift", [0, 1, 2, 3])
def test_out_may_overlap_the_input(shift: int) -> None:
    program = mixed_program()
    memory = np.zeros(3 * 50 + 4)
    x = memory[: 3 * 50].reshape(50, 3)
    x[...] = points(50)
    want = program.batch(x.copy())
    gradients = memory[shift : shift + 150].reshape(50, 3)
    values, got = program.batch(x, out=(np.zeros(50), gradients), threads=2)
    np.testing.assert_array_equal(values, want[0])
    np.testing.assert_array_equal(got, want[1])


def test_out_of_one_point_may_be_the_input() -> None:
    program = mixed_program()
    x = np.array(POINT)
    want = program(x.copy())
    _, got = program(x, out=(np.zeros(()), x))
    np.testing.assert_array_equal(got, want[1])


def test_results_do_not_share_memory_with_later_ones() -> None:
    program = mixed_program()
    _, first = program(POINT)
    kept = first.copy()
    program([9.0, 9.0, 9.0])
    np.testing.assert_array_equal(first, kept)


# ---- rows and threads --------------------------------------------------------------------------


@each_dtype
@pytest.mark.parametrize("rows", [0, 1, 7, 8, 9, 63, 64, 65, 1000])
def test_each_row_is_what_a_single_call_gives(rows: int, dtype: str, isa: str) -> None:
    program = mixed_program(dtype)
    x = points(rows, dtype)
    values, gradients = program.batch(x)
    assert (values.shape, gradients.shape) == ((rows,), (rows, 3))
    for row, value, gradient in zip(x, values, gradients, strict=True):
        single = program(row)
        assert single[0] == value
        np.testing.assert_array_equal(single[1], gradient)


@each_dtype
def test_bits_of_a_row_do_not_depend_on_its_neighbours(dtype: str, isa: str) -> None:
    program = mixed_program(dtype)
    x = points(1000, dtype)
    values, gradients = program.batch(x)
    order = np.random.default_rng(1).permutation(1000)
    shuffled = program.batch(x[order])
    np.testing.assert_array_equal(shuffled[0], values[order])
    np.testing.assert_array_equal(shuffled[1], gradients[order])
    spoiled = x.copy()
    spoiled[::3] = [np.nan, np.inf, 1e30]
    got = program.batch(spoiled)
    keep = np.arange(1000) % 3 != 0
    np.testing.assert_array_equal(got[0][keep], values[keep])
    np.testing.assert_array_equal(got[1][keep], gradients[keep])


@pytest.mark.parametrize("threads", [None, 1, 2, 3, 100, 100_000])
@pytest.mark.parametrize("rows", [1, 100, 20_000])
def test_bits_do_not_depend_on_threads(rows: int, threads: int | None) -> None:
    program = mixed_program()
    x = points(rows)
    want = program.batch(x, threads=1)
    got = program.batch(x, threads=threads)
    np.testing.assert_array_equal(got[0], want[0])
    np.testing.assert_array_equal(got[1], want[1])


@each_dtype
@pytest.mark.parametrize("threads", [1, 2])
def test_blocks_of_many_rows_give_the_bits_of_blocks_of_few(threads: int, dtype: str) -> None:
    """Large programs take more lanes where there are many rows."""
    nodes = list(tg.Graph().inputs(3))
    for k in range(6000):
        nodes.append(tg.softplus(nodes[-2]) if k % 3 == 0 else nodes[-3] * 0.5 + nodes[-1])
    program = tg.compile(tg.sum(nodes), wrt=nodes[:3], dtype=dtype)
    x = points(1500, dtype)
    values, gradients = program.batch(x, threads=threads)
    few = [program.batch(x[i : i + 8]) for i in range(0, len(x), 8)]
    np.testing.assert_array_equal(values, np.concatenate([value for value, _ in few]))
    np.testing.assert_array_equal(gradients, np.concatenate([gradient for _, gradient in few]))
    stats = program.stats
    assert stats["many_lanes"] >= stats["lanes"]
    wider = f"{stats['many_lanes']} lanes for many rows" in program.explain()
    assert wider == (stats["many_lanes"] > stats["lanes"])


@pytest.mark.parametrize("threads", [1, 2])
def test_batches_longer_than_a_slice_are_whole(threads: int) -> None:
    """Rows are worked off in slices between which signals are looked at."""
    x = tg.Graph().inputs(2)
    program = tg.compile(x[0] * x[1], wrt=x)
    rows = np.random.default_rng(0).normal(size=(2_500_000, 2))
    values, gradients = program.batch(rows, threads=threads)
    np.testing.assert_array_equal(values, rows[:, 0] * rows[:, 1])
    np.testing.assert_array_equal(gradients, rows[:, ::-1])


@pytest.mark.parametrize("threads", [0, -1, -100])
def test_threads_are_positive(threads: int) -> None:
    with pytest.raises(tg.OptionError, match="positive"):
        mixed_program().batch(points(3), threads=threads)


@pytest.mark.parametrize("threads", [1.5, "2", 2**40])
def test_threads_are_a_small_whole_number(threads: Any) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)):
        mixed_program().batch(points(3), threads=threads)


@pytest.mark.parametrize("terms", [3, 3000])  # the longer one lets go of the interpreter
def test_many_python_threads_share_a_program(terms: int) -> None:
    x = tg.Graph().inputs(3)
    loss = tg.sum([mixed(x * (1 + k / terms)) for k in range(terms)])
    program = tg.compile(loss, wrt=x)
    rows = points(64)
    want, gradients = program.batch(rows)

    def work(seed: int) -> bool:
        order = np.random.default_rng(seed).permutation(64)[:20]
        right = True
        for i in order:
            value, gradient = program(rows[i])
            right &= value == want[i] and bool((gradient == gradients[i]).all())
        both = program.batch(rows[order], threads=1 + seed % 2)
        right &= bool((both[0] == want[order]).all() and (both[1] == gradients[order]).all())
        return right

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(32)))


def test_graphs_are_recorded_in_threads_side_by_side() -> None:
    def work(seed: int) -> float:
        x = tg.Graph().inputs(3)
        return float(tg.compile(mixed(x) * seed)(POINT))

    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(work, range(50)))
    want = mixed_program()(POINT)[0]
    np.testing.assert_allclose(got, want * np.arange(50), rtol=1e-14)


def test_other_python_threads_run_during_a_batch() -> None:
    x = tg.Graph().inputs(3)
    program = tg.compile(tg.sum([mixed(x * (1 + k)) for k in range(300)]), wrt=x)
    rows = points(20_000)
    ticks, done = [0], threading.Event()

    def count() -> None:
        while not done.is_set():
            ticks[0] += 1
            done.wait(0.0001)

    counter = threading.Thread(target=count)
    counter.start()
    before = ticks[0]
    program.batch(rows, threads=1)
    during = ticks[0] - before
    done.set()
    counter.join()
    assert during > 5


@pytest.mark.usefixtures("ctrl_c_is_heard")
def test_ctrl_c_ends_a_batch() -> None:
    x = tg.Graph().inputs(3)
    program = tg.compile(tg.sum([mixed(x * (1 + k)) for k in range(300)]), wrt=x)
    rows = np.tile(POINT, (2_000_000, 1))
    timer = threading.Timer(0.2, signal.raise_signal, [signal.SIGINT])
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            program.batch(rows, threads=1)
    finally:
        timer.cancel()
        timer.join()


# ---- memory ------------------------------------------------------------------------------------


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:  # noqa: PTH123  a pseudo file
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs Linux")  # noqa: PTH110
@pytest.mark.parametrize("what", ["compile", "call", "batch", "record", "minimize", "errors"])
def test_memory_stays_flat(what: str) -> None:
    x = tg.Graph().inputs(3)
    loss = tg.sum([mixed(x * (1 + k)) for k in range(50)])
    program = tg.compile(loss, wrt=x)
    rows = points(2000)

    def record() -> None:
        z = tg.Graph().inputs(3)
        tg.grad(tg.sum([mixed(z * (1 + k)) for k in range(20)]), z)

    def errors() -> None:
        for wrong in ([1.0], [1j, 2, 3], [x[0], 1, 2]):
            with pytest.raises((TypeError, ValueError)):
                program(wrong)

    work: Callable[[], Any] = {
        "compile": lambda: tg.compile(loss, wrt=x),
        "call": lambda: program(POINT),
        "batch": lambda: program.batch(rows, threads=2),
        "record": record,
        "minimize": lambda: program.minimize(rows[:20], "adam", steps=3, history=1),
        "errors": errors,
    }[what]
    for _ in range(30):
        work()
    gc.collect()
    before = resident_bytes()
    for _ in range(150):
        work()
    gc.collect()
    assert resident_bytes() - before < 6_000_000


def test_reference_counts_of_arguments_and_results_are_balanced() -> None:
    program = mixed_program()
    x, out = np.array(POINT), (np.zeros(()), np.zeros(3))
    rows, outs = points(8), (np.zeros(8), np.zeros((8, 3)))
    watched: list[Any] = [x, *out, rows, *outs, np.dtype("float64"), np.dtype("float32")]
    before = [sys.getrefcount(item) for item in watched]
    for _ in range(100):
        program(x, out=out)
        program.batch(rows, out=outs)
        program(np.float32(x))
        program.batch(rows.astype(np.float32))
        program(x.tolist())
    after = [sys.getrefcount(item) for item in watched]
    assert max(b - a for a, b in zip(before, after, strict=True)) < 50


# ---- descriptions ------------------------------------------------------------------------------


def test_repr_says_inputs_outputs_and_instructions() -> None:
    program = mixed_program()
    assert re.fullmatch(
        r"<Program: 3 inputs, 1 output and its gradient \(3\), float64, [\d,]+ instructions>",
        repr(program),
    )
    x = tg.Graph().input()
    text = repr(tg.compile([x, x * x], wrt=x, dtype="float32"))
    assert "1 input, 2 outputs and their Jacobian (1), float32" in text
    assert "gradient" not in repr(tg.compile(x))


def test_explain_shows_what_stats_say() -> None:
    program = mixed_program()
    text, stats = program.explain(), program.stats
    assert text.splitlines()[0].startswith("Program: 3 inputs, 1 output")
    for word in ("live nodes", "instructions", "slots", "kernels", "compiled in", stats["isa"]):
        assert word in text
    for kernel, count in stats["kernels"].items():
        assert f"{kernel} {count:,}" in text
    assert sum(stats["kernels"].values()) == stats["instructions"]
    for name, seconds in stats["passes"].items():
        assert f"{name} {seconds * 1e3:.2f}" in text
    total = sum(stats["passes"].values())
    assert total > 0
    assert f"compiled in   {total * 1e3:.2f} ms" in text
    assert {"live_nodes", "slots", "lanes", "code_bytes", "runs"} <= stats.keys()


def test_programs_that_compute_nothing_can_be_described() -> None:
    x = tg.Graph().input()
    for program in (tg.compile(x), tg.compile(x.graph.constant(1.0)), tg.compile([x, x])):
        assert "0 instructions" in repr(program)
        assert "Program" in program.explain()


def test_dead_nodes_are_not_compiled() -> None:
    x = tg.Graph().inputs(3)
    for k in range(100):
        tg.exp(x[0] + k)
    assert tg.compile(x[0] * x[1]).stats["instructions"] == 1
    part = tg.softmax(x)[1]
    assert tg.compile(part).stats["instructions"] == 1


@pytest.mark.parametrize("name", tg.isas())
def test_the_environment_chooses_the_instruction_set(name: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", "import tapegrad; print(tapegrad.isa())"],
        env={**os.environ, "TAPEGRAD_ISA": name},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == name


def test_programs_run_on_the_instruction_set_in_use_and_say_so(isa: str) -> None:
    program = mixed_program()
    assert program.stats["isa"] == isa
    assert isa in program.explain()


def test_set_isa_refuses_unknown_names_and_keeps_the_one_in_use() -> None:
    before = tg.isa()
    assert before in tg.isas()
    for name in ("", "avx1024", "AVX2"):
        with pytest.raises(ValueError, match="isas"):
            tg.set_isa(name)
    assert tg.isa() == before


@pytest.mark.parametrize(
    ("point", "hint"),
    [
        (np.ma.array([1.0, 2.0], mask=[False, True]), "masked"),
        ([None, 1.0], "NoneType"),
        (np.array(["1", "2"], dtype=object), "str"),
        (np.array([1j, 2.0]), "complex"),
    ],
)
def test_points_that_are_no_plain_real_numbers_are_refused(point: Any, hint: str) -> None:
    x = tg.Graph().inputs(2)
    program = tg.compile(x[0] * x[1], wrt=x)
    dtype = getattr(point, "dtype", object)
    rows = np.ma.stack([point, point]) if hint == "masked" else np.array([[*point]] * 2, dtype)
    for run in (
        lambda: program(point),
        lambda: program.batch(rows),
        lambda: program.minimize(point, steps=1),
        lambda: tg.value_and_grad(lambda v: v[0] * v[1])(point),
    ):
        with pytest.raises(tg.DTypeError, match=hint):
            run()


def test_bytes_of_any_kind_are_programs() -> None:
    x = tg.Graph().inputs(2)
    saved = tg.compile(x[0] * x[1]).to_bytes()
    for data in (bytearray(saved), memoryview(saved)):
        assert tg.Program.from_bytes(data)([2.0, 3.0]) == 6.0
    for other in ("text", 3, None):
        with pytest.raises(tg.DTypeError, match="from_bytes: expected bytes, got"):
            tg.Program.from_bytes(other)  # type: ignore[arg-type]
