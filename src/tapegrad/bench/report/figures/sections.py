"""Figures of operators, modules, layers and models: a row for each case and phase."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from tapegrad.bench.report.command import command_for
from tapegrad.bench.report.figures.found import Found
from tapegrad.bench.report.figures.places import Place, place_of
from tapegrad.bench.report.figures.records import Mean, Row, Section
from tapegrad.bench.report.published import quoted_for
from tapegrad.bench.results import CellKey, in_order
from tapegrad.bench.statistics import Ratio
from tapegrad.worker.case import Case

#: Kinds of tables that name the winner of each column.
WITH_WINNERS = ("layers", "models")
#: What our own contenders' names begin with.
OURS = "tapegrad"

Placed = dict[str, tuple[Case, Place]]


def sections_of(found: Found, cases: Mapping[str, Case]) -> list[Section]:
    """Sort cases into tables and work out their figures."""
    members: defaultdict[tuple[str, str], Placed] = defaultdict(dict)
    fused = any(case.level == "fused" for case in cases.values())
    for key, case in cases.items():
        place = place_of(case, part=fused)
        members[place.kind, place.title][key] = case, place
    return [_section(found, *table, placed) for table, placed in members.items()]


def _section(found: Found, kind: str, title: str, placed: Placed) -> Section:
    names = found.taking_part(placed)
    rows = [row for key in placed for row in _rows(found, key, *placed[key], names)]
    device = str(found.run.options.get("device", "cpu"))
    known = {row.name for row in rows}
    return Section(
        title=title,
        kind=kind,
        contenders=names,
        reference=names[0],
        rows=rows,
        means=list(_means(rows)),
        unsupported=found.why_not(placed, names),
        published=list(quoted_for(kind, title, device, known)),
    )


def _rows(found: Found, key: str, case: Case, place: Place, names: list[str]) -> Iterator[Row]:
    for phase in in_order(found.phases[key]):
        figures = [found.figure(CellKey(key, name, phase), names[0]) for name in names]
        times = {each.framework: each.time.time for each in figures if each.time}
        yield Row(
            case=key,
            label=case.label,
            name=place.name,
            op=case.op,
            size=case.size,
            dtype=case.dtype,
            phase=phase,
            command=command_for(found.run, case.label, phase),
            figures=figures,
            elements=sum(math.prod(array.shape) for array in case.inputs),
            winner=found.winner(key, phase, times) if place.kind in WITH_WINNERS else "",
            lost_by=_lost_by(found, key, phase, times),
        )


def _lost_by(found: Found, key: str, phase: str, times: Mapping[str, float]) -> float | None:
    """Return by how much the slowest of ours loses to the fastest of the others, if it does."""
    ours = [name for name in times if name.startswith(OURS)]
    if not ours:
        return None
    slowest = max(ours, key=lambda name: times[name])
    others = [
        name
        for name in times
        if name not in ours
        and found.alike(*(CellKey(key, each, phase) for each in (slowest, name)))
    ]
    if not others:
        return None
    fastest = min(others, key=lambda name: times[name])
    ratio = found.against(key, phase, slowest, fastest)
    return ratio.value if ratio and ratio.verdict == "slower" else None


def _means(rows: Iterable[Row]) -> Iterator[Mean]:
    """Average the ratios of each pair and phase over the cases in which both have times."""
    ratios: defaultdict[tuple[str, str], list[Ratio]] = defaultdict(list)
    for row in rows:
        for figure in row.figures:
            if figure.ratio is not None:
                ratios[row.phase, figure.framework].append(figure.ratio)
    for (phase, framework), members in ratios.items():
        yield geometric_mean(framework, phase, members)


def geometric_mean(framework: str, phase: str, ratios: list[Ratio]) -> Mean:
    """Return the mean with its interval; errors of different cases are independent."""
    centre = math.fsum(math.log(ratio.value) for ratio in ratios) / len(ratios)
    widths = [
        math.log(ratio.high / ratio.low) / 2
        for ratio in ratios
        if ratio.low is not None and ratio.high is not None
    ]
    if len(widths) < len(ratios):
        return Mean(framework, phase, math.exp(centre), None, None, len(ratios))
    reach = math.hypot(*widths) / len(ratios)
    ends = math.exp(centre - reach), math.exp(centre + reach)
    return Mean(framework, phase, math.exp(centre), *ends, len(ratios))
