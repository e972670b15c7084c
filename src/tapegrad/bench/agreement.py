"""Agreement of our medians with a framework's own benchmark tool; for PyTorch they must agree.

Both time the same prepared call in the same worker, in turn, so that only the method differs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tapegrad.bench import frameworks, inputs, suites
from tapegrad.bench.process import WorkerProcess
from tapegrad.worker.case import Case

FRAMEWORK = "torch"
SIZES = ("small", "medium")
#: Turns of either method; the medians of their results are compared.
TURNS = 5
BLOCK_SECONDS = 0.05
#: Largest difference that counts as agreement.
MARGIN = 0.10


@dataclass(frozen=True)
class Agreement:
    """One operator timed by both methods, in seconds."""

    operator: str
    ours: float
    theirs: float

    @property
    def ratio(self) -> float:
        """Return our time over theirs."""
        return self.ours / self.theirs

    @property
    def holds(self) -> bool:
        """Whether the two differ by at most the margin."""
        return abs(self.ratio - 1) <= MARGIN


def compare_methods(count: int = 20) -> Iterator[Agreement]:
    """Time operators of the suite, forward, by our method and by the framework's own."""
    cases = [case for case in suites.find("operators").cases if case.size in SIZES]
    contender = frameworks.find(FRAMEWORK)
    with tempfile.TemporaryDirectory(prefix="tapegrad-bench-") as folder:
        worker = WorkerProcess(contender, Path(folder), threads=1, device="cpu", timeout=60)
        try:
            for case in cases[:count]:
                yield _compare(case, worker, Path(folder))
        finally:
            worker.close()


def _compare(case: Case, worker: WorkerProcess, folder: Path) -> Agreement:
    paths = inputs.save(inputs.make_inputs(case, 0), folder / case.key)
    worker.ask("prepare", case=case.as_dict(), arrays=paths)
    ours, theirs = [], []
    for _ in range(TURNS):
        block = worker.ask("time", phase="forward", seconds=BLOCK_SECONDS)
        ours.append(float(np.median(block["samples"])))
        theirs.append(float(worker.ask("own_tool", phase="forward")["seconds"]))
    return Agreement(case.label, float(np.median(ours)), float(np.median(theirs)))
