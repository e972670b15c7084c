"""NumPy on arrays of Vars: the same source on numbers and on Vars, and what does not work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


#: Source that runs on arrays of numbers and of Vars alike.
SOURCES: dict[str, Function] = {
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
    "norm": lambda x, y: np.sqrt(np.sum(x * x)),
    "in place": _in_place,
    "angles": lambda x, y: np.deg2rad(x) + np.degrees(y),
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


def test_sums_are_single_nodes() -> None:
    g = tg.Graph()
    x: Any = g.inputs(100)
    assert np.sum(x).op == x.sum().op == "sum"
    assert (x @ x).op == "dot"
    assert np.prod(x).op == "prod"


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (np.linalg.norm, r"linalg\.norm"),
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
        (lambda x: np.interp(0.5, x, x), r"interp"),
        (np.unique, r"unique"),
        (lambda x: np.allclose(x, x), r"allclose"),
    ],
)
def test_what_does_not_work_is_named(call: Callable[[Any], Any], named: str) -> None:
    with pytest.raises(tg.DTypeError, match=named):
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
