"""NumPy without arithmetic: what still works then computes with tapegrad's own kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tapegrad.tensors as tt
from tapegrad.tensors.base import wrap

#: Functions and methods that compute; those that look at memory and copy it stay.
FUNCTIONS = [name for name in dir(np) if isinstance(getattr(np, name), np.ufunc)]
FUNCTIONS += ["sum", "mean", "var", "std", "prod", "max", "min", "amax", "amin", "cumsum", "clip"]
FUNCTIONS += ["dot", "einsum", "tensordot", "inner", "outer", "where", "argmax", "argmin", "pad"]
METHODS = ["sum", "mean", "var", "std", "prod", "max", "min", "cumsum", "clip", "dot", "argmax"]
METHODS += ["argmin", "any", "all", "trace", "round", "cumprod"]


def refused(name: str) -> Any:
    def function(*_: Any, **__: Any) -> Any:
        raise AssertionError(f"NumPy computed {name}")

    return function


class Guarded(np.ndarray[Any, Any]):
    """An array whose elements NumPy cannot compute with: operators are ufuncs, too."""

    def __array_ufunc__(self, ufunc: Any, method: str, *_: Any, **__: Any) -> Any:
        raise AssertionError(f"NumPy computed {ufunc.__name__}")


for _name in METHODS:
    setattr(Guarded, _name, refused(_name))


def guarded(array: Any) -> Any:
    """Return a tensor on a copy of an array that NumPy cannot compute with."""
    return wrap(np.array(array).view(Guarded), tt.device("cpu"))


def guard(tensor: Any) -> None:
    """Keep NumPy from computing with a tensor's array."""
    tensor._array = tensor._array.view(Guarded)


def take_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let NumPy's functions compute nothing."""
    for each in FUNCTIONS:
        monkeypatch.setattr(np, each, refused(each))
