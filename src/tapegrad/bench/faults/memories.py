"""Answers that are remembered instead of computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tapegrad.worker.adapter import AnyArray
from tapegrad.worker.honest import Honest, Operation

ADAPTERS = {
    "first answer": "FirstAnswer",
    "old weights": "OldWeights",
    "remembers inputs": "RemembersInputs",
    "remembers content": "RemembersContent",
}


class _FirstAnswer(Operation):
    answer: Any = None

    def forward(self) -> Any:
        if self.answer is None:
            self.answer = super().forward()
        return self.answer


class FirstAnswer(Honest):
    """Gives its first answer for ever."""

    make = _FirstAnswer


class _OldWeights(Operation):
    """Takes the first input anew and keeps the others."""

    def feed(self, arrays: Mapping[str, AnyArray], cotangents: Sequence[AnyArray]) -> None:
        kept = self.inputs[1:]
        super().feed(arrays, cotangents)
        self.inputs[1:] = kept or self.inputs[1:]


class OldWeights(Honest):
    """Has frozen one of its inputs, as a traced function does with a constant."""

    make = _OldWeights


class _RemembersInputs(_FirstAnswer):
    def feed(self, arrays: Mapping[str, AnyArray], cotangents: Sequence[AnyArray]) -> None:
        super().feed(arrays, cotangents)
        self.answer = None


class RemembersInputs(Honest):
    """Computes once for each set of inputs that it is handed."""

    make = _RemembersInputs


class _RemembersContent(Operation):
    """Knows inputs by some of their numbers."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._answers: dict[bytes, Any] = {}

    def forward(self) -> Any:
        key = b"".join(array.ravel()[::997].tobytes() for array in self.inputs)
        if key not in self._answers:
            self._answers[key] = super().forward()
        return self._answers[key]


class RemembersContent(Honest):
    """Computes once for all inputs that look alike."""

    make = _RemembersContent
