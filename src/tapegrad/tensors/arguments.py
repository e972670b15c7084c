"""What functions of tensors say when an argument is not what they expect.

Among themselves operations call each other directly, and look at their operands' attributes without
asking first whether these are tensors: with tensors of a few elements each question would cost as
much as the work. Users get functions that ask, in `tapegrad` and `nn.functional`: which arguments
are to be tensors is in a function's signature, and what mistaken options end in becomes an error of
tapegrad's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import lru_cache, update_wrapper
from typing import Any, TypeVar

import numpy as np

from tapegrad._core import Checked, Var
from tapegrad.errors import DTypeError, OptionError, ShapeError, TapegradError
from tapegrad.tensors.base import TensorBase

_Function = TypeVar("_Function", bound=Callable[..., Any])
#: What mistaken arguments end in below us, and what that is here.
_FAILURES: dict[type[Exception], type[TapegradError]] = {
    AttributeError: DTypeError,
    TypeError: DTypeError,
    ValueError: ShapeError,
    KeyError: OptionError,
    OverflowError: OptionError,
    ZeroDivisionError: OptionError,
}
_ALL: tuple[type[Exception], ...] = (TapegradError, *_FAILURES)


#: Names that errors begin with: functions that others may be made of.
_OPERATIONS = {"elementwise"}


def asks(function: _Function) -> _Function:
    """Mark a function that looks at its arguments itself, as those do that are called most."""
    function.asks = True  # type: ignore[attr-defined]
    return function


def checked(function: _Function) -> _Function:
    """Make a function refuse what is no tensor where one should be, and name the argument.

    The first argument is looked at before the call, since a NumPy array would do in its place now
    and then; the others after something went wrong.
    """
    _OPERATIONS.add(function.__name__)
    if getattr(function, "asks", False):
        return function
    first = next(iter(_signature(function).parameters.values()), None)
    begins = first.name if first is not None and str(first.annotation) == "Tensor" else ""

    asking: Any = Checked(function, begins, _name_no_tensor, _explain)
    return update_wrapper(asking, function)  # type: ignore[return-value]


@lru_cache(None)
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


def wants_tensor(parameter: inspect.Parameter) -> bool:
    """Tell whether a parameter is for tensors and nothing else."""
    return "Tensor" in str(parameter.annotation)


def _is_list(parameter: inspect.Parameter) -> bool:
    return "Sequence" in str(parameter.annotation)


def _bound(function: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """Return arguments by name; nothing if the call itself is wrong, as Python says best."""
    try:
        return _signature(function).bind(*args, **kwargs).arguments
    except TypeError:
        return {}


def _name_no_tensor(function: Any, args: Any, kwargs: Any) -> None:
    """Raise if one of the arguments is no tensor where one should be."""
    parameters = _signature(function).parameters
    for key, value in _bound(function, args, kwargs).items():
        for each in _not_tensors(parameters[key], value):
            raise _no_tensor(function.__name__, key, each)


def expect_tensors(op: str, **given: Any) -> None:
    """Raise if one of these arguments is no tensor, before its attributes are looked at."""
    for key, value in given.items():
        if not isinstance(value, TensorBase):
            raise _no_tensor(op, key, value)


def _no_tensor(op: str, key: str, value: Any) -> DTypeError:
    return DTypeError(f"{op}: expected {key} to be {_wanted(key)}, got {_text(value)}")


def _explain(function: Any, args: Any, kwargs: Any, error: Exception) -> None:
    """Raise what is wrong with the arguments; return if the error says it, or the call is wrong."""
    if isinstance(error, _ALL) and _bound(function, args, kwargs):
        _name_no_tensor(function, args, kwargs)
        if not isinstance(error, TapegradError):
            kind = next(ours for theirs, ours in _FAILURES.items() if isinstance(error, theirs))
            raise kind(f"{function.__name__}: {error}") from error
    if isinstance(error, (TapegradError, IndexError)):
        _name_function(function.__name__, error)


def _name_function(name: str, error: Exception) -> None:
    """Raise the error in the name of what was called, if it has that of an operation inside."""
    inside, _, text = str(error).partition(": ")
    if text and inside != name and inside in _OPERATIONS:
        raise type(error)(f"{name}: {text}") from error


def _not_tensors(parameter: inspect.Parameter, value: Any) -> Iterator[Any]:
    """Yield what is given in the place of tensors and is none."""
    if not wants_tensor(parameter) or (value is None and "None" in str(parameter.annotation)):
        return
    listed = value if _is_list(parameter) and isinstance(value, (list, tuple)) else [value]
    yield from (each for each in listed if not isinstance(each, TensorBase))


def _wanted(key: str) -> str:
    return "a list of tensors" if key == "tensors" else "a tensor"


def _text(value: Any) -> str:
    """Return what a value is, and how a tensor can be made of it."""
    kind = type(value).__name__
    if isinstance(value, np.ndarray):
        return "a NumPy array; tg.from_numpy or tg.tensor makes one of it"
    if isinstance(value, (int, float, list, tuple, np.number)):
        return f"{kind}; tg.tensor makes one of it"
    if isinstance(value, Var):
        return (
            "Var; Vars and tensors do not mix, tg.elementwise makes functions of Vars take tensors"
        )
    return f"{kind}; make one with tg.tensor"
