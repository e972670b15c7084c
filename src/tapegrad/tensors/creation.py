"""Tensors from numbers, arrays and nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tapegrad._core.arguments import numbers_in
from tapegrad.backends import Backend
from tapegrad.backends import device as find_device
from tapegrad.errors import DeviceError, DTypeError, OptionError, ShapeError
from tapegrad.tensors.base import TensorBase, wrap
from tapegrad.tensors.dtypes import (
    BY_NUMPY,
    DType,
    as_dtype,
    bool_,
    float32,
    float64,
    int32,
    int64,
)
from tapegrad.tensors.ops import dims as _dims

if TYPE_CHECKING:
    from tapegrad.tensors.methods import Tensor


#: What a tensor is made of and where it lives if neither is named.
_FLOAT32, _CPU = float32.numpy, find_device("cpu")


def place_of(device: Any) -> Backend:
    """Return the device of a new tensor."""
    return _CPU if device is None else find_device(device)


def kind_of(dtype: Any) -> Any:
    """Return the number type of a new tensor, as NumPy's."""
    return as_dtype(dtype).numpy if dtype else _FLOAT32


def _made(array: Any, device: Any, requires_grad: bool) -> Tensor:
    place = place_of(device)
    made = wrap(place.from_numpy(array), place)
    if requires_grad:
        made.requires_grad = True
    return made


def tensor(data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Return a tensor with a copy of numbers, nested lists, an array or a tensor.

    Numbers with a point become float32, whole numbers int64, as in PyTorch; NumPy arrays keep
    their type.

    Example:
        >>> import tapegrad as tg
        >>> tg.tensor([[1.0, 2.0], [3.0, 4.0]]).sum()
        tensor(10.)

    """
    read = numbers_in(data) if dtype is None else None
    if read is None:
        read = np.array(_as_array("tensor", data, dtype), copy=True)
    return _made(read, device, requires_grad)


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """Return a tensor with the numbers given; on the same memory where that is possible."""
    if isinstance(data, TensorBase):
        found: Tensor = data  # type: ignore[assignment]
        found = found if dtype is None else found.to(as_dtype(dtype))
        return found if device is None else found.to(find_device(device))
    return _borrowed("as_tensor", data, dtype, device)


def from_numpy(array: Any) -> Tensor:
    """Return a tensor on the memory of a NumPy array: changes of one show in the other."""
    if not isinstance(array, np.ndarray):
        raise DTypeError(f"from_numpy: expected a NumPy array, got {type(array).__name__}")
    return _borrowed("from_numpy", array)


def _borrowed(op: str, data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """Return a tensor on memory that its owner may go on writing to."""
    made = _made(_as_array(op, data, dtype), device, requires_grad=False)
    made._give_out()
    return made


class _Capsule:
    """What `__dlpack__` of an array gave, as an array."""

    def __init__(self, capsule: Any) -> None:
        if type(capsule).__name__ != "PyCapsule":
            raise DTypeError(
                "from_dlpack: expected an array with the method __dlpack__, or what that gave, got "
                f"{type(capsule).__name__}"
            )
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # the CPU; a capsule of another device says so itself


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """Return a tensor on the memory of another library's array; on that of its own by `copy`.

    `ext_tensor` has the method `__dlpack__`, or is what that method gave: a capsule, whose memory
    can be written if it says so (`__dlpack__(max_version=(1, 0))`).
    """
    given = ext_tensor if hasattr(ext_tensor, "__dlpack__") else _Capsule(ext_tensor)
    try:
        found = from_numpy(np.from_dlpack(given))
    except RuntimeError as error:  # a number type or a device that NumPy does not have
        raise DTypeError(
            "from_dlpack: expected an array on the CPU of bool, int32, int64, float32 or float64, "
            f"got another: {error}"
        ) from None
    found = found.clone() if copy else found
    if device is None or find_device(device) is found._device:
        return found
    if copy is False:
        raise DeviceError(
            f"from_dlpack: expected device 'cpu' where copy=False, got {device!r}; leave copy out"
        )
    return found.to(find_device(device))


def _as_array(op: str, data: Any, dtype: Any) -> Any:
    wanted = None if dtype is None else as_dtype(dtype).numpy
    if isinstance(data, TensorBase):
        array = data._device.to_numpy(data._array)
    else:
        try:
            array = np.asarray(_unwrapped(op, data))
        except ValueError as error:
            raise ShapeError(f"{op}: {error}") from None
        if not hasattr(data, "dtype"):
            return _of_python(op, data, array, wanted)
    if wanted is None and array.dtype not in BY_NUMPY:
        raise DTypeError(
            f"{op}: expected bool, int32, int64, float32 or float64, got {array.dtype}; "
            "convert it, or name a dtype"
        )
    if array.dtype.kind not in "biuf":
        raise DTypeError(f"{op}: expected real numbers, got {array.dtype}")
    return array if wanted is None else array.astype(wanted, copy=False)


def _of_python(op: str, data: Any, array: Any, wanted: Any) -> Any:
    """Return numbers of Python in a type that can hold them.

    NumPy makes other things of whole numbers beyond 64 bits: beside smaller ones even floats.
    """
    if array.dtype.kind == "O" and _are_whole(array.ravel().tolist()):
        if wanted is None or wanted.kind == "i":
            raise _too_large(op, wanted or np.dtype(np.int64))
        return array.astype(wanted)
    if wanted is None:
        wanted = _common(op, data, array)
        if array.dtype.kind == "f" and array.size and _are_whole(data):
            raise _too_large(op, np.dtype(np.int64))
    if array.dtype.kind not in "biuf":
        raise DTypeError(f"{op}: expected real numbers, got {array.dtype}")
    return _held(op, array, wanted)


def _are_whole(data: Any) -> bool:
    """Tell whether nested lists hold whole numbers alone."""
    if isinstance(data, (list, tuple)):
        return all(_are_whole(each) for each in data)
    return isinstance(data, int)


def _unwrapped(op: str, data: Any) -> Any:
    """Return nested lists with numbers in the place of tensors, which have one element each."""
    if isinstance(data, (list, tuple)):
        return [_unwrapped(op, each) for each in data]
    if not isinstance(data, TensorBase):
        return data
    if data._array.size != 1:
        raise ShapeError(
            f"{op}: expected tensors of one element in a list, got shape {data.shape}; use tg.stack"
        )
    return data.item()


def _common(op: str, data: Any, array: Any) -> Any:
    """Return the type of numbers in lists: those with a type of their own may ask for another."""
    kind = _default(op, array)
    if _is_plain(data):
        return kind
    own = set(_types(data))
    if kind.kind == "f" and float64.numpy in own:
        return float64.numpy
    return int32.numpy if kind.kind == "i" and own <= {int32.numpy, bool_.numpy} else kind


#: Numbers of Python's, which have no type of their own.
_PLAIN = {int, float, bool}


def _is_plain(data: Any) -> bool:
    """Tell whether all is a number of Python's, or a list of them."""
    return type(data) in _PLAIN or (type(data) is list and set(map(type, data)) <= _PLAIN)


def _types(data: Any) -> Iterator[Any]:
    """Yield the number types of what is in nested lists; None of Python's own numbers."""
    if isinstance(data, (list, tuple)):
        for each in data:
            yield from _types(each)
    else:
        yield data._array.dtype if isinstance(data, TensorBase) else getattr(data, "dtype", None)


def _default(op: str, array: Any) -> Any:
    kind = array.dtype.kind
    if kind == "f":
        return np.dtype(np.float32)
    if kind in "iu":
        return np.dtype(np.int64)
    if kind == "b":
        return array.dtype
    raise DTypeError(f"{op}: expected numbers, got {array.dtype}")


def scalar_like(op: str, value: Any, like: Tensor) -> Tensor:
    """Return a number as a tensor without dimensions on the device of another; tensors as is."""
    if isinstance(value, TensorBase):
        return value  # type: ignore[return-value]
    place = like._device
    if type(value) is float and like._array.dtype.kind == "f":
        return wrap(place.from_numpy(np.array(value, like._array.dtype)), place)
    kind = like._array.dtype
    own = _number(op, value, kind)
    if own.dtype.kind == "f" and kind.kind != "f":
        kind = np.dtype(np.float32)
    elif own.dtype.kind == "b" and kind.kind != "f":
        kind = own.dtype
    elif own.dtype.kind in "iu" and kind.kind == "b":
        kind = np.dtype(np.int64)
    return wrap(place.from_numpy(_held(op, own, kind)), place)


def number_like(op: str, value: Any, like: Tensor) -> Tensor:
    """Return a number, or a tensor without dimensions, in the type of another tensor."""
    if isinstance(value, TensorBase):
        found: Tensor = value.to(like.dtype)  # type: ignore[attr-defined]
        return found
    place, kind = like._device, like._array.dtype
    if type(value) is float and kind.kind == "f":
        return wrap(place.from_numpy(np.array(value, kind)), place)
    return wrap(place.from_numpy(_held(op, _number(op, value, kind), kind)), place)


def _number(op: str, value: Any, kind: Any) -> Any:
    """Return a number as an array; floating point types take whole numbers beyond 64 bits."""
    number = np.asarray(value) if isinstance(value, (int, float, np.generic)) else None
    if isinstance(value, int) and number is not None and number.dtype.kind == "O":
        if kind.kind != "f" or not -1e308 < value < 1e308:
            raise _too_large(op, np.dtype(np.int64))
        return np.asarray(float(value))
    if number is None or number.dtype.kind not in "biuf":
        raise DTypeError(
            f"{op}: expected a number or a tensor, got {type(value).__name__}; "
            "make one with tg.tensor"
        )
    return number


def _too_large(op: str, kind: Any) -> OptionError:
    return OptionError(
        f"{op}: expected whole numbers that {kind} can hold, got others; "
        "name a larger dtype, or a floating point one"
    )


def _held(op: str, array: Any, kind: Any) -> Any:
    """Return numbers in another type, if that is not one of whole numbers that are too small."""
    if kind.kind == "i" and not _fits(array, kind):
        raise _too_large(op, kind)
    return array.astype(kind, copy=False)


def _fits(array: Any, kind: Any) -> bool:
    """Tell whether a type of whole numbers can hold all of these, rounded to 0; none is NaN."""
    if not array.size or array.dtype == kind or array.dtype.kind == "b":
        return True
    room = np.iinfo(kind)
    return bool(room.min <= array.min() and array.max() < room.max + 1)


# ---- of one value -------------------------------------------------------------------------------


def full(
    size: Any,
    fill_value: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return a tensor of this shape with one value everywhere."""
    shape = _dims.shape("full", (size,))
    kind = _default("full", np.asarray(fill_value)) if dtype is None else as_dtype(dtype).numpy
    return _filled(place_of(device), shape, kind, _fitting("full", fill_value, kind), requires_grad)


def _fitting(op: str, value: Any, kind: Any) -> Any:
    """Return a value to fill a tensor with, if its type can hold it."""
    if type(value) not in _PLAIN and not isinstance(value, (np.generic, TensorBase)):
        raise DTypeError(f"{op}: expected a number to fill with, got {type(value).__name__}")
    return value if kind.kind != "i" or value in (0, 1) else _held(op, np.asarray(value), kind)


def _filled(
    place: Backend, shape: tuple[int, ...], kind: Any, value: Any, requires_grad: bool
) -> Tensor:
    array = place.empty(shape, kind)
    place.kernels["fill"](array, value)
    made = wrap(array, place)
    if requires_grad:
        made.requires_grad = True
    return made


def zeros(
    *sizes: Any,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return zeros of this shape."""
    shape = _dims.sized("zeros", sizes, size)
    return _filled(place_of(device), shape, kind_of(dtype), 0, requires_grad)


def ones(
    *sizes: Any,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return ones of this shape."""
    shape = _dims.sized("ones", sizes, size)
    return _filled(place_of(device), shape, kind_of(dtype), 1, requires_grad)


def empty(
    *sizes: Any,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return a tensor of this shape whose elements are not set."""
    place = place_of(device)
    made = wrap(place.empty(_dims.sized("empty", sizes, size), kind_of(dtype)), place)
    if requires_grad:
        made.requires_grad = True
    return made


def full_like(
    input: Tensor,
    fill_value: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return one value everywhere, in the shape, type and device of another tensor."""
    kind = input._array.dtype if dtype is None else as_dtype(dtype).numpy
    place = input._device if device is None else find_device(device)
    value = _fitting("full_like", fill_value, kind)
    return _filled(place, input._array.shape, kind, value, requires_grad)


def zeros_like(
    input: Tensor, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Return zeros in the shape, type and device of another tensor."""
    return full_like(input, 0, dtype=dtype, device=device, requires_grad=requires_grad)


def ones_like(
    input: Tensor, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Return ones in the shape, type and device of another tensor."""
    return full_like(input, 1, dtype=dtype, device=device, requires_grad=requires_grad)


def empty_like(
    input: Tensor, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Return a tensor like another whose elements are not set."""
    kind, place = dtype or input.dtype, device or input.device
    return empty(input.shape, dtype=kind, device=place, requires_grad=requires_grad)


# ---- sequences ----------------------------------------------------------------------------------


def arange(
    start: Any = None,
    end: Any = None,
    step: Any = 1,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return numbers from start (0 if only one is given) up to, not including, end.

    Of whole numbers if all three are, or by `dtype`, which rounds them to 0 first.
    """
    if start is None and end is None:
        raise ShapeError("arange: expected an end, got none; write tg.arange(end)")
    first, last = (0, start) if end is None else (0 if start is None else start, end)
    whole = all(isinstance(each, (int, np.integer)) for each in (first, last, step))
    if not step or not (whole or all(math.isfinite(each) for each in (first, last, step))):
        raise ShapeError(f"arange: expected finite bounds and a step, got {first}, {last}, {step}")
    if (last < first) if step > 0 else (last > first):
        raise ShapeError(
            f"arange: expected steps of {step} to lead from {first} to {last}; "
            "change the sign of the step"
        )
    kind = _numbered("arange", dtype, int64 if whole else float32)
    if kind.kind != "i":
        count = math.ceil((last - first) / step)
        return _made((first + step * np.arange(count)).astype(kind), device, requires_grad)
    begin, end, by = int(first), int(last), int(step)
    if not by:
        raise OptionError(f"arange: expected a step of at least 1 for {kind}, got {step}")
    if kind != np.int64 and not whole:  # PyTorch counts before it rounds, but for int64
        end = begin + by * math.ceil((last - first) / step)
    return _made(np.arange(begin, end, by).astype(kind, copy=False), device, requires_grad)


def _numbered(op: str, dtype: Any, default: DType) -> Any:
    """Return the number type of a sequence, which is not bool."""
    if dtype is None:
        return default.numpy
    kind = as_dtype(dtype)
    if kind is bool_:
        raise DTypeError(f"{op}: expected a dtype of numbers, got {kind}; compare with 0 after")
    return kind.numpy


def linspace(
    start: float,
    end: float,
    steps: int,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return `steps` numbers from start to end, both included, at equal distances.

    Whole numbers are rounded to 0, the bounds before all others.
    """
    if steps < 0:
        raise ShapeError(f"linspace: expected at least 0 steps, got {steps}")
    kind = _numbered("linspace", dtype, float32)
    found = np.linspace(start, end, steps)
    if kind.kind == "i" and steps > 1:
        first, last = int(start), int(end)
        by, places = (last - first) / (steps - 1), np.arange(steps)
        found = np.where(places < steps // 2, first + by * places, last - by * places[::-1])
    return _made(_held("linspace", found, kind), device, requires_grad)


def eye(
    n: int,
    m: int | None = None,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return ones on the diagonal and zeros elsewhere."""
    _dims.shape("eye", (n, n if m is None else m))
    return _made(np.eye(n, m, dtype=kind_of(dtype)), device, requires_grad)


__all__ = [
    "arange",
    "as_tensor",
    "empty",
    "empty_like",
    "eye",
    "from_dlpack",
    "from_numpy",
    "full",
    "full_like",
    "linspace",
    "ones",
    "ones_like",
    "tensor",
    "zeros",
    "zeros_like",
]
