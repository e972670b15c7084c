"""The random numbers of `_tensor.philox_*` in NumPy: the same bits, for the reference backend.

Philox 4x32 with ten rounds (Salmon et al., 2011). Number e = offset + i of a seed depends on
(seed, e) alone. A block of the generator has four words of 32 bits; its counter is the number of
the block, its key the seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Words = NDArray[np.uint64]

_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


def blocks(counters: Words, seed: int) -> Words:
    """Return the four words of each block, in the last dimension."""
    w0, w1 = counters & _LOW, counters >> _32
    w2 = w3 = np.zeros_like(counters)
    key0, key1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p, q = np.uint64(0xD2511F53) * w0, np.uint64(0xCD9E8D57) * w2
        w0, w1 = (q >> _32) ^ w1 ^ np.uint64(key0), q & _LOW
        w2, w3 = (p >> _32) ^ w3 ^ np.uint64(key1), p & _LOW
        key0, key1 = (key0 + 0x9E3779B9) & 0xFFFFFFFF, (key1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([w0, w1, w2, w3], axis=-1)


def _words(count: int, seed: int, offset: int) -> Words:
    """Return words of 32 bits, four numbers a block."""
    first = np.uint64(offset // 4)
    words = blocks(first + np.arange(count // 4 + 2, dtype=np.uint64), seed)
    return words.reshape(-1)[offset % 4 :][:count]


def _pairs(count: int, seed: int, offset: int) -> Words:
    """Return words of 64 bits, two numbers a block."""
    first = np.uint64(offset // 2)
    words = blocks(first + np.arange(count // 2 + 2, dtype=np.uint64), seed).reshape(-1, 2)
    return (words[:, 0] | words[:, 1] << _32)[offset % 2 :][:count]


def uniform(shape: Sequence[int], dtype: DTypeLike, seed: int, offset: int) -> NDArray[Any]:
    """Draw uniform numbers in [0, 1) of 24 or 53 bits."""
    count = prod(shape)
    if np.dtype(dtype) == np.float32:
        words = _words(count, seed, offset) >> np.uint64(8)
        return (words.astype(np.float32) * np.float32(2**-24)).reshape(shape)
    bits = _pairs(count, seed, offset) >> np.uint64(11)
    return (bits.astype(np.float64) * 2.0**-53).reshape(shape)


def normal(shape: Sequence[int], dtype: DTypeLike, seed: int, offset: int) -> NDArray[Any]:
    """Draw standard normal numbers by the method of Box and Muller, in pairs."""
    count = prod(shape)
    even = offset - offset % 2
    u = uniform((count + 2 + count % 2,), dtype, seed, even).astype(np.float64).reshape(-1, 2)
    r, t = np.sqrt(-2 * np.log1p(-u[:, 0])), 2 * np.pi * u[:, 1]
    numbers = np.stack([r * np.cos(t), r * np.sin(t)], axis=-1).reshape(-1)
    return numbers[offset - even :][:count].astype(dtype).reshape(shape)


def integers(
    low: int, high: int, shape: Sequence[int], seed: int, offset: int
) -> NDArray[np.int64]:
    """Draw integers from low to below high: the upper half of 64 bits times their number."""
    bits, span = _pairs(prod(shape), seed, offset), high - low
    a1, a0 = bits >> _32, bits & _LOW
    b1, b0 = np.uint64(span >> 32), np.uint64(span & 0xFFFFFFFF)
    middle = a1 * b0 + (a0 * b0 >> _32)
    carry = (a0 * b1 + (middle & _LOW)) >> _32
    upper = a1 * b1 + (middle >> _32) + carry
    numbers: NDArray[np.int64] = (upper + np.uint64(low % 2**64)).view(np.int64)
    return numbers.reshape(shape)


def mask(shape: Sequence[int], p_keep: float, seed: int, offset: int) -> NDArray[np.bool_]:
    """Draw True with probability p_keep: where the float32 uniform lies below it."""
    words = _words(prod(shape), seed, offset) >> np.uint64(8)
    return (words < np.uint64(ceil(p_keep * 2**24))).reshape(shape)
