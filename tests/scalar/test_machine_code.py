"""Machine code, made after many evaluations, gives the bits of the other executors."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tapegrad as tg
from tapegrad.worker import graphs

#: Evaluations before and after which machine code is there, or not yet.
FEW_ROWS, MANY_ROWS, MANY_POINTS = 900, 1_100, 210
ASSEMBLED = {"avx512", "avx2"}
AVX2_CALLS = ("avx2", True)
DTYPES = ("float64", "float32")


def arithmetic(seed: int) -> tuple[list[tg.Var], Any]:
    """Make a graph of plain arithmetic at random, and its inputs."""
    random = np.random.default_rng(seed)
    x = tg.Graph().inputs(int(random.integers(1, 9)))
    nodes: list[tg.Var] = list(x)

    def several(most: int) -> list[tg.Var]:
        window = nodes[-40:] if random.random() < 0.7 else nodes
        return [window[i] for i in random.integers(len(window), size=random.integers(1, most))]

    def one() -> tg.Var:
        return nodes[-40:][int(random.integers(min(40, len(nodes))))]

    def products() -> tg.Var:
        terms = several(40)
        return tg.dot(terms, [one() for _ in terms]) * 0.01  # type: ignore[no-any-return]

    makers: list[Callable[[], tg.Var]] = [
        lambda: one() + one(),
        lambda: one() * one(),
        lambda: one() - one(),
        lambda: one() - one() * one(),
        lambda: one() * one() - one(),
        lambda: one() / (tg.square(one()) + 1.5),
        lambda: -one(),
        lambda: tg.square(one()),
        lambda: tg.sqrt(tg.square(one()) + 0.5),
        lambda: tg.sum(several(60)) * 0.05,
        products,
        lambda: tg.sum(several(8)) + products(),
        lambda: one() * float(random.normal()) + float(random.normal()),
    ]
    for _ in range(int(random.integers(1, 300))):
        nodes.append(makers[int(random.integers(len(makers)))]())
    return nodes, x


def points_for(n: int, rows: int, dtype: str) -> NDArray[Any]:
    """Draw points, some of them at the ends of what numbers can be."""
    points = np.random.default_rng(rows).normal(size=(rows, n))
    points[:7, 0] = [np.nan, np.inf, -np.inf, -0.0, 5e-324, 1e300, 1e-40]
    points[7] = 1e-310
    with np.errstate(over="ignore"):
        return points.astype(dtype)


def assert_same_bits(found: Any, want: Any) -> None:
    for first, second in zip(found, want, strict=True):
        a, b = np.atleast_1d(first), np.atleast_1d(second)
        np.testing.assert_array_equal(a, b)
        finite = ~np.isnan(a)
        np.testing.assert_array_equal(np.signbit(a[finite]), np.signbit(b[finite]))


def forbid() -> None:
    """Choose the instruction set that has no machine code."""
    if "baseline" not in tg.isas():
        pytest.skip("this build has no baseline")
    tg.set_isa("baseline")


def check(program: tg.Program, points: NDArray[Any], isa: str, calls: bool = False) -> None:
    """Compare rows and points, before and after there is machine code.

    What calls kernels is made for whole slots only, which AVX2 has no vectors for.
    """
    few = points[:24]
    rows = program.batch(points[:FEW_ROWS], threads=1)
    singles = [program(point) for point in few]
    assert not program.stats["row_code_bytes"]
    assert not program.stats["point_code_bytes"]
    later = program.batch(points, threads=2)
    for _ in range(MANY_POINTS):
        program(few[0])
    assert bool(program.stats["row_code_bytes"]) == (
        isa in ASSEMBLED and (isa, calls) != AVX2_CALLS
    )
    assert bool(program.stats["point_code_bytes"]) == (isa in ASSEMBLED)
    assert_same_bits([part[:FEW_ROWS] for part in later], rows)
    for row, (before, point) in enumerate(zip(singles, few, strict=True)):
        after = program(point)
        assert_same_bits(after, before)
        assert_same_bits(after, [part[row] for part in later])


@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", range(60))
def test_arithmetic_has_the_same_bits(seed: int, dtype: str, isa: str) -> None:
    nodes, x = arithmetic(seed)
    outputs = [nodes[-1], nodes[len(nodes) // 2], x[0], nodes[-1]]
    program = tg.compile(outputs, wrt=x, dtype=dtype)
    check(program, points_for(len(x), MANY_ROWS, dtype), isa)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_ops", [100, 3_000])
def test_large_programs_have_the_same_bits(n_ops: int, dtype: str, isa: str) -> None:
    ops = graphs.cheap(n_ops)
    x = tg.Graph().inputs(ops.n_inputs)
    nodes: list[tg.Var] = list(x)
    for op in ops.ops:
        ins = [nodes[i] for i in op.ins]
        nodes.append(tg.sum(ins) if op.kind is graphs.Kind.SUM else ins[0] * ins[1])
    program = tg.compile([tg.sum(nodes)], wrt=x, dtype=dtype)
    check(program, points_for(len(x), MANY_ROWS, dtype), isa)


FUNCTIONS: list[Callable[[list[tg.Var]], tg.Var]] = [
    lambda v: tg.sin(v[0]),
    lambda v: tg.sin(v[0]) * tg.cos(v[0]),  # computed together
    lambda v: tg.exp(-tg.square(v[0])),
    lambda v: tg.softplus(v[0]),
    lambda v: tg.tanh(v[0]),
    lambda v: tg.maximum(v[0], v[1]),
    lambda v: tg.where(v[0] > v[1], v[0], v[2] * 0.5),
    lambda v: tg.prod(v[:5]) * 1e-3,
    lambda v: tg.max(v[:4]),
    lambda v: abs(v[0]),
]


@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", range(12))
def test_some_functions_are_left_to_kernels(seed: int, dtype: str, isa: str) -> None:
    random = np.random.default_rng(seed)
    x = tg.Graph().inputs(5)
    nodes: list[tg.Var] = list(x)
    for _ in range(12):
        drawn = [nodes[i] for i in random.permutation(len(nodes))[:5]]
        function = FUNCTIONS[int(random.integers(len(FUNCTIONS)))]
        neighbours = [function(drawn[i:] + drawn[:i]) for i in range(int(random.integers(1, 5)))]
        nodes += neighbours[: 1 + seed % 4]
    for _ in range(1_500):
        a, b, c = (nodes[i] for i in random.integers(max(0, len(nodes) - 60), len(nodes), size=3))
        nodes.append(0.4 * a + 0.3 * b * c - 0.2 * tg.square(c))
    program = tg.compile([tg.sum(nodes), nodes[7]], wrt=x, dtype=dtype)
    check(program, points_for(len(x), MANY_ROWS, dtype), isa, calls=True)


@pytest.mark.parametrize(
    "outputs",
    [
        lambda x: [x[0], x[0] * x[1]],
        lambda x: [x[0] * 0.0 + 3.0, x[1]],
        lambda x: [x[0] + x[1], x[0] + x[1]],
        lambda x: [tg.square(x[0]) - tg.square(x[0]) * x[0]],
        lambda x: [tg.dot(list(x) * 40, list(x) * 40)],
        lambda x: [tg.sum([x[0]] * 3 + [x[1]] * 30)],
        lambda x: [(x[0] - x[1]) / (x[0] - x[1])],
    ],
)
def test_operands_that_are_repeated_inputs_or_outputs(outputs: Any, isa: str) -> None:
    x = tg.Graph().inputs(2)
    check(tg.compile(outputs(x), wrt=x), points_for(2, MANY_ROWS, "float64"), isa)


def test_sums_over_rows_and_shared_inputs(isa: str) -> None:
    x = tg.Graph().inputs(3)
    program = tg.compile(tg.square(x[0] * x[2] + x[1] - x[2] * x[2]), wrt=x[:2])
    rows = np.random.default_rng(0).normal(size=(5_000, 1))
    shared = {0: 0.5, 1: -1.5}
    first = program.batch(rows[:500], shared=shared, reduce="sum")
    for _ in range(3):
        total = program.batch(rows, shared=shared, reduce="sum")
    again = program.batch(rows[:500], shared=shared, reduce="sum")
    assert_same_bits(again, first)
    forbid()
    assert_same_bits(total, program.batch(rows, shared=shared, reduce="sum"))


def test_squares_of_several_residuals_are_summed_in_the_same_order(isa: str) -> None:
    x = tg.Graph().inputs(9)
    waves = [tg.square(x[i] * x[8]) - x[i + 1] * x[8] for i in range(7)]
    residuals = [tg.dot(waves, waves[k:] + waves[:k]) - k for k in range(4)]
    program = tg.compile(residuals, wrt=x[:8])
    random = np.random.default_rng(0)
    rows, starts = random.normal(size=(100, 1)), random.normal(size=(20, 8))
    copies = [tg.Program.from_bytes(program.to_bytes()) for _ in starts]  # each begins anew
    program.prepare(rows=10_000)
    assert bool(program.stats["row_code_bytes"]) == (isa in ASSEMBLED)
    for copy, start in zip(copies, starts, strict=True):
        want = copy.minimize(start, "lm", rows=rows, steps=4)
        assert not copy.stats["row_code_bytes"]
        found = program.minimize(start, "lm", rows=rows, steps=4)
        assert_same_bits([found.value, found.x], [want.value, want.x])


@pytest.mark.parametrize("starts", [1, 20])
@pytest.mark.parametrize("method", ["sgd", "adam", "lbfgs"])
def test_descents_take_the_same_steps(method: Any, starts: int, isa: str) -> None:
    x = tg.Graph().inputs(20)
    valley = tg.sum(100 * tg.square(x[1:] - tg.square(x[:-1])) + tg.square(1 - x[:-1]))
    x0 = np.random.default_rng(1).uniform(0, 0.5, size=(starts, 20))
    start = x0[0] if starts == 1 else x0
    # Each compares with a program of its own, which has not run yet.
    found = tg.compile(valley, wrt=x).minimize(start, method, steps=1_500)
    forbid()
    want = tg.compile(valley, wrt=x).minimize(start, method, steps=1_500)
    np.testing.assert_array_equal(found.x, want.x)
    np.testing.assert_array_equal(found.value, want.value)


def test_many_functions_stay_with_the_kernels() -> None:
    x = tg.Graph().inputs(2)
    program = tg.compile(tg.exp(x[0]) * x[1], wrt=x)
    program.batch(np.ones((5_000, 2)))
    assert not program.stats["row_code_bytes"]
    assert "machine code  none so far" in program.explain()


def test_explain_tells_of_machine_code() -> None:
    if tg.isa() not in ASSEMBLED:
        pytest.skip("machine code is made for AVX2 and AVX-512")
    x = tg.Graph().inputs(2)
    program = tg.compile(x[0] * x[1], wrt=x)
    program.batch(np.ones((5_000, 2)))
    assert f"{program.stats['row_code_bytes']:,} bytes for rows" in program.explain()
    copy = pickle.loads(pickle.dumps(program))  # a copy begins anew
    assert not copy.stats["row_code_bytes"]


def test_many_threads_meet_the_moment_when_it_is_made() -> None:
    nodes, x = arithmetic(5)
    program = tg.compile(nodes[-1], wrt=x)
    points = np.random.default_rng(0).normal(size=(400, len(x)))
    want = program.batch(points[:50], threads=1)
    found: list[Any] = []

    def work() -> None:
        for _ in range(30):
            found.append(program.batch(points[:50], threads=1))
            program(points[0])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 240
    for each in found:
        assert_same_bits(each, want)


def test_those_who_ask_at_the_same_time_all_have_it() -> None:
    if tg.isa() not in ASSEMBLED:
        pytest.skip("machine code is made for AVX2 and AVX-512")
    x = tg.Graph().inputs(20)
    nodes: list[tg.Var] = list(x)
    for i in range(20_000):
        nodes.append(nodes[-1 - i % 17] * 0.5 + nodes[-20] * 0.25)
    program = tg.compile(tg.sum(nodes), wrt=x)
    barrier = threading.Barrier(4)
    found: list[int] = []

    def work() -> None:
        barrier.wait()
        program.prepare(rows=10_000)
        found.append(program.stats["row_code_bytes"])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(found)


def test_it_can_be_forbidden() -> None:
    text = (
        "import numpy as np, tapegrad as tg\n"
        "x = tg.Graph().inputs(2)\n"
        "program = tg.compile(x[0] * x[1], wrt=x)\n"
        "program.batch(np.ones((5_000, 2)))\n"
        "print(program.stats['row_code_bytes'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, "TAPEGRAD_MACHINE_CODE": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "0\n"


def test_it_is_made_at_once_for_those_who_ask() -> None:
    if tg.isa() not in ASSEMBLED:
        pytest.skip("machine code is made for AVX2 and AVX-512")
    x = tg.Graph().inputs(2)
    program = tg.compile(x[0] * x[1], wrt=x)
    program.prepare(points=10, rows=10)  # not worth it
    assert not program.stats["row_code_bytes"]
    assert not program.stats["point_code_bytes"]
    program.prepare(rows=10_000)
    assert program.stats["row_code_bytes"]
    program.prepare(points=10_000)
    assert program.stats["point_code_bytes"]
    with pytest.raises(tg.OptionError, match="prepare: expected rows of at least 0, got -1"):
        program.prepare(rows=-1)
    with pytest.raises(tg.OptionError, match="prepare: expected points to be an integer"):
        program.prepare(points=1.5)  # type: ignore[arg-type]
