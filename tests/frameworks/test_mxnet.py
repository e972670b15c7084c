"""What is particular about MXNet: it returns before it is done, and keeps its own statistics."""

from __future__ import annotations

from pathlib import Path

import pytest

from tapegrad.bench import inputs
from tapegrad.bench.coverage import coverage_of, smallest
from tapegrad.bench.frameworks import find
from tapegrad.bench.process import WorkerProcess
from tapegrad.bench.suite import Suite
from tapegrad.bench.suites import cnn_models, fused, operators
from tests.frameworks.conftest import Check


def test_its_environment_is_recorded(tmp_path: Path) -> None:
    worker = WorkerProcess(find("mxnet"), tmp_path, threads=1, device="cpu", timeout=60)
    try:
        assert worker.hello["version"] == "1.9.1"
        details = worker.hello["details"]
        assert details["engine"] == "ThreadedEnginePerDevice"
        assert details["threads"] == 1
        assert details["oneDNN"]
    finally:
        worker.close()


def test_what_is_timed_is_finished(check: Check) -> None:
    """Its engine works on after a call has returned: reading a result must not wait for that."""
    cases = [case for case in operators.SUITE.cases if (case.op, case.size) == ("matmul", "large")]
    results = check(cases, ("mxnet",), guards=("values", "reading"))
    assert [cell.phase for cell in results.cells] == ["forward", "backward"]
    for cell in results.cells:
        assert cell.verdict == "checked", cell


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fused_calls_do_what_their_parts_do(dtype: str, check: Check) -> None:
    wanted = {
        "conv2d_relu": "composed",
        "conv2d_batch_norm_relu": "fused: nd.contrib.BatchNormWithReLU"
        if dtype == "float32"
        else "composed",
        "softmax_cross_entropy": "fused: nd.softmax_cross_entropy",
    }
    cases = tuple(
        case
        for case in fused.SUITE.cases
        if case.level == "fused" and case.size == "small" and case.op in wanted
    )
    results = check(cases, ("mxnet",), dtype)
    ops = {key: case.op for key, case in results.case_by_key().items()}
    assert set(ops.values()) == set(wanted)
    for cell in results.cells:
        assert cell.verdict == "checked", cell
        assert any(note.startswith(wanted[ops[cell.case]]) for note in cell.notes), cell


def test_a_network_gives_its_gradients_and_the_statistics_of_batch_norms(check: Check) -> None:
    """The small ResNet that stands in for the full one, as it trains and as it predicts."""
    found = {
        case.stand_in.key: case.stand_in
        for case in cnn_models.SUITE.cases
        if case.op == "resnet18" and case.stand_in is not None
    }
    results = check(tuple(found.values()), ("mxnet",), "float64")
    phases = {cell.phase for cell in results.cells}
    assert phases == {"forward", "backward", "step", "inference"}
    for cell in results.cells:
        assert cell.verdict == "checked", cell


def test_a_step_leaves_what_a_backward_pass_is_given(tmp_path: Path) -> None:
    """A graph that goes takes inputs without gradients along, which others share."""
    case = next(
        case for case in operators.SUITE.cases if (case.op, case.size) == ("batch_norm", "small")
    )
    arrays = inputs.make_inputs(case, 0)
    given = inputs.save(arrays, tmp_path / "inputs")
    cotangent = inputs.save({"cotangent": arrays[case.inputs[0].name]}, tmp_path / "cotangents")
    worker = WorkerProcess(find("mxnet"), tmp_path / "worker", threads=1, device="cpu", timeout=60)
    try:
        worker.ask("prepare", case=case.as_dict(), arrays=given)
        worker.ask("feed", arrays=given, cotangents=list(cotangent.values()))
        for phase in ("backward", "step", "backward"):
            worker.ask("check", phase=phase, folder=str(tmp_path / "results"))
    finally:
        worker.close()


def test_its_operators_are_listed_and_traced() -> None:
    """An operator has one name here, the one that it runs under, whatever else it is called."""
    wanted = ("softmax", "linear", "random_uniform", "split", "conv2d")
    chosen = tuple(case for case in operators.SUITE.cases if case.op in wanted)
    found = coverage_of(find("mxnet"), smallest(Suite("some", "", chosen)))
    assert found.reason == "" and found.untraced == {}
    assert found.version == "1.9.1"
    assert found.reached["FullyConnected"] == ["linear"]
    assert found.reached["SliceChannel"] == ["split"] and "split" not in found.registered["nd"]
    assert found.reached["_random_uniform"] == ["random_uniform"]
    assert "_backward_softmax" in found.reached  # the backward pass is traced too
    assert "Convolution" in found.measured("nd") and "RNN" in found.unmeasured("nd")
    assert "_linalg_gemm2" in found.unmeasured("nd.linalg") and "_npi_svd" in found.registered["np"]
    names = [name for group in found.registered.values() for name in group]
    assert len(names) == len(set(names)) > 400
    assert not any("backward" in name for name in names)
