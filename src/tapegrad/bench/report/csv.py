"""Reports in CSV: a line for each case, phase and framework; times in seconds, sizes in bytes.

Means, what is computed and what others have published have lines of their own.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from tapegrad.bench.report.figures import EVALUATIONS, Figure, Report, Section, report_on
from tapegrad.bench.results import Results

TIME = ("time", "low", "high", "spread", "processes", "blocks", "samples")
RATIO = ("value", "low", "high", "p", "verdict", "blocks")
MEMORY = ("needed", "allocator", "resident")
PLACE = ("case", "label", "name", "op", "size", "dtype", "phase", "command")
COLUMNS = (
    "run",
    "suite",
    "machine",
    "device",
    "started",
    "table",
    *PLACE[:-1],
    "framework",
    "version",
    "verdict",
    "reason",
    "error",
    "notes",
    *TIME,
    "wins",
    "reference",
    *(f"ratio_{name}" for name in RATIO),
    *(f"memory_{name}" for name in MEMORY),
    "source",
    "command",
)

Record = dict[str, Any]


def csv_text(results: Results) -> str:
    """Return all figures of a run; fields that do not apply are empty."""
    report = report_on(results)
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_fixed(report) | record for record in _records(report, results))
    return file.getvalue()


def _fixed(report: Report) -> Record:
    run = report.run
    return {
        "run": run.id,
        "suite": run.suite,
        "machine": run.machine.name,
        "device": report.device,
        "started": run.started,
    }


def _records(report: Report, results: Results) -> Iterator[Record]:
    for place, figure in _places(report, results):
        version = report.version(figure.framework)
        yield place | {"framework": figure.framework, "version": version} | _fields(figure)
    for section in report.sections:
        yield from _means(section)
        yield from _published(section)


def _places(report: Report, results: Results) -> Iterator[tuple[Record, Figure]]:
    """Yield all figures with where they belong; what is computed has phases of its own."""
    for section in report.sections:
        for row in section.rows:
            place = {name: getattr(row, name) for name in PLACE}
            place |= {"table": section.title, "reference": section.reference}
            for figure in row.figures:
                wins = {"wins": "yes"} if row.winner == figure.framework else {}
                yield place | wins, figure
    yield from _parts(report)
    yield from _graphs(report, results)


def _parts(report: Report) -> Iterator[tuple[Record, Figure]]:
    """Yield fused operators beside their parts: the ratio is that of the whole to the parts."""
    for row in report.fused:
        place = {"case": row.case, "label": row.label, "command": row.command, "table": "fused"}
        fused = replace(row.fused, ratio=row.parts.ratio)
        compared = {"phase": f"{row.phase} against its parts", "reference": "parts"}
        yield place | compared, fused
        yield place | {"phase": f"{row.phase} of the parts"}, replace(row.parts, ratio=None)


def _graphs(report: Report, results: Results) -> Iterator[tuple[Record, Figure]]:
    cases = results.case_by_key()
    for graph in report.graphs:
        case = cases[graph.case]
        place = {"case": graph.case, "label": graph.label, "op": case.op, "size": case.size}
        place |= {"dtype": case.dtype, "command": graph.command, "reference": graph.reference}
        for each in graph.rows:
            total = f"total for {EVALUATIONS} (computed)"
            phases = {
                "build": each.build,
                "compile": each.compile,
                "step": each.run,
                total: each.total,
            }
            yield from ((place | {"phase": name}, figure) for name, figure in phases.items())


def _means(section: Section) -> Iterator[Record]:
    for mean in section.means:
        if mean.cases > 1:
            yield {
                "table": section.title,
                "label": "overall",
                "phase": mean.phase,
                "framework": mean.framework,
                "notes": f"geometric mean of {mean.cases} ratios",
                "reference": section.reference,
                **_some(mean, ("value", "low", "high"), "ratio_"),
            }


def _published(section: Section) -> Iterator[Record]:
    for each in section.published:
        yield {
            "table": section.title,
            "name": each.name,
            "phase": each.phase,
            "framework": each.framework,
            "verdict": "published",
            "time": each.seconds,
            "notes": f"printed as {each.printed}",
            "ratio_value": each.slower_by,
            "source": each.source,
        }


def _fields(figure: Figure) -> Record:
    return {
        "verdict": figure.verdict,
        "reason": figure.reason,
        "error": figure.error,
        "notes": "; ".join(figure.notes),
        **_some(figure.time, TIME),
        **_some(figure.ratio, RATIO, "ratio_"),
        **_some(figure.memory, MEMORY, "memory_"),
    }


def _some(record: msgspec.Struct | None, names: tuple[str, ...], prefix: str = "") -> Record:
    if record is None:
        return {}
    return {f"{prefix}{name}": getattr(record, name) for name in names}
