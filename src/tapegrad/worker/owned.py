"""Gradients with memory of their own.

A framework may return the cotangent itself for a gradient, a part of it, or one number for all.
Who keeps a gradient, as an optimiser does, needs a copy then; so it is made within the clock, and
every framework does the same work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any


class Owned:
    """Copies the gradients that need it: always the same ones of a case."""

    def __init__(
        self,
        cotangents: Sequence[Any],
        address: Callable[[Any], int],
        copy: Callable[[int, Any], Any],
    ) -> None:
        """Take how to find an array's memory, 0 if it has none of its own, and how to copy one."""
        self._cotangents = cotangents
        self._address = address
        self._copy = copy
        #: Places of gradients that are copied, once a first call has shown them.
        self._borrowed: list[int] | None = None

    def __call__(self, gradients: Sequence[Any]) -> Sequence[Any]:
        """Return gradients that nobody else refers to."""
        if self._borrowed is None:
            self._borrowed = list(self._found(gradients))
        if not self._borrowed:
            return gradients
        owned = list(gradients)
        for place in self._borrowed:
            owned[place] = self._copy(place, gradients[place])
        return owned

    def _found(self, gradients: Sequence[Any]) -> Iterator[int]:
        taken = {0, *map(self._address, self._cotangents)}
        for place, gradient in enumerate(gradients):
            address = self._address(gradient)
            if address in taken:
                yield place
            taken.add(address)
