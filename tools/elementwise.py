"""Times steps of optimisers and chains of elementwise operations beside PyTorch, on one thread.

Both sides run in one process, in PyTorch's environment, and take turns; they must agree before
anything is timed. Times are those of the thread, so what else the machine does counts as little as
it can. Each row has the floor that memory sets, too: bytes read and written, at the speed at which
NumPy copies such an array.

    python tools/elementwise.py [--size N] [--rounds N] [--dtype float32] [--only NAME]
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

#: Name: arrays that a step reads, arrays that it writes, the class, options of both sides.
OPTIMISERS = {
    "SGD": (2, 1, "SGD", {"lr": 1e-3}),
    "SGD, momentum": (3, 2, "SGD", {"lr": 1e-3, "momentum": 0.9}),
    "SGD, nesterov, decay": (
        3,
        2,
        "SGD",
        {"lr": 1e-3, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-2},
    ),
    "Adam": (4, 3, "Adam", {}),
    "Adam, amsgrad": (5, 4, "Adam", {"amsgrad": True}),
    "AdamW": (4, 3, "AdamW", {}),
    "RMSprop": (3, 2, "RMSprop", {}),
    "RMSprop, momentum, centred": (5, 4, "RMSprop", {"momentum": 0.9, "centered": True}),
}
#: PyTorch's ways to take a step; not all of them exist for all optimisers.
WAYS = {"default": {}, "foreach": {"foreach": True}, "fused": {"fused": True}}
#: Name: operands, and the function over either library.
CHAINS = {
    "x * a + b": (3, lambda lib, x, a, b: x * a + b),
    "x * 2 + 1": (1, lambda lib, x: x * 2.0 + 1.0),
    "swish": (1, lambda lib, x: x * lib.sigmoid(x)),
    "gelu by tanh": (
        1,
        lambda lib, x: 0.5 * x * (1.0 + lib.tanh(0.7978845608 * (x + 0.044715 * x * x * x))),
    ),
    "8 products and sums": (
        3,
        lambda lib, x, a, b: ((x * a + b) * (x - a) + (b - x) * a) * x + (a - b),
    ),
    "exp(-(x - a)^2 / b^2)": (
        3,
        lambda lib, x, a, b: lib.exp(-((x - a) * (x - a)) / (b * b + 1.0)),
    ),
}


class Row:
    """A line of the table: bytes to move, and what each contender does for it."""

    def __init__(self, name, arrays):
        self.name = name
        self.arrays = arrays
        self.contenders = {}


def optimiser_row(name, size, dtype):
    """Return a row whose contenders take steps; they agree after three of them."""
    import torch

    from tapegrad import optim, tensor

    reads, writes, kind, options = OPTIMISERS[name]
    row = Row(name, reads + writes)
    start, gradient = np.random.default_rng(0).standard_normal((2, size)).astype(dtype)
    ours = tensor(start).clone().requires_grad_()
    ours.grad = tensor(gradient).clone()
    row.contenders["tapegrad"] = getattr(optim, kind)([ours], **options).step
    parameters = [ours]
    for way, chosen in WAYS.items():
        theirs = torch.tensor(start, requires_grad=True)
        theirs.grad = torch.tensor(gradient)
        try:
            optimizer = getattr(torch.optim, kind)([theirs], **options, **chosen)
        except (TypeError, RuntimeError):
            continue
        row.contenders[way] = optimizer.step
        parameters.append(theirs)
    for step in row.contenders.values():
        for _ in range(3):
            step()
    for each in parameters[1:]:
        np.testing.assert_allclose(
            ours.detach().numpy(), each.detach().numpy(), rtol=1e-4, atol=1e-5
        )
    return row


def chain_rows(name, size, dtype):
    """Return two rows: the values of a chain, and values with gradients by all operands."""
    import torch

    import tapegrad as tg

    count, function = CHAINS[name]
    arrays = np.random.default_rng(0).standard_normal((count, size)).astype(dtype)
    ours, theirs = [tg.tensor(each).clone() for each in arrays], list(map(torch.tensor, arrays))
    weights = tg.tensor(arrays[0]), torch.tensor(arrays[0])
    names = ", ".join("xab"[:count])
    recorded = tg.elementwise(eval(f"lambda {names}: function(tg, {names})", locals()))
    values, gradients = Row(name, count + 1), Row(f"{name}, gradients", 3 * count + 3)
    values.contenders["tapegrad"] = lambda: recorded(*ours)
    values.contenders["default"] = lambda: function(torch, *theirs)

    def backward(call, operands, weight):
        operands = [each.detach().requires_grad_() for each in operands]

        def run():
            for each in operands:
                each.grad = None
            call(*operands).backward(weight)
            return operands[0].grad

        return run

    gradients.contenders["tapegrad"] = backward(recorded, ours, weights[0])
    gradients.contenders["default"] = backward(lambda *xs: function(torch, *xs), theirs, weights[1])
    for row in (values, gradients):
        results = [np.asarray(run()) for run in row.contenders.values()]
        np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-5)
    return [values, gradients]


def copy_rate(size, dtype, rounds):
    """Return bytes per second, read and written, of NumPy's copy of an array."""
    source, target = np.ones((2, size), dtype)
    best = min(seconds(lambda: np.copyto(target, source), 5) for _ in range(rounds))
    return 2 * source.nbytes / best


def seconds(run, calls):
    """Return the thread's seconds per call."""
    start = time.thread_time()
    for _ in range(calls):
        run()
    return (time.thread_time() - start) / calls


def report(row, rounds, calls, floor):
    """Time a row in turns and print it: minima, and medians of ratios."""
    for run in row.contenders.values():
        seconds(run, calls)
    times = {name: [] for name in row.contenders}
    for _ in range(rounds):
        for name, run in row.contenders.items():
            times[name].append(seconds(run, calls))
    ours = times.pop("tapegrad")
    line = f"{row.name:34} {floor * 1e6:7.0f} {min(ours) * 1e6:9.0f}"
    for way in WAYS:
        if way in times:
            ratio = statistics.median(a / b for a, b in zip(ours, times[way], strict=True))
            line += f" {min(times[way]) * 1e6:9.0f} {ratio:6.2f}"
        else:
            line += f" {'':>9} {'':>6}"
    print(line, flush=True)


def work(chosen):
    """Print the table, in PyTorch's environment."""
    import torch

    import tapegrad as tg

    torch.set_num_threads(1)
    tg.set_num_threads(1)
    rate = copy_rate(chosen.size, chosen.dtype, chosen.rounds)
    print(f"{chosen.size:,} {chosen.dtype}, us of the thread; copies go at {rate / 1e9:.1f} GB/s")
    head = "".join(f" {way:>9}  ratio" for way in WAYS)
    print(f"{'':34}   floor  tapegrad{head}")
    item = np.dtype(chosen.dtype).itemsize
    rows = [lambda name=name: [optimiser_row(name, *shape)] for name in OPTIMISERS]
    rows += [lambda name=name: chain_rows(name, *shape) for name in CHAINS]
    shape = chosen.size, chosen.dtype
    for name, make in zip([*OPTIMISERS, *CHAINS], rows, strict=True):
        if chosen.only in name:
            for row in make():
                floor = row.arrays * chosen.size * item / rate
                report(row, chosen.rounds, chosen.calls, floor)


def main():
    """Run in PyTorch's environment, with tapegrad and nothing else of this one on its path."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--dtype", default="float32", choices=["float64", "float32"])
    parser.add_argument("--only", default="")
    parser.add_argument("--worker", action="store_true")
    chosen = parser.parse_args()
    if chosen.worker:
        return work(chosen)
    import tapegrad
    from tapegrad.bench import frameworks

    python = frameworks.find("torch").interpreter()
    if python is None:
        sys.exit("torch is not there; `tapegrad bench frameworks install torch` installs it")
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "tapegrad").symlink_to(pathlib.Path(tapegrad.__file__).parent)
        subprocess.run(
            [python, __file__, "--worker", *sys.argv[1:]],
            env=os.environ | {"PYTHONPATH": folder},
            check=True,
        )
    return None


if __name__ == "__main__":
    main()
