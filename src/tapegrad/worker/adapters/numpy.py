"""NumPy: forward only, and in float64 the first witness of what is right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tapegrad.worker import sweep
from tapegrad.worker.adapter import Adapter, AnyArray, Phase, Work, input_dtype, named_outputs
from tapegrad.worker.case import Case
from tapegrad.worker.evaluator import Evaluator, churn, descent, evaluations

ADAPTERS = {"numpy": "Numpy"}
REQUIRES = ["numpy"]
IMPORTS = "numpy"


def _erf(x: AnyArray) -> AnyArray:
    """Error function; NumPy has none, so this is the standard library's, element by element."""
    import math

    result: AnyArray = np.vectorize(math.erf, otypes=[x.dtype])(x)
    return result


def _gelu(x: AnyArray) -> AnyArray:
    result: AnyArray = x * (1 + _erf(x / np.sqrt(x.dtype.type(2)))) / 2
    return result


def _log_softmax(x: AnyArray, dim: int) -> AnyArray:
    shifted = x - x.max(axis=dim, keepdims=True)
    result: AnyArray = shifted - np.log(np.exp(shifted).sum(axis=dim, keepdims=True))
    return result


def _softmax(x: AnyArray, dim: int) -> AnyArray:
    powers = np.exp(x - x.max(axis=dim, keepdims=True))
    result: AnyArray = powers / powers.sum(axis=dim, keepdims=True)
    return result


def _layer_norm(x: AnyArray, weight: AnyArray, bias: AnyArray, eps: float) -> AnyArray:
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = np.square(centred).mean(axis=-1, keepdims=True)
    result: AnyArray = centred / np.sqrt(variance + x.dtype.type(eps)) * weight + bias
    return result


def _windows(x: AnyArray, kernel: int, stride: int, padding: int, fill: float) -> AnyArray:
    """View images as (batch, channel, row, column, kernel row, kernel column)."""
    edge = (padding, padding)
    padded = np.pad(x, ((0, 0), (0, 0), edge, edge), constant_values=fill)
    return sliding_window_view(padded, (kernel, kernel), (2, 3))[:, :, ::stride, ::stride]


def _conv2d(x: AnyArray, weight: AnyArray, bias: AnyArray, stride: int, padding: int) -> AnyArray:
    windows = _windows(x, weight.shape[-1], stride, padding, 0.0)
    result: AnyArray = np.tensordot(windows, weight, ((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)
    return result + bias[:, None, None]


def _max_pool2d(x: AnyArray, kernel: int, stride: int, padding: int) -> AnyArray:
    result: AnyArray = _windows(x, kernel, stride, padding, -np.inf).max((4, 5))
    return result


def _cross_entropy(x: AnyArray, target: AnyArray) -> AnyArray:
    rows = np.arange(len(target))
    result: AnyArray = -_log_softmax(x, -1)[rows, target].mean()
    return result


def _dropout(x: AnyArray, p: float) -> AnyArray:
    keep = np.random.default_rng().random(x.shape, dtype=x.dtype) >= p
    result: AnyArray = x * keep / x.dtype.type(1 - p)
    return result


class Numpy(Adapter):
    """Plain NumPy calls."""

    operators: Mapping[str, Callable[..., Any]] = {
        "add": np.add,
        "mul": np.multiply,
        "exp": np.exp,
        "tanh": np.tanh,
        "relu": lambda x: np.maximum(x, 0),
        "gelu": _gelu,
        "sum": lambda x, dim: x.sum(axis=dim),
        "softmax": _softmax,
        "log_softmax": _log_softmax,
        "layer_norm": _layer_norm,
        "matmul": np.matmul,
        "linear": lambda x, weight, bias: x @ weight.T + bias,
        "conv2d": _conv2d,
        "max_pool2d": _max_pool2d,
        "cross_entropy": _cross_entropy,
        "embedding": lambda index, weight: weight[index],
        "dropout": _dropout,
    }

    def version(self) -> str:
        """Return NumPy's version."""
        return np.__version__

    def operation(
        self, case: Case, function: Callable[..., Any], arrays: Mapping[str, AnyArray]
    ) -> Work:
        """Make an operator ready."""
        attrs = dict(case.attrs)
        inputs: list[AnyArray] = []

        def feed(arrays: Mapping[str, AnyArray], cotangents: Sequence[AnyArray]) -> None:
            del cotangents
            inputs[:] = [
                np.array(arrays[array.name], dtype=input_dtype(array.kind, case.dtype))
                for array in case.inputs
            ]

        def forward() -> Any:
            return function(*inputs, **attrs)

        feed(arrays, [])
        return Work(
            phases={"forward": Phase(forward), "inference": Phase(forward)},
            feed=feed,
            arrays=lambda _, result: named_outputs([np.array(result)]),
        )

    def graph(self, case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        """Make a scalar graph ready: all points at once, one operation after the other."""
        match case.op:
            case "descend":
                return descent(lambda graph: partial(sweep.descend, graph), case, arrays)
            case "churn":
                return churn(lambda graph: graph, sweep.evaluate, case, arrays)
        contender = Evaluator(
            build=lambda graph: graph,
            compile=lambda graph, _: partial(sweep.evaluate, graph),
            phases=("step",),
        )
        return evaluations(contender, case, arrays)
