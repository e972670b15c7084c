"""Every op of the table: values in ULP, first and second derivatives, edges, kinks.

The bodies are driven by the table alone; a new line in ops.def is tested without an edit here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mpmath import mp  # type: ignore[import-untyped]

import tapegrad as tg
from tests.scalar import hyperdual
from tests.scalar.reference import (
    FORMATS,
    RECORDS,
    Array,
    Oracles,
    Record,
    derivative_reference,
    value_reference,
)

each_record = pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
each_dtype = pytest.mark.parametrize("dtype", FORMATS)

Outputs = Callable[[Any], list[tg.Var]]


# ---- three ways to run ops over points ---------------------------------------------------------


def run_single(outputs: Outputs, points: Array, dtype: str) -> Array:
    """Calls a program once per point."""
    x = tg.Graph().inputs(points.shape[1])
    program = tg.compile(outputs(x), dtype=dtype)
    return np.array([program(point) for point in points.astype(dtype)], dtype=float)


def run_batch(outputs: Outputs, points: Array, dtype: str) -> Array:
    """Runs a program over all points in lanes."""
    x = tg.Graph().inputs(points.shape[1])
    found = tg.compile(outputs(x), dtype=dtype).batch(points.astype(dtype), threads=1)
    return np.asarray(found, dtype=float)


def run_packed(outputs: Outputs, points: Array, dtype: str) -> Array:
    """Records the op once per point, so that one evaluation gathers them into vectors."""
    x = tg.Graph().inputs(points.size).reshape(points.shape)
    rows = [outputs(row) for row in x]
    program = tg.compile([var for row in rows for var in row], dtype=dtype)
    found = program(points.astype(dtype).ravel())
    return np.asarray(found, dtype=float).reshape(len(points), -1)


MODES = {"single": run_single, "batch": run_batch, "packed": run_packed}
each_mode = pytest.mark.parametrize("mode", MODES)


def assert_same(got: Array, want: Array) -> None:
    """Equal bits, but for those of NaN."""
    np.testing.assert_array_equal(got, want)
    known = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[known]), np.signbit(want[known]))


def with_derivatives(record: Record) -> Outputs:
    """First derivatives, then the upper triangle of the second ones: reverse, then forward mode."""

    def outputs(x: Any) -> list[tg.Var]:
        first = tg.grad(record.record(x), x)
        pairs = [(i, j) for i in range(len(x)) for j in range(i, len(x))]
        reverse = [tg.grad(first[i], x[j]) for i, j in pairs]
        forward = [tg.jvp(first[i], x[j], 1.0) for i, j in pairs]
        return [*first, *reverse, *forward]

    return outputs


# ---- ordinary values ---------------------------------------------------------------------------


@each_dtype
@each_mode
@each_record
def test_value_is_within_the_documented_ulp(
    record: Record, mode: str, dtype: str, isa: str
) -> None:
    points, want = value_reference(record, dtype)
    got = MODES[mode](lambda x: [record.record(x)], points, dtype)[:, 0]
    errors = want.ulps(got)
    worst = int(np.argmax(np.where(np.isnan(errors), np.inf, errors)))
    bound = max(record.ulp, 0.5) + 1e-9
    assert errors[worst] <= bound, (
        f"{record.name}{tuple(points[worst].tolist())} = {got[worst]!r}, "
        f"expected {want.nearest[worst]!r}: {errors[worst]:.2f} ulp"
    )


@pytest.mark.parametrize(
    ("name", "dtype", "point"),
    [
        ("softplus", "float64", -2.7411939930958553),
        ("softplus", "float32", -2.016326904296875),
        ("sigmoid", "float64", -2.7155352309194662),
        ("sigmoid", "float32", -3.436105966567993),
    ],
)
def test_the_logistic_family_keeps_its_bound_just_below_powers_of_two(
    name: str, dtype: str, point: float, isa: str
) -> None:
    """There units are half as large as those of exp(a), whose rounding counts twice."""
    got = run_single(lambda x: [getattr(tg, name)(x[0])], np.array([[point]]), dtype)[0, 0]
    power = mp.exp(point)
    exact = {"softplus": mp.log1p(power), "sigmoid": power / (1 + power)}[name]
    nearest, rest, unit = FORMATS[dtype].rounded(exact)
    assert abs((got - nearest) / unit - rest) <= 3


@each_dtype
@each_mode
@each_record
def test_first_and_second_derivatives_agree_with_the_oracle(
    record: Record, mode: str, dtype: str, isa: str
) -> None:
    points, want = derivative_reference(record, dtype)
    want = np.hstack([want, want[:, record.arity :]])  # the second ones in both modes
    got = MODES[mode](with_derivatives(record), points, dtype)
    form = FORMATS[dtype]
    # 2**11: b - 1 in the exponent of pow's derivative is rounded, at b = 256 by 2**-46, and the
    # power magnifies it by log a. 8 units of 1 or of the largest derivative there: derivatives
    # written as 1 - y * y, or Hessians as that of hypot, cancel.
    reach = np.maximum(np.abs(want).max(axis=1, keepdims=True), 1)
    tolerance = 2**11 * form.epsilon * np.abs(want) + 8 * form.epsilon * reach
    within = np.abs(want) < form.largest * 2.0**-30
    with np.errstate(invalid="ignore"):
        wrong = within & ~(np.abs(got - want) <= tolerance)
    assert not wrong.any(), [
        (points[row].tolist(), f"derivative {column}", got[row, column], want[row, column])
        for row, column in np.argwhere(wrong)[:5]
    ]


@each_dtype
@each_record
def test_single_batch_and_packed_runs_give_the_same_bits(
    record: Record, dtype: str, isa: str
) -> None:
    points, _ = value_reference(record, dtype)
    points = np.vstack([points, edge_points(record, dtype)])
    first, *others = [run(lambda x: [record.record(x)], points, dtype) for run in MODES.values()]
    for other in others:
        assert_same(first, other)


@each_dtype
@each_record
def test_instruction_sets_with_fused_multiply_add_give_the_same_bits(
    record: Record, dtype: str
) -> None:
    points = np.vstack([value_reference(record, dtype)[0], edge_points(record, dtype)])
    before, found = tg.isa(), []
    try:
        for isa in tg.isas():
            if isa != "baseline" or record.ulp == 0:
                tg.set_isa(isa)
                found.append(run_batch(lambda x: [record.record(x)], points, dtype))
    finally:
        tg.set_isa(before)
    for other in found[1:]:
        assert_same(other, found[0])


@each_record
def test_numbers_are_computed_as_programs_compute_them(record: Record, isa: str) -> None:
    points = np.vstack([value_reference(record, "float64")[0][::7], edge_points(record, "float64")])
    got = np.array([getattr(tg, record.name)(*point) for point in points.tolist()])
    want = run_single(lambda x: [record.record(x)], points, "float64")[:, 0]
    assert_same(got, want)


@each_record
def test_record_has_a_documented_function_and_method(record: Record) -> None:
    function = getattr(tg, record.name)
    assert record.name in tg.__all__
    assert function.__doc__
    if record.arity == 1:
        x = tg.Graph().input()
        assert hash(getattr(x, record.name)()) == hash(function(x))


@each_record
def test_arrays_are_mapped_element_by_element(record: Record) -> None:
    points = value_reference(record, "float64")[0][:6]
    numbers = getattr(tg, record.name)(*points.T)
    assert numbers.dtype == np.float64
    assert numbers.tolist() == [getattr(tg, record.name)(*point) for point in points.tolist()]
    x = tg.Graph().inputs(points.size).reshape(points.shape)
    mapped = getattr(tg, record.name)(*x.T)
    assert [hash(var) for var in mapped] == [hash(record.record(row)) for row in x]


# ---- edges -------------------------------------------------------------------------------------


def _masked_mul(a: Any, b: Any) -> Any:
    return np.where(a == 0, a, a * b)


def _masked_both(a: Any, b: Any) -> Any:
    return np.where(a == 0, a, np.where(b == 0, b, a * b))


def _sigmoid(a: Any) -> Any:
    return np.where(a < 0, np.exp(np.minimum(a, 0)), 1) / (1 + np.exp(-np.abs(a)))


def _gelu(a: float) -> float:
    if not math.isfinite(a):
        return max(a, -0.0)
    with mp.workprec(200):
        return float(a * Oracles().erfc(-a / mp.sqrt(2)) / 2)


def _float(function: Callable[..., float]) -> Callable[..., Any]:
    """A function of `math` over arrays, in their precision."""

    def mapped(*operands: Any) -> Any:
        rows = np.broadcast(*operands)
        return np.array([function(*map(float, row)) for row in rows]).astype(operands[0].dtype)

    return mapped


#: Where NumPy says it otherwise or not at all. Other ops are NumPy functions of the same name.
NUMPY: dict[str, Callable[..., Any]] = {
    "neg": np.negative,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "masked_mul": _masked_mul,
    "masked_both": _masked_both,
    "sigmoid": _sigmoid,
    "softplus": lambda a: np.logaddexp(a, np.zeros_like(a)),
    "relu": lambda a: np.maximum(a, np.zeros_like(a)),
    "gelu": _float(_gelu),
    "erf": _float(math.erf),
    "erfc": _float(math.erfc),
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "add": np.add,
}
#: Which of +0 and -0 these give is nowhere promised.
ANY_ZERO = {"sign", "relu", "minimum", "maximum", "gelu"}


def edge_points(record: Record, dtype: str) -> Array:
    """NaN, infinities, zeros, denormals, the largest numbers, thresholds; for two operands all
    pairs."""
    info = np.finfo(dtype)
    positive: list[float] = [
        0.0,
        float(info.smallest_subnormal),
        float(info.smallest_normal),
        float(info.eps) / 8,
        0.5,
        1.0,
        1.5,
    ]
    positive += [2.0, 3.0, float(info.max), math.inf, 1e22, 2.0**100]
    if record.arity == 1:
        positive += [20.0, 37.0, 40.0, 88.5, 89.0, 103.5, 104.5, 709.5, 710.0, 744.5, 746.0, 1e5]
        positive += [28.0, 38.5, 1e9, 2.0**31, 2.0**53, 3e15, 1.0 - float(info.epsneg)]
        positive += (math.pi / 4 * np.arange(1, 20)).tolist()
    values = np.array([*positive, *(-v for v in positive), math.nan]).astype(dtype).astype(float)
    return np.array(list(itertools.product(values, repeat=record.arity)))


def numpy_values(record: Record, points: Array, dtype: str) -> Array:
    """What NumPy gives, or for ops it does not know the oracle where all operands are finite."""
    function = NUMPY.get(record.name) or getattr(np, record.name, None)
    if function is not None:
        with np.errstate(all="ignore"):
            return np.asarray(function(*points.astype(dtype).T), dtype=float)
    oracle = record.function()
    with mp.workprec(1300):
        return np.array(
            [
                FORMATS[dtype].rounded(oracle(*map(mp.mpf, point)))[0]
                if np.isfinite(point).all()
                else math.nan
                for point in points.tolist()
            ]
        )


@each_dtype
@pytest.mark.parametrize("mode", ["single", "batch"])
@each_record
def test_edge_values_follow_numpy(record: Record, mode: str, dtype: str, isa: str) -> None:
    points = edge_points(record, dtype)
    known = record.name in NUMPY or hasattr(np, record.name)
    if not known:
        points = points[np.isfinite(points).all(axis=1)]
    want = numpy_values(record, points, dtype)
    got = MODES[mode](lambda x: [record.record(x)], points, dtype)[:, 0]
    finite = np.isfinite(want)
    with np.errstate(invalid="ignore", over="ignore"):
        spacing = np.spacing(np.abs(want).astype(dtype)).astype(float)
        near = (got == want) | (np.abs(got - want) <= (record.ulp and record.ulp + 4) * spacing)
    # mpmath has no -0, so that only NumPy tells the sign of a zero.
    zeros = (want == 0) & (got == 0) & (known and record.name not in ANY_ZERO)
    right = np.where(finite, near, (got == want) | (np.isnan(got) & np.isnan(want)))
    right &= ~zeros | (np.signbit(got) == np.signbit(want))
    assert right.all(), [
        (record.name, points[i].tolist(), got[i], f"expected {want[i]}")
        for i in np.flatnonzero(~right)[:8]
    ]


@each_record
def test_nan_gives_nan_derivatives_unless_they_are_constant(record: Record, isa: str) -> None:
    nan = np.full((1, record.arity), math.nan)
    got = run_single(with_derivatives(record), nan, "float64")[0, : record.arity]
    other = np.array([[0.3, 0.7][: record.arity], [0.9, 0.2][: record.arity]])
    ordinary = run_batch(with_derivatives(record), other, "float64")[:, : record.arity]
    constant = (ordinary == np.round(ordinary)).all(axis=0)  # slopes of -1, 0 or 1
    assert np.all(np.isnan(got) | constant), got


#: Slopes at infinity that have a limit and that a formula can miss as infinity times 0.
LIMITS = [
    ("exp", -math.inf, 0.0),
    ("exp", math.inf, math.inf),
    ("expm1", -math.inf, 0.0),
    ("log", math.inf, 0.0),
    ("log1p", math.inf, 0.0),
    ("log2", math.inf, 0.0),
    ("log10", math.inf, 0.0),
    ("sqrt", math.inf, 0.0),
    ("sqrt", 0.0, math.inf),
    ("log", 0.0, math.inf),
    ("asin", 1.0, math.inf),
    ("acos", 1.0, -math.inf),
    ("atan", math.inf, 0.0),
    ("atan", -math.inf, 0.0),
    ("tanh", math.inf, 0.0),
    ("tanh", -math.inf, 0.0),
    ("sigmoid", math.inf, 0.0),
    ("sigmoid", -math.inf, 0.0),
    ("softplus", math.inf, 1.0),
    ("softplus", -math.inf, 0.0),
    ("relu", math.inf, 1.0),
    ("relu", -math.inf, 0.0),
    ("gelu", 1e200, 1.0),
    ("gelu", -1e200, 0.0),
    ("erf", math.inf, 0.0),
    ("erfc", -math.inf, 0.0),
    ("abs", -math.inf, -1.0),
    ("square", -math.inf, -math.inf),
    ("sinh", -math.inf, math.inf),
    ("cosh", -math.inf, -math.inf),
]


@pytest.mark.parametrize(("name", "at", "slope"), LIMITS)
def test_slope_at_the_border_is_its_limit(name: str, at: float, slope: float, isa: str) -> None:
    x = tg.Graph().input()
    y = getattr(tg, name)(x)
    program = tg.compile(tg.grad(y, x))
    assert program([at]) == slope
    assert program.batch([[at]])[0] == slope


# ---- kinks and ties ----------------------------------------------------------------------------


def gradient_at(output: Callable[[Any], tg.Var], point: list[float]) -> list[float]:
    x = tg.Graph().inputs(len(point))
    _, gradient = tg.compile(output(x), wrt=x)(point)
    found: list[float] = gradient.tolist()
    return found


@pytest.mark.parametrize("point", [[1.0, math.nan, 2.0], [math.nan] * 3])
@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes_stand_still_at_nan_in_both_modes(name: str, point: list[float]) -> None:
    x = tg.Graph().inputs(3)
    y = getattr(tg, name)(x)
    assert tg.compile(list(tg.grad(y, x)))(point).tolist() == [0.0] * 3
    assert tg.compile(tg.jvp(y, x, [1.0, 2.0, 3.0]))(point) == 0.0


def test_relu_hides_no_nan(isa: str) -> None:
    assert gradient_at(lambda x: tg.relu(x[0]) * 3, [math.nan]) == [3.0]
    assert gradient_at(lambda x: tg.relu(x[0]) * 3, [0.0]) == [0.0]


@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("name", ["abs", "relu", "sign", "floor", "ceil"])
def test_slope_at_the_kink_is_zero(name: str, zero: float, isa: str) -> None:
    assert gradient_at(lambda x: getattr(tg, name)(x[0]), [zero]) == [0.0]


@pytest.mark.parametrize("tie", [1.0, 0.0, -0.0, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_a_tie_is_split_in_halves(name: str, tie: float, isa: str) -> None:
    assert gradient_at(lambda x: getattr(tg, name)(x[0], x[1]), [tie, tie]) == [0.5, 0.5]


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_extremes_of_a_var_with_itself_have_slope_one(name: str, isa: str) -> None:
    assert gradient_at(lambda x: getattr(tg, name)(x[0], x[0]), [3.0]) == [1.0]


@pytest.mark.parametrize("count", [2, 3, 5, 17])
@pytest.mark.parametrize("name", ["max", "min"])
def test_ties_of_many_share_equally(name: str, count: int, isa: str) -> None:
    sign = 1 if name == "max" else -1
    point = [1.0 * sign] * count + [-2.0 * sign]
    got = gradient_at(getattr(tg, name), point)
    assert got == pytest.approx([1 / count] * count + [0.0], rel=1e-15)


def test_hypot_has_slope_zero_at_the_origin(isa: str) -> None:
    assert gradient_at(lambda x: tg.hypot(x[0], x[1]), [0.0, 0.0]) == [0.0, 0.0]
    assert gradient_at(lambda x: tg.hypot(x[0], x[1]), [0.0, -2.0]) == [0.0, -1.0]


def test_atan2_has_slope_zero_at_the_origin(isa: str) -> None:
    assert gradient_at(lambda x: tg.atan2(x[0], x[1]), [0.0, 0.0]) == [0.0, 0.0]
    assert gradient_at(lambda x: tg.atan2(x[0], x[1]), [0.0, -2.0]) == [-0.5, 0.0]


@pytest.mark.parametrize(("a", "b"), [(1e-300, 1e-155), (1e200, 1e160), (0.0, 5e-324)])
def test_derivatives_of_quotients_stay_in_range(a: float, b: float, isa: str) -> None:
    x = tg.Graph().inputs(2)
    first = tg.grad(x[0] / x[1], x[1])
    found = tg.compile([first, tg.grad(first, x[1])])([a, b])
    assert found[0] == pytest.approx(float(-mp.mpf(a) / mp.mpf(b) ** 2), rel=1e-15)
    if a:
        assert found[1] == pytest.approx(float(2 * mp.mpf(a) / mp.mpf(b) ** 3), rel=1e-15)


@pytest.mark.parametrize(
    "call",
    [
        lambda: tg.erf(np.array([0.0])),
        lambda: tg.tanh(np.array([1e308])),
        lambda: tg.sin(np.array([1e300])),
        lambda: tg.relu(np.array([math.nan])),
        lambda: tg.exp(np.array([math.inf])),
        lambda: tg.log(np.array([-1.0])),
        lambda: tg.pow(np.array([1e300]), 2.0),
    ],
)
def test_functions_of_arrays_never_warn(call: Callable[[], Any]) -> None:
    with np.errstate(all="raise"):
        call()
        assert np.geterr()["over"] == "raise"


@pytest.mark.parametrize("name", ["lt", "le", "gt", "ge", "eq", "ne"])
def test_comparisons_have_slope_zero(name: str, isa: str) -> None:
    assert gradient_at(lambda x: getattr(tg, name)(x[0], x[1]), [1.0, 1.0]) == [0.0, 0.0]


# ---- the branch that is not taken --------------------------------------------------------------

Branch = Callable[[Any], Any]

#: Condition, the branch for positive x that has no finite slope elsewhere.
GUARDED: dict[str, Branch] = {
    "log": tg.log,
    "sqrt": tg.sqrt,
    "reciprocal": lambda x: 1 / x,
    "quotient": lambda x: tg.sin(x) / x,
    "pow": lambda x: x**0.5,
    "pow of Vars": lambda x: tg.pow(x, x),
    "log of log": lambda x: tg.log(tg.log(x + 1)),
    "asin": lambda x: tg.asin(tg.minimum(x, 1) * 0.5) / tg.sqrt(x),
    "softmax": lambda x: tg.softmax([tg.log(x), 1 / x, x])[0],
    "softmax of four": lambda x: tg.softmax([tg.log(x), 1 / x, x, -x])[1],
    "logsumexp": lambda x: tg.logsumexp([tg.log(x), 1 / x]),
    "dot": lambda x: tg.dot([tg.log(x), tg.sqrt(x)], [x, 1 / x]),
    "prod": lambda x: tg.prod([tg.log(x), 1 / x, x]),
    "sum": lambda x: tg.sum([tg.log(x), 1 / x, tg.sqrt(x)]),
    "max": lambda x: tg.max([tg.log(x), tg.sqrt(x), 1 / x]),
    "hypot": lambda x: tg.hypot(tg.log(x), 1 / x),
    "atan2": lambda x: tg.atan2(tg.log(x), tg.sqrt(x)),
    "exp": lambda x: tg.exp(tg.exp(1 / x)) * 0 + tg.log(x),
}


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("at", [0.0, -0.0, -1.5])
@pytest.mark.parametrize("branch", GUARDED)
def test_branch_not_taken_leaves_derivatives_finite(branch: str, at: float, order: int) -> None:
    x = tg.Graph().input()
    y = tg.where(x > 0, GUARDED[branch](x), 3 * x)
    for _ in range(order):
        y = tg.grad(y, x)
    expected = 3.0 if order == 1 else 0.0
    program = tg.compile(y)
    assert program([at]) == expected
    assert program.batch([[at], [at]]).tolist() == [expected] * 2


@pytest.mark.parametrize("branch", ["log", "sqrt", "reciprocal", "pow", "softmax", "logsumexp"])
def test_branch_taken_has_its_own_derivatives(branch: str) -> None:
    x = tg.Graph().input()
    plain = GUARDED[branch](x)
    guarded = tg.where(x > 0, plain, 3 * x)
    outputs = []
    for _ in range(3):
        plain, guarded = tg.grad(plain, x), tg.grad(guarded, x)
        outputs += [plain, guarded]
    got = tg.compile(outputs)([0.7])
    np.testing.assert_allclose(got[1::2], got[::2], rtol=1e-13)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("branch", GUARDED)
def test_nested_choices_leave_derivatives_finite(branch: str, order: int) -> None:
    x = tg.Graph().input()
    inner = tg.where(x > 1, tg.sqrt(x - 1), GUARDED[branch](x))
    y = tg.where(x > 0, inner * tg.log(x), x * x)
    for _ in range(order):
        y = tg.grad(y, x)
    got = tg.compile(y).batch([[-2.0], [0.0], [0.5], [2.0]])
    assert got[:2].tolist() == ([-4.0, 0.0] if order == 1 else [2.0, 2.0])
    assert np.isfinite(got[2:]).all()


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("at", [0.0, -1.5])
@pytest.mark.parametrize("branch", GUARDED)
def test_a_derivative_in_the_branch_not_taken_leaves_its_own_finite(
    branch: str, at: float, order: int
) -> None:
    x = tg.Graph().input()
    y = tg.where(x > 0, tg.grad(GUARDED[branch](x), x), 3 * x)
    for _ in range(order):
        y = tg.grad(y, x)
    assert tg.compile(y)([at]) == (3.0 if order == 1 else 0.0)


@pytest.mark.parametrize("at", [0.0, -2.0])
@pytest.mark.parametrize(
    "entropy",
    [
        lambda x: tg.where(x > 0, x * tg.log(x), 0.0),
        lambda x: tg.where(x > 0, tg.exp(tg.log(x)), 0.0),
        lambda x: tg.where(x > 0, tg.sqrt(tg.sqrt(x)), 0.0),
        lambda x: tg.where(x > 0, tg.sqrt(x) * tg.log(x), 0.0),
        lambda x: tg.where(x > 0, tg.tanh(tg.log(x)), 0.0),
        lambda x: tg.where(x > 0, 0.0, 0.0) + tg.where(x > 0, 1 / tg.sqrt(x), 0.0),
        lambda x: tg.where(x > 0, tg.where(x > 1, tg.log(tg.log(x)), tg.sqrt(1 - x)), 0.0),
        lambda x: tg.where(tg.abs(x) > 3, tg.hypot(x, x) / x, 0.0),
    ],
)
def test_everyday_guards_have_a_second_derivative(entropy: Branch, at: float) -> None:
    x = tg.Graph().input()
    first = tg.grad(entropy(x), x)
    assert tg.compile([first, tg.grad(first, x)])([at]).tolist() == [0.0, 0.0]


def test_mixed_derivatives_stay_finite_beside_a_branch_not_taken() -> None:
    x = tg.Graph().inputs(2)
    y = tg.where(x[0] > 0, tg.log(x[0]) * tg.sqrt(x[1]), x[0] * x[1])
    hessian = [tg.grad(first, x) for first in tg.grad(y, x)]
    program = tg.compile([*hessian[0], *hessian[1]])
    assert program([0.0, 0.0]).tolist() == [0.0, 1.0, 1.0, 0.0]


# ---- ops of any number of operands -------------------------------------------------------------


def _halves(xs: Any) -> tuple[Any, Any]:
    return xs[: len(xs) // 2], xs[len(xs) // 2 :]


def _softmax(xs: list[Any]) -> list[Any]:
    powers = [mp.exp(x) for x in xs]
    return [x / mp.fsum(powers) for x in powers]


#: On Vars, by mpmath, by hyperdual numbers; each gives a list.
NARY: dict[str, tuple[Any, Any, Any]] = {
    "sum": (
        lambda x: [tg.sum(x)],
        lambda x: [mp.fsum(x)],
        lambda x: [hyperdual.total(x)],
    ),
    "prod": (
        lambda x: [tg.prod(x)],
        lambda x: [mp.fprod(x)],
        lambda x: [hyperdual.product(x)],
    ),
    "max": (lambda x: [tg.max(x)], lambda x: [max(x)], lambda x: [hyperdual.extreme(x, max)]),
    "min": (lambda x: [tg.min(x)], lambda x: [min(x)], lambda x: [hyperdual.extreme(x, min)]),
    "logsumexp": (
        lambda x: [tg.logsumexp(x)],
        lambda x: [mp.log(mp.fsum(map(mp.exp, x)))],
        lambda x: [hyperdual.logsumexp(x)],
    ),
    "softmax": (tg.softmax, _softmax, hyperdual.softmax),
    "dot": (
        lambda x: [tg.dot(*_halves(x))],
        lambda x: [mp.fdot(*_halves(x))],
        lambda x: [hyperdual.total([a * b for a, b in zip(*_halves(x), strict=True)])],
    ),
    "where": (
        lambda x: [tg.where(a > b, a * b, a - b) for a, b in zip(*_halves(x), strict=True)],
        lambda x: [a * b if a > b else a - b for a, b in zip(*_halves(x), strict=True)],
        lambda x: [a * b if a.value > b.value else a - b for a, b in zip(*_halves(x), strict=True)],
    ),
}
PAIRED = {"dot", "where"}
each_nary = pytest.mark.parametrize("name", NARY)
each_count = pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 17, 100])


def nary_points(name: str, count: int, dtype: str) -> Array:
    """Points of a few sizes; products stay within the range of float32."""
    random = np.random.default_rng(count)
    n = 2 * count if name in PAIRED else count
    reach = np.array([0.01, 0.3, 1.0, 1.5, 30.0, 700.0])[:, None]
    points = random.normal(size=(6, n)) * reach
    if name == "prod":
        points = np.exp2(np.sin(points)) * np.sign(points)
    return np.asarray(points.astype(dtype).astype(float))


@each_dtype
@each_mode
@each_count
@each_nary
def test_nary_value_agrees_with_mpmath(
    name: str, count: int, mode: str, dtype: str, isa: str
) -> None:
    points = nary_points(name, count, dtype)
    on_vars, by_mpmath, _ = NARY[name]
    got = MODES[mode](on_vars, points, dtype)
    with mp.workprec(2300):
        exact = [by_mpmath([mp.mpf(v) for v in point]) for point in points.tolist()]
        want = np.array([[FORMATS[dtype].rounded(v)[0] for v in row] for row in exact])
    largest = np.abs(points).max(axis=1, keepdims=True)
    reach = {
        "sum": largest * count,
        "dot": largest**2 * count,
        "logsumexp": np.maximum(largest, np.abs(want)),
        "softmax": np.abs(want) * np.maximum(largest, 1.0) + FORMATS[dtype].epsilon,
        "prod": np.abs(want) * count,
    }.get(name, np.abs(want))
    assert np.all(np.abs(got - want) <= 4 * FORMATS[dtype].epsilon * reach)


@each_dtype
@each_mode
@each_count
@each_nary
def test_nary_derivatives_agree_with_hyperdual_numbers(
    name: str, count: int, mode: str, dtype: str, isa: str
) -> None:
    points = nary_points(name, count, dtype)[:4]
    on_vars, _, by_duals = NARY[name]
    n = points.shape[1]
    direction = np.cos(np.arange(n)).astype(dtype).astype(float)
    weights = 1.0 + np.arange(
        len(by_duals(hyperdual.variables(points[0].tolist(), direction.tolist())))
    )

    def outputs(x: Any) -> list[tg.Var]:
        y = tg.dot(on_vars(x), weights)
        first = tg.grad(y, x)
        return [*first, *tg.grad(tg.dot(first, direction), x)]

    got = MODES[mode](outputs, points, dtype)
    for row, point in zip(got, points.tolist(), strict=True):
        duals = by_duals(hyperdual.variables(point, direction.tolist()))
        want = hyperdual.total([d * w for d, w in zip(duals, weights, strict=True)])
        close = 1e-11 if dtype == "float64" else 1e-3
        scale = max(1.0, want.size)
        np.testing.assert_allclose(row[:n] / scale, want.gradient / scale, rtol=close, atol=close)
        np.testing.assert_allclose(row[n:] / scale, want.curved / scale, rtol=close, atol=close)


@each_count
@each_nary
def test_nary_runs_give_the_same_bits(name: str, count: int, isa: str) -> None:
    points = nary_points(name, count, "float64")
    first, *others = [run(NARY[name][0], points, "float64") for run in MODES.values()]
    for other in others:
        assert_same(first, other)


inf, nan = math.inf, math.nan
NARY_EDGES: list[tuple[str, list[float], list[float]]] = [
    ("sum", [inf, 1.0, 2.0], [inf]),
    ("sum", [inf, -inf, 1.0], [nan]),
    ("sum", [nan, 1.0, 2.0, 3.0, 4.0], [nan]),
    ("sum", [1e308, 1e308, -1e308], [inf]),
    ("prod", [0.0, inf, 2.0], [nan]),
    ("prod", [-inf, 2.0, 3.0], [-inf]),
    ("max", [nan, 1.0, 2.0], [nan]),
    ("max", [1.0, 2.0, nan], [nan]),
    ("max", [1.0, nan, 2.0, 0.0], [nan]),
    ("min", [1.0, nan, 2.0], [nan]),
    ("max", [-inf, -inf, -inf], [-inf]),
    ("min", [inf, -inf, 0.0], [-inf]),
    ("logsumexp", [1000.0, 1000.0, 1000.0], [1000.0 + math.log(3)]),
    ("logsumexp", [-1000.0, -1000.0], [-1000.0 + math.log(2)]),
    ("logsumexp", [-inf, -inf, -inf], [-inf]),
    ("logsumexp", [-inf, 3.0, -inf], [3.0]),
    ("logsumexp", [inf, 3.0, -inf], [inf]),
    ("logsumexp", [inf, inf, 0.0], [inf]),
    ("logsumexp", [nan, 3.0, 1.0], [nan]),
    ("logsumexp", [1.0, 3.0, nan], [nan]),
    ("logsumexp", [inf, nan, 1.0], [nan]),
    ("softmax", [1000.0, 1000.0], [0.5, 0.5]),
    ("softmax", [1000.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]),
    ("softmax", [-1000.0, -1000.0, -1000.0, -1000.0], [0.25] * 4),
    ("softmax", [-1000.0, -1000.0, -1000.0], [1 / 3] * 3),
    ("softmax", [1e308, -1e308], [1.0, 0.0]),
    ("softmax", [-inf, 0.0, 0.0], [0.0, 0.5, 0.5]),
    ("softmax", [-inf, 0.0, 0.0, -inf], [0.0, 0.5, 0.5, 0.0]),
    ("softmax", [-inf, -1000.0, -1000.0, -inf], [0.0, 0.5, 0.5, 0.0]),
    ("softmax", [nan, 0.0, 0.0, 1.0], [nan] * 4),
    ("softmax", [0.0, 0.0, nan], [nan] * 3),
    ("softmax", [1000.0, 0.0, 1.0, nan], [nan] * 4),
    ("softmax", [nan, 0.0, 1000.0], [nan] * 3),
    ("softmax", [nan, nan, nan, nan], [nan] * 4),
    ("softmax", [5.0], [1.0]),
    ("dot", [inf, 0.0], [nan]),
    ("dot", [inf, 1.0, 1.0, 2.0], [inf]),
    ("where", [nan, 1.0], [nan]),
]


@each_dtype
@pytest.mark.parametrize(("name", "point", "want"), NARY_EDGES)
def test_nary_edges_follow_the_limits(
    name: str, point: list[float], want: list[float], dtype: str, isa: str
) -> None:
    if dtype == "float32" and 1e308 in point:
        point = [v / 1e308 * 3e38 for v in point]
    for run in MODES.values():
        got = run(NARY[name][0], np.array([point]), dtype)[0]
        np.testing.assert_allclose(got, want, rtol=1e-15 if dtype == "float64" else 1e-6, atol=0)


@pytest.mark.parametrize("count", [2, 3, 4, 17])
def test_logsumexp_and_softmax_gradients_do_not_overflow(count: int, isa: str) -> None:
    for level in (1e3, -1e3, 1e300, -1e300):
        got = gradient_at(tg.logsumexp, [level] * count)
        assert got == pytest.approx([1 / count] * count, rel=1e-14)
        got = gradient_at(lambda x: tg.softmax(x)[0], [level] * count)
        want = [1 / count - 1 / count**2] + [-1 / count**2] * (count - 1)
        assert got == pytest.approx(want, rel=1e-13)


@pytest.mark.parametrize("zeros", [1, 2])
@pytest.mark.parametrize("count", [3, 4, 17])
def test_products_with_zeros_have_the_right_gradient(count: int, zeros: int, isa: str) -> None:
    point = [0.0] * zeros + [2.0] * (count - zeros)
    want = [2.0 ** (count - 1) if zeros == 1 else 0.0] + [0.0] * (count - 1)
    assert gradient_at(tg.prod, point) == want


@pytest.mark.parametrize("condition", [1.0, -1.0, 5e-324, inf, -inf, nan])
def test_where_takes_the_first_branch_unless_the_condition_is_zero(
    condition: float, isa: str
) -> None:
    x = tg.Graph().inputs(3)
    program = tg.compile(tg.where(x[0], x[1], x[2]), wrt=x)
    value, gradient = program([condition, 7.0, 8.0])
    assert (value, gradient.tolist()) == (7.0, [0.0, 1.0, 0.0])
    for zero in (0.0, -0.0):
        value, gradient = program([zero, 7.0, 8.0])
        assert (value, gradient.tolist()) == (8.0, [0.0, 0.0, 1.0])


def test_paired_kernels_agree_with_the_functions_alone(isa: str) -> None:
    points = np.vstack(
        [value_reference(record, "float64")[0] for record in RECORDS if record.name == "sin"]
    )
    points = np.vstack([points, [[inf], [-inf], [nan], [0.0], [-0.0], [800.0], [-800.0]]])
    for pair in ((tg.sin, tg.cos), (tg.softplus, tg.sigmoid)):
        for run in MODES.values():
            both = run(both_of(*pair), points, "float64")
            alone = [run(both_of(function), points, "float64") for function in pair]
            np.testing.assert_array_equal(both, np.hstack(alone))


def both_of(*functions: Callable[[Any], tg.Var]) -> Outputs:
    return lambda x: [function(x[0]) for function in functions]
