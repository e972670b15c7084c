"""Scalar graphs: lists of operations that belong to no framework.

Every contender reads the same `OpList`. Nodes are numbered in order of creation and start with the
inputs. The target is the sum of all nodes, so that nothing is dead code, or, as in the article, the
last node, whose gradient at the inputs has underflowed to zero after some thousand operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from itertools import chain as joined
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tapegrad.worker.case import Case

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
T = TypeVar("T")

#: The article's graph has this many inputs; `random` and `cheap` keep the number.
N_INPUTS = 100
#: `random` draws its operands from this many of the newest nodes.
RANDOM_WINDOW = 1_000
#: `cheap` takes one operand from this many of the newest nodes.
CHEAP_WINDOW = 32
#: `wide` consists of chains of this many operations, each on an input of its own.
WIDE_DEPTH = 10
#: No operation has more operands than this.
MOST_OPERANDS = 8


class Kind(IntEnum):
    """What an operation computes; the numbers are the opcodes of the C interpreter."""

    SOFTPLUS = 1
    SUM = 2
    PRODUCT = 3
    SOFTMAX = 4


class Op(NamedTuple):
    """One operation on earlier nodes. A softmax makes as many nodes as it reads, others one."""

    kind: Kind
    ins: tuple[int, ...]

    @property
    def n_outputs(self) -> int:
        """How many nodes the operation makes."""
        return len(self.ins) if self.kind is Kind.SOFTMAX else 1


class FlatOps(NamedTuple):
    """The operations as arrays, one entry (of `ins` one row) an operation."""

    kinds: Ints
    #: Operands in use; the rest of a row of `ins` is zero.
    counts: Ints
    ins: Ints
    #: The first of the nodes it makes.
    outs: Ints


@dataclass(frozen=True)
class OpList:
    """A graph: inputs first, then the outputs of each operation in order."""

    family: str
    n_inputs: int
    ops: list[Op]
    #: `sum` of all nodes, or the `last` node.
    target: str = "sum"

    @cached_property
    def n_nodes(self) -> int:
        """Inputs and results together."""
        return self.n_inputs + sum(op.n_outputs for op in self.ops)

    @property
    def target_node(self) -> int:
        """The node that is the target, or -1 for the sum of all."""
        return -1 if self.target == "sum" else self.n_nodes - 1

    def with_outputs(self) -> Iterator[tuple[Op, int]]:
        """Yield each operation with the first of the nodes it makes."""
        out = self.n_inputs
        for op in self.ops:
            yield op, out
            out += op.n_outputs

    def flat(self) -> FlatOps:
        """Write the operations as arrays."""
        names, operands = zip(*self.ops, strict=True)
        kinds = np.fromiter(names, np.int32)
        counts = np.fromiter(map(len, operands), np.int32)
        ins = np.zeros((len(counts), MOST_OPERANDS), dtype=np.int32)
        ins[np.arange(MOST_OPERANDS) < counts[:, None]] = np.fromiter(
            joined.from_iterable(operands), np.int32
        )
        n_outputs = np.where(kinds == Kind.SOFTMAX, counts, 1)
        outs = self.n_inputs + np.cumsum(n_outputs) - n_outputs
        return FlatOps(kinds, counts, ins, outs.astype(np.int32))


def chain(n_ops: int, seed: int = 0) -> OpList:
    """Softplus, sum, product, softmax in turn at fixed distances: the article's graph."""
    del seed  # the article's graph is one graph
    ops: list[Op] = []
    size = N_INPUTS
    for index in range(n_ops):
        match index % 4:
            case 0:
                op = Op(Kind.SOFTPLUS, (size - 10,))
            case 1:
                op = Op(Kind.SUM, tuple(range(size - 30, size - 10, 5)))
            case 2:
                op = Op(Kind.PRODUCT, (size - 20, size - 10))
            case _:
                op = Op(Kind.SOFTMAX, tuple(range(size - 4, size)))
        ops.append(op)
        size += op.n_outputs
    return OpList("chain", N_INPUTS, ops)


def random(n_ops: int, seed: int = 0) -> OpList:
    """Take the same kinds in turn, with operands drawn from the last 1,000 nodes.

    The second operand of a product is an output of a softmax: without such a bound, products of
    sums grow until they overflow.
    """
    draws = np.random.default_rng(seed).random((n_ops, 4)).tolist()
    ops: list[Op] = []
    size = N_INPUTS
    bounded = list(range(N_INPUTS))  # inputs and outputs of softmax: in [0, 1]
    passed: set[int] = set()  # nodes that already have a softplus
    for index, draw in enumerate(draws):
        window = min(size, RANDOM_WINDOW)
        ins = _distinct([size - 1 - int(u * window) for u in draw], size - window, size)
        match index % 4:
            case 0:
                node = next((node for node in ins if node not in passed), ins[0])
                passed.add(node)
                op = Op(Kind.SOFTPLUS, (node,))
            case 1:
                op = Op(Kind.SUM, ins)
            case 2:
                recent = min(len(bounded), RANDOM_WINDOW * 4 // 7)
                op = Op(Kind.PRODUCT, (ins[0], bounded[-1 - int(draw[1] * recent)]))
            case _:
                op = Op(Kind.SOFTMAX, ins)
                bounded.extend(range(size, size + 4))
        ops.append(op)
        size += op.n_outputs
    return OpList("random", N_INPUTS, ops)


def wide(n_ops: int, seed: int = 0) -> OpList:
    """Independent chains of 10 operations, each on its own input, with operands drawn within it."""
    rng = np.random.default_rng(seed)
    n_chains = n_ops // WIDE_DEPTH
    draws = rng.random((n_chains, WIDE_DEPTH, 4)).tolist()
    ops: list[Op] = []
    size = n_chains
    for start, chain_draws in enumerate(draws):
        own = [start]
        for index, draw in enumerate(chain_draws):
            op = _link(index, own, draw)
            ops.append(op)
            own.extend(range(size, size + op.n_outputs))
            size += op.n_outputs
    return OpList("wide", n_chains, ops)


def _link(index: int, own: list[int], draw: list[float]) -> Op:
    """Draw the next operation of one chain of `wide`; it reads at least the chain's newest node."""
    recent = own[-8:]
    other = recent[int(draw[0] * len(recent))]
    match index % 4:
        case 0:
            return Op(Kind.SOFTPLUS, (recent[-1],))
        case 1:
            return Op(Kind.SUM, tuple(recent[-4:]))
        case 2:
            return Op(Kind.PRODUCT, (recent[-1], other))
        case _:
            return Op(Kind.SOFTMAX, tuple(recent[-4:]))


def cheap(n_ops: int, seed: int = 0) -> OpList:
    """Additions and multiplications at random, of a recent node and an input."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(2, size=n_ops).tolist()
    distances = rng.integers(1, CHEAP_WINDOW + 1, size=n_ops).tolist()
    inputs = rng.integers(N_INPUTS, size=n_ops).tolist()
    ops: list[Op] = []
    seen: set[Op] = set()
    for index in range(n_ops):
        node = N_INPUTS + index - distances[index]
        kind = Kind.PRODUCT if kinds[index] else Kind.SUM
        op = Op(kind, (node, inputs[index]))
        while op in seen or node == op.ins[1]:
            op = Op(kind, (node, (op.ins[1] + 1) % N_INPUTS))
        seen.add(op)
        ops.append(op)
    return OpList("cheap", N_INPUTS, ops)


def _distinct(ins: list[int], low: int, high: int) -> tuple[int, ...]:
    """Move repeated operands to the next free node of the window [low, high)."""
    taken: list[int] = []
    for drawn in ins:
        node = drawn
        while node in taken:
            node = node + 1 if node + 1 < high else low
        taken.append(node)
    return tuple(taken)


def product(n_ops: int = 1, seed: int = 0) -> OpList:
    """Multiply two inputs: what remains is the cost of a call."""
    del seed, n_ops
    return OpList("product", 2, [Op(Kind.PRODUCT, (0, 1))])


FAMILIES: dict[str, Callable[[int, int], OpList]] = {
    "chain": chain,
    "random": random,
    "wide": wide,
    "cheap": cheap,
    "product": product,
}


def n_inputs(family: str, n_ops: int) -> int:
    """Tell how many inputs a graph has, without making it."""
    return {"wide": n_ops // WIDE_DEPTH, "product": 2}.get(family, N_INPUTS)


def build(family: str, n_ops: int, seed: int = 0) -> OpList:
    """Make a graph of the named family with `n_ops` operations."""
    return FAMILIES[family](n_ops, seed)


def of_case(case: Case, offset: int = 0) -> OpList:
    """Make the graph that a case asks for, or another with a seed so much larger."""
    attrs = case.attrs
    graph = build(attrs["family"], attrs["ops"], attrs.get("seed", 0) + offset)
    return replace(graph, target=attrs.get("target", "sum"))


class Calls(NamedTuple):
    """How a framework spells the four operations; each takes nodes, sum and softmax a list."""

    softplus: Callable[[Any], Any]
    sum: Callable[[list[Any]], Any]
    product: Callable[[Any, Any], Any]
    softmax: Callable[[list[Any]], Iterable[Any]]


def record(graph: OpList, inputs: Iterable[T], calls: Calls) -> T:
    """Run a graph in a framework and return the target."""
    nodes = list(inputs)
    softplus, total, multiply, softmax = calls
    is_softplus, is_sum, is_product = Kind.SOFTPLUS, Kind.SUM, Kind.PRODUCT
    for kind, ins in graph.ops:
        if kind is is_softplus:
            nodes.append(softplus(nodes[ins[0]]))
        elif kind is is_sum:
            nodes.append(total([nodes[i] for i in ins]))
        elif kind is is_product:
            nodes.append(multiply(nodes[ins[0]], nodes[ins[1]]))
        else:
            nodes.extend(softmax([nodes[i] for i in ins]))
    target: T = total(nodes) if graph.target == "sum" else nodes[-1]
    return target
