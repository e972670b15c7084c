"""Suite `graphs`: the article's journey, from PyTorch to machine code, with every step repaired.

The graph is that of "Fastest Autograd in the West": softplus, sum of four, product and softmax of
four in turn. Its target is the sum of all nodes: the gradient of the article's own, the last node,
has underflowed to zero at 10,000 operations, and one case shows that no contender can be trusted
with it. Small graphs are for those that do not survive large ones.
"""

from __future__ import annotations

from typing import Any

from tapegrad.bench.suite import Suite
from tapegrad.worker.case import Array, Case
from tapegrad.worker.graphs import n_inputs

#: Points by number of operations: the oracle keeps all nodes at all of them, 140 MB.
ROWS = {100: 1_000, 1_000: 1_000, 10_000: 1_000, 100_000: 100}
SIZES = {100: "small", 1_000: "medium"}
#: Gradient steps of a descent, and a rate at which they lead far enough to be compared. They are so
#: many that a look at the point to which the last one led, which not all take, does not count.
STEPS = 100
RATE = 1e-3


def graph(family: str, ops: int, target: str = "sum") -> Case:
    """Describe value and gradient of one graph at many points."""
    return _case("graph", family, ops, ROWS[ops], target=target)


def descent(family: str, ops: int) -> Case:
    """Describe gradient steps, each from where the last one led."""
    return _case("descend", family, ops, 1, steps=STEPS, rate=RATE)


def churn(ops: int, rows: int, graphs: int = 1) -> Case:
    """Describe meeting new random graphs all the time."""
    return _case("churn", "random", ops, rows, graphs=graphs)


def call() -> Case:
    """Describe the smallest evaluation: what is left is the cost of a call."""
    return _case("call", "product", 1, 1)


def _case(op: str, family: str, ops: int, rows: int, **attrs: Any) -> Case:
    return Case(
        level="graph",
        op=op,
        inputs=(Array("x", (rows, n_inputs(family, ops)), grad=op != "descend", kind="uniform"),),
        attrs={"family": family, "ops": ops, "seed": 0, "target": "sum"} | attrs,
        size=SIZES.get(ops, "large" if ops > 1 else "small"),
        dtype="float64",
        phases=("build", "compile", "step") if op == "graph" else ("step",),
        reduction=2 * ops,
    )


SUITE = Suite(
    name="graphs",
    summary="scalar graphs of 100 to 100,000 operations: build, compile and evaluate",
    cases=(
        *(graph("chain", ops) for ops in ROWS),
        graph("chain", 10_000, target="last"),
        descent("chain", 10_000),
    ),
    frameworks=(
        "c",
        "c-pointer",
        "c-lanes",
        "torch",
        "torch-compile",
        "jax",
        "jax-eager",
        "tensorflow",
        "tensorflow-eager",
        "numpy",
        "python-objects",
        "python-tape",
        "numba",
        "rust",
        "generated-c",
        "wasm",
        "casadi",
        "tapegrad",
        "tapegrad-batch",
        "tapegrad-batch-float32",
        "tapegrad-loop",
    ),
)
