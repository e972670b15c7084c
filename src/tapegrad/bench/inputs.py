"""The arrays of a case, made once from a seed and handed to every worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapegrad.bench import scratch
from tapegrad.bench.comparison import typical_size
from tapegrad.bench.errors import MalformedFileError
from tapegrad.worker.adapter import input_dtype
from tapegrad.worker.case import Array, Case
from tapegrad.worker.networks import network_of

Arrays = dict[str, NDArray[Any]]


def make_inputs(case: Case, seed: int) -> Arrays:
    """Draw all inputs of a case in its own type, so that every precision starts from equal bits."""
    rng = np.random.default_rng([seed, int(case.key, 16)])
    return {array.name: _draw(array, case.dtype, rng) for array in case.inputs}


def make_cotangents(case: Case, outputs: list[NDArray[Any]], seed: int) -> list[NDArray[Any]]:
    """Draw a cotangent for each output.

    A loss and the target of a graph have the cotangent one, statistics of a network have zero.
    """
    rng = np.random.default_rng([seed, int(case.key, 16), 1])
    network = network_of(case)
    carrying = len(network.outputs) if network else len(outputs)
    return [
        _cotangent(case, output, rng) if index < carrying else np.zeros(output.shape, case.dtype)
        for index, output in enumerate(outputs)
    ]


def _cotangent(case: Case, output: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    if case.level == "graph" or output.ndim == 0:
        return np.ones(output.shape, case.dtype)
    return rng.standard_normal(output.shape).astype(case.dtype)


def save(arrays: Arrays, folder: Path) -> dict[str, str]:
    """Write arrays as .npy files and return their paths."""
    paths = {name: folder / f"{name}.npy" for name in arrays}
    with scratch.writing():
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in arrays.items():
            np.save(paths[name], array)
    return {name: str(path) for name, path in paths.items()}


def nudged(arrays: Arrays) -> Arrays:
    """Make inputs near a user's own: other values, but as valid."""
    rng = np.random.default_rng(0)
    return {
        name: (array + 0.01 * _size(array) * rng.random(array.shape)).astype(array.dtype)
        if np.issubdtype(array.dtype, np.floating)
        else array
        for name, array in arrays.items()
    }


def scaled(arrays: Arrays) -> Arrays:
    """Make multiples of inputs, each by a factor of its own: they keep their structure."""
    return {
        name: (array * (1 + 0.01 * index)).astype(array.dtype)
        if np.issubdtype(array.dtype, np.floating)
        else array
        for index, (name, array) in enumerate(arrays.items(), 1)
    }


def mixed(arrays: Arrays) -> Arrays:
    """Give elements a little of their neighbours: sums of rows stay."""
    return {
        name: (array + 0.01 * (np.roll(array, 1, -1) - array)).astype(array.dtype)
        if array.ndim and np.issubdtype(array.dtype, np.floating)
        else array
        for name, array in arrays.items()
    }


def turned(arrays: Arrays) -> Arrays:
    """Make inputs of the same values in another order."""
    return {name: np.flip(array).copy() for name, array in arrays.items()}


def _size(array: NDArray[Any]) -> float:
    """Return the typical size of an array's elements, one where they are all zero."""
    return typical_size(array, finite=True) or 1.0


def _draw(array: Array, dtype: str, rng: np.random.Generator) -> NDArray[Any]:
    match array.kind:
        case "normal":
            values: NDArray[Any] = rng.standard_normal(array.shape)
        case "uniform":
            values = rng.random(array.shape)
        case "positive":
            values = 0.5 + 1.5 * rng.random(array.shape)
        case "distinct":  # a shuffled grid: neighbours in value are far apart in steps of rounding
            count = int(np.prod(array.shape, dtype=np.int64))
            values = rng.permutation(np.linspace(-1.0, 1.0, count)).reshape(array.shape)
        case "integers":
            values = rng.integers(array.high, size=array.shape)
        case "flags":
            values = rng.random(array.shape) < 0.5
        case other:
            raise MalformedFileError(
                f"input {array.name}: unknown kind {other!r}; there are normal, uniform, positive, "
                "distinct, integers and flags."
            )
    if array.scale != 1.0 and array.kind != "flags":
        values = values * array.scale
    return values.astype(input_dtype(array.kind, dtype))
