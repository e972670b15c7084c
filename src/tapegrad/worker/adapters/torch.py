"""PyTorch: eager, in another layout, without oneDNN, compiled, and as CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
import torch._inductor.config
import torch.nn.functional as F
from torch.autograd.profiler import profile
from torch.utils.benchmark import Timer

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
from tapegrad.worker.evaluator import Evaluator, Run, eager, evaluations, one_by_one
from tapegrad.worker.graphs import Calls, OpList
from tapegrad.worker.operators import Fused, outputs_of
from tapegrad.worker.operators.torch import FUSED, OPERATORS
from tapegrad.worker.owned import Owned

ADAPTERS = {
    "torch": "Torch",
    "torch-channels-last": "TorchChannelsLast",
    "torch-without-onednn": "TorchWithoutOneDNN",
    "torch-compile": "TorchCompile",
    "torch-cuda-graph": "TorchCudaGraph",
}
REQUIRES = ["torch==2.13.0", "numpy"]
IMPORTS = "torch"
#: Operators on four dimensions that are no images.
NO_IMAGES = ("scaled_dot_product_attention",)


class Torch(Adapter):
    """PyTorch as it is used: one operator after the other."""

    devices: Sequence[str] = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
    operators = OPERATORS
    fused = FUSED
    layout = "contiguous"

    def configure(self) -> None:
        """Pin the threads and switch reduced precision off.

        cuDNN's algorithms are those of its heuristics, as by default: among those that trials
        would choose are some whose gradients of weights are good to three digits only.
        """
        torch.set_num_threads(self.threads)
        torch.set_num_interop_threads(1)
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = False

    def version(self) -> str:
        """Return PyTorch's version."""
        return str(torch.__version__)

    def details(self) -> dict[str, Any]:
        """Describe threads, precision, layout and libraries."""
        found = {
            "threads": torch.get_num_threads(),
            "tf32": torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32,
            "layout": self.layout,
        }
        return found | (_gpu() if "cuda" in self.devices and self.device == "cuda" else _cpu())

    def placed(self, tensor: Any) -> Any:
        """Bring data to where and how it is computed on."""
        return tensor.to(self.device)

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Prepare a function for running; eager mode takes it as it is."""
        return function

    def recorded(self, call: Call) -> Call:
        """Prepare a phase for being called again and again; eager mode takes it as it is."""
        return call

    def operation(
        self, case: Case, function: Callable[..., Any], arrays: Mapping[str, AnyArray]
    ) -> Work:
        """Make an operator ready, with the gradients that the case asks for."""
        if self.device == "cuda":
            torch.cuda.empty_cache()  # other processes share the GPU
        run = self.compiled(function)
        dtype = getattr(torch, case.dtype)
        inputs = [
            self.placed(
                torch.tensor(arrays[array.name].astype(input_dtype(array.kind, case.dtype)))
            ).requires_grad_(array.grad)
            for array in case.inputs
        ]
        wrt = [tensor for tensor in inputs if tensor.requires_grad]
        cotangents: list[Any] = []
        owned = Owned(
            cotangents, _address, lambda place, each: torch.empty_like(wrt[place]).copy_(each)
        )
        residuals: list[Any] = []

        def feed(arrays: Mapping[str, AnyArray], given: Sequence[AnyArray]) -> None:
            if not cotangents:
                cotangents[:] = [self.placed(torch.tensor(value, dtype=dtype)) for value in given]
            # Through .data, which autograd does not watch: a captured backward pass would object.
            for array, tensor in zip(case.inputs, inputs, strict=True):
                tensor.data.copy_(torch.as_tensor(arrays[array.name]))
            for value, tensor in zip(given, cotangents, strict=False):
                tensor.data.copy_(torch.as_tensor(value))
            residuals[:] = outputs_of(phases["forward"].call()) if given else ()

        def forward() -> Any:
            return run(*inputs)

        def backward() -> Any:
            return owned(_gradients(residuals, wrt, cotangents, retain_graph=True))

        def step() -> Any:
            outputs = run(*inputs)
            return outputs, owned(_gradients(outputs_of(outputs), wrt, cotangents))

        def inference() -> Any:
            with torch.no_grad():
                return run(*inputs)

        def read(phase: str, result: Any) -> dict[str, AnyArray]:
            outputs, gradients = _parts(phase, result)
            names = case.wrt if gradients else ()
            return named_outputs(outputs) | named_gradients(names, gradients)

        calls = {"forward": forward, "inference": inference}
        if wrt:
            calls |= {"backward": backward, "step": step}
        phases = {name: Phase(self.recorded(call)) for name, call in calls.items()}
        return Work(phases=phases, feed=feed, arrays=read)

    def graph(self, case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        """Make a scalar graph ready, which is recorded anew at each point."""
        if self.device != "cpu":
            raise Unsupported("scalar graphs are evaluated on the CPU")
        return evaluations(eager(_evaluate, ops_per_call=2_000), case, arrays)

    def settle(self) -> None:
        """Wait for the GPU; on the CPU nothing is ever pending."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    def elapsed(self, call: Callable[[], Any], calls: int) -> float:
        """Time with events on the GPU, with the clock on the CPU.

        Calls are put into the GPU's queue one after the other and waited for once, at the end: a
        small operator takes what its dispatch takes, a large one what the GPU takes. The start
        is recorded while the GPU is idle, so that the first call's dispatch counts as well, as
        it does by the clock that JAX is timed with.
        """
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

    def fused_call(self, case: Case) -> Fused:
        """Return a fused call, which all are for the CPU and most by oneDNN."""
        found = super().fused_call(case)
        available = "mkldnn" not in found.name or torch.backends.mkldnn.enabled
        return found if self.device == "cpu" and available else Fused()

    def registry(self) -> Mapping[str, Sequence[str]]:
        """Return ATen's public operators that change nothing and give tensors."""
        groups: dict[str, list[str]] = {}
        names = (name.partition("::") for name in torch._C._dispatch_get_all_op_names())
        for name in {name.partition(".")[0] for space, _, name in names if space == "aten"}:
            overloads = _overloads(name)
            if not name.startswith("_") and any(map(_is_functional, overloads)):
                groups.setdefault(_group(name, overloads), []).append(name)
        return groups

    def calls(self, call: Callable[[], Any]) -> set[str]:
        """Return what the profiler sees: calls of calls too, which dispatch modes miss.

        An operation in place counts as its operator.
        """
        with profile(use_kineto=False) as seen:
            call()
        names = (event.name.partition("::") for event in seen.function_events)
        return {name.rstrip("_") for space, _, name in names if space == "aten"}


class TorchChannelsLast(Torch):
    """PyTorch with images and weights of convolutions stored with the channels last."""

    layout = "channels_last"

    def prepare(self, case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        """Make a case ready that has images."""
        if case.op in NO_IMAGES or not any(len(array.shape) == 4 for array in case.inputs):
            raise Unsupported("channels_last is a layout of images: no input here is one")
        return super().prepare(case, arrays)

    def placed(self, tensor: Any) -> Any:
        """Store what has four dimensions with the second one last."""
        there = super().placed(tensor)
        return there.to(memory_format=torch.channels_last) if there.dim() == 4 else there


class TorchWithoutOneDNN(Torch):
    """PyTorch with its own kernels where it would call oneDNN."""

    devices = ("cpu",)

    def configure(self) -> None:
        """Switch oneDNN off for the whole process."""
        super().configure()
        torch.backends.mkldnn.set_flags(False)


class TorchCompile(Torch):
    """PyTorch through torch.compile."""

    fused: Mapping[str, Fused] = {}
    compiler = "torch.compile"

    def registry(self) -> Mapping[str, Sequence[str]]:
        """Decline: kernels that were compiled are no operators of a registry."""
        raise Unsupported("torch.compile runs kernels of its own; ask torch")

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Compile a function with its shapes fixed, and forget those of earlier cases.

        Every network is run by one and the same code, of which only so many versions are kept.
        """
        torch.compiler.reset()
        result: Callable[..., Any] = torch.compile(function, fullgraph=True, dynamic=False)
        return result

    def graph(self, case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        """Make a scalar graph ready."""
        if self.device != "cpu":
            raise Unsupported("scalar graphs are evaluated on the CPU")
        contender = Evaluator(
            build=lambda graph: graph,
            compile=self._compiled_graph,
            phases=("compile", "step"),
            ops_per_call=100_000,
        )
        return evaluations(contender, case, arrays)

    def _compiled_graph(self, graph: OpList, points: AnyArray) -> Run:
        target = self.compiled(lambda x: graphs.record(graph, x.unbind(), CALLS))
        run = one_by_one(lambda point: _gradient(target, point))
        with torch._inductor.config.patch(force_disable_caches=True):  # or it compiles only once
            run(points[:1])
        return run


class TorchCudaGraph(Torch):
    """PyTorch with every phase captured as a CUDA graph, which each call replays."""

    devices = ("cuda",) if torch.cuda.is_available() else ()

    def recorded(self, call: Call) -> Call:
        """Replay a phase instead of dispatching its operators again."""
        return _Replay(call)

    def graph(self, case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        """Leave scalar graphs to others."""
        raise Unsupported("a scalar graph is recorded anew at each point: nothing to replay")

    def reset_peak(self) -> None:
        """Keep the peak that a capture has started: a replay takes no memory of its own."""


class _Replay:
    """A phase that is captured at its first call.

    As torch.cuda.make_graphed_callables does it: calls on a stream of their own go before, so
    that what libraries set up at first use stays out of the graph. Inputs, cotangents and results
    keep their places: a replay follows what was fed, its result is there until the next one. A
    backward pass is captured from the results of the captured forward pass, so it reads what that
    one's last replay saved.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self._graph: Any = None
        self._result: Any = None

    def __call__(self) -> Any:
        if self._graph is None:
            try:
                self._warm_up()
                self._capture()
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                reason = str(error).partition("\n")[0]
                raise Unsupported(f"cannot be captured as a CUDA graph: {reason}") from error
        self._graph.replay()
        return self._result

    def _warm_up(self) -> None:
        """Call it twice; once it is set up it may not wait for the GPU, which breaks a capture."""
        torch.cuda.synchronize()
        with torch.cuda.stream(_side_stream()):
            self._call()
            torch.cuda.reset_peak_memory_stats()  # cuDNN has tried its algorithms by now
            torch.cuda.set_sync_debug_mode("error")
            try:
                self._call()
            finally:
                torch.cuda.set_sync_debug_mode("default")
        torch.cuda.synchronize()

    def _capture(self) -> None:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=_side_stream()):
            self._result = self._call()
        self._graph = graph


@cache
def _side_stream() -> Any:
    """Return the stream for warming up and capturing: autograd wants one and the same."""
    return torch.cuda.Stream()


def _cpu() -> dict[str, Any]:
    return {
        "oneDNN": torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled,
        "MKL": torch.backends.mkl.is_available(),
        "CPU": torch.backends.cpu.get_cpu_capability(),
    }


def _gpu() -> dict[str, Any]:
    return {
        "GPU": torch.cuda.get_device_name(),
        "CUDA": torch.version.cuda,
        "cuDNN": torch.backends.cudnn.version(),
        "cuDNN benchmark": torch.backends.cudnn.benchmark,
    }


#: The four operations of scalar graphs on tensors without dimensions.
CALLS = Calls(
    softplus=F.softplus,
    sum=lambda xs: torch.stack(xs).sum(),
    product=torch.mul,
    softmax=lambda xs: torch.softmax(torch.stack(xs), 0).unbind(),
)


#: Operators of one library or field by the beginning of their names.
FAMILIES = {
    **{name: name for name in ("linalg", "fft", "special", "sparse")},
    **dict.fromkeys(("cudnn", "miopen", "mkldnn", "mps", "fbgemm"), "backends"),
    **dict.fromkeys(("quantize", "quantized", "q", "fake"), "quantized"),
}


def _overloads(name: str) -> list[Any]:
    packet = getattr(torch.ops.aten, name)
    return [getattr(packet, overload) for overload in packet.overloads()]


def _is_functional(overload: Any) -> bool:
    schema = overload._schema
    return not schema.is_mutable and any("Tensor" in str(each.type) for each in schema.returns)


def _group(name: str, overloads: Sequence[Any]) -> str:
    """Return `core` for what PyTorch itself calls the core of ATen, else a family or a role."""
    if any(torch.Tag.core in overload.tags for overload in overloads):
        return "core"
    if "_backward" in name:
        return "backward"
    if name.endswith("_copy"):
        return "copies of views"
    return FAMILIES.get(name.partition("_")[0], "other")


def _evaluate(graph: OpList, point: AnyArray) -> tuple[Any, Any]:
    return _gradient(lambda x: graphs.record(graph, x.unbind(), CALLS), point)


def _gradient(target: Callable[[Any], Any], point: AnyArray) -> tuple[Any, Any]:
    x = torch.tensor(point, requires_grad=True)
    value = target(x)
    (grad,) = torch.autograd.grad(value, x)
    return value.item(), grad.numpy()


def _address(tensor: Any) -> int:
    """Return where a tensor's memory begins; 0 for one that repeats what it has."""
    storage = tensor.untyped_storage()
    return storage.data_ptr() if storage.nbytes() >= tensor.nbytes else 0


def _gradients(
    outputs: Sequence[Any], wrt: Sequence[Any], cotangents: Sequence[Any], **options: Any
) -> Any:
    """Differentiate; outputs that carry no gradient are left out."""
    pairs = [pair for pair in zip(outputs, cotangents, strict=True) if pair[0].requires_grad]
    if not pairs:
        raise ValueError("no result depends on an input that wants a gradient")
    targets, given = zip(*pairs, strict=True)
    return torch.autograd.grad(targets, wrt, given, **options)


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
    """Copy a tensor to an array; its layout changes where it lies, which on a GPU takes no time."""
    there = tensor.detach()
    here = there.contiguous().cpu()
    array: AnyArray = here.numpy()
    return array.copy() if here.data_ptr() == there.data_ptr() else array
