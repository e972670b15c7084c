"""Operations that are written in others: their rules, gradients, costs and kernels are those."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tapegrad.tensors.registry import Sample

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True, eq=False)
class Composite:
    """A function of tensors that is made of operations: what tests and the bench know of it."""

    name: str
    function: str
    doc: str
    samples: Sequence[Sample]
    #: Its name among the bench's operators, "" if that has none.
    benchmark: str
    #: How often it can be differentiated.
    orders: int


#: All such functions by name.
COMPOSITES: dict[str, Composite] = {}


def composite(
    *samples: Sample, benchmark: str = "", orders: int = 2
) -> Callable[[_Function], _Function]:
    """Enter a function into the table, with the samples that it is tested by."""

    def entered(function: _Function) -> _Function:
        name = function.__name__
        COMPOSITES[name] = Composite(name, name, function.__doc__ or "", samples, benchmark, orders)
        return function

    return entered
