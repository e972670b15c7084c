"""Measures loops: compile time, values kept and time per step, against the same steps unrolled.

    python tools/scan.py

Prints the table of docs/control-flow.md: a pendulum of two carries, value and gradient by three
variables, one point at a time and in a batch, one thread. Least of several repeats.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tapegrad as tg

ROWS = 1024
CASES = [
    (1_000, 64),
    (1_000, 1_000_000),
    (1_000, None),
    (100_000, 64),
    (100_000, 512),
    (100_000, 1_000_000),
    (100_000, None),
]


def seconds(function: Callable[[], Any], repeats: int = 7) -> float:
    """Return the least time of several calls."""
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        found.append(time.perf_counter() - start)
    return min(found)


def programs(steps: int, checkpoint: int | None) -> tuple[tg.Program, tg.Program]:
    """Record and compile: the value alone, and with its gradient; None unrolls the steps."""
    x = tg.Graph().inputs(3)
    times = np.linspace(0, 1, steps)

    def step(carry: Any, t: Any) -> Any:
        p, v = carry
        return (p + x[2] * v, v - x[2] * tg.sin(p) * t), None

    carry = (x[0], x[1])
    if checkpoint is None:
        for t in times:
            carry, _ = step(carry, t)
    else:
        carry, _ = tg.scan(step, carry, times, checkpoint=checkpoint)
    return tg.compile(carry[0]), tg.compile(carry[0], wrt=x)


def main() -> None:
    """Print a row for each case."""
    print("| steps | `checkpoint` | record, compile, ms | values kept | value, ns a step |", end="")
    print(" with gradient | gradient in a batch |\n|---|---|---|---|---|---|---|")
    rows = np.random.default_rng(0).random((ROWS, 3)) * 0.01
    for steps, checkpoint in CASES:
        made = seconds(lambda: programs(steps, checkpoint), 3)  # noqa: B023
        value, gradient = programs(steps, checkpoint)
        times = [
            seconds(lambda: value(rows[0])),  # noqa: B023
            seconds(lambda: gradient(rows[0])),  # noqa: B023
            seconds(lambda: gradient.batch(rows, threads=1), 3) / ROWS,  # noqa: B023
        ]
        kept = gradient.stats["slots"]
        each = " | ".join(f"{each / steps * 1e9:.3g}" for each in times)
        name = f"{checkpoint:,}" if checkpoint else "unrolled"
        print(f"| {steps:,} | {name} | {made * 1e3:.2g} | {kept:,} | {each} |", flush=True)


if __name__ == "__main__":
    main()
