"""`tapegrad bench profile`: which operator takes the time of a user's network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tapegrad.cli import exit_codes
from tapegrad.cli.bench.options import (
    ChartOption,
    DeviceOption,
    ProcessesOption,
    RoundsOption,
    ThreadsOption,
    check_chart,
    check_output,
    say,
)

if TYPE_CHECKING:
    from tapegrad.bench.profile import Profile
    from tapegrad.bench.profile.measure import Listener


def profile(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py[:FUNCTION]",
            help="A function that returns (model, inputs): a PyTorch model, and a tensor, a tuple "
            "of arguments or a dict of named ones. Without a name, make_model.",
        ),
    ],
    *,
    phase: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="step (forward and backward), forward or inference.",
        ),
    ] = "step",
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    processes: ProcessesOption = None,
    rounds: RoundsOption = None,
    block: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Length of a visit, with profiler and without each. Default: 0.2.",
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Longest wait for one answer. Default: 300."),
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(
            metavar="PROGRAM",
            help="A Python that has PyTorch and what the file imports. Default: the one of "
            "`frameworks install torch`.",
        ),
    ] = None,
    top: Annotated[int, typer.Option(metavar="N", min=1, help="Rows of the second table.")] = 20,
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write everything that was found.")
    ] = None,
    chart: ChartOption = None,
) -> None:
    """Tell which operators take the time of your PyTorch model.

    Times every operator in place, forward and backward, and the same call alone; says what is left
    of the step, what the profiler adds to it, and what a faster operator would bring.
    """
    from tapegrad.bench.errors import WorkerError
    from tapegrad.bench.profile import profile as measure
    from tapegrad.bench.profile.page import render

    check_chart(chart)
    check_output("--json", json)
    options = {
        "device": device,
        "threads": threads,
        "processes": processes,
        "rounds": rounds,
        "block": block,
        "timeout": timeout,
        "python": python,
    }
    given = {name: value for name, value in options.items() if value is not None}
    try:
        with _progress() as listener:
            found = measure(target, phase=phase, listener=listener, **given)  # type: ignore[arg-type]
    except KeyboardInterrupt:
        say("Interrupted before anything was measured.")
        raise typer.Exit(exit_codes.INTERRUPTED) from None
    except WorkerError as error:
        say(f"Error: {error.kind}: {error}")
        raise typer.Exit(exit_codes.NOTHING_MEASURED) from None
    render(found, top)
    _write(found, json, chart, top)
    interrupted = found.status == "interrupted"
    raise typer.Exit(exit_codes.INTERRUPTED if interrupted else exit_codes.FINE)


def _write(found: Profile, json: Path | None, chart: Path | None, top: int) -> None:
    import msgspec

    from tapegrad.bench.errors import OutputError

    if json is not None:
        try:
            json.write_bytes(msgspec.json.encode(found) + b"\n")
        except OSError as error:
            raise OutputError(json, error) from None
        say(f"Written: {json}")
    if chart is not None:
        from tapegrad.bench.profile.chart import draw

        draw(found, chart, top)
        say(f"Chart: {chart}")


@contextmanager
def _progress() -> Iterator[Listener]:
    """Show how it goes: a bar on a terminal, drawn between visits only, else a line a stage."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield lambda stage, done, total: None if done else say(f"{stage}: {total}")
        return
    with Progress(console=console, auto_refresh=False, transient=True) as bars:
        tasks: dict[str, int] = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                for earlier in tasks.values():
                    bars.update(earlier, visible=False)  # type: ignore[arg-type]
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done)  # type: ignore[arg-type]
            bars.refresh()

        yield show
