"""Random expressions at random points, built by a plan that a seed decides.

An expression is grown together with its hyperdual values at its point. A step whose result would be
ill-conditioned there (huge, close to a kink or to the end of a domain) is not taken, so that
whatever is left can be compared closely.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tapegrad as tg
from tests.scalar import hyperdual
from tests.scalar.hyperdual import HyperDual

#: Beyond it, and closer than its inverse to a kink, a step is not taken.
REACH = 50.0

Build = Callable[[Any], Any]


@dataclass
class Grown:
    """An expression as Vars of one graph and as hyperdual numbers."""

    point: list[float]
    direction: list[float]
    random: np.random.Generator
    functions: bool
    vars: list[Any] = field(default_factory=list)
    duals: list[Any] = field(default_factory=list)
    inputs: Any = None

    def __post_init__(self) -> None:
        self.inputs = tg.Graph().inputs(len(self.point))
        self.vars = list(self.inputs)
        self.duals = list(hyperdual.variables(self.point, self.direction))

    def pick(self, shape: str) -> int:
        """An operand: the last one in chains, a recent one in deep graphs, any in wide ones."""
        n = len(self.vars)
        if shape == "chain":
            return n - 1
        if shape == "deep":
            return int(max(0, n - 1 - self.random.geometric(0.4) + 1))
        if shape == "wide":
            return int(self.random.integers(min(n, len(self.point) + 2)))
        return int(self.random.integers(n))

    def keep(self, make_var: Callable[[], Any], dual: HyperDual | None) -> None:
        """Takes a step whose result is well-conditioned."""
        if dual is not None and dual.size < REACH:
            self.vars.append(make_var())
            self.duals.append(dual)

    @property
    def number(self) -> float:
        """A constant, mostly one that folding could meet."""
        special = [0.0, 1.0, -1.0, 2.0, 0.5, -0.0, 3.0]
        if self.random.random() < 0.5:
            return float(self.random.choice(special))
        return round(float(self.random.normal()), 3)


#: Where ops are smooth and tame; those not named are so everywhere.
INSIDE: list[tuple[tuple[str, ...], Callable[[float], bool]]] = [
    (("sqrt", "log", "log2", "log10"), lambda a: a > 1 / REACH),
    (("log1p",), lambda a: a > 1 / REACH - 1),
    (("asin", "acos"), lambda a: abs(a) < 0.9),
    (("tan",), lambda a: abs(math.cos(a)) > 0.2),
    (("abs", "relu", "sign"), lambda a: abs(a) > 1 / REACH),
    (("floor", "ceil"), lambda a: abs(a - round(a)) > 1 / REACH),
    (("exp", "expm1", "sinh", "cosh"), lambda a: abs(a) < math.log(REACH)),
]


def _inside(name: str, a: float) -> bool:
    return all(tame(a) for names, tame in INSIDE if name in names)


EXACT = ("neg", "square", "abs", "relu", "sign", "floor", "ceil", "sqrt")


def step_unary(grown: Grown, shape: str) -> None:
    names = tuple(hyperdual.UNARY) if grown.functions else EXACT
    name = names[grown.random.integers(len(names))]
    i = grown.pick(shape)
    a = grown.duals[i]
    if _inside(name, a.value):
        grown.keep(lambda: getattr(tg, name)(grown.vars[i]), hyperdual.unary(name, a))


def step_binary(grown: Grown, shape: str) -> None:
    i, j = grown.pick(shape), grown.pick("any" if shape == "chain" else shape)
    a, b = grown.duals[i], grown.duals[j]
    x, y = grown.vars[i], grown.vars[j]
    which = int(grown.random.integers(9 if grown.functions else 6))
    apart = abs(a.value - b.value) > 1 / REACH
    if which == 0:
        grown.keep(lambda: x + y, a + b)
    elif which == 1:
        grown.keep(lambda: x - y, a - b)
    elif which == 2:
        grown.keep(lambda: x * y, a * b)
    elif which == 3 and abs(b.value) > 0.1:
        grown.keep(lambda: x / y, a / b)
    elif which == 4 and (apart or i == j):
        grown.keep(lambda: tg.maximum(x, y), hyperdual.extreme([a, b], max))
    elif which == 5 and (apart or i == j):
        grown.keep(lambda: tg.minimum(x, y), hyperdual.extreme([a, b], min))
    elif which == 6 and 0.1 < a.value < 5 and abs(b.value) < 5:
        grown.keep(lambda: tg.pow(x, y), hyperdual.power(a, b))
    elif which == 7 and abs(a.value) + abs(b.value) > 0.3:
        grown.keep(lambda: tg.hypot(x, y), hyperdual.hypotenuse(a, b))
    elif which == 8 and min(abs(a.value), abs(b.value)) > 0.1:
        grown.keep(lambda: tg.atan2(x, y), hyperdual.angle(a, b))


def step_constant(grown: Grown, shape: str) -> None:
    i = grown.pick(shape)
    a, x, c = grown.duals[i], grown.vars[i], grown.number
    which = int(grown.random.integers(8))
    if which == 0:
        grown.keep(lambda: x + c, a + c)
    elif which == 1:
        grown.keep(lambda: c - x, a * -1.0 + c)
    elif which == 2:
        grown.keep(lambda: c * x, a * c)
    elif which == 3 and c:
        grown.keep(lambda: x / c, a / c)
    elif which == 4 and abs(a.value) > 0.1:
        grown.keep(lambda: c / x, a.lift(c) / a)
    elif which == 5:
        power = int(grown.random.integers(5))
        factors = [a.lift(1.0), *[a] * power]
        grown.keep(lambda: x**power, hyperdual.product(factors))
    elif which == 6 and abs(a.value - c) > 1 / REACH:
        grown.keep(lambda: tg.maximum(c, x), hyperdual.extreme([a, a.lift(c)], max))
    elif which == 7 and abs(a.value) > 0.1:
        grown.keep(lambda: x**-1, a.lift(1.0) / a)


def step_nary(grown: Grown, shape: str) -> None:
    count = int(grown.random.choice([1, 2, 3, 4, 5, 8, 17, 33]))
    picked = [grown.pick("any" if k else shape) for k in range(count)]
    duals, xs = [grown.duals[i] for i in picked], [grown.vars[i] for i in picked]
    values = sorted({d.value for d in duals})
    apart = all(b - a > 1 / REACH for a, b in itertools.pairwise(values))
    # Ties are between one Var and itself: other equal Vars may part along a direction.
    apart = apart and len({x.index for x in xs}) == len(values)
    which = int(grown.random.integers(7 if grown.functions else 5))
    if which == 0:
        grown.keep(lambda: tg.sum(xs), hyperdual.total(duals))
    elif which == 1:
        grown.keep(lambda: tg.prod(xs), hyperdual.product(duals))
    elif which == 2:
        pairs = list(zip(duals, reversed(duals), strict=True))
        grown.keep(lambda: tg.dot(xs, xs[::-1]), hyperdual.total([a * b for a, b in pairs]))
    elif which == 3 and apart:
        grown.keep(lambda: tg.max(xs), hyperdual.extreme(duals, max))
    elif which == 4 and apart:
        grown.keep(lambda: tg.min(xs), hyperdual.extreme(duals, min))
    elif which == 5:
        grown.keep(lambda: tg.logsumexp(xs), hyperdual.logsumexp(duals))
    elif which == 6:
        some = grown.random.random(count) < 0.5  # the other projections stay unused
        for k, dual in enumerate(hyperdual.softmax(duals)):
            if some[k]:
                grown.keep(lambda k=k: tg.softmax(xs)[k], dual)  # type: ignore[misc]


def step_choice(grown: Grown, shape: str) -> None:
    c, d, i, j = (grown.pick(s) for s in ("any", "any", shape, "any"))
    gap = grown.duals[c].value - grown.duals[d].value
    if abs(gap) > 1 / REACH:
        x, y = grown.vars[i], grown.vars[j]
        dual = grown.duals[i if gap > 0 else j]
        grown.keep(lambda: tg.where(grown.vars[c] > grown.vars[d], x, y), dual)


STEPS = (step_unary, step_binary, step_constant, step_nary, step_choice)
SHAPES = ("chain", "deep", "wide", "any")


def grow(shape: str, inputs: int, steps: int, seed: int, functions: bool) -> Grown:
    """An expression of up to `steps` steps; its last Var is the output."""
    random = np.random.default_rng(seed)
    point = random.uniform(-2, 2, inputs).astype(np.float32).astype(float).tolist()
    grown = Grown(point, random.normal(size=inputs).round(3).tolist(), random, functions)
    for _ in range(steps):
        STEPS[random.choice(len(STEPS), p=[0.3, 0.3, 0.15, 0.15, 0.1])](grown, shape)
    return grown
