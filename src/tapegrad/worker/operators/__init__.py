"""The operator tables: one file per framework, canonical name -> that framework's call.

Every table has the same order, by category, and every call takes the inputs of the case in order
and its attributes by name (`tapegrad.bench.suites.operators` defines them):

- images are (batch, channel, row, column), weights as PyTorch has them;
- a result is a new array, not a view, except for `reshape`, which may be either everywhere;
- several results are a tuple, each with a cotangent of its own;
- random operators take what they need from the framework's generator; where that is a function of
  a key, as in JAX, the case's `seed` is the key.

A table lacks what its framework has no call for. `MISSING` names those calls.
"""

from __future__ import annotations

from typing import Any


def outputs_of(result: Any) -> tuple[Any, ...]:
    """Return what an operator gave as a tuple, also where it is one array."""
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)
