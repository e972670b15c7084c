"""PyTorch's variants: that each does what its name says, and says where it does not run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import tapegrad
from tapegrad import bench
from tapegrad.bench import inputs
from tapegrad.bench.errors import WorkerError
from tapegrad.bench.frameworks import ADAPTERS_FOLDER, find
from tapegrad.bench.guards import GUARDS
from tapegrad.bench.suites import operators
from tests.bench.conftest import Start

CASES = {case.op: case for case in operators.SUITE.cases if case.size == "small"}
VARIANTS = ("torch-channels-last", "torch-without-onednn", "torch-cuda-graph")

#: Prepares a convolution in one of PyTorch's adapters, feeds it twice and tells what it saw.
LOOK = """
import json, sys
from pathlib import Path
import numpy as np, torch
from tapegrad.worker.case import Array, Case
from tapegrad.worker.session import load_adapter

adapter = load_adapter(Path(sys.argv[1]), sys.argv[2])("cpu", 1)
adapter.configure()
shapes = {"x": (4, 16, 32, 32), "weight": (8, 16, 3, 3), "bias": (8,)}
case = Case("operator", "conv2d", tuple(Array(*each) for each in shapes.items()),
            {"stride": 1, "padding": 1})
rng = np.random.default_rng(0)
draw = lambda shape: rng.standard_normal(shape).astype("float32")
work = adapter.prepare(case, {name: draw(shape) for name, shape in shapes.items()})
for _ in range(2):
    work.feed({name: draw(shape) for name, shape in shapes.items()}, [draw((4, 8, 32, 32))])
with torch.profiler.profile() as profile:
    output, (grad, weight, _) = work.phases["step"].call()
images = [each.is_contiguous(memory_format=torch.channels_last) for each in (output, grad, weight)]
print(json.dumps({
    "images": images,
    "calls": sorted({event.key for event in profile.key_averages()}),
    "details": adapter.details(),
}))
"""


@cache
def look(adapter: str) -> dict[str, Any]:
    """Return what a variant's adapter does, seen from within its own environment."""
    python = find("torch").interpreter()
    assert python is not None
    done = subprocess.run(
        [python, "-c", LOOK, ADAPTERS_FOLDER / "torch.py", adapter],
        env={**os.environ, "PYTHONPATH": str(Path(tapegrad.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_channels_last_holds_images_weights_and_their_gradients() -> None:
    last, usual = look("TorchChannelsLast"), look("Torch")
    assert last["images"] == [True, True, True]
    assert usual["images"] == [False, False, False]
    assert last["details"]["layout"] == "channels_last"
    assert usual["details"]["layout"] == "contiguous"


def test_without_onednn_calls_other_kernels() -> None:
    without, usual = look("TorchWithoutOneDNN"), look("Torch")
    assert not any("mkldnn" in call for call in without["calls"])
    assert without["details"]["oneDNN"] is False
    if usual["details"]["oneDNN"]:
        assert any("mkldnn" in call for call in usual["calls"])


def test_variants_are_checked_or_say_where_they_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {name: GUARDS[name] for name in ("values", "meaning", "dependence")}
    monkeypatch.setattr("tapegrad.bench.given.GUARDS", kept)
    results = bench.run(
        bench.Suite("convolution", "", (CASES["conv2d"],)),
        frameworks=list(VARIANTS),
        store=tmp_path / "results.sqlite",
        processes=1,
        rounds=1,
        block=0.001,
    )
    verdicts = {(cell.framework, cell.phase): cell for cell in results.cells}
    for name in VARIANTS:
        for phase in ("forward", "backward"):
            cell = verdicts[name, phase]
            if name == "torch-cuda-graph":
                assert cell.verdict == "unsupported"
                assert cell.reason.startswith("torch-cuda-graph does not run on cpu here: leave")
            else:
                assert cell.verdict == "checked", cell


def test_channels_last_refuses_what_holds_no_images(
    start: Start, save: Callable[..., dict[str, str]]
) -> None:
    worker = start("torch-channels-last")
    for case in (CASES["softmax"], CASES["scaled_dot_product_attention"]):
        arrays = save(**inputs.make_inputs(case, 0))
        with pytest.raises(WorkerError, match="layout of images") as refusal:
            worker.ask("prepare", case=case.as_dict(), arrays=arrays)
        assert refusal.value.kind == "unsupported"


def test_the_machine_is_told_with_its_gpus(tmp_path: Path) -> None:
    """NVIDIA's tool is stood in for by a script that answers as it does."""
    command = [sys.executable, "-m", "tapegrad.cli", "bench", "machine"]
    environment = {**os.environ, "COLUMNS": "200"}
    plain = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA H200, 143771 MiB, 580.159.03'\n")
    tool.chmod(0o755)
    environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    lines = {line.split()[0]: line for line in found.stdout.splitlines() if line.strip()}
    assert lines["name"].rstrip().endswith("NVIDIA H200 143771 MiB")
    assert "GPU driver" in found.stdout
    assert "580.159.03" in found.stdout
    assert lines["fingerprint"] not in plain.stdout
