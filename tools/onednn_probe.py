"""Times tapegrad's oneDNN module and PyTorch on the same convolutions and matrix products.

Each side runs in a process of its own, in its own environment; the two take turns, block by block,
so that what else the machine does hits both. Times are the smallest over all blocks: wall time for
two threads and more, time of the processor for one.

    python tools/onednn_probe.py --torch PYTHON [--rounds N] [--threads 1 2] [--filter TEXT]
"""

import argparse
import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

LAYOUTS = (None, "plain", "channels_last", "blocked")
DIRECTIONS = ("forward", "input grad", "weight grad")
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


def torch_calls(case: Case, threads: int, layout: None) -> dict[str, Callable[[], object]]:
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


def tapegrad_calls(
    case: Case, threads: int, layout: str | None
) -> dict[str, Callable[[], object]]:
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


def block(call: Callable[[], object], threads: int, seconds: float = 0.05) -> float:
    """Return the smallest time of a call within a block, in microseconds.

    With one thread it is the time the processor gave to it, which other programs do not lengthen.
    """
    clock = time.thread_time if threads == 1 else time.perf_counter
    call()
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = clock()
        for _ in range(CALLS):
            call()
        best = min(best, (clock() - start) / CALLS)
    return best * 1e6


def work() -> None:
    """Answer requests, one JSON line each, until the input ends."""
    prepare = {"torch": torch_calls, "tapegrad": tapegrad_calls}[sys.argv[2]]
    known: dict[str, dict[str, Callable[[], object]]] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if line not in known:
            known = {line: prepare(Case(**request["case"]), request["threads"], request["layout"])}
        times = {name: block(call, request["threads"]) for name, call in known[line].items()}
        print(json.dumps(times), flush=True)


class Worker:
    """One side, in a process of its own."""

    def __init__(self, python: str, side: str) -> None:
        self.process = subprocess.Popen(
            [python, __file__, "--worker", side],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, case: Case, threads: int, layout: str | None) -> dict[str, float]:
        """Return the times of one block per direction."""
        request = {"case": dataclasses.asdict(case), "threads": threads, "layout": layout}
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return dict(json.loads(self.process.stdout.readline()))


def measure(
    ours: Worker, theirs: Worker, case: Case, threads: int, layout: str | None, rounds: int
) -> Iterator[tuple[str, float, float]]:
    """Yield direction, our time and PyTorch's time."""
    mine, torch = [], []
    for _ in range(rounds):
        mine.append(ours.ask(case, threads, layout))
        torch.append(theirs.ask(case, threads, None))
    for direction in DIRECTIONS:
        yield direction, min(t[direction] for t in mine), min(t[direction] for t in torch)


def main() -> None:
    """Print one Markdown table per number of threads."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch", required=True, help="a Python interpreter that has PyTorch")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, nargs="+", default=[2, 1])
    parser.add_argument("--filter", default="")
    arguments = parser.parse_args()
    ours, theirs = Worker(sys.executable, "tapegrad"), Worker(arguments.torch, "torch")
    for threads in arguments.threads:
        print(f"\n{threads} thread(s)\n| case | direction | layout | tapegrad, us | PyTorch, us | ratio |")
        print("|---|---|---|---|---|---|")
        for case in CASES:
            if arguments.filter not in case.name:
                continue
            for layout in LAYOUTS if case.kernel else (None,):
                for row in measure(ours, theirs, case, threads, layout, arguments.rounds):
                    direction, mine, torch = row
                    print(
                        f"| {case.name} | {direction} | {layout or 'chosen'} "
                        f"| {mine:.1f} | {torch:.1f} | {mine / torch:.2f} |",
                        flush=True,
                    )


if __name__ == "__main__":
    work() if sys.argv[1:2] == ["--worker"] else main()
