"""Expressions for any library of PyTorch's shape; imports NumPy and nothing else."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

#: What stands for a call that a library refuses.
REFUSED = "refused"
_REFUSALS = (RuntimeError, TypeError, ValueError, IndexError, AttributeError, AssertionError)


def outcomes(lib: Any, expressions: list[str]) -> dict[str, Any]:
    """Return what expressions over `x` (2, 3), a mask, `tt`, `nn`, `F` and `optim` give."""
    return {each: _outcome(lib, each) for each in expressions}


def _outcome(lib: Any, expression: str) -> Any:
    x = lib.tt.tensor(np.arange(6, dtype="float32").reshape(2, 3))
    names = {"tt": lib.tt, "nn": lib.nn, "F": lib.F, "optim": lib.optim, "np": np, "x": x}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _plain(eval(expression, names))
        except _REFUSALS as error:
            return f"{REFUSED}: {type(error).__module__}.{type(error).__name__}: {error}"


def _plain(found: Any) -> Any:
    """Return results without their library: arrays, numbers, texts and lists of these."""
    if hasattr(found, "detach"):
        return found.detach().numpy()
    if isinstance(found, (tuple, list)):
        return [_plain(each) for each in found]
    if found is None or isinstance(found, (bool, int, float, str, np.ndarray)):
        return found
    return str(found).replace("torch.", "").replace("tapegrad.", "")
