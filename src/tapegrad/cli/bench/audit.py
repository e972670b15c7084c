"""`tapegrad bench audit`: show that known faults are flagged, and how often the bench errs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tapegrad.cli import exit_codes
from tapegrad.cli.bench.options import say

if TYPE_CHECKING:
    from tapegrad.bench.audit import Outcome
    from tapegrad.bench.calibration import Calibration, Rate
    from tapegrad.bench.report.table import Line, Table


def audit(
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate", help="Measure false alarms and power with real pairs (minutes)."
        ),
    ] = False,
    agreement: Annotated[
        bool,
        typer.Option("--agreement", help="Compare with torch.utils.benchmark on 20 operators."),
    ] = False,
    cost: Annotated[
        bool,
        typer.Option(
            "--cost", help="Measure what the bench itself takes: per operator, and a visit."
        ),
    ] = False,
    pairs: Annotated[
        int, typer.Option(metavar="N", min=10, help="Pairs of equals for --calibrate.")
    ] = 200,
) -> None:
    """Check that the bench flags known faults.

    Contenders with one fault each, and honest ones, are measured like any framework; ends with 1
    if a fault passes unnoticed or an honest contender is flagged.
    """
    if calibrate:
        _calibrate(pairs)
    elif agreement:
        _agree()
    elif cost:
        _cost()
    else:
        _audit()


def _audit() -> None:
    from tapegrad.bench import audit
    from tapegrad.bench.report.table import Column, Table
    from tapegrad.bench.report.term import print_table

    found = audit.audit(
        lambda outcome: say(f"{outcome.name}: {outcome.verdict or outcome.skipped}")
    )
    titles = ("contender", "what it does", "verdict", "flagged by", "reason", "as it must be")
    lines = tuple(_line(outcome) for outcome in found.outcomes)
    print_table(Table("Audit", tuple(map(Column, titles)), lines, tuple(audit.unseen())))
    failed = [outcome.name for outcome in found.outcomes if not outcome.passed]
    if failed:
        say(f"Not as it must be: {', '.join(failed)}.")
    raise typer.Exit(exit_codes.FINE if found.passed else exit_codes.MISSED)


def _calibrate(pairs: int) -> None:
    from tapegrad.bench import calibration
    from tapegrad.bench.report.term import print_table

    found = calibration.calibrate(
        pairs, listener=lambda done, total: say(f"case {done} of {total}")
    )
    print_table(_rates(found))
    for reason in found.mistrusted:
        say(f"An honest contender was {reason}.")
    raise typer.Exit(exit_codes.MISSED if found.mistrusted else exit_codes.FINE)


def _rates(found: Calibration) -> Table:
    from tapegrad.bench.report.table import Column, Table
    from tapegrad.bench.units import counted

    numbers = ("pairs", "alarms", "share", "95 % interval", "median ratio")
    columns = (
        Column("compared"),
        Column("slower by"),
        *(Column(title, number=True) for title in numbers),
    )
    design = f"{counted(found.processes, 'process')} × {counted(found.rounds, 'round')}"
    note = (
        f"{counted(found.runs, 'run')} of {design}, blocks of "
        f"{1e3 * found.block:g} ms, {found.seconds:.0f} s in all. Alarms: of equals, any claim of "
        "a difference; else, the claim that it is slower. Of "
        f"{found.judged} honest cells {len(found.mistrusted)} were flagged by a guard."
    )
    return Table("Calibration", columns, tuple(map(_rate_line, found.rates)), (note,))


def _rate_line(rate: Rate) -> Line:
    from tapegrad.bench.report.table import Entry, Line

    low, high = rate.interval
    return Line(
        (
            Entry("within a run" if rate.paired else "between runs"),
            Entry(f"{rate.slowdown:.0%}" if rate.slowdown else "0 % (equals)"),
            Entry(str(rate.pairs)),
            Entry(str(rate.alarms)),
            Entry(f"{rate.share:.1%}"),
            Entry(f"{low:.1%} to {high:.1%}"),
            Entry(f"{rate.ratio:.3f}"),
        )
    )


def _agree() -> None:
    from statistics import median

    from tapegrad.bench.agreement import MARGIN, compare_methods
    from tapegrad.bench.report.table import Column, Entry, Line, Table
    from tapegrad.bench.report.term import print_table
    from tapegrad.bench.units import seconds

    found = []
    for each in compare_methods():
        say(f"{each.operator} {each.phase}: {each.ratio:.3f}")
        found.append(each)
    titles = ("turns", "ours", "torch.utils.benchmark", "ours / theirs")
    columns = (
        Column("operator"),
        Column("phase"),
        *(Column(title, number=True) for title in titles),
    )
    lines = tuple(
        Line(
            (
                Entry(each.operator),
                Entry(each.phase),
                Entry(str(len(each.ours))),
                Entry(seconds(median(each.ours))),
                Entry(seconds(median(each.theirs))),
                Entry(f"{each.ratio:.3f}", "met" if each.holds else "missed"),
            )
        )
        for each in found
    )
    print_table(Table("Agreement", columns, lines))
    apart = [f"{each.operator} {each.phase}" for each in found if not each.holds]
    if apart:
        say(f"More than {MARGIN:.0%} apart: {', '.join(apart)}. Is the machine quiet?")
    raise typer.Exit(exit_codes.MISSED if apart else exit_codes.FINE)


def _cost() -> None:
    from tapegrad.bench import cost
    from tapegrad.bench.report.table import Column, Entry, Line, Table
    from tapegrad.bench.report.term import print_table
    from tapegrad.bench.units import seconds

    found = []
    for each in cost.measure_cost():
        say(f"{each.operator}: {seconds(each.seconds)}")
        found.append(each)
    titles = ("a call", "blocks", "in all", "visits", "driver's share")
    columns = (Column("operator"), *(Column(title, number=True) for title in titles))
    lines = tuple(
        Line(
            (
                Entry(each.operator),
                Entry(seconds(each.call)),
                Entry(str(each.blocks)),
                Entry(seconds(each.seconds)),
                Entry(seconds(each.visits)),
                Entry(f"{each.share:.2%}"),
            )
        )
        for each in found
    )
    print_table(Table("Cost", columns, lines))
    bars = cost.bars(found)
    for bar in bars:
        typer.echo(f"{bar.title}: {bar.text} (n = {bar.n}), {'met' if bar.met else 'missed'}")
    if not all(bar.met for bar in bars):
        say("A bar is missed. Is the machine quiet?")
    raise typer.Exit(exit_codes.FINE if all(bar.met for bar in bars) else exit_codes.MISSED)


def _line(outcome: Outcome) -> Line:
    from tapegrad.bench.report.table import Entry, Line

    return Line(
        (
            Entry(outcome.name),
            Entry(outcome.does),
            Entry(outcome.verdict or "not tried", "word"),
            Entry(outcome.guard or "no guard", "text" if outcome.guard else "muted"),
            Entry(outcome.reason or outcome.skipped or "none", "muted"),
            Entry(_judged(outcome), "met" if outcome.passed else "missed"),
        )
    )


def _judged(outcome: Outcome) -> str:
    if outcome.skipped:
        return f"skipped: {outcome.skipped}"
    if outcome.passed:
        return "yes"
    return f"no: expected {' or '.join(outcome.expected)}, got {outcome.verdict or 'nothing'}"
