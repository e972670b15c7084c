"""Work on scalar graphs that is done where no clock is, or told by another."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tapegrad.worker.adapter import AnyArray, Phase, Work
from tapegrad.worker.adapters.numpy import Numpy
from tapegrad.worker.case import Case

ADAPTERS = {"evaluates early": "EvaluatesEarly", "builds later": "BuildsLater"}
#: Seconds that a compiler takes, which is a process of its own.
COMPILER = 0.5


class EvaluatesEarly(Numpy):
    """Evaluates a graph in the setup of its phase, and hands out what is there."""

    def graph(self, case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        """Make a graph ready."""
        work = super().graph(case, arrays)
        step, done = work.phases["step"], list[Any]()

        def setup() -> None:
            done[:] = [step.call()]

        return replace(work, phases={"step": Phase(lambda: done[0], units=step.units, setup=setup)})


class BuildsLater(Numpy):
    """Tells that building is nothing; the first step has it done, before its clock starts."""

    def graph(self, case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        """Make a graph ready."""
        work = super().graph(case, arrays)
        step, built = work.phases["step"], list[bool]()

        def call() -> Any:
            if not built:
                time.sleep(COMPILER)
                built.append(True)
            return step.call()

        return replace(
            work, phases={"build": Phase(lambda: None), "step": replace(step, call=call)}
        )
