"""CasADi: scalar expressions (SX), differentiated symbolically and run by its virtual machine."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import casadi
import numpy as np

from tapegrad.worker import graphs
from tapegrad.worker.adapter import Adapter, AnyArray, Work
from tapegrad.worker.case import Case
from tapegrad.worker.evaluator import Evaluator, evaluations, one_by_one
from tapegrad.worker.graphs import Calls, OpList

ADAPTERS = {"casadi": "Casadi"}
REQUIRES = ["casadi", "numpy"]
IMPORTS = "casadi"


def _softplus(x: Any) -> Any:
    return casadi.fmax(x, 0) + casadi.log1p(casadi.exp(-casadi.fabs(x)))


def _softmax(xs: list[Any]) -> list[Any]:
    largest = reduce(casadi.fmax, xs)
    powers = [casadi.exp(x - largest) for x in xs]
    total = sum(powers)
    return [power / total for power in powers]


CALLS = Calls(_softplus, sum, lambda x, y: x * y, _softmax)


def expression(graph: OpList) -> tuple[Any, Any]:
    """Write a graph as an expression of its inputs."""
    x = casadi.SX.sym("x", graph.n_inputs)
    return x, graphs.record(graph, casadi.vertsplit(x), CALLS)


class Machine:
    """An expression with its gradient, sorted into instructions, that works in given memory."""

    def __init__(self, built: tuple[Any, Any]) -> None:
        x, target = built
        outputs = [target, casadi.densify(casadi.gradient(target, x))]
        function = casadi.Function("graph", [x], outputs)
        self.point, self.value, self.grad = np.empty(x.numel()), np.empty(1), np.empty(x.numel())
        self.buffer, self.call = function.buffer()  # a call without its buffer crashes
        self.buffer.set_arg(0, self.point.data)
        self.buffer.set_res(0, self.value.data)
        self.buffer.set_res(1, self.grad.data)

    def run(self, point: AnyArray) -> tuple[Any, Any]:
        """Evaluate a point."""
        self.point[:] = point
        self.call()
        return self.value[0], self.grad


class Casadi(Adapter):
    """One point after the other."""

    dtypes = ("float64",)

    def version(self) -> str:
        """Return CasADi's version."""
        return str(casadi.__version__)

    def graph(self, case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        """Make a graph ready."""
        contender = Evaluator(
            build=expression,
            compile=lambda built, _: one_by_one(Machine(built).run),
            ops_per_call=200_000,
        )
        return evaluations(contender, case, arrays)
