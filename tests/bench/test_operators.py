"""The operators suite: what it covers, and that every framework's table does what it says."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import tapegrad
from tapegrad import bench, nn, worker
from tapegrad.bench.driver import Options, select
from tapegrad.bench.frameworks import find
from tapegrad.bench.guards import GUARDS
from tapegrad.bench.inputs import make_inputs
from tapegrad.bench.suites import operators
from tapegrad.worker.case import DTYPES, SIZES
from tapegrad.worker.operators import outputs_of
from tapegrad.worker.operators.numpy import OPERATORS as NUMPY

CASES = operators.SUITE.cases
TABLES = Path(worker.__file__).parent / "operators"
FRAMEWORKS = ("numpy", "torch", "jax", "tensorflow")
#: What only networks are made of: they carry statistics along.
OF_NETWORKS = {"batch_norm_training", "batch_norm_inference"}
#: The categories of MXNet's opperf that networks need; each must show what its attributes change.
OPPERF = (
    "unary", "binary", "reductions", "matrix products", "convolutions", "pooling", "norms",
    "activations", "softmax", "losses", "embedding", "gather and scatter", "sort", "top-k",
    "argmax", "concat", "split", "stack", "transpose", "reshape", "pad", "random sampling",
    "optimiser updates", "attention",
)  # fmt: skip
#: Calls that one operator of the suite stands for in several forms, which differ in attributes.
CONVOLUTION = "conv2d"


def elementwise(op: str) -> bool:
    """Ask NumPy's call: does a number of its outputs depend on the numbers in its place only?

    All inputs are of one shape, and so are all outputs; without the first row the rest is the
    same, whichever way rows and columns are cut.
    """
    case = next(case for case in CASES if (case.op, case.size) == (op, "small"))
    arrays = list(make_inputs(case, 0).values())
    shape = arrays[0].shape
    if case.random or any(array.shape != shape for array in arrays):
        return False
    call = partial(NUMPY[op], **case.attrs)
    outputs = outputs_of(call(*arrays))
    if any(np.shape(output) != shape for output in outputs):
        return False
    for axis in range(len(shape)):
        picked = np.random.default_rng(0).permutation(shape[axis])[: shape[axis] // 2]
        parts = [np.take(array, picked, axis) for array in arrays]
        for output, part in zip(outputs, outputs_of(call(*parts)), strict=True):
            whole = np.take(output, picked, axis)
            if whole.shape != part.shape or not np.allclose(whole, part, rtol=1e-5):
                return False
    return True


def table(framework: str) -> list[str]:
    """Read the names of a framework's table in their order, without importing the framework."""
    for statement in ast.parse((TABLES / f"{framework}.py").read_text()).body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id="OPERATORS"), value=ast.Dict(keys=keys)):
                return [key.value for key in keys if isinstance(key, ast.Constant)]  # type: ignore[misc]
    raise AssertionError(f"no table for {framework}")


def test_the_suite_is_broad() -> None:
    """Convolutions of one call, which differ in attributes only, count as one operator."""
    names = {case.op for case in CASES}
    assert len({CONVOLUTION if name.startswith(CONVOLUTION) else name for name in names}) >= 80
    found = {name for name in names if elementwise(name)}
    assert found >= {"exp", "add", "where", "clip", "adam"}
    assert found.isdisjoint({"softmax", "cumsum", "sort", "flip", "roll", "triu", "argsort"})
    assert len(found) <= 30


@pytest.mark.parametrize("category", OPPERF)
def test_every_category_has_two_variants_or_more_of_an_operator(category: str) -> None:
    """Variants differ in attributes, or, where there are none, in how inputs are shaped."""
    variants = defaultdict(set)
    for case in operators.CATEGORIES[category]():
        if case.size == SIZES[0]:
            ranks = tuple(tuple(side > 1 for side in array.shape) for array in case.inputs)
            shapes = () if case.attrs else ranks
            variants[case.op].add((tuple(case.attrs.items()), shapes))
    assert max(map(len, variants.values())) >= 2


def test_every_case_has_one_category() -> None:
    listed = [case.key for cases in operators.CATEGORIES.values() for case in cases()]
    assert Counter(listed) == Counter(case.key for case in CASES)
    homes = [{case.op for case in cases()} for cases in operators.CATEGORIES.values()]
    assert sum(map(len, homes)) == len(set[str]().union(*homes))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_case_can_be_asked_for_in_both_types(dtype: str) -> None:
    chosen = select(operators.SUITE, Options("operators", dtype=dtype))
    assert len(chosen) == len(CASES) and {case.dtype for case in chosen} == {dtype}
    assert all(not list(case.flaws()) for case in chosen)


def test_every_case_comes_in_four_sizes_and_once() -> None:
    sizes: dict[str, Counter[str]] = defaultdict(Counter)
    for case in CASES:
        sizes[case.op][case.size] += 1
    for op, found in sizes.items():
        assert set(found) == set(SIZES), op
        assert len(set(found.values())) == 1, op
    assert len({case.key for case in CASES}) == len(CASES)


def test_forward_only_cases_ask_for_no_gradients() -> None:
    assert all((case.phases == ("forward",)) == (not case.wrt) for case in CASES)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_tables_have_one_order_and_no_strangers(framework: str) -> None:
    names = {case.op for case in CASES} | OF_NETWORKS
    assert set(table(framework)) <= names
    assert table(framework) == [name for name in table("torch") if name in table(framework)]
    assert set(table("torch")) == names == set(table("numpy"))
    assert len(set(table(framework)) - OF_NETWORKS) >= 100


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_operator_is_checked_in_every_framework(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    """One case per operator in float64, all of them in float32; tests/frameworks has the others.

    Only results are looked at here: what the clock says is the subject of other tests.
    """
    kept = {name: GUARDS[name] for name in ("values", "meaning", "dependence")}
    monkeypatch.setattr("tapegrad.bench.given.GUARDS", kept)
    frameworks = ["numpy", "torch", "jax"]
    small = [case for case in CASES if case.size == "small"]
    firsts = {case.op: case for case in reversed(small)}
    suite = bench.Suite(
        "operators", "", tuple(small if dtype == "float32" else reversed(firsts.values()))
    )
    results = bench.run(
        suite,
        frameworks=frameworks,
        dtype=dtype,
        store=tmp_path / "results.sqlite",
        processes=1,
        rounds=1,
        block=0.001,
    )
    ops = {key: case.op for key, case in results.case_by_key().items()}
    unsupported = {cell.framework: set[str]() for cell in results.cells}
    for cell in results.cells:
        if cell.verdict == "unsupported":
            if (cell.framework, cell.phase) != ("numpy", "backward"):
                unsupported[cell.framework].add(ops[cell.case])
        else:
            assert cell.verdict == "checked", (ops[cell.case], cell)
    expected = {name: set(table("torch")) - set(table(name)) for name in frameworks}
    assert unsupported == expected


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_kernels_need_not_be_square(
    framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {name: GUARDS[name] for name in ("values", "meaning")}
    monkeypatch.setattr("tapegrad.bench.given.GUARDS", kept)
    results = bench.run(
        "operators",
        frameworks=["numpy", framework],
        filter=["conv2d", "conv_transpose2d"],
        shape=["x=2x4x8x7,weight=4x4x3x5,bias=4"],
        store=tmp_path / "results.sqlite",
        processes=1,
        rounds=1,
        block=0.001,
    )
    found = [(cell.framework, cell.phase, cell.verdict) for cell in results.cells]
    assert found.count((framework, "forward", "checked")) == 3  # two strides of the transposed one
    assert found.count((framework, "backward", "checked")) == 3


def test_where_is_given_flags_and_compares_nothing() -> None:
    """A mask that each framework first made of numbers would be timed with the selection."""
    for case in CASES:
        if case.op == "where":
            mask, x, y = make_inputs(case, 0).values()
            assert (mask.dtype == bool and 0 < mask.mean() < 1) or mask.size == 1
            assert case.inputs[0].nbytes("float64") == mask.nbytes
            assert (NUMPY["where"](mask, x, y) == np.where(mask, x, y)).all()
    for framework in ("numpy", "torch", "jax", "tensorflow", "tapegrad"):
        text = (TABLES / f"{framework}.py").read_text()
        assert "lambda mask, x, y" not in text


def test_tapegrad_has_a_call_or_names_the_one_it_lacks() -> None:
    from tapegrad.worker.operators.tapegrad import MISSING, OPERATORS

    names = {case.op for case in CASES} | OF_NETWORKS
    assert set(OPERATORS) | set(MISSING) == names
    assert set(OPERATORS).isdisjoint(MISSING)
    lacking = {name for words in MISSING.values() for name in re.findall(r"no (\w+)$", words)}
    assert len(lacking) > 10
    for name in lacking:
        assert not hasattr(nn, name) and not hasattr(nn.functional, name), name


def test_what_tapegrad_can_do_is_what_numpy_does() -> None:
    """The operators of its table that no other test of this folder runs."""
    from tapegrad.worker.adapters.tapegrad import Tapegrad

    adapter = Tapegrad("cpu", 1)
    wanted = ("split", "scatter_add", "pad", "rmsprop", "adam", "where")
    seen = set()
    for case in CASES:
        if case.size != "small" or case.op not in wanted or case.attrs.get("mode") == "reflect":
            continue
        arrays = make_inputs(case, 0)
        work = adapter.prepare(case, arrays)
        found = work.arrays("inference", work.phases["inference"].call())
        expected = outputs_of(NUMPY[case.op](*arrays.values(), **case.attrs))
        for output, right in zip(found.values(), expected, strict=True):
            np.testing.assert_allclose(output, right, rtol=1e-5, atol=1e-6)
        seen.add(case.op)
    assert seen == set(wanted)


def test_reshaped_arrays_are_copies() -> None:
    """A view takes no time: beside those of frameworks that copy its ratio would say nothing."""
    from tapegrad.worker.operators.tapegrad import OPERATORS

    x = np.arange(6.0).reshape(2, 3)
    assert not np.shares_memory(x, NUMPY["reshape"](x, shape=(3, 2)))
    tensor = tapegrad.tensor(x)
    reshaped = OPERATORS["reshape"](tensor, shape=(3, 2))
    assert not np.shares_memory(tensor.numpy(), reshaped.numpy())
    assert reshaped.tolist() == x.reshape(3, 2).tolist()


COPIED = {
    "torch": "x = torch.ones(6); y = OPERATORS['reshape'](x, shape=(3, 2));"
    "print(x.data_ptr() != y.data_ptr())",
    "tensorflow": "x = tf.ones(6); y = tf.function(OPERATORS['reshape'])(x, shape=(3, 2));"
    "print(x._numpy().ctypes.data != y._numpy().ctypes.data)",
    "mxnet": "x = nd.ones(6); y = OPERATORS['reshape'](x, shape=(3, 2)); y[:] = 5;"
    "print(x.asnumpy().max() == 1)",
}


@pytest.mark.parametrize("framework", COPIED)
def test_reshaped_tensors_are_copies(framework: str, tmp_path: Path) -> None:
    python = find(framework).interpreter()
    if python is None:
        assert framework != "torch"
        pytest.skip(f"{framework} is not installed")
    (tmp_path / "tapegrad").symlink_to(Path(worker.__file__).parents[1])
    table = f"from tapegrad.worker.operators.{framework} import *;"
    found = subprocess.run(
        [python, "-c", table + COPIED[framework]],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == "True"
