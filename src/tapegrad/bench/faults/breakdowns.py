"""Workers that break: each must cost its own cell and nothing else."""

from __future__ import annotations

import os
import resource
import signal
import stat
import time
from typing import Any

import numpy as np

from tapegrad.worker.adapter import AnyArray, Call
from tapegrad.worker.honest import Honest, Operation

ADAPTERS = {
    "rubbish": "Rubbish",
    "empty answer": "EmptyAnswer",
    "no arrays": "NoArrays",
    "chatters": "Chatters",
    "hangs": "Hangs",
    "exits": "Exits",
    "segfaults": "Segfaults",
    "dies later": "DiesLater",
    "takes all memory": "TakesAllMemory",
    "not a time": "NotATime",
}
MEMORY_LIMIT = 1 << 29
CHUNK = 1 << 24


def _say(line: bytes) -> None:
    """Write to the pipe on which answers go to the driver."""
    for descriptor in range(3, 64):
        try:
            if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                os.write(descriptor, line)
        except OSError:
            continue


class _Rubbish(Operation):
    def forward(self) -> Any:
        _say(b"Segmentation fault (core dumped)\n")
        return super().forward()


class Rubbish(Honest):
    """Answers with a line that is no answer."""

    make = _Rubbish


class _EmptyAnswer(Operation):
    def forward(self) -> Any:
        _say(b"{}\n")
        return super().forward()


class EmptyAnswer(Honest):
    """Answers in the right form and without content."""

    make = _EmptyAnswer


class _NoArrays(Operation):
    def read(self, phase: str, result: Any) -> dict[str, AnyArray]:
        return {"output0": np.array([object()])}


class NoArrays(Honest):
    """Returns what is no array of numbers."""

    make = _NoArrays


class _Chatters(Operation):
    def forward(self) -> Any:
        print("warning: this operator is deprecated")
        os.write(1, b"{}\n")
        return super().forward()


class Chatters(Honest):
    """Prints to its standard output, which is a nuisance and no fault."""

    make = _Chatters


class _Hangs(Operation):
    def forward(self) -> Any:
        while True:
            time.sleep(1)


class Hangs(Honest):
    """Never returns."""

    make = _Hangs


class _Exits(Operation):
    def forward(self) -> Any:
        os._exit(3)


class Exits(Honest):
    """Ends its process."""

    make = _Exits


class _Segfaults(Operation):
    def forward(self) -> Any:
        os.kill(os.getpid(), signal.SIGSEGV)


class Segfaults(Honest):
    """Dies of a signal."""

    make = _Segfaults


class _DiesLater(Operation):
    calls = 0

    def forward(self) -> Any:
        self.calls += 1
        if self.calls > 100:
            os._exit(3)
        return super().forward()


class DiesLater(Honest):
    """Ends its process while its times are taken."""

    make = _DiesLater


class _TakesAllMemory(Operation):
    """Takes memory until there is none; a limit of its own keeps that harmless."""

    def forward(self) -> Any:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_LIMIT, hard))
        taken: list[AnyArray] = []
        while True:
            taken.append(np.ones(CHUNK // 8))


class TakesAllMemory(Honest):
    """Allocates without bound."""

    make = _TakesAllMemory


class NotATime(Honest):
    """Answers that its work took no number of seconds."""

    def elapsed(self, call: Call, calls: int) -> float:
        """Run once and return no number."""
        super().elapsed(call, 1)
        return float("nan")
