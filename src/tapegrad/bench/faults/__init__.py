"""Adapters with known faults, each an honest one with a single thing changed.

Nothing recognises them: an audit runs them under other names, and guards see values and clocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tapegrad.bench import frameworks
from tapegrad.bench.frameworks import Contender
from tapegrad.bench.results import TIMED
from tapegrad.worker.case import Array, Case

FOLDER = Path(__file__).parent


def _matmul(side: int) -> Case:
    square = (side, side)
    inputs = Array("a", square), Array("b", square)
    return Case("operator", "matmul", inputs, reduction=side)


#: About a millisecond a call: far above what the machine's unrest adds.
PRODUCT = _matmul(384)
#: Shorter, for those that pile work up.
SHORT_PRODUCT = _matmul(192)
#: Longer than a turn of the scheduler, for those that compete with others for processors.
LONG_PRODUCT = _matmul(640)
#: All indices are equal and the table has one entry: every element of the result is the same.
LOOKUP = Case(
    "operator",
    "embedding",
    (
        Array("index", (100_000,), grad=False, kind="integers", high=1),
        Array("weight", (1, 1)),
    ),
)


@dataclass(frozen=True)
class Fault:
    """One adapter, and what an audit must find."""

    name: str
    #: What is wrong with it, in words.
    does: str
    file: str
    #: The guard that alone catches it, where there is one.
    guard: str = ""
    #: Verdicts of which one must come out.
    verdicts: tuple[str, ...] = ("mistrusted",)
    phase: str = "forward"
    case: Case = PRODUCT
    #: Longest answer, in seconds.
    timeout: float = 30.0
    #: Processors without which the fault cannot show.
    processors: int = 1

    @property
    def contender(self) -> Contender:
        """Return the adapter."""
        found = frameworks.contenders_in(FOLDER / f"{self.file}.py")
        return next(each for each in found if each.name == self.name)

    @property
    def honest(self) -> bool:
        """Whether nothing is wrong with it."""
        return self.verdicts == TIMED


CONTROLS = (
    Fault("honest", "nothing wrong", "honest", verdicts=TIMED),
    Fault("honest", "nothing wrong", "honest", verdicts=TIMED, phase="backward"),
    Fault("honest", "nothing wrong", "honest", verdicts=TIMED, case=SHORT_PRODUCT),
    Fault("chatters", "prints while it works", "breakdowns", verdicts=TIMED),
)

FAULTS = (
    Fault(
        "unsynchronised",
        "does not wait for the work it has started",
        "clocks",
        case=SHORT_PRODUCT,
    ),
    Fault("stale longer", "prints the time of another, longer loop", "clocks", "clock"),
    Fault("stale shorter", "prints the time of another, shorter loop", "clocks"),
    Fault(
        "stale later",
        "prints a part of its time once it has been looked at",
        "clocks",
        "clock",
    ),
    Fault("lazy", "computes when its result is read", "clocks", "reading"),
    Fault("lazy each time", "computes whenever its result is read", "clocks", "reading"),
    Fault("another shape", "takes half of the rows", "results", "values", ("wrong",)),
    Fault(
        "another shape when timed",
        "takes half of the rows in the timed loop",
        "results",
        "timed result",
    ),
    Fault(
        "another shape later",
        "takes half of the rows once it has been looked at",
        "results",
        "timed result",
    ),
    Fault("zero", "returns zeros", "results", verdicts=("wrong",)),
    Fault("one for all", "computes one element of many", "results", "meaning", case=LOOKUP),
    Fault(
        "wrong gradient",
        "computes the wrong gradient",
        "results",
        "values",
        ("wrong",),
        phase="backward",
    ),
    Fault(
        "accumulates",
        "adds to the gradients of the last call",
        "results",
        "timed result",
        phase="backward",
    ),
    Fault("first answer", "gives its first answer for ever", "memories", "dependence"),
    Fault(
        "old weights",
        "keeps one of its inputs when they change",
        "memories",
        "dependence",
        ("wrong",),
    ),
    Fault("remembers inputs", "computes once for each set of inputs", "memories", "fresh"),
    Fault("remembers content", "computes once for inputs that look alike", "memories", "fresh"),
    Fault(
        "steals threads",
        "uses processors it was not given",
        "threads",
        "cores",
        case=LONG_PRODUCT,
        processors=2,
    ),
)

BREAKDOWNS = (
    Fault("rubbish", "answers with a line that is no answer", "breakdowns", verdicts=("failed",)),
    Fault("empty answer", "answers without content", "breakdowns", verdicts=("failed",)),
    Fault("no arrays", "returns what is no array", "breakdowns", verdicts=("failed",)),
    Fault("not a time", "measures no number of seconds", "breakdowns", verdicts=("failed",)),
    Fault("hangs", "never answers", "breakdowns", verdicts=("timeout",), timeout=2.0),
    Fault("exits", "ends its process", "breakdowns", verdicts=("crashed",)),
    Fault("segfaults", "dies of a signal", "breakdowns", verdicts=("crashed",)),
    Fault("dies later", "ends its process while timed", "breakdowns", verdicts=("crashed",)),
    Fault("takes all memory", "allocates without bound", "breakdowns", verdicts=("oom",)),
)
