"""What several commands have in common."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tapegrad.bench.store import Store


def _kept(store: str | None) -> str | None:
    """Refuse a store that ends with the command: nothing would be kept in it."""
    if store is not None:
        from tapegrad.bench.store import StoreUrlError, in_memory, locate

        if in_memory(locate(store)):
            raise StoreUrlError(
                f"store: expected a place that outlives the command, got {store}, which is in "
                "memory; name a file, or leave --store out"
            )
    return store


StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        callback=_kept,
        help="Where results are kept: a file or postgresql://…; without it, "
        "results.sqlite in the user's data folder.",
    ),
]
ChartOption = Annotated[
    Path | None, typer.Option("--chart", metavar="FILE.png", help="Draw the results.")
]
FrameworksOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="Contenders, as torch,jax,numpy: names (see `frameworks`), name@threads, paths to "
        "adapter files. The first is what the others are compared with. Default: the suite's.",
    ),
]
FilterOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATTERNS", help="Only cases whose operator or label matches, as 'conv*'."
    ),
]
ShapeOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=SIDES",
        help="Operators at shapes of your own, as x=64x1024,weight=2048x1024; what follows from "
        "them may be left out. Each --shape makes a case.",
    ),
]
AttrOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="An attribute of operators, as dim=0."),
]
CasesOption = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Operators at shapes of your own from a file, TOML or JSON."),
]
SizesOption = Annotated[
    str | None, typer.Option(metavar="NAMES", help="Of small, medium, large, skewed.")
]
PhasesOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="Of build, compile, forward, backward, step, inference: of the cases that have them, "
        "or of all where none has. Default: each case's own.",
    ),
]
DtypeOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="float32 or float64 instead of the cases' own.")
]
DeviceOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="cpu or cuda. Default: cpu.")
]
ThreadsOption = Annotated[int | None, typer.Option(metavar="N", help="Of each worker. Default: 1.")]
ProcessesOption = Annotated[
    int | None, typer.Option(metavar="N", help="Workers of each contender. Default: 3.")
]
RoundsOption = Annotated[
    int | None, typer.Option(metavar="N", help="Visits to each worker. Default: 3.")
]
BlockOption = Annotated[
    float | None, typer.Option(metavar="SECONDS", help="Length of a visit. Default: 0.02.")
]
CacheOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="warm, or cold: emptied before each call. Default: warm."),
]
MemoryOption = Annotated[
    bool | None,
    typer.Option("--memory/--no-memory", help="Measure memory too, in processes of its own."),
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="Longest wait for one answer; a worker's first, while it loads, may take 180. "
        "Default: 60.",
    ),
]
SeedOption = Annotated[
    int | None, typer.Option(metavar="N", help="Of inputs and of the order. Default: 0.")
]
MarginOption = Annotated[
    float, typer.Option(metavar="SHARE", help="Smaller differences make none. Default: 0.03.")
]
RateOption = Annotated[
    float,
    typer.Option(metavar="SHARE", help="Share of the alarms that may be false. Default: 0.05."),
]


def given(**options: Any) -> dict[str, Any]:
    """Return the options that were given; the others are left to the library."""
    from tapegrad.bench.driver import NAMES

    split = {name: names_in(name, options[name]) or None for name in NAMES}
    return {name: value for name, value in (options | split).items() if value is not None}


def names_in(option: str, texts: str | list[str] | None) -> list[str]:
    """Split what an option was given, once or several times, into names."""
    from tapegrad.bench.driver import names

    if texts is None or texts == []:
        return []
    return names(f"--{option}", *([texts] if isinstance(texts, str) else texts))


def check_chart(file: Path | None) -> None:
    """Refuse a picture that could not be written, before hours are spent on what it shows."""
    from tapegrad.bench.errors import BenchError

    if file is None:
        return
    if file.suffix.lower() != ".png":
        raise BenchError(f"--chart writes PNG: name a file that ends in .png, not {file}.")
    check_output("--chart", file)


def check_output(option: str, file: Path | None) -> None:
    """Refuse a file that could not be written, before hours are spent on what it holds."""
    from tapegrad.bench.errors import BenchError

    if file is None:
        return
    if not file.parent.is_dir():
        raise BenchError(f"{option}: there is no folder {file.parent}.")
    if file.is_dir():
        raise BenchError(f"{option}: {file} is a folder; name a file in it.")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise BenchError(f"{option}: {file} may not be written; name another file.")


def place_option(store: Store, url: str | None) -> str:
    """Return what a command needs to find the same store."""
    return "" if url is None else f" --store {shlex.quote(store.place)}"


def say(text: str) -> None:
    """Tell the user something that is not part of the result."""
    typer.echo(text, err=True)
