"""The whole report as data: facts, tables, reasons and method."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from tapegrad.bench import statistics
from tapegrad.bench.report.command import pattern_for
from tapegrad.bench.report.figures import BarFigure, Figure, Report, Section
from tapegrad.bench.report.published import sources_for
from tapegrad.bench.report.table import Column, Entry, Line, Page, Table
from tapegrad.bench.report.tables import fused, graphs, modules, networks, operators
from tapegrad.bench.report.text import UNCONFIRMED
from tapegrad.bench.units import counted, number, size

#: Headings of what is said at the end.
REASONS = "Why there is no time"
NOTES = "Notes"
METHOD = "Method"
AGAIN = "Measure a row again"
SLOWER_BY = (
    "is slower by: the time divided by that of the first framework; less than 1 is faster. "
    "overall: the geometric mean of these ratios."
)
#: Details of a machine that are rates, with how they are written.
RATES: dict[str, Callable[[float], str]] = {
    "copy bandwidth": lambda rate: f"{size(round(rate))}/s",
    "matmul float32": lambda rate: f"{number(rate / 1e9)} Gflop/s",
    "matmul float64": lambda rate: f"{number(rate / 1e9)} Gflop/s",
}
#: So many cases are named in a reason; more are counted.
FEW = 3


def page_of(report: Report) -> Page:
    """Put a report together."""
    return Page(
        title=f"Run {report.run.id}",
        facts=tuple(_facts(report)),
        tables=tuple(_tables(report)),
        remarks=tuple(_remarks(report)),
    )


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    run = report.run
    yield "suite", run.suite
    yield (
        "date",
        f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(run.started))} ({run.status})",
    )
    yield "machine", run.machine.name
    rates = [
        f"{name} {write(run.machine.details[name])}"
        for name, write in RATES.items()
        if name in run.machine.details
    ]
    if rates:
        yield "measured rates", ", ".join(rates)
    named = (f"{name} {report.version(name) or '(did not start)'}" for name in report.contenders)
    yield "frameworks", ", ".join(named) or "none"
    options = run.options
    if "threads" in options:
        cache = options.get("cache", "warm")
        device = options.get("device", "cpu")
        yield "threads", f"{options['threads']}, device {device}, {cache} caches"
    if "processes" in options:
        processes, rounds = options["processes"], options["rounds"]
        design = f"{counted(processes, 'process')} × {counted(rounds, 'round')}"
        yield "design", f"{design}, blocks of {1e3 * options['block']:g} ms"
    if run.commit:
        yield "commit", run.commit[:12]


def _tables(report: Report) -> Iterator[Table]:
    for graph in report.graphs:
        yield graphs.evaluation(graph)
    if report.fused:
        yield fused.table(report.fused)
    for section in report.sections:
        yield from _times(report, section)
    memory = [
        *(graphs.memory(graph) for graph in report.graphs),
        *(operators.memory(section) for section in report.sections),
    ]
    yield from (table for table in memory if table is not None)
    if report.bars:
        yield _bars(report.bars)


def _times(report: Report, section: Section) -> Iterator[Table]:
    """Arrange a section in the shape of its kind."""
    match section.kind:
        case "modules":
            yield from modules.tables(section, report.device)
        case "layers" | "models":
            yield networks.table(report, section)
        case _:
            yield operators.times(section)


def _bars(bars: Iterable[BarFigure]) -> Table:
    columns = (
        Column("bar"),
        Column("bound", number=True),
        Column("found", number=True),
        Column("met", whole=True),
    )
    return Table("Bars", columns, tuple(Line(_bar(bar)) for bar in bars))


def _bar(bar: BarFigure) -> tuple[Entry, ...]:
    bound = f"{'≤' if bar.at_most else '≥'} {bar.bound:g} {bar.unit}"
    found = bar.verdict if bar.found is None else f"{number(bar.found)} {bar.unit}"
    word = {"met": "yes", "missed": "no"}.get(bar.verdict, bar.verdict)
    return (Entry(bar.title), Entry(bound), Entry(found), Entry(word, bar.verdict))


def _remarks(report: Report) -> Iterator[tuple[str, tuple[str, ...]]]:
    figures = list(report.figures())
    reasons = tuple(_reasons(figures))
    if reasons:
        yield REASONS, reasons
    notes = (*_notes(figures), *_left_out(report), *_shown(report))
    if notes:
        yield NOTES, notes
    yield METHOD, tuple(_method([figure for _, _, figure in figures]))
    pattern = pattern_for(report.run)
    if pattern:
        yield AGAIN, (pattern,)


def _reasons(figures: list[tuple[str, str, Figure]]) -> Iterator[str]:
    """Say once what holds for many cells."""
    places: defaultdict[tuple[str, str, str], list[tuple[str, str]]] = defaultdict(list)
    for label, phase, figure in figures:
        if figure.time is None and figure.verdict != "none":
            places[figure.framework, figure.verdict, figure.reason].append((label, phase))
    for (framework, verdict, reason), where in places.items():
        yield f"{framework} {verdict} ({_where(where)}): {reason or 'no reason was given'}"


def _notes(figures: list[tuple[str, str, Figure]]) -> Iterator[str]:
    if any(figure.verdict == "unconfirmed" for _, _, figure in figures):
        yield (
            f"{UNCONFIRMED} unconfirmed: only one witness could say what is right, or none but "
            "adapters of yours; no second one confirmed it."
        )
    places: defaultdict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for label, phase, figure in figures:
        for note in figure.notes:
            places[figure.framework, note].append((label, phase))
    together: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for (framework, note), where in places.items():
        together[_where(where), note].append(framework)
    for (place, note), frameworks in together.items():
        yield f"{', '.join(frameworks)} ({place}): {note}"


def _left_out(report: Report) -> Iterator[str]:
    """Say who is in no column of a table, since it would hold one word throughout."""
    for section in report.sections:
        missing: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
        for name in report.contenders:
            if name not in section.contenders:
                missing[tuple(section.unsupported.get(name, ()))].append(name)
        for reasons, names in missing.items():
            why = f": {'; '.join(reasons[:FEW])}" if any(reasons) else ""
            more = f"; and {counted(len(reasons) - FEW, 'other reason')}" * (len(reasons) > FEW)
            who = ", ".join(names)
            yield f"{section.title}: none of these cases is supported by {who}{why}{more}."
    rows = {row.framework for graph in report.graphs for row in graph.rows}
    absent = [name for name in report.contenders if report.graphs and name not in rows]
    if absent:
        yield f"None of these graphs is supported by {', '.join(absent)}."


def _shown(report: Report) -> Iterator[str]:
    """Explain what some tables hold beside times."""
    if any(section.kind == "modules" for section in report.sections):
        yield SLOWER_BY
    yield from sources_for({section.kind for section in report.sections if section.published})


def _where(places: list[tuple[str, str]]) -> str:
    """Name cases and phases, or count them."""
    labels = list(dict.fromkeys(label for label, _ in places))
    phases = list(dict.fromkeys(phase for _, phase in places))
    named = "; ".join(labels) if len(labels) <= FEW else f"{len(labels)} cases"
    return f"{', '.join(phases)} of {named}"


def _method(figures: list[Figure]) -> Iterator[str]:
    times = [figure.time for figure in figures if figure.time is not None]
    if not times:
        yield "Nothing was timed."
        return
    counts = ", ".join(
        (
            _counted("process", (time.processes for time in times)),
            _counted("block", (time.blocks for time in times)),
            _counted("sample", (time.samples for time in times)),
        )
    )
    yield f"n behind each time: {counts}. Contenders took turns in random order."
    yield (
        "A block counts with the median of its samples. Blocks farther than "
        f"{statistics.FAR:g} robust standard deviations from the median of their process are "
        "pulled in to that distance, so that a disturbed moment does not decide; none is dropped. "
        "A time is the geometric mean of blocks and processes. ±p%: the 95 % interval reaches from "
        "value / (1 + p%) to value × (1 + p%). It comes from the bootstrap of blocks nested in "
        "processes, in closed form with Student's t; ±? is a single block."
    )
    yield from _assumption(min(time.processes for time in times))
    yield (
        "Ratios compare blocks of the same process and round. faster, slower: the interval leaves "
        "out 1 and the ratio is more than 3 % away; same: the interval lies within 3 %; undecided: "
        "neither. There are ratios only where both sides were shown to do the same work."
    )


def _assumption(processes: int) -> Iterator[str]:
    """Say on what verdicts rest where the scatter between processes cannot be seen."""
    if processes >= statistics.FEWEST:
        return
    assumed = {
        1: "With a single process nothing shows how far another would be from it: intervals and "
        f"verdicts assume {statistics.ASSUMED:.0%}. Where it is 4 %, they claim a difference "
        "between equals in 24 % of the comparisons in place of 5 %.",
        2: "Two processes tell little about the scatter between them: intervals and verdicts "
        "assume that their distance shows it. Where it is 4 %, they claim a difference between "
        "equals in 9 % of the comparisons in place of 5 %.",
    }
    yield f"{assumed[processes]} {statistics.FEWEST} processes or more show it."


def _counted(noun: str, counts: Iterable[int]) -> str:
    listed = list(counts)
    return counted(min(listed), noun, max(listed))
