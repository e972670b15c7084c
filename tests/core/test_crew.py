"""Threads that help with batches: who calls them, how many there are, and when nobody waits."""

from __future__ import annotations

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tapegrad as tg

ROWS = 4_000
STRESS = Path(__file__).parent / "crew_stress.cpp"
CORE = Path(__file__).parents[2] / "core"


def heavy(inputs: int = 8) -> tg.Program:
    """Returns a program that is worth several threads at so many rows."""
    x = tg.Graph().inputs(inputs)
    terms = [tg.sin(a * k) * tg.exp(-a / k) for a in x for k in range(1, 60)]
    return tg.compile(tg.sum(terms), wrt=x)


def points(rows: int = ROWS, inputs: int = 8, seed: int = 0) -> NDArray[Any]:
    return np.random.default_rng(seed).uniform(-1, 1, (rows, inputs))


def test_batches_at_once_share_the_helpers() -> None:
    program = heavy()
    rows = [points(seed=seed) for seed in range(6)]
    want = [program.batch(each, threads=1) for each in rows]

    def work(number: int) -> bool:
        got = program.batch(rows[number % 6], threads=2 + number % 3)
        return all(map(np.array_equal, got, want[number % 6]))

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(60)))


def test_a_batch_within_a_batch_ends() -> None:
    inner = heavy()
    rows = points()
    want = inner.batch(rows, threads=1)[0].sum()

    def again(a: Any) -> Any:
        return a + inner.batch(rows, threads=2)[0].sum()

    x = tg.Graph().inputs(1)
    twice = tg.custom(again, vjp=lambda a, g: g)
    outer = tg.compile(twice(x[0]) + tg.sum([tg.sin(x[0] * k) for k in range(400)]))
    line = np.linspace(0, 1, 2_000)[:, None]
    plain = np.sin(line * np.arange(400)).sum(1) + line[:, 0] + want
    np.testing.assert_allclose(outer.batch(line, threads=3).ravel(), plain, rtol=1e-9)


def test_what_a_helper_raises_is_raised_by_the_batch() -> None:
    def picky(a: Any) -> Any:
        if (a > 0.999).any():
            raise LookupError("too large")
        return a

    x = tg.Graph().inputs(1)
    program = tg.compile(
        tg.custom(picky, vjp=lambda a, g: g)(x[0]) + tg.sum([tg.sin(x[0] * k) for k in range(400)])
    )
    line = np.linspace(0, 1, 20_000)[:, None]
    for _ in range(20):
        with pytest.raises(LookupError, match="too large"):
            program.batch(line, threads=3)
    assert np.isfinite(program.batch(line / 2, threads=3)).all()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts threads in /proc")
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_there_are_no_more_threads_than_asked_for(threads: int) -> None:
    code = (
        "import os, numpy as np, tapegrad as tg\n"
        "x = tg.Graph().inputs(8)\n"
        "f = tg.compile(tg.sum([tg.sin(a * k) for a in x for k in range(60)]), wrt=x)\n"
        "before = len(os.listdir('/proc/self/task'))\n"
        f"for _ in range(20): f.batch(np.ones(({ROWS}, 8)), threads={threads})\n"
        "print(len(os.listdir('/proc/self/task')) - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == threads - 1


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a compiler")
def test_threads_race_for_nothing(tmp_path: Path) -> None:
    program = tmp_path / "stress"
    options = ["-std=c++20", "-O1", "-g", "-fsanitize=thread", "-pthread", f"-I{CORE}"]
    subprocess.run(["g++", *options, STRESS, CORE / "crew.cpp", "-o", program], check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 wrong\n", "")
