"""What `Program.minimize` takes and gives: options, checked, and the Minimum."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tapegrad.errors import OptionError, ShapeError

Method: TypeAlias = Literal["sgd", "momentum", "adam", "lbfgs", "lm"]

#: A callback of `minimize`: step, x, value; true ends the run.
Callback: TypeAlias = Callable[[int, NDArray[Any], Any], object]

#: Tolerances of the methods that know when they have arrived: gradient, relative change.
TOLERANCES = {"float64": (1e-8, 1e-12), "float32": (1e-4, 1e-6)}

#: Options that one method has and the others do not, with their defaults.
MOMENTUM, MEMORY = 0.9, 10


@dataclass(frozen=True)
class Minimum:
    """What `Program.minimize` found. With several starts, x, values and reasons have a row each."""

    x: NDArray[Any]
    """The best point seen."""
    value: Any
    """The value there."""
    last_x: NDArray[Any]
    """Where the steps ended."""
    last_value: Any
    """The value there."""
    history: NDArray[Any] | None
    """Values every `history` steps, from the start on."""
    steps: int
    """Steps taken; of several starts, by the one that took most."""
    stopped: bool
    """Whether Ctrl-C or the callback ended it early."""
    reason: Any
    """Why it ended: "steps" (all were taken), "gradient" (as small as `gtol`), "change" (as small
    as `ftol`), "target", "patience", "no descent" (nothing better nearby, as far as the numbers
    show), "not finite" (NaN or infinity where it cannot go on), "callback" or "interrupt"."""


def options(
    method: str,
    inputs: int,
    dtype: str,
    *,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    momentum: float | None,
    memory: int | None,
    bounds: tuple[ArrayLike, ArrayLike] | None,
    gtol: float | None,
    ftol: float | None,
    target: float | None,
    patience: int | None,
) -> dict[str, Any]:
    """Return options as the native loop takes them; raises where they make no sense."""
    if method not in get_args(Method):
        raise OptionError(f"minimize: expected method {_listed(get_args(Method))}, got {method!r}")
    if not (math.isfinite(lr) and math.isfinite(eps) and eps >= 0):
        raise OptionError(f"minimize: expected finite lr and eps >= 0, got lr={lr}, eps={eps}")
    beta1, beta2 = _decay_rates(betas)
    knows = TOLERANCES[dtype] if method in ("lbfgs", "lm") else (-1.0, -1.0)
    low, high = _bounds(bounds, inputs)
    return {
        "lr": lr,
        "beta1": beta1,
        "beta2": beta2,
        "eps": eps,
        "momentum": _momentum(_only_of("momentum", momentum, method, "momentum", MOMENTUM)),
        "memory": whole("memory", _only_of("memory", memory, method, "lbfgs", MEMORY), 1),
        "gtol": knows[0] if gtol is None else _tolerance("gtol", gtol),
        "ftol": knows[1] if ftol is None else _tolerance("ftol", ftol),
        "target": -math.inf if target is None else _target(target),
        "patience": 0 if patience is None else whole("patience", patience, 1),
        "low": low,
        "high": high,
    }


def whole(name: str, number: int, least: int) -> int:
    """Return a count as an int, if it is one."""
    try:
        count = operator.index(number)
    except TypeError:
        raise OptionError(f"minimize: expected {name} to be an integer, got {number!r}") from None
    if count < least:
        raise OptionError(f"minimize: expected {name} of at least {least}, got {count}")
    if count >= 2**63:
        raise OptionError(f"minimize: expected {name} below 2**63, got {count}")
    return count


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names[:-1])) + f" or {names[-1]!r}"


def _only_of(name: str, given: Any, method: str, owner: str, default: Any) -> Any:
    """Return an option that one method has; raises if it is given to another."""
    if given is not None and method != owner:
        raise OptionError(f"minimize: {name} is an option of method {owner!r}, got {method!r}")
    return default if given is None else given


def _momentum(momentum: Any) -> float:
    if isinstance(momentum, (int, float)) and 0 <= momentum < 1:
        return float(momentum)
    raise OptionError(f"minimize: expected momentum in [0, 1), got {momentum!r}")


def _tolerance(name: str, value: Any) -> float:
    if isinstance(value, (int, float)) and value >= 0:
        return float(value)
    raise OptionError(f"minimize: expected {name} of at least 0, got {value!r}")


def _target(value: Any) -> float:
    if isinstance(value, (int, float)) and not math.isnan(value):
        return float(value)
    raise OptionError(f"minimize: expected target as a number, got {value!r}")


def _decay_rates(betas: tuple[float, float]) -> tuple[float, float]:
    """Return Adam's two decay rates, if they are that."""
    match betas:
        case (int() | float() as first, int() | float() as second) if (
            0 <= first < 1 and 0 <= second < 1
        ):
            return float(first), float(second)
    raise OptionError(f"minimize: expected betas as two numbers in [0, 1), got {betas!r}")


def _bounds(
    bounds: tuple[ArrayLike, ArrayLike] | None, inputs: int
) -> tuple[list[float] | None, list[float] | None]:
    """Return the lowest and the highest value of every input."""
    if bounds is None:
        return None, None
    if not isinstance(bounds, tuple) or len(bounds) != 2:
        raise OptionError(
            f"minimize: expected bounds as a tuple (low, high) of numbers or arrays, got {bounds!r}"
        )
    low, high = (_bound(bound, inputs) for bound in bounds)
    if not np.all(low <= high):
        worst = int(np.argmin(low <= high))
        raise OptionError(
            f"minimize: expected low <= high in bounds, got {low[worst]} and {high[worst]} "
            f"for input {worst}"
        )
    return low.tolist(), high.tolist()


def _bound(bound: ArrayLike, inputs: int) -> NDArray[np.float64]:
    try:
        values = np.asarray(bound, dtype=np.float64)
    except (TypeError, ValueError):
        raise OptionError(f"minimize: expected numbers as bounds, got {bound!r}") from None
    if values.shape not in ((), (inputs,)):
        raise ShapeError(
            f"minimize: expected bounds as numbers or arrays of shape ({inputs},), "
            f"got shape {values.shape}"
        )
    return np.broadcast_to(values, (inputs,))
