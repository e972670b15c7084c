"""Time that is not the time of the work."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import FrameType
from typing import Any

from tapegrad.worker.adapter import AnyArray, Call, Work
from tapegrad.worker.case import Case
from tapegrad.worker.honest import Honest, Operation

ADAPTERS = {
    "unsynchronised": "Unsynchronised",
    "lazy": "Lazy",
    "lazy each time": "LazyEachTime",
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


class _DeferredInPart(_Deferred):
    """Computes a third of the result, and the whole when that is read."""

    def forward(self) -> _Thunk:
        first, *others = self.inputs
        self.function(first[: len(first) // 3], *others)
        return super().forward()


class LazyInPart(Honest):
    """Returns when something is computed, and not all."""

    make = _DeferredInPart


class _DeferredLater(_Deferred):
    """Defers its work when it has been looked at."""

    #: More than guards make, and fewer than blocks have.
    honest_calls = 550
    calls = 0

    def forward(self) -> _Thunk:
        self.calls += 1
        result = super().forward()
        if self.calls <= self.honest_calls:
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


class StaleLater(Honest):
    """Tells the time until it has been looked at, and a hundredth of it from then on."""

    #: More than guards make, and fewer than blocks have.
    honest_calls = 120
    _calls = 0

    def elapsed(self, call: Call, calls: int) -> float:
        """Count calls, and lie about the later ones."""
        self._calls += calls
        share = 1.0 if self._calls <= self.honest_calls else 0.01
        return share * super().elapsed(call, calls)


class ThirdInBlocks(Honest):
    """Tells the truth to those who try it for a short while, and a third of it in blocks."""

    #: Seconds that guards ask for.
    trial = 0.005

    def elapsed(self, call: Call, calls: int) -> float:
        """Look who asks."""
        true = super().elapsed(call, calls)
        return true if self._asked() in (None, self.trial) else true / 3

    def _asked(self) -> float | None:
        """Return the seconds that the message asks for, if it asks for a time."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code.co_name != "do_time":
            frame = frame.f_back
        return None if frame is None else float(frame.f_locals["seconds"])


def _seconds(call: Call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
