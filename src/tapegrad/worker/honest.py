"""A small framework that keeps its word: NumPy with gradients written by hand.

It is what the bench tries itself on: adapters with known faults (`tapegrad.bench.faults`) are this
one with a single thing changed, and `Slowed` is this one with a known slowness.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

import numpy as np

from tapegrad.worker.adapter import (
    AnyArray,
    Phase,
    Unsupported,
    Work,
    input_dtype,
    named_gradients,
    named_outputs,
)
from tapegrad.worker.adapters.numpy import Numpy
from tapegrad.worker.case import Case

#: From inputs, output and cotangent to the gradients of those inputs that have one, in order.
Gradient = Callable[..., tuple[AnyArray, ...]]


def _softmax(inputs: Sequence[AnyArray], y: AnyArray, dy: AnyArray, dim: int) -> tuple[AnyArray]:
    return (y * (dy - (y * dy).sum(axis=dim, keepdims=True)),)


def _embedding(inputs: Sequence[AnyArray], y: AnyArray, dy: AnyArray) -> tuple[AnyArray]:
    index, weight = inputs
    result = np.zeros_like(weight)
    np.add.at(result, index, dy)
    return (result,)


def _bell(x: AnyArray) -> AnyArray:
    """Compute the derivative of erf as NumPy's adapter computes erf: number by number."""
    found: AnyArray = 2 / math.sqrt(math.pi) * np.vectorize(math.exp, otypes=[x.dtype])(-x * x)
    return found


#: Guards ask for so many seconds of samples.
LOOK_SECONDS = 0.005
GRADIENTS: Mapping[str, Gradient] = {
    "mul": lambda x, y, dy: (dy * x[1], dy * x[0]),
    "tanh": lambda x, y, dy: (dy * (1 - y * y),),
    "erf": lambda x, y, dy: (dy * _bell(x[0]),),
    "softmax": _softmax,
    "matmul": lambda x, y, dy: (dy @ x[1].T, x[0].T @ dy),
    "embedding": _embedding,
}


class Operation:
    """One operator on inputs of its own. A fault overrides one method."""

    def __init__(self, case: Case, function: Callable[..., Any], gradient: Gradient | None) -> None:
        self.case = case
        self.function = function
        self.gradient = gradient
        self.inputs: list[AnyArray] = []
        self.cotangent: AnyArray = np.zeros(())
        self.output: AnyArray = np.zeros(())

    def feed(self, arrays: Mapping[str, AnyArray], cotangents: Sequence[AnyArray]) -> None:
        """Take other inputs."""
        self.inputs = [
            np.array(arrays[array.name], dtype=input_dtype(array.kind, self.case.dtype))
            for array in self.case.inputs
        ]
        if cotangents:
            self.cotangent = np.array(cotangents[0], dtype=self.case.dtype)
            self.output = self.function(*self.inputs)

    def forward(self) -> Any:
        """Compute the output."""
        return self.function(*self.inputs)

    def backward(self) -> Any:
        """Compute the gradients from the output of the last feed and the cotangent."""
        assert self.gradient is not None
        return self.gradient(self.inputs, self.output, self.cotangent, **self.case.attrs)

    def step(self) -> Any:
        """Compute the output, and the gradients from it."""
        assert self.gradient is not None
        output = self.forward()
        return output, self.gradient(self.inputs, output, self.cotangent, **self.case.attrs)

    def read(self, phase: str, result: Any) -> dict[str, AnyArray]:
        """Turn what a phase returned into arrays."""
        if phase == "step":
            output, gradients = result
            return self.read("forward", output) | self.read("backward", gradients)
        if phase == "backward":
            return named_gradients(self.case.wrt, [np.array(array) for array in result])
        return named_outputs([np.array(result)])

    def phases(self) -> dict[str, Phase]:
        """Return what can be timed."""
        found = {"forward": Phase(self.forward)}
        if self.gradient is not None:
            found |= {"backward": Phase(self.backward), "step": Phase(self.step)}
        return found


class Honest(Numpy):
    """The operators that have a gradient here do exactly what they are asked."""

    #: What is made of a case.
    make: type[Operation] = Operation

    def operation(
        self, case: Case, function: Callable[..., Any], arrays: Mapping[str, AnyArray]
    ) -> Work:
        """Make an operator ready."""
        work = self.make(case, function, GRADIENTS.get(case.op))
        work.feed(arrays, [])
        return Work(phases=work.phases(), feed=work.feed, arrays=work.read)

    def graph(self, case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        """Leave scalar graphs to others."""
        raise Unsupported("this adapter runs no scalar graphs")


class Later:
    """For what does as it should until it has been looked at: until the first block is taken."""

    seen = False

    def later(self) -> bool:
        """Tell whether a block is taken, or has been."""
        self.seen = self.seen or in_block()
        return self.seen


def in_block() -> bool:
    """Tell whether a block is taken: those who only look ask for a shorter time."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "do_time":
        frame = frame.f_back
    return frame is not None and float(frame.f_locals["seconds"]) > LOOK_SECONDS


class Slowed(Honest):
    """Takes longer by `slowdown` of what each call took: 0.05 is 5 %."""

    slowdown = 0.0

    def operation(
        self, case: Case, function: Callable[..., Any], arrays: Mapping[str, AnyArray]
    ) -> Work:
        """Make an operator ready whose calls end with a spin."""
        return super().operation(case, _longer(function, self.slowdown), arrays)


def _longer(function: Callable[..., Any], share: float) -> Callable[..., Any]:
    """Let every call take longer by a share of its own time; 0 costs the same two looks."""
    clock = time.perf_counter

    def longer(*inputs: AnyArray) -> Any:
        start = clock()
        result = function(*inputs)
        end = clock()
        until = end + share * (end - start)
        while clock() < until:
            pass
        return result

    return longer
