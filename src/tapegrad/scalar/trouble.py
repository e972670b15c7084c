"""Where NaNs and infinities come from.

Every node is evaluated as an output of one program. Infinities that do no harm, as in the branch
that a `where` does not take, are common; so the search starts at a result that is not finite and
goes back through operands that are not, to the node where finite operands gave something else;
through a loop it goes from round to round.
Derivatives are searched the same way, from a variable up through the adjoints of its users.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from tapegrad import _core
from tapegrad._core import Graph, Var
from tapegrad.errors import DTypeError
from tapegrad.scalar.nodes import (
    Values,
    as_vars,
    by_place,
    formula,
    label,
    live,
    made_from,
    of_one_graph,
    operation,
)
from tapegrad.scalar.program import Program, compile
from tapegrad.scalar.replay import Function, Recording, Replayed, SparseReplayed, as_point, record
from tapegrad.scalar.rounds import Round, Rounds, WayBack

#: Operands that a message shows; a sum may have thousands.
SHOWN = 8

#: Operations whose value, where it is not finite, is that of an operand.
CHOICES = ("maximum", "minimum", "max", "min", "logsumexp")


@dataclass(frozen=True)
class NonFinite:
    """The operation where the first NaN or infinity arose, with the values that it had."""

    direction: Literal["forward", "backward"]
    """Whether a value is not finite, or only a derivative."""
    var: Var
    """The node: its value, or its own derivative, is not finite."""
    op: str
    """The operation that makes it."""
    value: float
    """Forward: the value of the node. Backward: the derivative of the output by `by`."""
    operands: tuple[tuple[str, float], ...]
    """What the node is computed from: names and values."""
    output: int
    """Which of the outputs it spoils: its position."""
    by: Var | None = None
    """Backward: the operand by which the derivative was taken."""
    overflow: bool = False
    """Backward: every derivative along the way is finite, their product or sum is not."""
    steps: tuple[int, ...] = ()
    """Within scans: the step of each, counted from 0, the outermost scan first."""

    @property
    def line(self) -> str | None:
        """File and line that recorded the node, in a graph made with lines=True."""
        return self.var.line

    def __str__(self) -> str:
        """Say it in a sentence."""
        shown = [f"{name} = {value!r}" for name, value in self.operands[:SHOWN]]
        if len(self.operands) > SHOWN:
            shown.append(f"{len(self.operands) - SHOWN:,} more")
        where = f", where {', '.join(shown)}" if shown else ""
        where += "".join(f", in step {step:,} of a scan" for step in self.steps)
        if self.op == "constant":
            return f"the constant {label(self.var)} spoils output {self.output}{where}{self._at()}"
        if self.by is None:
            return (
                f"{_described(self.var)} is {self.value!r}{where}; it spoils output {self.output}"
                f"{self._at()}"
            )
        reason = (
            "finite derivatives overflow in it" if self.overflow else "its derivative is not finite"
        )
        return (
            f"the gradient of output {self.output} becomes {self.value!r} at {label(self.by)}, "
            f"behind {_described(self.var)}: {reason}{where}{self._at()}"
        )

    def _at(self) -> str:
        return f" ({self.line})" if self.line else ""


def locate_nonfinite(
    outputs: Var | Iterable[Var] | Program | Function,
    x: ArrayLike,
    wrt: Var | Iterable[Var] | None = None,
    *,
    inputs: Var | Iterable[Var] | None = None,
    dtype: str = "float64",
) -> NonFinite | None:
    """Find the operation where the first NaN or infinity of the results arose.

    Returns None where all results are finite, whatever happens on the way to them. Values are
    searched first, then the derivatives of one output after the other.

    Args:
        outputs: The Vars that were compiled; or a program; or a function of an array, whose
            derivatives are searched too; or what `tg.grad` and the like made of a function. With a
            function, or in a graph made with `Graph(lines=True)`, the line of Python that recorded
            the operation is told.
        x: The point.
        wrt: The Vars that it is differentiated by. The adjoints of all nodes are appended to the
            graph to find out; programs made of it stay as they are.
        inputs: As for `compile`.
        dtype: The type to compute in: much overflows in float32 only. A program has its own.

    In a scan values and derivatives are followed into the step that spoils them.

    Example:
        >>> import tapegrad as tg
        >>> g = tg.Graph()
        >>> x, y = g.input("x"), g.input("y")
        >>> z = tg.exp(tg.log(x) * y)
        >>> print(tg.locate_nonfinite(z, [-1.0, 2.0]))
        %2 = log(x) is nan, where x = -1.0; it spoils output 0
        >>> print(tg.locate_nonfinite(lambda x: tg.sqrt(x[0]) * x[1], [0.0, 1.0]))
        the gradient of output 0 becomes inf at %0, behind %2 = sqrt(%0): its derivative is not \
finite, where %0 = 0.0 (<doctest ...>:1)
        >>> tg.locate_nonfinite(z, [1.0, 2.0], wrt=[x, y]) is None
        True

    """
    point = np.ravel(as_point(x, "locate_nonfinite"))
    if isinstance(outputs, Replayed | SparseReplayed):
        _alone("a function", wrt, inputs)
        program = _replayed(outputs, np.shape(x))
        if np.isfinite(program(point)).all():
            return None
        # The function tells its lines; only of its higher derivatives it knows nothing.
        variables, values = outputs.with_lines(np.shape(x))
        found = _searched(point, values, variables, variables, outputs.dtype)
        if found is not None:
            return found
        outputs = program
    if isinstance(outputs, Program):
        _alone("a program", wrt, inputs)
        outputs(point)  # raises what the program raises at this point
        dtype = outputs.dtype
        outputs, wrt, inputs = outputs.opened()
    elif callable(outputs):
        _alone("a function", wrt, inputs)
        wrt, outputs = record(outputs, np.shape(x), "locate_nonfinite", lines=True)
        inputs = wrt
    return _searched(point, outputs, wrt, inputs, dtype)


def _searched(
    point: Any,
    outputs: Var | Iterable[Var],
    wrt: Var | Iterable[Var] | None,
    inputs: Var | Iterable[Var] | None,
    dtype: str,
) -> NonFinite | None:
    """Search values, then derivatives."""
    search = _Search(
        point, None if inputs is None else as_vars(inputs, "locate_nonfinite: inputs"), dtype
    )
    ends = of_one_graph(outputs, "locate_nonfinite: outputs")
    variables = [] if wrt is None else as_vars(wrt, "locate_nonfinite: wrt")
    return search.forward(ends) or search.backward(ends, variables)


def _replayed(derivative: Replayed | SparseReplayed, shape: tuple[int, ...]) -> Program:
    """Return what a derivative of a function evaluates, if a point is all it needs."""
    recording = derivative.recorded(shape)
    if isinstance(recording, Recording) and recording.second is not None:
        raise DTypeError(
            "locate_nonfinite: expected a function of a point, got a derivative that takes a "
            "vector too; give the function itself, or the derivative as Vars"
        )
    return recording.program


def _alone(what: str, *others: object) -> None:
    if any(other is not None for other in others):
        raise DTypeError(f"locate_nonfinite: {what} takes neither wrt nor inputs")


class _Search:
    """A point, and how to evaluate Vars there."""

    def __init__(self, point: Any, inputs: list[Var] | None, dtype: str) -> None:
        self._point = point
        self._inputs = inputs
        self._dtype = dtype
        #: Loops that were searched, by their graphs and places.
        self._loops: dict[tuple[Graph, int], Rounds] = {}

    def _evaluate(self, vars_: Sequence[Var]) -> list[float]:
        if not vars_:
            return []
        values: list[float] = compile(vars_, inputs=self._inputs, dtype=self._dtype)(
            self._point
        ).tolist()
        return values

    def _values(self, nodes: Sequence[Var]) -> Values:
        return by_place(nodes, self._evaluate(nodes))

    def forward(self, outputs: Sequence[Var]) -> NonFinite | None:
        """Search the values of all outputs."""
        values = self._values(live(outputs))
        for position, output in enumerate(outputs):
            if not math.isfinite(values[output.index]):
                return self._followed(output, values, position)
        return None

    def _followed(self, var: Var, values: Values, position: int) -> NonFinite:
        """Go back from a value that is not finite to where it arose."""
        while operation(var := _origin(var, values)) == "loop":
            came_from = self._through(var, values, position)
            if isinstance(came_from, NonFinite):
                return came_from
            if came_from is None:
                break
            var = came_from
        return NonFinite(
            "forward",
            var,
            operation(var),
            values[var.index],
            _named(made_from(var), values),
            position,
        )

    def _through(self, var: Var, values: Values, position: int) -> NonFinite | Var | None:
        """Go back through the rounds of a loop that gives a value that is not finite.

        Returns where in a round it arose, or the operand of the loop that it came with; None where
        the rounds, run one by one, are rounded otherwise and give something finite.
        """
        rounds = self._rounds_of(var)
        place, k = rounds.end(var)
        points = [point for point, _ in islice(rounds.run(values), place + 1)]
        while True:
            end = rounds.outputs[k]
            within = rounds.within(points[place])
            if math.isfinite(within[end.index]):
                return None
            found = self._followed(end, within, position)
            source = None if found.steps else rounds.source(place, found.var)
            if isinstance(source, Var):
                return source
            if source is None:
                return _of_round(found, rounds.step(place), position, is_block=rounds.is_block)
            place, k = source

    def _rounds_of(self, var: Var) -> Rounds:
        """Return the loop that a Var is a result of; all blocks of a scan repeat the same one."""
        loop = (var.graph, var.operands[0].index)
        if loop not in self._loops:
            self._loops[loop] = Rounds(var, self._dtype)
        return self._loops[loop]

    def _in(self, spoilt: Round) -> _Search:
        return _Search(spoilt.point, spoilt.inputs, self._dtype)

    def backward(self, outputs: Sequence[Var], wrt: Sequence[Var]) -> NonFinite | None:
        """Search the derivatives of all outputs, whose values are finite."""
        for position, output in enumerate(outputs):
            gradient = self._evaluate(_core.gradient(output, wrt)) if wrt else []
            for variable, derivative in zip(wrt, gradient, strict=True):
                if not math.isfinite(derivative):
                    return self._behind(output, position, variable)
        return None

    def _behind(self, output: Var, position: int, variable: Var) -> NonFinite:
        """Go up from a variable to the last node whose adjoint is not finite, and its users."""
        nodes = live([output])
        adjoints = self._evaluate(_core.gradient(output, nodes))
        adjoint_of = by_place(nodes, adjoints)
        users = _users(nodes)
        by = variable
        while spoilt := [u for u in users[by.index] if not math.isfinite(adjoint_of[u.index])]:
            by = spoilt[-1]
        slopes = self._evaluate(_core.tangents(users[by.index], [by], [1.0]))
        guilty = [
            user
            for user, slope in zip(users[by.index], slopes, strict=True)
            if not math.isfinite(slope)
        ]
        # Behind a `where` an adjoint of 0 keeps a slope that is not finite from doing harm.
        felt = [user for user in guilty if adjoint_of[user.index] != 0]
        suspects = [*felt, *guilty, *users[by.index]]
        for var in suspects:
            if operation(var) == "loop" and (within := self._behind_rounds(var, by, adjoint_of)):
                return replace(within, output=position)
        var = suspects[0]
        return NonFinite(
            "backward",
            var,
            operation(var),
            adjoint_of[by.index],
            _named(made_from(var), self._values(made_from(var))),
            position,
            by,
            not guilty,
        )

    def _behind_rounds(self, var: Var, by: Var, adjoints: Values) -> NonFinite | None:
        """Search the rounds of a loop for what spoils the adjoint of its operand."""
        values = self._values(made_from(var))
        for masked in (True, False):  # whether a `where` keeps adjoints of 0 what they are
            way = WayBack(var, values, adjoints, self._dtype, masked=masked)
            for place, k in way.entries(by):
                return self._along(way, place, k)
        return None

    def _along(self, way: WayBack, place: int, k: int) -> NonFinite:
        """Go from round to round, as long as a spoilt adjoint came from the one behind."""
        while True:
            spoilt = way.round(place)
            found = self._in(spoilt)._behind(spoilt.outputs[0], 0, spoilt.inputs[k])
            came_from = None if found.steps else way.before(place, found.var)
            if came_from is None:
                return _of_round(found, spoilt.step, 0, is_block=spoilt.is_block)
            place, k = came_from


def _of_round(found: NonFinite, step: int, position: int, *, is_block: bool) -> NonFinite:
    """Tell the step of what was found in a round; one that is a block begins with that step."""
    if is_block:  # of the same scan
        inner, *others = found.steps or (0,)
        return replace(found, output=position, steps=(step + inner, *others))
    return replace(found, output=position, steps=(step, *found.steps))


def _origin(var: Var, values: Values) -> Var:
    """Go back to a node that is not finite though all it is computed from is, or to a loop."""
    while operation(var) != "loop" and (felt := _felt(var, values)):
        var = min(felt, key=lambda each: each.index)
    return var


def _felt(var: Var, values: Values) -> Sequence[Var]:
    """Return the operands that are not finite, as far as the value of a Var comes from them."""
    value = values[var.index]
    spoilt = [each for each in _taken(var, values) if not math.isfinite(values[each.index])]
    if var.op in CHOICES:
        alike = [each for each in spoilt if _same(values[each.index], value)]
    else:
        alike = [each for each in spoilt if math.isnan(values[each.index]) == math.isnan(value)]
    return alike or spoilt  # inf - inf is NaN


def _same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def _taken(var: Var, values: Values) -> Sequence[Var]:
    """Return the operands whose values reach a Var: of a `where`, the branch that is taken."""
    if var.op != "where":
        return made_from(var)
    condition, yes, no = var.operands
    return [yes if values[condition.index] != 0 else no]


def _users(nodes: Sequence[Var]) -> dict[int, list[Var]]:
    """Return who uses each node, in their order."""
    users: dict[int, list[Var]] = {node.index: [] for node in nodes}
    for node in nodes:
        for place in {operand.index for operand in made_from(node)} & users.keys():
            users[place].append(node)
    return users


def _named(operands: Sequence[Var], values: Values) -> tuple[tuple[str, float], ...]:
    return tuple((label(var), values[var.index]) for var in operands)


def _described(var: Var) -> str:
    return label(var) if var.op == "input" else f"{label(var)} = {formula(var)}"
