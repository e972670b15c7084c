"""Targets and gradients in extended precision, by a plain sweep over the list of operations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.scalar.graphs import Floats, Kind, OpList

#: Extended precision where the platform has it (x86), float64 elsewhere.
Extended = NDArray[np.longdouble]

#: A graph with fewer non-zero adjoints than this would flatter whoever skips dead code.
LEAST_NONZERO = 0.9


@dataclass(frozen=True)
class Truth:
    """What every contender must reproduce at these points."""

    points: Floats
    targets: Floats
    grads: Floats
    nonzero: float
    largest_value: float
    smallest_adjoint: float
    largest_adjoint: float

    def complaint(self) -> str | None:
        """Why the graph itself is unfit for a benchmark, if it is."""
        if not (np.isfinite(self.targets).all() and np.isfinite(self.grads).all()):
            return "a value is not finite"
        if self.nonzero < LEAST_NONZERO:
            return f"only {self.nonzero:.0%} of the adjoints are non-zero"
        return None


def solve(graph: OpList, points: Floats) -> Truth:
    """Evaluate the graph and its gradient at each row of `points`."""
    values = _forward(graph, points)
    adjoints = _backward(graph, values)
    magnitude = np.abs(adjoints)
    return Truth(
        points=points,
        targets=values.sum(axis=0).astype(np.float64),
        grads=np.ascontiguousarray(adjoints[: graph.n_inputs].T, dtype=np.float64),
        nonzero=float(np.mean(magnitude.astype(np.float64) != 0)),
        largest_value=float(np.abs(values).max()),
        smallest_adjoint=float(magnitude.min()),
        largest_adjoint=float(magnitude.max()),
    )


def descend(graph: OpList, point: Floats, steps: int, rate: float) -> Floats:
    """Find the point after `steps` dependent gradient steps."""
    x = point.astype(np.longdouble)
    for _ in range(steps):
        values = _forward(graph, x[None, :])
        x = x - np.longdouble(rate) * _backward(graph, values)[: graph.n_inputs, 0]
    return x.astype(np.float64)


def _forward(graph: OpList, points: NDArray[np.floating]) -> Extended:
    """Values of all nodes, one column a point."""
    values = np.empty((graph.n_nodes, len(points)), dtype=np.longdouble)
    values[: graph.n_inputs] = points.T
    out = graph.n_inputs
    for kind, ins in graph.ops:
        match kind:
            case Kind.SOFTPLUS:
                values[out] = np.logaddexp(np.longdouble(0), values[ins[0]])
            case Kind.SUM:
                values[out] = values[list(ins)].sum(axis=0)
            case Kind.PRODUCT:
                values[out] = values[ins[0]] * values[ins[1]]
            case Kind.SOFTMAX:
                x = values[list(ins)]
                powers = np.exp(x - x.max(axis=0))
                values[out : out + len(ins)] = powers / powers.sum(axis=0)
        out += len(ins) if kind is Kind.SOFTMAX else 1
    return values


def _backward(graph: OpList, values: Extended) -> Extended:
    """Adjoints of all nodes; each starts at one because the target is the sum of all nodes."""
    adjoints = np.ones_like(values)
    end = graph.n_nodes
    for kind, ins in reversed(graph.ops):
        out = end - (len(ins) if kind is Kind.SOFTMAX else 1)
        match kind:
            case Kind.SOFTPLUS:
                adjoints[ins[0]] += adjoints[out] / (1 + np.exp(-values[ins[0]]))
            case Kind.SUM:
                for node in ins:
                    adjoints[node] += adjoints[out]
            case Kind.PRODUCT:
                left, right = ins
                adjoints[left] += adjoints[out] * values[right]
                adjoints[right] += adjoints[out] * values[left]
            case Kind.SOFTMAX:
                y, dy = values[out:end], adjoints[out:end]
                dx = y * (dy - (y * dy).sum(axis=0))
                for node, share in zip(ins, dx, strict=True):
                    adjoints[node] += share
        end = out
    return adjoints
