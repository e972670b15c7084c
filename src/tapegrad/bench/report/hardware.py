"""Runs of several machines or devices side by side: how operators do on different hardware.

Times of different hardware make no ratio that says anything about the code. What can be compared
is how near each comes to what its machine was found to be able to do (`tapegrad bench machine`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tapegrad.bench import statistics
from tapegrad.bench.report.figures.found import Found
from tapegrad.bench.report.table import Column, Entry, Line, Table
from tapegrad.bench.report.text import time_text
from tapegrad.bench.results import CellKey, Results, Run
from tapegrad.bench.units import number
from tapegrad.worker.case import Case

#: Phases whose least work is known: to read the inputs, and to do the case's operations.
KNOWN = ("forward", "inference")
UNKNOWN = Entry("n/a", "muted")
NOTE = (
    "of roofline: how near a forward pass comes to what its machine was found to be able to do, by "
    "the larger of two shares: bytes of all inputs a second of the copy bandwidth, and operations "
    "a second of the matmul rate, where the case says how many there are. The true share is no "
    "less, since results are written too. n/a: the rates are those of one core, so they say "
    "nothing of a GPU or of several threads, nor is the least work of other phases known."
)


def side_by_side(runs: Sequence[Results]) -> Table:
    """Show what runs have in common, each with its time and its share of the roofline."""
    found = [Found(results) for results in runs]
    cases = {key: case for results in runs for key, case in results.case_by_key().items()}
    shared = set.intersection(*({cell.key for cell in results.cells} for results in runs))
    keys = [cell.key for cell in runs[0].cells if cell.key in shared and cell.case in cases]
    columns = [Column("case", group=True), Column("phase", whole=True), Column("framework")]
    for results in runs:
        name = f"{results.run.machine.name}, {_device(results.run)}"
        columns += [Column(name, number=True), Column("of roofline", number=True)]
    lines = (Line(tuple(_entries(found, cases[key.case], key))) for key in keys)
    return Table("Hardware side by side", tuple(columns), tuple(lines), (NOTE,))


def _entries(found: list[Found], case: Case, key: CellKey) -> Iterator[Entry]:
    yield from map(Entry, (case.label, key.phase, key.framework))
    for each in found:
        blocks, cell = each.blocks(key), each.cell(key)
        if not blocks or cell is None:
            yield from (Entry(cell.verdict if cell else "not measured", "word"), UNKNOWN)
            continue
        time = statistics.estimate(blocks)
        one_core = _threads(key, each.run) == 1
        share = roofline_share(case, key.phase, each.run, time.time) if one_core else None
        yield Entry(time_text(time), "time")
        yield Entry(f"{number(100 * share)} %") if share is not None else UNKNOWN


def roofline_share(case: Case, phase: str, run: Run, time: float) -> float | None:
    """Return the least time that one core could need over the time that was found."""
    rates = run.machine.details
    copying, multiplying = rates.get("copy bandwidth"), rates.get(f"matmul {case.dtype}")
    if phase not in KNOWN or _device(run) != "cpu" or not copying or not multiplying:
        return None
    return float(max(case.nbytes / copying, case.flops / multiplying) / time)


def _threads(key: CellKey, run: Run) -> int:
    """Return the threads of a contender: those in its name, as of torch@2, else the run's."""
    return int(key.framework.partition("@")[2] or run.options.get("threads", 1))


def _device(run: Run) -> str:
    return str(run.options.get("device", "cpu"))
