"""The tables a run prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.scalar.bars import BARS, Bar
from benchmarks.scalar.baseline import SCALAR
from benchmarks.scalar.results import Measure, Results, Series, ratio
from benchmarks.scalar.studies import BATCH_ROWS, CHURN, CHURN_GRAPHS, EVALUATION, SCALING


def render(results: Results) -> str:
    """All tables of what has been measured."""
    parts = [
        _machine(results),
        _evaluation(results),
        _scaling(results),
        _churn(results),
        _bars(results),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _machine(results: Results) -> str:
    return "\n".join(f"{name}: {value}" for name, value in results.machine.items())


def _evaluation(results: Results) -> str:
    chosen = [series for series in results.series if series.study == EVALUATION]
    if not chosen:
        return ""
    title = (
        "Forward and backward, 10k operations: µs per evaluation, median (min to max); "
        "seconds for 10k evaluations are scaled from it"
    )
    head = ("graph", "contender", "instr.", "median", "range", "10k", "/ C scalar", "check", "n")
    return _table(title, head, [_evaluation_row(series, results) for series in chosen])


def _evaluation_row(series: Series, results: Results) -> tuple[str, ...]:
    names = (series.family, series.contender, f"{series.instructions:,}")
    if not series.seconds:
        return (*names, "-", "-", "-", "-", series.verdict, "0")
    scalar = results.find(EVALUATION, series.family, series.n_ops, SCALAR)
    faster = ratio(scalar, series)
    return (
        *names,
        f"{1e6 * series.median:.2f}",
        f"{1e6 * min(series.seconds):.2f} to {1e6 * max(series.seconds):.2f}",
        f"{series.median * BATCH_ROWS:.3f} s",
        f"{faster.median:.2f} x" if faster else "-",
        series.verdict,
        f"{len(series.seconds)} x {series.evaluations:,}",
    )


def _scaling(results: Results) -> str:
    chosen = [series for series in results.series if series.study == SCALING]
    if not chosen:
        return ""
    rows = [
        (
            series.family,
            series.contender,
            f"{series.n_ops:,}",
            f"{1e9 * series.median / series.n_ops:.2f}" if series.seconds else "-",
            _milliseconds(series),
            series.verdict,
        )
        for series in sorted(chosen, key=lambda series: (series.family, series.contender))
    ]
    head = ("graph", "contender", "ops", "ns per op", "ms, median (min to max)", "check")
    return _table("Time per operation by size of the graph", head, rows)


def _milliseconds(series: Series) -> str:
    if not series.seconds:
        return "-"
    low, high = 1e3 * min(series.seconds), 1e3 * max(series.seconds)
    return f"{1e3 * series.median:.3f} ({low:.3f} to {high:.3f})"


def _churn(results: Results) -> str:
    chosen = [series for series in results.series if series.study == CHURN and series.seconds]
    if not chosen:
        return ""
    lines = ["Different random graphs of 10k operations, 1,000 evaluations each, one thread"]
    for series in chosen:
        total = sum(series.seconds) * series.evaluations
        scaled = total * CHURN_GRAPHS / len(series.seconds)
        lines.append(
            f"  {series.contender}: {total:.2f} s for {len(series.seconds)} graphs "
            f"({scaled:.1f} s for {CHURN_GRAPHS:,}), {series.verdict}"
        )
    early = results.numbers.get("churn megabytes after a tenth")
    late = results.numbers.get("churn megabytes at the end")
    if early and late:
        lines.append(f"  resident memory: {early:.0f} MB after a tenth, {late:.0f} MB at the end")
    return "\n".join(lines)


def _bars(results: Results) -> str:
    measured = [(bar, bar.measure(results)) for bar in BARS]
    if all(value is None for _, value in measured):
        return ""
    title = (
        "Bars: median over rounds of the ratio within a round (middle 80 %); "
        "least noise = ratio of the fastest samples"
    )
    head = ("what", "measured", "range", "least noise", "bar", "verdict")
    table = _table(title, head, [_bar_row(bar, value) for bar, value in measured])
    verdicts = [bar.verdict(value) for bar, value in measured if value is not None]
    return f"{table}\n{verdicts.count('reached')} of {len(verdicts)} measured bars reached"


def _bar_row(bar: Bar, value: Measure | None) -> tuple[str, ...]:
    bound = f"{'≤' if bar.at_most else '≥'} {bar.bound:g} {bar.unit}"
    if value is None:
        return (bar.label, "-", "-", "-", bound, bar.verdict(value))
    return (
        bar.label,
        f"{value.median:.2f} {bar.unit}",
        f"{value.low:.2f} to {value.high:.2f}",
        f"{value.best:.2f}",
        bound,
        bar.verdict(value),
    )


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as their widest cell; a rule under the head."""
    cells = [tuple(head), *(tuple(row) for row in rows)]
    widths = [max(len(cell) for cell in column) for column in zip(*cells, strict=True)]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in cells]
    lines.insert(1, "  ".join("─" * width for width in widths))
    return "\n".join([title, *(line.rstrip() for line in lines)])
