"""Every contender for scalar graphs that needs no framework, against NumPy and by hand."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tapegrad.bench import frameworks
from tapegrad.bench.suites import engine, graphs
from tapegrad.worker.adapter import Adapter, Unsupported
from tapegrad.worker.case import Array, Case
from tapegrad.worker.graphs import FAMILIES, Kind, OpList, build, n_inputs, of_case
from tapegrad.worker.session import Session, load_adapter
from tapegrad.worker.sweep import evaluate

Arrays = dict[str, NDArray[Any]]

ROWS = 13  # one full group of lanes and a rest
TIGHT, LOOSE = 1e-9, 2e-4
NEEDS = {"c": "gcc", "c-pointer": "gcc", "c-lanes": "gcc", "generated-c": "gcc", "rust": "rustc"}
CONTENDERS = [
    *NEEDS,
    "numpy",
    "python-objects",
    "python-tape",
    "tapegrad",
    "tapegrad-batch",
    "tapegrad-batch-float32",
]
FAMILY_NAMES = ("chain", "random", "wide", "cheap")


def case(op: str, family: str, ops: int, rows: int = ROWS, **attrs: Any) -> Case:
    given = {"family": family, "ops": ops, "seed": 0, "target": "sum"} | attrs
    x = Array("x", (rows, n_inputs(family, ops)), kind="uniform")
    return Case("graph", op, (x,), given, dtype="float64", phases=("build", "compile", "step"))


def adapter(name: str) -> Adapter:
    compiler = NEEDS.get(name)
    if compiler and shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    found = frameworks.find(name)
    return load_adapter(found.file, found.adapter)("cpu", found.threads or 1)


class Evaluator:
    """An adapter behind a session, as a worker holds it."""

    def __init__(self, name: str, case: Case, folder: Path) -> None:
        self.session = Session(adapter(name))
        self.folder = folder
        self.offer = self.session.do_prepare(case.as_dict(), self._saved(points(case, seed=9)))

    def feed(self, x: NDArray[Any]) -> None:
        self.session.do_feed(self._saved(x), [])

    def check(self, phase: str = "step") -> Arrays:
        answer = self.session.do_check(phase, str(self.folder / "found"))
        return {name: np.load(path) for name, path in answer["arrays"].items()}

    def _saved(self, x: NDArray[Any]) -> dict[str, str]:
        path = self.folder / "x.npy"
        np.save(path, x)
        return {"x": str(path)}


def points(case: Case, seed: int = 1) -> NDArray[Any]:
    return np.random.default_rng(seed).random(case.inputs[0].shape)


def assert_right(
    found: Mapping[str, NDArray[Any]], graph: OpList, x: NDArray[Any], tolerance: float
) -> None:
    rows = len(found["output0"])
    targets, grads = evaluate(graph, x[:rows])
    assert found["grad:x"].shape == grads.shape
    for got, wanted in ((found["output0"], targets), (found["grad:x"], grads)):
        assert np.all(np.abs(got - wanted) <= tolerance * np.maximum(1, np.abs(wanted)))


@pytest.mark.parametrize("family", FAMILY_NAMES)
@pytest.mark.parametrize("name", CONTENDERS)
def test_values_and_gradients_are_those_of_the_oracle(
    name: str, family: str, tmp_path: Path
) -> None:
    for ops in (100, 1_000):
        chosen = case("graph", family, ops)
        contender = Evaluator(name, chosen, tmp_path)
        for seed in (1, 2):
            x = points(chosen, seed)
            contender.feed(x)
            assert_right(contender.check(), of_case(chosen), x, LOOSE if "32" in name else TIGHT)


@pytest.mark.parametrize("name", CONTENDERS)
def test_the_last_node_as_target(name: str, tmp_path: Path) -> None:
    chosen = case("graph", "chain", 60, target="last")
    contender = Evaluator(name, chosen, tmp_path)
    x = points(chosen)
    contender.feed(x)
    found = contender.check()
    assert np.any(found["grad:x"])
    assert_right(found, of_case(chosen), x, LOOSE if "32" in name else TIGHT)


@pytest.mark.parametrize("name", CONTENDERS)
def test_what_a_contender_compiles_is_right_too(name: str, tmp_path: Path) -> None:
    chosen = case("graph", "random", 100)
    contender = Evaluator(name, chosen, tmp_path)
    x = points(chosen)
    contender.feed(x)
    if "build" in contender.offer["phases"]:
        assert contender.check("build") == {}
    if "compile" in contender.offer["phases"]:
        assert_right(
            contender.check("compile"), of_case(chosen), x, LOOSE if "32" in name else TIGHT
        )


def test_the_oracle_agrees_with_finite_differences() -> None:
    for family in FAMILY_NAMES:
        for target in ("sum", "last"):
            graph = replace(build(family, 60), target=target)
            x = np.random.default_rng(3).random((1, graph.n_inputs))
            _, grads = evaluate(graph, x)
            step = 1e-6 * np.eye(graph.n_inputs)
            ahead, behind = evaluate(graph, x + step)[0], evaluate(graph, x - step)[0]
            np.testing.assert_allclose((ahead - behind) / 2e-6, grads[0], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["c", "c-pointer", "tapegrad-loop", "numpy"])
def test_gradient_steps_lead_to_the_same_point(name: str, tmp_path: Path) -> None:
    chosen = case("descend", "random", 200, rows=1, steps=10, rate=1e-3)
    contender = Evaluator(name, chosen, tmp_path)
    x = points(chosen)
    contender.feed(x)
    reached = x.copy()
    for _ in range(10):
        reached -= 1e-3 * evaluate(of_case(chosen), reached)[1]
    np.testing.assert_allclose(contender.check()["output0"], reached[0], rtol=1e-12)
    assert np.max(np.abs(reached - x)) > 1e-3


@pytest.mark.parametrize("graphs_a_call", [1, 3])
@pytest.mark.parametrize("name", ["c", "tapegrad-batch", "numpy"])
def test_churn_meets_a_new_graph_at_each_call(
    name: str, graphs_a_call: int, tmp_path: Path
) -> None:
    chosen = case("churn", "random", 100, graphs=graphs_a_call)
    work = adapter(name).prepare(chosen, {"x": points(chosen, seed=9)})
    step, x = work.phases["step"], points(chosen)
    work.feed({"x": x}, [])
    assert step.setup is not None
    for call in (1, 2):
        step.setup()
        seen, (targets, _) = step.call()
        assert seen == call * graphs_a_call
        np.testing.assert_allclose(targets, evaluate(of_case(chosen, seen - 1), x)[0], rtol=1e-12)


@pytest.mark.parametrize("name", ["c", "tapegrad-batch", "numpy"])
def test_churn_can_be_checked_at_any_time(name: str, tmp_path: Path) -> None:
    chosen = case("churn", "random", 100, graphs=2)
    contender = Evaluator(name, chosen, tmp_path)
    x = points(chosen)
    contender.feed(x)
    for _ in range(3):
        assert_right(contender.check(), of_case(chosen, offset=1), x, TIGHT)


@pytest.mark.parametrize("name", ["tapegrad", "c", "numpy"])
def test_the_smallest_call(name: str, tmp_path: Path) -> None:
    chosen = case("call", "product", 1, rows=1)
    contender = Evaluator(name, chosen, tmp_path)
    contender.feed(np.array([[2.0, 3.0]]))
    found = contender.check()
    assert found["output0"].tolist() == [11.0]
    assert found["grad:x"].tolist() == [[4.0, 3.0]]


@pytest.mark.parametrize(
    ("name", "op"), [("c-lanes", "descend"), ("rust", "churn"), ("tapegrad-loop", "graph")]
)
def test_what_a_contender_cannot_do_it_says(name: str, op: str) -> None:
    chosen = case(op, "random", 100, steps=1, rate=1e-3)
    with pytest.raises(Unsupported):
        adapter(name).prepare(chosen, {"x": points(chosen)})


def test_nothing_is_compiled_before_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    chosen = case("graph", "chain", 100)
    work = load_adapter(frameworks.find("generated-c").file, "GeneratedC")("cpu", 1).prepare(
        chosen, {"x": points(chosen)}
    )
    assert "softplus" in work.phases["build"].call()


def test_c_keeps_denormals() -> None:
    """Linked with -ffast-math, the library would make this process flush them."""
    assert adapter("c").details()["keeps denormals"]
    assert adapter("tapegrad").details()["keeps denormals"]
    assert np.array([1e-200]) * 1e-115 > 0


def test_flat_arrays_hold_the_same_operations() -> None:
    for family in FAMILIES:
        graph = build(family, 50)
        kinds, counts, ins, outs = graph.flat()
        expected = graph.n_inputs
        for index, op in enumerate(graph.ops):
            assert (Kind(kinds[index]), counts[index]) == (op.kind, len(op.ins))
            assert tuple(ins[index, : counts[index]]) == op.ins
            assert outs[index] == expected
            expected += op.n_outputs
        assert expected == graph.n_nodes


@pytest.mark.parametrize("suite", [graphs.SUITE, engine.SUITE])
def test_suites_name_contenders_and_graphs_that_exist(suite: Any) -> None:
    for name in suite.frameworks:
        frameworks.find(name)
    for each in suite.cases:
        assert each.inputs[0].shape[1] == n_inputs(each.attrs["family"], each.attrs["ops"])
        small = {**each.attrs, "ops": min(each.attrs["ops"], 100)}
        assert of_case(replace(each, attrs=small)).n_inputs == n_inputs(
            small["family"], small["ops"]
        )
