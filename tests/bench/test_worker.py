"""Workers: real processes, real frameworks, and everything that can go wrong with them."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from tapegrad.bench.errors import WorkerError
from tapegrad.bench.frameworks import find
from tapegrad.bench.guards import CORES_LOOPS, clock, cores, fresh
from tapegrad.bench.oracle import InputSet, Truth
from tapegrad.bench.probe import Probe
from tapegrad.bench.process import Worker, WorkerProcess, telling
from tapegrad.bench.results import Block
from tapegrad.bench.watch import Watch
from tapegrad.worker.adapter import Work
from tapegrad.worker.adapters.numpy import Numpy
from tapegrad.worker.case import Array, Case
from tapegrad.worker.session import Session

from .conftest import Start

Save = Callable[..., dict[str, str]]

TANH = Case("operator", "tanh", (Array("x", (4, 5)),))
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the system's count is in /proc")


def adapter(folder: Path, body: str) -> str:
    """Write an adapter file that is NumPy's with changes, and return its path."""
    file = folder / "own.py"
    head = """
        import os, signal, sys, time
        import numpy as np
        from tapegrad.worker.adapter import Phase, Unsupported, Work
        from tapegrad.worker.adapters.numpy import Numpy
        ADAPTERS = {"own": "Own"}
        IMPORTS = "numpy"
    """
    file.write_text(textwrap.dedent(head) + textwrap.dedent(body))
    return str(file)


def prepare(worker: WorkerProcess, case: Case, paths: dict[str, str]) -> dict[str, object]:
    return worker.ask("prepare", case=case.as_dict(), arrays=paths)


@pytest.mark.parametrize("name", ["numpy", "torch", "jax"])
def test_forward_is_right(start: Start, save: Save, tmp_path: Path, name: str) -> None:
    x = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    worker = start(name)
    offer = prepare(worker, TANH, save(x=x))
    assert "forward" in offer["phases"]  # type: ignore[operator]
    answer = worker.ask("check", phase="forward", folder=str(tmp_path / "out"))
    np.testing.assert_allclose(np.load(answer["arrays"]["output0"]), np.tanh(x), rtol=1e-6)


@pytest.mark.parametrize("name", ["torch", "jax"])
@pytest.mark.parametrize("phase", ["backward", "step"])
def test_backward_takes_the_given_cotangent(
    start: Start, save: Save, tmp_path: Path, name: str, phase: str
) -> None:
    rng = np.random.default_rng(0)
    x, cotangent = rng.standard_normal((2, 4, 5)).astype(np.float32)
    worker = start(name)
    prepare(worker, TANH, save(x=x))
    worker.ask("feed", arrays=save(x=x), cotangents=list(save(cotangent=cotangent).values()))
    for _ in range(3):  # residuals are kept, nothing accumulates
        answer = worker.ask("check", phase=phase, folder=str(tmp_path / "out"))
        found = np.load(answer["arrays"]["grad:x"])
        np.testing.assert_allclose(found, cotangent * (1 - np.tanh(x) ** 2), rtol=1e-4, atol=1e-6)


def test_feeding_changes_what_every_phase_sees(start: Start, save: Save, tmp_path: Path) -> None:
    worker = start("torch")
    ones = np.ones((4, 5), np.float32)
    prepare(worker, TANH, save(x=ones))
    for factor in (0.5, 2.0):
        worker.ask("feed", arrays=save(x=factor * ones), cotangents=list(save(c=ones).values()))
        answer = worker.ask("check", phase="backward", folder=str(tmp_path / "out"))
        expected = 1 - np.tanh(factor) ** 2
        np.testing.assert_allclose(np.load(answer["arrays"]["grad:x"]), expected, rtol=1e-4)


def test_a_block_has_samples_of_a_known_cost(start: Start, save: Save, tmp_path: Path) -> None:
    """A call that spins for 300 µs is found to take 300 µs."""
    name = adapter(
        tmp_path,
        """
        class Own(Numpy):
            def operation(self, case, function, arrays):
                def spin():
                    end = time.perf_counter() + 3e-4
                    while time.perf_counter() < end: pass
                    return np.ones(1)
                return Work({"forward": Phase(spin)}, lambda *a: None, lambda p, r: {"output0": r})
        """,
    )
    worker = start(name)
    prepare(worker, TANH, save(x=np.ones((4, 5))))
    answer = worker.ask("time", phase="forward", seconds=0.02)
    assert len(answer["samples"]) >= 5
    assert min(answer["samples"]) == pytest.approx(3e-4, rel=0.05)
    assert set(answer["controls"]) == {"copy", "products", "loop"}
    assert all(seconds > 0 for seconds in answer["controls"].values())


def test_units_divide_and_setup_is_not_timed(start: Start, save: Save, tmp_path: Path) -> None:
    name = adapter(
        tmp_path,
        """
        class Own(Numpy):
            def operation(self, case, function, arrays):
                calls = []
                def setup(): calls.append("setup"); time.sleep(0.02)
                def call():
                    calls.append("call")
                    time.sleep(0.002)
                    return np.array(calls == ["setup", "call"] * (len(calls) // 2))
                phases = {"compile": Phase(call, units=2, setup=setup)}
                return Work(phases, lambda *a: None, lambda p, r: {"output0": r})
        """,
    )
    worker = start(name)
    prepare(worker, TANH, save(x=np.ones((4, 5))))
    answer = worker.ask("time", phase="compile", seconds=0.003)
    assert answer["inner"] == 1 and answer["units"] == 2
    assert 0.001 <= min(answer["samples"]) < 0.008
    answer = worker.ask("check", phase="compile", folder=str(tmp_path / "out"))
    assert np.load(answer["arrays"]["output0"])


def test_unsupported_names_the_operator(start: Start, save: Save) -> None:
    worker = start("numpy")
    with pytest.raises(WorkerError, match="no hologram") as caught:
        prepare(worker, Case("operator", "hologram", (Array("x", (2,)),)), save(x=np.ones(2)))
    assert caught.value.kind == "unsupported"
    prepare(worker, TANH, save(x=np.ones((4, 5))))  # it lives on


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        ("os._exit(3)", "crashed", "exit code 3"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "crashed", "SIGSEGV"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "oom", "memory"),
        ("time.sleep(100)", "timeout", "within 2 s"),
        ("raise RuntimeError('broken')", "failed", "RuntimeError: broken"),
        ("raise MemoryError('too big')", "oom", "too big"),
        ("raise RuntimeError('CUDA out of memory')", "oom", "CUDA"),
        ("raise Unsupported('no such call')", "unsupported", "no such call"),
    ],
)
def test_a_bad_worker_is_told_by_kind(  # noqa: PLR0917  pytest passes by name
    start: Start, save: Save, tmp_path: Path, body: str, kind: str, message: str
) -> None:
    name = adapter(
        tmp_path,
        f"""
        class Own(Numpy):
            def operation(self, case, function, arrays):
                {body}
        """,
    )
    worker = start(name, timeout=2.0)
    with pytest.raises(WorkerError, match=message) as caught:
        prepare(worker, TANH, save(x=np.ones((4, 5))))
    assert caught.value.kind == kind
    assert worker.alive == ("raise" in body)


def test_what_a_framework_prints_is_no_answer(start: Start, save: Save, tmp_path: Path) -> None:
    name = adapter(
        tmp_path,
        """
        print("loud at import")
        class Own(Numpy):
            def operation(self, case, function, arrays):
                print("loud"); os.write(1, b"{}\\n")
                return super().operation(case, function, arrays)
        """,
    )
    worker = start(name)
    offer = prepare(worker, TANH, save(x=np.ones((4, 5))))
    assert offer["phases"] == ["forward", "inference"]


def test_unbounded_memory_is_stopped(
    start: Start, save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tapegrad.bench.process.MEMORY_SHARE", 0.03)
    name = adapter(
        tmp_path,
        """
        class Own(Numpy):
            def operation(self, case, function, arrays):
                hoard = []
                while True: hoard.append(np.ones(1 << 22)); time.sleep(0.01)
        """,
    )
    with pytest.raises(WorkerError, match="GB") as caught:
        prepare(start(name), TANH, save(x=np.ones((4, 5))))
    assert caught.value.kind == "oom"


def test_known_memory_is_reported(start: Start, save: Save, tmp_path: Path) -> None:
    """An operator that takes 200 MB more than its arrays is found to take 200 MB, within 5 %."""
    name = adapter(
        tmp_path,
        """
        class Own(Numpy):
            def operation(self, case, function, arrays):
                def call(): return np.full(200_000_000 // 8, 1.0).sum(keepdims=True)
                return Work({"forward": Phase(call)}, lambda *a: None, lambda p, r: {"output0": r})
        """,
    )
    worker = start(name)
    prepare(worker, TANH, save(x=np.ones((4, 5))))
    answer = worker.ask("memory", phase="forward")
    assert answer["resident"] == pytest.approx(200e6, rel=0.05)
    assert answer["allocator"] is None  # NumPy has no count of its own


def test_pages_of_files_that_the_system_takes_back_hide_no_memory(
    start: Start, save: Save, tmp_path: Path
) -> None:
    file = tmp_path / "library"
    file.write_bytes(bytes(100_000_000))
    code = """
        import mmap

        class Own(Numpy):
            def configure(self):
                with open(FILE, "rb") as file:
                    self.pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
                bytes(self.pages[::4096])
            def operation(self, case, function, arrays):
                self.pages.madvise(mmap.MADV_DONTNEED)
                def call(): return np.full(200_000_000 // 8, 1.0).sum(keepdims=True)
                return Work({"forward": Phase(call)}, lambda *a: None, lambda p, r: {"output0": r})
        """
    worker = start(adapter(tmp_path, code.replace("FILE", repr(str(file)))))
    prepare(worker, TANH, save(x=np.ones((4, 5))))
    answer = worker.ask("memory", phase="forward")
    assert answer["resident"] == pytest.approx(200e6, rel=0.05)


@pytest.mark.parametrize(("op", "attrs", "arrays"), [("sum", {"dim": -1}, 1), ("exp", {}, 2)])
def test_memory_is_that_of_inputs_and_results_and_of_no_copies_of_the_worker(
    start: Start, save: Save, op: str, attrs: dict[str, int], arrays: int
) -> None:
    """A sum holds its input, a power of e its result too; the worker loads both several times."""
    x = np.ones((4096, 4096), np.float32)
    worker = start("numpy")
    prepare(worker, Case("operator", op, (Array("x", x.shape),), attrs), save(x=x))
    worker.ask("feed", arrays=save(x=x), cotangents=[])
    answer = worker.ask("memory", phase="forward")
    assert answer["resident"] == pytest.approx(arrays * x.nbytes, rel=0.05)


CHILD = """
        import subprocess, sys

        class Own(Numpy):
            def operation(self, case, function, arrays):
                child = subprocess.Popen(
                    [sys.executable, "-c", CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                child.stdout.readline()
                self.child = child
                call = lambda: np.ones(1)
                return Work({"forward": Phase(call)}, lambda *a: None, lambda p, r: {"output0": r})
        """


def test_memory_of_processes_below_is_its_own(start: Start, save: Save, tmp_path: Path) -> None:
    code = "x = b'1' * 200_000_000; print(flush=True); input()"
    worker = start(adapter(tmp_path, CHILD.replace("CODE", repr(code))))
    prepare(worker, TANH, save(x=np.ones((4, 5))))
    answer = worker.ask("memory", phase="forward")
    assert 200e6 < answer["resident"] < 240e6  # with the interpreter of the child


def test_work_of_processes_below_is_its_own(start: Start, save: Save, tmp_path: Path) -> None:
    code = "print(flush=True)\nwhile True: pass"
    worker = start(adapter(tmp_path, CHILD.replace("CODE", repr(code))))
    prepare(worker, TANH, save(x=np.ones((4, 5))))
    before, end = worker.busy_elsewhere(), time.monotonic() + 10
    while worker.busy_elsewhere() < before + 0.02 and time.monotonic() < end:
        worker.ask("repeat", phase="forward", calls=1, folder=None)
    assert worker.busy_elsewhere() >= before + 0.02


class Idle(Worker):
    """A worker that does little itself, and has two processors busy elsewhere."""

    def send(self, do: str, **arguments: Any) -> None:
        """Hear nothing."""

    def receive(self, timeout: float | None = None) -> dict[str, Any]:
        time.sleep(0.01)
        return {"samples": [1e-3], "units": 1, "cores": [0.1] * CORES_LOOPS}

    def busy_elsewhere(self) -> float:
        return 2 * time.perf_counter()


def test_processors_that_are_busy_elsewhere_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tapegrad.bench.machine.usable", lambda: {0, 1, 2, 3})
    unused: Any = ()
    probe = Probe(Idle(), TANH, "forward", "float32", 1, tmp_path, unused)
    probe._trial = {"samples": [1e-3], "units": 1, "cores": 0.1}
    finding = cores(probe)
    assert finding is not None and finding.reason == "kept 2.1 processors busy, 1 allowed"


class Modest(Idle):
    """A worker that says little of what it does itself: two processors are busy."""

    def busy_elsewhere(self) -> float:
        return 0.0

    def busy(self) -> float:
        return 2 * time.perf_counter()


def test_processors_count_that_a_worker_does_not_tell_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tapegrad.bench.machine.usable", lambda: {0, 1, 2, 3})
    unused: Any = ()
    probe = Probe(Modest(), TANH, "forward", "float32", 1, tmp_path, unused)
    probe._trial = {"samples": [1e-3], "units": 1, "cores": 0.1}
    finding = cores(probe)
    assert finding is not None and finding.reason == "kept 2.0 processors busy, 1 allowed"


class Gathering(Idle):
    """A worker that picks a few rows of many: those that it has just seen are in its cache."""

    times: ClassVar[dict[str, float]] = {"fresh": 130e-6, "again": 8e-6, "warm": 8e-6}

    def __init__(self, cold: float) -> None:
        self.cold = cold

    def ask(self, do: str, timeout: float | None = None, **arguments: Any) -> dict[str, Any]:
        if do == "time":
            seconds = self.cold if arguments.get("cold") else self.times["warm"]
            return {"samples": [seconds], "units": 1, "cores": 1.0}
        if do == "read":
            return {"read": 1e-5, "reading": 1e-6, "copying": 1e-6}
        return {"fresh": self.times["fresh"], "again": self.times["again"]}

    def busy(self) -> float:
        return 0.0

    busy_elsewhere = busy


@pytest.mark.parametrize(
    ("cold", "rows", "trusted"), [(70e-6, 2048, True), (70e-6, 64, False), (15e-6, 2048, False)]
)
def test_new_inputs_may_take_what_others_take_that_no_cache_holds(
    cold: float, rows: int, trusted: bool, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", np.zeros((rows, 1024), "float32"))
    given: Any = (InputSet({"x": str(tmp_path / "x.npy")}, [], Truth({}, [], ("", ""))),)
    probe = Probe(Gathering(cold), TANH, "forward", "float32", 1, tmp_path, given)
    probe._first = {"y": np.zeros(1024, "float32")}
    assert (fresh(probe) is None) == trusted


class Fetching(Idle):
    """A worker on a GPU whose results take longer to fetch than a call, now more and now less."""

    def __init__(self, call: float, told: float) -> None:
        self.call, self.told = call, told
        self.loops = 0
        self.asked = ""
        self.calls = 0

    def send(self, do: str, **arguments: Any) -> None:
        self.asked, self.calls = do, arguments.get("calls", 0)

    def receive(self, timeout: float | None = None) -> dict[str, Any]:
        if self.asked == "repeat":
            self.loops += 1
            time.sleep(self.calls * self.call + (0.1 if self.loops <= 5 else 0.13))
        return {"samples": [self.told], "units": 1, "cores": 1.0, "arrays": {}}

    def busy(self) -> float:
        return 0.0

    busy_elsewhere = busy


@pytest.mark.parametrize(("call", "told", "trusted"), [(2e-3, 2e-3, True), (2e-3, 5e-4, False)])
def test_what_a_gpu_takes_to_hand_over_is_no_part_of_a_call(
    call: float, told: float, trusted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tapegrad.bench.guards.SLOW_SECONDS", 0.01)
    unused: Any = ()
    worker = Fetching(call, told)
    probe = Probe(worker, TANH, "forward", "float32", 1, tmp_path, unused, device="cuda")
    probe._first = {"y": np.broadcast_to(np.float32(0), (5_000_000,))}
    finding = clock(probe)
    assert worker.loops > 4  # the first attempt saw the slower of the loops
    assert (finding is None) == trusted


def test_processors_of_a_block_are_those_that_the_system_counts() -> None:
    worker = Modest()
    watch = Watch(worker)
    with watch.elsewhere():
        pass
    worker.receive()
    watch.stop()
    assert 1.5 < watch.cores(Block("case", "own", "forward", 0, 0, [1e-3], cores=0.1)) < 3


@LINUX
def test_the_work_of_a_worker_is_counted_whatever_it_says(
    start: Start, save: Save, tmp_path: Path
) -> None:
    body = """
        class Own(Numpy):
            def configure(self): time.process_time = lambda: 0.0
    """
    worker = start(adapter(tmp_path, body))
    prepare(worker, TANH, save(x=np.ones((4, 5))))
    before = worker.busy()
    answer = worker.ask("time", phase="forward", seconds=0.02)
    assert answer["cores"] == 0.0
    assert worker.busy() - before > 0.01


def test_inputs_never_seen_before_are_others_in_each_process(save: Save) -> None:
    """Nobody can have prepared the answers."""
    seen = []
    for _ in range(2):
        adapter = _Keeps("cpu", 1)
        session = Session(adapter)
        session.do_prepare(TANH.as_dict(), save(x=np.ones((4, 5))))
        session.do_fresh("forward", 1)
        seen.append(adapter.fed[1])
    assert not np.array_equal(*seen)


class _Keeps(Numpy):
    """Keeps what it is fed."""

    def operation(self, case: Case, function: Any, arrays: Any) -> Work:
        work = super().operation(case, function, arrays)
        self.fed = [arrays["x"]]

        def feed(arrays: Any, cotangents: Any) -> None:
            self.fed.append(np.array(arrays["x"]))
            work.feed(arrays, cotangents)

        return replace(work, feed=feed)


def test_torch_memory_of_a_large_operator(start: Start, save: Save, tmp_path: Path) -> None:
    """Of x · y over 64 MB arrays there are inputs, result, cotangent and two gradients."""
    shape = (4096, 4096)
    case = Case("operator", "mul", (Array("x", shape), Array("y", shape)))
    x = np.ones(shape, np.float32)
    worker = start("torch")
    prepare(worker, case, save(x=x, y=x))
    worker.ask("feed", arrays=save(x=x, y=x), cotangents=list(save(c=x).values()))
    answer = worker.ask("memory", phase="backward")
    assert answer["resident"] == pytest.approx(6 * x.nbytes, rel=0.05)


def test_threads_are_pinned(start: Start) -> None:
    assert start("torch", threads=1).hello["details"]["threads"] == 1


def test_the_worker_side_needs_numpy_only() -> None:
    """Another Python with another NumPy must be able to run it: no engine, no driver."""
    code = """
        import sys
        import tapegrad.worker.session, tapegrad.worker.__main__
        taken = {name.partition(".")[0] for name in sys.modules}
        print(sorted(taken & {"msgspec", "scipy", "sqlalchemy", "rich", "typer", "psutil"}))
        ours = "tapegrad._core", "tapegrad.bench"
        print([name for name in sys.modules if name.startswith(ours)])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[:2] == ["[]", "[]"]


def test_adapter_files_are_read_without_being_imported(tmp_path: Path) -> None:
    file = tmp_path / "other.py"
    file.write_text('raise RuntimeError\nADAPTERS = {"other": "Other"}\nREQUIRES = ["x"]\n')
    contender = find(str(file))
    assert (contender.name, contender.adapter, contender.requires) == ("other", "Other", ("x",))
    assert find(f"{file}@2").threads == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "TypeError: x is no function\n    at run (w.mjs:3)\n\nNode.js v20.11.0\n",
            "TypeError: x is no",
        ),
        (
            "thread 'main' panicked at w.rs:2\nnote: run with RUST_BACKTRACE=1\n",
            "thread 'main' pan",
        ),
        ("w: error: no such option\nusage: w\n", "w: error: no such option"),
        ("sh: 1: cannot open x: No such file\nbye\n", "sh: 1: cannot open x"),
        ("one\ntwo\n\nthree\nfour\n", "two / three / four"),
        ("0 errors_found\nlast\n", "0 errors_found / last"),
        ("", ""),
    ],
)
def test_of_last_words_those_that_tell_something_are_quoted(text: str, told: str) -> None:
    found = telling(text.splitlines())
    assert found.startswith(told) and bool(found) == bool(told)


def test_a_crash_quotes_the_error_and_not_what_follows_it(start: Start, tmp_path: Path) -> None:
    own = adapter(
        tmp_path,
        """
        class Own(Numpy):
            def operation(self, case, function, arrays):
                print("SomeError: the reason\\n    at line 3\\n\\nRuntime v20", file=sys.stderr)
                sys.stderr.flush()
                os._exit(1)
        """,
    )
    x = tmp_path / "x.npy"
    np.save(x, np.ones((4, 5), np.float32))
    with pytest.raises(WorkerError, match=r"exit code 1: SomeError: the reason$"):
        prepare(start(own), TANH, {"x": str(x)})
