"""Agreement of our medians with a framework's own benchmark tool; for PyTorch they must agree.

Both time the same prepared call in the same worker, in turns, so that only the method differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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
#: Turns of either method. Each gives a ratio, whose median counts: what slows the machine down for
#: a second or two slows both.
TURNS = 9
#: How often what is apart is measured again, after all others; all its turns count then.
AGAIN = 2
BLOCK_SECONDS = 0.05
#: Largest difference that counts as agreement.
MARGIN = 0.10


@dataclass(frozen=True)
class Agreement:
    """One phase of an operator timed by both methods, in seconds, one time for each turn."""

    operator: str
    phase: str
    ours: tuple[float, ...]
    theirs: tuple[float, ...]

    def with_turns(self, other: Agreement) -> Agreement:
        """Add the turns of another measurement of the same."""
        return replace(self, ours=self.ours + other.ours, theirs=self.theirs + other.theirs)

    @property
    def ratio(self) -> float:
        """Return our time over theirs: the median over the turns."""
        return float(np.median(np.divide(self.ours, self.theirs)))

    @property
    def holds(self) -> bool:
        """Whether the two differ by at most the margin."""
        return abs(self.ratio - 1) <= MARGIN


def compare_methods(cases: list[Case] | None = None) -> Iterator[Agreement]:
    """Time operators, forward and backward, by our method and by the framework's own.

    What is apart comes last, as it is measured again: a neighbour may have left by then.
    """
    contender = frameworks.find(FRAMEWORK)
    apart: list[tuple[Case, Agreement]] = []
    with scratch.folder() as folder:
        worker = WorkerProcess(contender, folder, threads=1, device="cpu", timeout=60)
        try:
            for case in cases or chosen():
                for found in _compare(case, PHASES, worker, folder / case.key):
                    if found.holds:
                        yield found
                    else:
                        apart.append((case, found))
            for case, first in apart:
                found = first
                for _ in range(AGAIN):
                    for more in _compare(case, (first.phase,), worker, folder / case.key):
                        found = found.with_turns(more)
                yield found
        finally:
            worker.close()


def chosen() -> list[Case]:
    """Return a case for each of the operators."""
    found = {
        case.op: case for case in reversed(suites.find("operators").cases) if case.size == SIZE
    }
    return [found[op] for op in OPERATORS]


def _compare(
    case: Case, phases: Sequence[str], worker: WorkerProcess, folder: Path
) -> Iterator[Agreement]:
    paths = inputs.save(inputs.make_inputs(case, 0), folder)
    worker.ask("prepare", case=case.as_dict(), arrays=paths)
    worker.ask("feed", arrays=paths, cotangents=_cotangents(case, worker, folder))
    for phase in phases:
        ours, theirs = list[float](), list[float]()
        methods = [(_theirs, theirs), (_ours, ours)]
        for _ in range(TURNS):
            for method, times in methods:
                times.append(method(worker, phase))
            methods.reverse()
        yield Agreement(case.label, phase, tuple(ours), tuple(theirs))


def _ours(worker: WorkerProcess, phase: str) -> float:
    block = worker.ask("time", phase=phase, seconds=BLOCK_SECONDS)
    return float(np.median(block["samples"]))


def _theirs(worker: WorkerProcess, phase: str) -> float:
    return float(worker.ask("own_tool", phase=phase)["seconds"])


def _cotangents(case: Case, worker: WorkerProcess, folder: Path) -> list[str]:
    """Make a cotangent for each output that the worker gives."""
    outputs = answers.load(worker.ask("check", phase="forward", folder=str(folder / "outputs")))
    made = inputs.make_cotangents(case, list(outputs.values()), 0)
    named = {f"cotangent{number}": value for number, value in enumerate(made)}
    return list(inputs.save(named, folder).values())
