"""`tapegrad bench nightly`: measure a suite and look for changes since the runs before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tapegrad.cli.bench import changes
from tapegrad.cli.bench.options import (
    BlockOption,
    CacheOption,
    DeviceOption,
    DtypeOption,
    FilterOption,
    FrameworksOption,
    MarginOption,
    MemoryOption,
    PhasesOption,
    ProcessesOption,
    RateOption,
    RoundsOption,
    SeedOption,
    SizesOption,
    StoreOption,
    ThreadsOption,
    TimeoutOption,
    given,
    place_option,
)

if TYPE_CHECKING:
    from tapegrad.bench.regressions import Nightly


def nightly(
    suite: Annotated[str, typer.Argument(metavar="SUITE", help="A suite, or a file with one.")],
    *,
    nights: Annotated[
        int, typer.Option(metavar="N", min=1, help="Earlier runs to compare with. Default: 5.")
    ] = 5,
    margin: MarginOption = 0.03,
    rate: RateOption = 0.05,
    frameworks: FrameworksOption = None,
    filter: FilterOption = None,
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
    store: StoreOption = None,
) -> None:
    """Measure a suite and look for regressions.

    What is found is compared with earlier runs on this machine, and what changed is measured
    again; ends with 1 if anything got slower both times. The first run is the baseline.
    """
    from tapegrad.bench.regressions import nightly
    from tapegrad.bench.store import open_store
    from tapegrad.cli.bench.progress import listener

    options = given(
        frameworks=frameworks,
        filter=filter,
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
    with open_store(store) as opened, listener() as progress:
        found = nightly(
            opened,
            suite,
            nights=nights,
            margin=margin,
            rate=rate,
            listener=progress,
            **options,
        )
        place = place_option(opened, store)
    _show(found, place)
    raise typer.Exit(found.exit_code)


def _show(found: Nightly, place: str) -> None:
    from tapegrad.bench.regressions.nights import CUT_OFF
    from tapegrad.bench.report.term import print_table

    if found.comparison is None:
        typer.echo(f"{found}{place if found.interrupted else ''}")
        return
    confirmed = {alarm.series.key: alarm.confirmed for alarm in found.alarms}
    if found.alarms:
        print_table(changes.table([alarm.series for alarm in found.alarms], confirmed))
    typer.echo(changes.summary(found.comparison))
    if found.comparison.gone:
        typer.echo(found.comparison.missing)
    for step in found.steps:
        typer.echo(f"Step in the history of {step}")
    for series in found.regressions:
        typer.echo(f"Regression: {series}")
    if found.interrupted:
        typer.echo(CUT_OFF)
