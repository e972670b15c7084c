"""Devices: where the arrays of tensors live and who computes on them.

A backend has arrays of its own and a kernel per operation. Its arrays offer NumPy's way of looking
at memory (shape, dtype, strides, flags, slicing, reshape, transpose: views without arithmetic, with
the array they lie on as `base`; and copy); all arithmetic is a kernel. Operations, gradients and
layers know a device by this interface alone, so another device is one more file here and a line in
`_MODULES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from tapegrad.errors import DeviceError

Array = Any  #: What a backend computes on.


class Backend:
    """A device. Subclasses fill in the kernels."""

    name: str
    #: Kernels by operation: kernel(*arrays, **attributes) -> array, or a tuple of arrays.
    kernels: Mapping[str, Callable[..., Any]]
    #: Kernels that keep something of a weight, as a copy in a layout of their own, and which
    #: operand that is. They get the weight's cell behind the operands: [how often it was changed,
    #: epoch of its history, what is kept], shared by all tensors on its memory and gone with them.
    #: What is kept is None at first, and False where others may write to the memory uncounted.
    keeps: Mapping[str, int] = {}

    def from_numpy(self, array: Any) -> Array:
        """Return an array of this device with the elements of a NumPy array, without a copy."""
        raise NotImplementedError

    def to_numpy(self, array: Array) -> Any:
        """Return the elements as a NumPy array, without a copy where that is possible."""
        raise NotImplementedError

    def address(self, array: Array) -> int:
        """Return the byte of the device's memory at which the first element lies."""
        raise NotImplementedError

    def view(
        self, array: Array, shape: tuple[int, ...], strides: tuple[int, ...], at: int
    ) -> Array:
        """Return a view of contiguous memory by its layout; all are bytes, `at` from the first."""
        raise NotImplementedError

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return an array whose elements are not set."""
        raise NotImplementedError

    def map1(self, op: int, a: Array, out: Array | None = None) -> Array:
        """Apply an operation of the scalar table to every element."""
        raise NotImplementedError

    def map2(self, op: int, a: Array | float, b: Array | float, out: Array | None = None) -> Array:
        """Apply an operation of two operands, broadcast."""
        raise NotImplementedError

    def map_program(
        self, program: Any, operands: tuple[Any, ...], out: tuple[Array, ...] | None = None
    ) -> tuple[Array, ...]:
        """Run a scalar program over the elements of broadcast arrays."""
        raise NotImplementedError

    @property
    def type(self) -> str:
        """The name, as PyTorch calls it."""
        return self.name

    @property
    def index(self) -> None:
        """Which of several, for PyTorch's sake: there is one of each."""

    def __repr__(self) -> str:
        return f"device({self.name!r})"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return device, (self.name,)


_MODULES = {"cpu": "cpu", "reference": "reference"}
#: The names of all devices.
DEVICES = tuple(_MODULES)
_LOADED: dict[str, Backend] = {}


def device(name: str | Backend) -> Backend:
    """Return a device by name: "cpu", or "reference", which computes with NumPy.

    Example:
        >>> device("cpu")
        device('cpu')

    """
    if isinstance(name, Backend):
        return name
    found = _LOADED.get(name) if isinstance(name, str) else None
    if found is None:
        if not isinstance(name, str) or name not in _MODULES:
            raise DeviceError(f"device: expected one of {', '.join(_MODULES)}, got {name!r}")
        found = _LOADED[name] = import_module(f"tapegrad.backends.{_MODULES[name]}").BACKEND
    return found
