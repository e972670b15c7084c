"""JAX: every phase compiled by jit; scalar graphs also without."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # a worker for a GPU sets it before it starts
import jax
import jax.numpy as jnp
import numpy as np

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
from tapegrad.worker.evaluator import Evaluator, eager, evaluations, one_by_one
from tapegrad.worker.graphs import Calls, OpList
from tapegrad.worker.operators import outputs_of
from tapegrad.worker.operators.jax import MISSING, OPERATORS

ADAPTERS = {"jax": "Jax", "jax-eager": "JaxEager"}
REQUIRES = ["jax"]
IMPORTS = "jax"


def _has_gpu() -> bool:
    try:
        return bool(jax.default_backend() == "gpu")
    except Exception:  # of any kind: the platform that was asked for is missing
        return False


class Jax(Adapter):
    """JAX under jit; a call is over when its result is there."""

    operators: Mapping[str, Callable[..., Any]] = OPERATORS
    missing = MISSING
    compiler = "XLA"

    def __init__(self, device: str, threads: int) -> None:
        super().__init__(device, threads)
        self.devices = ("cpu", "cuda") if _has_gpu() else ("cpu",)
        self._doubles = jax.config.jax_enable_x64

    def close(self) -> None:
        """Leave the 64-bit mode as it was."""
        jax.config.update("jax_enable_x64", self._doubles)

    def configure(self) -> None:
        """Ask for full precision; threads follow the processors that the worker is pinned to."""
        jax.config.update("jax_default_matmul_precision", "highest")

    def version(self) -> str:
        """Return JAX's version."""
        return str(jax.__version__)

    def details(self) -> dict[str, Any]:
        """Describe the device and precision."""
        precision = jax.config.jax_default_matmul_precision
        return {"device": self.devices[-1], "matmul precision": precision}

    def operation(
        self, case: Case, function: Callable[..., Any], arrays: Mapping[str, AnyArray]
    ) -> Work:
        """Make an operator ready; residuals are what jit returns of the linearised forward."""
        jax.config.update("jax_enable_x64", case.dtype == "float64")
        inputs: list[Any] = []
        cotangents: tuple[Any, ...] = ()
        residuals: list[Any] = []

        def of_wrt(inputs: Sequence[Any]) -> tuple[Callable[..., Any], list[Any]]:
            """Split off the inputs whose gradients are asked for."""
            chosen = [index for index, array in enumerate(case.inputs) if array.grad]

            def run(*wrt: Any) -> Any:
                full = list(inputs)
                for index, value in zip(chosen, wrt, strict=True):
                    full[index] = value
                return outputs_of(function(*full))

            return run, [inputs[index] for index in chosen]

        def linearised(*inputs: Any) -> Any:
            run, wrt = of_wrt(inputs)
            return jax.vjp(run, *wrt)

        def both(cotangents: Any, *inputs: Any) -> Any:
            outputs, pull = linearised(*inputs)
            return outputs, pull(cotangents)

        forward = jax.jit(linearised)
        backward = jax.jit(lambda pull, cotangents: pull(cotangents))
        step = jax.jit(both)
        inference = jax.jit(lambda *inputs: outputs_of(function(*inputs)))
        ready = jax.block_until_ready

        def feed(arrays: Mapping[str, AnyArray], given: Sequence[AnyArray]) -> None:
            nonlocal cotangents
            inputs[:] = [
                jnp.array(arrays[array.name].astype(_index_type(array.kind, case.dtype)))
                for array in case.inputs
            ]
            cotangents = tuple(jnp.array(value, dtype=case.dtype) for value in given)
            residuals[:] = [forward(*inputs)[1]] if given and case.wrt else []
            ready((inputs, cotangents, residuals))

        def read(phase: str, result: Any) -> dict[str, AnyArray]:
            match phase:
                case "forward" | "inference":
                    outputs = result[0] if case_wrt and phase == "forward" else result
                    return named_outputs([np.array(each) for each in outputs])
                case "backward":
                    return named_gradients(case_wrt, [np.array(each) for each in result])
                case _:
                    outputs, gradients = result
                    return named_outputs([np.array(each) for each in outputs]) | named_gradients(
                        case_wrt, [np.array(each) for each in gradients]
                    )

        case_wrt = case.wrt
        fresh: list[Any] = []

        def forget() -> None:
            fresh[:] = [jax.jit(lambda *inputs: both(*inputs))]  # noqa: PLW0108  a new function

        phases = {"inference": Phase(lambda: ready(inference(*inputs)))}
        if case_wrt:
            phases |= {
                "compile": Phase(lambda: ready(fresh[0](cotangents, *inputs)), setup=forget),
                "forward": Phase(lambda: ready(forward(*inputs))),
                "backward": Phase(lambda: ready(backward(residuals[0], cotangents))),
                "step": Phase(lambda: ready(step(cotangents, *inputs))),
            }
        else:
            phases["forward"] = phases["inference"]
        feed(arrays, [])
        return Work(phases=phases, feed=feed, arrays=read)

    def graph(self, case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        """Make a scalar graph ready: tracing it is its build, XLA compiles what came of it."""
        jax.config.update("jax_enable_x64", True)
        contender = Evaluator(
            build=lambda graph: jax.jit(_value_and_grad(graph)).lower(np.zeros(graph.n_inputs)),
            compile=lambda lowered, _: one_by_one(lowered.compile()),
            ops_per_call=100_000,
        )
        return evaluations(contender, case, arrays)

    def allocator_peak(self) -> int | None:
        """Peak bytes of the device's allocator, where it counts them (not on the CPU)."""
        statistics = jax.devices()[0].memory_stats()
        return None if statistics is None else int(statistics["peak_bytes_in_use"])


class JaxEager(Jax):
    """JAX without jit, for scalar graphs."""

    operators: Mapping[str, Callable[..., Any]] = {}

    def graph(self, case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        """Make a scalar graph ready, which is traced anew at each point."""
        jax.config.update("jax_enable_x64", True)
        contender = eager(lambda graph, point: _value_and_grad(graph)(point), ops_per_call=100)
        return evaluations(contender, case, arrays)


#: The four operations of scalar graphs on arrays without dimensions.
CALLS = Calls(
    softplus=jax.nn.softplus,
    sum=sum,
    product=jnp.multiply,
    softmax=lambda xs: jnp.unstack(jax.nn.softmax(jnp.stack(xs))),
)


def _value_and_grad(graph: OpList) -> Callable[[Any], Any]:
    function: Callable[[Any], Any] = jax.value_and_grad(
        lambda x: graphs.record(graph, jnp.unstack(x), CALLS)
    )
    return function


def _index_type(kind: str, dtype: str) -> Any:
    """Integers are 32-bit in JAX unless 64-bit mode is on."""
    chosen = input_dtype(kind, dtype)
    return np.dtype(np.int32) if chosen == np.int64 and dtype != "float64" else chosen
