"""NumPy on arrays of Vars: the same source on numbers and on Vars, and what does not work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest

import tapegrad as tg

X = np.linspace(0.2, 1.3, 6).reshape(2, 3)
Y = np.linspace(-0.9, 0.8, 6).reshape(2, 3)
Function = Callable[[Any, Any], Any]


def _in_place(x: Any, y: Any) -> Any:
    total = np.zeros_like(x)
    total += x
    total *= y
    total[0, 1:] -= y[0, :2]
    return total


def _copied(x: Any, y: Any) -> Any:
    total = np.zeros_like(x)
    np.copyto(total, y, where=np.array([True, False, True]))
    np.copyto(total[1], 2.0)
    return total * x


#: Untyped: NumPy's overloads know no arguments of several kinds.
HALF: Any = "half"
norm: Any = np.linalg.norm
MATRIX_NORMS = ("fro", 1, -1, np.inf, -np.inf)
#: Source that runs on arrays of numbers and of Vars alike.
SOURCES: dict[str, Function] = {
    "copied": _copied,
    "arithmetic": lambda x, y: (x + y) * 2 - y / x + 3 - (-x) + +y,
    "reflected": lambda x, y: 1 - x + 2 / x + 2**y + np.array([1.0, 2.0, 3.0]) * y,
    "powers": lambda x, y: x**2 + x**y + x**-1 + np.power(x, 0.5),
    "broadcasting": lambda x, y: x[:, :1] + y[:1] * x[0],
    "slices": lambda x, y: x[::-1, 1:] + y[:, [2, 0]],
    "masks": lambda x, y: x[np.array([True, False])] * 2,
    "matmul": lambda x, y: x @ y.T,
    "matmul vector": lambda x, y: x @ y[0],
    "vector matmul": lambda x, y: x[:, 0] @ y,
    "vectors": lambda x, y: x[0] @ y[0],
    "stacks": lambda x, y: np.stack([x, y]) @ x.T,
    "numbers matmul": lambda x, y: np.arange(4.0).reshape(2, 2) @ x,
    "dot": lambda x, y: np.dot(x, y.T) + x.dot(y.T),
    "inner": np.inner,
    "outer": np.outer,
    "vdot": np.vdot,
    "einsum": lambda x, y: np.einsum("ij,kj->ik", x, y),
    "einsum of three": lambda x, y: np.einsum("ij,ik,i->jk", x, y, x[:, 0]),
    "einsum sum": lambda x, y: np.einsum("ij->j", x),
    "einsum implicit": lambda x, y: np.einsum("ij,jk", x, y.T),
    "sum": lambda x, y: np.sum(x) + x.sum(axis=0) + np.sum(y, axis=1, keepdims=True),
    "sum of two axes": lambda x, y: np.sum(x[None] * y, axis=(0, 2)),
    "mean": lambda x, y: np.mean(x, axis=1) + y.mean(),
    "var": lambda x, y: np.var(x, axis=0) + np.std(y, ddof=1),
    "prod": lambda x, y: np.prod(x, axis=1) + x.prod(),
    "max": lambda x, y: np.max(x, axis=0) + y.max() + np.amin(y) - x.min(axis=1, keepdims=True),
    "cumsum": lambda x, y: np.cumsum(x, axis=1) + np.cumsum(y).reshape(2, 3),
    "cumsum without dimensions": lambda x, y: np.cumsum(x[0, 0], axis=0) * np.cumprod(y[0, 0], -1),
    "cumprod": lambda x, y: np.cumprod(x, axis=0),
    "where": lambda x, y: np.where(y > 0, x, y * 3),
    "comparisons": lambda x, y: (x > y) * 1.0 + (x <= 0.5) + (y == 0.5) * 2.0 + (x != y),
    "logic": lambda x, y: np.logical_and(x > 0.5, y > 0) * 1.0 + np.logical_or(x > 1, y < 0),
    "clip": lambda x, y: np.clip(x, 0.4, 0.9) + y.clip(-0.5, None) + np.clip(x, y, None),
    "maximum": lambda x, y: (
        np.maximum(x, y) + np.minimum(x, 0.5) + np.maximum.reduce(y, axis=1)[:, None]
    ),
    "concatenate": lambda x, y: np.concatenate([x, y, np.ones((2, 3))]),
    "stack": lambda x, y: np.stack([x, y], axis=-1),
    "vstack": lambda x, y: np.vstack([x, y]) + np.hstack([x, y])[0, 0],
    "moved": lambda x, y: np.roll(x.T, 1, axis=0).swapaxes(0, 1) + np.flip(y),
    "diff": lambda x, y: np.diff(x, axis=1),
    "trapezoid": lambda x, y: np.trapezoid(x, axis=1),
    "pad": lambda x, y: np.pad(x, 1),
    "triangles": lambda x, y: np.triu(x) + np.tril(y),
    "logaddexp": lambda x, y: np.logaddexp(x, y) + np.logaddexp.reduce(x, axis=1)[:, None],
    "outer sum": lambda x, y: np.add.outer(x[0], y[0]),
    "ravel": lambda x, y: x.ravel() + y.flatten() + x.reshape(-1),
    "constants": lambda x, y: np.zeros_like(x) + x + np.ones_like(y),
    "one element": lambda x, y: np.exp(x[0, 0]) + np.sin(y[1, 2]) * np.float64(2.0),
    "number times element": lambda x, y: np.float64(2.0) * x[0, 0] + np.array([1.0, 2.0]) * y[0, 0],
    "trace": lambda x, y: np.trace(x[:, :2]) + np.diag(y[:, :2]),
    "in place": _in_place,
    "clip by keywords": lambda x, y: np.clip(x, min=0.4) + np.clip(y, min=-0.5, max=0.5),
    "clip by position": lambda x, y: x.clip(0.4, 0.9) + y.clip(max=0.1) + np.clip(x, None, y),
    "std": lambda x, y: x.std(0) + y.std() + np.std(x, axis=(0, 1)) + x.std(axis=1, keepdims=True),
    "std ddof": lambda x, y: np.std(y, axis=1, ddof=1)[:, None] + np.var(x, 1, correction=1)[0],
    "var method": lambda x, y: x.var(0) + y.var() + x.var(axis=1, ddof=1, keepdims=True),
    "mean method": lambda x, y: x.mean(0) + y.mean(axis=1, keepdims=True) + x.mean((0, 1)),
    "mean of an axis": lambda x, y: np.mean(x, np.int64(1)) + np.sum(y, axis=-1),
    "ptp": lambda x, y: np.ptp(x) + np.ptp(y, axis=0) + np.ptp(x, axis=1, keepdims=True),
    "average": lambda x, y: np.average(x) + np.average(y, axis=0),
    "weighted average": lambda x, y: np.average(y, weights=x) + np.average(x, 1, [1.0, 2.0, 4.0]),
    "average returned": lambda x, y: np.stack(np.average(y, axis=0, weights=x, returned=True)),
    "average keepdims": lambda x, y: np.average(y, 0, x[:, 0], keepdims=True),
    "norm": lambda x, y: np.linalg.norm(x) + np.linalg.norm(y[0]) + np.linalg.norm(x[None] - 2),
    "norm of axes": lambda x, y: np.linalg.norm(x, axis=0) + np.linalg.norm(y, axis=(0, 1)),
    "norm keepdims": lambda x, y: np.linalg.norm(x, axis=1, keepdims=True) + norm(y, keepdims=True),
    "norms of vectors": lambda x, y: np.stack(
        [np.linalg.norm(y, p, axis=1) for p in (1, 2, 3, 0.5, -1, 0, np.inf, -np.inf)]
    ),
    "norms of matrices": lambda x, y: np.stack(
        [norm(x * y, p, keepdims=True) for p in MATRIX_NORMS]
    ),
    "norm of stacks": lambda x, y: np.linalg.norm(np.stack([x, y]), 1, axis=(2, 0)),
    "tensordot": lambda x, y: np.tensordot(x, y.T, 1) + np.tensordot(x, y),
    "tensordot of axes": lambda x, y: np.tensordot(np.stack([x, y]), x, ([2, 1], [1, 0])),
    "tensordot outer": lambda x, y: np.tensordot(x[0], y[0], 0),
    "dot of stacks": lambda x, y: np.dot(x, np.stack([x.T, y.T])),
    "inner of stacks": lambda x, y: np.inner(np.stack([x, y]), y),
    "vecdot": np.vecdot,
    "cross": lambda x, y: np.cross(x, y) + np.cross(x[0], [1.0, 2.0, 3.0]),
    "cross along axes": lambda x, y: np.cross(x.T, y.T, axis=0).T + np.cross(x.T, y, axisa=0),
    "convolve": lambda x, y: np.convolve(x[0], y.ravel()),
    "convolve same": lambda x, y: np.convolve(x.ravel(), [0.25, 0.5], "same"),
    "convolve valid": lambda x, y: np.convolve(y.ravel(), x[0], "valid"),
    "interp": lambda x, y: np.interp(x, [0.1, 0.5, 0.7, 1.2], [2.0, -1.0, 0.5, 4.0]),
    "interp beyond": lambda x, y: np.interp(y, [-0.5, 0.3], [1.0, 2.0], left=-3.0, right=y[0, 0]),
    "interp of values": lambda x, y: np.interp([0.0, 0.25, 1.0], [0.0, 0.5, 0.9], y[0]),
    "interp of knots": lambda x, y: np.interp(y, x[0] - 0.5, y[1]),
    "select": lambda x, y: np.select([x > 1, y > 0], [x * 2, y**2], default=-x),
    "polyval": lambda x, y: np.polyval([1.0, -2.0, 3.0], x) + np.polyval(y[0], x),
    "squeezed": lambda x, y: np.squeeze(x[None]) + np.expand_dims(y, 0)[0],
    "reshaped": lambda x, y: np.reshape(x, (3, 2)) + np.transpose(y) + np.ravel(x)[:2],
    "axes moved": lambda x, y: np.moveaxis(x, 0, 1) + np.swapaxes(y, 0, 1),
    "repeated": lambda x, y: np.tile(x, (2, 1)) + np.repeat(y, 2, axis=0) + x.repeat(2, 0),
    "split": lambda x, y: np.split(x, 2)[0] * np.hsplit(y, 3)[2] + np.array_split(x, 2, 1)[1],
    "rolled": lambda x, y: np.roll(x, 1) + np.flip(y, 1) + np.fliplr(x) + np.rot90(y, 2),
    "diff twice": lambda x, y: np.diff(x, 2) + np.diff(y, axis=0, prepend=0.0)[:, :1],
    "taken": lambda x, y: np.take(x, [2, 0], axis=1) + y.take([[1], [4]]),
    "diagonals": lambda x, y: x.diagonal() + np.diagonal(y, 1) + x.trace() + np.trace(y, 1),
    "running methods": lambda x, y: x.cumsum(1) + y.cumprod(axis=0) + x.cumsum().reshape(2, 3),
    "method dot": lambda x, y: x.dot(y.T) + x.T.dot(y)[:2, :2] + np.linalg.matmul(x, y.T),
    "conjugate": lambda x, y: np.conj(x) + y.conj() + x.real,
    "angles": lambda x, y: np.deg2rad(x) + np.degrees(y),
    "divisions": lambda x, y: np.stack([*divmod(x, 0.3), y % 0.7, 2.05 // x, np.divmod(y, x)[1]]),
    "rounded": lambda x, y: np.round(x * 3) + y.round(1) + np.round(1000 * y, -2),
    "conditions": lambda x, y: (
        ((x > 0.5) & (y < 0.5)) * 1.0
        + ((x > 1) | (y < 0)) * 2.0
        + ~(x > 0.7) * 4.0
        + ((x > 0.5) ^ (y > 0)) * 8.0
        + (np.logical_and(x > 0.3, y > 0.3) & True) * 16.0
    ),
    "logical xor": lambda x, y: np.logical_xor(x > 0.5, y > 0) + np.logical_not(x > 0.7) * 2.0,
    "pads": lambda x, y: np.stack(
        [np.pad(x, 1, mode=mode) for mode in ("edge", "mean", "reflect", "symmetric", "wrap")]
    ),
    "pad by an element": lambda x, y: np.pad(x, 1, constant_values=y[0, 0]),
    "arguments by position": lambda x, y: (
        np.sum(x, 0, None)
        + np.mean(y, 0, None, None)
        + np.std(x, 0, None, None, 1)
        + np.max(y, 0, None, True)
        + np.clip(x, 0.4, 0.9, None)
        + np.cumsum(y, 1, None, None)
        + np.ptp(x, 0, None, True)
    ),
    "elements as numbers of NumPy's": lambda x, y: (
        np.sum(x).reshape(1) + x[0, 0].ravel() + y[0, 0].T + np.sum(y).squeeze() + x[1, 1].repeat(1)
    ),
    "functions of elements": lambda x, y: (
        np.where(x[0, 0] > 0.1, x[0, 0] * y[0, 0], 0.0)
        + np.clip(x[0, 1], 0.4, 0.9)
        + np.mean(y[0, 0])
        + np.interp(x[0, 0], [0.0, 1.0], [2.0, 5.0])
        + np.dot(x[1, 1], y[1, 1])
        + np.max(x[0, 0])
    ),
    "stacked elements": lambda x, y: np.stack([x[0, 0], y[0, 1]]) * np.hstack([x[1, 1], y[1, 1]]),
    "conditions of elements": lambda x, y: (
        ((x[0, 0] > 0.1) & (y[0, 0] < 0)) * 1.0
        + ((x[0, 0] > 1) | (y[0, 0] > 1)) * 2.0
        + (~(x[0, 0] > 1)) * 4.0
        + ((x[0, 0] > 0) ^ (y[0, 0] < 0)) * 8.0
    ),
}
#: Ufuncs of one operand on numbers where all are defined.
UNARY = [
    *(np.abs, np.fabs, np.sign, np.square, np.sqrt, np.reciprocal, np.floor, np.ceil),
    *(np.exp, np.exp2, np.expm1, np.log, np.log2, np.log10, np.log1p),
    *(np.sin, np.cos, np.tan, np.sinh, np.cosh, np.tanh, np.arctan),
    *(np.negative, np.positive, np.radians),
]
BINARY = [np.arctan2, np.hypot, np.float_power, np.true_divide, np.subtract]


def _first(function: Any) -> Function:
    return lambda x, y: function(x)


def _second(function: Any) -> Function:
    return lambda x, y: function(y)


SOURCES |= {each.__name__: _first(each) for each in UNARY}
SOURCES |= {each.__name__: _second(each) for each in (np.arcsin, np.arccos)}
SOURCES |= {each.__name__: each for each in BINARY}


@pytest.mark.parametrize("name", SOURCES)
def test_the_same_source_runs_on_numbers_and_on_vars(name: str) -> None:
    source = SOURCES[name]
    g = tg.Graph()
    x, y = g.inputs(6).reshape(2, 3), g.inputs(6).reshape(2, 3)
    recorded = source(x, y)
    wanted = np.asarray(source(X, Y), dtype=float)
    flat = np.ravel(recorded) if isinstance(recorded, np.ndarray) else [recorded]
    vars_ = [each if isinstance(each, tg.Var) else g.constant(float(each)) for each in flat]
    found = tg.compile(vars_)(np.concatenate([X.ravel(), Y.ravel()]))
    assert np.shape(recorded) == wanted.shape
    assert not wanted.ndim or isinstance(recorded, tg.VarArray)
    np.testing.assert_allclose(found, wanted.ravel(), rtol=1e-13, atol=1e-15)


def jacobian_by_differences(source: Function) -> Any:
    """Central differences of NumPy's own results, of the fourth order."""
    h, point = 1e-3, np.concatenate([X.ravel(), Y.ravel()])

    def at(x: Any) -> Any:
        return np.ravel(np.asarray(source(x[:6].reshape(2, 3), x[6:].reshape(2, 3)), dtype=float))

    columns = []
    for unit in h * np.eye(12):
        near, far = (at(point + k * unit) - at(point - k * unit) for k in (1, 2))
        columns.append((8 * near - far) / (12 * h))
    return np.stack(columns, axis=-1)


@pytest.mark.parametrize("name", SOURCES)
def test_derivatives_are_those_of_the_source_on_numbers(name: str) -> None:
    source = SOURCES[name]
    g = tg.Graph()
    inputs = g.inputs(12)
    recorded = np.ravel(source(inputs[:6].reshape(2, 3), inputs[6:].reshape(2, 3)))
    vars_ = [each if isinstance(each, tg.Var) else g.constant(float(each)) for each in recorded]
    _, found = tg.compile(vars_, wrt=inputs)(np.concatenate([X.ravel(), Y.ravel()]))
    wanted = jacobian_by_differences(source)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)


#: Methods that are functions of NumPy, with arguments.
METHODS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("sum", "prod", "mean", "std", "var", "max", "min"), (1,)),
    **dict.fromkeys(("cumsum", "cumprod", "diagonal", "trace", "ravel", "squeeze", "copy"), ()),
    "clip": (0.4, 0.9), "dot": (np.arange(6.0).reshape(3, 2),), "take": ([1, 3],),
    "repeat": (2, 1), "swapaxes": (0, 1), "transpose": ((1, 0),), "reshape": ((3, 2),),
    "compress": ([True, False], 0),
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_methods_record_what_the_functions_do(name: str) -> None:
    x: Any = tg.Graph().inputs(6).reshape(2, 3)
    arguments = METHODS[name]
    function = getattr(np, name)
    by_function = (
        function(arguments[0], x, *arguments[1:]) if name == "compress" else function(x, *arguments)
    )
    by_method = getattr(x, name)(*arguments)
    assert type(by_method) is type(by_function)
    for one, other in zip(np.ravel(by_method), np.ravel(by_function), strict=True):
        assert (one.index, one.graph) == (other.index, other.graph)


def test_sums_are_single_nodes() -> None:
    g = tg.Graph()
    x: Any = g.inputs(100)
    assert np.sum(x).op == x.sum().op == "sum"
    assert (x @ x).op == "dot"
    assert np.prod(x).op == "prod"


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda x: np.linalg.norm(x.reshape(3, 1), 2), r"linalg\.norm of matrices with ord=2"),
        (lambda x: np.linalg.norm(x.reshape(3, 1), "nuc"), r"linalg\.norm of matrices"),
        (lambda x: np.linalg.norm(x, "fro"), r"linalg\.norm of vectors with ord='fro'"),
        (lambda x: np.interp(x, [0, 1], [0, 1], period=1.0), r"interp with period="),
        (lambda x: np.convolve(x, x, mode=HALF), r"convolve with mode='half'"),
        (lambda x: x.std(where=np.ones(3, bool)), r"var with where="),
        (np.sort, r"numpy\.sort"),
        (np.argmax, r"numpy\.argmax"),
        (np.cbrt, r"numpy\.cbrt"),
        (np.median, r"numpy\.median"),
        (np.fft.fft, r"fft"),
        (lambda x: np.add.at(x, 0, 1.0), r"add\.at"),
        (lambda x: np.sum(x, where=np.ones(3, bool)), r"sum with where="),
        (lambda x: np.add(x, x, out=np.zeros(3)), r"array of float64"),
        (lambda x: np.where(x > 0), r"where without"),
        (lambda x: np.einsum("ii->i", x.reshape(1, 3)), r"einsum"),
        (np.unique, r"unique"),
        (lambda x: np.einsum(x, [0]), r"einsum with lists of axes"),
        (lambda x: np.sum(x, 0, None, None, False, 0.0, True), r"numpy\.sum with these arguments"),
        (lambda x: np.sum(x, initial=True), r"sum with initial="),
        (lambda x: np.add.reduce(x, initial=True), r"add\.reduce with initial="),
        (lambda x: np.divmod(x, 2.0, out=(x, x)), r"divmod with out="),
        *(
            (lambda x, mode=mode: np.pad(x, 1, mode=mode), rf"pad with mode='{mode}'")
            for mode in ("maximum", "minimum", "linear_ramp", "median")
        ),
        (lambda x: np.sort(x[0]), r"numpy\.sort"),
        (lambda x: np.copyto(np.zeros(x.shape), x), r"numpy\.copyto: an array of float64 cannot"),
        (lambda x: np.copyto(x, 1.0, where=x > 0), r"numpy\.copyto with where= of Vars"),
        (lambda x: np.linspace(x[0], 1.0, 3), r"numpy\.linspace"),
        (lambda x: x & 1, r"bitwise_and \(&, \|, \^, ~\) works on conditions.*np\.logical_and"),
        (lambda x: (x[0] > 0) | 2, r"bitwise_or .* works on conditions"),
        (lambda x: ~x[0], r"invert .* works on conditions"),
        (lambda x: x[x > 0], r"x\[condition\].*np\.where"),
        (lambda x: x[x[0]], r"x\[condition\]"),
        (lambda x: x.reshape(1, 3)[0, x > 0], r"x\[condition\]"),
        (lambda x: exec("x[x > 0] = 0.0", {"x": x}), r"x\[condition\]"),
        (lambda x: np.allclose(x, x), r"allclose"),
    ],
)
def test_what_does_not_work_is_named(call: Callable[[Any], Any], named: str) -> None:
    with pytest.raises(tg.DTypeError, match=named):
        call(tg.Graph().inputs(3))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        *((name, ()) for name in ("all", "any", "argmax", "argmin", "argsort", "sort")),
        *(("nonzero", ()), ("partition", (1,)), ("argpartition", (1,))),
        *(("searchsorted", (0.5,)), ("choose", ([1.0],))),
    ],
)
def test_methods_that_do_not_work_are_named(name: str, arguments: tuple[Any, ...]) -> None:
    x: Any = tg.Graph().inputs(3)
    with pytest.raises(tg.DTypeError, match=rf"numpy\.{name} does not work on Vars"):
        getattr(x, name)(*arguments)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda x: np.cross(x[:2], x[:2]), r"cross: expected vectors of 3, got 2 and 2"),
        (lambda x: np.tensordot(x, x[:2], 1), r"tensordot: axes \[0\] of shape \(3,\)"),
        (lambda x: np.average(x, weights=[1.0, 2.0]), r"average: expected weights of shape"),
        (lambda x: np.interp(x, [0.0, 1.0], [1.0]), r"interp: expected as many fp as xp"),
        (lambda x: np.interp(x, [0.0, 0.0], [1.0, 2.0]), r"interp: expected xp that increase"),
        (lambda x: np.select([x > 0], []), r"select: expected a choice for each condition"),
        (lambda x: np.convolve(x, []), r"convolve: expected arrays that are not empty"),
        (lambda x: np.sum(x, axis=1), r"axis 1 is out of bounds"),
        (lambda x: np.einsum("i->iz", x), r"einsum: expected letters of operands in the result"),
        (lambda x: np.convolve(x.reshape(1, 3), x), r"convolve: expected arrays of one dimension"),
        (
            lambda x: np.linalg.outer(x.reshape(1, 3), x),
            r"linalg.outer: expected arrays of one dim",
        ),
        (lambda x: np.vecdot(2.0, x), r"vecdot: expected vectors of one length.*\(\) and \(3,\)"),
        (lambda x: np.vecdot(x, [1.0]), r"vecdot: expected vectors of one length"),
    ],
)
def test_arguments_that_do_not_fit_are_told(call: Callable[[Any], Any], told: str) -> None:
    with pytest.raises(tg.ShapeError, match=told):
        call(tg.Graph().inputs(3))


@pytest.mark.parametrize(
    "call",
    [
        float,
        lambda x: x.astype(float),
        lambda x: np.asarray(x, dtype=float),
        lambda x: np.array(x, dtype=np.float32),
        lambda x: np.zeros(3).__setitem__(slice(None), x),
        lambda x: np.ones(3).__iadd__(x),
        bool,
        lambda x: x.item() + 0.0 if float(x[0]) else None,
    ],
)
def test_nothing_becomes_a_number_silently(call: Callable[[Any], Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        call(tg.Graph().inputs(3))


def test_shapes_that_do_not_match_are_told() -> None:
    x = tg.Graph().inputs(6).reshape(2, 3)
    with pytest.raises(tg.ShapeError, match=r"\(2, 3\) and \(2, 3\)"):
        x @ x
    with pytest.raises(tg.ShapeError, match="axis 2"):
        np.sum(x, axis=2)
    with pytest.raises(ValueError, match="broadcast"):
        x + np.ones(4)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_empty_arrays_sum_to_zero(shape: tuple[int, ...]) -> None:
    x = tg.Graph().inputs(0).reshape(shape)
    assert np.shape(np.sum(x, axis=0)) == shape[1:]
    assert np.sum(x) == 0.0


def test_statistics_of_nothing_are_nan() -> None:
    x: Any = tg.Graph().inputs(0)
    assert np.isnan(np.mean(x))
    assert np.isnan(x.var())
    assert np.shape(np.mean(x.reshape(0, 3), axis=1)) == (0,)


def test_indices_of_numbers_say_what_numpy_says() -> None:
    x = tg.Graph().inputs(3)
    with pytest.raises(IndexError, match="out of bounds"):
        x[3]
    with pytest.raises(IndexError, match="out of bounds"):
        x[-4] = 0.0
    assert x[np.array([True, False, True])].shape == (2,)
    assert x[[2, 0]][0] is x[2]


def test_single_vars_have_what_numbers_of_numpy_have() -> None:
    x: Any = tg.Graph().inputs(3)
    total, number = np.sum(x), np.sum(np.ones(3))
    for name in ("shape", "ndim", "size"):
        assert getattr(total, name) == getattr(number, name)
    assert total.dtype == x.dtype
    assert total.T is total
    assert total.reshape(1, 1).shape == (1, 1)
    assert total.flatten()[0] is total
    assert total.sum().index == total.index
    with pytest.raises(tg.DTypeError, match=r"numpy\.argsort"):
        total.argsort()
    assert tg.grad(lambda x: np.where(x > 0, x * x, 0.0))(3.0) == 6.0


# ---- accuracy and limits, against NumPy and mpmath -----------------------------------------------


def ulps(found: float, exact: Any) -> float:
    return float(abs(mpmath.mpf(found) - exact) / np.spacing(abs(float(exact))))


PAIRS = [(0.0, -50.0), (-50.0, 0.0), (1.0, 1.0), (-700.0, 700.0), (1e-3, -1e-3), (-3.0, -40.0)]


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_logaddexp_and_its_derivatives_are_accurate(a: float, b: float) -> None:
    x = tg.Graph().inputs(2)
    value, gradient = tg.compile(np.logaddexp(x[0], x[1]), wrt=x)([a, b])
    hessian = tg.hessian(lambda x: np.logaddexp(x[0], x[1]))([a, b])
    with mpmath.workdps(800):  # exp(-1400) counts beside 1
        first, second = mpmath.mpf(a), mpmath.mpf(b)
        share = 1 / (1 + mpmath.exp(second - first))
        assert ulps(value, mpmath.log(mpmath.exp(first) + mpmath.exp(second))) <= 4
        assert ulps(gradient[0], share) <= 8
        assert ulps(gradient[1], 1 - share) <= 8
        assert ulps(hessian[0, 0], share * (1 - share)) <= 16
        assert ulps(hessian[0, 1], -share * (1 - share)) <= 16


@pytest.mark.parametrize("a", [-np.inf, -1.0, np.inf, np.nan])
@pytest.mark.parametrize("b", [-np.inf, 2.0, np.inf, np.nan])
def test_logaddexp_at_infinities_is_numpys(a: float, b: float) -> None:
    x = tg.Graph().inputs(2)
    value, gradient = tg.compile(np.logaddexp(x[0], x[1]), wrt=x)([a, b])
    with np.errstate(invalid="ignore"):
        np.testing.assert_equal(value, np.logaddexp(a, b))
    assert gradient.sum() == 1.0
    assert np.all(gradient >= 0)


@pytest.mark.parametrize("x", [1000.0, -1000.5, 0.3, 1023.9, -1e-9, 52.1])
def test_exp2_is_accurate(x: float) -> None:
    program = tg.compile(np.exp2((v := tg.Graph().inputs(1))[0]), wrt=v)
    value, gradient = program([x])
    exact = mpmath.power(2, mpmath.mpf(x))
    assert ulps(value, exact) <= 4
    assert ulps(gradient[0], exact * mpmath.log(2)) <= 8


@pytest.mark.parametrize("n", [3, 49, 98, 103])
def test_the_mean_of_equal_numbers_is_that_number(n: int) -> None:
    x = tg.Graph().inputs(n)
    assert tg.compile(np.mean(x))(np.full(n, 7.0)) == 7.0


@pytest.mark.parametrize("sides", [{}, {"left": -5.0, "right": 9.0}])
def test_interp_keeps_nan(sides: dict[str, float]) -> None:
    at = np.array([np.nan, -1.0, 0.0, 0.25, 1.0, 2.0, 3.0, np.inf, -np.inf])
    knots, values = [0.0, 1.0, 2.0], [1.0, 5.0, -3.0]
    x: Any = tg.Graph().inputs(len(at))
    found = tg.compile(list(np.interp(x, knots, values, **sides)))(at)
    np.testing.assert_array_equal(found, np.interp(at, knots, values, **sides))
    y: Any = tg.Graph().inputs(3)
    mixed = np.interp(at, knots, y, **sides)
    vars_ = [each if isinstance(each, tg.Var) else y[0] * 0 + each for each in mixed]
    np.testing.assert_array_equal(tg.compile(vars_)(values), found)


# ---- arrays are recorded at once, and as their elements would be -------------------------------


@pytest.mark.parametrize(
    ("whole", "each"),
    [
        (lambda x, y: x - y, lambda a, b: a - b),
        (lambda x, y: x**2 + 3 / y, lambda a, b: a**2 + 3 / b),
        (tg.maximum, tg.maximum),
        (
            lambda x, y: tg.where(x > y, tg.exp(x), 0.5),
            lambda a, b: tg.where(a > b, tg.exp(a), 0.5),
        ),
    ],
)
def test_an_array_is_recorded_as_its_elements_are(whole: Function, each: Function) -> None:
    x, y = tg.Graph().inputs(12).reshape(2, 2, 3)
    for first, second in ((x, y), (x[:, ::-1], y[0]), (x.T, y.T), (x[:1], y[:, 1:2])):
        found = whole(first, second)
        pairs = np.broadcast(np.asarray(first), np.asarray(second))
        assert found.shape == pairs.shape
        assert type(found) is type(x)
        expected = [each(a, b).index for a, b in pairs]
        assert [var.index for var in found.ravel()] == expected


@pytest.mark.parametrize("dtype", ["float64", "float32", "int8", "uint64", "bool", ">f8", "object"])
def test_numbers_of_any_type_meet_an_array_of_vars(dtype: str) -> None:
    x = tg.Graph().inputs(3)
    numbers = np.array([1, 0, 1]).astype(dtype)
    program = tg.compile(list(numbers * x + x / 2))
    assert program([2.0, 3.0, 4.0]).tolist() == [3.0, 1.5, 6.0]


def test_numbers_among_vars_stay_numbers() -> None:
    x = tg.Graph().inputs(1)
    mixed = np.array([x[0], 2, 3.0, np.float32(4)], dtype=object).view(type(x))
    assert (mixed * 2)[1:].tolist() == [4.0, 6.0, 8.0]
    assert np.exp(mixed)[2] == tg.exp(3.0)


def test_an_element_that_runs_code_of_its_own_does_no_harm() -> None:
    class Clearing(int):
        def __float__(self) -> float:
            items[:] = 0.0
            return 1.0

    x = tg.Graph().inputs(2)
    items = np.array([x[0] * 2.5, Clearing(3), x[1] * 3.5], dtype=object)
    other = np.array([Clearing(1), x[0], Clearing(2)], dtype=object)
    assert len(tg.add(items, other)) == 3


def test_arrays_of_two_graphs_are_refused() -> None:
    x, y = tg.Graph().inputs(2), tg.Graph().inputs(2)
    with pytest.raises(tg.GraphError, match="two graphs"):
        x + y
    mixed = np.array([x[0], y[0]], dtype=object).view(type(x))
    doubled = mixed * 2  # each in its own
    assert [var.graph is home[0].graph for var, home in zip(doubled, (x, y), strict=True)]
    assert doubled[1].operands[1].graph is y[0].graph


def test_results_of_nothing_are_those_of_numpy() -> None:
    x = tg.Graph().inputs(3)[:0]
    for reduction in (np.sum, np.prod, np.add.reduce):
        found, wanted = reduction(x), reduction(np.empty(0))
        assert type(found) is type(wanted)
        assert found == wanted
    for shape, axis in (((0, 0), 0), ((0, 3), 0), ((3, 0), 1)):
        with pytest.raises(ValueError, match="zero-size"):
            np.max(np.empty(shape), axis=axis)
        with pytest.raises(ValueError, match="at least one operand"):
            np.max(x.reshape(shape), axis=axis)
    assert np.max(x.reshape(0, 3), axis=1).shape == np.max(np.empty((0, 3)), axis=1).shape == (0,)


@pytest.mark.parametrize("ufunc", [np.logical_and, np.logical_or, np.logical_xor])
def test_running_logic_is_true_or_false_from_the_first_on(ufunc: np.ufunc) -> None:
    numbers = np.array([-2.5, 0.0, 3.0, 0.0])
    for turned in (numbers, numbers[::-1]):
        x = tg.Graph().inputs(4)
        found = tg.compile(ufunc.accumulate(x))(turned)
        np.testing.assert_array_equal(found, ufunc.accumulate(turned))


def test_a_number_is_its_own_only_row() -> None:
    x: Any = tg.Graph().input()
    for axis in (0, -1, (), (0,)):
        assert tg.compile(np.sum(x * x, axis=axis))([3.0]) == 9.0
        assert tg.compile(np.max(x, axis=axis))([3.0]) == 3.0
    with pytest.raises(tg.ShapeError, match="axis 1"):
        np.sum(x, axis=1)


def test_arrays_like_others_may_have_no_dimensions() -> None:
    x: Any = tg.Graph().inputs(3)
    assert np.zeros_like(x, shape=()) == 0
    assert np.full_like(x, x[1], shape=()) is x[1]
    assert np.ones_like(x[:0], shape=(2,)).tolist() == [1, 1]
    assert np.resize(x[:0], 2).tolist() == [0, 0]
