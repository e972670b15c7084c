"""Generated C: Python writes each operation as a line, forward and backward, and gcc compiles them.

The lines are cut into many functions: gcc's time grows faster than a function's length.
"""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tapegrad.worker import native
from tapegrad.worker.adapter import Adapter, AnyArray, Work
from tapegrad.worker.case import Case
from tapegrad.worker.evaluator import Evaluator, Result, Run, evaluations
from tapegrad.worker.graphs import Kind, Op, OpList

ADAPTERS = {"generated-c": "GeneratedC"}
REQUIRES = ["numpy"]
IMPORTS = "numpy"

FLAGS = ("-O1", "-ffast-math", "-march=native", "-std=gnu11")
#: Operations in one function: of 10 to 400, this took the least time for 2k operations (2.5 s).
CHUNK = 25

HEAD = """#include <math.h>
#include <string.h>
static inline double softplus(double x) { return fmax(x, 0.) + log1p(exp(-fabs(x))); }
static inline double sigmoid(double x) { return 1. / (1. + exp(-x)); }
static double v[%(n_nodes)d], g[%(n_nodes)d];
"""
TAIL = """
void run_rows(int rows, const double *points, double *targets, double *grads) {
    for (int row = 0; row < rows; row++) {
        memcpy(v, points + row * %(n_inputs)d, sizeof(double) * %(n_inputs)d);
%(forward)s
        double target = %(start)s;
        for (int i = 0; i < %(n_nodes)d; i++) { %(seed)s }
        g[%(n_nodes)d - 1] = 1.;
%(backward)s
        targets[row] = target;
        memcpy(grads + row * %(n_inputs)d, g, sizeof(double) * %(n_inputs)d);
    }
}
"""


def source(graph: OpList) -> str:
    """Write a graph in C."""
    last = graph.n_nodes - 1
    lines = [(_forward(op, out), _backward(op, out)) for op, out in graph.with_outputs()]
    forward, backward = [each[0] for each in lines], [each[1] for each in reversed(lines)]
    sums = graph.target == "sum"
    parts = {
        "n_inputs": graph.n_inputs,
        "n_nodes": graph.n_nodes,
        "forward": _calls("forward", len(lines)),
        "backward": _calls("backward", len(lines)),
        "start": "0." if sums else f"v[{last}]",
        "seed": "target += v[i]; g[i] = 1.;" if sums else "g[i] = 0.;",
    }
    functions = [*_functions("forward", forward), *_functions("backward", backward)]
    return HEAD % parts + "\n".join(functions) + TAIL % parts


def _forward(op: Op, out: int) -> str:
    kind, ins = op
    match kind:
        case Kind.SOFTPLUS:
            return f"v[{out}] = softplus(v[{ins[0]}]);"
        case Kind.SUM:
            return f"v[{out}] = {' + '.join(f'v[{i}]' for i in ins)};"
        case Kind.PRODUCT:
            return f"v[{out}] = v[{ins[0]}] * v[{ins[1]}];"
    largest = f"v[{ins[0]}]"
    for i in ins[1:]:
        largest = f"fmax({largest}, v[{i}])"
    powers = ", ".join(f"e{n} = exp(v[{i}] - m)" for n, i in enumerate(ins))
    total = " + ".join(f"e{n}" for n in range(len(ins)))
    outs = " ".join(f"v[{out + n}] = e{n} * s;" for n in range(len(ins)))
    return f"{{ double m = {largest}, {powers}, s = 1. / ({total}); {outs} }}"


def _backward(op: Op, out: int) -> str:
    kind, ins = op
    match kind:
        case Kind.SOFTPLUS:
            return f"g[{ins[0]}] += g[{out}] * sigmoid(v[{ins[0]}]);"
        case Kind.SUM:
            return " ".join(f"g[{i}] += g[{out}];" for i in ins)
        case Kind.PRODUCT:
            left, right = ins
            return f"g[{left}] += g[{out}] * v[{right}]; g[{right}] += g[{out}] * v[{left}];"
    mean = " + ".join(f"v[{out + n}] * g[{out + n}]" for n in range(len(ins)))
    shares = (f"g[{i}] += v[{out + n}] * (g[{out + n}] - m);" for n, i in enumerate(ins))
    return f"{{ double m = {mean}; {' '.join(shares)} }}"


def _functions(name: str, lines: list[str]) -> Iterator[str]:
    for first in range(0, len(lines), CHUNK):
        body = "\n".join(lines[first : first + CHUNK])
        yield f"__attribute__((noinline)) static void {name}_{first}(void) {{\n{body}\n}}"


def _calls(name: str, count: int) -> str:
    return " ".join(f"{name}_{first}();" for first in range(0, count, CHUNK))


def compiled(text: str) -> Run:
    """Compile a source and load it; compiled and linked apart, as the interpreters are."""
    gcc = native.compiler("gcc")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "graph.c").write_text(text)
        native.run((gcc, *FLAGS, "-fPIC", "-c", "graph.c"), folder)
        native.run((gcc, "-shared", "-o", "graph.so", "graph.o", "-lm"), folder)
        run_rows = ctypes.CDLL(str(Path(folder) / "graph.so"))["run_rows"]

    def run(points: AnyArray) -> Result:
        targets, grads = np.empty(len(points)), np.empty(points.shape)
        pointers = (ctypes.c_void_p(each.ctypes.data) for each in (points, targets, grads))
        run_rows(len(points), *pointers)
        return targets, grads

    return run


class GeneratedC(Adapter):
    """A library for each graph."""

    dtypes = ("float64",)

    def version(self) -> str:
        """Return the compiler's version."""
        return native.compiler_version("gcc")

    def details(self) -> dict[str, Any]:
        """Describe how graphs are compiled."""
        return {"flags": " ".join(FLAGS), "operations in a function": CHUNK}

    def graph(self, case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        """Make a graph ready."""
        contender = Evaluator(
            build=source,
            compile=lambda text, _: compiled(text),
            ops_per_call=1_000_000,
            notes=[f"gcc {' '.join(FLAGS)}"],
        )
        return evaluations(contender, case, arrays)
