"""What a suite wants reached, and what was found."""

from __future__ import annotations

from tapegrad.bench.report.figures.records import NOT_MEASURED, BarFigure
from tapegrad.bench.results import Results
from tapegrad.bench.suite import Bar
from tapegrad.errors import TapegradError


def bars_of(results: Results) -> list[BarFigure]:
    """Compare what was found with the bars of the run's suite, if it is still there."""
    from tapegrad.bench import suites

    try:
        bars = suites.find(results.run.options.get("suite", results.run.suite)).bars
    except TapegradError:
        return []
    return [_bar(bar, results) for bar in bars]


def _bar(bar: Bar, results: Results) -> BarFigure:
    """Judge a bar; one of a user's that fails must not take the report with it."""
    try:
        found = bar.found(results)
        verdict = NOT_MEASURED if found is None else "met" if bar.met(found) else "missed"
    except Exception:
        found, verdict = None, NOT_MEASURED
    return BarFigure(bar.title, bar.bound, bar.unit, bar.at_most, found, verdict)
