"""Programs on a Dask cluster: many rows of one program, or many programs.

Work is sent in chunks whose size follows the measured speed, a few for each thread ahead of what is
running: workers never wait, and the scheduler never holds all the data. Whatever is sent stays with
the scheduler until its result has come (programs too: they travel once, as a task that unpacks
them), so the work of a worker that dies is done again by another.

Example:
    >>> import tapegrad as tg
    >>> from distributed import Client
    >>> client = Client("tcp://scheduler:8786")                             # doctest: +SKIP
    >>> values, gradients = tg.distributed.batch(program, points, client)   # doctest: +SKIP
    >>> results = tg.distributed.map(programs, points, client)              # doctest: +SKIP

"""

from __future__ import annotations

import math
import pickle
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tapegrad._core import Program
from tapegrad.errors import BranchChanged, DTypeError, OptionError, ShapeError
from tapegrad.scalar.branches import changed, changed_at
from tapegrad.scalar.options import real

#: Called with what is done and how much there is; True prints a line to stderr.
Progress: TypeAlias = Callable[[int, int], object] | bool

#: Chunks on their way for each thread: one runs, one waits.
AHEAD = 2

#: Chunks at the end are cut such that each thread still gets so many.
SHARES = 3

#: Bytes sent in one chunk; Dask warns of more than 10 MB.
LARGEST = 8_000_000

#: Rows and programs in the first chunks, whose speed is not known.
FIRST_ROWS, FIRST_PROGRAMS = 1024, 8

#: Factor by which chunks may grow from one measurement to the next.
GROWTH = 8


def batch(
    program: Program,
    x: Any,
    client: Any,
    *,
    seconds: float = 0.5,
    progress: Progress = False,
) -> Any:
    """Evaluate a program at every row of x on a cluster: `program.batch(x)`, bit by bit.

    Args:
        program: It is sent once.
        x: Rows, as a NumPy array; or as a dask array, whose chunks are evaluated where they are.
            The result then is of dask arrays that are being computed.
        client: A `distributed.Client`.
        seconds: How long a chunk should take; short ones balance better, long ones cost less.
        progress: True, or a function of the rows done and all rows. For dask arrays there is
            `distributed.progress`.

    """
    _check(client, seconds)
    if not isinstance(program, Program):
        raise DTypeError(f"batch: expected a Program, got {type(program).__name__}")
    if _is_dask(x):
        return _batch_blocks(program, x, client)
    rows = _as_array(x)
    _check_rows(program, rows.shape)
    like, pair = _parts(program.batch(rows[:0]))
    if not len(rows):
        return program.batch(rows)
    results = [np.empty((len(rows), *part.shape[1:]), part.dtype) for part in like]
    row_bytes = max(rows[0].nbytes, sum(whole[0].nbytes for whole in results))
    loaded = client.submit(pickle.loads, _packed(program))

    def send(start: int, stop: int) -> tuple[Any, int]:
        sent = client.submit(_evaluate_rows, loaded, rows[start:stop], pure=False)
        return sent, row_bytes * (stop - start)

    def place(start: int, stop: int, found: Any) -> None:
        for whole, part in zip(results, _parts(found)[0], strict=True):
            whole[start:stop] = part

    pace = _Pace(min(FIRST_ROWS, 1 + LARGEST // row_bytes), seconds)
    try:
        _in_chunks(client, len(rows), send, place, pace=pace, progress=_shown(progress, "rows"))
    except BranchChanged:  # of one chunk, which knows its own rows only
        raise changed(program, rows, {}) from None
    return tuple(results) if pair else results[0]


def map(
    programs: Sequence[Program],
    inputs: Sequence[ArrayLike],
    client: Any,
    *,
    seconds: float = 0.5,
    progress: Progress = False,
) -> list[Any]:
    """Evaluate each program at its own input on a cluster; results come in order.

    Args:
        programs: Each is sent once, however often it occurs.
        inputs: As many: a point each, or rows, which are evaluated as by `Program.batch`.
        client: A `distributed.Client`.
        seconds: How long a chunk of programs should take.
        progress: True, or a function of the programs done and all of them.

    """
    _check(client, seconds)
    todo = _pairs(programs, inputs)
    times = Counter(id(program) for program, _ in todo)
    often = {id(program): program for program, _ in todo if times[id(program)] > 1}
    shared = {key: client.submit(pickle.loads, _packed(program)) for key, program in often.items()}
    results: list[Any] = [None] * len(todo)

    def send(start: int, stop: int) -> tuple[Any, int]:
        part = todo[start:stop]
        own = _packed([None if id(program) in shared else program for program, _ in part])
        points = [point for _, point in part]
        futures = [shared.get(id(program)) for program, _ in part]
        sent = client.submit(_evaluate_each, own, futures, points, start, pure=False)
        return sent, len(own) + sum(point.nbytes for point in points)

    def place(start: int, stop: int, part: list[Any]) -> None:
        results[start:stop] = part

    pace = _Pace(FIRST_PROGRAMS, seconds)
    _in_chunks(client, len(todo), send, place, pace=pace, progress=_shown(progress, "programs"))
    return results


# ---- on the workers ----------------------------------------------------------------------------


def _evaluate_rows(program: Program, rows: NDArray[Any]) -> tuple[Any, float]:
    """Evaluate rows in one thread, as the worker has others for other chunks; and how long."""
    started = time.perf_counter()
    results = program.batch(rows, threads=1)
    return results, time.perf_counter() - started


def _evaluate_block(program: Program, rows: NDArray[Any], first: int | None, place: int) -> Any:
    """Evaluate a chunk of a dask array; rows that leave a branch are counted from its start."""
    try:
        return _parts(program.batch(rows, threads=1))[0]
    except BranchChanged:
        what = f"batch, chunk {place}" + (", whose rows count from 0" if first is None else "")
        raise changed(program, rows, {}, what, first or 0) from None


def _evaluate_each(
    own: bytes, shared: list[Program | None], points: list[NDArray[Any]], first: int
) -> tuple[list[Any], float]:
    """Evaluate programs at their points, `first` being the place of the first; unpacking counts."""
    started = time.perf_counter()
    given = zip(pickle.loads(own), shared, points, strict=True)
    results = [
        _evaluate_one(mine if other is None else other, point, f"map, program {place}")
        for place, (mine, other, point) in enumerate(given, first)
    ]
    return results, time.perf_counter() - started


def _evaluate_one(program: Program, point: NDArray[Any], what: str) -> Any:
    """Evaluate a program; if it leaves a branch, `what` tells which it is."""
    try:
        return program.batch(point, threads=1) if point.ndim == 2 else program(point)
    except BranchChanged as error:
        if point.ndim == 2:
            raise changed(program, point, {}, what) from None
        raise changed_at(program, point, f"{what}: {error}") from None


def _parts(results: Any) -> tuple[tuple[NDArray[Any], ...], bool]:
    """Return the arrays of a batch, and whether there are derivatives beside the values."""
    return (results, True) if isinstance(results, tuple) else ((results,), False)


# ---- chunks ------------------------------------------------------------------------------------


class _Pace:
    """How large chunks should be, from how long others took and how many bytes they had."""

    def __init__(self, first: int, seconds: float) -> None:
        self._size = self._most = first
        self._seconds = seconds

    def sent(self, count: int, nbytes: int) -> None:
        """Learn how much was sent."""
        self._most = max(1, LARGEST * count // max(nbytes, 1))

    def took(self, count: int, seconds: float) -> None:
        """Learn how long a chunk took."""
        wanted = count * self._seconds / max(seconds, 1e-6)
        self._size = max(1, int(min(wanted, self._size * GROWTH)))

    def size(self, left: int, threads: int) -> int:
        """Return the size of the next chunk: near the end less, so that all have some to do."""
        share = max(-(-left // (SHARES * threads)), self._size // 16)
        return min(left, self._size, self._most, share)


def _in_chunks(
    client: Any,
    total: int,
    send: Callable[[int, int], tuple[Any, int]],
    place: Callable[[int, int, Any], None],
    *,
    pace: _Pace,
    progress: Callable[[int, int], object],
) -> None:
    """Send everything in chunks, as many at a time as keep all threads busy; place results."""
    from distributed import as_completed

    finished = as_completed(with_results=True)
    running: dict[str, tuple[Any, int, int]] = {}
    start = done = 0
    try:
        while done < total:
            threads = max(1, sum(client.nthreads().values()))
            while start < total and len(running) < AHEAD * threads:
                stop = start + pace.size(total - start, threads)
                future, nbytes = send(start, stop)
                pace.sent(stop - start, nbytes)
                running[future.key] = (future, start, stop)
                finished.add(future)
                start = stop
            future, (results, seconds) = next(finished)
            _, first, end = running.pop(future.key)
            pace.took(end - first, seconds)
            place(first, end, results)
            done += end - first
            progress(done, total)
    finally:
        client.cancel([future for future, *_ in running.values()])


def _batch_blocks(program: Program, x: Any, client: Any) -> Any:
    """Evaluate the chunks of a dask array where they are; programs travel as a task."""
    import dask.array
    from dask import delayed

    _check_rows(program, x.shape)
    rows = x.rechunk({1: -1})
    none = np.empty_like(x._meta, shape=(0, program.n_inputs))
    like, pair = _parts(program.batch(none))
    loaded = delayed(pickle.loads)(_packed(program))
    starts = np.cumsum([0, *rows.chunks[0]])  # NaN behind chunks of unknown length
    evaluated = [
        delayed(_evaluate_block)(loaded, block, None if np.isnan(start) else int(start), place)
        for place, (block, start) in enumerate(zip(rows.to_delayed().ravel(), starts, strict=False))
    ]

    def joined(place: int, part: NDArray[Any]) -> Any:
        arrays = [
            dask.array.from_delayed(parts[place], (height, *part.shape[1:]), part.dtype)
            for parts, height in zip(evaluated, rows.chunks[0], strict=True)
        ]
        return dask.array.concatenate(arrays, allow_unknown_chunksizes=True)

    results = client.persist([joined(place, part) for place, part in enumerate(like)])
    return tuple(results) if pair else results[0]


# ---- arguments ---------------------------------------------------------------------------------


def _check(client: Any, seconds: float) -> None:
    try:
        from distributed import Client
    except ImportError:
        raise OptionError(
            "clusters need Dask's scheduler: pip install 'tapegrad[distributed]'"
        ) from None
    if not isinstance(client, Client) or client.asynchronous:
        raise DTypeError(
            f"expected a distributed.Client that is not asynchronous, got {type(client).__name__}"
        )
    real("expected seconds above 0", seconds, lambda each: 0 < each < math.inf)


def _check_rows(program: Program, shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or shape[1] != program.n_inputs:
        raise ShapeError(f"batch: expected rows of shape (m, {program.n_inputs}), got {shape}")


def _as_array(x: Any) -> NDArray[Any]:
    """Take arrays as they are, so that programs refuse what they do not take, as masked ones."""
    return x if isinstance(x, np.ndarray) else np.asarray(x)


def _is_dask(x: Any) -> bool:
    """Tell dask arrays without importing dask.array for others."""
    module = sys.modules.get("dask.array")
    return module is not None and isinstance(x, module.Array)


def _pairs(
    programs: Sequence[Program], inputs: Sequence[ArrayLike]
) -> list[tuple[Program, NDArray[Any]]]:
    """Return programs with their inputs as arrays, if they fit."""
    if isinstance(programs, Program):
        raise DTypeError("map: expected a sequence of Programs, got one; batch evaluates one")
    listed, points = list(programs), [_as_array(point) for point in inputs]
    if len(listed) != len(points):
        raise ShapeError(f"map: expected {len(listed)} inputs, one per program, got {len(points)}")
    for place, (program, point) in enumerate(zip(listed, points, strict=True)):
        if not isinstance(program, Program):
            raise DTypeError(f"map: expected Programs, element {place} is {type(program).__name__}")
        n = program.n_inputs
        if point.ndim not in (1, 2) or point.shape[-1] != n:
            raise ShapeError(
                f"map: expected input {place} of shape ({n},) or (m, {n}), got {point.shape}"
            )
    return list(zip(listed, points, strict=True))


def _packed(programs: Any) -> bytes:
    return pickle.dumps(programs, protocol=pickle.HIGHEST_PROTOCOL)


def _shown(progress: Progress, what: str) -> Callable[[int, int], object]:
    """Turn the argument into a function."""
    if callable(progress):
        return progress

    def line(done: int, total: int) -> None:
        if progress:
            end = "\n" if done == total else ""
            print(f"\r{done:,} of {total:,} {what}", end=end, file=sys.stderr, flush=True)

    return line
