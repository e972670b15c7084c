"""Programs on a real Dask scheduler with two worker processes."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Iterator
from typing import Any

import dask.array
import numpy as np
import pytest
from distributed import Client, LocalCluster
from numpy.typing import NDArray

import tapegrad as tg
from tapegrad import distributed

#: For calls that the types forbid.
untyped: Any = distributed

N = 3


def build(terms: int = 1, kind: str = "gradient", dtype: str = "float64") -> tg.Program:
    """A sum of many sines: value and gradient, values only, or several values and Jacobian."""
    x = tg.Graph().inputs(N)
    outputs: Any = tg.sum([tg.sin(x[k % N] * (k + 1) + x[(k + 1) % N]) for k in range(terms)])
    if kind == "several":
        outputs = [outputs, x[0] * x[1]]
    return tg.compile(outputs, wrt=None if kind == "values" else x, dtype=dtype)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as connected,
    ):
        yield connected


def points(rows: int, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).standard_normal((rows, N))


def assert_same(found: Any, wanted: Any) -> None:
    assert isinstance(found, tuple) == isinstance(wanted, tuple)
    together = zip(found, wanted, strict=True) if isinstance(found, tuple) else [(found, wanted)]
    for part, other in together:
        assert part.dtype == other.dtype
        np.testing.assert_array_equal(np.asarray(part), other)


# ---- rows --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gradient", "values", "several"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_results_are_those_of_batch(client: Client, kind: str, dtype: str) -> None:
    program = build(5, kind, dtype)
    rows = points(10_000)
    assert_same(distributed.batch(program, rows, client), program.batch(rows))


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_few_rows_are_enough(client: Client, rows: int) -> None:
    program = build()
    assert_same(distributed.batch(program, points(rows), client), program.batch(points(rows)))


def test_rows_may_have_any_layout(client: Client) -> None:
    program = build()
    rows = np.asfortranarray(points(5000))
    assert_same(distributed.batch(program, rows, client), program.batch(rows))
    assert_same(distributed.batch(program, rows[::-3].tolist(), client), program.batch(rows[::-3]))


def test_chunks_grow_with_measured_speed_and_progress_is_told(client: Client) -> None:
    told: list[int] = []
    rows = points(300_000)

    def progress(done: int, total: int) -> None:
        assert total == len(rows)
        told.append(done)

    program = build(20)
    found = distributed.batch(program, rows, client, seconds=0.02, progress=progress)
    assert_same(found, program.batch(rows))
    sizes = np.diff([0, *told])
    assert told[-1] == len(rows)
    assert sizes.min() > 0
    assert sizes.max() > 2 * distributed.FIRST_ROWS
    assert sizes.max() * rows[0].nbytes <= distributed.LARGEST


def test_wide_rows_are_sent_in_small_chunks(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distributed, "LARGEST", 100 * 8 * N)
    told = [0]
    rows = points(4000)
    distributed.batch(build(), rows, client, progress=lambda done, _: told.append(done))
    assert sorted(np.diff(told))[-10] <= 100


@pytest.mark.parametrize("kind", ["gradient", "values"])
def test_dask_arrays_give_dask_arrays(client: Client, kind: str) -> None:
    program = build(5, kind)
    rows = points(5000)
    found = distributed.batch(program, dask.array.from_array(rows, chunks=(900, 2)), client)
    parts = found if isinstance(found, tuple) else (found,)
    assert all(isinstance(part, dask.array.Array) for part in parts)
    assert parts[0].chunks[0] == (900,) * 5 + (500,)
    computed = tuple(part.compute() for part in parts)
    assert_same(computed if isinstance(found, tuple) else computed[0], program.batch(rows))


def test_dask_arrays_of_unknown_length_are_taken(client: Client) -> None:
    rows = points(1000)
    array = dask.array.from_array(rows, chunks=(300, N))
    values, gradients = distributed.batch(build(), array[array[:, 0] > 0], client)
    wanted = build().batch(rows[rows[:, 0] > 0])
    assert_same((values.compute(), gradients.compute()), wanted)


# ---- programs ----------------------------------------------------------------------------------


def test_each_program_gets_its_own_input_and_results_are_in_order(client: Client) -> None:
    programs = [build(1 + k % 7, ["gradient", "values"][k % 2]) for k in range(300)]
    inputs = [points(1 + k % 4, k) if k % 3 else points(1, k)[0] for k in range(300)]
    told: list[int] = []
    found = distributed.map(
        programs, inputs, client, progress=lambda done, total: told.append(done)
    )
    for result, program, x in zip(found, programs, inputs, strict=True):
        wanted = program.batch(x) if x.ndim == 2 else program(x)
        if program.n_derivatives:
            np.testing.assert_array_equal(result[0], wanted[0])
            np.testing.assert_array_equal(result[1], wanted[1])
        else:
            np.testing.assert_array_equal(result, wanted)
    assert told[-1] == 300


def test_a_program_that_occurs_often_is_sent_once(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed: list[Any] = []
    pack = distributed._packed

    def counted(programs: Any) -> bytes:
        packed.extend(np.ravel(np.array(programs, dtype=object)))
        return pack(programs)

    monkeypatch.setattr(distributed, "_packed", counted)
    program, other = build(9, "values"), build(4, "values")
    programs = [program] * 50 + [other]
    found = distributed.map(programs, list(points(51)), client)
    wanted = [each(x) for each, x in zip(programs, points(51), strict=True)]
    np.testing.assert_array_equal(found, wanted)
    assert {id(each) for each in packed if each is not None} == {id(program), id(other)}
    assert sum(each is not None for each in packed) == 2


def test_no_programs_give_no_results(client: Client) -> None:
    assert distributed.map([], [], client) == []


# ---- trouble -----------------------------------------------------------------------------------


def test_errors_of_workers_come_back(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(distributed, "_packed", lambda program: b"nonsense")
        with pytest.raises(pickle.UnpicklingError):
            distributed.batch(build(), points(5000), client)
    assert_same(distributed.batch(build(), points(9), client), build().batch(points(9)))


def frozen() -> tg.Program:
    g = tg.Graph(branches="freeze")
    x = g.inputs(N, values=[1.0] * N)
    return tg.compile(tg.log(x[0]) if x[0] > 0.5 else x[1], wrt=x)


@pytest.mark.parametrize("bad", [[15_000, 15_001], [0], [3, 12_000, 19_999]])
def test_rows_that_leave_a_branch_are_counted_from_the_first(
    client: Client, bad: list[int]
) -> None:
    rows = np.ones((20_000, N))
    program = frozen()
    assert_same(distributed.batch(program, rows, client), program.batch(rows))
    rows[bad, 0] = -1.0
    named = ", ".join(map(str, bad))
    with pytest.raises(tg.BranchChanged, match=rf"{len(bad)} of 20,000 rows.*rows {named}") as told:
        distributed.batch(program, rows, client)
    assert told.value.rows == bad
    assert told.value.branches == program.branches


def test_programs_that_leave_a_branch_are_told_by_their_place(client: Client) -> None:
    program, fits, leaves = frozen(), np.ones(N), -np.ones(N)
    many = [fits] * 30
    with pytest.raises(tg.BranchChanged, match="map, program 17: a point takes another") as told:
        distributed.map([program] * 30, [*many[:17], leaves, *many[18:]], client)
    assert told.value.branches == program.branches
    rows = np.stack([fits, leaves, fits])
    with pytest.raises(tg.BranchChanged, match=r"map, program 2: 1 of 3 rows.*rows 1\)") as told:
        distributed.map([frozen() for _ in range(3)], [fits, fits, rows], client)
    assert told.value.rows == [1]


def test_dask_arrays_are_evaluated_at_their_points_only(client: Client) -> None:
    rows = np.ones((1000, N))
    program = frozen()  # at zeros it raises
    array = dask.array.from_array(rows, chunks=(300, N))
    values, _ = distributed.batch(program, array, client)
    assert_same(values.compute(), program.batch(rows)[0])
    rows[[650, 899], 0] = 0.0
    array = dask.array.from_array(rows, chunks=(300, N))
    values, _ = distributed.batch(program, array, client)
    with pytest.raises(tg.BranchChanged, match=r"chunk 2: 2 of 300 rows.*650, 899") as told:
        values.compute()
    assert told.value.rows == [650, 899]
    unknown, _ = distributed.batch(program, array[array[:, 1] > 0], client)
    with pytest.raises(tg.BranchChanged, match="chunk 2, whose rows count from 0") as told:
        unknown.compute()
    assert told.value.rows == [50, 299]


def test_masked_arrays_are_refused_as_programs_do(client: Client) -> None:
    rows = np.ma.masked_array(points(50), mask=False)
    for given in (rows, dask.array.from_array(rows, chunks=(25, N))):
        with pytest.raises(tg.DTypeError, match="masked"):
            distributed.batch(build(), given, client)
    with pytest.raises(tg.DTypeError, match="masked"):
        distributed.map([build()], [rows], client)


def test_an_error_in_progress_ends_the_run(client: Client) -> None:
    def progress(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        distributed.batch(build(), points(50_000), client, progress=progress)
    states = {key: future.status for key, future in client.futures.items()}
    left = {status for key, status in states.items() if "_evaluate_rows" in key}
    assert left <= {"cancelled", "finished"}


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda c: untyped.batch(build(), points(2)[:, :2], c), tg.ShapeError),
        (lambda c: untyped.batch(build(), points(2)[0], c), tg.ShapeError),
        (lambda c: untyped.batch(build(), points(2), None), tg.DTypeError),
        (lambda c: untyped.batch(None, points(2), c), tg.DTypeError),
        (lambda c: untyped.batch(build(), points(2), c, seconds=0), tg.OptionError),
        (lambda c: untyped.batch(build(), points(2), c, seconds="1"), tg.OptionError),
        (lambda c: untyped.map([build()], [], c), tg.ShapeError),
        (lambda c: untyped.map([build()], [[1.0]], c), tg.ShapeError),
        (lambda c: untyped.map([1], [[1.0]], c), tg.DTypeError),
        (lambda c: untyped.map(build(), points(2), c), tg.DTypeError),
    ],
)
def test_wrong_arguments_are_told(client: Client, call: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="expected"):
        call(client)


def test_progress_can_be_printed(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    distributed.batch(build(), points(10), client, progress=True)
    assert capsys.readouterr().err.endswith("10 of 10 rows\n")


def test_a_killed_worker_costs_nothing_but_time(client: Client) -> None:
    victim = next(iter(client.run(os.getpid).values()))
    killed: list[int] = []
    after: list[int] = []

    def progress(done: int, total: int) -> None:
        if killed:
            after.append(done)
        elif done >= total // 2:
            killed.append(victim)
            os.kill(victim, signal.SIGKILL)

    program = build(200)
    rows = points(60_000)
    found = distributed.batch(program, rows, client, seconds=0.005, progress=progress)
    assert_same(found, program.batch(rows))
    assert len(after) > 5
    assert victim not in client.run(os.getpid).values()
