"""Networks as data: what is wired to what, for every framework the same.

A network names canonical operators (`tapegrad.worker.operators`), the values they take and those
they give. `compose` makes a function of it from a framework's own table, so a fused operator, a
residual block and a ResNet have one definition each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tapegrad.worker.case import Array, Case


@dataclass(frozen=True)
class Node:
    """One operator between named values."""

    op: str
    #: What it takes, in the operator's order: inputs of the network or outputs of earlier nodes.
    takes: tuple[str, ...]
    gives: tuple[str, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Network:
    """Operators in the order in which they run."""

    #: Data and parameters.
    inputs: tuple[Array, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    #: Further results that carry no gradient, as what a batch norm finds: their cotangent is zero.
    statistics: tuple[str, ...] = ()

    @property
    def results(self) -> tuple[str, ...]:
        """Names of all that it gives, in order."""
        return (*self.outputs, *self.statistics)


def network_of(case: Case) -> Network | None:
    """Return the network that a case is about, or None where it is a single operator."""
    from tapegrad.worker.networks import cnn, fused

    match case.level:
        case "fused":
            return fused.network(case)
        case "model":
            return cnn.network(case.op, **case.attrs)
        case _:
            return None


def single(case: Case) -> Network:
    """Return a case's operator as a network of one node."""
    names = tuple(array.name for array in case.inputs)
    return Network(case.inputs, (Node(case.op, names, ("result",), case.attrs),), ("result",))


def compose(network: Network, operator: Callable[[str], Callable[..., Any]]) -> Callable[..., Any]:
    """Make a function of a network's inputs; `operator` finds a framework's call by its name.

    It is written as a user would write it, line by line, since a loop over nodes takes PyTorch as
    long as a small operator. A value is let go after its last use, so that memory is what the work
    needs.
    """
    names = dict.fromkeys(array.name for array in network.inputs)
    names |= dict.fromkeys(name for node in network.nodes for name in node.gives)
    values = {name: f"v{place}" for place, name in enumerate(names)}

    def listed(some: Iterable[str]) -> str:
        return "".join(f"{values[name]}, " for name in some)

    calls: dict[str, Any] = {}
    lines = [f"def run({listed(array.name for array in network.inputs)}):"]
    for place, (node, last) in enumerate(zip(network.nodes, _ends(network), strict=True)):
        calls[f"f{place}"] = partial(operator(node.op), **node.attrs)
        several = len(node.gives) > 1
        gives = listed(node.gives) if several else values[node.gives[0]]
        lines.append(f"    {gives} = f{place}({listed(node.takes)})")
        gone = [name for name in last if name not in node.gives]
        lines += [f"    del {listed(gone)}"] * bool(gone)
    lines.append(f"    return ({listed(network.results)})")
    exec("\n".join(lines), calls)  # names are numbered: nothing in it is given
    made: Callable[..., Any] = calls["run"]
    return made


def _ends(network: Network) -> list[tuple[str, ...]]:
    """Return for each node the values that nobody needs after it."""
    kept = set(network.results)
    ends: list[tuple[str, ...]] = []
    for node in reversed(network.nodes):
        ends.append(tuple(dict.fromkeys(name for name in node.takes if name not in kept)))
        kept.update(node.takes)
    return ends[::-1]
