"""An adapter for tensorgrad (github.com/akv17/tensorgrad), written from its source and UNTESTED.

tensorgrad has no setup.py, and the package of that name on PyPI is another project. Clone it, and
make it importable for the Python that runs tapegrad:

git clone https://github.com/akv17/tensorgrad
pwd | sed 's:$:/tensorgrad:' > $(python -c "import site; print(site.getsitepackages()[0])")/tg.pth
tapegrad bench run operators --frameworks torch,examples/tensorgrad_adapter.py --sizes small
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorgrad
from tensorgrad.const import DTYPE
from tensorgrad.ctx import no_grad
from tensorgrad.tensor import Tensor

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

ADAPTERS = {"tensorgrad": "Tensorgrad"}
IMPORTS = "tensorgrad"


def conv2d(x: Tensor, weight: Tensor, bias: Tensor, stride: int, padding: int) -> Tensor:
    """Convolve; there is no dilation and there are no groups."""
    return x.conv2d(weight, bias, stride=(stride, stride), padding=(padding, padding))


def max_pool2d(x: Tensor, kernel: int, stride: int, padding: int) -> Tensor:
    """Pool by the maximum; windows that overlap need Numba."""
    return x.max_pool2d((kernel, kernel), stride=(stride, stride), padding=(padding, padding))


def avg_pool2d(x: Tensor, kernel: int, stride: int) -> Tensor:
    """Pool by the mean."""
    return x.avg_pool2d((kernel, kernel), stride=(stride, stride))


class Tensorgrad(Adapter):
    """tensorgrad on the CPU: every operator is a call to NumPy and a node of a graph."""

    operators: Mapping[str, Callable[..., Any]] = {
        "exp": Tensor.exp,
        "log": Tensor.log,
        "sqrt": Tensor.sqrt,
        "sigmoid": Tensor.sigmoid,
        "relu": Tensor.relu,
        "add": Tensor.__add__,
        "sub": Tensor.__sub__,
        "mul": Tensor.__mul__,
        "div": Tensor.__truediv__,
        "sum": lambda x, dim: x.sum(dim),
        "mean": lambda x, dim: x.mean(dim),
        "amax": lambda x, dim: x.max(dim),
        "amin": lambda x, dim: x.min(dim),
        "softmax": lambda x, dim: x.softmax(dim),
        "matmul": Tensor.matmul,
        "bmm": lambda a, b, transpose_b: a.matmul(b.permute(0, 2, 1) if transpose_b else b),
        "linear": lambda x, weight, bias: x.matmul(weight.transpose(1, 0)) + bias,
        "conv2d": conv2d,
        "conv2d_pointwise": conv2d,
        "conv2d_wide": conv2d,
        "conv2d_strided": conv2d,
        "max_pool2d": max_pool2d,
        "avg_pool2d": avg_pool2d,
        "transpose": lambda x: x.permute(1, 0),
        "permute": lambda x, dims: x.permute(*dims),
        "reshape": lambda x, shape: x.reshape(*shape),
    }

    def version(self) -> str:
        """Return the clone's commit; tensorgrad has no versions."""
        folder = Path(tensorgrad.__file__).parent
        command = ["git", "rev-parse", "--short", "HEAD"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        return done.stdout.strip() or "unknown"

    def operation(
        self, case: Case, function: Callable[..., Any], arrays: Mapping[str, AnyArray]
    ) -> Work:
        """Make an operator ready.

        A backward pass adds to the gradients of all nodes, so each needs a graph of its own and
        leaves whose gradients are zero: it cannot be timed apart from its forward pass.
        """
        leaves: list[Tensor] = []
        cotangents: list[AnyArray] = []

        def feed(arrays: Mapping[str, AnyArray], given: Sequence[AnyArray]) -> None:
            leaves[:] = [
                Tensor(
                    arrays[array.name],
                    dtype=DTYPE(input_dtype(array.kind, case.dtype).name),
                    device="cpu",
                    requires_grad=array.grad,
                )
                for array in case.inputs
            ]
            cotangents[:] = [np.array(value, dtype=case.dtype) for value in given]

        def forward() -> Tensor:
            return function(*leaves)

        def inference() -> Tensor:
            with no_grad():
                return function(*leaves)

        def step() -> tuple[Tensor, list[AnyArray]]:
            for leaf in leaves:
                leaf.grad = np.zeros_like(leaf.data)
            output = forward()
            output.backward(cotangents[0])
            gradients = [
                leaf.grad for leaf, array in zip(leaves, case.inputs, strict=True) if array.grad
            ]
            return output, gradients

        def read(phase: str, result: Any) -> dict[str, AnyArray]:
            if phase != "step":
                return named_outputs([np.array(result.numpy())])
            output, gradients = result
            copies = [each.copy() for each in gradients]
            return read("forward", output) | named_gradients(case.wrt, copies)

        feed(arrays, [])
        phases = {"forward": Phase(forward), "inference": Phase(inference)}
        if case.wrt:
            phases["step"] = Phase(step)
        return Work(phases=phases, feed=feed, arrays=read, joint=bool(case.wrt))
