"""C: an interpreter that walks an array of structures, as the article's and without its errors.

`c` copies each structure before it looks at it, as the published code does; `c-pointer` does not;
`c-lanes` evaluates eight points per instruction.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapegrad.worker import native
from tapegrad.worker.adapter import Adapter, AnyArray, Work
from tapegrad.worker.case import Case
from tapegrad.worker.evaluator import (
    Evaluator,
    Result,
    churn,
    descent,
    evaluations,
    keeps_denormals,
)
from tapegrad.worker.graphs import MOST_OPERANDS, Floats, OpList

ADAPTERS = {"c": "C", "c-pointer": "CPointer", "c-lanes": "CLanes"}
REQUIRES = ["numpy"]
IMPORTS = "numpy"

#: The structure `Operation` of interpreter.h.
OPERATION = np.dtype(
    [("opcode", "i4"), ("n_arguments", np.uintp), ("ins", "i4", MOST_OPERANDS), ("out", "i4")],
    align=True,
)


class Graph(ctypes.Structure):
    """The structure of the same name in interpreter.h."""

    _fields_ = (
        ("n_inputs", ctypes.c_int),
        ("n_operations", ctypes.c_int),
        ("n_nodes", ctypes.c_int),
        ("target", ctypes.c_int),
        ("ops", ctypes.c_void_p),
    )

    def __init__(self, graph: OpList) -> None:
        kinds, counts, ins, outs = graph.flat()
        self.operations: NDArray[Any] = np.empty(len(kinds), OPERATION)
        self.operations["opcode"], self.operations["n_arguments"] = kinds, counts
        self.operations["ins"], self.operations["out"] = ins, outs
        super().__init__(
            graph.n_inputs,
            len(kinds),
            graph.n_nodes,
            graph.target_node,
            self.operations.ctypes.data,
        )


class C(Adapter):
    """One point after the other."""

    dtypes = ("float64",)
    rows_function = "run_rows"
    steps_function = "run_steps"
    ops_per_call = 1_000_000

    def version(self) -> str:
        """Return the compiler's version."""
        return native.compiler_version("gcc")

    def details(self) -> dict[str, Any]:
        """Describe how it was compiled."""
        kept = keeps_denormals(lambda graph, points: self._evaluate(Graph(graph), points))
        return {"flags": " ".join(native.C_FLAGS), "keeps denormals": kept}

    def graph(self, case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        """Make a graph ready."""
        match case.op:
            case "descend" if self.steps_function:
                return descent(lambda graph: partial(self._descend, Graph(graph)), case, arrays)
            case "churn":
                return churn(Graph, self._evaluate, case, arrays)
        contender = Evaluator(
            build=Graph,
            compile=lambda graph, _: partial(self._evaluate, graph),
            phases=("build", "step"),
            ops_per_call=self.ops_per_call,
        )
        return evaluations(contender, case, arrays)

    def _evaluate(self, graph: Graph, points: Floats) -> Result:
        targets, grads = np.empty(len(points)), np.empty(points.shape)
        pointers = (ctypes.c_void_p(each.ctypes.data) for each in (points, targets, grads))
        run_rows = native.c_library()[self.rows_function]
        run_rows(ctypes.byref(graph), len(points), *pointers)
        return targets, grads

    def _descend(self, graph: Graph, point: Floats, steps: int, rate: float) -> Floats:
        x = point.copy()
        pointer = ctypes.c_void_p(x.ctypes.data)
        native.c_library()[self.steps_function](
            ctypes.byref(graph), steps, ctypes.c_double(rate), pointer
        )
        return x


class CPointer(C):
    """The same without the copy of each structure."""

    rows_function = "run_rows_by_pointer"
    steps_function = "run_steps_by_pointer"


class CLanes(C):
    """Eight points at a time."""

    rows_function = "run_rows_in_lanes"
    steps_function = ""  # each step needs the one before
    ops_per_call = 8_000_000  # full lanes at 100,000 operations too
