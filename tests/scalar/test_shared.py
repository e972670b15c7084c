"""Program.batch with shared inputs and sums over rows, against NumPy and against plain batches."""

from __future__ import annotations

import doctest
import gc
import inspect
import math
import time
from collections import UserDict
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import tapegrad as tg

Array = NDArray[Any]
PARAMETERS = np.array([1.3, 0.7, -0.4])


def model(a: Any, b: Any, c: Any, t: Any) -> Any:
    return a * np.exp(-b * t) + c


def fit(dtype: str = "float64") -> tuple[tg.Program, Any]:
    """Squared errors of a decay, by its parameters; and all its inputs."""
    g = tg.Graph()
    a, b, c = (g.input(name) for name in "abc")
    t, y = g.input("t"), g.input("y")
    return tg.compile((model(a, b, c, t) - y) ** 2, wrt=[a, b, c], dtype=dtype), (a, b, c, t, y)


def data(rows: int, dtype: str = "float64") -> Array:
    rng = np.random.default_rng(rows)
    t = rng.uniform(0, 3, rows)
    return np.stack([t, model(1.5, 0.9, -0.2, t) + 0.1 * rng.normal(size=rows)], 1).astype(dtype)


def by_numpy(parameters: Array, rows: Array) -> tuple[float, Array]:
    """The sum of squared errors and its gradient, in extended precision."""
    a, b, c = parameters.astype(np.longdouble)
    t, y = rows.astype(np.longdouble).T
    decay = np.exp(-b * t)
    error = a * decay + c - y
    slopes = np.stack([decay, -a * t * decay, np.ones_like(t)])
    return float(np.sum(error**2)), (2 * slopes @ error).astype(float)


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 255, 256, 257, 1023, 1024, 1025, 5000])
def test_sums_are_those_of_numpy(rows: int, isa: str) -> None:
    value, gradient = fit()[0].batch(data(rows), shared=PARAMETERS, reduce="sum")
    wanted, slopes = by_numpy(PARAMETERS, data(rows))
    assert isinstance(value, float)
    assert value == pytest.approx(wanted, rel=1e-13)
    np.testing.assert_allclose(gradient, slopes, rtol=1e-11, atol=1e-11 * max(rows, 1))


@pytest.mark.parametrize("rows", [1, 300, 3000])
def test_means_are_sums_by_the_number_of_rows(rows: int) -> None:
    program, _ = fit()
    value, gradient = program.batch(data(rows), shared=PARAMETERS, reduce="sum")
    mean, slopes = program.batch(data(rows), shared=PARAMETERS, reduce="mean")
    assert mean == pytest.approx(value / rows, rel=1e-15)
    np.testing.assert_allclose(slopes, gradient / rows, rtol=1e-15)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("rows", [3, 1000, 40_000])
def test_bits_of_sums_do_not_depend_on_threads_or_strides(dtype: str, rows: int) -> None:
    program, _ = fit(dtype)
    x = data(rows, dtype)
    want, slopes = program.batch(x, threads=1, shared=PARAMETERS, reduce="sum")
    spread = np.zeros((2 * rows, 5), dtype)
    spread[::2, 1:4:2] = x
    for given_rows, threads in (
        (x, 2),
        (x, 7),
        (x, None),
        (np.asfortranarray(x), 3),
        (spread[::2, 1:4:2], 2),
    ):
        value, gradient = program.batch(
            given_rows, threads=threads, shared=PARAMETERS, reduce="sum"
        )
        assert value == want
        np.testing.assert_array_equal(gradient, slopes)


@pytest.mark.parametrize("rows", [0, 1, 9, 700])
def test_shared_inputs_give_the_bits_of_columns(rows: int, isa: str) -> None:
    program, _ = fit()
    x = data(rows)
    got, slopes = program.batch(x, shared=PARAMETERS)
    wanted, gradients = program.batch(np.hstack([np.tile(PARAMETERS, (rows, 1)), x]))
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(slopes, gradients)


def test_inputs_are_shared_by_place_name_and_var() -> None:
    program, (a, b, c, *_) = fit()
    x = data(20)
    want = program.batch(x, shared=PARAMETERS, reduce="sum")
    values = PARAMETERS.tolist()
    by_all: list[list[Any]] = [["a", "b", "c"], [0, 1, 2], [a, b, c], ["a", 1, c], [*np.arange(3)]]
    for keys in by_all:
        got = program.batch(x, shared=dict(zip(keys, values, strict=True)), reduce="sum")
        assert got[0] == want[0]
        np.testing.assert_array_equal(got[1], want[1])


def test_any_mapping_will_do() -> None:
    program, _ = fit()
    values = dict(zip("abc", PARAMETERS.tolist(), strict=True))
    want = program.batch(data(20), shared=values, reduce="sum")
    for mapping in (MappingProxyType(values), UserDict(values)):
        assert program.batch(data(20), shared=mapping, reduce="sum")[0] == want[0]


def test_others_keep_their_order() -> None:
    x = tg.Graph().inputs(4)
    program = tg.compile(x[0] + 10 * x[1] + 100 * x[2] + 1000 * x[3])
    rows = [[1.0, 2.0], [3.0, 4.0]]
    assert program.batch(rows, shared={1: 5.0, 3: 7.0}).tolist() == [7251.0, 7453.0]
    assert program.batch(np.zeros((3, 0)), shared=[1, 2, 3, 4]).tolist() == [4321.0] * 3


def test_programs_from_files_know_names_and_places_but_no_vars() -> None:
    program, (a, *_) = fit()
    again = tg.Program.from_bytes(program.to_bytes())
    x = np.zeros((2, 4))
    np.testing.assert_array_equal(
        again.batch(x, shared={"a": 1.0})[0], program.batch(x, shared={a: 1.0})[0]
    )
    with pytest.raises(tg.OptionError, match="names and places"):
        again.batch(x, shared={a: 1.0})


def test_a_program_outlives_its_graph() -> None:
    program, _ = fit()
    gc.collect()
    other = tg.Graph().input("a")
    with pytest.raises(tg.OptionError, match="none of them"):
        program.batch(np.zeros((2, 4)), shared={other: 1.0})


def test_several_outputs_have_their_sums_and_the_jacobian_of_these() -> None:
    g = tg.Graph()
    p, t = g.input(), g.input()
    program = tg.compile([p * t, p**2 + t], wrt=[p])
    t_values = np.linspace(0, 1, 50)
    values, jacobian = program.batch(t_values[:, None], shared=[3.0], reduce="sum")
    np.testing.assert_allclose(values, [3 * t_values.sum(), 450 + t_values.sum()], rtol=1e-14)
    np.testing.assert_allclose(jacobian, [[t_values.sum()], [300.0]], rtol=1e-14)


def test_values_without_derivatives_are_summed_by_columns_too() -> None:
    x = tg.Graph().inputs(2)
    program = tg.compile(x[0] * x[1])
    assert program.batch([[1.0, 2.0], [3.0, 4.0]], reduce="sum") == 14.0
    assert program.batch([[1.0, 2.0], [3.0, 4.0]], reduce="mean") == 7.0
    assert program.batch(np.zeros((0, 2)), reduce="sum") == 0.0


def test_results_go_where_out_says() -> None:
    program, _ = fit()
    out = np.empty(()), np.empty(3)
    value, gradient = program.batch(data(100), shared=PARAMETERS, reduce="sum", out=out)
    assert value is out[0]
    assert gradient is out[1]
    want = program.batch(data(100), shared=PARAMETERS, reduce="sum")
    assert float(out[0]) == want[0]
    np.testing.assert_array_equal(out[1], want[1])
    with pytest.raises(tg.ShapeError, match="out"):
        program.batch(data(4), shared=PARAMETERS, reduce="sum", out=(np.empty(4), np.empty((4, 3))))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_in_a_row_or_parameter_shows(bad: float) -> None:
    program, _ = fit()
    x = data(2000)
    x[1234, 1] = bad
    assert not math.isfinite(program.batch(x, shared=PARAMETERS, reduce="sum")[0])
    assert not math.isfinite(program.batch(data(9), shared=[bad, 1, 1], reduce="sum")[0])


@given(
    st.integers(0, 3000),
    st.lists(st.floats(-2, 2), min_size=3, max_size=3),
    st.integers(1, 5),
)
@settings(max_examples=40, deadline=None)
def test_sums_are_those_of_rows(rows: int, parameters: list[float], threads: int) -> None:
    program, _ = fit()
    value, gradient = program.batch(data(rows), threads=threads, shared=parameters, reduce="sum")
    values, gradients = program.batch(data(rows), shared=parameters)
    assert value == pytest.approx(math.fsum(values), rel=1e-13)
    scale = np.abs(gradients).sum(axis=0)
    np.testing.assert_allclose(
        gradient, gradients.sum(axis=0), rtol=0, atol=1e-13 * scale.max(initial=1)
    )


def test_the_example_runs() -> None:
    example = doctest.DocTestParser().get_doctest(
        inspect.getdoc(tg.Program.batch) or "", {}, "batch", None, 0
    )
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0


# ---- what depends on shared inputs alone -------------------------------------------------------


def sums_of_products(p: Any, t: Any) -> Any:
    product = p[0] * p[1]
    return tg.sum([t[0], product, p[2] * p[3], t[1], p[0] * t[0]]) + tg.exp(product) * t[1]


def weights(p: Any, t: Any) -> Any:
    share = tg.softmax(list(p))
    return tg.dot(share, [t[0], t[1], t[0] * t[1], tg.exp(t[0])]) + share[0] * share[1]


def shares_of_shares(p: Any, t: Any) -> Any:
    share = tg.softmax([p[0], p[1]])
    again = tg.softmax([p[0], share[1], share[0]])
    return (again[0] + t[0]) * share[1]


def angles(p: Any, t: Any) -> Any:
    return tg.sin(p[0]) * t[0] + tg.cos(p[0]) * t[1] + tg.softplus(p[1] * p[2]) * tg.sigmoid(p[3])


def long_sums(p: Any, t: Any) -> Any:
    terms = [tg.exp(p[i % 4] * (i + 1) / 20) for i in range(50)]
    return tg.sum(terms) * t[0] + tg.sum([term * t[1] for term in terms[::3]])


def branches(p: Any, t: Any) -> Any:
    return tg.where(p[0] > t[0], tg.log(p[0] * p[0]), p[1]) / tg.max([p[2], p[3], t[1]])


def nothing_else(p: Any, t: Any) -> Any:
    return tg.exp(p[0]) * p[1] + p[2] / p[3]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "function",
    [sums_of_products, weights, shares_of_shares, angles, long_sums, branches, nothing_else],
)
def test_bits_are_those_of_columns_in_all_kinds_of_sums(
    function: Any, dtype: str, isa: str
) -> None:
    g = tg.Graph()
    p, t = g.inputs(4), g.inputs(2)
    value = function(p, t)
    rng = np.random.default_rng(0)
    shared, x = rng.uniform(0.2, 1.2, 4), rng.uniform(0.1, 2, (3000, 2)).astype(dtype)
    whole = np.hstack([np.tile(shared, (3000, 1)), x]).astype(dtype)
    for outputs in (value, [value, tg.exp(p[1]), p[2], value * t[0]]):
        program = tg.compile(outputs, wrt=p, dtype=dtype)
        for got, wanted in zip(program.batch(x, shared=shared), program.batch(whole), strict=True):
            np.testing.assert_array_equal(got, wanted)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_bits_are_those_of_columns_in_random_graphs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    g = tg.Graph()
    nodes = list(g.inputs(6))
    for _ in range(60):
        a, b, c = (nodes[i] for i in rng.integers(0, len(nodes), 3))
        kinds = [a + b, a * b, tg.sum([a, b, c, a * c]), tg.tanh(a), tg.softplus(b), a * b + c]
        nodes += [kinds[rng.integers(len(kinds))]] if rng.random() < 0.9 else tg.softmax([a, b, c])
    program = tg.compile(tg.tanh(tg.sum(nodes)), wrt=nodes[:4])
    check_bits_of_columns(program, rng)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
def test_bits_are_those_of_columns_where_shares_are_shared(seed: int) -> None:
    rng = np.random.default_rng(seed)
    g = tg.Graph()
    nodes, (t, u) = list(g.inputs(4)), g.inputs(2)
    for _ in range(4):
        a, b, c = (nodes[i] for i in rng.integers(0, len(nodes), 3))
        nodes += tg.softmax([a, b, c]) if rng.random() < 0.8 else [tg.tanh(a * b)]
    picked = [nodes[i] for i in rng.integers(0, len(nodes), 4)]
    outcome = (picked[0] + t) * picked[1] + picked[2] * picked[3] * u
    check_bits_of_columns(tg.compile(outcome, wrt=nodes[:4]), rng)


def check_bits_of_columns(program: tg.Program, rng: np.random.Generator) -> None:
    """Four inputs that all rows share, and two of their own: in columns, the bits are the same."""
    shared, x = rng.normal(size=4), rng.normal(size=(1500, 2))
    for got, wanted in zip(
        program.batch(x, shared=shared),
        program.batch(np.hstack([np.tile(shared, (1500, 1)), x])),
        strict=True,
    ):
        np.testing.assert_array_equal(got, wanted)


def test_what_all_rows_share_is_computed_once() -> None:
    g = tg.Graph()
    p, t = g.input(), g.input()
    program = tg.compile(tg.sum([tg.exp(p * i) for i in range(1000)]) * t)
    x = np.ones((20_000, 1))

    def seconds(rows: Any, shared: Any) -> float:
        times = []
        for _ in range(3):
            begin = time.perf_counter()
            program.batch(rows, threads=1, shared=shared, reduce="sum")
            times.append(time.perf_counter() - begin)
        return min(times)

    assert seconds(x, [0.1]) * 5 < seconds(np.hstack([x, x]), None)


def test_threads_may_share_a_program_that_is_split_for_the_first_time() -> None:
    g = tg.Graph()
    p, t = g.inputs(3), g.input()
    x = np.linspace(0, 1, 5000)[:, None]
    program = tg.compile(tg.exp(p[0]) * tg.sin(t * tg.exp(p[1])) + tg.exp(p[2]), wrt=p)
    want = tg.compile(tg.exp(p[0]) * tg.sin(t * tg.exp(p[1])) + tg.exp(p[2]), wrt=p).batch(
        x, shared=[0.1, 0.2, 0.3], reduce="sum"
    )
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(
            lambda _: program.batch(x, shared=[0.1, 0.2, 0.3], reduce="sum"), range(32)
        )
    for value, gradient in found:
        assert value == want[0]
        np.testing.assert_array_equal(gradient, want[1])


@pytest.mark.parametrize("reduce", [None, "sum"])
def test_frozen_branches_on_shared_inputs_are_checked(reduce: Any) -> None:
    g = tg.Graph(branches="freeze")
    p, t = g.input(value=1.0), g.input(value=1.0)
    value = tg.exp(p) * t if p > 0 else t
    program = tg.compile(value, wrt=[p])
    program.batch(np.ones((5000, 1)), shared=[2.0], reduce=reduce)
    with pytest.raises(tg.BranchChanged, match="branch") as caught:
        program.batch(np.ones((5000, 1)), shared=[-1.0], reduce=reduce)
    assert caught.value.rows == list(range(5000))


# ---- arguments ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"shared": {"z": 1.0}}, tg.OptionError, "no input named 'z'"),
        ({"shared": {5: 1.0}}, tg.OptionError, "places from 0"),
        ({"shared": {-1: 1.0}}, tg.OptionError, "places from 0"),
        ({"shared": {10**30: 1.0}}, IndexError, "fit"),
        ({"shared": {1.5: 1.0}}, tg.DTypeError, "names, Vars or places"),
        ({"shared": {"a": "1"}}, tg.DTypeError, "a number for each input"),
        ({"shared": {"a": 1.0, 0: 2.0}}, tg.OptionError, "given twice"),
        ({"shared": [1.0] * 6}, tg.ShapeError, "at most 5"),
        ({"shared": 1.0}, tg.ShapeError, "1 dimension"),
        ({"shared": [[1.0]]}, tg.ShapeError, "1 dimension"),
        ({"shared": ["a"]}, tg.DTypeError, "real numbers"),
        ({"shared": [1.0, 2.0]}, tg.ShapeError, "2 are shared; expected rows of the other 3"),
        ({"shared": PARAMETERS, "reduce": "max"}, tg.OptionError, "reduce"),
        ({"shared": PARAMETERS, "reduce": 1}, tg.OptionError, "reduce"),
        ({"shared": PARAMETERS, "threads": 0}, tg.OptionError, "threads"),
    ],
)
def test_wrong_arguments_raise(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        fit()[0].batch(data(4), **options)


def test_derivatives_by_columns_are_not_summed() -> None:
    x = tg.Graph().inputs(2)
    program = tg.compile(x[0] * x[1], wrt=x)
    with pytest.raises(tg.GradError, match="input 1, which differs from row to row"):
        program.batch([[1.0]], shared=[2.0], reduce="sum")
    inner = x[0] * 2
    with pytest.raises(tg.GradError, match="no input"):
        tg.compile(inner * x[1], wrt=[inner]).batch([[1.0, 2.0]], reduce="sum")


def test_there_is_no_mean_of_no_rows() -> None:
    with pytest.raises(tg.ShapeError, match="at least one row"):
        fit()[0].batch(data(0), shared=PARAMETERS, reduce="mean")


def test_names_that_several_inputs_have_are_refused() -> None:
    g = tg.Graph()
    x, y = g.input("x"), g.input("x")
    with pytest.raises(tg.OptionError, match="several inputs"):
        tg.compile(x * y).batch([[1.0]], shared={"x": 1.0})


def test_a_number_that_changes_the_dict_does_no_harm() -> None:
    class Sly:
        def __float__(self) -> float:
            shared.clear()
            return 1.0

    shared: Any = {"a": Sly(), "b": 2.0, "c": 3.0}
    with pytest.raises(tg.DTypeError):
        fit()[0].batch(data(4), shared=shared)
