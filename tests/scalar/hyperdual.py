"""Values, gradients and Hessian-vector products by forward propagation: an independent evaluator.

A HyperDual carries the value, the gradient, the derivative along one direction v and the gradient
of that derivative (the Hessian times v). There is no graph, no adjoint and no differentiated text
in it, so that it shares no rule with the engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Number = float | int
#: First and second derivative of a function of one number.
Slopes = tuple[float, float]


@dataclass(frozen=True)
class HyperDual:
    """A number with its derivatives."""

    value: float
    gradient: Array
    along: float
    """Derivative along v."""
    curved: Array
    """Hessian times v."""

    def chain(self, value: float, slope: float, bend: float) -> HyperDual:
        """A function of this number with the given value, first and second derivative."""
        return HyperDual(
            value,
            slope * self.gradient,
            slope * self.along,
            slope * self.curved + (bend * self.along) * self.gradient,
        )

    def __add__(self, other: HyperDual | Number) -> HyperDual:
        o = self.lift(other)
        return HyperDual(
            self.value + o.value,
            self.gradient + o.gradient,
            self.along + o.along,
            self.curved + o.curved,
        )

    def __mul__(self, other: HyperDual | Number) -> HyperDual:
        o = self.lift(other)
        return HyperDual(
            self.value * o.value,
            self.value * o.gradient + o.value * self.gradient,
            self.value * o.along + o.value * self.along,
            self.value * o.curved
            + o.value * self.curved
            + self.along * o.gradient
            + o.along * self.gradient,
        )

    def __neg__(self) -> HyperDual:
        return self * -1.0

    def __sub__(self, other: HyperDual | Number) -> HyperDual:
        return self + -self.lift(other)

    def __truediv__(self, other: HyperDual | Number) -> HyperDual:
        o = self.lift(other)
        r = 1 / o.value
        product = self * o.chain(r, -r * r, 2 * r**3)
        return HyperDual(self.value / o.value, product.gradient, product.along, product.curved)

    def lift(self, other: HyperDual | Number) -> HyperDual:
        """A number as a constant of as many variables."""
        if isinstance(other, HyperDual):
            return other
        zero = np.zeros_like(self.gradient)
        return HyperDual(float(other), zero, 0.0, zero)

    @property
    def size(self) -> float:
        """The largest magnitude in it."""
        return max(
            abs(self.value),
            abs(self.along),
            float(np.abs(self.gradient).max(initial=0)),
            float(np.abs(self.curved).max(initial=0)),
        )


def variables(point: Sequence[float], direction: Sequence[float]) -> list[HyperDual]:
    """The coordinates of a point, with derivatives along a direction."""
    n = len(point)
    rows, zero = np.eye(n), np.zeros(n)
    return [HyperDual(point[i], rows[i], direction[i], zero) for i in range(n)]


# ---- functions of one number -------------------------------------------------------------------


def _sigmoid(a: float) -> float:
    return 1 / (1 + math.exp(-a)) if a >= 0 else math.exp(a) / (1 + math.exp(a))


def _bell(a: float) -> float:
    return math.exp(-a * a / 2) / math.sqrt(2 * math.pi)


def _below(a: float) -> float:
    return math.erfc(-a / math.sqrt(2)) / 2


def _tangent(a: float) -> Slopes:
    t = math.tan(a)
    return 1 + t * t, 2 * t * (1 + t * t)


def _logistic(a: float) -> Slopes:
    y = _sigmoid(a)
    return y * (1 - y), y * (1 - y) * (1 - 2 * y)


def _hyperbolic(a: float) -> Slopes:
    y = math.tanh(a)
    return 1 - y * y, -2 * y * (1 - y * y)


def _error_function(a: float) -> Slopes:
    slope = 2 / math.sqrt(math.pi) * math.exp(-a * a)
    return slope, -2 * a * slope


Unary = tuple[Callable[[float], float], Callable[[float], Slopes]]

UNARY: dict[str, Unary] = {
    "neg": (lambda a: -a, lambda a: (-1.0, 0.0)),
    "square": (lambda a: a * a, lambda a: (2 * a, 2.0)),
    "sqrt": (math.sqrt, lambda a: (0.5 * a**-0.5, -0.25 * a**-1.5)),
    "exp": (math.exp, lambda a: (math.exp(a), math.exp(a))),
    "expm1": (math.expm1, lambda a: (math.exp(a), math.exp(a))),
    "log": (math.log, lambda a: (1 / a, -1 / a**2)),
    "log1p": (math.log1p, lambda a: (1 / (1 + a), -1 / (1 + a) ** 2)),
    "log2": (math.log2, lambda a: (1 / a / math.log(2), -1 / a**2 / math.log(2))),
    "log10": (math.log10, lambda a: (1 / a / math.log(10), -1 / a**2 / math.log(10))),
    "sin": (math.sin, lambda a: (math.cos(a), -math.sin(a))),
    "cos": (math.cos, lambda a: (-math.sin(a), -math.cos(a))),
    "tan": (math.tan, _tangent),
    "asin": (math.asin, lambda a: ((1 - a * a) ** -0.5, a * (1 - a * a) ** -1.5)),
    "acos": (math.acos, lambda a: (-((1 - a * a) ** -0.5), -a * (1 - a * a) ** -1.5)),
    "atan": (math.atan, lambda a: (1 / (1 + a * a), -2 * a / (1 + a * a) ** 2)),
    "sinh": (math.sinh, lambda a: (math.cosh(a), math.sinh(a))),
    "cosh": (math.cosh, lambda a: (math.sinh(a), math.cosh(a))),
    "tanh": (math.tanh, _hyperbolic),
    "sigmoid": (_sigmoid, _logistic),
    "softplus": (
        lambda a: max(a, 0) + math.log1p(math.exp(-abs(a))),
        lambda a: (_sigmoid(a), _logistic(a)[0]),
    ),
    "relu": (lambda a: max(a, 0.0), lambda a: (float(a > 0), 0.0)),
    "gelu": (
        lambda a: a * _below(a),
        lambda a: (_below(a) + a * _bell(a), (2 - a * a) * _bell(a)),
    ),
    "erf": (math.erf, _error_function),
    "erfc": (math.erfc, lambda a: (-_error_function(a)[0], -_error_function(a)[1])),
    "abs": (abs, lambda a: (float((a > 0) - (a < 0)), 0.0)),
    "sign": (lambda a: float((a > 0) - (a < 0)), lambda a: (0.0, 0.0)),
    "floor": (lambda a: float(math.floor(a)), lambda a: (0.0, 0.0)),
    "ceil": (lambda a: float(math.ceil(a)), lambda a: (0.0, 0.0)),
}


def unary(name: str, a: HyperDual) -> HyperDual:
    """The op `name` of one number."""
    function, slopes = UNARY[name]
    return a.chain(function(a.value), *slopes(a.value))


# ---- functions of two and more -----------------------------------------------------------------


def power(a: HyperDual, b: HyperDual) -> HyperDual:
    """Raises a positive number to a power."""
    found = unary("exp", unary("log", a) * b)
    return HyperDual(a.value**b.value, found.gradient, found.along, found.curved)


def hypotenuse(a: HyperDual, b: HyperDual) -> HyperDual:
    """sqrt(a * a + b * b) away from the origin."""
    return unary("sqrt", a * a + b * b)


def angle(a: HyperDual, b: HyperDual) -> HyperDual:
    """The angle of (b, a), from whichever quotient is not large."""
    found = unary("atan", a / b) if abs(b.value) > abs(a.value) else -unary("atan", b / a)
    return HyperDual(math.atan2(a.value, b.value), found.gradient, found.along, found.curved)


def extreme(xs: Sequence[HyperDual], choose: Callable[[list[float]], float]) -> HyperDual:
    """The largest or smallest; ties share the derivative."""
    top = choose([x.value for x in xs])
    hits = [x for x in xs if x.value == top]
    mean = total(hits) * (1 / len(hits))
    return HyperDual(top, mean.gradient, mean.along, mean.curved)


def total(xs: Sequence[HyperDual]) -> HyperDual:
    """The sum."""
    result = xs[0]
    for x in xs[1:]:
        result = result + x
    return result


def product(xs: Sequence[HyperDual]) -> HyperDual:
    """The product."""
    result = xs[0]
    for x in xs[1:]:
        result = result * x
    return result


def logsumexp(xs: Sequence[HyperDual]) -> HyperDual:
    """log(exp a_1 + ... + exp a_n), shifted."""
    top = max(x.value for x in xs)
    return unary("log", total([unary("exp", x + -top) for x in xs])) + top


def softmax(xs: Sequence[HyperDual]) -> list[HyperDual]:
    """exp(a_i) / (exp a_1 + ... + exp a_n), shifted."""
    top = max(x.value for x in xs)
    powers = [unary("exp", x + -top) for x in xs]
    whole = total(powers)
    return [x / whole for x in powers]
