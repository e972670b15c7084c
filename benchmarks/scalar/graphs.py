"""The benchmark's graphs: lists of operations that belong to no framework.

Every contender and the oracle read the same `OpList`. Nodes are numbered in order of creation and
start with the inputs; the target is always the sum of all nodes, so nothing is dead code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: The article's graph has this many inputs; `random` and `cheap` keep the number.
N_INPUTS = 100
#: `random` draws its operands from this many of the newest nodes.
RANDOM_WINDOW = 1_000
#: `cheap` takes one operand from this many of the newest nodes.
CHEAP_WINDOW = 32
#: `wide` consists of chains of this many operations, each on an input of its own.
WIDE_DEPTH = 10


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


@dataclass(frozen=True)
class OpList:
    """A graph: inputs first, then the outputs of each operation in order."""

    family: str
    n_inputs: int
    ops: list[Op]

    @property
    def n_nodes(self) -> int:
        """Inputs and results together."""
        return self.n_inputs + sum(op.n_outputs for op in self.ops)

    def points(self, rows: int, seed: int = 1) -> Floats:
        """Distinct points in [0, 1], one a row."""
        return np.random.default_rng(seed).random((rows, self.n_inputs))

    def duplicates(self) -> int:
        """Operations that repeat an earlier one on the same operands."""
        seen = {
            (op.kind, op.ins if op.kind is Kind.SOFTMAX else _sorted(op.ins)) for op in self.ops
        }
        return len(self.ops) - len(seen)


def _sorted(ins: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(ins))


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


FAMILIES: dict[str, Callable[[int, int], OpList]] = {
    "chain": chain,
    "random": random,
    "wide": wide,
    "cheap": cheap,
}


def build(family: str, n_ops: int, seed: int = 0) -> OpList:
    """Make a graph of the named family with `n_ops` operations."""
    return FAMILIES[family](n_ops, seed)
