"""Derivatives against differences of values.

A step that suits one function is wrong for another: `log(x)` at 1e-6 wants one below 1e-6, and in
`exp(20) + x` steps of 1e-6 drown in rounding. So differences are taken over steps from an eighth of
an entry's scale down to millionths, extrapolated to a step of 0 (Richardson's way, as Ridders does
it), and the extrapolation that disagrees least with those before it counts. Wide steps can agree by
chance, as they do on both sides of the pole of `1 / x`: a derivative that differences over parts of
the entry itself confirm within the tolerances is right, whatever wide ones say.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tapegrad.errors import GradError, ShapeError
from tapegrad.scalar.derivatives import dense_jacobian
from tapegrad.scalar.options import real
from tapegrad.scalar.program import Program
from tapegrad.scalar.replay import Function, Replayed, as_point

Floats = NDArray[np.float64]

#: Steps relative to the scale of an entry, each a part of the one before.
SHRINK = 4.0
STEPS = 0.125 * SHRINK ** -np.arange(9.0)

#: Numbers in the points that are evaluated at once.
PIECE = 1 << 20


def gradcheck(
    function: Function,
    x: ArrayLike,
    *,
    eps: float | None = None,
    rtol: float = 1e-6,
    atol: float = 1e-8,
) -> bool:
    """Compare a function's derivatives with central differences of its values.

    Returns True, or raises `GradError` that names the entry that is off the most. What rounding of
    the values may do to their differences is allowed besides the tolerances. Near kinks differences
    mean nothing.

    Args:
        function: Of an array to one Var, or to an array of them.
        x: The point.
        eps: The step of the differences, for all entries; by default many are tried, and what they
            tend to counts.
        rtol: Difference allowed, relative to the entry.
        atol: Difference allowed in any case.

    Example:
        >>> import tapegrad as tg
        >>> tg.gradcheck(lambda x: tg.sum(tg.sin(x) * x), [0.5, 2.0])
        True

    """
    for name, number in (("rtol", rtol), ("atol", atol)):
        real(f"gradcheck: expected {name} of at least 0", number, lambda each: each >= 0)
    if eps is not None:
        eps = real("gradcheck: expected eps above 0", eps, lambda each: 0 < each < math.inf)
    slopes = Replayed(function, lambda x, y: (dense_jacobian(y, x),), "gradcheck")
    values = Replayed(function, lambda x, y: (y,), "gradcheck")
    point = as_point(x, "gradcheck")
    found = slopes(point)
    shape = np.shape(values(point))
    if not found.size:
        raise ShapeError(f"gradcheck: the function must return a Var or more, it returned {shape}")
    found = np.reshape(found, (-1, point.size))
    flat = point.ravel().astype(np.float64)
    series = list(_differences(values.program(point.shape), flat, eps))
    wanted, noise, _ = _joined([_tend(each) for each in series])
    error = np.abs(found - wanted) - (atol + rtol * np.abs(wanted) + noise)
    near, noise, doubt = _joined([_tend(each[-1:]) for each in series])
    allowed = atol + rtol * np.abs(near)
    nearby = np.abs(found - near) - (allowed + noise)
    error = np.where(doubt <= allowed, np.minimum(error, nearby), error)
    worst = np.unravel_index(np.argmax(np.where(np.isnan(error), np.inf, error)), error.shape)
    if not error[worst] <= 0:
        output, entry = (int(each) for each in worst)
        of = f" of output {_place(output, shape)}" if shape else ""
        raise GradError(
            f"gradcheck: the derivative{of} by entry {_place(entry, point.shape)} is "
            f"{found[worst]:.9g}, differences say {wanted[worst]:.9g} (x = {flat[entry]:.9g})"
        )
    return True


def _place(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(int, np.unravel_index(flat, shape))) if shape else ()


class _Slopes(NamedTuple):
    """Differences over steps, and how far rounding may have moved each; the last axis: outputs."""

    slopes: Floats
    noise: Floats


class _Limits(NamedTuple):
    """What differences tend to, how far rounding may have moved it, and how sure it is."""

    slopes: Floats
    noise: Floats
    doubt: Floats


def _joined(parts: list[_Limits]) -> tuple[Floats, ...]:
    """Put entries together: [output, entry] each."""
    return tuple(np.concatenate(each).T for each in zip(*parts, strict=True))


def _differences(program: Program, flat: Floats, eps: float | None) -> Iterator[list[_Slopes]]:
    """Yield, for some entries at a time, series of differences: [step, entry, output] each."""
    near = np.where((flat != 0) & (np.abs(flat) < 1), np.abs(flat), 1.0)
    series = [np.multiply.outer(STEPS, scale) for scale in (np.maximum(1.0, np.abs(flat)), near)]
    if eps is not None:
        series = [np.full((1, flat.size), eps)]
    count = max(1, PIECE // (2 * len(series[0]) * flat.size))
    for start in range(0, flat.size, count):
        entries = np.arange(start, min(start + count, flat.size))
        yield [_central(program, flat, entries, steps[:, entries]) for steps in series]


def _central(program: Program, flat: Floats, entries: Any, steps: Floats) -> _Slopes:
    """Differentiate by entries over steps [step, entry], ahead and behind."""
    points = np.broadcast_to(flat, (2, *steps.shape, flat.size)).copy()
    for place, entry in enumerate(entries):
        points[0, :, place, entry] += steps[:, place]
        points[1, :, place, entry] -= steps[:, place]
    moved = np.take_along_axis(points, entries[None, None, :, None], axis=3)
    found = program.batch(points.reshape(-1, flat.size)).reshape(*points.shape[:3], -1)
    with np.errstate(all="ignore"):  # infinities and NaNs are left out later
        span = moved[0] - moved[1]
        size = np.max(np.abs(found), axis=0)
        return _Slopes((found[0] - found[1]) / span, 4 * np.finfo(float).eps * size / span)


def _tend(series: list[_Slopes]) -> _Limits:
    """Return what differences tend to, [entry, output]: that of all with the least doubt."""
    if len(series[0].slopes) == 1:
        only = series[0].slopes[0]
        return _Limits(only, series[0].noise[0], np.full(only.shape, np.inf))
    best, noise = (np.full(series[0].slopes.shape[1:], np.nan) for _ in range(2))
    least = np.full(best.shape, np.inf)
    with np.errstate(all="ignore"):
        for slopes, rounding in series:
            for step, slope, doubt in _extrapolated(slopes):
                total = doubt + rounding[step]
                better = total < least
                best, noise = np.where(better, slope, best), np.where(better, rounding[step], noise)
                least = np.where(better, total, least)
    return _Limits(best, noise, least)


def _extrapolated(slopes: Floats) -> Iterator[tuple[int, Floats, Floats]]:
    """Yield extrapolations to a step of 0: up to which step, the slope, and its doubt."""
    before: list[Floats] = []
    for step, slope in enumerate(slopes):
        row = [slope]
        for order, coarse in enumerate(before, 1):
            row.append(row[-1] + (row[-1] - coarse) / (SHRINK ** (2 * order) - 1))
            yield step, row[-1], np.maximum(np.abs(row[-1] - row[-2]), np.abs(row[-1] - coarse))
        before = row
