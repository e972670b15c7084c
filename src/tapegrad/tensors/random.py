"""Random numbers: counter-based, so the same seed gives the same numbers on every device.

A generator is a seed and a count of numbers drawn. Number i depends on seed and i alone, whoever
computes it and on however many threads.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tapegrad._core import Stream
from tapegrad.errors import DTypeError, OptionError
from tapegrad.tensors.base import wrap
from tapegrad.tensors.creation import kind_of, place_of
from tapegrad.tensors.dtypes import as_dtype, int64
from tapegrad.tensors.ops import dims as _dims

if TYPE_CHECKING:
    from tapegrad.tensors.methods import Tensor


class Generator(Stream):
    """A stream of random numbers.

    Example:
        >>> import tapegrad as tg
        >>> first = tg.rand(3, generator=tg.Generator(7))
        >>> bool((tg.rand(3, generator=tg.Generator(7)) == first).all())
        True

    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.manual_seed(seed)

    def manual_seed(self, seed: int) -> Generator:
        """Begin again with another seed."""
        if not isinstance(seed, int):
            raise DTypeError(f"manual_seed: expected a whole number, got {seed!r}")
        self._seed = seed & 0xFFFF_FFFF_FFFF_FFFF
        self._drawn = 0
        return self

    def initial_seed(self) -> int:
        """Return the seed."""
        return self._seed

    def get_state(self) -> tuple[int, int]:
        """Return seed and count of numbers drawn."""
        return self._seed, self._drawn

    def set_state(self, state: tuple[int, int]) -> Generator:
        """Go on where another generator was."""
        self._seed, self._drawn = (int(each) for each in state)
        return self

    def __getstate__(self) -> tuple[int, int]:
        return self.get_state()

    def __setstate__(self, state: tuple[int, int]) -> None:
        super().__init__()
        self.set_state(state)


#: What functions draw from if no generator is named.
DEFAULT = Generator(0)


def manual_seed(seed: int) -> Generator:
    """Begin the common stream of random numbers again."""
    return DEFAULT.manual_seed(seed)


#: What users call the kernels.
_NAMES = {"uniform": "rand", "normal": "randn", "integers": "randint", "mask": "dropout"}


def _drawn(
    kernel: str,
    shape: tuple[int, ...],
    device: Any,
    requires_grad: bool,
    generator: Generator | None,
    **options: Any,
) -> Tensor:
    if generator is not None and not isinstance(generator, Generator):
        raise DTypeError(
            f"{_NAMES[kernel]}: expected generator to be a tg.Generator, got "
            f"{type(generator).__name__}; make one with tg.Generator(seed)"
        )
    place = place_of(device)
    seed, offset = (generator or DEFAULT).take(math.prod(shape))
    try:
        found = wrap(place.kernels[kernel](shape=shape, seed=seed, offset=offset, **options), place)
    except DTypeError:
        raise DTypeError(
            f"{_NAMES[kernel]}: expected a floating point dtype, got {options['dtype']}; use "
            "tg.randint"
        ) from None
    if requires_grad:
        found.requires_grad = True
    return found


def rand(
    *sizes: Any,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Return numbers drawn evenly from 0 up to, not including, 1."""
    shape = _dims.sized("rand", sizes, size)
    return _drawn("uniform", shape, device, requires_grad, generator, dtype=kind_of(dtype))


def randn(
    *sizes: Any,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Return numbers drawn from the normal distribution."""
    shape = _dims.sized("randn", sizes, size)
    return _drawn("normal", shape, device, requires_grad, generator, dtype=kind_of(dtype))


def randint(
    low: Any = None,
    high: Any = None,
    size: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Return whole numbers drawn evenly from low (0 if left out) up to, not including, high."""
    if size is None:
        low, high, size = 0, low, high
    elif low is None or high is None:
        low, high = 0, high if low is None else low
    for each in (low, high):
        if isinstance(each, bool) or not isinstance(each, (int, np.integer)):
            raise DTypeError(f"randint: expected whole numbers as low and high, got {each!r}")
    if not -(2**63) <= low <= high <= 2**63 - 1:
        raise OptionError(f"randint: expected numbers of 64 bits, got {low} and {high}")
    if high <= low:
        raise OptionError(f"randint: expected low < high, got {low} and {high}")
    shape = _dims.shape("randint", (size,))
    found = _drawn("integers", shape, device, False, generator, low=low, high=high)
    return found.to(as_dtype(dtype or int64)).requires_grad_(requires_grad)


def randperm(
    n: int,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Return the numbers from 0 to n - 1 in random order."""
    keys = rand(_dims.shape("randperm", (n,)), dtype="float64", generator=generator).numpy()
    place = place_of(device)
    order = wrap(place.from_numpy(keys.argsort(kind="stable").astype("int64")), place)
    return order.to(as_dtype(dtype or int64)).requires_grad_(requires_grad)


def rand_like(
    input: Tensor,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Return numbers from 0 to 1 in the shape, type and device of another tensor."""
    return rand(
        input.shape,
        dtype=dtype or input.dtype,
        device=device or input.device,
        requires_grad=requires_grad,
        generator=generator,
    )


def randn_like(
    input: Tensor,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Return normal numbers in the shape, type and device of another tensor."""
    return randn(
        input.shape,
        dtype=dtype or input.dtype,
        device=device or input.device,
        requires_grad=requires_grad,
        generator=generator,
    )


def uniform_like(x: Tensor, low: float, high: float, generator: Generator | None) -> Tensor:
    """Return numbers drawn evenly from low up to, not including, high, for another tensor."""
    _check_drawn("uniform_", x, low, high)
    if not low <= high:
        raise OptionError(f"uniform_: expected bounds in order, got {low} and {high}")
    return rand_like(x, generator=generator) * (high - low) + low


def normal_like(x: Tensor, mean: float, std: float, generator: Generator | None) -> Tensor:
    """Return numbers drawn from a normal distribution, for another tensor."""
    _check_drawn("normal_", x, mean, std)
    if not std >= 0:
        raise OptionError(f"normal_: expected std of at least 0, got {std}")
    return randn_like(x, generator=generator) * std + mean


def _check_drawn(op: str, x: Tensor, *numbers: Any) -> None:
    if not x.is_floating_point():
        raise DTypeError(f"{op}: expected a floating point tensor, got {x.dtype}; use x.float()")
    for each in numbers:
        if not isinstance(each, (int, float)):
            raise DTypeError(f"{op}: expected numbers, got {type(each).__name__}")


def bernoulli(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Return ones with the probabilities x, else zeros."""
    if not input.is_floating_point():
        raise DTypeError(
            f"bernoulli: expected floating point probabilities, got {input.dtype}; use x.float()"
        )
    if not bool(((input >= 0) & (input <= 1)).all()):
        raise OptionError("bernoulli: expected probabilities from 0 to 1, got others")
    return (rand_like(input, generator=generator) < input).to(input.dtype)


def dropout(input: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Return x with a share p of its elements zero and the others scaled up by 1 / (1 - p)."""
    if not 0.0 <= p <= 1.0:
        raise OptionError(f"dropout: expected a probability from 0 to 1, got {p}")
    if not training or p == 0.0:
        return input
    if p == 1.0:
        return input * 0.0
    mask = _drawn("mask", input._array.shape, input.device, False, None, keep=1.0 - p)
    return input * (mask.to(input.dtype) * (1.0 / (1.0 - p)))


__all__ = [
    "Generator",
    "bernoulli",
    "dropout",
    "manual_seed",
    "rand",
    "rand_like",
    "randint",
    "randn",
    "randn_like",
    "randperm",
]
