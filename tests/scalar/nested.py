"""Nested derivatives of functions, written once for tapegrad and PyTorch; imports NumPy alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

TURNED = [2, 0, 1]


def is_pytorch(d: Any) -> bool:
    return hasattr(d, "jacfwd")


def pullback(d: Any, function: Any, x: Any, cotangents: Any) -> Any:
    if is_pytorch(d):
        return d.vjp(function, x)[1](cotangents)[0]
    return d.vjp(function)(x, cotangents)[1]


def pushed(d: Any, function: Any, x: Any, tangents: Any) -> Any:
    if is_pytorch(d):
        return d.jvp(function, (x,), (tangents,))[1]
    return d.jvp(function)(x, tangents)[1]


def jacobian(d: Any, function: Any) -> Any:
    return d.jacfwd(function) if is_pytorch(d) else d.jacobian(function)


#: Written once for two libraries: `d` differentiates, `n` has the functions.
Nested = Callable[[Any, Any], Callable[[Any], Any]]
NESTED: dict[str, Nested] = {
    "grad of the norm of a gradient": lambda d, n: d.grad(
        lambda x: n.sum(d.grad(lambda y: n.sum(n.sin(y) * y[TURNED]))(x) ** 2)
    ),
    "what is around is held": lambda d, n: d.grad(
        lambda x: x[0] * d.grad(lambda y: n.sum(x * y * y))(x)[1]
    ),
    "held twice over": lambda d, n: d.grad(
        lambda x: d.grad(lambda y: n.sum(y * d.grad(lambda z: n.sum(z * y * x**2))(y)))(x)[2]
    ),
    "the same Vars as arguments of both": lambda d, n: d.grad(
        lambda x: n.sum(
            d.grad(lambda y: n.sum(n.exp(y) * d.grad(lambda z: n.sum(z * z * y))(x)))(x)
        )
    ),
    "a vjp in a gradient": lambda d, n: d.grad(
        lambda x: n.sum(n.sin(pullback(d, lambda y: y * y[TURNED], x, x**2)))
    ),
    "a jvp in a gradient": lambda d, n: d.grad(
        lambda x: n.sum(n.sin(pushed(d, lambda y: y**3 * x, x, x[TURNED])))
    ),
    "a Hessian in a gradient": lambda d, n: d.grad(
        lambda x: (n.cos(d.hessian(lambda y: n.sum(y**3) * y[1])(x)) * x).sum()
    ),
    "a Jacobian of a gradient": lambda d, n: jacobian(d, d.grad(lambda x: n.sum(n.exp(x) * x[0]))),
    "five deep": lambda d, n: d.grad(
        lambda x: d.grad(d.grad(d.grad(d.grad(lambda y: n.sin(y) * y))))(x[0]) * x[1]
    ),
}


def of_pytorch(lib: Any, name: str, point: Any) -> Any:
    """Evaluate one of them in PyTorch."""
    return NESTED[name](lib.tt.func, lib.tt)(lib.tt.tensor(point)).numpy()
