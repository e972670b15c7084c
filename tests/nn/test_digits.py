"""The example that learns to read digits."""

from __future__ import annotations

import os
import re
import resource
from pathlib import Path

from tests.checkout import ROOT, python


def test_digits_are_learnt(tmp_path: Path) -> None:
    plot, weights = tmp_path / "loss.png", tmp_path / "digits.safetensors"
    options = "--plot", plot, "--weights", weights
    patient = os.environ | {"OMP_WAIT_POLICY": "passive"}  # other tests may want the cores
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    output = python(ROOT / "examples" / "digits.py", *options, env=patient)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    assert 0.1 < seconds < 60  # of processors: others may be at work, too
    found = re.search(r"([\d.]+)% of 359 test images right", output)
    assert found is not None and float(found[1]) >= 98
    assert plot.read_bytes().startswith(b"\x89PNG") and weights.stat().st_size > 100_000
