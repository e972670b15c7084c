"""Workers may answer anything: it costs them their cell, never the run."""

from __future__ import annotations

import os
import signal
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from tapegrad.bench import answers, process
from tapegrad.bench.errors import WorkerError
from tapegrad.bench.frameworks import find
from tapegrad.bench.machine import usable
from tapegrad.bench.process import WorkerProcess

from .conftest import Start
from .test_measurement import OPERATION, run, verdicts
from .test_worker import adapter

TIME = {
    "samples": [1e-3],
    "inner": 1,
    "units": 1,
    "controls": {"copy": 1e-3},
    "warmup_calls": 0,
    "stationary": True,
    "cores": 1.0,
}
PREPARE: dict[str, Any] = {
    "phases": ["forward"],
    "looped": ["forward"],
    "joint": False,
    "precision": None,
    "notes": [],
}


def huge(path: Path) -> None:
    """Write the header of more numbers than there are."""
    header = {"descr": "<f8", "fortran_order": False, "shape": (1 << 45,)}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.write(bytes(64))


def zipped(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, output0=np.ones(3))


def cut(path: Path) -> None:
    np.save(path, np.ones(100))
    path.write_bytes(path.read_bytes()[:-8])


def bad_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x", "y")
    path.write_bytes(path.read_bytes()[:20])


BAD_FILES: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "of no bytes": Path.touch,
    "zipped": zipped,
    "bad zip": bad_zip,
    "text": lambda path: path.write_text("[1, 2, 3]"),
    "of an odd header": lambda path: path.write_bytes(b"\x93NUMPY\x01\x00\x06\x00{'a':("),
    "huge": huge,
    "cut": cut,
    "fifo": os.mkfifo,
    "folder": Path.mkdir,
    "of objects": lambda path: np.save(path, np.array([1, None]), allow_pickle=True),
    "of texts": lambda path: np.save(path, np.array(["a"])),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_bad_file_is_failed(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "output0.npy"
    BAD_FILES[kind](path)
    with pytest.raises(WorkerError, match="output0 ") as caught:
        answers.load({"arrays": {"output0": str(path)}})
    assert caught.value.kind == "failed"


def test_a_file_that_memory_does_not_hold_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "x.npy", np.ones(1000))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=4096))
    with pytest.raises(WorkerError, match=r"takes 7\.81 KiB, and 4\.00 KiB of memory are free"):
        answers.load({"arrays": {"x": str(tmp_path / "x.npy")}})


@pytest.mark.parametrize("path", ["a\0b", "\ud800.npy", "/dev/zero", ""])
def test_a_bad_path_is_failed(path: str) -> None:
    with pytest.raises(WorkerError) as caught:
        answers.load({"arrays": {"output0": path}})
    assert caught.value.kind == "failed"
    str(caught.value).encode()


@pytest.mark.parametrize("array", [np.ones((2, 3)), np.zeros((0, 3)), np.array(1.5), np.arange(3)])
def test_a_good_file_is_read(array: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.asfortranarray(array))
    found = answers.load({"arrays": {"x": str(tmp_path / "x.npy")}})["x"]
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize(
    "change",
    [
        {"inner": 0},
        {"inner": (1 << 31) + 1},
        {"inner": 1.5},
        {"units": 0},
        {"units": -3},
        {"units": 10**30},
        {"controls": {"copy": 0.0}},
        {"controls": {"copy": float("inf")}},
        {"controls": {"copy": float("nan")}},
        {"cores": -0.1},
        {"cores": float("inf")},
        {"cores": float("nan")},
        {"warmup_calls": -1},
        {"warmup_calls": 10**30},
        {"samples": []},
        {"samples": [float("nan")]},
        {"samples": [1e-3, float("inf")]},
    ],
)
def test_times_out_of_bounds_are_rubbish(change: dict[str, object]) -> None:
    assert answers.check("time", TIME) == TIME
    with pytest.raises(WorkerError, match="answered `time` with rubbish") as caught:
        answers.check("time", TIME | change)
    assert caught.value.kind == "failed"


@pytest.mark.parametrize("wrong", [-1e-9, float("nan"), float("inf")])
@pytest.mark.parametrize(
    ("do", "answer"),
    [
        ("read", {"read": 1e-3, "reading": 0.0, "copying": 1e-3}),
        ("read", {"read": 1e-3, "reading": 0.0, "copying": 1e-3, "alone": 1e-3}),
        ("fresh", {"fresh": 1e-3, "again": 0.0}),
    ],
)
def test_costs_below_zero_are_rubbish(do: str, answer: dict[str, float], wrong: float) -> None:
    assert answers.check(do, answer) == answer
    for name in answer:
        with pytest.raises(WorkerError, match=f"answered `{do}` with rubbish"):
            answers.check(do, answer | {name: wrong})


@pytest.mark.parametrize("found", [[], [-0.1], [1.0, float("nan")]])
def test_processors_below_zero_are_rubbish(found: list[float]) -> None:
    answers.check("cores", {"cores": [0.0, 1.5]})
    with pytest.raises(WorkerError, match="answered `cores` with rubbish"):
        answers.check("cores", {"cores": found})


def test_a_precision_below_that_of_cases_buys_no_tolerance() -> None:
    for precision in (None, "float32", "float64"):
        answers.check("prepare", PREPARE | {"precision": precision})
    with pytest.raises(WorkerError, match="rubbish"):
        answers.check("prepare", PREPARE | {"precision": "float16"})


ODD_TEXTS = """
    class Own(Numpy):
        def version(self): return "1\\ud800"
        def details(self): return {"a\\0": ["b\\udfff", {"c": "\\0"}]}
        def operation(self, case, function, arrays):
            work = super().operation(case, function, arrays)
            if "FAIL" == "yes": raise ValueError("oh\\0\\ud800")
            return Work(work.phases, work.feed, work.arrays, notes=["n\\0\\ud800"])
"""


TIMES = """
    class Own(Numpy):
        def elapsed(self, call, calls):
            return float("{}") if calls > 1 else super().elapsed(call, calls)
"""


@pytest.mark.parametrize(
    ("seconds", "verdict", "reason"),
    [("inf", "failed", "rubbish"), ("1e-310", "mistrusted", "as reported")],
)
def test_a_time_that_nothing_takes_costs_its_own_cell_only(
    tmp_path: Path, seconds: str, verdict: str, reason: str
) -> None:
    results = run(tmp_path, TIMES.format(seconds))
    assert verdicts(results)["own"][0] == verdict
    assert reason in verdicts(results)["own"][1]
    assert verdicts(results)["numpy"][0] == "checked"


FEW_CORES = """
    from tapegrad.worker.session import Session
    Session.do_cores = lambda self, phase, calls, count: {"cores": [1.0]}
    Own = Numpy
"""


@pytest.mark.skipif(len(usable()) < 2, reason="needs a processor that could be stolen")
def test_too_few_counts_of_processors_cost_their_own_cell_only(tmp_path: Path) -> None:
    results = run(tmp_path, FEW_CORES)
    assert verdicts(results)["own"] == ("failed", "answered `cores` with 1 number for 16 loops")
    assert verdicts(results)["numpy"][0] == "checked"


@pytest.mark.parametrize("fails", ["yes", "no"])
def test_odd_characters_do_not_end_a_run(tmp_path: Path, fails: str) -> None:
    results = run(tmp_path, ODD_TEXTS.replace("FAIL", fails))
    own = next(each for each in results.frameworks if each.name == "own")
    assert own.version == "1\ufffd"
    assert own.details["a\ufffd"] == ["b\ufffd", {"c": "\ufffd"}]
    cell = next(each for each in results.cells if each.framework == "own")
    if fails == "yes":
        assert (cell.verdict, cell.reason) == ("failed", "ValueError: oh\ufffd\ufffd")
    else:
        assert (cell.verdict, cell.notes) == ("checked", ["n\ufffd\ufffd"])


def test_an_answer_of_endless_depth_is_rubbish(tmp_path: Path) -> None:
    body = """
        import json
        json.dumps = lambda answer: "[" * 200_000
        Own = Numpy
    """
    with pytest.raises(WorkerError, match="answered `hello` with rubbish"):
        WorkerProcess(
            find(adapter(tmp_path, body)), tmp_path, threads=1, device="cpu", timeout=30.0
        )


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ("Work({'forward': Phase(lambda: kept[0], setup=ahead)}, work.feed, work.arrays)",
         "does something before the clock starts"),
        ("Work({'forward': Phase(call, units=10)}, work.feed, work.arrays)",
         "counts one call as 10 units of work, not 1"),
    ],
)  # fmt: skip
def test_work_outside_the_clock_is_mistrusted(tmp_path: Path, changed: str, reason: str) -> None:
    body = OPERATION.format(changed=changed).replace(
        "            return",
        "            kept, call = [], work.phases['forward'].call\n"
        "            def ahead(): kept[:] = [call()]\n"
        "            return",
    )
    results = run(tmp_path, body)
    verdict, said = verdicts(results)["own"]
    assert verdict == "mistrusted" and said.startswith(reason)
    assert verdicts(results)["numpy"][0] == "checked"
    assert {block.framework for block in results.blocks} == {"numpy"}


def test_a_start_that_is_interrupted_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(process.WorkerProcess, "receive", interrupted)
    before = {each.pid for each in psutil.Process().children()}
    with pytest.raises(KeyboardInterrupt):
        WorkerProcess(find("numpy"), tmp_path, threads=1, device="cpu", timeout=30.0)
    assert {each.pid for each in psutil.Process().children()} == before


SECOND = """
    import os, sys, time
    class Own(Numpy):
        def operation(self, case, function, arrays):
            work = super().operation(case, function, arrays)
            call, calls = work.phases["forward"].call, []
            def forward():
                calls.append(1)
                if len(calls) == 2: {what}
                return call()
            return Work({{"forward": Phase(forward)}}, work.feed, work.arrays)
"""


@pytest.mark.parametrize(
    ("what", "verdict", "reason"),
    [
        ("os._exit(3)", "crashed", "exit code 3"),
        ("time.sleep(600)", "timeout", "no answer to `time` within 3 s"),
        ("os.closerange(1, 64); time.sleep(600)", "crashed", "closed its output"),
    ],
)
def test_a_worker_that_fails_at_a_second_look_costs_its_own_cell_only(
    tmp_path: Path, what: str, verdict: str, reason: str
) -> None:
    results = run(tmp_path, SECOND.format(what=what), timeout=3.0)
    found = verdicts(results)
    assert found["own"][0] == verdict and reason in found["own"][1]
    assert found["numpy"][0] == "checked"


def test_a_worker_that_does_not_read_is_given_up(start: Start) -> None:
    worker = start("numpy", timeout=1.0)
    os.kill(worker._process.pid, signal.SIGSTOP)
    with pytest.raises(WorkerError, match="did not read `prepare` within 1 s") as caught:
        worker.ask("prepare", case={"name": "x" * 1_000_000}, arrays={})
    assert caught.value.kind == "timeout" and not worker.alive


def test_a_worker_leaves_sigterm_to_the_driver(start: Start) -> None:
    worker = start("numpy")
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(worker._process.pid, number)
    assert worker.ask("forget") == {}
