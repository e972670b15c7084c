"""What `Program.minimize` takes and gives: options, checked, and the Minimum."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tapegrad.errors import OptionError, ShapeError
from tapegrad.scalar.arrays import unmasked
from tapegrad.scalar.nodes import is_number
from tapegrad.scalar.options import real, whole

Method: TypeAlias = Literal["sgd", "momentum", "adam", "lbfgs", "lm"]

#: A callback of `minimize`: step, x, value; true ends the run.
Callback: TypeAlias = Callable[[int, NDArray[Any], Any], object]

#: Tolerances of the methods that know when they have arrived: gradient, relative change.
TOLERANCES = {"float64": (1e-8, 1e-12), "float32": (1e-4, 1e-6)}

#: Adam's decay rates of the moments, and its guard against division by zero.
BETAS, EPS = (0.9, 0.999), 1e-8

#: Options that some methods have and others do not: these methods, the default, and what stands for
#: an option that is not given.
OWN: dict[str, tuple[tuple[str, ...], Any, Any]] = {
    "lr": (("sgd", "momentum", "adam"), 1e-2, None),
    "momentum": (("momentum",), 0.9, None),
    "betas": (("adam",), BETAS, BETAS),
    "eps": (("adam",), EPS, EPS),
    "memory": (("lbfgs",), 10, None),
}


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
    bounds: tuple[ArrayLike | None, ArrayLike | None] | None,
    gtol: float | None,
    ftol: float | None,
    target: float | None,
    patience: int | None,
    **own: Any,
) -> dict[str, Any]:
    """Return options as the native loop takes them; raises where they make no sense.

    `own` are those of `OWN`.
    """
    if method not in get_args(Method):
        raise OptionError(f"minimize: expected method {_listed(get_args(Method))}, got {method!r}")
    given = {name: _of_method(name, value, method) for name, value in own.items()}
    beta1, beta2 = _decay_rates(given["betas"])
    knows = TOLERANCES[dtype] if method in ("lbfgs", "lm") else (-1.0, -1.0)
    low, high = _bounds(bounds, inputs)
    return {
        "lr": real("minimize: expected a finite lr > 0", given["lr"], _is_rate),
        "beta1": beta1,
        "beta2": beta2,
        "eps": real("minimize: expected a finite eps >= 0", given["eps"], _is_guard),
        "momentum": real("minimize: expected momentum in [0, 1)", given["momentum"], _is_part),
        "memory": whole("minimize: expected memory", given["memory"], 1),
        "gtol": knows[0] if gtol is None else _tolerance("gtol", gtol),
        "ftol": knows[1] if ftol is None else _tolerance("ftol", ftol),
        "target": -math.inf if target is None else _target(target),
        "patience": 0 if patience is None else whole("minimize: expected patience", patience, 1),
        "low": low,
        "high": high,
    }


def _listed(names: tuple[str, ...]) -> str:
    *first, last = map(repr, names)
    return f"{', '.join(first)} or {last}" if first else last


def _of_method(name: str, given: Any, method: str) -> Any:
    """Return an option that some methods have; raises if it is given to another."""
    owners, default, absent = OWN[name]
    if given is absent:
        return default
    if method not in owners:
        raise OptionError(
            f"minimize: {name} is an option of method {_listed(owners)}, got {method!r}"
        )
    return given


def _decay_rates(betas: Any) -> tuple[float, float]:
    """Return Adam's two decay rates, if they are that."""
    wanted = "minimize: expected betas as two numbers in [0, 1)"
    if not isinstance(betas, tuple | list) or len(betas) != 2:
        raise OptionError(f"{wanted}, got {betas!r}")
    first, second = (real(wanted, beta, _is_part) for beta in betas)
    return first, second


def _is_part(number: float) -> bool:
    return 0 <= number < 1


def _is_rate(number: float) -> bool:
    return 0 < number < math.inf


def _is_guard(number: float) -> bool:
    return 0 <= number < math.inf


def _target(value: Any) -> float:
    return real("minimize: expected target as a number", value, lambda t: not math.isnan(t))


def _tolerance(name: str, value: Any) -> float:
    return real(f"minimize: expected {name} of at least 0", value, lambda number: number >= 0)


def _bounds(
    bounds: tuple[ArrayLike | None, ArrayLike | None] | None, inputs: int
) -> tuple[list[float] | None, list[float] | None]:
    """Return the lowest and the highest value of every input."""
    if bounds is None:
        return None, None
    if not isinstance(bounds, tuple) or len(bounds) != 2:
        raise OptionError(
            f"minimize: expected bounds as a tuple (low, high) of numbers or arrays, got {bounds!r}"
        )
    low, high = _bound(bounds[0], -math.inf, inputs), _bound(bounds[1], math.inf, inputs)
    if not np.all(low <= high):
        worst = int(np.argmin(low <= high))
        raise OptionError(
            f"minimize: expected low <= high in bounds, got {low[worst]} and {high[worst]} "
            f"for input {worst}"
        )
    return low.tolist(), high.tolist()


def _bound(bound: Any, none: float, inputs: int) -> NDArray[np.float64]:
    """Return a bound of every input; `none` stands for None, of all inputs or of one."""
    given = np.asarray(unmasked(bound, "minimize: bounds"))
    if given.dtype.kind not in "fiub":
        listed = [none if each is None else each for each in given.astype(object).flat]
        if not all(map(is_number, listed)):
            raise OptionError(f"minimize: expected numbers as bounds, got {bound!r}")
        given = np.array(listed).reshape(given.shape)
    values = given.astype(np.float64)
    if values.shape not in ((), (inputs,)):
        raise ShapeError(
            f"minimize: expected bounds as numbers or arrays of shape ({inputs},), "
            f"got shape {values.shape}"
        )
    return np.broadcast_to(values, (inputs,))
