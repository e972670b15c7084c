"""The op table as cases: calls of functions with drawn operands in several layouts."""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import tapegrad.tensors as tt
from tapegrad.tensors.ops.composite import COMPOSITES
from tapegrad.tensors.registry import REGISTRY, Draw, Sample

Array = Any
DTYPES = ("float32", "float64")
DEVICES = ("cpu", "reference")
#: Errors allowed, relative to the largest number of an array.
RTOL = {"float32": 1e-5, "float64": 1e-10}

RECORDS = {**REGISTRY, **{f"{name}()": each for name, each in COMPOSITES.items()}}
PUBLIC = {name: op for name, op in RECORDS.items() if op.function is not None}
INTERNAL = {name: op for name, op in RECORDS.items() if op.function is None}


def _contiguous(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(array.shape)


def _transposed(array: Array) -> Array:
    return np.asfortranarray(array).reshape(array.shape, order="F")


def _strided(array: Array) -> Array:
    """Lay elements out backwards with gaps in every dimension."""
    room = np.empty(tuple(2 * size + 1 for size in array.shape), array.dtype)
    steps: Any = (..., *[slice(2 * size, 0, -2) for size in array.shape])
    view = room[steps]
    view[...] = array
    return view


def _expanded(array: Array) -> Array:
    """Lay elements out at odd places of a larger array."""
    room = np.zeros((*array.shape, 3), array.dtype)
    room[..., 1] = array
    return room[..., 1]


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "contiguous": _contiguous,
    "transposed": _transposed,
    "strided": _strided,
    "spread": _expanded,
}


@dataclass(frozen=True)
class Case:
    """A call of a function: what stands in the places before and after its operands."""

    op: Any
    sample: Sample
    dtype: str

    @property
    def arrays(self) -> list[Array]:
        """The operands, the same in every run."""
        seed = zlib.crc32(f"{self.op.name} {self.sample}".encode())
        random = np.random.default_rng(seed)
        return [_drawn(random, draw, self.dtype) for draw in self.sample.operands]

    def arguments(self, operands: list[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return operands and options as the function takes them: by place, then by name."""
        options, left = dict(self.sample.options), list(operands)
        if self.op.function is None:
            return left, options
        placed: list[Any] = []
        for name, parameter in inspect.signature(self.function).parameters.items():
            if parameter.kind is parameter.VAR_POSITIONAL:
                placed += [options.pop(name)] if name in options else left
                left = [] if name not in options else left
            elif name == "tensors":
                placed, left = [left], []
            elif not left:
                break
            else:
                placed.append(options.pop(name) if name in options else left.pop(0))
        assert not left, f"{self.op.name}: more operands than places"
        return placed, options

    @property
    def function(self) -> Callable[..., Any]:
        """What users call; a record itself where they call nothing."""
        found: Callable[..., Any] = (
            self.op if self.op.function is None else getattr(tt, self.op.function or self.op.name)
        )
        return found

    def torch_call(self) -> Any:
        """Return the call for PyTorch: name, places, options."""
        operands = list(zip(self.arrays, [draw.grad for draw in self.sample.operands], strict=True))
        placed, options = self.arguments(operands)
        return self.op.function or self.op.name, placed, options

    def named(self) -> dict[str, Any] | None:
        """Return operands and options by name; None where some operands have none."""
        operands = [(array, False) for array in self.arrays]
        options = dict(self.sample.options)
        named: dict[str, Any] = {}
        for name, parameter in inspect.signature(self.function).parameters.items():
            if parameter.kind is parameter.VAR_POSITIONAL:
                continue
            if name == "tensors":
                named[name], operands = list(operands), []
            elif name in options:
                named[name] = options.pop(name)
            elif operands:
                named[name] = operands.pop(0)
        return None if operands else named

    def tensors(self, device: str, layout: str = "contiguous") -> list[Any]:
        """Return the operands as tensors; those that can have gradients want one."""
        found = [tt.as_tensor(LAYOUTS[layout](each), device=device) for each in self.arrays]
        for each, draw in zip(found, self.sample.operands, strict=True):
            each.requires_grad = draw.grad and each.is_floating_point()
        return found

    def __call__(self, tensors: list[Any]) -> tuple[Any, ...]:
        """Apply the function; return its results."""
        placed, options = self.arguments(tensors)
        found = self.function(*placed, **options)
        return tuple(found) if isinstance(found, (tuple, list)) else (found,)


def _drawn(random: np.random.Generator, draw: Draw, dtype: str) -> Array:
    if draw.dtype is None:
        return np.asarray(random.uniform(draw.low, draw.high, draw.shape)).astype(dtype)
    return np.asarray(random.integers(int(draw.low), int(draw.high), draw.shape)).astype(draw.dtype)


def cases(op: Any, dtype: str) -> Iterator[Case]:
    """Yield a case per sample of a record."""
    for sample in op.samples:
        yield Case(op, sample, dtype)
