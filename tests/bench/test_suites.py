"""Fused operators, modules and layers of CNNs: what the suites hold, and that they run."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tapegrad
from tapegrad.bench.frameworks import find
from tapegrad.bench.guards import GUARDS
from tapegrad.bench.inputs import make_inputs
from tapegrad.bench.results import Results
from tapegrad.bench.store import open_store
from tapegrad.bench.suites import cnn_layers, fused, modules, overview
from tapegrad.cli import main
from tapegrad.worker.case import Case
from tapegrad.worker.networks import compose, network_of
from tapegrad.worker.networks.fused import PARTS
from tapegrad.worker.operators.numpy import OPERATORS

FUSED = [case for case in fused.SUITE.cases if case.level == "fused"]
FRAMEWORKS = [
    name
    for name in ("torch", "jax", "tensorflow", "mxnet")
    if name in ("torch", "jax") or find(name).interpreter() is not None
]
Bench = Callable[..., Results]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Give the command line; results are looked at, what the clock says is not the subject."""
    kept = {name: GUARDS[name] for name in ("values", "meaning", "dependence")}
    monkeypatch.setattr("tapegrad.bench.given.GUARDS", kept)

    def run(suite: str, *arguments: str) -> Results:
        store = str(tmp_path / "results.sqlite")
        quick = ("--processes", "1", "--rounds", "1", "--block", "0.001", "--store", store)
        with pytest.raises(SystemExit) as end:
            main(("bench", "run", suite, *arguments, *quick))
        assert end.value.code == 0
        with open_store(store) as opened:
            return opened.load(opened.resolve("latest").id)

    return run


def verdicts(results: Results) -> set[str]:
    return {cell.verdict for cell in results.cells}


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)))


# Fused operators


def test_fused_operators_come_in_three_sizes_with_all_their_parts() -> None:
    keys = {case.key for case in fused.SUITE.cases}
    assert {case.op for case in FUSED} == set(PARTS)
    for op in PARTS:
        assert [case.size for case in FUSED if case.op == op] == ["small", "medium", "large"]
    for case in FUSED:
        parts = fused.parts(case)
        assert [part.op for part in parts] == [part.op for part in PARTS[case.op]]
        assert {part.key for part in parts} <= keys
        assert {part.phases for part in parts} == {case.phases}


@pytest.mark.parametrize("case", [case for case in FUSED if case.size != "large"])
def test_parts_have_the_shapes_that_a_fused_operator_has_inside(case: Case) -> None:
    seen: list[tuple[Any, ...]] = []

    def operator(name: str) -> Callable[..., Any]:
        def call(*inputs: Any, **attrs: Any) -> Any:
            seen.append((name, attrs, *(array.shape for array in inputs)))
            return OPERATORS[name](*inputs, **attrs)

        return call

    network = network_of(case)
    assert network is not None
    compose(network, operator)(*make_inputs(case, 0).values())
    expected = [
        (part.op, part.attrs, *(array.shape for array in part.inputs)) for part in fused.parts(case)
    ]
    assert seen == expected


def test_what_gradients_do_not_reach_has_none_in_the_parts_either() -> None:
    (case,) = (
        case for case in FUSED if case.op == "softmax_cross_entropy" and case.size == "small"
    )
    assert [part.wrt for part in fused.parts(case)] == [("x",), ("x",)]


def test_fused_calls_give_what_their_parts_in_numpy_give(bench: Bench) -> None:
    """Outputs and gradients are checked against the network of parts, computed by NumPy."""
    chosen = ("--filter", ",".join(PARTS), "--sizes", "small", "--phases", "step,inference")
    results = bench("fused", "--frameworks", ",".join(FRAMEWORKS), *chosen)
    assert len(results.cells) == len(PARTS) * len(FRAMEWORKS) * 2
    for cell in results.cells:
        assert cell.verdict == "checked", cell
    ops = {key: case.op for key, case in results.case_by_key().items()}
    notes = {
        (cell.framework, ops[cell.case], cell.phase): " ".join(cell.notes) for cell in results.cells
    }
    assert notes["torch", "softmax_cross_entropy", "inference"] == "composed"
    assert notes["torch", "add_relu", "inference"] == "fused: torch._add_relu"
    assert notes["torch", "add_relu", "step"] == "composed"  # it cannot be differentiated
    assert notes["torch", "conv2d_batch_norm", "step"] == "composed"
    assert {note for (name, *_), note in notes.items() if name == "jax"} == {"compiled by XLA"}


PROFILED = """
import torch
from tapegrad.worker.operators.torch import FUSED
x, w, b = torch.randn(8, 8), torch.randn(8, 8), torch.randn(8)
image, kernel = torch.randn(1, 3, 8, 8), torch.randn(8, 3, 3, 3)
for training in (False, True):
    with torch.profiler.profile() as profile, torch.set_grad_enabled(training):
        FUSED["linear_relu"].call(x, w, b)
        FUSED["linear_gelu"].call(x, w, b)
        FUSED["conv2d_relu"].call(image, kernel, b, stride=1, padding=1)
        FUSED["add_relu"].call(x, w)
    print(*(event.key for event in profile.key_averages()))
"""


def test_pytorch_runs_its_fused_calls_in_inference_only(tmp_path: Path) -> None:
    (tmp_path / "tapegrad").symlink_to(Path(tapegrad.__file__).parent)
    python = find("torch").interpreter()
    assert python is not None
    found = subprocess.run(
        [python, "-c", PROFILED],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    inference, training = (set(line.split()) for line in found.stdout.splitlines())
    fused_calls = {"mkldnn::_linear_pointwise", "mkldnn::_convolution_pointwise", "aten::_add_relu"}
    parts = {"aten::linear", "aten::conv2d", "aten::relu", "aten::gelu"}
    assert inference >= fused_calls
    assert inference.isdisjoint(parts)
    assert training >= parts
    assert training.isdisjoint(fused_calls)


# Modules


def test_modules_have_the_shapes_that_their_labels_say() -> None:
    for case in modules.SUITE.cases:
        name, label = modules.LABELS[case.key]
        words = dict(re.findall(r"(\w+)=([-\dx]+)", label))
        shapes = {array.name: array.shape for array in case.inputs}
        rows, *_ = x = numbers(words["input"])
        assert shapes["x"] == x, label
        match name:
            case "nn.Linear":
                assert shapes["weight"] == (int(words["features"]), x[1]), label
            case "nn.Conv2d":
                kernel = int(words["kernel"])
                assert shapes["weight"] == (int(words["channels"]), x[1], kernel, kernel), label
            case "nn.MultiheadAttention":
                assert x[-1] == int(words["d_model"])
                assert case.attrs["heads"] == int(words["n_heads"])
            case "nn.Softmax":
                assert case.attrs["dim"] == int(words["dim"])
        assert rows > 1


def test_modules_want_the_gradients_of_the_input_and_of_all_parameters() -> None:
    for case in modules.SUITE.cases:
        assert all(array.grad for array in case.inputs), case.label
        assert case.phases == ("forward", "backward")
    sizes = [case.size for case in modules.SUITE.cases]
    assert sizes == ["small", "medium", "large"] * 4


def test_small_modules_run_from_the_command_line_and_are_checked(bench: Bench) -> None:
    results = bench("modules", "--sizes", "small", "--frameworks", "torch")
    assert len(results.cells) == 4 * 2
    assert verdicts(results) == {"checked"}


def test_the_overview_shows_every_module() -> None:
    shown = {case.key for case in overview.SUITE.cases}
    names = [name for key, (name, _) in modules.LABELS.items() if key in shown]
    assert {name: names.count(name) for name in names} == {
        name: len(overview.MODULE_SIZES) for name, _ in modules.LABELS.values()
    }
    assert overview.SUITE.at_level["layer"] == ("torch", "tapegrad", "jax", "numpy")


def test_a_suite_says_whose_memory_is_worth_measuring() -> None:
    weighed = {case.level for case in overview.SUITE.cases if overview.SUITE.weighs(case)}
    assert weighed == {"operator"}
    assert all(map(modules.SUITE.weighs, modules.SUITE.cases))


# Layers of CNNs


def test_layers_are_what_their_labels_say() -> None:
    labels = {label for _, label in cnn_layers.LABELS.values()}
    assert len(labels) == len(cnn_layers.SUITE.cases)
    for case in cnn_layers.SUITE.cases:
        name, label = cnn_layers.LABELS[case.key]
        batch, channels, *image = case.inputs[0].shape
        assert label.startswith(name)
        assert batch == (int(label.partition("batch ")[2] or 1))
        assert image == ([] if name == "Dense" else [224, 224])
        if window := re.search(r"(\d)x\1/(\d)", name):
            kernel, stride = numbers(window[0])[1:]
            assert case.attrs["stride"] == stride
            sides = case.inputs[1].shape[2:] if "Conv" in name else (case.attrs["kernel"],) * 2
            assert sides == (kernel, kernel)
        if name.startswith("Conv"):
            assert case.inputs[1].shape[:2] == (64, 3)
        if name == "BatchNorm":
            assert channels == (64 if "64" in label else 3)
        assert case.phases == ("forward", "backward", "step")


def test_layers_run_from_the_command_line_and_are_checked(bench: Bench) -> None:
    results = bench("cnn-layers", "--filter", "linear 1x*", "--frameworks", "torch")
    assert [cell.phase for cell in results.cells] == ["forward", "backward", "step"]
    assert verdicts(results) == {"checked"}
