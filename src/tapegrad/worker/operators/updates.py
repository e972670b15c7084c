"""Updates of optimisers as formulas, for frameworks that have no call of their own for them.

They need arrays with arithmetic; the root is the framework's. NumPy, the witness, has its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Root = Callable[[Any], Any]


def sgd(p: Any, g: Any, *, lr: float, decay: float) -> Any:
    """Go down the gradient, with weight decay."""
    return p - lr * (g + decay * p)


def momentum(p: Any, g: Any, v: Any, *, lr: float, momentum: float, nesterov: bool) -> Any:
    """Go down with what is left of the steps before."""
    v = momentum * v + g
    return p - lr * (g + momentum * v if nesterov else v), v


def rmsprop(root: Root, p: Any, g: Any, s: Any, *, lr: float, decay: float, eps: float) -> Any:
    """Divide by the mean size of gradients."""
    s = decay * s + (1 - decay) * g * g
    return p - lr * g / (root(s) + eps), s


def adam(
    root: Root,
    p: Any,
    g: Any,
    m: Any,
    v: Any,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    decay: float,
) -> Any:
    """Do both, as in the first step: with its corrections."""
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    step = m / (1 - beta1) / (root(v / (1 - beta2)) + eps)
    return p * (1 - lr * decay) - lr * step, m, v
