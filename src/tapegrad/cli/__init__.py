"""The command line: `tapegrad`. Commands import what they need when they run, not before."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

try:
    import typer
    from typer.core import TyperGroup
except ImportError:
    sys.exit("The command line needs an extra: pip install 'tapegrad[bench]'")

from tapegrad import __version__
from tapegrad.cli import bench
from tapegrad.cli.exit_codes import DEFECT, NO_ROOM, READER_LEFT, code_of, explanation
from tapegrad.cli.explain import explained, show_help
from tapegrad.errors import TapegradError


class Commands(TyperGroup):
    """Keeps an `EOFError` from being taken for a user who gave no answer: nobody is asked."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except EOFError as error:
            raise RuntimeError("a file ended too early") from error


app = typer.Typer(
    name="tapegrad",
    cls=Commands,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(bench.app, name="bench", short_help=bench.SUMMARY)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tapegrad {__version__}")
        raise typer.Exit


@app.callback(
    invoke_without_command=True,
    help=explained(
        "Records a computation once, compiles it in milliseconds and replays it forward and "
        "backward at the speed of the machine. The library is used from Python; the command line "
        "holds its benchmarks, which need no engine and compare any frameworks.",
        examples={
            "tapegrad bench run operators --frameworks torch,jax": "compare two frameworks",
            "tapegrad bench frameworks install torch": "make PyTorch available to the bench",
            "tapegrad bench report": "show the latest run again",
        },
    ),
    epilog=explained(explanation()),
)
def tapegrad(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_show_version, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Explain itself where no command is given."""
    del version
    show_help(context)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; what goes wrong is said in one message, without a traceback."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    _take_any_output()
    try:
        with _reader_may_leave(), _sigterm_as_ctrl_c():
            app(bench.with_defaults(words), prog_name="tapegrad")
    except TapegradError as error:
        typer.echo(f"Error: {error}", err=True)
        sys.exit(code_of(error))
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            _report_defect()
        _leave_output([1])
        typer.echo(
            f"Error: the output cannot be written: {error.strerror}; free some room.", err=True
        )
        sys.exit(NO_ROOM)
    except Exception:
        _report_defect()


def _take_any_output() -> None:
    """Have output that is closed, or of few characters, do as well as any."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, io.TextIOWrapper(io.FileIO(os.devnull, "w"), encoding="utf-8"))
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _report_defect() -> NoReturn:
    """Show what went wrong, which is nobody's fault but ours."""
    traceback.print_exc()
    typer.echo(f"\nThis is a defect of tapegrad {__version__}: please report it.", err=True)
    sys.exit(DEFECT)


@contextmanager
def _reader_may_leave() -> Iterator[None]:
    """End quietly where nobody reads the output any more, as every tool in a pipe does.

    Typer and rich take a broken pipe for a failure and exit with 1, which here means a regression.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as ending:
        if BrokenPipeError not in (type(ending), type(ending.__context__)):
            raise
        _leave_output()
        sys.exit(READER_LEFT)


def _leave_output(streams: Sequence[int] = (1, 2)) -> None:
    """Let what the streams still hold, which is written when the interpreter ends, go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(nowhere, stream)


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """Have whoever ends us, such as a job's time limit, end workers too and lose nothing."""
    before = signal.getsignal(signal.SIGTERM)
    if before is not signal.SIG_DFL:  # whoever started us wants something else
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
