"""The operator tables: one file per framework, canonical name -> that framework's call.

Every table has the same order, by category, and every call takes the inputs of the case in order
and its attributes by name (`tapegrad.bench.suites.operators` defines them):

- images are (batch, channel, row, column), weights as PyTorch has them;
- a result is a new array, not a view: who would return one, copies it;
- several results are a tuple, each with a cotangent of its own;
- random operators take what they need from the framework's generator; where that is a function of
  a key, as in JAX, the case's `seed` is the key.

A table lacks what its framework has no call for. `MISSING` names those calls. `FUSED` has what a
framework does in one call of fused operators (`tapegrad.worker.networks.fused`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tapegrad.worker.case import DTYPES, PHASES


class Fused(NamedTuple):
    """How a framework does a fused operator; without a name it has no way of its own."""

    name: str = ""
    #: None, where the framework makes one of the parts by itself.
    call: Callable[..., Any] | None = None
    #: Where it does so; in other phases the parts are called one after the other.
    phases: Sequence[str] = PHASES
    #: The types it has; in others the parts are called one after the other.
    dtypes: Sequence[str] = DTYPES


#: Phases of calls that cannot be differentiated.
INFERENCE = ("inference",)
#: Phases of calls whose gradients are those of the parts.
FORWARD = ("forward", "inference")
FLOAT32 = ("float32",)


def outputs_of(result: Any) -> tuple[Any, ...]:
    """Return what an operator gave as a tuple, also where it is one array."""
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)
