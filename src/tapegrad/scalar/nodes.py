"""Vars as nodes of their graph: what they are made of, in which order, and in words."""

from __future__ import annotations

from collections.abc import Iterable

from tapegrad._core import Var
from tapegrad.errors import DTypeError, GraphError
from tapegrad.scalar.program import as_vars


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


def label(var: Var) -> str:
    """Name a Var in a word: its name, its number, or its place in the graph."""
    if var.op == "constant":
        return formula(var)
    return var.name or f"%{var.index}"


def formula(var: Var) -> str:
    """Write how a Var is made, as log(x)."""
    return repr(var).removeprefix("Var(").removesuffix(")").partition(" = ")[2]
