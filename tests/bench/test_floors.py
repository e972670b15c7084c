"""What no machine can do faster, and which results nobody needs to write."""

from __future__ import annotations

import numpy as np
import pytest

from tapegrad.bench import floors, machine
from tapegrad.bench.floors import Demand, computed, operations
from tapegrad.bench.suites.operators import SUITE
from tapegrad.worker import controls
from tapegrad.worker.case import Array, Case

RNG = np.random.default_rng(0)
X = RNG.standard_normal((64, 48)).astype(np.float32)
Y = RNG.standard_normal((64, 48)).astype(np.float32)
EXACT = X.astype(np.float64)

VIEWS: dict[str, np.ndarray] = {
    "transposed": EXACT.T,
    "a part": EXACT[3:9, ::2],
    "spread": np.broadcast_to(EXACT[:1], (64, 48)),
    "one row computed and spread": np.broadcast_to(EXACT[0] / 48, (64, 48)),
    "one column computed and spread": np.broadcast_to(EXACT[:, :1] / 48, (64, 48)),
    "true or false": (EXACT > 0).astype(float),
    "sorted": np.sort(EXACT, axis=None),
    "a number": np.array(X[3, 4], np.float64),
}
COMPUTED: dict[str, np.ndarray] = {
    "a sum": EXACT + Y,
    "a function": np.tanh(EXACT),
    "a factor": EXACT * 1.0001,
    "negative": -EXACT,
    "sums": np.cumsum(EXACT, axis=0),
    "kept or zero": np.maximum(EXACT, 0),
    "the larger of two": np.maximum(EXACT, Y),
    "within bounds": np.clip(EXACT, -0.5, 0.5),
}


@pytest.mark.parametrize("name", VIEWS)
def test_what_a_view_could_show_needs_no_writing(name: str) -> None:
    assert not computed({"output0": VIEWS[name]}, [X, Y])


@pytest.mark.parametrize("name", COMPUTED)
def test_what_is_computed_is_written(name: str) -> None:
    assert computed({"output0": COMPUTED[name]}, [X, Y]) == {"output0"}


def test_only_the_results_that_are_computed_count() -> None:
    assert computed({"grad:x": EXACT, "grad:y": EXACT * Y}, [X, Y]) == {"grad:y"}


def test_hundreds_of_results_are_looked_for_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights are as many as results: each by each took a driver minutes for a network."""
    monkeypatch.setattr(floors, "PASS", 1_000)
    sources = [RNG.standard_normal((50, 70)).astype(np.float32) for _ in range(40)]
    truth = {f"grad:{i}": 3.0 * source.astype(np.float64) for i, source in enumerate(sources)}
    truth |= {"output0": sources[7].astype(np.float64).T, "output1": np.array(sources[39][49, 69])}
    truth |= {"output2": np.full(3, np.nan) * np.arange(3), "output3": np.zeros((0, 4))}
    looked: list[int] = []
    search = np.searchsorted

    def counted(a: np.ndarray, v: np.ndarray, **options: str) -> np.ndarray:
        if not options:  # NumPy's own calls have some
            looked.append(len(v))
        return search(a, v, **options)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(np, "searchsorted", counted)
    assert computed(truth, sources) == {f"grad:{i}" for i in range(40)} | {"output2"}
    assert sum(looked) == sum(source.size for source in sources)


def test_every_product_of_the_suite_has_its_operations() -> None:
    """Counted by multiplying ones: every product adds one to a number of the output."""
    counted = {case.op for case in SUITE.cases if operations(case, "forward", outputs=1)}
    assert counted == {*floors.PRODUCTS, floors.ATTENTION}
    for case in SUITE.cases:
        if case.op in ("matmul", "bmm") and not case.attrs.get("transpose_b"):
            a, b = (np.ones(each.shape) for each in case.inputs)
            products = float((a @ b).sum())
            outputs = (a @ b).size
            assert operations(case, "forward", outputs) == 2 * products


def test_operations_of_attention_are_those_of_its_two_products() -> None:
    batch, rows, keys, width = 2, 5, 7, 3
    shapes = {"q": (batch, rows, width), "k": (batch, keys, width), "v": (batch, keys, width)}
    case = Case("operator", floors.ATTENTION, tuple(Array(n, s) for n, s in shapes.items()))
    scores, sums = 2 * batch * rows * keys * width, 2 * batch * rows * width * keys
    assert operations(case, "forward", batch * rows * width) == scores + sums


@pytest.mark.parametrize(
    "case",
    [
        Case("operator", "matmul", (Array("x0", (8, 8)), Array("x1", (8, 8)))),
        Case("operator", "matmul", (Array("a", (8, 8)), Array("b", (8, 8))), reduction=0),
        Case("operator", "linear", ()),
        Case("operator", "conv2d", (Array("weight", ()),)),
        Case("fused", "linear", (Array("x", (8, 8)),)),
        Case("operator", "tanh", (Array("x", (8, 8)),)),
    ],
    ids=lambda case: case.label,
)
def test_operations_that_are_not_known_demand_nothing(case: Case) -> None:
    case_flops = operations(case, "step", outputs=64)
    assert case_flops in (0.0, 2 * 2 * 64)  # a filter without sides multiplies once
    assert Demand(0, 0.0, "float32").floor(1, "cpu").seconds == 0.0


def test_this_machine_does_not_beat_its_floor() -> None:
    source = np.ones(1 << 21, np.float32)
    target = np.empty_like(source)
    matrix = np.ones((384, 384), np.float32)
    writing = Demand(source.nbytes, 0.0, "float32").floor(1, "cpu").seconds
    multiplying = Demand(0, 2 * 384.0**3, "float32").floor(1, "cpu").seconds
    assert 0 < writing < machine.fastest(lambda: np.copyto(target, source))
    assert 0 < multiplying < machine.fastest(lambda: matrix @ matrix)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_reason_says_what_would_be_needed(device: str) -> None:
    assert "4.00 MiB of results" in Demand(1 << 22, 0.0, "float32").floor(1, device).reason
    assert "100,000 million" in Demand(0, 1e11, "float32").floor(1, device).reason


@pytest.mark.parametrize("nbytes", [1, 1 << 16, 1 << 18])
def test_copies_are_timed_between_places_that_no_processor_takes_for_the_same(nbytes: int) -> None:
    source, target = controls.apart(nbytes)
    between = target.ctypes.data - source.ctypes.data
    assert len(source) == len(target) == nbytes and between % controls.PAGE == controls.PAGE // 2
