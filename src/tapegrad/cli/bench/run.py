"""`tapegrad bench run`: measure a suite."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tapegrad.cli import exit_codes
from tapegrad.cli.bench.options import (
    AttrOption,
    BlockOption,
    CacheOption,
    CasesOption,
    ChartOption,
    DeviceOption,
    DtypeOption,
    FilterOption,
    FrameworksOption,
    MemoryOption,
    PhasesOption,
    ProcessesOption,
    RoundsOption,
    SeedOption,
    ShapeOption,
    SizesOption,
    StoreOption,
    ThreadsOption,
    TimeoutOption,
    check_chart,
    given,
    place_option,
    say,
)

if TYPE_CHECKING:
    from tapegrad.bench.results import Results
    from tapegrad.bench.store import Store

#: What `--resume` without a run goes on with.
LATEST = "latest"


def run(
    suite: Annotated[
        str | None,
        typer.Argument(metavar="SUITE", help="A suite (see `list`) or a file that defines one."),
    ] = None,
    *,
    frameworks: FrameworksOption = None,
    filter: FilterOption = None,
    shape: ShapeOption = None,
    attr: AttrOption = None,
    cases: CasesOption = None,
    sizes: SizesOption = None,
    phases: PhasesOption = None,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    processes: ProcessesOption = None,
    rounds: RoundsOption = None,
    block: BlockOption = None,
    cache: CacheOption = None,
    memory: MemoryOption = None,
    timeout: TimeoutOption = None,
    seed: SeedOption = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="[RUN]",
            help="Go on with an interrupted run, with its own options: its id, or nothing for the "
            "latest.",
        ),
    ] = None,
    store: StoreOption = None,
    chart: ChartOption = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Add the command that repeats each row.")
    ] = False,
) -> None:
    """Measure a suite and print the tables.

    Every result is checked, then timed in short blocks that the contenders take in turns. Each
    block is stored as it ends: Ctrl-C or SIGTERM keeps everything measured, and --resume goes on.
    """
    options = given(
        frameworks=frameworks,
        filter=filter,
        shape=shape or None,
        attr=attr or None,
        cases=cases,
        sizes=sizes,
        phases=phases,
        dtype=dtype,
        device=device,
        threads=threads,
        processes=processes,
        rounds=rounds,
        block=block,
        cache=cache,
        memory=memory,
        timeout=timeout,
        seed=seed,
    )
    _check(suite, resume, options)
    check_chart(chart)
    if suite is not None and resume is None and not options.get("frameworks"):
        _tell_who_is_missing(suite)
    measure(suite or "", _run_of(suite, resume), options, store, chart, verbose=verbose)


def _check(suite: str | None, resume: str | None, options: dict[str, Any]) -> None:
    from tapegrad.bench import suites
    from tapegrad.bench.errors import BenchError

    if resume is not None and options:
        extra = ", ".join(f"--{name}" for name in options)
        raise BenchError(f"--resume goes on with the run's own options; leave out {extra}.")
    if resume is None and suite is None:
        raise BenchError(
            f"Which suite? There are: {', '.join(suites.names())}. "
            "A path to a suite file works too, and --resume goes on with a run."
        )


def _tell_who_is_missing(suite: str) -> None:
    """Name the suite's own contenders that take no part, and how they would."""
    from tapegrad.bench import suites
    from tapegrad.bench.frameworks import installed

    names = suites.find(suite).frameworks
    here = installed(names)
    if missing := [name for name in names if name not in here]:
        say(
            f"Without {', '.join(missing)}, which {'are' if missing[1:] else 'is'} not installed: "
            f"tapegrad bench frameworks install {' '.join(missing)}"
        )


def _run_of(suite: str | None, resume: str | None) -> str | None:
    """Return the run to go on with; the latest is that of the suite, where one is named."""
    from tapegrad.bench import suites

    if not suite or resume != LATEST:
        return resume
    return f"{suites.find(suite).name if suite.endswith('.py') else suite}:{LATEST}"


def measure(
    suite: str,
    resume: str | None,
    options: dict[str, Any],
    url: str | None,
    chart: Path | None,
    *,
    verbose: bool,
) -> None:
    """Run, show progress, print the tables and end with the code that says how it went."""
    from tapegrad.bench.driver import run as run_suite
    from tapegrad.bench.report import render
    from tapegrad.bench.store import open_store
    from tapegrad.cli.bench.progress import listener

    with open_store(url, create=resume is None) as store:
        with listener() as progress:
            results = run_suite(suite, store=store, resume=resume, listener=progress, **options)
        render(results, verbose=verbose)
        say("\n" + _advice(results, store, url))
        if chart is not None and _has_times(results):
            from tapegrad.bench.report.chart import draw

            draw(results, chart)
            say(f"\nChart: {chart}")
    raise typer.Exit(_code(results))


def _advice(results: Results, store: Store, url: str | None) -> str:
    run = results.run
    place = place_option(store, url)
    if run.status == "interrupted":
        return (
            f"Interrupted. What was measured is kept in {store.place}. Go on with:\n"
            f"  tapegrad bench run --resume {run.id}{place}"
        )
    return f"Kept in {store.place}. Show it again with:\n  tapegrad bench report {run.id}{place}"


def _has_times(results: Results) -> bool:
    """Tell whether anything is shown with a time: blocks may turn out not to be believed."""
    return any(cell.timed for cell in results.cells)


def _code(results: Results) -> int:
    from tapegrad.bench.report.figures import bars_of

    if results.run.status == "interrupted":
        return exit_codes.INTERRUPTED
    if not _has_times(results):
        say("Nothing could be measured; the reasons are below the table.")
        return exit_codes.NOTHING_MEASURED
    if any(bar.verdict == "missed" for bar in bars_of(results)):
        say("A bar was missed.")
        return exit_codes.MISSED
    return exit_codes.FINE
