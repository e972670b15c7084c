"""What a run says on the way is what its tables say at the end."""

from __future__ import annotations

import io
from dataclasses import dataclass
from types import SimpleNamespace

import msgspec
import pytest
from rich.console import Console

from tapegrad.bench import Array, Case
from tapegrad.bench.report import report_text
from tapegrad.bench.results import Block, Cell, Machine, Results, Run
from tapegrad.cli.bench import progress
from tapegrad.cli.bench.progress import Lines, Tally

CASE = Case("operator", "add", (Array("x", (8, 8)), Array("y", (8, 8))), phases=("forward",))
NAMES = ["numpy", "c"]
OPTIONS = {"phases": [], "processes": 3, "rounds": 2, "block": 0.02}
RUN = Run("r1", "tiny", 0.0, Machine("f0", "laptop"), OPTIONS)
#: By process and round.
Times = list[tuple[float, float]]
#: Milliseconds of the second contender by process and round; the first takes 1 each time.
DECIDED = [(2.0, 2.01), (2.02, 2.0), (1.99, 2.01)]
SCATTERED = [(0.7, 1.5), (2.1, 0.9), (1.0, 1.6)]


@dataclass
class Watched:
    """A run in which two contenders were measured, and what was said meanwhile."""

    results: Results
    said: str


def blocks(name: str, times: Times) -> list[Block]:
    return [
        Block(CASE.key, name, "forward", process, number, [1e-3 * time] * 3)
        for process, row in enumerate(times)
        for number, time in enumerate(row)
    ]


def results_of(times: Times, verdict: str = "checked") -> Results:
    verdicts = zip(NAMES, ("checked", verdict), strict=True)
    cells = [Cell(CASE.key, name, "forward", word) for name, word in verdicts]
    measured = [*blocks(NAMES[0], [(1.0, 1.0)] * 3), *blocks(NAMES[1], times)]
    return Results(RUN, [], [CASE.as_dict()], cells, measured)


def watched(results: Results, *, earlier: int = 0) -> Watched:
    """Let a run go by, of which so many blocks are there already."""
    file = io.StringIO()
    lines = Lines(Console(file=file, width=200))
    lines.started(RUN, [CASE], NAMES)
    begun = Results(RUN, [], results.cases, [], results.blocks[:earlier])
    lines.earlier(begun)
    lines.case(0, CASE)
    for cell in results.cells:
        lines.cell(cell)
    for block in results.blocks[earlier:]:
        lines.block(block)
    lines.finished(results)
    return Watched(results, file.getvalue())


@pytest.mark.parametrize("earlier", [0, 7])
@pytest.mark.parametrize(
    ("times", "verdict"),
    [(DECIDED, "slower"), (SCATTERED, "undecided"), ([(1.0, 1.0)] * 3, "same")],
)
def test_a_line_gives_the_verdict_of_the_table(times: Times, verdict: str, earlier: int) -> None:
    run = watched(results_of(times), earlier=earlier)
    (line,) = (line for line in run.said.splitlines() if line.startswith("[1/1]"))
    assert f"× {verdict} ±" in line
    said = line.partition("(")[2].rpartition(")")[0]
    assert said in report_text(run.results)


def test_a_verdict_that_takes_times_back_leaves_no_ratio() -> None:
    run = watched(results_of(DECIDED, "mistrusted"))
    assert "c mistrusted" in run.said and "×" not in run.said


def test_times_in_different_types_have_no_ratio() -> None:
    results = results_of(DECIDED)
    first, second = results.cells
    second = msgspec.structs.replace(second, notes=["computes in float64"])
    run = watched(msgspec.structs.replace(results, cells=[first, second]))
    assert "c 2.00 ms" in run.said and "×" not in run.said


def test_the_mean_so_far_is_decided_as_in_the_table() -> None:
    tally = Tally(RUN, [CASE], NAMES)
    tally.earlier(results_of(SCATTERED))
    (mean,) = tally.means()
    assert mean.low is not None and mean.high is not None and mean.low < 1 < mean.high


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Give a clock for progress that goes when its `now` is changed."""
    clock = SimpleNamespace(now=0.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(progress, "time", clock)
    return clock


def adding(sides: list[int]) -> list[Case]:
    shapes = [(side, side) for side in sides]
    return [Case("operator", "add", (Array("x", shape), Array("y", shape))) for shape in shapes]


def measure(tally: Tally, index: int, offers: dict[str, list[str]], clock: SimpleNamespace) -> None:
    """Go through a case: verdicts on all phases, then a second for each block of those offered."""
    case = tally.cases[index]
    tally.begin(index)
    for name, phases in offers.items():
        for phase in case.phases:
            verdict = "checked" if phase in phases else "unsupported"
            tally.cell(Cell(case.key, name, phase, verdict))
    for name, phases in offers.items():
        for phase in phases:
            for number in range(6):
                clock.now += 1
                tally.block(Block(case.key, name, phase, number % 3, number // 3, [1e-3]))


def test_time_left_is_that_of_who_takes_part_in_what_they_offer(clock: SimpleNamespace) -> None:
    tally = Tally(RUN, adding([1, 2, 3, 4]), ["numpy", "c", "rust"])
    tally.taking_part([["numpy", "c"]] * 4)
    for index in range(3):
        measure(tally, index, {"numpy": ["forward"], "c": ["forward", "backward"]}, clock)
    assert tally.left() == 18.0
    assert tally.fraction == 0.75


def test_blocks_that_a_verdict_takes_back_are_not_taken_off_those_to_come(
    clock: SimpleNamespace,
) -> None:
    tally = Tally(RUN, adding([1, 2]), ["numpy"])
    measure(tally, 0, {"numpy": ["forward", "backward"]}, clock)
    for phase in ("forward", "backward"):
        tally.cell(Cell(tally.cases[0].key, "numpy", phase, "mistrusted"))
    assert tally.left() == 12.0
