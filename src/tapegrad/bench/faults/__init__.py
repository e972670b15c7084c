"""Adapters with known faults, each an honest one with a single thing changed.

Nothing recognises them: an audit runs them under other names, and guards see values and clocks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from tapegrad.bench import frameworks
from tapegrad.bench.frameworks import Contender
from tapegrad.bench.preparation import PREPARATION
from tapegrad.bench.results import TIMED
from tapegrad.worker.case import Array, Case
from tapegrad.worker.graphs import n_inputs

FOLDER = Path(__file__).parent


def _matmul(side: int) -> Case:
    square = (side, side)
    inputs = Array("a", square), Array("b", square)
    return Case("operator", "matmul", inputs, reduction=side)


def _sort(length: int) -> Case:
    return Case("operator", "sort", (Array("x", (length,), grad=False),), {"descending": False})


#: About a millisecond a call: far above what the machine's unrest adds.
PRODUCT = _matmul(384)
#: Shorter, for those that pile work up.
SHORT_PRODUCT = _matmul(192)
#: Longer than a turn of the scheduler, for those that compete with others for processors.
LONG_PRODUCT = _matmul(640)
#: What is remembered or put off here no floor tells: a sorted array holds its input's elements.
SORTING = _sort(1 << 16)
#: The same, of some tens of microseconds, and so long that most calls are made in blocks.
SHORT_SORTING = _sort(1 << 14)
FREQUENT_SORTING = _sort(1 << 13)
#: About as long, with a result of a megabyte.
ROWS = Case("operator", "softmax", (Array("x", (256, 1024), grad=False),), {"dim": -1})
#: Of more than caches hold, with a small result.
MANY_ROWS = Case("operator", "logsumexp", (Array("x", (2048, 1024), grad=False),), {"dim": -1})
#: So little work that taking the inputs hides it.
PAIRS = Case("operator", "mul", tuple(Array(name, (1024, 1024)) for name in ("x", "y")))
#: The same, of elements that are in the input or zero.
POSITIVES = Case("operator", "relu", (Array("x", (1024, 1024)),))
#: Much work on few numbers.
HEAVY = Case("operator", "erf", (Array("x", (256, 256), grad=False),))
#: The same, with a gradient.
HEAVY_STEP = Case("operator", "erf", (Array("x", (256, 256)),))
#: About a microsecond a call.
SHORT = Case("operator", "tanh", (Array("x", (4, 8)),))
DRAW = Case(
    "operator",
    "random_normal",
    (
        Array("seed", (2,), grad=False, kind="integers", high=1 << 30),
        Array("like", (256, 256), grad=False),
    ),
    random=True,
)
GRAPH = Case(
    "graph",
    "graph",
    (Array("x", (64, n_inputs("chain", 100)), kind="uniform"),),
    {"family": "chain", "ops": 100, "seed": 0, "target": "sum"},
    dtype="float64",
    phases=("step",),
    reduction=200,
)
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
    def phases(self) -> tuple[str, ...]:
        """Return what is measured: its phase, and the step that one without results prepares."""
        return (self.phase, "step") if self.phase in PREPARATION else (self.phase,)

    @property
    def honest(self) -> bool:
        """Whether nothing is wrong with it."""
        return self.verdicts == TIMED


CONTROLS = (
    Fault("honest", "nothing wrong", "honest", verdicts=TIMED),
    Fault("honest", "nothing wrong", "honest", verdicts=TIMED, phase="backward"),
    Fault("honest", "nothing wrong", "honest", verdicts=TIMED, phase="step", case=HEAVY_STEP),
    Fault("honest", "nothing wrong", "honest", verdicts=TIMED, case=SHORT_PRODUCT),
    Fault("honest", "nothing wrong", "honest", verdicts=TIMED, case=SORTING),
    Fault("honest", "nothing wrong", "honest", verdicts=TIMED, case=PAIRS),
    Fault("honest", "nothing wrong", "honest", verdicts=TIMED, case=HEAVY),
    Fault("honest", "nothing wrong", "honest", verdicts=TIMED, case=SHORT_SORTING),
    Fault("honest", "nothing wrong", "honest", verdicts=TIMED, case=SHORT),
    Fault("honest", "nothing wrong", "honest", verdicts=TIMED, case=DRAW),
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
    ),
    Fault(
        "third in blocks",
        "tells the time when it is tried, and a third of it in blocks",
        "clocks",
        "clock",
    ),
    Fault(
        "tells a twentieth",
        "tells a twentieth of a microsecond's call",
        "clocks",
        "clock",
        case=SHORT,
    ),
    Fault("lazy", "computes when its result is read", "clocks"),
    Fault("lazy each time", "computes whenever its result is read", "clocks"),
    Fault(
        "lazy in part",
        "computes the rest when its result is read",
        "clocks",
        "reading",
        case=SORTING,
    ),
    Fault(
        "lazy and filled",
        "fills its result, and computes when that is read",
        "clocks",
        "reading",
        case=PAIRS,
    ),
    Fault(
        "lazy later",
        "computes when its result is read once it has been looked at",
        "clocks",
        case=FREQUENT_SORTING,
    ),
    Fault(
        "counts twice",
        "counts every point of a graph twice",
        "counts",
        "counting",
        phase="step",
        case=GRAPH,
    ),
    Fault(
        "evaluates early",
        "evaluates a graph before the clock starts",
        "preparations",
        phase="step",
        case=GRAPH,
    ),
    Fault(
        "builds later",
        "tells that building takes no time, and does it before the first step",
        "preparations",
        "preparing",
        phase="build",
        case=replace(GRAPH, phases=("build", "step")),
    ),
    Fault("draws in order", "returns sorted random numbers", "draws", "chance", case=DRAW),
    Fault(
        "draws beforehand",
        "returns random numbers that it has had",
        "draws",
        "chance",
        case=DRAW,
    ),
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
    Fault(
        "first answer",
        "gives its first answer for ever",
        "memories",
        "dependence",
        case=SORTING,
    ),
    Fault(
        "old weights",
        "keeps one of its inputs when they change",
        "memories",
        "dependence",
        ("wrong",),
    ),
    Fault(
        "remembers two",
        "computes for the first two sets of inputs, and gives an old answer for others",
        "memories",
        "dependence",
        case=SORTING,
    ),
    Fault(
        "remembers inputs",
        "computes once for each set of inputs",
        "memories",
        "fresh",
        case=SORTING,
    ),
    Fault(
        "remembers inputs",
        "the same, though it saves microseconds",
        "memories",
        "fresh",
        case=SHORT_SORTING,
    ),
    Fault(
        "remembers inputs",
        "the same, of inputs that are in no cache when they are new",
        "memories",
        "fresh",
        case=MANY_ROWS,
    ),
    Fault(
        "remembers and copies",
        "computes once for each set of inputs, and copies the result",
        "memories",
        "fresh",
        case=ROWS,
    ),
    Fault(
        "remembers up to a factor",
        "computes once for inputs that are multiples",
        "memories",
        "fresh",
        case=SORTING,
    ),
    Fault(
        "remembers content",
        "computes once for inputs that look alike",
        "memories",
        "fresh",
        case=SORTING,
    ),
    Fault(
        "remembers signs",
        "computes once for inputs that begin with the same signs, and copies the result",
        "memories",
        "fresh",
        case=ROWS,
    ),
    Fault(
        "remembers the third",
        "computes three times for each set of inputs",
        "memories",
        "fresh",
        case=SORTING,
    ),
    Fault(
        "remembers later",
        "computes once for each set of inputs when it has been looked at",
        "memories",
        "fresh",
        case=FREQUENT_SORTING,
    ),
    Fault(
        "computes now and then",
        "computes in one of five calls",
        "memories",
        "single",
        case=SHORT_SORTING,
    ),
    Fault("works when fed", "computes when it takes its inputs", "memories", "floor", case=PAIRS),
    Fault(
        "works when fed",
        "the same, of elements that its input has, too",
        "memories",
        "floor",
        case=POSITIVES,
    ),
    Fault(
        "works when fed and copies",
        "computes when it takes its inputs, and copies",
        "memories",
        "feeding",
        case=HEAVY,
    ),
    Fault(
        "works when waited for",
        "computes when it is to wait for what it has started, and copies",
        "memories",
        "feeding",
        case=HEAVY,
    ),
    Fault(
        "begins its step when fed",
        "computes the output of a step when it takes its inputs, and copies",
        "memories",
        "feeding",
        phase="step",
        case=HEAVY_STEP,
    ),
    Fault(
        "finds the answer",
        "reads what others have computed",
        "memories",
        verdicts=("wrong",),
    ),
    Fault(
        "foresees",
        "has the answers for inputs that can be foreseen, and copies",
        "memories",
        "dependence",
        case=ROWS,
    ),
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
