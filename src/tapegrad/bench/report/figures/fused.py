"""Figures of fused operators: each framework's own call against the sum of the parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from tapegrad.bench import statistics
from tapegrad.bench.report.command import command_for
from tapegrad.bench.report.figures.found import Found, figure_of, together
from tapegrad.bench.report.figures.records import Figure, FusedRow
from tapegrad.bench.results import Block, Cell, CellKey, in_order
from tapegrad.bench.statistics import Ratio
from tapegrad.errors import OptionError
from tapegrad.worker.case import Case

#: What a note begins with that says how a framework does the work.
HOW = ("fused", "compiled", "composed")
UNKNOWN = "not told"


def fused_rows(found: Found, cases: Mapping[str, Case]) -> Iterator[FusedRow]:
    """Yield a row for each fused operator, phase and framework."""
    for key, case in cases.items():
        if case.level == "fused":
            for phase in in_order(found.phases[key]):
                for name in found.taking_part([key]):
                    yield _row(found, case, CellKey(key, name, phase))


def _row(found: Found, case: Case, key: CellKey) -> FusedRow:
    from tapegrad.bench.suites.fused import parts

    pieces = parts(case)
    fused = found.figure(key, key.framework)
    return FusedRow(
        case=key.case,
        label=case.label,
        phase=key.phase,
        framework=key.framework,
        how=next((note for note in fused.notes if note.startswith(HOW)), UNKNOWN),
        fused=fused,
        parts=_parts(found, pieces, key),
        command=command_for(found.run, [each.label for each in (case, *pieces)], key.phase),
    )


def _parts(found: Found, pieces: list[Case], key: CellKey) -> Figure:
    """Add up what the parts take on their own, or say which of them has no time."""
    places = [key._replace(case=part.key) for part in pieces]
    for part, place in zip(pieces, places, strict=True):
        figure = found.figure(place, key.framework)
        if figure.time is None:
            return Figure(key.framework, figure.verdict, f"{part.label}: {figure.reason}")
    cells = [found.cell(place) for place in places]
    sure = all(cell is not None and cell.verdict == "checked" for cell in cells)
    first, *rest = (found.blocks(place) for place in places)
    blocks = together(key, first, rest)
    on_gpu = found.run.options.get("device") == "cuda"
    computed = Cell(*key, verdict="checked" if sure else "unconfirmed", notes=["computed"])
    return replace(figure_of(computed, blocks, []), ratio=_ratio(found.blocks(key), blocks, on_gpu))


def _ratio(fused: list[Block], parts: list[Block], on_gpu: bool) -> Ratio | None:
    """Compare as two runs are: cases are measured one after the other, so no moment is shared."""
    if not fused or not parts:
        return None
    try:
        measured = statistics.ratio(fused, parts, paired=False)
        if on_gpu:
            return measured  # control kernels are the processor's
        # The interval allows for how the machine changed; the value is that of the times beside it.
        beside = statistics.ratio(fused, parts, paired=False, controls=True)
        return replace(beside, value=measured.value, normalised=False)
    except OptionError:
        return None
