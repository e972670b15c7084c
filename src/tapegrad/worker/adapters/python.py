"""Plain Python, the article's two designs: objects that remember, and a tape of numbers."""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable, Mapping

from tapegrad.worker import graphs
from tapegrad.worker.adapter import Adapter, AnyArray, Work
from tapegrad.worker.case import Case
from tapegrad.worker.evaluator import Evaluator, eager, evaluations, one_by_one
from tapegrad.worker.graphs import Calls, Floats, Kind, OpList

ADAPTERS = {"python-objects": "PythonObjects", "python-tape": "PythonTape"}
REQUIRES = ["numpy"]
IMPORTS = "numpy"

Point = tuple[float, list[float]]
#: As plain numbers: looking them up in the enum would take longer than a product does.
SOFTPLUS, SUM, PRODUCT = int(Kind.SOFTPLUS), int(Kind.SUM), int(Kind.PRODUCT)


def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > 0 else 1 - 1 / (1 + math.exp(x))


def _softmax(values: Iterable[float]) -> list[float]:
    values = list(values)
    largest = max(values)
    powers = [math.exp(value - largest) for value in values]
    total = sum(powers)
    return [power / total for power in powers]


class Var:
    """A value and what has flowed back to it."""

    __slots__ = ("grad", "value")

    def __init__(self, value: float) -> None:
        self.value = value
        self.grad = 0.0


class ObjectTape:
    """Remembers which objects each operation has read and made."""

    def __init__(self) -> None:
        self.ops: list[tuple[str, list[Var], list[Var]]] = []
        self.calls = Calls(
            lambda x: self.note("softplus", [x], [_softplus(x.value)])[0],
            lambda xs: self.note("sum", xs, [sum(x.value for x in xs)])[0],
            lambda x, y: self.note("product", [x, y], [x.value * y.value])[0],
            lambda xs: self.note("softmax", xs, _softmax(x.value for x in xs)),
        )

    def note(self, name: str, ins: list[Var], values: list[float]) -> list[Var]:
        """Make the results of an operation and remember it."""
        outs = [Var(value) for value in values]
        self.ops.append((name, ins, outs))
        return outs

    def backward(self, target: Var) -> None:
        """Send the target's gradient back through all operations, the last one first."""
        target.grad = 1.0
        for name, ins, outs in reversed(self.ops):
            grad = outs[0].grad
            match name:
                case "softplus":
                    ins[0].grad += grad * _sigmoid(ins[0].value)
                case "sum":
                    for x in ins:
                        x.grad += grad
                case "product":
                    x, y = ins
                    x.grad += grad * y.value
                    y.grad += grad * x.value
                case "softmax":
                    mean = sum(y.value * y.grad for y in outs)
                    for x, y in zip(ins, outs, strict=True):
                        x.grad += y.value * (y.grad - mean)


def run_objects(graph: OpList, point: Floats) -> Point:
    """Evaluate a point with new objects for everything."""
    tape = ObjectTape()
    inputs = [Var(value) for value in point.tolist()]
    target = graphs.record(graph, inputs, tape.calls)
    tape.backward(target)
    return target.value, [x.grad for x in inputs]


class IndexTape:
    """Holds all values in one list; operations are numbers that point into it."""

    def __init__(self, graph: OpList) -> None:
        self.graph = graph
        self.ops = [(int(op.kind), op.ins, out) for op, out in graph.with_outputs()]
        self.n_nodes = graph.n_nodes

    def run(self, point: Floats) -> Point:
        """Evaluate a point."""
        values = point.tolist() + [0.0] * (self.n_nodes - self.graph.n_inputs)
        self.forward(values)
        if self.graph.target == "sum":
            target, grads = sum(values), [1.0] * self.n_nodes
        else:
            target, grads = values[-1], [0.0] * self.n_nodes
            grads[-1] = 1.0
        self.backward(values, grads)
        return target, grads[: self.graph.n_inputs]

    def forward(self, v: list[float]) -> None:
        """Fill in all values."""
        for kind, ins, out in self.ops:
            if kind == SOFTPLUS:
                v[out] = _softplus(v[ins[0]])
            elif kind == SUM:
                v[out] = sum([v[i] for i in ins])
            elif kind == PRODUCT:
                v[out] = v[ins[0]] * v[ins[1]]
            else:
                v[out : out + len(ins)] = _softmax([v[i] for i in ins])

    def backward(self, v: list[float], g: list[float]) -> None:
        """Add up the gradients of all nodes."""
        for kind, ins, out in reversed(self.ops):
            grad = g[out]
            if kind == SOFTPLUS:
                g[ins[0]] += grad * _sigmoid(v[ins[0]])
            elif kind == SUM:
                for i in ins:
                    g[i] += grad
            elif kind == PRODUCT:
                left, right = ins
                g[left] += grad * v[right]
                g[right] += grad * v[left]
            else:
                outs = range(out, out + len(ins))
                mean = sum([v[j] * g[j] for j in outs])
                for i, j in zip(ins, outs, strict=True):
                    g[i] += v[j] * (g[j] - mean)


class PythonObjects(Adapter):
    """Records the operations anew at each point."""

    dtypes = ("float64",)

    def version(self) -> str:
        """Return Python's version."""
        return platform.python_version()

    def graph(self, case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        """Make a graph ready."""
        return evaluations(eager(run_objects, ops_per_call=10_000), case, arrays)


class PythonTape(PythonObjects):
    """Records the operations once."""

    def graph(self, case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        """Make a graph ready."""
        contender = Evaluator(
            build=IndexTape,
            compile=lambda tape, _: one_by_one(tape.run),
            phases=("build", "step"),
            ops_per_call=20_000,
        )
        return evaluations(contender, case, arrays)
