"""`bench.measure`: a user's own functions."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tapegrad as tg
from tapegrad import bench
from tapegrad.bench.frameworks import find

Floats = NDArray[np.float64]

X = np.random.default_rng(0).standard_normal((16, 16))


def spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def fast(x: Floats) -> Floats:
    spin(2e-4)
    return np.tanh(x)


def slow(x: Floats) -> Floats:
    spin(4e-4)
    return 1 - 2 / (np.exp(2 * x) + 1)


def test_a_ratio_with_its_interval(tmp_path: Path) -> None:
    result = bench.measure({"mine": fast, "theirs": slow}, X, rounds=5)
    ratio = result.ratio("theirs", "mine")
    assert ratio.low is not None and ratio.high is not None
    assert 1.7 < ratio.low <= ratio.value <= ratio.high < 2.2 and ratio.verdict == "slower"
    assert result.verdict("mine") == result.verdict("theirs") == "checked"
    assert result.time("mine") == pytest.approx(2.1e-4, rel=0.2)
    table = str(result)
    assert "mine" in table and "theirs" in table
    result.save(tmp_path / "x.json")
    saved = json.loads((tmp_path / "x.json").read_text())
    assert len(saved["blocks"]) == 10 and saved["blocks"][0]["samples"]


def test_functions_that_differ_get_no_time() -> None:
    result = bench.measure({"mine": fast, "theirs": lambda x: np.tanh(x) * 1.001}, X, rounds=2)
    assert result.verdict("mine") == result.verdict("theirs") == "wrong"
    with pytest.raises(bench.BenchError, match="disagree"):
        result.ratio("theirs", "mine")
    assert "wrong" in str(result)


def test_a_function_that_ignores_its_input_gets_no_time() -> None:
    result = bench.measure({"a": lambda x: np.arange(3.0), "b": lambda x: np.arange(3.0)}, X)
    assert result.verdict("a") == "mistrusted"


def test_gradients_of_functions_that_return_them() -> None:
    ours = tg.value_and_grad(lambda x: tg.sum(tg.exp(x) * x))

    def theirs(x: Floats) -> tuple[np.float64, Floats]:
        return np.sum(np.exp(x) * x), np.exp(x) * (1 + x)

    result = bench.measure({"ours": ours, "theirs": theirs}, X[0], backward=True, rounds=2)
    assert result.verdict("ours", "step") == "checked"
    assert result.verdict("ours", "backward") == "joint"
    assert result.ratio("theirs", "ours").value > 0


def test_a_wrong_gradient_is_seen() -> None:
    def right(x: Floats) -> tuple[np.float64, Floats]:
        return np.sum(x**2), 2 * x

    def wrong(x: Floats) -> tuple[np.float64, Floats]:
        return np.sum(x**2), 2.01 * x

    result = bench.measure({"right": right, "wrong": wrong}, X[0], backward=True, rounds=2)
    assert result.verdict("wrong", "step") == "wrong"
    assert result.verdict("wrong") == "wrong"


def test_one_function_alone_is_unconfirmed() -> None:
    assert bench.measure({"mine": fast}, X, rounds=2).verdict("mine") == "unconfirmed"


def test_several_inputs_by_name_or_in_order() -> None:
    for inputs in ([X, X + 1], {"a": X, "b": X + 1}):
        result = bench.measure(
            {"f": lambda a, b: a @ b, "g": lambda a, b: np.einsum("ij,jk->ik", a, b)},
            inputs,
            rounds=2,
        )
        assert result.verdict("g") == "checked"


def test_a_function_that_raises_is_failed() -> None:
    def broken(x: Floats) -> Floats:
        raise ValueError("no")

    result = bench.measure({"mine": fast, "broken": broken}, X, rounds=2)
    assert result.verdict("broken") == "failed" and result.verdict("mine") == "unconfirmed"


def test_a_function_that_exits_is_failed() -> None:
    def leaves(x: Floats) -> Floats:
        raise SystemExit(3)

    result = bench.measure({"mine": fast, "leaves": leaves}, X, rounds=2)
    assert result.verdict("leaves") == "failed" and result.verdict("mine") == "unconfirmed"


def test_where_all_raise_each_is_failed_with_its_own_reason() -> None:
    def first(x: Floats) -> Floats:
        raise ValueError("this one")

    def second(x: Floats) -> Floats:
        raise ValueError("the other")

    found = bench.measure({"first": first, "second": second}, X, rounds=2).results.cells
    assert [(cell.verdict, cell.reason) for cell in found] == [
        ("failed", "ValueError: this one"),
        ("failed", "ValueError: the other"),
    ]


@pytest.mark.parametrize("discrete", [np.argmax, np.argsort, np.round, np.sign])
def test_results_that_a_small_change_does_not_change_are_measured(discrete: Any) -> None:
    x = np.random.default_rng(0).standard_normal((8, 8))
    result = bench.measure({"a": discrete, "b": discrete}, x, rounds=2)
    assert result.verdict("a") == result.verdict("b") == "checked"


def _entropy(p: Floats) -> float:
    if abs(p.sum() - 1) > 1e-12:
        raise ValueError("probabilities sum to one")
    return float(-(p * np.log(p)).sum())


def _solve_lower(a: Floats, b: Floats) -> Any:
    return np.linalg.solve(np.tril(a), b)


SYMMETRIC: Floats = X @ X.T + 16 * np.eye(16)
DEMANDING: dict[str, tuple[Any, Any, list[Any]]] = {
    "symmetric": (lambda a: np.sort(np.linalg.eigvals(a).real), np.linalg.eigvalsh, [SYMMETRIC]),
    "triangular": (np.linalg.solve, _solve_lower, [np.linalg.cholesky(SYMMETRIC), X]),
    "sorted": (
        lambda a, b: np.sort(np.concatenate([a, b])),
        lambda a, b: np.insert(a, np.searchsorted(a, b), b),
        [np.linspace(0.0, 1.0, 500), np.linspace(-1.0, 2.0, 500)],
    ),
    "a sum of one": (
        lambda p, q: (p * np.log(p / q)).sum(),
        lambda p, q: (p * np.log(p / q) + q - p).sum(),
        [np.arange(1, 5) / 10, np.array([0.4, 0.2, 0.2, 0.2])],
    ),
    "one that is demanded": (_entropy, lambda p: -(p @ np.log(p)), [np.arange(1, 5) / 10]),
}


@pytest.mark.parametrize(("first", "second", "inputs"), DEMANDING.values(), ids=DEMANDING)
def test_functions_that_need_a_structure_of_their_inputs(
    first: Any, second: Any, inputs: list[Any]
) -> None:
    result = bench.measure({"one": first, "two": second}, inputs, rounds=2)
    assert result.verdict("one") == result.verdict("two") == "checked"
    assert "multiples or mixtures of them" in str(result).replace("\n  ", " ")


def test_functions_that_agree_at_one_place_alone_differ() -> None:
    result = bench.measure({"one": np.sin, "two": lambda x: np.sin(x) + (x[0, 0] != X[0, 0])}, X)
    assert result.verdict("one") == result.verdict("two") == "wrong"


def test_a_function_may_have_several_outputs() -> None:
    first = {"a": lambda x: (x + 1, x.sum()), "b": lambda x: [1 + x, np.sum(x)]}
    result = bench.measure(first, X, rounds=2)
    assert result.verdict("a") == result.verdict("b") == "checked"
    result = bench.measure(first | {"c": lambda x: (x + 1, x.sum() + 1e-3)}, X, rounds=2)
    assert "output1" in next(c.reason for c in result.results.cells if c.framework == "c")


@pytest.mark.parametrize("value", [np.full(3, np.nan), np.full(3, np.inf), np.empty(0)])
def test_functions_that_compute_nothing_get_no_time(value: Floats) -> None:
    result = bench.measure({"a": lambda x: value + 0, "b": lambda x: value * 1}, X)
    assert result.verdict("a") == result.verdict("b") == "mistrusted"


def test_a_result_that_is_partly_no_number_must_depend_on_the_input() -> None:
    value = np.array([1.0, np.nan, 2.0])
    result = bench.measure({"a": lambda x: value + 0, "b": lambda x: value * 1}, X)
    assert result.verdict("a") == "mistrusted"


@pytest.mark.parametrize(
    ("contenders", "inputs", "message"),
    [
        ({}, X, "at least one function"),
        ({"f": fast}, np.arange(3), "float32 or float64"),
        ({"f": fast}, X.astype(np.longdouble), "none of another floating type"),
        ({"f": fast}, [X, X.astype(np.float16)], "x1 of float16"),
    ],
)
def test_wrong_use(contenders: dict[str, object], inputs: object, message: str) -> None:
    with pytest.raises(bench.BenchError, match=message):
        bench.measure(contenders, inputs)  # type: ignore[arg-type]


def test_unknown_names_are_met_with_the_known_ones() -> None:
    result = bench.measure({"mine": fast}, X, rounds=2)
    with pytest.raises(bench.BenchError, match="mine"):
        result.time("mime")
    with pytest.raises(bench.BenchError, match="framework"):
        bench.measure({"mine": bench.Function(fast, "tourch")}, X)


def test_a_fault_in_float32_alone_is_seen() -> None:
    """A thousandth is far beyond rounding, also where a million elements come in."""
    x = np.random.default_rng(0).standard_normal((1024, 1024)).astype(np.float32)

    def faulty(x: NDArray[np.floating]) -> NDArray[np.floating]:
        result: NDArray[np.floating] = np.tanh(x)
        return result * x.dtype.type(1.001) if x.dtype == np.float32 else result

    result = bench.measure({"right": np.tanh, "faulty": faulty}, x, rounds=2)
    assert result.verdict("faulty") == "wrong" and result.verdict("right") == "checked"


def test_functions_of_float32_alone_are_compared_in_it() -> None:
    x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)

    def narrow(x: NDArray[np.floating]) -> NDArray[np.floating]:
        if x.dtype != np.float32:
            raise TypeError("float32 only")
        return x @ x

    result = bench.measure({"a": narrow, "b": lambda x: narrow(x) * 1.0}, x, rounds=2)
    assert result.verdict("a") == result.verdict("b") == "checked"


def test_inputs_of_zeros_are_varied_too() -> None:
    result = bench.measure({"a": np.cos, "b": lambda x: np.sin(x + np.pi / 2)}, np.zeros((4, 4)))
    assert result.verdict("a") == "mistrusted"  # constant: cos(0) everywhere
    result = bench.measure({"a": np.sinh, "b": lambda x: (np.exp(x) - np.exp(-x)) / 2}, X * 0 + X)
    assert result.verdict("a") == "checked"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"contenders": {"f": 3}}, "a name and a function"),
        ({"contenders": [fast]}, "at least one function"),
        ({"rounds": 0}, "rounds must be a whole number of 1 or more, not 0"),
        ({"rounds": "3"}, "rounds must be a whole number of 1 or more, not '3'"),
        ({"rounds": 2.5}, "rounds must be a whole number of 1 or more, not 2.5"),
        ({"rounds": True}, "rounds must be a whole number"),
        ({"block": -1.0}, "block must be a number of seconds above 0, at most 60, not -1.0"),
        ({"block": float("nan")}, "block must be a number of seconds"),
        ({"block": "1"}, "block must be a number of seconds above 0, at most 60, not '1'"),
        ({"inputs": {"a/b": X}}, "names like variables"),
        ({"contenders": {"torch": fast}}, "cannot import"),
        ({"contenders": {"torch_mine": fast}}, "cannot import"),
    ],
)
def test_more_wrong_use(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(bench.BenchError, match=message):
        bench.measure(**({"contenders": {"f": fast}, "inputs": X} | arguments))  # type: ignore[arg-type]


def test_what_is_no_number_is_failed_with_the_reason() -> None:
    result = bench.measure({"mine": fast, "none": lambda x: None}, X, rounds=2)
    assert result.verdict("none") == "failed" and result.verdict("mine") == "unconfirmed"
    result = bench.measure({"plain": np.tanh}, X, backward=True, rounds=2)
    assert "(value, gradients)" in result.results.cells[-1].reason


def test_a_function_without_a_result_gets_no_time() -> None:
    result = bench.measure({"mine": lambda x: (), "theirs": lambda x: []}, X, rounds=1)
    assert result.verdict("mine") == result.verdict("theirs") == "mistrusted"
    with pytest.raises(bench.BenchError, match="there is no result"):
        result.time("mine")


@pytest.mark.parametrize("first", ["one", "two"])
def test_functions_with_different_numbers_of_results_differ(first: str) -> None:
    """Whoever is asked first: what the other does not have is confirmed by nobody."""
    both: dict[str, Any] = {"one": np.tanh, "two": lambda x: (np.tanh(x), x * x)}
    result = bench.measure({first: both[first], **both}, X, rounds=1)
    assert result.verdict("one") == result.verdict("two") == "wrong"
    assert "output1" in str(result)


@pytest.mark.parametrize("name", ["/proc/nowhere", "../..", "a" * 300])
def test_names_of_contenders_are_no_paths(name: str) -> None:
    result = bench.measure({name: fast, "theirs": fast}, X, rounds=1)
    assert result.verdict(name) == result.verdict("theirs") == "checked"


@pytest.mark.parametrize("name", ["a\0b", "a\ud800", "", " ", "a\nb", "a\tb"])
def test_names_of_contenders_can_be_printed(name: str) -> None:
    with pytest.raises(bench.BenchError, match="can be printed"):
        bench.measure({name: fast}, X)


def test_a_missing_gradient_is_told() -> None:
    def product(x: Floats, y: Floats) -> Any:
        return np.sum(x * y), y

    result = bench.measure({"mine": product}, [X, X + 1], backward=True, rounds=1)
    with pytest.raises(bench.BenchError, match="a gradient for each of x0, x1, not 1"):
        result.time("mine", "step")


@pytest.mark.parametrize("value", [None, {}, iter(())])
def test_what_is_no_result_is_told(value: Any) -> None:
    result = bench.measure({"mine": lambda x: value}, X, rounds=1)
    with pytest.raises(bench.BenchError, match=f"not {type(value).__name__}"):
        result.time("mine")


#: Types of inputs beside one of floating point.
TYPES = ("bool", "int8", "uint8", "int16", "int32", "int64", "complex64", "float32")


@pytest.mark.parametrize("dtype", TYPES)
def test_functions_see_the_types_and_shapes_that_were_given(dtype: str) -> None:
    seen = set()

    def look(x: Floats, other: NDArray[Any]) -> Floats:
        seen.add((other.dtype, other.shape))
        return np.where(other != 0, x, 0.0)

    other = (np.arange(256).reshape(16, 16) % 3).astype(dtype)
    result = bench.measure({"mine": look, "theirs": look}, [X, other], rounds=1, block=0.001)
    assert result.verdict("mine") == "checked"
    truth = {(np.dtype("float64"), (16, 16))} if dtype == "float32" else set()
    assert seen - truth == {(np.dtype(dtype), (16, 16))}


SEEN_IN_TORCH = """
import sys, json
import torch
from tapegrad import bench

seen = {}
x = torch.randn(16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
for name in sys.argv[1:]:
    def look(x, other):
        seen.setdefault(name, set()).add((str(other.dtype), tuple(other.shape)))
        return x * (other != 0)

    other = (torch.arange(256).reshape(16, 16) % 3).to(getattr(torch, name))
    result = bench.measure({"mine": look, "theirs": look}, [x, other], rounds=1, block=0.001)
    assert result.verdict("mine") == "checked", str(result)
print(json.dumps({name: sorted(each) for name, each in seen.items()}))
"""


def in_torch(code: str, *arguments: str) -> str:
    """Run code in PyTorch's environment, beside what the bench itself needs."""
    python = find("torch").interpreter()
    assert python is not None
    return subprocess.run(
        [python, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": str(Path(tg.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def sorts_in_place(x: Floats) -> Floats:
    x.sort(axis=0)
    return x + 0


def test_a_function_that_changes_its_inputs_gets_no_time() -> None:
    contenders = {"in place": sorts_in_place, "copies": lambda x: np.sort(x, axis=0) + 0}
    result = bench.measure(contenders, X, rounds=1, block=0.001)
    assert result.verdict("in place") == "failed"
    assert "changes its input x0" in str(result)
    assert result.verdict("copies") == "unconfirmed"


CHANGES_A_TENSOR = """
import torch
from tapegrad import bench

x = torch.randn(16, 16, generator=torch.Generator().manual_seed(0))
contenders = {"in place": lambda x: x.relu_() + 1, "copies": lambda x: x.relu() + 1}
print(bench.measure(contenders, x, rounds=1, block=0.001))
"""


def test_a_function_that_changes_its_tensors_gets_no_time() -> None:
    found = in_torch(CHANGES_A_TENSOR)
    assert "changes its input x0" in " ".join(found.split())


def test_functions_of_tensors_see_the_types_and_shapes_that_were_given() -> None:
    found = json.loads(in_torch(SEEN_IN_TORCH, *TYPES))
    assert found == {name: [[f"torch.{name}", [16, 16]]] for name in TYPES}


def test_what_holds_no_numbers_is_refused() -> None:
    with pytest.raises(bench.BenchError, match="x1 is no array of numbers: it is of <U1"):
        bench.measure({"f": fast}, [X, np.array(["a"])])


def _increasing(x: Floats, knots: Floats) -> Floats:
    if not np.all(np.diff(knots) > 0):
        raise ValueError("knots must increase")
    return np.interp(x, knots, np.arange(len(knots)))


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (np.linalg.cholesky, X @ X.T + 16 * np.eye(16)),
        (_increasing, [X, np.linspace(-3, 3, 9)]),
    ],
)
def test_functions_that_need_an_order_or_a_structure_are_measured(
    function: Any, inputs: Any
) -> None:
    both = {"a": function, "b": lambda *given: function(*(each.copy() for each in given))}
    result = bench.measure(both, inputs, rounds=1)
    assert result.verdict("a") == result.verdict("b") == "checked", str(result)


def test_a_name_that_only_begins_like_a_framework_s_says_nothing() -> None:
    assert bench.measure({"torchlike": fast}, X, rounds=1).verdict("torchlike") == "unconfirmed"


BESIDE_TORCH = """
import numpy as np
import torch
from tapegrad import bench

x = np.random.default_rng(0).standard_normal((16, 16))
vector = {"torch_mine": torch.tanh, "mine": lambda x: (np.tanh(x), 1 - np.tanh(x) ** 2)}
scalar = {"torch_mine": lambda x: (x * x).sum(), "mine": lambda x: (np.sum(x * x), 2 * x)}
for contenders in (vector, scalar):
    result = bench.measure(contenders, x, backward=True, rounds=1, block=0.001)
    print(result.verdict("torch_mine"), result.verdict("mine"))
    print(next(cell.reason for cell in result.results.cells if cell.phase == "step"
               and cell.framework == "mine"))
"""


def test_beside_a_framework_gradients_of_numpy_functions_are_those_of_scalars() -> None:
    first, reason, second, *_ = in_torch(BESIDE_TORCH).splitlines()
    assert first == "unconfirmed failed"
    assert "returns a scalar with its gradients, not a result of shape (16, 16)" in reason
    assert second == "checked checked"
