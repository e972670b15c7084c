"""Figures of scalar graphs."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from tapegrad.bench.report.command import command_for
from tapegrad.bench.report.figures.found import Found, figure_of, together
from tapegrad.bench.report.figures.records import EVALUATIONS, NONE, Figure, Graph, GraphRow
from tapegrad.bench.report.published import published_for
from tapegrad.bench.results import Block, Cell, CellKey
from tapegrad.worker.case import Case


def graph_of(found: Found, key: str, case: Case, names: list[str]) -> Graph:
    """Work out the figures of one graph."""
    family, ops = str(case.attrs["family"]), int(case.attrs["ops"])
    totals = {name: _total_blocks(found, CellKey(key, name, "total")) for name in names}
    rows = [_row(found, key, name, names[0], totals) for name in names]
    published = published_for(family, ops)
    return Graph(
        case=key,
        label=case.label,
        family=family,
        ops=ops,
        target=str(case.attrs.get("target", "sum")),
        command=command_for(found.run, case.label),
        reference=names[0],
        rows=[replace(row, published=published.get(row.framework)) for row in rows],
    )


def _row(
    found: Found, key: str, name: str, reference: str, totals: Mapping[str, list[Block]]
) -> GraphRow:
    build, compiling, run = (
        found.figure(CellKey(key, name, phase), reference) for phase in ("build", "compile", "step")
    )
    if run.verdict != "unsupported":
        build, compiling = _or_none(build), _or_none(compiling)
    alike = found.alike(*(CellKey(key, each, "step") for each in (name, reference)))
    return GraphRow(
        framework=name,
        build=build,
        compile=compiling,
        run=run,
        total=_total(run, [build, compiling], totals[name], totals[reference] if alike else []),
        evaluations=sum(
            len(block.samples) * block.inner * block.units
            for block in found.blocks(CellKey(key, name, "step"))
        ),
    )


def _or_none(figure: Figure) -> Figure:
    """Say `none` of a phase that a contender does without, though it has graphs."""
    if figure.verdict != "unsupported":
        return figure
    return Figure(figure.framework, NONE, "nothing to do in this phase")


def _total(
    run: Figure, before: list[Figure], blocks: list[Block], reference: list[Block]
) -> Figure:
    """Compute the total, or say what is missing for it."""
    missing = next(
        (each for each in (run, *before) if each.time is None and each.verdict != NONE), None
    )
    if missing is not None:
        return Figure(run.framework, missing.verdict, missing.reason)
    computed = Cell("", run.framework, "total", run.verdict, notes=["computed"])
    return figure_of(computed, blocks, reference)


def _total_blocks(found: Found, key: CellKey) -> list[Block]:
    """Compute a total for each block of runs, with what building and compiling took beside it."""
    before = [found.blocks(key._replace(phase=phase)) for phase in ("build", "compile")]
    return together(key, found.blocks(key._replace(phase="step")), before, EVALUATIONS)
