"""The rounds of a loop, run one by one: what each takes, and from where; and its derivatives."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from tapegrad import _core
from tapegrad._core import Var, functions
from tapegrad.scalar.nodes import Values, by_place, live
from tapegrad.scalar.program import Program, compile


class Round(NamedTuple):
    """A round of a loop, as a graph of the body at a point."""

    outputs: list[Var]
    """What to look at: results of the round, as Vars."""
    inputs: list[Var]
    """What the graph takes."""
    point: list[float]
    """The values it takes in that round."""
    step: int
    """The step of the scan; the first one of several, where a round has several."""
    is_block: bool
    """Whether a round has several steps."""


class Rounds:
    """A loop: its body, and what each round takes and gives."""

    def __init__(self, var: Var, dtype: str) -> None:
        """Take the loop that `var` is a result of."""
        self._parts = _core.loop_parts(var)
        self._dtype = dtype
        self.outputs, _, self.inputs = self._parts["body"]
        self.count: int = self._parts["count"]
        self.carried = len(self._parts["carried"])
        self.width = len(self.outputs) - self.carried
        self.first = var.operands[0].index + 1
        self.is_block = self._parts["steps"] > 1

    def operands(self, kind: str) -> list[Var]:
        """Return the operands of a kind: carried, shared or stepped."""
        found: list[Var] = self._parts[kind]
        return found

    def step(self, place: int) -> int:
        """Return the step of the scan that a round is, or begins with."""
        parts = self._parts
        passed = place if parts["direction"] > 0 else self.count - 1 - place
        return int(parts["first_step"] + passed * parts["steps"])

    @cached_property
    def _program(self) -> Program:
        return self._compiled(self.outputs)

    @cached_property
    def _nodes(self) -> tuple[list[Var], Program]:
        nodes = live(self.outputs)
        return nodes, self._compiled(nodes)

    def _compiled(self, vars_: list[Var]) -> Program:
        return compile(vars_, inputs=self.inputs, dtype=self._dtype)

    def within(self, point: list[float]) -> Values:
        """Return the values of all nodes of the body, in a round that takes these values."""
        nodes, program = self._nodes
        return by_place(nodes, program(point).tolist())

    def run(self, values: Values) -> Iterator[tuple[list[float], list[float]]]:
        """Yield what each round takes, and what it gives, if the operands have these values."""
        parts = self._parts
        carried, shared, stepped = (
            [values[each.index] for each in self.operands(kind)]
            for kind in ("carried", "shared", "stepped")
        )
        row = 0 if parts["start"] is None else int(values[parts["start"].index])
        width, columns = len(stepped) // self.count, parts["columns"]
        for place in range(self.count):
            own = stepped[place * width : (place + 1) * width]
            point = carried + shared + own + parts["table"][row * columns : (row + 1) * columns]
            found = self._program(point).tolist()
            yield point, found
            carried = found[: self.carried]
            row += parts["direction"]

    def end(self, var: Var) -> tuple[int, int]:
        """Return the round that gives a result of the loop, and which of its results that is."""
        result = var.index - self.first
        if result < self.carried:
            return self.count - 1, result
        place, k = divmod(result - self.carried, self.width)
        return place, self.carried + k

    def source(self, place: int, var: Var) -> Var | tuple[int, int] | None:
        """Return where a round gets one of its inputs from.

        That is an operand of the loop, or a round and which of its results; None stands for the
        table of numbers, and for Vars that are no inputs.
        """
        taken = [each.index for each in self.inputs]
        if var.index not in taken:
            return None
        k = taken.index(var.index)
        if k < self.carried and place:
            return place - 1, k
        stepped = self.operands("stepped")
        width = len(stepped) // self.count
        own = stepped[place * width : (place + 1) * width]
        operands = [*self.operands("carried"), *self.operands("shared"), *own]
        return operands[k] if k < len(operands) else None


class WayBack:
    """The rounds of a loop from the last to the first, with the adjoints that each is given.

    The derivative of a round is that of one number: the sum of its results times their adjoints.
    """

    def __init__(
        self, var: Var, values: Values, adjoints: Values, dtype: str, *, masked: bool
    ) -> None:
        """Go back over a loop whose results have these adjoints, 0 where they are left out.

        `masked` tells that an adjoint of 0 wins against any slope, as it does below a `where`.
        """
        rounds = Rounds(var, dtype)
        self._rounds = rounds
        self._points = [point for point, _ in rounds.run(values)]
        graph = rounds.outputs[0].graph
        seeds = [graph.input() for _ in rounds.outputs]
        pairs = zip(seeds, rounds.outputs, strict=True)
        self._products = [seed * output for seed, output in pairs]
        self._total: Var = functions.sum(
            [
                functions.where(functions.ne(seed, 0.0), product, 0.0) if masked else product
                for seed, product in zip(seeds, self._products, strict=True)
            ]
        )
        self._inputs = [*rounds.inputs, *seeds]
        self._given, self._found = self._go_back(adjoints, dtype)

    def _go_back(self, adjoints: Values, dtype: str) -> tuple[list[list[float]], list[list[float]]]:
        """Return the adjoints that each round is given, and those of what it takes."""
        rounds = self._rounds
        wrt = rounds.inputs
        program = compile(_core.gradient(self._total, wrt), inputs=self._inputs, dtype=dtype)
        results = [
            adjoints.get(rounds.first + k, 0.0)
            for k in range(rounds.carried + rounds.count * rounds.width)
        ]
        carried, given, found = results[: rounds.carried], [], []
        for place in range(rounds.count - 1, -1, -1):
            begin = rounds.carried + place * rounds.width
            given.append(carried + results[begin : begin + rounds.width])
            found.append(program(self._points[place] + given[-1]).tolist())
            carried = found[-1][: rounds.carried]
        return given[::-1], found[::-1]

    def entries(self, by: Var) -> Iterator[tuple[int, int]]:
        """Yield rounds, and which of their inputs: where the adjoint of an operand is spoilt."""
        rounds = self._rounds
        kinds = [
            [(0, k) for k in _places(rounds.operands("carried"), by)],
            [
                (place, rounds.carried + k)
                for k in _places(rounds.operands("shared"), by)
                for place in range(rounds.count - 1, -1, -1)
            ],
            [self._stepped(k) for k in _places(rounds.operands("stepped"), by)],
        ]
        for place, k in (entry for kind in kinds for entry in kind):
            if not math.isfinite(self._found[place][k]):
                yield place, k

    def _stepped(self, k: int) -> tuple[int, int]:
        rounds = self._rounds
        width = len(rounds.operands("stepped")) // rounds.count
        return k // width, rounds.carried + len(rounds.operands("shared")) + k % width

    def round(self, place: int) -> Round:
        """Return a round as the number whose derivative it is."""
        point = self._points[place] + self._given[place]
        rounds = self._rounds
        return Round([self._total], self._inputs, point, rounds.step(place), rounds.is_block)

    def before(self, place: int, var: Var) -> tuple[int, int] | None:
        """Return the round that spoilt an adjoint, if `var` is what brought it here."""
        for k, product in enumerate(self._products[: self._rounds.carried]):
            if product.index == var.index and place + 1 < self._rounds.count:
                return (place + 1, k)
        return None


def _places(operands: Sequence[Var], var: Var) -> list[int]:
    return [k for k, operand in enumerate(operands) if operand.index == var.index]
