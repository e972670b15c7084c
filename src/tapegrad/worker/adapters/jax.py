"""JAX: every phase compiled by jit; scalar graphs also without."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # a worker for a GPU sets it before it starts
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive, jaxprs_in_params, primitives

from tapegrad.worker import graphs
from tapegrad.worker.adapter import (
    Adapter,
    AnyArray,
    Call,
    Phase,
    Unsupported,
    Work,
    input_dtype,
    named_gradients,
    named_outputs,
)
from tapegrad.worker.case import Case
from tapegrad.worker.evaluator import Evaluator, eager, evaluations, one_by_one
from tapegrad.worker.formulas import Formula
from tapegrad.worker.graphs import Calls, OpList
from tapegrad.worker.operators import outputs_of
from tapegrad.worker.operators.jax import CHANNELS_LAST, MISSING, OPERATORS

ADAPTERS = {"jax": "Jax", "jax-eager": "JaxEager"}
REQUIRES = ["jax"]
IMPORTS = "jax"


def _has_gpu() -> bool:
    try:
        return bool(jax.default_backend() == "gpu")
    except Exception:  # of any kind: the platform that was asked for is missing
        return False


class Jax(Adapter):
    """JAX under jit.

    On the CPU a call is over when its result is there. On a GPU it is over when it is in the
    GPU's queue, as in PyTorch; who needs the result waits for it, and `elapsed` does at its end.
    """

    operators: Mapping[str, Callable[..., Any]] = OPERATORS
    channels_last = CHANNELS_LAST
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
        """Ask for full precision; threads follow the processors that the worker is pinned to.

        Convolutions follow the precision of products too: at "highest" XLA lets neither use TF32.
        """
        jax.config.update("jax_default_matmul_precision", "highest")

    def version(self) -> str:
        """Return JAX's version."""
        return str(jax.__version__)

    def details(self) -> dict[str, Any]:
        """Describe the device and precision."""
        precision = jax.config.jax_default_matmul_precision
        found = {"device": self.devices[-1], "matmul precision": precision}
        if self._queues:
            found |= {"tf32": precision != "highest", "GPU": jax.devices()[0].device_kind}
        return found

    @property
    def _queues(self) -> bool:
        """Whether calls are put into a GPU's queue."""
        return self.device == "cuda" and "cuda" in self.devices

    def settle(self) -> None:
        """Wait for the GPU: it works its queue off in order."""
        if self._queues:
            jax.block_until_ready(_last_in_queue(0.0))

    def elapsed(self, call: Call, calls: int) -> float:
        """Time by the clock; on a GPU until the last result is there.

        JAX offers no events. Calls are put into the queue and waited for once, as they are
        between PyTorch's events: the wait's own end, some microseconds in a sample, is all that
        this clock counts in addition.
        """
        if not self._queues:
            return super().elapsed(call, calls)
        result = None
        repeat = [None] * calls
        self.settle()
        start = time.perf_counter()
        for _ in repeat:
            result = call()
        jax.block_until_ready(result)
        return time.perf_counter() - start

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
        ready = _at_once if self._queues else jax.block_until_ready

        def feed(arrays: Mapping[str, AnyArray], given: Sequence[AnyArray]) -> None:
            nonlocal cotangents
            inputs[:] = [
                jnp.array(arrays[array.name].astype(_index_type(array.kind, case.dtype)))
                for array in case.inputs
            ]
            cotangents = tuple(jnp.array(value, dtype=case.dtype) for value in given)
            residuals[:] = [forward(*inputs)[1]] if given and case.wrt else []
            jax.block_until_ready((inputs, cotangents, residuals))

        def read(phase: str, result: Any) -> dict[str, AnyArray]:
            match phase:
                case "forward" | "inference":
                    outputs = result[0] if case_wrt and phase == "forward" else result
                    return named_outputs(_on_host(outputs))
                case "backward":
                    return named_gradients(case_wrt, _on_host(result))
                case _:
                    outputs, gradients = result
                    return named_outputs(_on_host(outputs)) | named_gradients(
                        case_wrt, _on_host(gradients)
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
        if case.op == "hessian":
            raise Unsupported("jax.hessian is dense")
        jax.config.update("jax_enable_x64", True)
        contender = Evaluator(
            build=lambda graph: jax.jit(_value_and_grad(graph)).lower(np.zeros(graph.n_inputs)),
            write=_lowered,
            compile=lambda lowered, _: one_by_one(lowered.compile()),
            ops_per_call=100_000,
        )
        return evaluations(contender, case, arrays)

    def registry(self) -> Mapping[str, Sequence[str]]:
        """Return the primitives that JAX makes public; `jit` only calls others."""
        listed = (*vars(primitives).values(), *vars(jax.lax).values())
        names = {each.name for each in listed if isinstance(each, Primitive)}
        return {"primitives": [*names - {"jit", "pjit"}]}

    def calls(self, call: Callable[[], Any]) -> set[str]:
        """Return the primitives of what a call traces, also inside of other primitives."""
        return set(_primitives(jax.make_jaxpr(call)().jaxpr))

    def allocator_peak(self) -> int | None:
        """Peak bytes of the device's allocator, where it counts them (not on the CPU).

        It is that of the whole process, since it cannot be set back: what XLA tries out while it
        compiles counts too.
        """
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


#: Next to nothing, to be done after everything else.
_last_in_queue = jax.jit(lambda x: x + 1)


def _at_once(result: Any) -> Any:
    return result


def _on_host(results: Sequence[Any]) -> list[AnyArray]:
    """Copy results to the host, all at a time.

    An array keeps its copy on the host; `addressable_data` gives a new one, so that reading costs
    the same again.
    """
    fresh = [each.addressable_data(0) for each in results]
    for each in fresh:
        each.copy_to_host_async()
    return [np.array(each) for each in fresh]


def _primitives(jaxpr: Any) -> Iterator[str]:
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for inner in jaxprs_in_params(equation.params):
            yield from _primitives(inner)


def _value_and_grad(graph: OpList) -> Callable[[Any], Any]:
    function: Callable[[Any], Any] = jax.value_and_grad(
        lambda x: graphs.record(graph, jnp.unstack(x), CALLS)
    )
    return function


def _lowered(formula: Formula, n_variables: int) -> Any:
    """Trace value and gradient of a formula."""
    function = jax.value_and_grad(lambda x: jnp.sum(formula.terms(x)))
    return jax.jit(function).lower(np.zeros(n_variables))


def _index_type(kind: str, dtype: str) -> Any:
    """Integers are 32-bit in JAX unless 64-bit mode is on."""
    chosen = input_dtype(kind, dtype)
    return np.dtype(np.int32) if chosen == np.int64 and dtype != "float64" else chosen
