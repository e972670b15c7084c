"""What is particular about TensorFlow: Grappler decides what is fused."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import tapegrad
from tapegrad.bench import inputs
from tapegrad.bench.coverage import coverage_of, smallest
from tapegrad.bench.frameworks import find
from tapegrad.bench.suite import Suite
from tapegrad.bench.suites import fused, operators
from tapegrad.worker.case import DTYPES

#: Prepares each case anew for each phase and prints its note beside the kernels that ran.
ASKED = """
import json, sys
import numpy as np
from tapegrad.worker.adapters.tensorflow import TensorFlow
from tapegrad.worker.case import Case
from tensorflow.python.eager import context

adapter, asked = TensorFlow("cpu", 1), context.context()
asked.ensure_initialized()


def kernels(call):
    asked.enable_run_metadata()
    call()
    found = asked.export_run_metadata()
    asked.disable_run_metadata()
    graphs = [graph for each in found.function_graphs for graph in each.partition_graphs]
    return sorted({node.op for graph in graphs for node in graph.node})


for line in sys.stdin:
    given = json.loads(line)
    case = Case.from_dict(given["case"])
    arrays = {name: np.load(path) for name, path in given["arrays"].items()}
    for phase in case.phases:
        work = adapter.prepare(case, arrays)
        if phase in ("backward", "step"):
            (output,) = work.arrays("forward", work.phases["forward"].call()).values()
            work.feed(arrays, [output])
            kernels(work.phases["forward"].call)  # told once, and not with the next call
        (note,) = work.phase_notes[phase]
        print(json.dumps([case.op, phase, note, kernels(work.phases[phase].call)]))
"""
#: What a fused kernel does besides, where it has a kernel of its own.
APART = {"Relu", "ReluGrad", "Erf", "Erfc"}


def expected(kernel: str, phase: str, ran: set[str]) -> str:
    """Tell from the kernels that ran how a note must begin and end."""
    one = any(name.endswith(kernel) for name in ran)
    if one and not ran & APART:
        return "fused"
    return "forward only" if one and phase == "step" and ran & APART == {"ReluGrad"} else "composed"


def test_notes_on_fused_operators_are_what_grappler_made(tmp_path: Path) -> None:
    (tmp_path / "tapegrad").symlink_to(Path(tapegrad.__file__).parent)
    python = find("tensorflow").interpreter()
    assert python, "tensorflow is missing: `make test-frameworks` has it"
    kernels = {
        "conv2d_relu": "FusedConv2D",
        "conv2d_batch_norm_relu": "FusedBatchNormEx",
        "linear_relu": "FusedMatMul",
        "linear_gelu": "FusedMatMul",
    }
    cases = [
        replace(case, dtype=dtype, phases=("forward", "backward", "step", "inference"))
        for case in fused.SUITE.cases
        if case.op in kernels and case.size == "small"
        for dtype in DTYPES
    ]
    lines = (
        json.dumps(
            {
                "case": case.as_dict(),
                "arrays": inputs.save(inputs.make_inputs(case, 0), tmp_path / case.key),
            }
        )
        for case in cases
    )
    found = subprocess.run(
        [python, "-c", ASKED],
        input="\n".join(lines),
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [json.loads(line) for line in found.stdout.splitlines()]
    assert len(rows) == len(cases) * 4 == 32
    for op, phase, note, ran in rows:
        wanted = expected(kernels[op], phase, set(ran))
        assert wanted in note, (op, phase, note, ran)
        assert ("forward only" in note) == (wanted == "forward only"), (op, phase, note, ran)


def test_batch_norm_is_one_fused_operation_in_float32() -> None:
    """As in layers and networks; float64, which it lacks, is a formula."""
    cases = tuple(case for case in operators.SUITE.cases if case.op == "batch_norm")
    found = coverage_of(find("tensorflow"), smallest(Suite("some", "", cases)))
    assert found.untraced == {}
    assert "FusedBatchNormV3" in found.reached
