"""TensorFlow: eager, and traced by tf.function."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf

from tapegrad.worker import graphs
from tapegrad.worker.adapter import Adapter, AnyArray, Work
from tapegrad.worker.case import Case
from tapegrad.worker.evaluator import Evaluator, Run, eager, evaluations, one_by_one
from tapegrad.worker.graphs import Calls, OpList

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

    dtypes = ("float64",)

    def configure(self) -> None:
        """Pin the threads."""
        tf.config.threading.set_intra_op_parallelism_threads(self.threads)
        tf.config.threading.set_inter_op_parallelism_threads(self.threads)

    def version(self) -> str:
        """Return TensorFlow's version."""
        return str(tf.__version__)

    def graph(self, case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        """Make a scalar graph ready."""
        contender = Evaluator(build=traced, compile=compiled, ops_per_call=20_000)
        return evaluations(contender, case, arrays)


class TensorFlowEager(TensorFlow):
    """TensorFlow, one operation after the other."""

    def graph(self, case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        """Make a scalar graph ready, which is recorded anew at each point."""
        contender = eager(lambda graph, point: value_and_grad(graph, tf.constant(point)), 500)
        return evaluations(contender, case, arrays)
