"""Programs in forked children, also where other threads were at work."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tapegrad as tg

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]

POINT = np.array([0.3, -0.8, 1.7])


def new_program() -> tg.Program:
    x = tg.Graph().inputs(3)
    return tg.compile(tg.exp(x[0]) * x[2] + tg.logsumexp(x) * tg.softmax(x)[1], wrt=x)


def points(rows: int) -> NDArray[Any]:
    return np.random.default_rng(0).uniform(-1, 1, (rows, 3))


def in_child(work: Callable[[], bool], seconds: float = 20.0) -> int:
    """Runs work in a forked child; 0 if it returned true, negative if it never ended."""
    child = os.fork()
    if child == 0:
        status = 3
        try:
            status = 0 if work() else 1
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    late = threading.Timer(seconds, os.kill, [child, signal.SIGKILL])
    late.start()
    _, status = os.waitpid(child, 0)
    late.cancel()
    late.join()
    return os.waitstatus_to_exitcode(status)


@pytest.mark.parametrize("threads_before", [1, 2])
def test_a_forked_child_computes_the_same(threads_before: int) -> None:
    program = new_program()
    rows = points(20_000)
    want = program.batch(rows, threads=threads_before)
    single = program(POINT)
    starts = points(40)
    lowest = program.minimize(starts, "sgd", steps=5, lr=1e-3, threads=threads_before)

    def work() -> bool:
        right = program(POINT)[0] == single[0]
        for threads in (1, 2, None):
            got = program.batch(rows, threads=threads)
            right &= np.array_equal(got[0], want[0]) and np.array_equal(got[1], want[1])
        fresh = new_program().batch(rows, threads=2)
        right &= np.array_equal(fresh[0], want[0])
        again = program.minimize(starts, "sgd", steps=5, lr=1e-3, threads=2)
        return bool(right and np.array_equal(again.x, lowest.x))

    assert in_child(work) == 0
    assert in_child(work) == 0
    got = program.batch(rows, threads=2)
    np.testing.assert_array_equal(got[0], want[0])


def test_a_child_of_a_child_computes_the_same() -> None:
    program = new_program()
    rows = points(5000)
    want = program.batch(rows, threads=2)[0]

    def work() -> bool:
        return bool(np.array_equal(program.batch(rows, threads=2)[0], want))

    assert in_child(lambda: work() and in_child(work) == 0) == 0


def test_a_fork_while_machine_code_is_made() -> None:
    x = tg.Graph().inputs(20)
    nodes: list[tg.Var] = list(x)
    for i in range(40_000):
        nodes.append(nodes[-1 - i % 17] * 0.5 + nodes[-20] * 0.25)
    program = tg.compile(tg.sum(nodes), wrt=x)
    point = np.linspace(0, 1, 20)
    want = program(point)[0]

    def work() -> bool:
        program.prepare(points=10_000, rows=10_000)
        return bool(program(point)[0] == want and program.batch(point[None])[0][0] == want)

    maker = threading.Thread(target=lambda: program.prepare(points=10_000, rows=10_000))
    maker.start()
    time.sleep(0.002)
    assert in_child(work) == 0
    maker.join()
    assert work()


def test_a_fork_while_others_hold_locks() -> None:
    program = new_program()
    row = points(1)
    want = program.batch(row)[0]
    done = threading.Event()

    def hold() -> None:  # the lock of the program's workspaces, for much of the time
        while not done.is_set():
            program.batch(row, threads=1)

    threads = [threading.Thread(target=hold) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(400):
            assert in_child(lambda: bool(program.batch(row)[0] == want)) == 0
    finally:
        done.set()
        for thread in threads:
            thread.join()
