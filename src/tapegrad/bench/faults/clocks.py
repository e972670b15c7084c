"""Time that is not the time of the work."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from tapegrad.worker.adapter import AnyArray, Call, Work
from tapegrad.worker.case import Case
from tapegrad.worker.honest import Honest, Later, Operation, in_block

ADAPTERS = {
    "unsynchronised": "Unsynchronised",
    "lazy": "Lazy",
    "lazy each time": "LazyEachTime",
    "lazy and filled": "LazyAndFilled",
    "lazy in part": "LazyInPart",
    "lazy later": "LazyLater",
    "tells a twentieth": "TellsATwentieth",
    "stale longer": "StaleLonger",
    "stale shorter": "StaleShorter",
    "stale later": "StaleLater",
    "third in blocks": "ThirdInBlocks",
}
#: What starting work costs, as on a device: it bounds the work that piles up.
LAUNCH_SECONDS = 2e-5


class _Queued(Operation):
    """Hands work to a thread and returns; reading waits for it."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._queue = ThreadPoolExecutor(1)

    def forward(self) -> Future[Any]:
        until = time.perf_counter() + LAUNCH_SECONDS
        queued = self._queue.submit(super().forward)
        while time.perf_counter() < until:
            pass
        return queued

    def read(self, phase: str, result: Future[Any]) -> dict[str, AnyArray]:
        return super().read(phase, result.result())


class Unsynchronised(Honest):
    """Does not wait for what it has started: `settle` is not overridden."""

    make = _Queued


class _Thunk:
    """A result that nobody has computed yet."""

    def __init__(self, compute: Call) -> None:
        self._compute = compute
        self._value: Any = None

    def once(self) -> Any:
        if self._value is None:
            self._value = self._compute()
        return self._value

    def anew(self) -> Any:
        return self._compute()


class _Deferred(Operation):
    """Computes when its result is read for the first time."""

    def forward(self) -> _Thunk:
        return _Thunk(super().forward)

    def read(self, phase: str, result: _Thunk) -> dict[str, AnyArray]:
        return super().read(phase, result.once())


class Lazy(Honest):
    """Returns before anything is computed."""

    make = _Deferred


class _DeferredEachTime(_Deferred):
    """Computes whenever its result is read."""

    def read(self, phase: str, result: _Thunk) -> dict[str, AnyArray]:
        return Operation.read(self, phase, result.anew())


class LazyEachTime(Honest):
    """Returns before anything is computed, and keeps nothing of what reading computes."""

    make = _DeferredEachTime


class _Filled(Operation):
    """Writes as much as its result takes, and computes whenever that is read."""

    def forward(self) -> AnyArray:
        return np.ones_like(self.inputs[0])

    def read(self, phase: str, result: AnyArray) -> dict[str, AnyArray]:
        return super().read(phase, super().forward())


class LazyAndFilled(Honest):
    """Returns memory that is filled, and computes what reading asks for."""

    make = _Filled


class _DeferredInPart(_Deferred):
    """Computes a third of the result, and the whole when that is read."""

    def forward(self) -> _Thunk:
        first, *others = self.inputs
        self.function(first[: len(first) // 3], *others)
        return super().forward()


class LazyInPart(Honest):
    """Returns when something is computed, and not all."""

    make = _DeferredInPart


class _DeferredLater(_Deferred, Later):
    """Defers its work when it has been looked at."""

    def forward(self) -> _Thunk:
        result = super().forward()
        if not self.later():
            result.once()
        return result


class LazyLater(Honest):
    """Computes when it is called until it has been looked at, and when it is read from then on."""

    make = _DeferredLater


class TellsATwentieth(Honest):
    """Tells a part of its time: of a short call, that is less than a message takes."""

    def elapsed(self, call: Call, calls: int) -> float:
        """Time calls, and tell less."""
        return 0.05 * super().elapsed(call, calls)


class _Stale(Honest):
    """Returns the time of another loop, which ran when the case was prepared."""

    #: Calls of the operator in the other loop for each one that is asked for.
    share = 1.0
    _seconds = 0.0

    def operation(
        self, case: Case, function: Callable[..., Any], arrays: Mapping[str, AnyArray]
    ) -> Work:
        work = super().operation(case, function, arrays)
        call = work.phases["forward"].call
        self._seconds = self.share * min(_seconds(call) for _ in range(5))
        return work

    def elapsed(self, call: Call, calls: int) -> float:
        super().elapsed(call, calls)
        return self._seconds * calls


class StaleLonger(_Stale):
    """Prints the time of the training loop under inference, as seen in a published benchmark."""

    share = 10.0


class StaleShorter(_Stale):
    """Prints the time of a loop that did a tenth of the work."""

    share = 0.1


class ThirdInBlocks(Honest):
    """Tells the truth to those who try it for a short while, and a third of it in blocks."""

    def elapsed(self, call: Call, calls: int) -> float:
        """Look who asks."""
        true = super().elapsed(call, calls)
        return true / 3 if in_block() else true


class StaleLater(Honest, Later):
    """Tells the time until it has been looked at, and a hundredth of it from then on."""

    def elapsed(self, call: Call, calls: int) -> float:
        """Lie from the first block on."""
        return super().elapsed(call, calls) * (0.01 if self.later() else 1.0)


def _seconds(call: Call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
