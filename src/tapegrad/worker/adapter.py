"""What a framework must offer to take part: one subclass of `Adapter` in one file.

An adapter is a table from canonical operator names to the framework's own calls, and a few hooks.
`prepare` turns a case into a `Work`: callables by phase, to be timed, whose results can be read as
NumPy arrays. A file that holds adapters says at its top, as plain literals that are read without
importing it:

    ADAPTERS = {"torch": "Torch", "torch-compile": "TorchCompile"}   # name on the command line
    REQUIRES = ["torch==2.13.0", "numpy"]                            # what pip installs for it
    IMPORTS = "torch"                                                # how its presence is seen

A framework in another language names its worker's command in place of classes
(`COMMAND = ["node", "worker.mjs"]`, see docs/workers.md).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapegrad.worker.case import KINDS, Case
from tapegrad.worker.networks import Network, compose, network_of, single
from tapegrad.worker.networks.layout import channels_last
from tapegrad.worker.operators import Fused

AnyArray = NDArray[Any]
Call = Callable[[], Any]


class Unsupported(Exception):  # noqa: N818  not an error: a cell of the table
    """The framework cannot do this case; the message names the call that is missing."""


@dataclass(frozen=True)
class Phase:
    """One phase of a case in one framework."""

    #: Does it once and returns its result, finished.
    call: Call
    #: Evaluations in one call: times are divided by it.
    units: int = 1
    #: Runs before each call and outside the clock; a phase that has it is never looped.
    setup: Call | None = None


@dataclass
class Work:
    """One case, ready to run.

    `arrays` reads a phase's result: outputs as `output0`, `output1`, …, gradients as `grad:x` for
    the input `x`. `feed` replaces all inputs (and cotangents, one per output), so that the next
    call of every phase sees the new ones; it must not keep the arrays it is given.
    """

    phases: Mapping[str, Phase]
    feed: Callable[[Mapping[str, AnyArray], Sequence[AnyArray]], None]
    arrays: Callable[[str, Any], dict[str, AnyArray]]
    #: Forward and backward cannot be told apart in this framework: only `step` is offered.
    joint: bool = False
    #: The type it computes in where that is not the case's own; the tables say so.
    precision: str | None = None
    #: What a reader should know, as "composed of three calls".
    notes: list[str] = field(default_factory=list)
    #: The same about single phases.
    phase_notes: Mapping[str, list[str]] = field(default_factory=dict)


class Adapter(ABC):
    """One framework in one process, set up for a device and a number of threads."""

    #: Canonical operator name -> call(*inputs, **attrs) in this framework.
    operators: Mapping[str, Callable[..., Any]] = {}
    #: Canonical operator name -> call on images with channels last, where the framework's users
    #: keep them so; layers and networks are then run in that layout.
    channels_last: Mapping[str, Callable[..., Any]] = {}
    #: Canonical operator name -> the call that this framework lacks.
    missing: Mapping[str, str] = {}
    #: Fused operator (`tapegrad.worker.networks.fused`) -> the framework's own way to do it.
    fused: Mapping[str, Fused] = {}
    #: What compiles operators that have no call of their own, as "XLA"; empty where nothing does.
    compiler: str = ""
    devices: Sequence[str] = ("cpu",)
    dtypes: Sequence[str] = ("float32", "float64")

    def __init__(self, device: str, threads: int) -> None:
        self.device = device
        self.threads = threads

    def configure(self) -> None:
        """Set threads and precision for the whole process; only a worker does that."""

    def close(self) -> None:
        """Undo what `operation` and `graph` have changed for the whole process."""

    @abstractmethod
    def version(self) -> str:
        """Return the framework's version."""

    def details(self) -> dict[str, Any]:
        """Describe what makes results differ: threads as set, precision modes, libraries."""
        return {}

    def prepare(self, case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        """Make a case ready with these inputs; raises `Unsupported`."""
        if case.dtype not in self.dtypes:
            raise Unsupported(f"no {case.dtype}, only {', '.join(self.dtypes)}")
        if case.level == "graph":
            return self.graph(case, arrays)
        images = self._with_images(case)
        if images is not None:
            work = self._channels_last(case, images, arrays)
        else:
            work = self.operation(case, self.function(case), arrays)
        if case.level != "fused":
            return work
        return replace(work, phase_notes={name: [self.how(case, name)] for name in work.phases})

    def operation(
        self, case: Case, function: Callable[..., Any], arrays: Mapping[str, AnyArray]
    ) -> Work:
        """Make an operator or a network ready: `function` takes its inputs in order."""
        raise Unsupported("this adapter runs no operators")

    def graph(self, case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        """Make a scalar graph ready (see `tapegrad.worker.graphs`)."""
        raise Unsupported("this adapter runs no scalar graphs")

    def settle(self) -> None:
        """Wait until nothing is pending on the device."""

    def elapsed(self, call: Call, calls: int) -> float:
        """Time `calls` calls in seconds, synchronised at both ends; GPUs use their events."""
        repeat = [None] * calls
        self.settle()
        start = time.perf_counter()
        for _ in repeat:
            call()
        self.settle()
        return time.perf_counter() - start

    def own_tool(self, call: Call) -> float | None:
        """Time one call with the framework's own benchmark tool, where it has one."""
        return None

    def reset_peak(self) -> None:
        """Start a new measurement of the allocator's peak."""

    def allocator_peak(self) -> int | None:
        """Peak bytes since `reset_peak`, where the framework counts them."""
        return None

    def registry(self) -> Mapping[str, Sequence[str]]:
        """Return the names of all operators that the framework has, by group."""
        raise Unsupported("the adapter cannot ask this framework which operators it has")

    def calls(self, call: Call) -> set[str]:
        """Run or trace a call and return the names of the operators in it, as `registry` has them.

        Names that the registry lacks do no harm.
        """
        raise Unsupported("the adapter cannot see which operators this framework runs")

    def fused_call(self, case: Case) -> Fused:
        """Return the framework's own way to do a fused operator, if it has one in that type."""
        found = self.fused.get(case.op, Fused())
        return found if case.dtype in found.dtypes else Fused()

    def how(self, case: Case, phase: str) -> str:
        """Say how a fused operator is done in a phase; what a compiler fuses is its own choice."""
        own = self.fused_call(case)
        if own.name and phase in own.phases:
            return f"fused: {own.name}"
        if own.name and phase == "step" and "forward" in own.phases:
            return f"fused: {own.name}, forward only"
        return f"compiled by {self.compiler}" if self.compiler else "composed"

    def function(self, case: Case) -> Callable[..., Any]:
        """Return what a case does to its inputs."""
        network = network_of(case)
        if network is None:
            return partial(self.operator(case.op), **case.attrs)
        call = self.fused_call(case).call
        return compose(network, self.operator) if call is None else partial(call, **case.attrs)

    def _with_images(self, case: Case) -> Network | None:
        """Return a layer or network whose images the framework's users keep with channels last."""
        if not self.channels_last or case.level == "operator" or self.fused_call(case).call:
            return None
        network = network_of(case) or single(case)
        known = any(node.op in self.channels_last for node in network.nodes)
        return network if known else None

    def _channels_last(self, case: Case, network: Network, arrays: Mapping[str, AnyArray]) -> Work:
        """Make a network ready in the framework's own layout; outside it nothing is different."""
        last = channels_last(network, self.channels_last)
        run = compose(last.network, lambda op: self.channels_last.get(op) or self.operator(op))
        turned = replace(case, inputs=last.network.inputs)
        work = self.operation(turned, run, last.turned(arrays))
        return replace(
            work,
            feed=lambda arrays, cotangents: work.feed(
                last.turned(arrays), last.turned_results(cotangents)
            ),
            arrays=lambda phase, result: last.restored(work.arrays(phase, result)),
        )

    def operator(self, name: str) -> Callable[..., Any]:
        """Look an operator up in the table, or say which call is missing."""
        if name in self.missing:
            raise Unsupported(self.missing[name])
        call = self.operators.get(name)
        if call is None:
            raise Unsupported(f"no {name} in this adapter's table")
        return call


def named_outputs(outputs: Sequence[AnyArray]) -> dict[str, AnyArray]:
    """Name outputs as `Work.arrays` returns them."""
    return {f"output{index}": output for index, output in enumerate(outputs)}


def named_gradients(names: Sequence[str], gradients: Sequence[AnyArray]) -> dict[str, AnyArray]:
    """Name gradients as `Work.arrays` returns them."""
    return {f"grad:{name}": grad for name, grad in zip(names, gradients, strict=True)}


def input_dtype(kind: str, dtype: str) -> np.dtype[Any]:
    """Tell the NumPy type of an input: integers and flags stay, others follow the case.

    A user's own input may be of a type that no input is drawn in, which is then its kind.
    """
    named = {"integers": "int64", "flags": "bool"}
    return np.dtype(named.get(kind, dtype if kind in KINDS else kind))
