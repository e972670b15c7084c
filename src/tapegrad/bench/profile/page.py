"""A profile as a page: operators by their share, the residual, and what would follow."""

from __future__ import annotations

from collections.abc import Iterator

from tapegrad.bench.profile.results import Group, Profile, Row
from tapegrad.bench.report.table import Column, Entry, Line, Page, Table
from tapegrad.bench.report.term import show_page
from tapegrad.bench.report.text import spread, time_text
from tapegrad.bench.statistics import Estimate, Ratio
from tapegrad.bench.units import counted, number, seconds

#: What a step is called in each phase.
STEPS = {"step": "forward and backward", "forward": "forward", "inference": "inference"}
#: Operators for which it is said what would follow if they were faster.
FASTEST = 3
#: A share below which nothing is said about it.
NOTABLE = 0.01
#: Of the time that workers had to wait for a processor, what is worth a warning.
BUSY = 0.1
#: Parts that are longer than the whole by this share of it were disturbed.
TOO_MUCH = 0.1
#: Modules that a row names; of more it gives the number.
MODULES = 2
NONE = Entry("none", "muted")


def render(profile: Profile, top: int) -> None:
    """Print a profile to stdout."""
    show_page(page_of(profile, top))


def page_of(profile: Profile, top: int) -> Page:
    """Lay a profile out."""
    return Page(
        title=f"{profile.model}: {STEPS[profile.phase]}, {time_text(profile.step)}",
        facts=tuple(_facts(profile)),
        tables=(_by_operator(profile), _by_place(profile, top)),
        remarks=(("What if", tuple(_gains(profile))), ("Notes", tuple(_notes(profile)))),
    )


def _facts(profile: Profile) -> Iterator[tuple[str, str]]:
    yield "framework", profile.framework
    yield "machine", profile.machine.name
    yield "device", f"{profile.device}, {counted(profile.threads, 'thread')}"
    step = profile.step
    yield "measured", f"{counted(step.processes, 'process')}, {counted(step.blocks, 'visit')}"
    inflation = profile.inflation
    yield (
        "profiler",
        f"{number(inflation.value)}× {spread(inflation.value, inflation.low, inflation.high)} the "
        f"time of a step without it: {counted(profile.events, 'event')} of "
        f"{seconds(profile.event_seconds)} each",
    )


def _by_operator(profile: Profile) -> Table:
    titles = ("calls", "forward", "backward", "in place", "share", "alone", "in place / alone")
    columns = (Column("operator", whole=True), *(Column(title, number=True) for title in titles))
    lines = [_group_line(group) for group in profile.groups]
    lines[-1] = Line(lines[-1].entries, ends=True)
    rest = f"{_signed(profile.residual_low)} to {_signed(profile.residual_high)}"
    lines.append(_total_line("residual", profile.residual, profile, rest))
    lines.append(_total_line("step", profile.step.time, profile))
    return Table("By operator", columns, tuple(lines))


def _group_line(group: Group) -> Line:
    return Line(
        (
            Entry(group.operator, "text" if group.known else "word"),
            Entry(f"{group.calls:,}") if group.calls else NONE,
            _pass(group.forward),
            _pass(group.backward),
            _estimate(group.total if group.total.time else None),
            Entry(f"{group.share:.1%}"),
            NONE if group.alone is None else Entry(seconds(group.alone)),
            _compared(group.ratio),
        )
    )


def _total_line(name: str, value: float, profile: Profile, aside: str = "") -> Line:
    share = f"{value / profile.step.time:.1%}"
    blank = Entry("")
    return Line(
        (
            Entry(name),
            *(blank,) * 3,
            Entry(_signed(value), "time"),
            Entry(share),
            blank,
            Entry(aside, "muted"),
        )
    )


def _by_place(profile: Profile, top: int) -> Table:
    columns = (
        Column("operator", whole=True),
        Column("shapes"),
        Column("calls", number=True),
        Column("module"),
        *(Column(title, number=True) for title in ("forward", "backward", "share")),
        Column("alone × calls", number=True),
        Column("in place / alone", number=True),
    )
    rows = profile.top(top)
    notes = []
    if len(rows) < len(profile.rows):
        rest = sum(row.share for row in profile.rows[top:])
        notes.append(f"{len(profile.rows) - top} more rows have {rest:.1%} of the step together.")
    return Table("By shape and place", columns, tuple(map(_row_line, rows)), tuple(notes))


def _row_line(row: Row) -> Line:
    known = row.operator is not None
    return Line(
        (
            Entry(row.operator or row.name, "text" if known else "word"),
            Entry(shapes(row)),
            Entry(f"{row.calls:,}") if row.calls else NONE,
            Entry(places(row)),
            _estimate(row.forward),
            _estimate(row.backward),
            Entry(f"{row.share:.1%}"),
            Entry(row.reason, "muted") if row.alone is None else _estimate(row.alone),
            _compared(row.ratio),
        )
    )


def shapes(row: Row) -> str:
    """Write what goes into an operator and what comes out."""
    if not row.inputs and not row.outputs:
        return ""
    return f"{', '.join(row.inputs) or 'nothing'} → {', '.join(row.outputs) or 'nothing'}"


def places(row: Row) -> str:
    """Write the modules that call an operator; the model's own code has no name."""
    named = [module or "the model's own code" for module in row.modules]
    more = len(named) - MODULES
    return ", ".join(named[:MODULES]) + (f" and {more} more" if more > 0 else "")


def _estimate(time: Estimate | None) -> Entry:
    return NONE if time is None else Entry(time_text(time), "time")


def _pass(time: float) -> Entry:
    return Entry(seconds(time)) if time else NONE


def _compared(ratio: Ratio | None) -> Entry:
    if ratio is None:
        return NONE
    text = f"{number(ratio.value)}× {spread(ratio.value, ratio.low, ratio.high)}"
    return Entry(text, ratio.verdict)


def _signed(value: float) -> str:
    return seconds(value) if value >= 0 else f"-{seconds(-value)}"


def _gains(profile: Profile) -> Iterator[str]:
    if profile.residual_share < -TOO_MUCH:
        yield (
            f"Nothing can be said: the parts are {1 - profile.residual_share:.0%} of the whole. "
            "The machine was too busy."
        )
        return
    for group in profile.groups[:FASTEST]:
        if group.share < NOTABLE:
            return
        gain = group.gain(2)
        yield (
            f"If {group.operator} were 2× faster, the step would take {gain:.0%} less time "
            f"({number(1 / (1 - gain))}× as fast)."
        )


def _notes(profile: Profile) -> Iterator[str]:
    yield (
        "Shares are of the step without profiler. Times in place and alone are the profiler's, "
        "less what recording took. The residual is the step less all operators: Python, dispatch "
        "between operators; its extremes are those of single visits."
    )
    if profile.device == "cuda":
        yield (
            "Times of operators are those of their kernels on the GPU; the residual is the time in "
            "which none ran."
        )
    else:
        yield "The step does not count the time in which other programs had the processor."
    if profile.unknown >= NOTABLE:
        names = sorted({row.name for row in profile.rows if row.operator is None})
        yield (
            f"{profile.unknown:.1%} of the step is of operators that the table of names does not "
            f"know: {', '.join(names)}."
        )
    if profile.untraced >= NOTABLE:
        yield (
            f"{profile.untraced:.1%} of the step is of operators that are known by name only: the "
            "model's steps differ from each other, or from one that is watched."
        )
    if profile.waited > BUSY:
        yield (
            f"The machine is busy: a worker waited up to {profile.waited:.0%} of its time for a "
            "processor. Measure again when it is quiet."
        )
    if profile.status == "interrupted":
        yield "Interrupted: this is what was measured until then."
