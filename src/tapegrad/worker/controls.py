"""Control kernels: fixed work beside each block, by which a slow machine is told from slow code."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

#: Two megabytes: more than a core's first caches, read and written.
COPY_BYTES = 1 << 21
PAGE = 4096
#: So small that each is computed by one thread: NumPy's library has threads of its own for larger
#: ones, which wait busily for 0.1 s, on the processors of whatever is measured next.
PRODUCTS, PRODUCT_SIDE = 4, 64
LOOP_STEPS = 5_000
#: Runs of each kernel, of which the best counts: with two of them, a busy machine disturbs so many
#: controls that they vary by 15 to 35 % from block to block.
RUNS = 6


class Controls:
    """The kernels with their data; `run` takes about a millisecond."""

    def __init__(self) -> None:
        matrices = np.ones((PRODUCTS, PRODUCT_SIDE, PRODUCT_SIDE), dtype=np.float32)
        products = np.empty_like(matrices)
        self._kernels: dict[str, Callable[[], object]] = {
            "copy": copying(COPY_BYTES),
            "products": lambda: np.matmul(matrices, matrices, out=products),
            "loop": lambda: sum(range(LOOP_STEPS)),
        }

    def run(self) -> dict[str, float]:
        """Return the best time of each kernel."""
        return {
            name: min(_seconds(kernel) for _ in range(RUNS))
            for name, kernel in self._kernels.items()
        }


def copying(nbytes: int) -> Callable[[], object]:
    """Return a call that copies so many bytes."""
    source, target = apart(nbytes)
    return lambda: np.copyto(target, source)


def apart(nbytes: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Make two arrays that lie half a page apart within their pages.

    Where they lie alike some processors copy byte by byte (Zen 3: 64 KiB in 33 µs instead of 4).
    """
    source = np.ones(nbytes, dtype=np.uint8)
    room = np.zeros(nbytes + PAGE, dtype=np.uint8)
    start = (source.ctypes.data + PAGE // 2 - room.ctypes.data) % PAGE
    return source, room[start : start + nbytes]


def _seconds(kernel: Callable[[], object]) -> float:
    start = time.perf_counter()
    kernel()
    return time.perf_counter() - start
