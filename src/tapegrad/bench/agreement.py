"""Agreement of our medians with a framework's own benchmark tool; for PyTorch they must agree.

Both time the same prepared call in the same worker, in turn, so that only the method differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tapegrad.bench import answers, frameworks, inputs, scratch, suites
from tapegrad.bench.process import WorkerProcess
from tapegrad.worker.case import Case

FRAMEWORK = "torch"
#: Operators of all kinds, each at the first of its cases of a size.
OPERATORS = (
    "exp", "add", "gelu", "sum", "softmax", "matmul", "linear", "conv2d", "max_pool2d",
    "avg_pool2d", "layer_norm", "batch_norm", "cross_entropy", "mse_loss", "embedding", "gather",
    "sort", "concat", "transpose", "scaled_dot_product_attention",
)  # fmt: skip
SIZE = "medium"
PHASES = ("forward", "backward")
#: Turns of either method; the medians of their results are compared.
TURNS = 5
BLOCK_SECONDS = 0.05
#: Largest difference that counts as agreement.
MARGIN = 0.10


@dataclass(frozen=True)
class Agreement:
    """One phase of an operator timed by both methods, in seconds."""

    operator: str
    phase: str
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


def compare_methods(cases: list[Case] | None = None) -> Iterator[Agreement]:
    """Time operators, forward and backward, by our method and by the framework's own."""
    contender = frameworks.find(FRAMEWORK)
    with scratch.folder() as folder:
        worker = WorkerProcess(contender, folder, threads=1, device="cpu", timeout=60)
        try:
            for case in cases or chosen():
                yield from _compare(case, worker, folder / case.key)
        finally:
            worker.close()


def chosen() -> list[Case]:
    """Return a case for each of the operators."""
    found = {
        case.op: case for case in reversed(suites.find("operators").cases) if case.size == SIZE
    }
    return [found[op] for op in OPERATORS]


def _compare(case: Case, worker: WorkerProcess, folder: Path) -> Iterator[Agreement]:
    paths = inputs.save(inputs.make_inputs(case, 0), folder)
    worker.ask("prepare", case=case.as_dict(), arrays=paths)
    worker.ask("feed", arrays=paths, cotangents=_cotangents(case, worker, folder))
    for phase in PHASES:
        ours, theirs = [], []
        for _ in range(TURNS):
            block = worker.ask("time", phase=phase, seconds=BLOCK_SECONDS)
            ours.append(float(np.median(block["samples"])))
            theirs.append(float(worker.ask("own_tool", phase=phase)["seconds"]))
        yield Agreement(case.label, phase, float(np.median(ours)), float(np.median(theirs)))


def _cotangents(case: Case, worker: WorkerProcess, folder: Path) -> list[str]:
    """Make a cotangent for each output that the worker gives."""
    outputs = answers.load(worker.ask("check", phase="forward", folder=str(folder / "outputs")))
    made = inputs.make_cotangents(case, list(outputs.values()), 0)
    named = {f"cotangent{number}": value for number, value in enumerate(made)}
    return list(inputs.save(named, folder).values())
