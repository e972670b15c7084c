"""What cells take of memory, each in a process that has done nothing else.

Nothing is timed here, so that several processes run at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tapegrad.bench.errors import WorkerError
from tapegrad.bench.given import Team
from tapegrad.bench.oracle import InputSet, Truth
from tapegrad.bench.results import CellKey, Memory
from tapegrad.worker.adapter import input_dtype
from tapegrad.worker.case import Case


def measure(
    case: Case,
    keys: Sequence[CellKey],
    given: InputSet,
    teams: Mapping[str, Team],
    at_once: int,
) -> Iterator[Memory]:
    """Measure cells, so many at a time; each is returned as soon as those before it are.

    One whose worker fails is left out: who goes on with the run tries it again.
    """
    pool = ThreadPoolExecutor(at_once)
    try:
        found = pool.map(lambda key: _measure(case, key, given, teams[key.framework]), keys)
        yield from (each for each in found if each is not None)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _measure(case: Case, key: CellKey, given: InputSet, team: Team) -> Memory | None:
    needed = _needed(case, given.truth, key.phase)
    try:
        with team.fresh() as worker:
            worker.ask("prepare", case=case.as_dict(), arrays=given.arrays)
            given.feed(worker)
            answer = worker.ask("memory", phase=key.phase)
    except WorkerError:
        return None
    return Memory(*key, needed=needed, **answer)


def _needed(case: Case, truth: Truth, phase: str) -> int:
    """Add up the bytes of inputs, cotangents and results in the case's own type."""
    results = truth.of_phase(phase)
    cotangents = truth.cotangents if any(name.startswith("grad:") for name in results) else []
    width = np.dtype(case.dtype).itemsize
    taken = sum(
        input_dtype(array.kind, case.dtype).itemsize * math.prod(array.shape)
        for array in case.inputs
    )
    return taken + width * sum(array.size for array in (*results.values(), *cotangents))
