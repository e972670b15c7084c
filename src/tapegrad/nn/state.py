"""Loading a state_dict, and telling what is wrong with one that does not fit."""

from __future__ import annotations

from collections.abc import Container, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np

from tapegrad.errors import DTypeError, StateError, TapegradError
from tapegrad.tensors import DType, Tensor, as_tensor, no_grad

#: How many names of a kind a message lists.
_LISTED = 10


class IncompatibleKeys(NamedTuple):
    """What `load_state_dict(strict=False)` left out."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return (
            f"IncompatibleKeys(missing_keys={self.missing_keys}, "
            f"unexpected_keys={self.unexpected_keys})"
        )


def load(
    name: str,
    own: Mapping[str, Tensor],
    given: Mapping[str, Any],
    strict: bool,
    assign: bool,
    may_lack: Container[str],
) -> IncompatibleKeys:
    """Copy given tensors into a module's own; all of them or, if some do not fit, none.

    With `assign` they lie on the memory of those given. What they may lack stays as it is.
    """
    if not isinstance(given, Mapping):
        raise DTypeError(f"load_state_dict: expected a dict of tensors, got {type(given).__name__}")
    keys = IncompatibleKeys(
        [key for key in own if key not in given and key not in may_lack],
        [key for key in given if key not in own],
    )
    common = [key for key in own if key in given]
    taken = {key: read(given[key], own[key].dtype) for key in common}
    complaints = [text for key in common if (text := _mismatch(key, own[key], taken[key]))]
    if strict:
        complaints = _missing_and_unexpected(keys, own, given) + complaints
    if complaints:
        raise StateError("\n".join([f"load_state_dict of {name}: nothing was loaded", *complaints]))
    with no_grad():
        for key in common:
            if assign:
                own[key].data = taken[key].detach()
            else:
                own[key].copy_(taken[key])
    return keys


def read(given: Any, dtype: DType) -> Any:
    """Return a tensor of tapegrad's for an array, or a tensor of another library; else what it is.

    One that cannot be read gives the error.
    """
    if isinstance(given, Tensor) or not hasattr(given, "__array__"):
        return given
    try:
        return as_tensor(np.asarray(given), dtype=dtype)
    except (TapegradError, TypeError, ValueError, RuntimeError) as error:
        return error


def _mismatch(key: str, own: Tensor, given: Any) -> str:
    if isinstance(given, Exception):
        return f"  {key}: expected an array of real numbers, got one that cannot be read: {given}"
    if not isinstance(given, Tensor):
        kind = f"{type(given).__module__}.{type(given).__qualname__}"
        return f"  {key}: expected a Tensor or an array, got {kind.removeprefix('builtins.')}"
    if own.shape != given.shape:
        return f"  {key}: expected shape {tuple(own.shape)}, got {tuple(given.shape)}"
    return ""


def _missing_and_unexpected(
    keys: IncompatibleKeys, own: Mapping[str, Tensor], given: Mapping[str, Any]
) -> list[str]:
    lines = []
    if keys.missing_keys:
        lines.append(f"  missing ({len(keys.missing_keys)} of {len(own)}):")
        lines += _listed(
            [key + _likely(key, own[key], keys.unexpected_keys, given) for key in keys.missing_keys]
        )
    if keys.unexpected_keys:
        lines.append(f"  unexpected ({len(keys.unexpected_keys)} of {len(given)}):")
        lines += _listed(keys.unexpected_keys)
    if lines:
        lines.append(_advice(keys, own))
    return lines


def _listed(names: list[str]) -> list[str]:
    lines = [f"    {name}" for name in names[:_LISTED]]
    if len(names) > _LISTED:
        lines.append(f"    and {len(names) - _LISTED} more")
    return lines


def _likely(key: str, own: Tensor, unexpected: list[str], given: Mapping[str, Any]) -> str:
    """Name an unexpected tensor that has the shape of a missing one, and a name much like its."""
    fitting = [name for name in unexpected if getattr(given[name], "shape", None) == own.shape]
    match = get_close_matches(key, fitting, n=1)
    return f"  (there is {match[0]} of the same shape)" if match else ""


def _advice(keys: IncompatibleKeys, own: Mapping[str, Tensor]) -> str:
    for prefix in {name.split(".")[0] + "." for name in keys.unexpected_keys}:
        stripped = [name.removeprefix(prefix) for name in keys.unexpected_keys]
        if keys.missing_keys and set(stripped) == set(own):
            return f"  every name starts with {prefix!r}: take it off"
    return "  strict=False loads what has the same name and leaves the rest"
