"""Random numbers: the same bits from `_tensor` and from NumPy, and good ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from tapegrad import _tensor
from tapegrad.backends import philox
from tapegrad.errors import DTypeError, OptionError, ShapeError

SEEDS = (0, 1, 2**32 + 17, 2**64 - 1)
OFFSETS = (0, 1, 2, 3, 4, 63, 64, 2**32 - 3, 2**40 + 5)
FLOATS = (np.float32, np.float64)


def test_known_answers() -> None:
    """Of the paper's own library: counter and key all zeros, and pi's digits."""
    assert philox.blocks(np.zeros(1, np.uint64), 0)[0].tolist() == [
        0x6627E8D5,
        0xE169C58D,
        0xBC57AC4C,
        0x9B00DBD8,
    ]
    first = _tensor.philox_integers(-(2**63), 2**63 - 1, (2,), 0, 0).view(np.uint64)
    bits = np.array([0xE169C58D6627E8D5, 0x9B00DBD8BC57AC4C], np.uint64)
    shifted = (bits + np.uint64(2**63)).astype(np.float64)
    np.testing.assert_allclose(first.astype(np.float64), shifted, 1e-12)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("offset", OFFSETS)
def test_same_bits_as_numpy(seed: int, offset: int) -> None:
    for shape in ((0,), (1,), (5, 3), (1000,)):
        for dtype in FLOATS:
            got = _tensor.philox_uniform(shape, dtype, seed, offset)
            assert got.dtype == dtype
            np.testing.assert_array_equal(got, philox.uniform(shape, dtype, seed, offset))
            normal = _tensor.philox_normal(shape, dtype, seed, offset)
            expected = philox.normal(shape, dtype, seed, offset)
            np.testing.assert_allclose(normal, expected, 0, 30 * float(np.finfo(dtype).eps))
        for low, high in ((0, 10), (-5, 2**40), (-(2**63), 2**63 - 1), (3, 4)):
            np.testing.assert_array_equal(
                _tensor.philox_integers(low, high, shape, seed, offset),
                philox.integers(low, high, shape, seed, offset),
            )
        for p in (0.0, 0.1, 0.5, 1.0):
            np.testing.assert_array_equal(
                _tensor.philox_mask(shape, p, seed, offset), philox.mask(shape, p, seed, offset)
            )


@pytest.mark.parametrize("dtype", FLOATS)
def test_any_split_and_any_number_of_threads_give_the_same_numbers(dtype: Any) -> None:
    before = _tensor.get_num_threads()
    for make in (_tensor.philox_uniform, _tensor.philox_normal):
        whole = make((100_001,), dtype, 5, 7)
        _tensor.set_num_threads(1)
        np.testing.assert_array_equal(make((100_001,), dtype, 5, 7), whole)
        _tensor.set_num_threads(before)
        np.testing.assert_array_equal(make((333,), dtype, 5, 7 + 4321), whole[4321 : 4321 + 333])
    mask = _tensor.philox_mask((100_001,), 0.3, 5, 7)
    uniforms = _tensor.philox_uniform((100_001,), np.float32, 5, 7)
    np.testing.assert_array_equal(mask, uniforms < 0.3)


@pytest.mark.parametrize("dtype", FLOATS)
def test_distributions(dtype: Any) -> None:
    """Kolmogorov-Smirnov and chi-squared tests with fixed seeds: p-values far from zero."""
    uniform = _tensor.philox_uniform((200_000,), dtype, 1, 0).astype(float)
    normal = _tensor.philox_normal((200_000,), dtype, 2, 0).astype(float)
    assert uniform.min() >= 0
    assert uniform.max() < 1
    assert stats.kstest(uniform, "uniform").pvalue > 1e-3
    assert stats.kstest(normal, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(normal[::2], normal[1::2])[0, 1]) < 0.02
    counts = np.bincount(_tensor.philox_integers(0, 7, (70_000,), 3, 0), minlength=7)
    assert stats.chisquare(counts).pvalue > 1e-3


def test_wrong_arguments() -> None:
    with pytest.raises(DTypeError, match="float32 or float64"):
        _tensor.philox_uniform((3,), np.int64, 0, 0)
    with pytest.raises(OptionError, match="low < high"):
        _tensor.philox_integers(3, 3, (3,), 0, 0)
    with pytest.raises(OptionError, match="from 0 to 1"):
        _tensor.philox_mask((3,), 1.5, 0, 0)
    with pytest.raises(OptionError, match="from 0 to 1"):
        _tensor.philox_mask((3,), float("nan"), 0, 0)
    with pytest.raises(ShapeError):
        _tensor.philox_normal((-3,), np.float32, 0, 0)
