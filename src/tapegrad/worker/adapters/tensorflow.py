"""TensorFlow: eager, and traced by tf.function."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# By itself TensorFlow asks oneDNN only where there is AVX-512: here it is one contender anywhere.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

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
from tapegrad.worker.evaluator import Evaluator, Run, eager, evaluations, one_by_one
from tapegrad.worker.graphs import Calls, OpList
from tapegrad.worker.operators import outputs_of
from tapegrad.worker.operators.tensorflow import (
    CHANNELS_LAST,
    FUSED,
    FUSED_CALLS,
    MISSING,
    OPERATORS,
    TRANSPOSED,
)
from tapegrad.worker.owned import Owned

ADAPTERS = {"tensorflow": "TensorFlow", "tensorflow-eager": "TensorFlowEager"}
REQUIRES = ["tensorflow-cpu", "numpy"]
IMPORTS = "tensorflow"

#: The four operations of scalar graphs on tensors without dimensions.
CALLS = Calls(
    softplus=tf.nn.softplus,
    sum=tf.add_n,
    product=tf.multiply,
    softmax=lambda xs: tf.unstack(tf.nn.softmax(tf.stack(xs))),
)


def value_and_grad(graph: OpList, x: Any) -> tuple[Any, Any]:
    """Run a graph and differentiate it."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        target = graphs.record(graph, tf.unstack(x), CALLS)
    return target, tape.gradient(target, x)


def traced(graph: OpList) -> Any:
    """Trace a graph and its gradient into TensorFlow's own graph."""
    function = tf.function(lambda x: value_and_grad(graph, x), autograph=False)
    return function.get_concrete_function(tf.TensorSpec((graph.n_inputs,), tf.float64))


def compiled(function: Any, points: AnyArray) -> Run:
    """Have a traced function optimised by calling it."""
    run = one_by_one(lambda point: function(tf.constant(point)))
    run(points[:1])
    return run


class TensorFlow(Adapter):
    """TensorFlow under tf.function."""

    operators = OPERATORS
    channels_last = CHANNELS_LAST
    missing = MISSING
    fused = FUSED

    def configure(self) -> None:
        """Pin the threads."""
        tf.config.threading.set_intra_op_parallelism_threads(self.threads)
        tf.config.threading.set_inter_op_parallelism_threads(self.threads)

    def version(self) -> str:
        """Return TensorFlow's version."""
        return str(tf.__version__)

    def traced(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Prepare a function for running: it is traced with its first inputs."""
        result: Callable[..., Any] = tf.function(function, autograph=False)
        return result

    def operation(
        self, case: Case, function: Callable[..., Any], arrays: Mapping[str, AnyArray]
    ) -> Work:
        """Make an operator ready.

        A tape around a traced function runs its forward half with residuals as results, and has
        its backward half traced too: the phases are separate programs.
        """
        chosen = [index for index, array in enumerate(case.inputs) if array.grad]
        inputs: list[Any] = []
        wrt: list[Any] = []
        cotangents: list[Any] = []
        residuals: list[Any] = []
        owned = Owned(cotangents, _address, lambda _, each: tf.raw_ops.DeepCopy(x=each))

        def compute(*inputs: Any) -> Any:
            return outputs_of(function(*inputs))

        def both(inputs: Sequence[Any], cotangents: Sequence[Any]) -> Any:
            wrt = [inputs[index] for index in chosen]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(wrt)
                outputs = compute(*inputs)
            return outputs, _gradients(tape, outputs, wrt, cotangents)

        run = self.traced(compute)
        step = self.traced(both)
        fresh: list[Callable[..., Any]] = []

        def forget() -> None:
            fresh[:] = [self.traced(lambda *given: both(*given))]  # noqa: PLW0108  a new function

        def feed(arrays: Mapping[str, AnyArray], given: Sequence[AnyArray]) -> None:
            inputs[:] = [
                tf.constant(arrays[array.name].astype(input_dtype(array.kind, case.dtype)))
                for array in case.inputs
            ]
            wrt[:] = [inputs[index] for index in chosen]
            cotangents[:] = [tf.constant(value, case.dtype) for value in given]
            residuals[:] = forward(persistent=True) if given and chosen else ()

        def forward(persistent: bool = False) -> Any:
            with tf.GradientTape(persistent, watch_accessed_variables=False) as tape:
                tape.watch(wrt)
                outputs = run(*inputs)
            return outputs, tape

        def backward() -> Any:
            outputs, tape = residuals
            return owned(_gradients(tape, outputs, wrt, cotangents))

        def both_owned() -> Any:
            outputs, gradients = step(inputs, cotangents)
            return outputs, owned(gradients)

        def read(phase: str, result: Any) -> dict[str, AnyArray]:
            outputs, gradients = _parts(phase if chosen else "inference", result)
            names = case.wrt if gradients else ()
            return named_outputs(outputs) | named_gradients(names, gradients)

        inference = Phase(lambda: run(*inputs))
        phases = {"forward": inference, "inference": inference}
        if chosen:
            phases |= {
                "compile": Phase(lambda: fresh[0](inputs, cotangents), setup=forget),
                "forward": Phase(forward),
                "backward": Phase(backward),
                "step": Phase(both_owned),
            }
        feed(arrays, [])
        turned = case.level == "operator" and case.dtype in TRANSPOSED.get(case.op, ())
        notes = ["transposed to channels last and back"] if turned else []
        return Work(phases=phases, feed=feed, arrays=read, notes=notes)

    def registry(self) -> Mapping[str, Sequence[str]]:
        """Return the operations of `tf.raw_ops` that are not deprecated."""
        groups: dict[str, list[str]] = {}
        for name in dir(tf.raw_ops):
            definition = op_def_registry.get(name)
            if definition is not None and not definition.deprecation.version:
                group = "stateful" if definition.is_stateful else "stateless"
                groups.setdefault(group, []).append(name)
        return groups

    def calls(self, call: Callable[[], Any]) -> set[str]:
        """Return the operations of the graph that a call traces, and of functions in it."""
        function = tf.function(call, autograph=False).get_concrete_function()
        graph = function.graph.as_graph_def()
        inner = (node for each in graph.library.function for node in each.node_def)
        return {node.op for node in (*graph.node, *inner)}

    def graph(self, case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        """Make a scalar graph ready."""
        _demand_doubles(case)
        contender = Evaluator(build=traced, compile=compiled, ops_per_call=20_000)
        return evaluations(contender, case, arrays)


class TensorFlowEager(TensorFlow):
    """TensorFlow, one operation after the other."""

    fused = FUSED_CALLS

    def traced(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Prepare a function for running; eager mode takes it as it is."""
        return function

    def graph(self, case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        """Make a scalar graph ready, which is recorded anew at each point."""
        _demand_doubles(case)
        contender = eager(lambda graph, point: value_and_grad(graph, tf.constant(point)), 500)
        return evaluations(contender, case, arrays)


def _demand_doubles(case: Case) -> None:
    if case.dtype != "float64":
        raise Unsupported(f"no scalar graphs in {case.dtype}, only float64")


def _address(tensor: Any) -> int:
    """Return where a tensor's memory begins; its array shares it.

    A single number has none, and what is only traced has not yet.
    """
    array = tensor._numpy() if hasattr(tensor, "_numpy") else None
    return int(array.ctypes.data) if isinstance(array, np.ndarray) else id(tensor)


def _gradients(tape: Any, outputs: Any, wrt: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    """Differentiate; rows that a lookup touched are put into a whole array."""
    found = tape.gradient(outputs, wrt, output_gradients=cotangents)
    return [tf.convert_to_tensor(each) for each in found]


def _parts(phase: str, result: Any) -> tuple[list[AnyArray], list[AnyArray]]:
    """Read outputs and gradients from what a phase returned."""
    outputs: Sequence[Any] = ()
    gradients: Sequence[Any] = ()
    match phase:
        case "inference":
            outputs = result
        case "forward":
            outputs, _ = result
        case "backward":
            gradients = result
        case _:
            outputs, gradients = result
    return [_numpy(each) for each in outputs], [_numpy(each) for each in gradients]


def _numpy(tensor: Any) -> AnyArray:
    array: AnyArray = tensor.numpy().copy()
    return array
