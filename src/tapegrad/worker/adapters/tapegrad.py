"""Tapegrad: scalar graphs at single points, in batches or in a native loop; tensors, eager."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import tapegrad.scalar as tg
from tapegrad import __version__, tensors
from tapegrad.worker import graphs
from tapegrad.worker.adapter import (
    Adapter,
    AnyArray,
    Phase,
    Unsupported,
    Work,
    input_dtype,
    named_gradients,
    named_outputs,
)
from tapegrad.worker.case import Case
from tapegrad.worker.evaluator import (
    MANY,
    Evaluator,
    Points,
    Result,
    Run,
    churn,
    descent,
    evaluations,
    keeps_denormals,
    room,
)
from tapegrad.worker.formulas import Formula
from tapegrad.worker.graphs import Floats, Kind, OpList
from tapegrad.worker.operators import outputs_of
from tapegrad.worker.operators.tapegrad import MISSING, OPERATORS
from tapegrad.worker.owned import Owned

ADAPTERS = {
    "tapegrad": "Tapegrad",
    "tapegrad-batch": "TapegradBatch",
    "tapegrad-batch-float32": "TapegradBatchFloat32",
    "tapegrad-loop": "TapegradLoop",
}
REQUIRES = ["tapegrad"]
IMPORTS = "tapegrad"
#: Parts of the package that are not the engine.
BESIDE = ("bench", "cli", "worker")

#: Looking members up in the enum for each operation would add 3 ms to recording 10k of them.
SOFTPLUS, PRODUCT, SOFTMAX = Kind.SOFTPLUS, Kind.PRODUCT, Kind.SOFTMAX
Recorded = tuple[tg.Var, Iterable[tg.Var]]
#: Of one graph, in all.
EVALUATIONS = 10_000


def record(ops: OpList) -> Recorded:
    """Record a graph as a user would; returns the target and the inputs."""
    graph = tg.Graph()
    inputs = graph.inputs(ops.n_inputs)
    nodes = list(inputs)
    for kind, ins in ops.ops:
        if kind is SOFTPLUS:
            nodes.append(tg.softplus(nodes[ins[0]]))
        elif kind is PRODUCT:
            nodes.append(nodes[ins[0]] * nodes[ins[1]])
        elif kind is SOFTMAX:
            nodes.extend(tg.softmax([nodes[i] for i in ins]))
        elif len(ins) == 2:
            nodes.append(nodes[ins[0]] + nodes[ins[1]])
        else:
            nodes.append(tg.sum([nodes[i] for i in ins]))
    return tg.sum(nodes) if ops.target == "sum" else nodes[-1], inputs


def write(formula: Formula, n_variables: int) -> Recorded:
    """Record a formula as a user would; returns the target and the variables."""
    x = tg.Graph().inputs(n_variables)
    return tg.sum(formula.terms(x)), x


def _room(program: tg.Program, points: AnyArray) -> Result:
    """Return memory for a program's results at all points."""
    return room(points, None if program.n_derivatives else program.n_outputs)


def _as_out(results: Sequence[AnyArray]) -> Any:
    """Hand results over as `out` wants them: a pair, or the one array of a program of values."""
    return tuple(results) if len(results) > 1 else results[0]


class Tapegrad(Adapter):
    """Operators on tensors, one by one; of graphs, one call of the program for each point."""

    operators = OPERATORS
    missing = MISSING
    #: What it computes in, if not in float64.
    precision: str | None = None
    #: Enough that a call or two have machine code made, whatever the graph.
    ops_per_call = 3_000_000
    #: What tables of graphs say.
    notes: tuple[str, ...] = (
        "machine code of plain arithmetic is made after 200 points, in no phase",
    )

    def version(self) -> str:
        """Return the package's version."""
        return __version__

    def details(self) -> dict[str, Any]:
        """Describe what code is made for."""
        kept = keeps_denormals(self._evaluate, self.precision)
        return {"instruction set": tg.isa(), "keeps denormals": kept, "build": _build()}

    def configure(self) -> None:
        """Set the threads of tensors."""
        tensors.set_num_threads(self.threads)

    def operation(
        self, case: Case, function: Callable[..., Any], arrays: Mapping[str, AnyArray]
    ) -> Work:
        """Make an operator ready, with the gradients that the case asks for."""
        inputs = [
            tensors.tensor(
                arrays[array.name].astype(input_dtype(array.kind, case.dtype))
            ).requires_grad_(array.grad)
            for array in case.inputs
        ]
        wrt = [tensor for tensor in inputs if tensor.requires_grad]
        cotangents: list[Any] = []
        owned = Owned(cotangents, _address, lambda _, each: each.clone())
        residuals: list[Any] = []

        def feed(arrays: Mapping[str, AnyArray], given: Sequence[AnyArray]) -> None:
            with tensors.no_grad():
                for array, tensor in zip(case.inputs, inputs, strict=True):
                    tensor.copy_(tensors.as_tensor(arrays[array.name], dtype=tensor.dtype))
            cotangents[:] = [tensors.tensor(value, dtype=case.dtype) for value in given]
            residuals[:] = outputs_of(forward()) if given else ()

        def forward() -> Any:
            return function(*inputs)

        def backward() -> Any:
            return owned(_gradients(residuals, wrt, cotangents, retain_graph=True))

        def step() -> Any:
            outputs = function(*inputs)
            return outputs, owned(_gradients(outputs_of(outputs), wrt, cotangents))

        def inference() -> Any:
            with tensors.no_grad():
                return function(*inputs)

        def read(phase: str, result: Any) -> dict[str, AnyArray]:
            outputs, gradients = result if phase == "step" else (result, ())
            if phase == "backward":
                outputs, gradients = (), result
            shown = [each.detach().numpy() for each in outputs_of(outputs)]
            names = case.wrt if gradients else ()
            return named_outputs(shown) | named_gradients(
                names, [each.detach().numpy() for each in gradients]
            )

        calls = {"forward": forward, "inference": inference}
        if wrt:
            calls |= {"backward": backward, "step": step}
        phases = {name: Phase(call) for name, call in calls.items()}
        return Work(phases=phases, feed=feed, arrays=read)

    def graph(self, case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        """Make a graph or formula ready."""
        if case.dtype != "float64":
            raise Unsupported("scalar graphs are of float64")
        if case.op == "call":
            return self._one_call(case, arrays)
        compiled = self.hessian if case.op == "hessian" else self.compiled
        contender = Evaluator(
            build=record,
            write=write,
            compile=lambda recorded, points: self.runner(compiled(recorded), points),
            ops_per_call=self.ops_per_call,
            precision=self.precision,
            notes=self.notes,
        )
        return evaluations(contender, case, arrays)

    def compiled(self, recorded: Recorded) -> tg.Program:
        """Compile a recorded graph."""
        target, inputs = recorded
        return tg.compile(target, wrt=inputs, dtype=self.precision or "float64")

    def hessian(self, recorded: Recorded) -> tg.Program:
        """Compile the entries of a recorded graph's Hessian."""
        target, inputs = recorded
        entries = tg.hessian(target, inputs, sparse=True)
        return entries.compile(inputs=inputs, dtype=self.precision or "float64").program

    def runner(self, program: tg.Program, points: Floats) -> Run:
        """Call the program row by row, into memory that is given."""
        results = _room(program, points)
        calls: list[tuple[AnyArray, Any]] = []

        def run(points: AnyArray) -> Result:
            if not calls:
                outs = (_as_out([each[i, ...] for each in results]) for i in range(len(points)))
                calls.extend(zip(points, outs, strict=True))
            for row, out in calls:
                program(row, out=out)
            return results

        return run

    def _evaluate(self, graph: OpList, points: AnyArray) -> Result:
        """Record, compile and run."""
        return self.runner(self.compiled(record(graph)), points)(points)

    def _one_call(self, case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        """Make the call itself ready, with nothing around it."""
        program = self.compiled(record(graphs.of_case(case)))
        points = Points(case, arrays, 1)
        out = np.empty(()), np.empty(points.rows.shape[1])
        return Work(
            phases={"step": Phase(partial(program, points.rows[0], out=out))},
            feed=points.feed,
            arrays=lambda *_: {"output0": out[0][None].copy(), "grad:x": out[1][None].copy()},
        )


def _build() -> str:
    """Identify the engine's code, compiled and in Python: a version tells little of a checkout."""
    package = Path(tensors.__file__).parents[1]
    files = [
        file
        for ending in ("*.so", "*.py")
        for file in package.rglob(ending)
        if file.relative_to(package).parts[0] not in BESIDE
    ]
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def _address(tensor: Any) -> int:
    """Return where a tensor's memory begins; 0 if all its elements are one."""
    array = tensor._array
    shared = array.size > 1 and not any(array.strides)
    return 0 if shared else int(array.__array_interface__["data"][0])


def _gradients(
    outputs: Sequence[Any],
    wrt: Sequence[Any],
    cotangents: Sequence[Any],
    retain_graph: bool = False,
) -> Sequence[Any]:
    """Return the gradients by `wrt`; results that have none are left out."""
    pairs = [
        (out, weight) for out, weight in zip(outputs, cotangents, strict=False) if out.requires_grad
    ]
    return tensors.grad(
        [out for out, _ in pairs], wrt, [weight for _, weight in pairs], retain_graph=retain_graph
    )


class TapegradBatch(Tapegrad):
    """All points in one call."""

    operators: Mapping[str, Callable[..., Any]] = {}

    ops_per_call = MANY
    notes = ()

    def graph(self, case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        """Make a graph ready, or one new graph after the other."""
        match case.op:
            case "call":
                raise Unsupported("batches only")
            case "churn":
                return churn(lambda graph: graph, self._evaluate, case, arrays, self.precision)
        return super().graph(case, arrays)

    def runner(self, program: tg.Program, points: Floats) -> Run:
        """Evaluate all rows at once, into memory that is given, as often as in the article."""
        program.prepare(rows=EVALUATIONS)
        results = _room(program, points)
        out, threads = _as_out(results), self.threads

        def run(points: Floats) -> Result:
            program.batch(points, threads=threads, out=out)
            return results

        return run


class TapegradBatchFloat32(TapegradBatch):
    """All points in one call, in float32."""

    precision = "float32"


class TapegradLoop(Tapegrad):
    """Gradient steps inside the engine."""

    operators: Mapping[str, Callable[..., Any]] = {}

    def graph(self, case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        """Make gradient steps ready."""
        if case.op != "descend":
            raise Unsupported("a loop of gradient steps only")
        return descent(self._descend, case, arrays)

    def _descend(self, graph: OpList) -> Any:
        program = self.compiled(record(graph))

        def run(point: Floats, steps: int, rate: float) -> AnyArray:
            return program.minimize(point, "sgd", steps=steps, lr=rate).last_x

        return run
