"""The worked example of the docs: a framework joins with one file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tapegrad import bench
from tapegrad.bench import frameworks

EXAMPLE = Path(__file__).parents[2] / "examples" / "autograd_adapter.py"


@pytest.mark.slow
def test_the_example_is_installed_and_checked(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tapegrad.cli", "bench", "frameworks", "install", str(EXAMPLE)]
    subprocess.run(command, check=True, capture_output=True)
    contender = frameworks.find(str(EXAMPLE))
    assert contender.interpreter() == contender.environment / "bin" / "python"
    results = bench.run(
        "operators",
        frameworks=["torch", str(EXAMPLE)],
        filter=["add", "gelu", "softmax", "linear", "conv2d"],
        sizes=["small"],
        store=tmp_path / "results.sqlite",
        processes=1,
        rounds=1,
        block=0.002,
    )
    ops = {key: case.op for key, case in results.case_by_key().items()}
    found = {
        (ops[cell.case], cell.phase): cell.verdict
        for cell in results.cells
        if cell.framework == "autograd"
    }
    assert {verdict for (op, _), verdict in found.items() if op != "conv2d"} == {"checked"}
    assert found["conv2d", "forward"] == "unsupported"
    assert len(found) == 10
