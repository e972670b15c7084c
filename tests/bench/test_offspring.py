"""Processes that a worker has started: none leaves it, works unseen or outlives it."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import psutil
import pytest

from tapegrad.bench.process import WorkerProcess

from .conftest import Start
from .test_worker import adapter

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the processes of others are in /proc")
#: Forks twice and begins a session of its own, so that it is nobody's child.
DETACH = """
        def detach(work):
            if (child := os.fork()):
                os.waitpid(child, 0)
                return
            os.setsid()
            if os.fork(): os._exit(0)
            open({file!r}, "w").write(str(os.getpid()))
            for number in range(64):
                try: os.close(number)
                except OSError: pass
            work()
            os._exit(0)
"""
ADAPTER = """
        class Own(Numpy):
            def configure(self): detach(lambda: [None for _ in iter(int, 1)])
"""
BARE = 'lambda: os.execve("/bin/sleep", ["sleep", "600"], {})'


def detached(tmp_path: Path, body: str) -> tuple[str, Path]:
    file = tmp_path / "number.txt"
    return adapter(tmp_path, DETACH.format(file=str(file)) + body), file


def number_in(file: Path) -> int:
    """Wait for a process to say who it is."""
    for _ in range(1000):
        if file.exists() and (text := file.read_text()):
            return int(text)
        time.sleep(0.01)
    raise AssertionError("it never started")


def gone(number: int) -> bool:
    """Tell whether a process has ended, or does so soon; nobody may have taken note of its end."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if psutil.Process(number).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.01)
    return False


@LINUX
def test_the_work_of_a_process_that_detached_itself_is_counted(
    start: Start, tmp_path: Path
) -> None:
    own, file = detached(tmp_path, ADAPTER)
    worker = start(own)
    number = number_in(file)
    before = worker.busy_elsewhere()
    deadline = time.monotonic() + 30
    while worker.busy_elsewhere() < before + 0.1 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert worker.busy_elsewhere() >= before + 0.1
    worker.kill()
    assert gone(number)


@LINUX
@pytest.mark.parametrize("end", ["kill", "close"])
def test_a_process_that_hides_its_origin_is_ended_too(
    start: Start, tmp_path: Path, end: str
) -> None:
    """It has neither the session nor the environment of the worker, but it has its parent."""
    own, file = detached(tmp_path, ADAPTER.replace("lambda: [None for _ in iter(int, 1)]", BARE))
    worker = start(own)
    number = number_in(file)
    getattr(worker, end)()
    assert gone(number)


@LINUX
def test_what_a_worker_that_died_has_started_is_ended(start: Start, tmp_path: Path) -> None:
    """Its children are others' by then: they are known by a variable."""
    own, file = detached(tmp_path, ADAPTER)
    worker = start(own)
    number = number_in(file)
    os.kill(psutil.Process(number).ppid(), 9)
    with pytest.raises(Exception, match="killed"):
        worker.ask("forget")
    assert gone(number)


@LINUX
def test_a_worker_in_another_language_is_followed_too(start: Start, tmp_path: Path) -> None:
    number = tmp_path / "number.txt"
    greeting = '{"version": "1", "python": "", "details": {}, "devices": ["cpu"]}'
    spinning = f"echo $$ > {number}; while :; do :; done"
    script = f"read line; setsid sh -c '({spinning}) &' ; echo '{greeting}'; read line"
    (tmp_path / "worker.sh").write_text(script)
    file = tmp_path / "shell.py"
    file.write_text('ADAPTERS = {"shell": "S"}\nCOMMAND = ["sh", "worker.sh"]\n')
    worker: WorkerProcess = start(str(file))
    number_in(number)
    spinner = worker._below()
    deadline = time.monotonic() + 30
    while worker.busy_elsewhere() < 0.1 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert worker.busy_elsewhere() >= 0.1
    worker.kill()
    assert spinner and all(map(gone, spinner))
