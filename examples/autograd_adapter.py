"""An adapter for HIPS autograd: how any framework joins `tapegrad bench`, in one file.

tapegrad bench frameworks install examples/autograd_adapter.py
tapegrad bench run operators --frameworks torch,examples/autograd_adapter.py --sizes small
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import autograd
import autograd.numpy as anp
import numpy as np
from autograd.scipy import special

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

# Read without importing this file: names on the command line, what pip installs, what to look for.
ADAPTERS = {"autograd": "Autograd"}
REQUIRES = ["autograd", "scipy"]
IMPORTS = "autograd"


def softmax(x: Any, dim: int) -> Any:
    """Compute softmax from what autograd has."""
    powers = anp.exp(x - anp.max(x, axis=dim, keepdims=True))
    return powers / anp.sum(powers, axis=dim, keepdims=True)


class Autograd(Adapter):
    """HIPS autograd: a tape of NumPy calls."""

    #: Canonical name -> this framework's call; a name that is missing shows as `unsupported`.
    operators: Mapping[str, Callable[..., Any]] = {
        "add": anp.add,
        "mul": anp.multiply,
        "exp": anp.exp,
        "tanh": anp.tanh,
        "relu": lambda x: anp.maximum(x, 0.0),
        "gelu": lambda x: x * (1 + special.erf(x / anp.sqrt(2.0))) / 2,
        "sum": lambda x, dim: anp.sum(x, axis=dim),
        "softmax": softmax,
        "matmul": anp.matmul,
        "linear": lambda x, weight, bias: anp.matmul(x, weight.T) + bias,
    }

    def version(self) -> str:
        """Return autograd's version."""
        from importlib.metadata import version

        return version("autograd")

    def operation(
        self, case: Case, function: Callable[..., Any], arrays: Mapping[str, AnyArray]
    ) -> Work:
        """Make an operator ready: forward records the tape, backward replays it."""
        chosen = [index for index, array in enumerate(case.inputs) if array.grad]
        record = autograd.make_vjp(function, chosen)
        inputs: list[AnyArray] = []
        cotangents: list[AnyArray] = []
        tapes: list[Callable[[AnyArray], Any]] = []

        def feed(arrays: Mapping[str, AnyArray], given: Sequence[AnyArray]) -> None:
            inputs[:] = [
                np.array(arrays[array.name], dtype=input_dtype(array.kind, case.dtype))
                for array in case.inputs
            ]
            cotangents[:] = [np.array(value, dtype=case.dtype) for value in given]
            tapes[:] = [record(*inputs)[0]] if given and chosen else []

        def step() -> Any:
            replay, output = record(*inputs)
            return output, replay(cotangents[0])

        def read(phase: str, result: Any) -> dict[str, AnyArray]:
            match phase:
                case "forward":
                    return named_outputs([np.array(result[1])])
                case "inference":
                    return named_outputs([np.array(result)])
                case "backward":
                    return named_gradients(case_wrt, [np.array(each) for each in result])
                case _:
                    output, gradients = result
                    return read("inference", output) | read("backward", gradients)

        case_wrt = case.wrt
        feed(arrays, [])
        return Work(
            phases={
                "forward": Phase(lambda: record(*inputs)),
                "backward": Phase(lambda: tapes[0](cotangents[0])),
                "step": Phase(step),
                "inference": Phase(lambda: function(*inputs)),
            },
            feed=feed,
            arrays=read,
        )
