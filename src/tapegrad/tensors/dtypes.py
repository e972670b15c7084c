"""The number types of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.errors import DTypeError


class DType:
    """A number type: `tapegrad.float32` and its like. There is one object per type."""

    __slots__ = ("is_floating_point", "name", "numpy")

    def __init__(self, name: str) -> None:
        self.name = name
        self.numpy = np.dtype(name)
        self.is_floating_point = self.numpy.kind == "f"

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.numpy.itemsize

    def __repr__(self) -> str:
        return f"tapegrad.{self.name}"

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return as_dtype, (self.name,)


#: In the order of promotion: two of them give the later one.
bool_, int32, int64, float32, float64 = ALL = tuple(
    DType(name) for name in ("bool", "int32", "int64", "float32", "float64")
)
BY_NUMPY = {each.numpy: each for each in ALL}
_BY_NAME = {each.name: each for each in ALL}
_PYTHON = {bool: bool_, int: int64, float: float64}
#: PyTorch's other names; some are Python's, so that no module exports them.
OTHER_NAMES = {
    "bool": bool_,
    "int": int32,
    "long": int64,
    "float": float32,
    "double": float64,
}


def as_dtype(wanted: Any) -> DType:
    """Return the type named by a DType, a string, a NumPy type or Python's bool, int, float.

    Example:
        >>> as_dtype("float64"), as_dtype(np.int32), as_dtype(float)
        (tapegrad.float64, tapegrad.int32, tapegrad.float64)

    """
    if isinstance(wanted, DType):
        return wanted
    known: dict[Any, DType] = _PYTHON if isinstance(wanted, type) else _BY_NAME
    if isinstance(wanted, (type, str)) and wanted in known:
        return known[wanted]
    try:
        return BY_NUMPY[np.dtype(wanted)]
    except (TypeError, KeyError):
        names = ", ".join(_BY_NAME)
        raise DTypeError(f"dtype: expected one of {names}, got {wanted!r}") from None


def is_dtype(name: str) -> bool:
    """Tell whether a text names a number type."""
    return name in _BY_NAME
