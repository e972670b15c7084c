"""Numba: the tape of numbers in Python, compiled.

What is compiled is an interpreter, so it serves all graphs: a program that meets many of them pays
for compiling once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numba
import numpy as np

from tapegrad.worker.adapter import Adapter, AnyArray, Work
from tapegrad.worker.case import Case
from tapegrad.worker.evaluator import Evaluator, Result, Run, evaluations
from tapegrad.worker.graphs import Kind, OpList

ADAPTERS = {"numba": "Numba"}
REQUIRES = ["numba", "numpy"]
IMPORTS = "numba"

SOFTPLUS, SUM, PRODUCT = int(Kind.SOFTPLUS), int(Kind.SUM), int(Kind.PRODUCT)
#: Arrays of operations, number of nodes, target.
Built = tuple[tuple[Any, ...], int, int]


def forward(ops: Any, v: Any) -> None:
    """Fill in the values of all nodes."""
    kinds, counts, ins, outs = ops
    for op in range(len(kinds)):
        kind, out = kinds[op], outs[op]
        if kind == SOFTPLUS:
            x = v[ins[op, 0]]
            v[out] = max(x, 0.0) + math.log1p(math.exp(-abs(x)))
        elif kind == SUM:
            total = 0.0
            for n in range(counts[op]):
                total += v[ins[op, n]]
            v[out] = total
        elif kind == PRODUCT:
            v[out] = v[ins[op, 0]] * v[ins[op, 1]]
        else:
            largest = v[ins[op, 0]]
            for n in range(1, counts[op]):
                largest = max(largest, v[ins[op, n]])
            total = 0.0
            for n in range(counts[op]):
                v[out + n] = math.exp(v[ins[op, n]] - largest)
                total += v[out + n]
            for n in range(counts[op]):
                v[out + n] /= total


def backward(ops: Any, v: Any, g: Any) -> None:
    """Add up the gradients of all nodes."""
    kinds, counts, ins, outs = ops
    for op in range(len(kinds) - 1, -1, -1):
        kind, out = kinds[op], outs[op]
        grad = g[out]
        if kind == SOFTPLUS:
            g[ins[op, 0]] += grad / (1.0 + math.exp(-v[ins[op, 0]]))
        elif kind == SUM:
            for n in range(counts[op]):
                g[ins[op, n]] += grad
        elif kind == PRODUCT:
            left, right = ins[op, 0], ins[op, 1]
            g[left] += grad * v[right]
            g[right] += grad * v[left]
        else:
            mean = 0.0
            for n in range(counts[op]):
                mean += v[out + n] * g[out + n]
            for n in range(counts[op]):
                g[ins[op, n]] += v[out + n] * (g[out + n] - mean)


def interpreter() -> Callable[..., None]:
    """Return a new interpreter, to be compiled when it is first called."""
    jit = numba.njit(fastmath=True)
    sweep, sweep_back = jit(forward), jit(backward)

    def run_rows(graph: Any, points: Any, targets: Any, grads: Any) -> None:
        ops, n_nodes, target = graph
        n_inputs = points.shape[1]
        v, g = np.empty(n_nodes), np.empty(n_nodes)
        for row in range(len(points)):
            v[:n_inputs] = points[row]
            sweep(ops, v)
            if target < 0:
                targets[row] = v.sum()
                g[:] = 1.0
            else:
                targets[row] = v[target]
                g[:] = 0.0
                g[target] = 1.0
            sweep_back(ops, v, g)
            grads[row] = g[:n_inputs]

    function: Callable[..., None] = jit(run_rows)
    return function


def compiled(graph: Built, points: AnyArray) -> Run:
    """Compile an interpreter by running it at one point."""
    run_rows = interpreter()

    def run(points: AnyArray) -> Result:
        targets, grads = np.empty(len(points)), np.empty(points.shape)
        run_rows(graph, points, targets, grads)
        return targets, grads

    run(points[:1])
    return run


class Numba(Adapter):
    """One point after the other."""

    dtypes = ("float64",)

    def version(self) -> str:
        """Return Numba's version."""
        return str(numba.__version__)

    def graph(self, case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        """Make a graph ready."""
        contender = Evaluator(
            build=_flat,
            compile=compiled,
            ops_per_call=1_000_000,
            notes=["compiled once for all graphs"],
        )
        return evaluations(contender, case, arrays)


def _flat(graph: OpList) -> Built:
    return tuple(graph.flat()), graph.n_nodes, graph.target_node
