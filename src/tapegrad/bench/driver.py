"""Runs a suite: picks cases, starts workers, measures, and stores each result as it comes."""

from __future__ import annotations

import fnmatch
import math
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import psutil

from tapegrad.bench import frameworks, machine, scratch, suites
from tapegrad.bench.errors import BenchError, MalformedFileError, UnknownNameError, WorkerError
from tapegrad.bench.frameworks import Contender
from tapegrad.bench.given import Done, Settings
from tapegrad.bench.measurement import Measurement
from tapegrad.bench.results import (
    UNFINISHED,
    Block,
    Cell,
    CellKey,
    Framework,
    Memory,
    Results,
    Run,
)
from tapegrad.bench.shapes import customised
from tapegrad.bench.store import DuplicateError, Store, open_store
from tapegrad.bench.suite import Suite
from tapegrad.bench.team import LazyWorker, ProcessTeam
from tapegrad.worker.case import DTYPES, PHASES, SIZES, Case
from tapegrad.worker.operators.numpy import OPERATORS

DEVICES = ("cpu", "cuda")
CACHES = ("warm", "cold")
#: Options that hold several names, and those that hold several texts.
NAMES = ("frameworks", "filter", "sizes", "phases")
TEXTS = ("shape", "attr")
#: Levels of cases that are one operator.
SINGLE = ("operator", "layer")
#: Who may say what is right, in the order in which they are asked; at some level others first.
WITNESSES = ("numpy", "torch", "jax", "tensorflow", "c", "tapegrad")
FIRST_WITNESSES = {
    "graph": ("numpy", "c", "tapegrad"),
    # Who have gradients to compare, element by element, and fast convolutions.
    **dict.fromkeys(("fused", "layer", "model"), ("torch", "jax", "tensorflow")),
}


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to run and how thoroughly. Stored with the run, so that it can be resumed."""

    suite: str
    frameworks: list[str] = []
    filter: list[str] = []
    #: Cases of the user's own in place of the suite's (`tapegrad.bench.shapes`).
    shape: list[str] = []
    attr: list[str] = []
    cases: str = ""
    sizes: list[str] = []
    phases: list[str] = []
    dtype: str = ""
    device: str = "cpu"
    threads: int = 1
    processes: int = 3
    rounds: int = 3
    #: Length of a block in seconds.
    block: float = 0.02
    #: `warm`, or `cold`: emptied before each call.
    cache: str = "warm"
    memory: bool = False
    #: Longest answer to one message, in seconds.
    timeout: float = 60.0
    seed: int = 0

    @classmethod
    def read(cls, content: dict[str, Any]) -> Options:
        """Make options of what a caller or the store has; paths become absolute."""
        for name in content:
            if name not in cls.__struct_fields__:
                raise UnknownNameError("option", name, cls.__struct_fields__)
        try:
            read = msgspec.convert({name: _listed(name, content[name]) for name in content}, cls)
        except msgspec.ValidationError as error:
            raise BenchError(_told(error)) from None
        suite = frameworks.absolute(read.suite) if read.suite.endswith(".py") else read.suite
        names = [frameworks.absolute(name) for name in read.frameworks]
        cases = str(Path(read.cases).absolute()) if read.cases else ""
        return msgspec.structs.replace(read, suite=suite, frameworks=names, cases=cases)

    def check(self) -> None:
        """Refuse what does not exist, with the nearest name."""
        for kind, names, known in (
            ("size", self.sizes, SIZES),
            ("phase", self.phases, PHASES),
            ("dtype", [self.dtype] if self.dtype else [], DTYPES),
            ("device", [self.device], DEVICES),
            ("cache", [self.cache], CACHES),
        ):
            for name in names:
                if name not in known:
                    raise UnknownNameError(kind, name, known)
        if self.sizes and (self.shape or self.cases):
            raise BenchError("sizes choose among the suite's own cases; leave them out.")
        if self.cache == "cold" and self.device != "cpu":
            raise BenchError(
                f"cache cold is for the CPU: it would not empty the caches of {self.device}."
            )
        frameworks.check_threads(self.threads)
        for kind, number, least, most in (
            ("processes", self.processes, 1, 64),
            ("rounds", self.rounds, 1, 1000),
            ("seed", self.seed, 0, 2**63 - 1),
        ):
            if not least <= number <= most:
                raise BenchError(f"{kind} must be from {least} to {most}, not {number}.")
        if not 0 < self.block <= 60 or not 0 < self.timeout < math.inf:
            raise BenchError("block and timeout are seconds above 0; a block has 60 at most.")


def names(option: str, *texts: str) -> list[str]:
    """Split names at commas."""
    found = [name.strip() for text in texts for name in text.split(",") if name.strip()]
    if not found:
        raise BenchError(f"{option} names nothing; separate names by commas.")
    return found


def _listed(name: str, value: Any) -> Any:
    """Read text where a list is wanted, as the command line does."""
    if not isinstance(value, str) or name not in NAMES + TEXTS:
        return value
    return names(f"option {name}", value) if name in NAMES else [value]


def _told(error: msgspec.ValidationError) -> str:
    """Say in our words what msgspec found, as "Expected `array`, got `str` - at `$.filter`"."""
    what, _, where = str(error).partition(" - at ")
    name = where.strip("`").removeprefix("$.")
    words = what.replace("`", "").replace("Expected array", "Expected a list")
    return f"option {name}: {words[:1].lower()}{words[1:]}." if name else f"options: {what}."


class TwiceError(BenchError, RuntimeError):
    """Two processes measure one run."""

    exit_code = 3

    def __init__(self, run: str) -> None:
        super().__init__(
            f"Run {run} is measured by another process, too: a block that was to be stored is "
            "there already. That process goes on, and nothing is lost; if it is to end, end it, "
            "and then use --resume."
        )


class Listener:
    """Hears how a run goes; the command line shows it."""

    def started(self, run: Run, cases: list[Case], contenders: list[str]) -> None:
        """Hear that a run begins."""

    def taking_part(self, names: list[list[str]]) -> None:
        """Hear which contenders take part in each of the cases: not all do in all of them."""

    def earlier(self, results: Results) -> None:
        """Hear what a run that goes on has already; it may be nothing."""

    def case(self, index: int, case: Case) -> None:
        """Hear which case is next."""

    def cell(self, cell: Cell) -> None:
        """Hear a verdict."""

    def block(self, block: Block) -> None:
        """Hear a block."""

    def memory(self, memory: Memory) -> None:
        """Hear a measurement of memory."""

    def finished(self, results: Results) -> None:
        """Hear the end."""


def run(
    suite: str | Suite,
    *,
    store: str | Path | Store | None = None,
    resume: str | None = None,
    listener: Listener | None = None,
    **options: Any,
) -> Results:
    """Run a suite and return what was found; see `Options` for the keywords.

    Lists may be text, as on the command line: `filter="conv*,relu"` is `["conv*", "relu"]`.
    Every verdict and block is stored the moment it exists. After Ctrl-C or a crash, `resume` (a
    run's id, or "latest") goes on where the run stopped, with the run's own options.
    """
    listener = listener or Listener()
    _expect_suite(suite)
    if resume is not None:
        _expect_none(options)
    opened = store if isinstance(store, Store) else open_store(store, create=resume is None)
    try:
        record = None if resume is None else _resumed(opened, resume)
        if record is not None and isinstance(suite, str):
            _same_suite(record, suite)
        name = suite if isinstance(suite, str) else suite.of or suite.name
        if isinstance(suite, str):
            suite = suites.find(record.options["suite"] if record else suite)
        suite.check()
        asked = {**suite.defaults, "suite": name, **options}
        chosen = Options.read(record.options if record else asked)
        chosen.check()
        suite = customised(suite, chosen.shape, chosen.attr, chosen.cases, chosen.filter)
        if record is not None:
            _same_cases(opened.load(record.id), select(suite, chosen))
        return _Driver(suite, chosen, opened, listener, record).go()
    finally:
        if not isinstance(store, Store):
            opened.close()


def _expect_suite(suite: object) -> None:
    if not isinstance(suite, (str, Suite)):
        raise BenchError(
            "suite must be a name, a path as text or a tapegrad.bench.Suite, "
            f"not {repr(suite)[:60]} ({type(suite).__name__})."
        )


def _expect_none(options: dict[str, Any]) -> None:
    if options:
        extra = ", ".join(options)
        raise BenchError(f"resume goes on with the run's own options; leave out {extra}.")


def _resumed(store: Store, name: str) -> Run:
    """Find the run to go on with."""
    record = store.resolve(name)
    _same_machine(record)
    return record


def _same_suite(record: Run, suite: str) -> None:
    """Refuse to go on with a run of another suite, or of another file with a suite of that name."""
    asked = frameworks.absolute(suite) if suite.endswith(".py") else suite
    if asked and record.options["suite"] != asked:
        raise BenchError(f"Run {record.id} is of {record.options['suite']}, not of {suite}.")


def _same_cases(earlier: Results, cases: list[Case]) -> None:
    """Refuse to go on with a run whose suite is another one by now."""
    before = earlier.case_by_key()
    now = {case.key: case for case in cases}
    changes = [f"{case.label} is new" for key, case in now.items() if key not in before]
    changes += [f"{case.label} is gone" for key, case in before.items() if key not in now]
    if changes:
        more = f" and {len(changes) - 5} more" if len(changes) > 5 else ""
        raise BenchError(
            f"Run {earlier.run.id} cannot go on: its suite has changed since it began "
            f"({', '.join(changes[:5])}{more}). Start a new run."
        )


def select(suite: Suite, options: Options) -> list[Case]:
    """Pick the cases that the options ask for."""
    patterns = _patterns(suite, options.filter)
    for pattern in patterns:
        if not any(_matches(case, pattern) for case in suite.cases):
            known = sorted({case.op for case in suite.cases})
            advice = f"`tapegrad bench list {options.suite}` shows the cases."
            raise UnknownNameError(f"case in suite {suite.name} for", pattern, known, advice)
    cases = [
        replace(case, dtype=options.dtype) if options.dtype else case
        for case in suite.cases
        if (not options.sizes or case.size in options.sizes) and _is_chosen(case, patterns)
    ]
    if not cases:
        raise _nothing(suite, options, patterns)
    _expect_memory(cases)
    cases = list({case.key: case for case in cases}.values())  # two may differ in dtype alone
    return list(_with_phases(cases, options.phases)) if options.phases else cases


def _with_phases(cases: list[Case], asked: Sequence[str]) -> Iterator[Case]:
    """Ask the cases that have a phase for it, or all of them where none has."""
    wanted = dict.fromkeys(asked)
    known = {phase for case in cases for phase in case.phases}
    for case in cases:
        phases = tuple(phase for phase in wanted if phase in case.phases or phase not in known)
        if phases:
            yield replace(case, phases=phases)


def _patterns(suite: Suite, pieces: Sequence[str]) -> list[str]:
    """Put together again what a comma within a case's label has parted."""
    most = 1 + max(case.label.count(",") for case in suite.cases)
    found, rest = [], list(pieces)
    while rest:
        joined = {count: ",".join(rest[:count]) for count in range(min(most, len(rest)), 1, -1)}
        labels = (n for n, text in joined.items() if any(_matches(c, text) for c in suite.cases))
        count = next(labels, 1)
        found.append(",".join(rest[:count]))
        rest = rest[count:]
    return found


def _nothing(suite: Suite, options: Options, patterns: Sequence[str]) -> UnknownNameError:
    """Complain that no case has the sizes, among those that the patterns match."""
    matching = [case for case in suite.cases if _is_chosen(case, patterns)]
    known = [size for size in SIZES if any(case.size == size for case in matching)]
    of = f" that matches {', '.join(patterns)}" if patterns else ""
    kind = f"case in suite {suite.name}{of} of size"
    return UnknownNameError(kind, ", ".join(options.sizes), known)


def _expect_memory(cases: list[Case]) -> None:
    """Refuse inputs that this machine cannot hold, before hours are spent on the others."""
    memory = psutil.virtual_memory().total
    for case in cases:
        if case.nbytes > memory:
            raise MalformedFileError(
                f"The inputs of {case.label} would take {case.nbytes / 1e9:,.1f} GB; this machine "
                f"has {memory / 1e9:,.1f}. Make the case smaller, or leave it out by filter or "
                "sizes."
            )


def _expect_operators(cases: list[Case], contenders: list[Contender]) -> None:
    """Refuse operators that nobody has; adapters of the user's may have some of their own."""
    if not all(each.ships for each in contenders):
        return
    known = {level: suites.work_at(level) for level in {case.level for case in cases}}
    for case in cases:
        names = known[case.level] if case.level == "graph" else known[case.level] | OPERATORS.keys()
        if case.op not in names:
            advice = "If an adapter of yours has it, name its file among the frameworks."
            raise UnknownNameError(case.level, case.op, sorted(names), advice)


def _is_chosen(case: Case, patterns: Sequence[str]) -> bool:
    return not patterns or any(_matches(case, pattern) for pattern in patterns)


def _matches(case: Case, pattern: str) -> bool:
    return fnmatch.fnmatch(case.op, pattern) or fnmatch.fnmatch(case.label, pattern)


def _same_framework(run: str, before: Framework, now: Framework) -> None:
    """Refuse to mix the times of two versions or environments of a framework in one run."""
    if (before.version, before.environment) == (now.version, now.environment):
        return
    settings = [
        f"; {name}: {before.details.get(name)} then, {now.details.get(name)} now"
        for name in {**before.details, **now.details}
        if before.details.get(name) != now.details.get(name)
    ]
    raise BenchError(
        f"Run {run} cannot go on: {now.name} has changed since it began (version {before.version}, "
        f"environment {before.environment} then; version {now.version}, environment "
        f"{now.environment} now{''.join(settings)}). Start a new run."
    )


def _same_machine(record: Run) -> None:
    here = machine.describe()
    if here.fingerprint != record.machine.fingerprint:
        raise BenchError(
            f"Run {record.id} was measured on another machine ({record.machine.name}); "
            f"this is {here.name}. Start a new run."
        )


class _Driver:
    """One run from its first worker to its last block."""

    def __init__(
        self, suite: Suite, options: Options, store: Store, listener: Listener, record: Run | None
    ) -> None:
        self._suite = suite
        self._options = options
        self._store = store
        self._listener = listener
        self._cases = select(suite, options)
        self._contenders = frameworks.find_all(
            options.frameworks or frameworks.installed(suite.frameworks)
        )
        if not self._contenders:
            raise BenchError(f"Suite {suite.name} has no frameworks of its own: name some.")
        _expect_operators(self._cases, self._contenders)
        self._resumed = record is not None
        self._run = record or Run(
            id=f"{suite.name}-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}",
            suite=suite.name,
            started=time.time(),
            machine=machine.measured(),
            options=msgspec.to_builtins(options),
            commit=_commit(),
        )

    def go(self) -> Results:
        """Measure everything; what is measured is kept whatever happens."""
        if not self._resumed:
            self._store.begin(self._run, [], self._cases)
        self._listener.started(self._run, self._cases, [each.name for each in self._contenders])
        self._listener.taking_part([self._taking_part(case) for case in self._cases])
        earlier = self._store.load(self._run.id)
        self._listener.earlier(earlier)
        status = "finished" if self._run.status == "finished" else "interrupted"
        try:
            with scratch.folder() as folder:
                self._measure_all(folder, earlier)
            status = "finished"
        except KeyboardInterrupt:
            pass
        except DuplicateError as error:
            status = ""  # it is for whoever goes on to say
            raise TwiceError(self._run.id) from error
        finally:
            if status:
                self._store.finish(self._run.id, status, time.time())
        results = self._store.load(self._run.id)
        self._listener.finished(results)
        return results

    def _measure_all(self, folder: Path, earlier: Results) -> None:
        """Start workers, measure case by case, and end the workers whatever happens."""
        done = _done(earlier)
        teams = {each.name: self._team(each, folder) for each in self._contenders}
        witnesses = self._witnesses(folder)
        try:
            self._start(teams, witnesses)
            self._greet(teams, {each.name: each for each in earlier.frameworks})
            for index, case in enumerate(self._cases):
                self._listener.case(index, case)
                self._measure(case, teams, witnesses, folder / "case", done)
                shutil.rmtree(folder / "case", ignore_errors=True)
        finally:
            for team in (*teams.values(), *witnesses.values()):
                team.close()

    def _team(self, contender: Contender, folder: Path) -> ProcessTeam:
        options = self._options
        threads = contender.threads or options.threads
        return ProcessTeam(contender, folder, threads, options.device, options.timeout)

    def _witnesses(self, folder: Path) -> dict[str, ProcessTeam]:
        """Prepare those who are asked what is right: they run on the CPU with all processors.

        Each framework has one voice, whichever of its variants take part. Those that ship are asked
        first; adapters of the user's may only agree with them.
        """
        shipped = frameworks.shipped()
        found = [shipped[name] for name in WITNESSES if name in shipped]
        others = [each for each in self._contenders if each.name not in WITNESSES]
        found += sorted(others, key=lambda each: not each.ships)
        voices: dict[Path, Contender] = {}
        for each in found:
            if each.interpreter() is not None:
                voices.setdefault(each.file, each)
        threads = len(machine.usable())
        timeout = self._options.timeout
        return {
            each.name: ProcessTeam(each, folder / "witness", threads, "cpu", timeout)
            for each in voices.values()
        }

    def _start(self, teams: dict[str, ProcessTeam], witnesses: dict[str, ProcessTeam]) -> None:
        """Start all workers, several at a time; what does not start says why when it is needed.

        Of the witnesses, those that the first case asks first.
        """
        pool = ThreadPoolExecutor(len(machine.usable()))
        asked = _in_order(witnesses, self._cases[0])[:2]
        try:
            started = [
                pool.submit(team.worker, process)
                for team in teams.values()
                for process in range(self._options.processes)
            ]
            started += [pool.submit(witnesses[name].worker, 0) for name in asked]
            for each in started:
                each.exception()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _greet(self, teams: dict[str, ProcessTeam], known: dict[str, Framework]) -> None:
        """Start one worker of each contender and record what it is: what it was, if known."""
        for name, team in teams.items():
            try:
                hello = team.greeting()
            except WorkerError:
                continue  # its cells will say why
            details = {**hello["details"], "python": hello["python"], "threads": team.threads}
            if not team.contender.ships:
                details["adapter"] = team.contender.digest()
            environment = team.contender.environment_hash(details)
            found = Framework(name, hello["version"], environment, details)
            _same_framework(self._run.id, known.get(name, found), found)
            self._store.add_framework(self._run.id, found)

    def _measure(
        self,
        case: Case,
        teams: dict[str, ProcessTeam],
        witnesses: dict[str, ProcessTeam],
        folder: Path,
        done: Done,
    ) -> None:
        options = self._options
        settings = Settings(
            processes=options.processes,
            rounds=options.rounds,
            seconds=options.block,
            cold=options.cache == "cold",
            seed=options.seed,
            second_seed=self._second_seed(case),
            memory=options.memory and self._suite.weighs(case),
            device=options.device,
        )
        teams = {name: teams[name] for name in self._taking_part(case)}
        lazily = {name: LazyWorker(witnesses[name]) for name in _in_order(witnesses, case)}
        Measurement(case, case.phases, teams, lazily, settings, folder, self, done).run()

    def _taking_part(self, case: Case) -> list[str]:
        """Return who takes part in a case: those that the user names, or whom the suite means."""
        names = [each.name for each in self._contenders]
        if self._options.frameworks:
            return names
        return [name for name in names if self._suite.takes_part(name, case)]

    def _second_seed(self, case: Case) -> int | None:
        """Return a seed that adapters of the user's cannot foresee, where single operators do.

        What is right may hang by a rounding error where an operator follows another: there, and for
        those that ship, inputs are the same each time.
        """
        known = case.level not in SINGLE or all(each.ships for each in self._contenders)
        return self._options.seed + 1 if known else None

    # What a measurement finds goes to the store first, then to whoever listens.

    def cell(self, cell: Cell) -> None:
        self._store.add_cell(self._run.id, cell)
        self._listener.cell(cell)

    def block(self, block: Block) -> None:
        self._store.add_block(self._run.id, block)
        self._listener.block(block)

    def memory(self, memory: Memory) -> None:
        self._store.add_memory(self._run.id, memory)
        self._listener.memory(memory)


def _in_order(witnesses: Iterable[str], case: Case) -> list[str]:
    """Return witnesses as a case asks them."""
    first = FIRST_WITNESSES.get(case.level, ())
    return sorted(witnesses, key=lambda name: name not in first)


def _done(earlier: Results) -> Done:
    """Return what need not be measured again."""
    costs: dict[CellKey, float] = {}
    for block in earlier.blocks:
        costs[block.key] = max(costs.get(block.key, 0.0), block.seconds)
    return Done(
        cells={cell.key: cell for cell in earlier.cells if cell.verdict != UNFINISHED},
        blocks=frozenset((block.key, block.process, block.round) for block in earlier.blocks),
        memory=frozenset(
            CellKey(memory.case, memory.framework, memory.phase) for memory in earlier.memory
        ),
        costs=costs,
    )


def _commit() -> str:
    """Return the commit of the project whose folder we are in, if it is one and git is there."""
    question = ["git", "rev-parse", "HEAD"]
    try:
        done = subprocess.run(question, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
