"""MXNet 1.9.1, the last release: one operator after the other, run by its threaded engine."""

from __future__ import annotations

import ctypes
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

os.environ.setdefault("MXNET_CPU_WORKER_NTHREADS", "1")  # one operator at a time, on all threads
import mxnet as mx
import numpy as np
from mxnet import autograd, base, nd, profiler

from tapegrad.worker import graphs
from tapegrad.worker.adapter import (
    Adapter,
    AnyArray,
    Phase,
    Work,
    input_dtype,
    named_gradients,
    named_outputs,
)
from tapegrad.worker.case import Case
from tapegrad.worker.evaluator import eager, evaluations
from tapegrad.worker.graphs import Calls, OpList
from tapegrad.worker.networks import network_of
from tapegrad.worker.operators import outputs_of
from tapegrad.worker.operators.mxnet import FUSED, MISSING, OPERATORS

ADAPTERS = {"mxnet": "MXNet"}
REQUIRES = ["mxnet==1.9.1", "numpy==1.23.5"]
IMPORTS = "mxnet"


class MXNet(Adapter):
    """MXNet as it is used; a call is over when its result is there."""

    operators = OPERATORS
    missing = MISSING
    fused = FUSED

    def configure(self) -> None:
        """Let arrays have no dimensions, as scalars do elsewhere."""
        mx.util.set_np_shape(True)

    def version(self) -> str:
        """Return MXNet's version."""
        return str(mx.__version__)

    def details(self) -> dict[str, Any]:
        """Describe threads, engine and libraries."""
        features = mx.runtime.Features()
        return {
            "threads": self.threads,
            "engine": os.environ.get("MXNET_ENGINE_TYPE", "ThreadedEnginePerDevice"),
            "oneDNN": features.is_enabled("MKLDNN"),
            "OpenBLAS": features.is_enabled("BLAS_OPEN"),
        }

    def operation(
        self, case: Case, function: Callable[..., Any], arrays: Mapping[str, AnyArray]
    ) -> Work:
        """Make an operator ready, with the gradients that the case asks for."""
        network = network_of(case)
        carrying = len(network.outputs) if network else None  # statistics have no gradients
        inputs: list[Any] = []
        wrt: list[Any] = []
        cotangents: list[Any] = []
        residuals: list[Any] = []

        def feed(arrays: Mapping[str, AnyArray], given: Sequence[AnyArray]) -> None:
            inputs[:] = [
                nd.array(arrays[array.name], dtype=_dtype(array.kind, case.dtype))
                for array in case.inputs
            ]
            wrt[:] = [value for array, value in zip(case.inputs, inputs, strict=True) if array.grad]
            for value in wrt:
                value.attach_grad()
            cotangents[:] = [nd.array(value, dtype=case.dtype) for value in given[:carrying]]
            residuals[:] = forward() if given and wrt else ()

        def recorded() -> Any:
            with autograd.record():
                return outputs_of(function(*inputs))

        def gradients(outputs: Sequence[Any]) -> Any:
            """Have them written where `attach_grad` says, as users do.

            `autograd.grad`, which returns new arrays, fails in oneDNN for transposed convolutions.
            A graph that is not retained takes what it shares with `residuals` along when it goes:
            inputs without gradients, as the statistics of a batch norm.
            """
            autograd.backward(list(outputs[:carrying]), cotangents, retain_graph=True)
            return [value.grad for value in wrt]

        def forward() -> Any:
            return _finished(recorded())

        def backward() -> Any:
            return _finished(gradients(residuals))

        def step() -> Any:
            outputs = recorded()
            found = gradients(outputs)
            return _finished(outputs), _finished(found)

        def inference() -> Any:
            return _finished(outputs_of(function(*inputs)))

        def read(phase: str, result: Any) -> dict[str, AnyArray]:
            outputs, gradients = _parts(phase, result)
            names = case.wrt if gradients else ()
            return named_outputs(outputs) | named_gradients(names, gradients)

        phases = {"forward": Phase(forward), "inference": Phase(inference)}
        if case.wrt:
            phases |= {"backward": Phase(backward), "step": Phase(step)}
        feed(arrays, [])
        return Work(phases=phases, feed=feed, arrays=read)

    def graph(self, case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        """Make a scalar graph ready, which is recorded anew at each point."""
        return evaluations(eager(_evaluate, ops_per_call=500), case, arrays)

    def settle(self) -> None:
        """Wait until the engine has nothing left to do."""
        nd.waitall()

    def registry(self) -> Mapping[str, Sequence[str]]:
        """Return what users can call, by module; many operators have several names."""
        names: dict[str, list[str]] = {}
        for name in mx.operator.get_all_registered_operators():
            names.setdefault(_real_name(name), []).append(name)
        groups: dict[str, list[str]] = {}
        for real, aliases in names.items():
            if (module := _module(real, aliases)) is not None:
                groups.setdefault(module, []).append(real)
        return groups

    def calls(self, call: Callable[[], Any]) -> set[str]:
        """Return what the profiler sees the engine run, under its real names."""
        profiler.set_config(
            profile_imperative=True,
            aggregate_stats=True,
            filename=f"{_scratch().name}/profile.json",  # removed and made anew, whatever it is
        )
        profiler.set_state("run")
        try:
            call()
            self.settle()
        finally:
            profiler.set_state("stop")
        seen = json.loads(profiler.dumps(reset=True, format="json"))["Time"]
        return set(seen.get("operator", {}))


@cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    """Make a folder that goes when the process does."""
    return tempfile.TemporaryDirectory(prefix="tapegrad-mxnet-")


#: The four operations of scalar graphs on arrays with one element.
CALLS = Calls(
    softplus=lambda x: nd.Activation(x, act_type="softrelu"),
    sum=lambda xs: nd.add_n(*xs),
    product=nd.multiply,
    softmax=lambda xs: _unstacked(nd.softmax(nd.concat(*xs, dim=0))),
)


def _unstacked(x: Any) -> Sequence[Any]:
    return outputs_of(nd.split(x, num_outputs=x.size, axis=0))


def _evaluate(graph: OpList, point: AnyArray) -> tuple[Any, Any]:
    x = nd.array(point, dtype=point.dtype)
    x.attach_grad()
    with autograd.record():
        value = graphs.record(graph, _unstacked(x), CALLS)
    value.backward()
    return value.asscalar(), x.grad.asnumpy()


def _real_name(name: str) -> str:
    """Return the name under which an operator runs, whichever of its names this is."""
    handle, real = base.OpHandle(), ctypes.c_char_p()
    base.check_call(base._LIB.NNGetOpHandle(base.c_str(name), ctypes.byref(handle)))
    base.check_call(base._LIB.MXSymbolGetAtomicSymbolName(handle, ctypes.byref(real)))
    return str(base.py_str(real.value))


def _module(real: str, aliases: Sequence[str]) -> str | None:
    """Return where users find an operator, None for what only MXNet itself calls."""
    if "backward" in real:
        return None
    for prefix in base._OP_NAME_PREFIX_LIST:  # as `_contrib_`
        if real.startswith(prefix):
            return f"nd.{prefix.strip('_')}"
    if not all(alias.startswith("_") for alias in aliases):
        return "nd"
    return "np" if base._is_np_op(real) else None


def _dtype(kind: str, dtype: str) -> np.dtype[Any]:
    """Tell the type of an input; flags are bytes, since its calls take no booleans."""
    return np.dtype(np.uint8) if kind == "flags" else input_dtype(kind, dtype)


def _finished(results: Sequence[Any]) -> Sequence[Any]:
    """Wait until results are there: calls return before."""
    for each in results:
        each.wait_to_read()
    return results


def _parts(phase: str, result: Any) -> tuple[list[AnyArray], list[AnyArray]]:
    """Read outputs and gradients from what a phase returned."""
    outputs: Sequence[Any] = ()
    gradients: Sequence[Any] = ()
    match phase:
        case "forward" | "inference":
            outputs = result
        case "backward":
            gradients = result
        case _:
            outputs, gradients = result
    return [each.asnumpy() for each in outputs], [each.asnumpy() for each in gradients]
