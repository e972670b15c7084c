"""Measures a user's model: starts workers, visits them in turns, runs operators alone."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from tapegrad.bench import frameworks, machine
from tapegrad.bench.driver import DEVICES
from tapegrad.bench.errors import BenchError, MalformedFileError, UnknownNameError, WorkerError
from tapegrad.bench.process import Worker
from tapegrad.bench.profile.results import Profile, evaluate, shares
from tapegrad.bench.profile.visits import Place, Visits, time_of, visit_of
from tapegrad.bench.team import ProcessTeam

PHASES = ("step", "forward", "inference")
#: The function of a file where none is named.
FUNCTION = "make_model"
#: Rows with a smaller share of the step are not run alone.
SMALLEST_SHARE = 0.002
#: Seconds for which a row runs alone in a visit.
ALONE_SECONDS = 0.02

#: Hears what is done: a word for it, how many are done and how many there will be.
Listener = Callable[[str, int, int], None]


class Options(msgspec.Struct, frozen=True):
    """What to profile and how thoroughly."""

    file: str
    function: str
    phase: str
    device: str
    threads: int
    processes: int
    rounds: int
    #: Seconds of steps with and of steps without profiler in a visit; two steps at least.
    block: float
    #: Longest answer to one message, in seconds.
    timeout: float
    #: A Python with PyTorch and what the model needs; empty for PyTorch's own environment.
    python: str

    def check(self) -> None:
        """Refuse what cannot be."""
        for kind, name, known in (
            ("phase", self.phase, PHASES),
            ("device", self.device, DEVICES),
        ):
            if name not in known:
                raise UnknownNameError(kind, name, known)
        frameworks.check_threads(self.threads)
        for kind, number in (("processes", self.processes), ("rounds", self.rounds)):
            if not 1 <= number <= 1000:
                raise BenchError(f"{kind} must be from 1 to 1000, not {number}.")
        if not 0 < self.block <= 60 or not 0 < self.timeout < float("inf"):
            raise BenchError("block and timeout are seconds above 0; a block has 60 at most.")
        if self.python and shutil.which(self.python) is None:
            raise BenchError(f"--python: there is no program {self.python}.")


def profile(
    target: str,
    *,
    phase: str = "step",
    device: str = "cpu",
    threads: int = 1,
    processes: int = 3,
    rounds: int = 3,
    block: float = 0.2,
    timeout: float = 300.0,
    python: str = "",
    listener: Listener | None = None,
) -> Profile:
    """Tell which operators take the time of a PyTorch model.

    After Ctrl-C the profile is that of what was measured so far, with the status `interrupted`.

    Args:
        target: `file.py:function`, or `file.py` for its `make_model`. The function takes nothing
            and returns (model, inputs): inputs are a tensor, a tuple or list of positional
            arguments, or a dict of named ones.
        phase: `step` (forward and backward), `forward` or `inference`.
        device: `cpu` or `cuda`.
        threads: Of each worker.
        processes: Workers, each with a model of its own.
        rounds: Visits to each worker.
        block: Seconds of a visit.
        timeout: Longest answer, in seconds.
        python: A Python with PyTorch and all that the model needs, instead of PyTorch's own
            environment.
        listener: Hears how it goes.

    """
    file, function = _target(target)
    options = Options(
        file, function, phase, device, threads, processes, rounds, block, timeout, python
    )
    options.check()
    return _Profiling(options, listener or (lambda *_: None)).go()


def _target(target: str) -> tuple[str, str]:
    """Split what the command line says into a file and a function."""
    file, colon, function = target.rpartition(":") if ":" in target else (target, "", "")
    if colon and not function.isidentifier():
        raise BenchError(
            f"{target!r} names no function: expected file.py:function, as net.py:{FUNCTION}."
        )
    path = Path(file)
    if path.suffix != ".py":
        raise BenchError(
            f"{file or target!r} is no Python file: expected file.py:function, as "
            f"net.py:{FUNCTION}."
        )
    if not path.is_file():
        raise MalformedFileError(f"There is no file {file}.")
    return str(path.absolute()), function or FUNCTION


class _Profiling:
    """One profile from its first worker to its last operator."""

    def __init__(self, options: Options, listener: Listener) -> None:
        self._options = options
        self._listener = listener
        self._visits = Visits()
        self._random = random.Random(0)

    def go(self) -> Profile:
        """Measure; after Ctrl-C, go on with what there is."""
        options = self._options
        contender = frameworks.find("torch")
        if options.python:
            # -P: not with the adapters' own folder on the path, which is where commands start
            command = (options.python, "-P", "-m", "tapegrad.worker")
            contender = replace(contender, command=command)
        folder = Path(tempfile.mkdtemp(prefix="tapegrad-profile-"))
        team = ProcessTeam(contender, folder, options.threads, options.device, options.timeout)
        version = ""
        try:
            version = self._load(team)
            self._in_place(team)
            self._alone(team)
        except KeyboardInterrupt:
            if not self._visits.places:
                raise
            self._visits.interrupted = True
        finally:
            team.close()
            shutil.rmtree(folder, ignore_errors=True)
        return evaluate(
            self._visits,
            kernels=options.device == "cuda",
            model=f"{Path(options.file).name}:{options.function}",
            phase=options.phase,
            device=options.device,
            threads=options.threads,
            framework=f"torch {version}",
            machine=machine.describe(),
            options=msgspec.to_builtins(options),
        )

    def _load(self, team: ProcessTeam) -> str:
        """Load the model in every process; returns the framework's version."""
        options = self._options
        for process in range(options.processes):
            self._listener("loading the model", process, options.processes)
            message = {name: getattr(options, name) for name in ("file", "function", "phase")}
            rows = _asked(team.worker(process), "model", **message)["rows"]
            if self._visits.rows not in ([], rows):
                raise MalformedFileError(
                    f"{options.function} makes another model in every process: its operators or "
                    "their shapes differ. Make it depend on nothing but its code."
                )
            self._visits.rows = rows
        return str(team.greeting()["version"])

    def _in_place(self, team: ProcessTeam) -> None:
        for done, place in enumerate(places := list(self._places())):
            self._listener("in place", done, len(places))
            worker = team.worker(place.process)
            waited, start = worker.waited(), monotonic()
            answer = _asked(worker, "profile", seconds=self._options.block)
            elapsed = monotonic() - start
            self._visits.places[place] = visit_of(answer)
            self._visits.waited.append((worker.waited() - waited) / elapsed)

    def _alone(self, team: ProcessTeam) -> None:
        """Run the rows that matter alone, in another order in every visit."""
        found = shares(self._visits)
        rows = [key.row for key in found if key.row is not None and found[key] >= SMALLEST_SHARE]
        tasks = [(place, row) for place in self._places() for row in self._shuffled(rows)]
        for done, (place, row) in enumerate(tasks):
            self._listener("alone", done, len(tasks))
            if row not in self._visits.failures:
                self._replay(team.worker(place.process), place, row)

    def _replay(self, worker: Worker, place: Place, row: int) -> None:
        try:
            answer = worker.ask("replay", row=row, seconds=ALONE_SECONDS)
        except WorkerError as error:
            if not worker.alive:
                raise
            self._visits.failures[row] = str(error)
            return
        if answer["samples"]:
            time = time_of(answer["samples"], answer["waited"])
            self._visits.alone.setdefault(row, {})[place] = time

    def _places(self) -> Iterator[Place]:
        for number in range(self._options.rounds):
            for process in range(self._options.processes):
                yield Place(process, number)

    def _shuffled(self, rows: list[int]) -> list[int]:
        return self._random.sample(rows, len(rows))


def _asked(worker: Worker, do: str, **message: Any) -> dict[str, Any]:
    """Ask; what is wrong with the user's file is said as such."""
    try:
        return worker.ask(do, **message)
    except WorkerError as error:
        if error.kind == "unsupported":
            raise MalformedFileError(str(error)) from None
        raise
