"""A graph and its gradient in NumPy, all points at once: what contenders must reproduce."""

from __future__ import annotations

import numpy as np

from tapegrad.worker.graphs import Floats, Kind, OpList


def evaluate(graph: OpList, points: Floats) -> tuple[Floats, Floats]:
    """Return targets (rows,) and gradients (rows, inputs)."""
    values = forward(graph, points)
    adjoints = backward(graph, values)
    targets = values.sum(axis=0) if graph.target == "sum" else values[-1].copy()
    return targets, np.ascontiguousarray(adjoints[: graph.n_inputs].T)


def descend(graph: OpList, point: Floats, steps: int, rate: float) -> Floats:
    """Find the point after `steps` dependent gradient steps."""
    x = point.copy()
    for _ in range(steps):
        x -= rate * evaluate(graph, x[None])[1][0]
    return x


def forward(graph: OpList, points: Floats) -> Floats:
    """Compute the values of all nodes, one column a point."""
    values = np.empty((graph.n_nodes, len(points)))
    values[: graph.n_inputs] = points.T
    for (kind, ins), out in graph.with_outputs():
        match kind:
            case Kind.SOFTPLUS:
                np.logaddexp(0.0, values[ins[0]], out=values[out])
            case Kind.SUM:
                values[list(ins)].sum(axis=0, out=values[out])
            case Kind.PRODUCT:
                np.multiply(values[ins[0]], values[ins[1]], out=values[out])
            case Kind.SOFTMAX:
                x = values[list(ins)]
                powers = np.exp(x - x.max(axis=0))
                np.divide(powers, powers.sum(axis=0), out=values[out : out + len(ins)])
    return values


def backward(graph: OpList, values: Floats) -> Floats:
    """Compute the adjoints of all nodes; an operand that occurs twice receives twice."""
    adjoints = np.full_like(values, 1.0 if graph.target == "sum" else 0.0)
    adjoints[-1] = 1.0
    for (kind, ins), out in reversed(list(graph.with_outputs())):
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
                outs = slice(out, out + len(ins))
                y, dy = values[outs], adjoints[outs]
                for node, share in zip(ins, y * (dy - (y * dy).sum(axis=0)), strict=True):
                    adjoints[node] += share
    return adjoints
