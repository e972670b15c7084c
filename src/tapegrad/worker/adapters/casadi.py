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
from tapegrad.worker.evaluator import Evaluator, Run, evaluations, one_by_one
from tapegrad.worker.formulas import Formula
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


def written(formula: Formula, n_variables: int) -> tuple[Any, Any]:
    """Write a formula as an expression of its variables."""
    x = casadi.SX.sym("x", n_variables)
    return x, casadi.sum1(formula.terms(x))


def with_gradient(built: tuple[Any, Any]) -> Run:
    """Compile the target and its gradient."""
    x, target = built
    machine = Machine(x, [target, casadi.densify(casadi.gradient(target, x))])
    return one_by_one(machine.run)


def hessian(built: tuple[Any, Any]) -> Run:
    """Compile the Hessian; since it is symmetric, its entries by columns are those by rows."""
    x, target = built
    machine = Machine(x, [casadi.hessian(target, x)[0]])
    return one_by_one(machine.run, entries=len(machine.results[0]))


class Machine:
    """Expressions of one vector, sorted into instructions, that work in given memory."""

    def __init__(self, x: Any, outputs: list[Any]) -> None:
        function = casadi.Function("graph", [x], outputs)
        self.point = np.empty(x.numel())
        self.results = tuple(
            np.empty(output.nnz() if output.numel() > 1 else ()) for output in outputs
        )
        self.buffer, self.call = function.buffer()  # a call without its buffer crashes
        self.buffer.set_arg(0, self.point.data)
        for index, result in enumerate(self.results):
            self.buffer.set_res(index, result.data)

    def run(self, point: AnyArray) -> tuple[AnyArray, ...]:
        """Evaluate a point."""
        self.point[:] = point
        self.call()
        return self.results


class Casadi(Adapter):
    """One point after the other."""

    dtypes = ("float64",)

    def version(self) -> str:
        """Return CasADi's version."""
        return str(casadi.__version__)

    def graph(self, case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        """Make a graph or formula ready."""
        compiled = hessian if case.op == "hessian" else with_gradient
        contender = Evaluator(
            build=expression,
            write=written,
            compile=lambda built, _: compiled(built),
            ops_per_call=200_000,
        )
        return evaluations(contender, case, arrays)
