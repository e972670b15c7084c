"""Reports in CSV: a line for each case, phase and framework; times in seconds, sizes in bytes."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

import msgspec

from tapegrad.bench.report.figures import EVALUATIONS, Figure, Report, report_on
from tapegrad.bench.results import Results

TIME = ("time", "low", "high", "spread", "processes", "blocks", "samples")
RATIO = ("value", "low", "high", "p", "verdict", "blocks")
MEMORY = ("needed", "allocator", "resident")
PLACE = ("case", "label", "op", "size", "dtype", "phase", "framework", "version")
COLUMNS = (
    "run",
    "suite",
    "machine",
    "started",
    *PLACE,
    "verdict",
    "reason",
    "error",
    *TIME,
    "reference",
    *(f"ratio_{name}" for name in RATIO),
    *(f"memory_{name}" for name in MEMORY),
    "command",
)


def csv_text(results: Results) -> str:
    """Return all figures of a run; fields that do not apply are empty."""
    report = report_on(results)
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_records(report, results))
    return file.getvalue()


def _records(report: Report, results: Results) -> Iterator[dict[str, Any]]:
    run = report.run
    fixed = {
        "run": run.id,
        "suite": run.suite,
        "machine": run.machine.name,
        "started": run.started,
    }
    versions = {framework.name: framework.version for framework in report.frameworks}
    for place, figure in _places(report, results):
        yield {
            **fixed,
            **place,
            "framework": figure.framework,
            "version": versions.get(figure.framework, ""),
            **_fields(figure),
        }


def _places(report: Report, results: Results) -> Iterator[tuple[dict[str, Any], Figure]]:
    """Yield all figures with where they belong; the totals of graphs are phases of their own."""
    for section in report.sections:
        for row in section.rows:
            place = {name: getattr(row, name) for name in (*PLACE[:6], "command")}
            place["reference"] = section.reference
            yield from ((place, figure) for figure in row.figures)
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


def _fields(figure: Figure) -> dict[str, Any]:
    return {
        "verdict": figure.verdict,
        "reason": figure.reason,
        "error": figure.error,
        **_some(figure.time, TIME),
        **_some(figure.ratio, RATIO, "ratio_"),
        **_some(figure.memory, MEMORY, "memory_"),
    }


def _some(
    record: msgspec.Struct | None, names: tuple[str, ...], prefix: str = ""
) -> dict[str, Any]:
    if record is None:
        return {}
    return {f"{prefix}{name}": getattr(record, name) for name in names}
