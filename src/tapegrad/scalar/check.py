"""Gradients against differences of values."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from tapegrad.errors import GradError
from tapegrad.scalar.replay import Function, as_point
from tapegrad.scalar.transforms import value_and_grad

#: Relative step of central differences: the cube root of the rounding error balances both errors.
STEP = float(np.finfo(np.float64).eps) ** (1 / 3)


def gradcheck(function: Function, x: ArrayLike, *, rtol: float = 1e-6, atol: float = 1e-8) -> bool:
    """Compare a function's gradient with central differences of its values.

    Returns True, or raises `GradError` that names the entry that is off the most. Differences are
    good to about 1e-10 of the function's size over the step; near kinks they mean nothing.

    Args:
        function: Of an array to one Var.
        x: The point.
        rtol: Difference allowed, relative to the entry.
        atol: Difference allowed in any case.

    Example:
        >>> import tapegrad as tg
        >>> tg.gradcheck(lambda x: tg.sum(tg.sin(x) * x), [0.5, 2.0])
        True

    """
    replayed = value_and_grad(function)
    point = np.array(as_point(x, "gradcheck"), dtype=np.float64)
    found = np.ravel(replayed(point)[1])
    flat = point.ravel()
    steps = STEP * np.maximum(1.0, np.abs(flat))
    # One batch: every variable a step ahead, then every one a step behind.
    rows = np.concatenate([flat + np.diag(steps), flat - np.diag(steps)])
    ahead, behind = np.split(replayed.program(point.shape).batch(rows)[:, 0], 2)
    wanted = (ahead - behind) / (np.diagonal(rows[: flat.size]) - np.diagonal(rows[flat.size :]))
    error = np.abs(found - wanted) - (atol + rtol * np.abs(wanted))
    worst = int(np.argmax(np.where(np.isnan(error), np.inf, error)))
    if not error[worst] <= 0:
        place = np.unravel_index(worst, point.shape) if point.ndim else ()
        raise GradError(
            f"gradcheck: the derivative by entry {tuple(map(int, place))} is {found[worst]:.9g}, "
            f"differences say {wanted[worst]:.9g} (x = {flat[worst]:.9g})"
        )
    return True
