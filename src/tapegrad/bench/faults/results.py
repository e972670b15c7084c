"""Results that are not those of the work on the label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tapegrad.worker.adapter import AnyArray
from tapegrad.worker.honest import Honest, Later, Operation

ADAPTERS = {
    "another shape": "AnotherShape",
    "another shape when timed": "AnotherShapeWhenTimed",
    "another shape later": "AnotherShapeLater",
    "zero": "Zero",
    "one for all": "OneForAll",
    "wrong gradient": "WrongGradient",
    "accumulates": "Accumulates",
}


class _Half(Operation):
    """Computes half of the rows from a certain call on."""

    honest_calls = 0
    calls = 0

    def forward(self) -> Any:
        self.calls += 1
        if self.calls <= self.honest_calls:
            return super().forward()
        first, *others = self.inputs
        return self.function(first[: len(first) // 2], *others)


class AnotherShape(Honest):
    """The label says 64 rows, the code takes 32, as seen in a published benchmark."""

    make = _Half


class _HalfSoon(_Half):
    """Takes all rows for three calls after each feed."""

    honest_calls = 3

    def feed(self, arrays: Mapping[str, AnyArray], cotangents: Sequence[AnyArray]) -> None:
        super().feed(arrays, cotangents)
        self.calls = 0


class AnotherShapeWhenTimed(Honest):
    """Single calls are right; the loop does less."""

    make = _HalfSoon


class _HalfLater(_Half, Later):
    def forward(self) -> Any:
        return super().forward() if self.later() else Operation.forward(self)


class AnotherShapeLater(Honest):
    """Does what it should until it has been looked at, and less when its times are taken."""

    make = _HalfLater


class _Zero(Operation):
    def forward(self) -> Any:
        return np.zeros_like(super().forward())


class Zero(Honest):
    """Returns nothing but zeros."""

    make = _Zero


class _OneForAll(Operation):
    """Looks one element up and shows it in every place, which costs nothing."""

    def forward(self) -> Any:
        index, weight = self.inputs
        return np.broadcast_to(weight[index[:1]], (len(index), weight.shape[1]))


class OneForAll(Honest):
    """Right by accident: the label promises work, but all answers are equal."""

    make = _OneForAll


class _WrongGradient(Operation):
    """Forgets to transpose."""

    def backward(self) -> Any:
        (a, b), dy = self.inputs, self.cotangent
        return dy @ b, a.T @ dy


class WrongGradient(Honest):
    """Computes the wrong gradient at the right price."""

    make = _WrongGradient


class _Accumulates(Operation):
    """Adds to the gradients that are there; new inputs bring new ones."""

    def feed(self, arrays: Mapping[str, AnyArray], cotangents: Sequence[AnyArray]) -> None:
        super().feed(arrays, cotangents)
        self._sums = [np.zeros_like(array) for array in self.inputs]

    def backward(self) -> Any:
        for total, gradient in zip(self._sums, super().backward(), strict=True):
            np.add(total, gradient, out=total)
        return self._sums


class Accumulates(Honest):
    """Never resets its gradients."""

    make = _Accumulates
