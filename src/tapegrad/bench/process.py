"""A worker as the driver sees it: something to ask, that answers in time or is done for."""

from __future__ import annotations

import json
import os
import re
import select
import selectors
import shlex
import signal
import subprocess
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

import tapegrad
from tapegrad.bench import answers, machine, scratch
from tapegrad.bench.errors import BenchError, WorkerError
from tapegrad.bench.frameworks import Contender, missing_program
from tapegrad.bench.printable import printable
from tapegrad.worker.adapter import Unsupported
from tapegrad.worker.offspring import descendants, of_threads
from tapegrad.worker.session import Session

#: How long the first answer may take: frameworks import slowly on a cold disk.
HELLO_SECONDS = 180.0
#: How long one that has closed its output may take to end.
END_SECONDS = 5.0
#: How often the driver looks at a worker's size while it waits.
WATCH_SECONDS = 0.25
#: Of the machine's memory, the share that one worker may take.
MEMORY_SHARE = 0.8
#: The variable by which all processes of a worker are known.
MARK = "TAPEGRAD_WORKER"
#: Lines of a worker's standard error that say what went wrong, and how much of one is quoted.
COMPLAINT = re.compile(r"error\b|\bcannot\b|\bcan't\b|exception\b|\bpanic|\bfatal\b", re.IGNORECASE)
LAST_WORDS = 300
#: Places in Linux's schedstat: nanoseconds on a processor, and ready but without one.
RUNNING, WAITING = 0, 1
#: Variables by which numerical libraries take their number of threads.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "JULIA_NUM_THREADS",
)
#: Variables that keep glibc's heap in one state: it gives pages back, and takes them again, or not,
#: by what a process did before, and the same call takes 0.35 or 1.3 ms. It decides by these sizes
#: alone when they are given; the second is the largest that it takes.
HEAP_VARIABLES = {
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_MMAP_THRESHOLD_": str(1 << 25),
}
#: Variables that keep a worker to its device. Several workers share a GPU, so none may take all of
#: its memory at once, and no library may replace float32 by TF32, whatever a framework asks for.
DEVICE_VARIABLES = {
    "cpu": {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""},
    "cuda": {
        "JAX_PLATFORMS": "cuda",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "NVIDIA_TF32_OVERRIDE": "0",
    },
}


class Worker(ABC):
    """What a measurement needs of a worker: messages and answers, in turn."""

    alive = True
    #: Whether it may say what is right; others may only agree with one that may.
    authoritative = True
    #: Whether it tells all calls behind a block, so that the block can be timed from outside.
    counts_calls = True

    def ask(self, do: str, timeout: float | None = None, **arguments: Any) -> dict[str, Any]:
        """Send a message and return the answer; raises `WorkerError`."""
        self.send(do, **arguments)
        return self.receive(timeout)

    def waited(self) -> float:
        """Return the seconds so far in which it was ready to run but others had the processor."""
        return 0.0

    def busy_elsewhere(self) -> float:
        """Return the seconds so far that processes which it has started were busy."""
        return 0.0

    def busy(self) -> float:
        """Return the seconds so far that it and they were busy, whatever it says, if known."""
        return self.busy_elsewhere()

    @abstractmethod
    def send(self, do: str, **arguments: Any) -> None:
        """Send a message; what the driver does next runs beside the worker."""

    @abstractmethod
    def receive(self, timeout: float | None = None) -> dict[str, Any]:
        """Wait for the answer."""


class LocalWorker(Worker):
    """A session in this process, for functions that exist nowhere else."""

    counts_calls = False  # what it collects of this process's garbage takes longer than a block

    def __init__(self, session: Session) -> None:
        self._session = session
        self._message: dict[str, Any] = {}

    def send(self, do: str, **arguments: Any) -> None:
        """Keep the message."""
        self._message = {"do": do, **arguments}

    def receive(self, timeout: float | None = None) -> dict[str, Any]:
        """Answer it; there is no timeout within one's own process."""
        try:
            return self._session.answer(self._message)
        except Unsupported as reason:
            raise WorkerError("unsupported", str(reason)) from reason
        except MemoryError as error:
            raise WorkerError("oom", str(error)) from error
        except (Exception, SystemExit) as error:
            message = printable(f"{type(error).__name__}: {error}")
            raise WorkerError("failed", message) from error

    def waited(self) -> float:
        """Return what this thread has waited: it is the one that works."""
        return machine.waited()


class WorkerProcess(Worker):
    """One worker process, pinned to processors of its own choice of number.

    It is among those that are `starting` until it has loaded its framework.
    """

    def __init__(
        self,
        contender: Contender,
        folder: Path,
        *,
        threads: int,
        device: str,
        timeout: float,
        turn: int = 0,
        starting: list[WorkerProcess] | None = None,
    ) -> None:
        starting = [] if starting is None else starting
        program = contender.interpreter()
        if program is None:
            raise WorkerError("not installed", install_hint(contender))
        self.contender = contender
        self.counts_calls = not contender.command  # other languages warm up as they like
        self._timeout = timeout
        self._log = folder / "stderr.txt"
        self._buffer = b""
        self._asked = ""
        self._said = 0
        #: Ctrl-C came while it had to answer: nobody waits for that answer, or asks it again.
        self.interrupted = False
        self._mark = uuid.uuid4().hex
        with scratch.writing():
            path = _package_path(folder)
            log = self._log.open("ab")
        with log:
            try:
                self._process = subprocess.Popen(
                    [str(program), *contender.arguments()],
                    bufsize=0,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=_environment(path, threads, device, self._mark),
                    cwd=contender.file.parent if contender.command else None,
                    start_new_session=True,  # Ctrl-C is the driver's to handle
                )
            except OSError as error:
                raise WorkerError("crashed", f"{program} does not start: {error}") from None
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        os.set_blocking(self._process.stdin.fileno(), False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        pin(self._process.pid, threads, turn)
        starting.append(self)
        try:
            self.hello = self.ask(
                "hello",
                HELLO_SECONDS,
                file=str(contender.file),
                name=contender.adapter,
                device=device,
                threads=threads,
            )
        except BaseException:
            self.kill()
            raise
        finally:
            starting.remove(self)

    @property
    def alive(self) -> bool:  # type: ignore[override]
        """Whether it can still be asked."""
        return self._process.poll() is None

    def waited(self) -> float:
        """Add up the waiting of all its threads, as Linux counts it; elsewhere it is unknown."""
        return _scheduled(self._process.pid, WAITING)

    def busy_elsewhere(self) -> float:
        """Add up the work of all threads of all processes below it, as Linux counts it."""
        return sum(_scheduled(child, RUNNING) for child in self._below())

    def busy(self) -> float:
        """Add up the work of all its threads and of those below it, as Linux counts it."""
        return _scheduled(self._process.pid, RUNNING) + self.busy_elsewhere()

    def _below(self) -> set[int]:
        """Find the processes that it has started, those that have left it among them.

        A worker in Python adopts them; of another one they are known by their environment.
        """
        below = self._offspring()
        if self.contender.command:
            below |= _marked(self._mark) - {self._process.pid}
        return below

    def _offspring(self) -> set[int]:
        """Return its descendants; once it has ended, its number may be another's."""
        return set(descendants(self._process.pid)) if self.alive else set()

    def send(self, do: str, **arguments: Any) -> None:
        """Write a message to the worker's input; one that does not read it in time is killed."""
        if self.interrupted:
            raise KeyboardInterrupt  # also of one who only wants to clear up
        self._asked = do
        self._said = self._log.stat().st_size
        line = json.dumps({"do": do, **arguments}).encode() + b"\n"
        try:
            with self._attended():
                self._write(line)
        except (OSError, ValueError):  # it has ended, or was ended
            raise self._death() from None

    def receive(self, timeout: float | None = None) -> dict[str, Any]:
        """Wait for the answer; a worker that gives none in time is killed."""
        with self._attended():
            line = self._line(timeout or self._timeout)
        return self._parse(self._asked, line)

    @contextmanager
    def _attended(self) -> Iterator[None]:
        """End it if Ctrl-C comes: nobody waits for its answer, and nobody asks it again."""
        try:
            yield
        except KeyboardInterrupt:
            self.interrupted = True
            self.kill()
            raise

    def _write(self, line: bytes) -> None:
        """Write a line; what does not fit into the pipe waits until the worker has read."""
        assert self._process.stdin is not None
        pipe, deadline = self._process.stdin.fileno(), time.monotonic() + self._timeout
        while line:
            left = deadline - time.monotonic()
            if left <= 0:
                raise self._too_late("did not read", self._timeout)
            if select.select([], [pipe], [], left)[1]:
                line = line[os.write(pipe, line) :]

    def _too_late(self, what: str, seconds: float) -> WorkerError:
        self.kill()
        return WorkerError("timeout", f"{what} `{self._asked}` within {seconds:g} s")

    def _line(self, timeout: float) -> bytes:
        """Read one line; meanwhile keep an eye on the time and on the worker's size."""
        deadline = time.monotonic() + timeout
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0:
                raise self._too_late("no answer to", timeout)
            if self._selector.select(min(left, WATCH_SECONDS)):
                self._read()
            else:
                self._watch_memory()
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _read(self) -> None:
        assert self._process.stdout is not None
        data = os.read(self._process.stdout.fileno(), 1 << 16)
        if not data:
            raise self._death()
        self._buffer += data

    def _watch_memory(self) -> None:
        limit = MEMORY_SHARE * psutil.virtual_memory().total
        size = self._size("rss")
        if size > limit:
            size = self._size("pss")  # forks share pages; to find out takes long
        if size > limit:
            self.kill()
            raise WorkerError("oom", f"took {size / 1e9:.1f} GB, {limit / 1e9:.1f} are allowed")

    def _size(self, kind: str) -> int:
        """Return the bytes that it and all processes below it hold now."""
        total = 0
        for number in (self._process.pid, *self._below()):
            with suppress(psutil.Error):  # it may end meanwhile
                process = psutil.Process(number)
                known = process.memory_info() if kind == "rss" else process.memory_full_info()
                total += int(getattr(known, kind, known.rss))
        return total

    def _parse(self, do: str, line: bytes) -> dict[str, Any]:
        try:
            answer = printable(json.loads(line))
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            self.kill()
            raise WorkerError("failed", f"answered `{do}` with rubbish: {line[:80]!r}")
        if "complaint" in answer:
            raise self._unless_full(answers.complaint(answer))
        try:
            return answers.check(do, answer)
        except WorkerError:
            self.kill()  # who knows what the next line answers
            raise

    def _death(self) -> BenchError:
        """Find out how the worker ended, and clear up after it."""
        try:
            code = self._process.wait(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return WorkerError("crashed", "closed its output, and did not end")
        self.kill()
        if code == -signal.SIGKILL:  # nothing that it said before can be the reason
            return self._unless_full(WorkerError("oom", "killed, most likely for lack of memory"))
        how = (
            f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        )
        return self._unless_full(WorkerError("crashed", f"{how}{self._last_words()}"))

    def _unless_full(self, error: WorkerError) -> BenchError:
        """Return what really went wrong where there is no room for results: it is not its fault."""
        full = error.kind != "unsupported" and scratch.is_full(self._log.parent)
        return scratch.TemporaryFolderError(f"{self.contender.name}: {error}") if full else error

    def _last_words(self) -> str:
        """Quote what it wrote to its standard error since the last message."""
        with self._log.open("rb") as log:
            log.seek(self._said)
            text = printable(log.read().decode(errors="replace"))
        words = telling(text.splitlines())
        return f": {words[:LAST_WORDS]}" if words else ""

    def close(self) -> None:
        """Let it go; one that does not is killed."""
        below = self._offspring()
        if self.alive and self._process.stdin is not None:
            try:
                self._process.stdin.write(b'{"do": "bye"}\n')
                self._process.stdin.close()
                self._process.wait(timeout=3)
            except (OSError, subprocess.TimeoutExpired):
                pass
        self.kill(below)

    def kill(self, known: Collection[int] = ()) -> None:
        """End it and all that it has started, as far as that is `known` or can be found."""
        below = {*known, *self._offspring()}
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for number in below | _marked(self._mark):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(number, signal.SIGKILL)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        self._selector.close()


def telling(lines: Sequence[str]) -> str:
    """Return of a program's last words the line that says what went wrong, else the last three."""
    said = [line.strip() for line in lines if line.strip()]
    complaints = [line for line in said if COMPLAINT.search(line)]
    return complaints[-1] if complaints else " / ".join(said[-3:])


def _marked(mark: str) -> set[int]:
    """Find processes by the variable that a worker and all that it starts inherit."""
    wanted = f"{MARK}={mark}".encode()
    found = set()
    for file in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended, or is another user's
            if wanted in file.read_bytes().split(b"\0"):
                found.add(int(file.parent.name))
    return found


def _scheduled(pid: int, field: int) -> float:
    """Add up what the scheduler says of all threads of a process, in seconds."""
    return 1e-9 * sum(
        int(words[field]) for text in of_threads(pid, "schedstat") if (words := text.split())
    )


def pin(pid: int, threads: int, turn: int = 0) -> None:
    """Bind a process to as many processors as it may use; the first is left to the driver.

    Those of another `turn` are others, if there are more.
    """
    if not hasattr(os, "sched_setaffinity"):
        return
    allowed = sorted(os.sched_getaffinity(0))
    start = -threads * (1 + turn)
    chosen = {allowed[(start + index) % len(allowed)] for index in range(threads)}
    with suppress(ProcessLookupError):
        os.sched_setaffinity(pid, chosen)


def install_hint(contender: Contender) -> str:
    """Say how a missing framework is installed."""
    if contender.command:
        return missing_program(contender)
    return f"run: tapegrad bench frameworks install {shlex.quote(contender.given)}"


def _package_path(folder: Path) -> Path:
    """Make a folder that holds this package and nothing else, for any interpreter's path."""
    path = folder / "path"
    path.mkdir(parents=True, exist_ok=True)
    link = path / "tapegrad"
    if not link.exists():
        link.symlink_to(Path(tapegrad.__file__).parent, target_is_directory=True)
    return path


def _environment(path: Path, threads: int, device: str, mark: str) -> Mapping[str, str]:
    fixed = dict.fromkeys(THREAD_VARIABLES, str(threads)) | {"PYTHONPATH": str(path), MARK: mark}
    return {**HEAP_VARIABLES, **os.environ, **fixed, **DEVICE_VARIABLES[device]}
