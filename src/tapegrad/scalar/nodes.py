"""Vars as nodes of their graph: what counts as one, what they are made of, and in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from tapegrad._core import Graph, Var
from tapegrad.errors import DTypeError, GraphError

#: Values, or adjoints, of nodes by their place in the graph.
Values: TypeAlias = Mapping[int, float]


def is_number(value: Any) -> bool:
    """Tell a real number of Python's or NumPy's, which counts time spans among its integers."""
    return isinstance(value, int | float | np.floating | np.integer | np.bool_) and not isinstance(
        value, np.timedelta64
    )


def as_var(graph: Graph, value: Any, complaint: str) -> Var:
    """Return a Var as it is, and a number as a constant of the graph."""
    if isinstance(value, Var):
        return value
    if is_number(value):
        return graph.constant(float(value))
    raise DTypeError(f"{complaint} {type(value).__name__}")


def as_vars(vars_: Var | Iterable[Var], what: str) -> list[Var]:
    """One Var or any array or sequence of Vars as a flat list."""
    if isinstance(vars_, Var):
        return [vars_]
    if isinstance(vars_, np.ndarray):
        return vars_.ravel().tolist()
    try:
        return list(vars_)
    except TypeError:
        raise DTypeError(
            f"{what}: expected a Var or a sequence of Vars, got {type(vars_).__name__}"
        ) from None


def of_one_graph(vars_: Var | Iterable[Var], what: str) -> list[Var]:
    """Return Vars as a list, if they are that and belong together."""
    found = as_vars(vars_, what)
    for item in found:
        if not isinstance(item, Var):
            raise DTypeError(f"{what}: expected Vars, got {type(item).__name__} among them")
        if item.graph is not found[0].graph:
            raise GraphError(f"{what}: expected Vars of one graph, got some of another")
    if not found:
        raise DTypeError(f"{what}: expected at least one Var, got none")
    return found


def made_from(var: Var) -> tuple[Var, ...]:
    """Return what a Var is computed from; of one of several results, what all of them are."""
    return var.operands[0].operands if var.op == "projection" else var.operands


def operation(var: Var) -> str:
    """Name the operation that makes a Var; of one of several results, the one that makes all."""
    return var.operands[0].op if var.op == "projection" else var.op


def live(vars_: Iterable[Var]) -> list[Var]:
    """Return all that these Vars need and the Vars themselves, operands before their users."""
    found: dict[int, Var] = {}
    waiting = list(vars_)
    while waiting:
        var = waiting.pop()
        if var.index not in found:
            found[var.index] = var
            waiting += made_from(var)
    return [found[index] for index in sorted(found)]


def by_place(vars_: Iterable[Var], values: Iterable[float]) -> Values:
    """Return values of Vars by their places in the graph."""
    return dict(zip((var.index for var in vars_), values, strict=True))


def label(var: Var) -> str:
    """Name a Var in a word: its name, its number, or its place in the graph."""
    if var.op == "constant":
        return formula(var)
    return var.name or f"%{var.index}"


def formula(var: Var) -> str:
    """Write how a Var is made, as log(x)."""
    return repr(var).removeprefix("Var(").removesuffix(")").partition(" = ")[2]
