"""Times tapegrad's oneDNN module and PyTorch on the same convolutions and matrix products.

Each side runs in a process of its own, in its own environment; the two take turns, block by block,
so that what else the machine does hits both. Times are the smallest over all blocks: wall time, or
with --busy the processor time of all threads, which other programs on the machine do not lengthen
(and which does not show how evenly the threads share the work).

    python tools/onednn_probe.py --torch PYTHON [--busy] [--rounds N] [--threads 1 2] [--filter X]
"""

import argparse
import dataclasses
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable

LAYOUTS = (None, "plain", "channels_last", "blocked")
DIRECTIONS = ("forward", "input grad", "weight grad")
Clock = Callable[[], float]
CALLS = 2  # between two looks at the clock


@dataclasses.dataclass(frozen=True)
class Case:
    """A convolution x (n, c, h, w) with k kernels of size `kernel`, or x (n, c) times (k, c)."""

    name: str
    x: tuple[int, ...]
    k: int
    kernel: int = 0
    stride: int = 1
    padding: int = 0

    @property
    def weight(self) -> tuple[int, ...]:
        """The weight's shape."""
        return (self.k, self.x[1], *(2 * (self.kernel,) if self.kernel else ()))


CASES = [
    Case("conv 4x3x32x32, 3x3, 16", (4, 3, 32, 32), 16, 3),
    Case("conv 8x32x64x64, 3x3, 64", (8, 32, 64, 64), 64, 3),
    Case("conv 8x64x128x128, 3x3, 128", (8, 64, 128, 128), 128, 3),
    Case("conv 8x3x224x224, 7x7 stride 2, 64", (8, 3, 224, 224), 64, 7, 2, 3),
    Case("conv 8x64x56x56, 3x3, 64", (8, 64, 56, 56), 64, 3, 1, 1),
    Case("conv 8x64x56x56, 1x1, 256", (8, 64, 56, 56), 256, 1),
    Case("conv 8x64x56x56, 3x3 stride 2, 128", (8, 64, 56, 56), 128, 3, 2, 1),
    Case("linear 32x64, 128", (32, 64), 128),
    Case("linear 64x1024, 2048", (64, 1024), 2048),
    Case("linear 128x2048, 4096", (128, 2048), 4096),
]


def arrays(case: Case):  # type: ignore[no-untyped-def]
    """Return x, weight and bias as float32 arrays, the same on both sides."""
    import numpy as np

    random = np.random.default_rng(0)
    shapes = case.x, case.weight, (case.k,)
    return [random.standard_normal(shape, dtype=np.float32) for shape in shapes]


def torch_calls(case: Case, threads: int, layout: str | None) -> dict[str, Callable[[], object]]:
    """Return PyTorch's calls, below autograd."""
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    x, w, bias = map(torch.from_numpy, arrays(case))
    if not case.kernel:
        g = torch.nn.functional.linear(x, w, bias)
        return {
            "forward": lambda: torch.nn.functional.linear(x, w, bias),
            "input grad": lambda: g @ w,
            "weight grad": lambda: g.T @ x,
        }
    g = torch.nn.functional.conv2d(x, w, bias, case.stride, case.padding)
    backward = torch.ops.aten.convolution_backward
    options = [case.k], 2 * [case.stride], 2 * [case.padding], [1, 1], False, [0, 0], 1
    return {
        "forward": lambda: torch.nn.functional.conv2d(x, w, bias, case.stride, case.padding),
        "input grad": lambda: backward(g, x, w, *options, [True, False, False]),
        "weight grad": lambda: backward(g, x, w, *options, [False, True, True]),
    }


def tapegrad_calls(case: Case, threads: int, layout: str | None) -> dict[str, Callable[[], object]]:
    """Return the same calls of tapegrad's module."""
    from tapegrad import _onednn

    _onednn.set_num_threads(threads)
    x, w, bias = arrays(case)
    if not case.kernel:
        g = _onednn.linear(x, w, bias)
        return {
            "forward": lambda: _onednn.linear(x, w, bias),
            "input grad": lambda: _onednn.matmul(g, w),
            "weight grad": lambda: _onednn.matmul(g.T, x),
        }
    options = 2 * (case.stride,), 2 * (case.padding,), (1, 1), 1
    g = _onednn.conv2d(x, w, bias, *options, layout=layout)
    return {
        "forward": lambda: _onednn.conv2d(x, w, bias, *options, layout=layout),
        "input grad": lambda: _onednn.conv2d_input_grad(g, w, x.shape, *options, layout=layout),
        "weight grad": lambda: _onednn.conv2d_weight_grad(
            g, x, w.shape, *options, with_bias=True, layout=layout
        ),
    }


def block(call: Callable[[], object], clock: Clock, seconds: float = 0.05) -> float:
    """Return the smallest time of a call within a block, in microseconds."""
    call()
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = clock()
        for _ in range(CALLS):
            call()
        best = min(best, (clock() - start) / CALLS)
    return best * 1e6


def print_pool() -> None:
    """Print what it costs to alternate between oneDNN, our lanes and a library with other threads.

    Lanes run on the same libgomp threads as oneDNN, NumPy's product on OpenBLAS' own.
    """
    import numpy as np

    import tapegrad as tg

    graph = tg.Graph()
    x = graph.inputs(4)
    program = tg.compile(tg.sum([tg.sin(each) for each in x]), wrt=x)
    rows, square = np.ones((20_000, 4)), np.ones((256, 256), np.float32)
    calls: dict[str, Callable[[], object]] = {
        "oneDNN": tapegrad_calls(CASES[0], 2, None)["forward"],
        "lanes": lambda: program.batch(rows, threads=2),
        "OpenBLAS": lambda: square @ square,
    }
    wall = time.perf_counter
    alone = {name: block(call, wall, 2.0) for name, call in calls.items()}
    for first, second in itertools.combinations(calls, 2):
        both = block(lambda a=calls[first], b=calls[second]: (a(), b()), wall, 2.0)  # type: ignore[misc]
        apart = alone[first] + alone[second]
        print(f"{first}, {second}: {apart:.1f} us apart, {both:.1f} us alternating")


def work(side: str, busy: bool) -> None:
    """Answer requests, one JSON line each, until the input ends."""
    clock = time.process_time if busy else time.perf_counter
    prepare = torch_calls if side == "torch" else tapegrad_calls
    for line in sys.stdin:
        request = json.loads(line)
        calls = prepare(Case(**request["case"]), request["threads"], request["layout"])
        print(json.dumps([block(calls[name], clock) for name in DIRECTIONS]), flush=True)


class Worker:
    """One side, in a process of its own."""

    def __init__(self, python: str, side: str, busy: bool) -> None:
        command = [python, __file__, "--worker", side, *["--busy"] * busy]
        # Threads that spin while they wait would take processor time for nothing.
        environment = os.environ | ({"OMP_WAIT_POLICY": "passive"} if busy else {})
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, env=environment
        )

    def ask(self, case: Case, threads: int, layout: str | None = None) -> list[float]:
        """Return the times of one block per direction."""
        assert self.process.stdin and self.process.stdout
        request = {"case": dataclasses.asdict(case), "threads": threads, "layout": layout}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return list(json.loads(self.process.stdout.readline()))


def measure(ours: Worker, theirs: Worker, case: Case, threads: int, rounds: int) -> list[str]:
    """Return the table's rows for one case, all sides taking turns."""
    layouts = LAYOUTS if case.kernel else LAYOUTS[:1]
    best = [[float("inf")] * len(DIRECTIONS) for _ in range(len(layouts) + 1)]
    for _ in range(rounds):
        asked = [theirs.ask(case, threads), *(ours.ask(case, threads, each) for each in layouts)]
        best = [list(map(min, *pair)) for pair in zip(best, asked, strict=True)]
    rows = []
    for direction, torch, mine, *others in zip(DIRECTIONS, *best, strict=True):
        shown = [f"{time:.1f}" for time in others] or ["", "", ""]
        cells = [case.name, direction, f"{torch:.1f}", f"{mine:.1f}", f"{mine / torch:.2f}", *shown]
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def main() -> None:
    """Print one Markdown table per number of threads."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch", required=True, help="a Python interpreter that has PyTorch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[2, 1])
    parser.add_argument("--filter", default="")
    parser.add_argument("--busy", action="store_true", help="processor time instead of wall time")
    arguments = parser.parse_args()
    if not arguments.busy:
        print_pool()
    ours = Worker(sys.executable, "tapegrad", arguments.busy)
    theirs = Worker(arguments.torch, "torch", arguments.busy)
    for threads in arguments.threads:
        print(f"\n{threads} thread{'s' * (threads > 1)}, times in us:\n")
        print("| case | direction | PyTorch | chosen | ratio | plain | channels last | blocked |")
        print("|---|---|---|---|---|---|---|---|", flush=True)
        for case in CASES:
            if arguments.filter in case.name:
                print(*measure(ours, theirs, case, threads, arguments.rounds), sep="\n", flush=True)


if __name__ == "__main__":
    work(sys.argv[2], "--busy" in sys.argv) if sys.argv[1:2] == ["--worker"] else main()
