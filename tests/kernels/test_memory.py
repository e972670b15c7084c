"""New arrays, the pool, copies and threads of `_tensor`."""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import psutil
import pytest

from tapegrad import _tensor
from tapegrad.errors import DTypeError, OptionError, ShapeError
from tests.kernels.layouts import LAYOUTS, laid_out

TYPES = (np.float32, np.float64, np.int32, np.int64, np.bool_)


def used() -> int:
    gc.collect()
    return _tensor.pool_bytes()[0]


@pytest.mark.parametrize("dtype", [*TYPES, np.complex64, "U3", object])
@pytest.mark.parametrize("shape", [(), (0,), (3, 4), (300, 400), (2, 0, 5)])
def test_new_arrays(shape: tuple[int, ...], dtype: Any) -> None:
    x = _tensor.empty(shape, dtype)
    assert x.shape == shape
    assert x.dtype == np.dtype(dtype)
    assert x.flags.carray
    x[...] = 1
    assert (x == np.ones(shape, dtype)).all()


def test_large_arrays_come_from_the_pool_and_return_to_it() -> None:
    _tensor.empty_pool()
    before = used()
    x = _tensor.empty((1000, 1000), np.float32)
    address = x.ctypes.data
    assert address % 64 == 0
    assert used() >= before + x.nbytes
    view = x[10:]
    del x
    assert used() > before
    del view
    assert used() == before
    assert _tensor.pool_bytes()[1] >= 4_000_000
    assert _tensor.empty((999, 1000), np.float32).ctypes.data == address
    _tensor.empty_pool()
    assert _tensor.pool_bytes()[1] == 0


JOINED = """
import numpy as np
from tapegrad import _tensor

parts = [_tensor.empty((256, 1024), np.float32) for _ in range(8)]
first, size = min(each.ctypes.data for each in parts), parts[0].nbytes
assert sorted(each.ctypes.data - first for each in parts) == [i * size for i in range(8)]
del parts
assert _tensor.pool_bytes() == (0, 8 * size)
whole = _tensor.empty((8 * 256, 1024), np.float32)
assert whole.ctypes.data == first
del whole
small, other = (_tensor.empty((rows, 1024), np.float32) for rows in (100, 200))
assert [small.ctypes.data - first, other.ctypes.data - first] == [0, small.nbytes]
"""


def test_what_is_given_back_serves_any_size() -> None:
    subprocess.run([sys.executable, "-c", JOINED], check=True)  # a pool that nobody has cut yet


def test_blocks_in_use_never_overlap() -> None:
    random = np.random.default_rng(0)
    before = used()
    live: list[tuple[int, Any]] = []
    for step in range(3000):
        if live and random.random() < 0.5:
            mark, block = live.pop(random.integers(len(live)))
            assert block[0] == mark and block[-1] == mark and (block[:: 4096 // 8] == mark).all()
        else:
            block = _tensor.empty((int(2 ** random.uniform(10, 18)),), np.float64)
            block[:] = step
            live.append((step, block))
    del block
    live.clear()
    assert used() == before


def test_threads_take_and_give_at_once() -> None:
    def work(mark: int) -> bool:
        random = np.random.default_rng(mark)
        for _ in range(300):
            blocks = [_tensor.empty((int(n),), np.int64) for n in random.integers(9000, 90000, 4)]
            for block in blocks:
                block[:] = mark
            if not all((block == mark).all() for block in blocks):
                return False
        return True

    before = used()
    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(8)))
    assert used() == before


def test_an_emptied_pool_returns_its_pages() -> None:
    block = _tensor.empty((64 << 20,), np.int8)
    block[:] = 1
    del block
    gc.collect()
    with_it = psutil.Process().memory_info().rss
    _tensor.empty_pool()
    assert _tensor.pool_bytes()[1] == 0
    assert with_it - psutil.Process().memory_info().rss > 60 << 20
    assert _tensor.empty((64 << 20,), np.int8).nbytes == 64 << 20


def test_sizes_beyond_memory() -> None:
    with pytest.raises(ShapeError, match="fits in memory"):
        _tensor.empty((2**40, 2**40), np.float32)
    with pytest.raises(MemoryError):
        _tensor.empty((2**58,), np.float32)
    with pytest.raises(ShapeError, match="0 or more"):
        _tensor.empty((-1,), np.float32)
    assert used() < 2**40


@pytest.mark.parametrize(("to", "source"), list(itertools.product(TYPES, TYPES)))
def test_copies_with_casts(to: Any, source: Any) -> None:
    x = np.random.default_rng(0).integers(-4, 4, (13, 17)).astype(source)
    out = _tensor.empty(x.shape, to)
    _tensor.copy_to(out, x)
    np.testing.assert_array_equal(out, x.astype(to))


@pytest.mark.parametrize("size", [(5, 6, 7), (40, 1, 33), (3, 200, 210)])
@pytest.mark.parametrize(("to", "source"), list(itertools.product(LAYOUTS[:4], LAYOUTS)))
def test_copies_between_layouts(to: str, source: str, size: tuple[int, int, int]) -> None:
    x = laid_out(np.random.default_rng(0).random(size), source)
    for axes in itertools.permutations(range(3)):
        moved = x.transpose(axes)
        out = laid_out(np.zeros(moved.shape), to)
        _tensor.copy_to(out, moved)
        np.testing.assert_array_equal(out, moved)


def test_copies_broadcast() -> None:
    out = np.zeros((3, 4, 5), np.float32)
    for shape in [(), (1,), (5,), (4, 1), (3, 1, 5), (1, 1, 1)]:
        x = np.random.default_rng(1).random(shape)
        _tensor.copy_to(out, x)
        np.testing.assert_array_equal(out, np.broadcast_to(x, out.shape).astype(np.float32))
    with pytest.raises(ShapeError, match="broadcast"):
        _tensor.copy_to(out, np.zeros(4))


def test_copies_within_one_array() -> None:
    x = np.arange(100_000.0)
    expected = x[::-1].copy()
    _tensor.copy_to(x, x[::-1])
    np.testing.assert_array_equal(x, expected)
    _tensor.copy_to(x[1:], x[:-1])
    np.testing.assert_array_equal(x[1:], expected[:-1])


def test_copies_that_are_refused() -> None:
    fixed = np.zeros(3)
    fixed.flags.writeable = False
    with pytest.raises(DTypeError, match="writable"):
        _tensor.copy_to(fixed, np.ones(3))
    with pytest.raises(ShapeError, match="aligned"):
        _tensor.copy_to(laid_out(np.zeros(3), "unaligned"), np.ones(3))
    with pytest.raises(DTypeError):
        _tensor.copy_to(np.zeros(3), np.ones(3, complex))


def test_threads() -> None:
    before = _tensor.get_num_threads()
    _tensor.set_num_threads(1)
    assert _tensor.get_num_threads() == 1
    _tensor.set_num_threads(before)
    with pytest.raises(OptionError, match="1 or more"):
        _tensor.set_num_threads(0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_computes_alone() -> None:
    x = np.ones(1_000_000)
    assert _tensor.reduce("sum", x, (0,)) == 1e6
    child = os.fork()
    if child == 0:
        os._exit(
            0 if _tensor.reduce("sum", x, (0,)) == 1e6 and _tensor.get_num_threads() == 1 else 1
        )
    assert os.waitpid(child, 0)[1] == 0
