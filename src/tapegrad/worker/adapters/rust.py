"""Rust: the interpreter with checked bounds, on flat arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from tapegrad.worker import native
from tapegrad.worker.adapter import Adapter, AnyArray, Work
from tapegrad.worker.case import Case
from tapegrad.worker.evaluator import Evaluator, Result, evaluations
from tapegrad.worker.graphs import OpList

ADAPTERS = {"rust": "Rust"}
REQUIRES = ["numpy"]
IMPORTS = "numpy"


class Graph(ctypes.Structure):
    """The structure of the same name in interpreter.rs."""

    _fields_ = (
        ("n_inputs", ctypes.c_size_t),
        ("n_operations", ctypes.c_size_t),
        ("n_nodes", ctypes.c_size_t),
        ("target", ctypes.c_ssize_t),
        ("kinds", ctypes.c_void_p),
        ("counts", ctypes.c_void_p),
        ("ins", ctypes.c_void_p),
        ("outs", ctypes.c_void_p),
    )

    def __init__(self, graph: OpList) -> None:
        self.flat = graph.flat()
        sizes = graph.n_inputs, len(graph.ops), graph.n_nodes, graph.target_node
        super().__init__(*sizes, *(array.ctypes.data for array in self.flat))


class Rust(Adapter):
    """One point after the other."""

    dtypes = ("float64",)

    def version(self) -> str:
        """Return the compiler's version."""
        return native.compiler_version("rustc")

    def details(self) -> dict[str, Any]:
        """Describe how it was compiled."""
        return {"flags": " ".join(native.RUST_FLAGS)}

    def graph(self, case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        """Make a graph ready."""
        contender = Evaluator(
            build=Graph,
            compile=lambda graph, _: partial(self._evaluate, graph),
            phases=("build", "step"),
            ops_per_call=1_000_000,
        )
        return evaluations(contender, case, arrays)

    def _evaluate(self, graph: Graph, points: AnyArray) -> Result:
        targets, grads = np.empty(len(points)), np.empty(points.shape)
        pointers = (ctypes.c_void_p(each.ctypes.data) for each in (points, targets, grads))
        native.rust_library()["run_rows"](
            ctypes.byref(graph), ctypes.c_size_t(len(points)), *pointers
        )
        return targets, grads
