"""What functions of tensors say when an argument is not what they expect.

Operations look at their operands' attributes without asking first whether these are tensors: with
tensors of a few elements each question would cost as much as the work. So the question is asked
after something went wrong, of the function's signature. Functions get this where users find them,
in `tapegrad` and `nn.functional`; among themselves operations call each other directly.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, wraps
from typing import Any, TypeVar

import numpy as np

from tapegrad._core import Var
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


def checked(function: _Function) -> _Function:
    """Make a function say which argument is no tensor, where one should be and is not."""

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TapegradError:
            raise
        except tuple(_FAILURES) as error:
            _explain(function, args, kwargs, error)
            raise

    return called  # type: ignore[return-value]


@lru_cache(None)
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


def wants_tensor(parameter: inspect.Parameter) -> bool:
    """Tell whether a parameter is for tensors and nothing else."""
    return "Tensor" in str(parameter.annotation)


def _explain(function: Any, args: Any, kwargs: Any, error: Exception) -> None:
    """Raise what is wrong with the arguments; return if the call itself is, as Python says best."""
    signature = _signature(function)
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError:
        return
    name = function.__name__
    for key, value in given.items():
        for each in _not_tensors(signature.parameters[key], value):
            raise DTypeError(
                f"{name}: expected {key} to be {_wanted(key)}, got {_text(each)}"
            ) from None
    kind = next(ours for theirs, ours in _FAILURES.items() if isinstance(error, theirs))
    raise kind(f"{name}: {error}") from error


def _not_tensors(parameter: inspect.Parameter, value: Any) -> Iterator[Any]:
    """Yield what is given in the place of tensors and is none."""
    text = str(parameter.annotation)
    if not wants_tensor(parameter) or (value is None and "None" in text):
        return
    if (
        "Sequence" in text
        and isinstance(value, Iterable)
        and not isinstance(value, (str, TensorBase))
    ):
        listed = list(value)
    else:
        listed = [value]
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
