"""Misuse raises; it never ends the process. Each case runs in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

PREPARE = """
import gc
import numpy as np
import tapegrad as tg

graph = tg.Graph()
x = graph.inputs(3)

class Unruly(int):
    def __float__(self):
        raise KeyError("inside")

class Clearing(int):
    def __float__(self):
        items.clear()
        gc.collect()
        return 1.0

items = [x[0] * 2.5, Clearing(3), *(x[0] * k for k in range(2, 50))]
knot = np.empty(2, dtype=object)
knot[:] = [knot, knot]
"""

RAISES = [
    "x[0] + Unruly(3)",
    "Unruly(3) * x[0]",
    "x[0] ** Unruly(3)",
    "x[0] < Unruly(3)",
    "tg.exp(Unruly(3))",
    "tg.sum([x[0], Unruly(3)])",
    "tg.exp(knot)",
    "tg.add(knot, x[0])",
    "tg.sum(knot)",
    "tg.compile(knot)",
    "tg.Program.__new__(tg.Program)([1.0])",
    "tg.Var()",
    "tg.Var.__new__(tg.Var)",
    "tg.Program.__new__(tg.Program).batch([[1.0]])",
    "tg.Graph.__new__(tg.Graph).input()",
    "tg.Program([x[0], x[1]], None, None, 'float64', True)([1.0, 2.0, 3.0])",
    "tg.Program([x[0], x[1]], [x[0]], None, 'float64', True).batch(np.ones((500, 3)))",
    "tg.Program([], None, None, 'float64', False)",
    "graph.inputs(2**62)",
    "tg.sum([x[0]] * 17_000_000)",
]
WORKS = [
    "tg.sum(items)",
    "tg.Program((v * 2.0 for v in [tg.Graph().input()]), None, None, 'float64', False)([1.0])",
    "tg.compile(x[0]).batch(np.zeros((10**5, 3)), threads=10**6)",
    "tg.compile([x[0]] * 100_000)([1.0, 2.0, 3.0])",
    "tg.compile(x[0], wrt=list(x) * 1000)([1.0, 2.0, 3.0])",
    "del graph, x, items; gc.collect()",
]


def outcome(statement: str) -> str:
    """What a process prints that runs a statement, or how it ended."""
    script = f"{PREPARE}\ntry:\n    {statement}\nexcept Exception:\n    print('raised')\n"
    script += "else:\n    print('worked')\n"
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    return ran.stdout.strip() if ran.returncode == 0 else f"ended with {ran.returncode}"


@pytest.mark.parametrize("statement", RAISES)
def test_misuse_raises(statement: str) -> None:
    assert outcome(statement) == "raised"


@pytest.mark.parametrize("statement", WORKS)
def test_unusual_use_works(statement: str) -> None:
    assert outcome(statement) == "worked"
