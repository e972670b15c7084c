"""Networks as data: what is wired to what, for every framework the same.

A network names canonical operators (`tapegrad.worker.operators`), the values they take and those
they give. `compose` makes a function of it from a framework's own table, so a fused operator, a
residual block and a ResNet have one definition each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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

    A value is let go after its last use, so that memory is what the work needs.
    """
    names = [array.name for array in network.inputs]
    steps = [
        (operator(node.op), node, last)
        for node, last in zip(network.nodes, _ends(network), strict=True)
    ]

    def run(*inputs: Any) -> tuple[Any, ...]:
        values = dict(zip(names, inputs, strict=True))
        for call, node, last in steps:
            given = call(*(values[name] for name in node.takes), **node.attrs)
            for name in last:
                del values[name]
            results = given if isinstance(given, (tuple, list)) else (given,)
            values.update(zip(node.gives, results, strict=True))
        return tuple(values[name] for name in network.results)

    return run


def _ends(network: Network) -> list[tuple[str, ...]]:
    """Return for each node the values that nobody needs after it."""
    kept = set(network.results)
    ends: list[tuple[str, ...]] = []
    for node in reversed(network.nodes):
        ends.append(tuple(dict.fromkeys(name for name in node.takes if name not in kept)))
        kept.update(node.takes)
    return ends[::-1]
