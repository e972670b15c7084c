"""The CPU computes with its own kernels: not with NumPy, and the same for any number of threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
import tapegrad.tensors as tt
from tapegrad.errors import OptionError
from tests.tensors.cases import DTYPES, RECORDS, cases
from tests.tensors.no_numpy import guarded, take_away
from tests.tensors.torch_calls import weight


def test_guarded_arrays_do_not_compute() -> None:
    array = guarded(np.ones(2)).numpy()
    for attempt in (lambda: array + 1, lambda: array != 0, array.sum):
        with pytest.raises(AssertionError, match="NumPy computed"):
            attempt()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", RECORDS)
def test_numpy_computes_nothing(monkeypatch: pytest.MonkeyPatch, name: str, dtype: str) -> None:
    prepared = []
    for case in cases(RECORDS[name], dtype):
        shapes = [out.shape for out in case(case.tensors("cpu"))]
        weights = [weight(shape).astype(dtype) for shape in shapes]
        prepared.append((case, case.arrays, weights))
    take_away(monkeypatch)
    for case, arrays, weights in prepared:
        operands = [guarded(array) for array in arrays]
        for x in operands:
            x.requires_grad = x.is_floating_point()
        outs = case(operands)
        smooth = [(out, w) for out, w in zip(outs, weights, strict=True) if out.requires_grad]
        if smooth:
            seeds = [guarded(w).to(out.device) for out, w in smooth]
            tt.backward([out for out, _ in smooth], seeds)


# ---- threads ------------------------------------------------------------------------------------


@pytest.fixture
def threads() -> Iterator[None]:
    """Set the number of threads back after a test."""
    before = tg.get_num_threads()
    yield
    tg.set_num_threads(before)


def large() -> dict[str, Any]:
    """Return results of operations that are large enough for several threads."""
    x = tt.randn(64, 64, 33, generator=tt.Generator(1))
    image = tt.randn(4, 8, 32, 32, generator=tt.Generator(2))
    kernel = tt.randn(8, 8, 3, 3, generator=tt.Generator(3))
    return {
        "random": x,
        "elementwise": (x * 2 + 1).sigmoid(),
        "softmax": x.softmax(1),
        "amax": x.amax(0),
        "matmul": tt.matmul(x.reshape(64, -1), x.reshape(64, -1).T),
        "conv2d": tt.conv2d(image, kernel, padding=1),
        "conv2d float64": tt.conv2d(image.double(), kernel.double(), padding=1),
        "max_pool2d": tt.max_pool2d(image, 2),
        "layer_norm": tt.layer_norm(x, (33,)),
        "sum": x.sum((0, 2)),
        "total": x.sum(),
        "cumsum": x.cumsum(1),
    }


@pytest.mark.usefixtures("threads")
def test_results_agree_for_any_number_of_threads_and_repeat_bit_by_bit() -> None:
    found: dict[int, dict[str, Any]] = {}
    for count in (1, 2, 3):
        tg.set_num_threads(count)
        assert tg.get_num_threads() == count
        found[count] = large()
        for name, again in large().items():
            np.testing.assert_array_equal(again.numpy(), found[count][name].numpy(), name)
    for name, one in found[1].items():
        for count in (2, 3):
            ours, scale = found[count][name].numpy(), float(abs(one).max())
            np.testing.assert_allclose(ours, one.numpy(), 1e-5, 1e-5 * scale, err_msg=name)
    for name in ("random", "elementwise", "softmax", "amax", "max_pool2d"):
        np.testing.assert_array_equal(found[2][name].numpy(), found[1][name].numpy(), name)


@pytest.mark.parametrize("bad", [0, -1, 1.5, "two", True])
def test_threads_are_at_least_one(bad: Any) -> None:
    with pytest.raises(OptionError, match="at least 1"):
        tg.set_num_threads(bad)
