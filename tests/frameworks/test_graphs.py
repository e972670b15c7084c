"""Scalar graphs in TensorFlow and MXNet."""

from __future__ import annotations

from tapegrad.worker.case import Array, Case
from tapegrad.worker.graphs import n_inputs
from tests.frameworks.conftest import Check

FRAMEWORKS = ("tensorflow", "tensorflow-eager", "mxnet")


def graph(family: str, ops: int) -> Case:
    x = Array("x", (3, n_inputs(family, ops)), kind="uniform")
    attrs = {"family": family, "ops": ops, "seed": 0, "target": "sum"}
    return Case("graph", "graph", (x,), attrs, dtype="float64", phases=("step",))


def test_targets_and_gradients_are_checked(check: Check) -> None:
    cases = tuple(graph(family, 40) for family in ("chain", "random", "wide"))
    results = check(cases, FRAMEWORKS, "float64")
    found = [(cell.case, cell.framework) for cell in results.cells]
    assert sorted(found) == sorted((case.key, name) for case in cases for name in FRAMEWORKS)
    for cell in results.cells:
        assert cell.verdict == "checked", cell
