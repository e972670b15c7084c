"""Random numbers: seeds, streams, devices, moments."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
import tapegrad.tensors as tt
from tapegrad.errors import OptionError
from tests.tensors.cases import DEVICES, DTYPES

DRAWS: dict[str, Any] = {
    "rand": lambda **options: tt.rand(1000, **options),
    "rand float64": lambda **options: tt.rand(1000, dtype="float64", **options),
    "randint": lambda **options: tt.randint(-5, 100, (10, 30), **options),
    "randint wide": lambda **options: tt.randint(-(2**62), 2**62, (300,), **options),
    "randperm": lambda **options: tt.randperm(100, **options),
}
NORMAL: dict[str, Any] = {
    "randn": lambda **options: tt.randn(1000, **options),
    "randn float64": lambda **options: tt.randn(1000, dtype="float64", **options),
}


@pytest.mark.parametrize("name", DRAWS)
def test_numbers_have_the_same_bits_on_both_devices(name: str) -> None:
    first, second = (
        DRAWS[name](device=device, generator=tt.Generator(11)).numpy() for device in DEVICES
    )
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("name", NORMAL)
def test_normal_numbers_are_the_same_on_both_devices(name: str) -> None:
    first, second = (
        NORMAL[name](device=device, generator=tt.Generator(11)).numpy() for device in DEVICES
    )
    rtol = 1e-12 if "64" in name else 2e-6
    np.testing.assert_allclose(first, second, rtol, rtol)


@pytest.mark.parametrize("name", [*DRAWS, *NORMAL])
def test_a_seed_begins_the_same_stream(name: str) -> None:
    draw = {**DRAWS, **NORMAL}[name]
    tg.manual_seed(5)
    first, following = draw().numpy(), draw().numpy()
    tg.manual_seed(5)
    np.testing.assert_array_equal(draw().numpy(), first)
    assert (following != first).any()
    tg.manual_seed(6)
    assert (draw().numpy() != first).any()


def test_a_stream_is_the_same_however_it_is_cut() -> None:
    whole = tt.rand(100, generator=tt.Generator(3)).numpy()
    generator = tt.Generator(3)
    parts = [tt.rand(n, generator=generator).numpy() for n in (1, 2, 30, 67)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_generators_are_saved_and_restored() -> None:
    generator = tt.Generator(9)
    tt.randn(5, generator=generator)
    copy = pickle.loads(pickle.dumps(generator))
    state = generator.get_state()
    expected = tt.randn(4, generator=generator).numpy()
    np.testing.assert_array_equal(tt.randn(4, generator=copy).numpy(), expected)
    restored = tt.Generator().set_state(state)
    np.testing.assert_array_equal(tt.randn(4, generator=restored).numpy(), expected)
    assert restored.initial_seed() == 9


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("device", DEVICES)
def test_moments(dtype: str, device: str) -> None:
    n = 200_000
    options: dict[str, Any] = {"dtype": dtype, "device": device, "generator": tt.Generator(1)}
    uniform = tt.rand(n, **options).numpy()
    assert uniform.min() >= 0 and uniform.max() < 1 and uniform.dtype == dtype
    normal = tt.randn(n, **options).numpy().astype("float64")
    bound = 5 / np.sqrt(n)  # five standard errors
    assert abs(uniform.mean(dtype="float64") - 0.5) < bound * np.sqrt(1 / 12)
    assert abs(uniform.var(dtype="float64") - 1 / 12) < bound * np.sqrt(1 / 180)
    for power, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((normal**power).mean() - mean) < bound * np.sqrt(variance)
    assert abs(np.corrcoef(normal[:-1], normal[1:])[0, 1]) < bound


def test_whole_numbers_lie_within_their_bounds_evenly() -> None:
    drawn = tt.randint(-2, 3, (50_000,), generator=tt.Generator(2)).numpy()
    counts = np.bincount(drawn + 2, minlength=5)
    assert len(counts) == 5 and abs(counts - 10_000).max() < 5 * np.sqrt(8000)
    assert tt.randint(4, (2, 3)).shape == (2, 3)
    with pytest.raises(OptionError, match="low < high"):
        tt.randint(3, 3, (1,))


@pytest.mark.parametrize("device", DEVICES)
def test_permutations_and_bernoulli(device: str) -> None:
    assert sorted(tt.randperm(50, device=device).tolist()) == list(range(50))
    p = tt.full((20_000,), 0.3, device=device)
    drawn = tt.bernoulli(p).numpy()
    assert abs(drawn.mean() - 0.3) < 0.02 and set(drawn.tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("dtype", DTYPES)
def test_dropout_zeroes_and_scales_the_same_elements_everywhere(dtype: str) -> None:
    found = []
    for device in DEVICES:
        tg.manual_seed(4)
        x = tt.ones((100, 100), dtype=dtype, device=device, requires_grad=True)
        y = tt.dropout(x, 0.25)
        y.backward(tt.full_like(y, 3.0))
        assert x.grad is not None
        np.testing.assert_allclose(x.grad.numpy(), 3 * y.detach().numpy(), rtol=1e-6)
        found.append(y.detach().numpy())
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_allclose(np.unique(found[0]), [0, 4 / 3], rtol=1e-6)
    assert abs((found[0] == 0).mean() - 0.25) < 0.02


def test_dropout_at_its_bounds() -> None:
    x = tt.tensor([1.0, 2.0])
    assert tt.dropout(x, 0.5, training=False) is x and tt.dropout(x, 0.0) is x
    assert tt.dropout(x, 1.0).tolist() == [0.0, 0.0]
    with pytest.raises(OptionError, match="from 0 to 1"):
        tt.dropout(x, 1.5)


def test_like_has_shape_type_and_device() -> None:
    x = tt.zeros((2, 3), dtype="float64", device="reference")
    for made in (tt.rand_like(x), tt.randn_like(x)):
        assert made.shape == x.shape and made.dtype is x.dtype and made.device is x.device
    assert tt.rand(2, requires_grad=True).requires_grad
    assert tt.rand((2, 3)).shape == tt.rand([2, 3]).shape == tt.rand(2, 3).shape == (2, 3)
    assert tt.rand(0).shape == (0,) and tt.randn(()).shape == ()
    with pytest.raises((TypeError, ValueError), match=r"rand|size|float"):
        tt.rand(2, dtype="int64")
    with pytest.raises(ValueError, match="-1"):
        tt.rand(-1)
