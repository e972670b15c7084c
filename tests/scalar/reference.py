"""Reference values and derivatives of the op table's records, by mpmath from their oracles.

A reference value is kept as the nearest number of the tested precision and the rest in units in the
last place, so that errors of a fraction of a unit are measured without mpmath afterwards.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpmath import mp  # type: ignore[import-untyped]
from numpy.typing import NDArray

import tapegrad as tg

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Format:
    """A binary floating-point format."""

    name: str
    digits: int
    lowest: int
    """Exponent of the smallest normal number."""

    @property
    def epsilon(self) -> float:
        return 2.0 ** (1 - self.digits)

    @property
    def largest(self) -> float:
        return float(np.finfo(self.name).max)

    def rounded(self, want: Any) -> tuple[float, float, float]:
        """The nearest number, the rest in units in the last place, and that unit."""
        exponent = int(mp.frexp(want)[1]) - 1 if want else self.lowest
        unit = mp.ldexp(1, max(exponent, self.lowest) - self.digits + 1)
        count = mp.nint(want / unit)
        if abs(want) >= mp.mpf(self.largest) + unit / 2:
            return math.copysign(math.inf, want), 0.0, 1.0
        return float(count * unit), float(want / unit - count), float(unit)


FORMATS = {
    "float64": Format("float64", 53, -1022),
    "float32": Format("float32", 24, -126),
}


class Oracles:
    """mpmath, with an erfc that takes any argument; mpmath's own raises beyond about 1e150."""

    def __getattr__(self, name: str) -> Any:
        return getattr(mp, name)

    def erfc(self, a: Any) -> Any:
        """1 - erf(a); beyond 2**60 it is 0 or 2 in every format."""
        return mp.erfc(max(min(a, mp.mpf(2) ** 60), -(mp.mpf(2) ** 60)))


@dataclass(frozen=True)
class Record:
    """A line of the op table."""

    name: str
    arity: int
    domain: str
    ulp: int
    oracle: str
    has_steps: bool
    """Whether it is constant but for steps, or has a remainder's."""

    def function(self) -> Callable[..., Any]:
        """The oracle as a function of mpmath numbers."""
        code = compile(self.oracle, f"<oracle of {self.name}>", "eval")

        def evaluate(*operands: Any) -> Any:
            return eval(code, {"mp": Oracles()}, dict(zip("ab", operands, strict=False)))

        return evaluate

    def record(self, operands: Any) -> tg.Var:
        """The op on Vars."""
        var: tg.Var = getattr(tg, self.name)(*operands)
        return var


def _record(line: dict[str, Any]) -> Record:
    has_steps = any(text == "0.0" or "floor" in text for text in line["derivatives"])
    fields = {key: line[key] for key in ("name", "arity", "domain", "ulp", "oracle")}
    return Record(**fields, has_steps=has_steps)


RECORDS = [_record(line) for line in tg._core.op_table()]


# ---- points ------------------------------------------------------------------------------------


def _reals(random: np.random.Generator, count: int, low: float, high: float) -> Array:
    """Numbers of either sign whose magnitudes are spread evenly over binades low to high."""
    return np.asarray(
        random.choice([-1.0, 1.0], count) * 2.0 ** random.uniform(low, high, count), dtype=float
    )


def _first_operand(domain: str, reals: Array) -> Array:
    """Moves reals into a domain of the op table."""
    fractions = np.abs(reals) / (1 + np.abs(reals))  # crowded at both 0 and 1
    moved: dict[str, Callable[[], Array]] = {
        "real": lambda: reals,
        "nonzero": lambda: reals,
        "positive": lambda: np.abs(reals),
        "unit": lambda: np.copysign(fractions, reals),
        "above_minus_one": lambda: np.where(reals < 0, -fractions, reals),
    }
    return moved[domain]()


def _fitted(points: Array, domain: str, dtype: str) -> Array:
    """Rounds points to a precision, and those that round out of the domain back into it."""
    with np.errstate(over="ignore"):
        points = points.astype(dtype).astype(float)
    top = float(np.nextafter(np.dtype(dtype).type(1), np.dtype(dtype).type(0)))
    if domain == "unit":
        points[:, 0] = np.clip(points[:, 0], -top, top)
    if domain == "above_minus_one":
        points[:, 0] = np.maximum(points[:, 0], -top)
    tiny = float(np.finfo(dtype).smallest_subnormal)
    return np.where(points == 0, tiny, points)


def points_of(record: Record, dtype: str, count: int, low: float, high: float) -> Array:
    """Random points (count, arity) of a record's domain with magnitudes 2**low to 2**high."""
    random = np.random.default_rng(len(record.name) * 1000 + sum(map(ord, record.name)))
    columns = [_reals(random, count, low, high) for _ in range(record.arity)]
    columns[0] = _first_operand(record.domain, columns[0])
    return _fitted(np.column_stack(columns), record.domain, dtype)


def ordinary_points(record: Record, dtype: str) -> Array:
    """Points of everyday size, of every size the format has, and close to each other."""
    span = -FORMATS[dtype].lowest
    everyday = points_of(record, dtype, 300, -8, 8)
    small = points_of(record, dtype, 80, -40, 0)
    every_size = points_of(record, dtype, 200, -span - 10, span)
    near = points_of(record, dtype, 20, -2, 2)
    if record.arity == 2 and record.domain in ("real", "positive"):
        near[:, 0] = np.abs(near[:, 1]) * (1 + FORMATS[dtype].epsilon * np.arange(20))
    return _fitted(np.vstack([everyday, small, every_size, near]), record.domain, dtype)


# ---- values and derivatives --------------------------------------------------------------------


@dataclass(frozen=True)
class Reference:
    """What a column of results should be."""

    nearest: Array
    rest: Array
    unit: Array

    def ulps(self, got: Array) -> Array:
        """Errors in units in the last place; infinities that are due count as no error."""
        same = (got == self.nearest) & np.isinf(got)
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.abs((got - self.nearest) / self.unit - self.rest)
        return np.where(same, 0.0, error)


def _reference(values: list[Any], form: Format) -> Reference:
    return Reference(*np.array([form.rounded(value) for value in values]).reshape(-1, 3).T)


@functools.cache
def value_reference(record: Record, dtype: str) -> tuple[Array, Reference]:
    """Ordinary points of a record and its values there."""
    points = ordinary_points(record, dtype)
    function = record.function()
    with mp.workprec(1300):
        values = [function(*map(mp.mpf, point)) for point in points.tolist()]
        return points, _reference(values, FORMATS[dtype])


def _differences(function: Callable[..., Any], point: list[float]) -> list[Any]:
    """Gradient, then the upper triangle of second derivatives, by central differences."""
    x = [mp.mpf(value) for value in point]
    steps = [mp.ldexp(min(abs(value), 1), -100) for value in x]

    def at(*moves: tuple[int, int]) -> Any:
        moved = list(x)
        for i, sign in moves:
            moved[i] += sign * steps[i]
        return function(*moved)

    n = range(len(x))
    first = [(at((i, 1)) - at((i, -1))) / (2 * steps[i]) for i in n]
    second = []
    for i in n:
        for j in range(i, len(x)):
            if i == j:
                curved = at((i, 1)) - 2 * at() + at((i, -1))
                second.append(curved / steps[i] ** 2)
            else:
                corners = [s * t * at((i, s), (j, t)) for s in (1, -1) for t in (1, -1)]
                second.append(mp.fsum(corners) / (4 * steps[i] * steps[j]))
    return first + second


def _derivatives(record: Record, dtype: str, points: Array, bits: int) -> Array:
    function, form = record.function(), FORMATS[dtype]
    with mp.workprec(bits):
        rows = [_differences(function, point) for point in points.tolist()]
        wanted = [[form.rounded(value)[0] for value in row] for row in rows]
    return np.array(wanted).reshape(len(points), record.arity * (record.arity + 3) // 2)


def _largest_points(record: Record, dtype: str) -> Array:
    """Points up to the largest numbers at which the value does not overflow."""
    span = -FORMATS[dtype].lowest
    far, farthest = points_of(record, dtype, 5, 11, span), (span + 1.1, span + 1.9)
    points = np.vstack([far, points_of(record, dtype, 3, *farthest)])
    function, largest = record.function(), FORMATS[dtype].largest
    return points[[abs(function(*map(mp.mpf, point))) <= largest for point in points.tolist()]]


@functools.cache
def derivative_reference(record: Record, dtype: str) -> tuple[Array, Array]:
    """Points of a record with its first and second derivatives there, a row per point.

    Functions with steps have no large ones: there they are full of steps.
    """
    parts = [points_of(record, dtype, 24, -4, 4), points_of(record, dtype, 16, -30, 8)]
    bits = [1600, 1600]
    if not record.has_steps:
        parts += [points_of(record, dtype, 12, 8, 11), _largest_points(record, dtype)]
        bits += [1600, 1000 - 4 * FORMATS[dtype].lowest]
    wanted = [_derivatives(record, dtype, *part) for part in zip(parts, bits, strict=True)]
    return np.vstack(parts), np.vstack(wanted)
