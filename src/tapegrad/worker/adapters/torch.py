"""PyTorch: eager, and compiled by torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch._inductor.config
import torch.nn.functional as F
from torch.utils.benchmark import Timer

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
from tapegrad.worker.evaluator import Evaluator, Run, eager, evaluations, one_by_one
from tapegrad.worker.graphs import Calls, OpList
from tapegrad.worker.operators import outputs_of
from tapegrad.worker.operators.torch import OPERATORS

ADAPTERS = {"torch": "Torch", "torch-compile": "TorchCompile"}
REQUIRES = ["torch==2.13.0", "numpy"]
IMPORTS = "torch"


class Torch(Adapter):
    """PyTorch as it is used: one operator after the other."""

    devices = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
    operators = OPERATORS

    def configure(self) -> None:
        """Pin the threads and switch reduced precision off."""
        torch.set_num_threads(self.threads)
        torch.set_num_interop_threads(1)
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False

    def version(self) -> str:
        """Return PyTorch's version."""
        return str(torch.__version__)

    def details(self) -> dict[str, Any]:
        """Describe threads, precision and libraries."""
        return {
            "threads": torch.get_num_threads(),
            "tf32": False,
            "oneDNN": torch.backends.mkldnn.is_available(),
            "MKL": torch.backends.mkl.is_available(),
            "CPU": torch.backends.cpu.get_cpu_capability(),
        }

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Prepare a function for running; eager mode takes it as it is."""
        return function

    def operation(
        self, case: Case, function: Callable[..., Any], arrays: Mapping[str, AnyArray]
    ) -> Work:
        """Make an operator ready, with the gradients that the case asks for."""
        run = self.compiled(function)
        inputs = [
            torch.tensor(arrays[array.name].astype(input_dtype(array.kind, case.dtype)))
            .to(self.device)
            .requires_grad_(array.grad)
            for array in case.inputs
        ]
        wrt = [tensor for tensor in inputs if tensor.requires_grad]
        cotangents: list[Any] = []
        residuals: list[Any] = []

        def feed(arrays: Mapping[str, AnyArray], given: Sequence[AnyArray]) -> None:
            with torch.no_grad():
                for array, tensor in zip(case.inputs, inputs, strict=True):
                    tensor.copy_(torch.as_tensor(arrays[array.name]))
            dtype = getattr(torch, case.dtype)
            cotangents[:] = [
                torch.tensor(value, dtype=dtype, device=self.device) for value in given
            ]
            residuals[:] = outputs_of(forward()) if given else ()

        def forward() -> Any:
            return run(*inputs)

        def backward() -> Any:
            return torch.autograd.grad(residuals, wrt, cotangents, retain_graph=True)

        def step() -> Any:
            outputs = run(*inputs)
            return outputs, torch.autograd.grad(outputs, wrt, cotangents)

        def inference() -> Any:
            with torch.no_grad():
                return run(*inputs)

        def read(phase: str, result: Any) -> dict[str, AnyArray]:
            outputs, gradients = _parts(phase, result)
            names = case.wrt if gradients else ()
            return named_outputs(outputs) | named_gradients(names, gradients)

        phases = {"forward": Phase(forward), "inference": Phase(inference)}
        if wrt:
            phases |= {"backward": Phase(backward), "step": Phase(step)}
        return Work(phases=phases, feed=feed, arrays=read)

    def graph(self, case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        """Make a scalar graph ready, which is recorded anew at each point."""
        return evaluations(eager(_evaluate, ops_per_call=2_000), case, arrays)

    def settle(self) -> None:
        """Wait for the GPU; on the CPU nothing is ever pending."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    def elapsed(self, call: Callable[[], Any], calls: int) -> float:
        """Time with events on the GPU, with the clock on the CPU."""
        if self.device != "cuda":
            return super().elapsed(call, calls)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        for _ in range(calls):
            call()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) / 1e3

    def own_tool(self, call: Callable[[], Any]) -> float | None:
        """Time one call with torch.utils.benchmark."""
        timer = Timer("call()", globals={"call": call}, num_threads=self.threads)
        return float(timer.blocked_autorange(min_run_time=0.1).median)

    def reset_peak(self) -> None:
        """Start a new measurement of the CUDA allocator's peak."""
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()

    def allocator_peak(self) -> int | None:
        """Peak bytes of the CUDA allocator; the CPU allocator does not count."""
        return int(torch.cuda.max_memory_allocated()) if self.device == "cuda" else None


class TorchCompile(Torch):
    """PyTorch through torch.compile."""

    compiler = "torch.compile"

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Compile a function with its shapes fixed."""
        result: Callable[..., Any] = torch.compile(function, fullgraph=True, dynamic=False)
        return result

    def graph(self, case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        """Make a scalar graph ready."""
        contender = Evaluator(
            build=lambda graph: graph,
            compile=self._compiled_graph,
            phases=("compile", "step"),
            ops_per_call=100_000,
        )
        return evaluations(contender, case, arrays)

    def _compiled_graph(self, graph: OpList, points: AnyArray) -> Run:
        torch.compiler.reset()
        target = self.compiled(lambda x: graphs.record(graph, x.unbind(), CALLS))
        run = one_by_one(lambda point: _gradient(target, point))
        with torch._inductor.config.patch(force_disable_caches=True):  # or it compiles only once
            run(points[:1])
        return run


#: The four operations of scalar graphs on tensors without dimensions.
CALLS = Calls(
    softplus=F.softplus,
    sum=lambda xs: torch.stack(xs).sum(),
    product=torch.mul,
    softmax=lambda xs: torch.softmax(torch.stack(xs), 0).unbind(),
)


def _evaluate(graph: OpList, point: AnyArray) -> tuple[Any, Any]:
    return _gradient(lambda x: graphs.record(graph, x.unbind(), CALLS), point)


def _gradient(target: Callable[[Any], Any], point: AnyArray) -> tuple[Any, Any]:
    x = torch.tensor(point, requires_grad=True)
    value = target(x)
    (grad,) = torch.autograd.grad(value, x)
    return value.item(), grad.numpy()


def _parts(phase: str, result: Any) -> tuple[list[AnyArray], list[AnyArray]]:
    """Read outputs and gradients from what a phase returned."""
    match phase:
        case "forward" | "inference":
            return [_numpy(each) for each in outputs_of(result)], []
        case "backward":
            return [], [_numpy(each) for each in result]
        case _:
            outputs, gradients = result
            return [_numpy(each) for each in outputs_of(outputs)], [
                _numpy(each) for each in gradients
            ]


def _numpy(tensor: Any) -> AnyArray:
    array: AnyArray = tensor.detach().cpu().numpy().copy()
    return array
