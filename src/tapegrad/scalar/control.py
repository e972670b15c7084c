"""Loops: `scan` records one step and repeats it, whatever the length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tapegrad import _core
from tapegrad._core import Graph, Var
from tapegrad.errors import DTypeError, ShapeError
from tapegrad.scalar.arrays import VarArray, unmasked
from tapegrad.scalar.nodes import as_var, is_number
from tapegrad.scalar.options import whole
from tapegrad.scalar.replay import TakesVarsError

#: Vars and numbers in tuples, lists, dicts and arrays.
Tree: TypeAlias = Any
#: Of a carry and the x of a step to the next carry and the step's y (or None).
Step: TypeAlias = Callable[[Tree, Tree], tuple[Tree, Tree]]


#: More steps than a loop can have.
STEPS = 2**32 - 1


def scan(
    step: Step,
    carry: Tree,
    xs: Tree = None,
    *,
    length: int | None = None,
    checkpoint: int = 64,
) -> tuple[Tree, Tree]:
    """Repeat a step: `carry, y = step(carry, x)` for each x, recorded once.

    Returns the last carry and all y, along a new first axis. The step may use Vars from around it;
    what does not depend on its arguments is computed once. It is called once (or twice, see below),
    with Vars that stand for all steps, so it can use `tg.where` but not `if` on them.

    Args:
        step: A function of carry and x to the next carry, of the same structure, and y or None.
        carry: A Var or a number, or tuples, lists, dicts and arrays of them.
        xs: An array or list with a row for each step, or a tuple or dict of such. Numbers are
            stored as a table, which costs no nodes; Vars are operands. None: the step's x is None.
        length: The number of steps, where xs does not tell.
        checkpoint: Derivatives need the carries of all steps. Longer loops than this are loops of
            blocks, of which only one is kept at a time, and computed again: memory grows with a
            root of the length. Larger numbers are quicker and take more memory.

    Without any Var, around it or in its arguments, the steps run as a loop in Python. To find that
    out where no argument has one, the step is called once with the numbers of the first round, or
    with ones if there is no round.

    Example:
        >>> import numpy as np, tapegrad as tg
        >>> g = tg.Graph()
        >>> rate, start = g.input("rate"), g.input("start")
        >>> end, path = tg.scan(lambda y, _: (y * rate, y), start, length=3)
        >>> tg.compile([end, *path], wrt=[rate, start])([2.0, 1.0])[0].tolist()
        [8.0, 1.0, 2.0, 4.0]
        >>> total, _ = tg.scan(lambda s, x: (s + rate * x, None), 0.0, np.arange(100_000.0))
        >>> tg.compile(total, wrt=[rate], inputs=[rate])([1.0])
        (4999950000.0, array([4.99995e+09]))

    """
    if not callable(step):
        raise DTypeError(f"scan: expected the step as a function, got {type(step).__name__}")
    rows = _Rows.of(xs, length)
    limit = whole("scan: expected checkpoint", checkpoint, 2, STEPS)
    leaves = list(_leaves(carry, "scan: carry"))
    graph = _graph_of([*leaves, *rows.vars]) or _graph_by_trial(step, carry, rows)
    if graph is None:
        return _in_python(step, carry, rows)
    arguments = _core.placeholders(graph, len(leaves) + rows.stepped + rows.columns)
    held = iter(arguments)
    try:
        next_carry, y = _called(step, _rebuilt(carry, held), rows.arguments(held))
    finally:
        _core.leave_step(arguments)
    next_carry = _ordered(next_carry, carry)
    _same_structure(carry, next_carry)
    ends = [*_leaves(next_carry, "scan: the step's carry"), *_leaves(y, "scan: the step's y")]
    made = [as_var(graph, end, "scan: got") for end in ends]
    if not arguments:  # nothing differs from step to step
        found = made * rows.steps
    elif not made:
        found = []
    else:
        starts = [as_var(graph, leaf, "scan: got") for leaf in leaves]
        operands = [as_var(graph, each, "scan: got") for each in rows.operands()]
        found = _core.record_scan(
            arguments, made, starts, operands, rows.table(), rows.steps, limit
        )
    results = iter(found)
    last = _rebuilt(carry, results)
    return last, _stacked(y, list(results), rows.steps)


# ---- rows ---------------------------------------------------------------------------------------


class _Rows(NamedTuple):
    """The xs of a scan: arrays with a row for each step, of Vars or of numbers."""

    structure: Tree
    arrays: list[NDArray[Any]]
    steps: int

    @classmethod
    def of(cls, xs: Tree, length: int | None) -> _Rows:
        arrays = [] if xs is None else [_row_array(each) for each in _parts(xs)]
        counts = {len(array) for array in arrays}
        if length is not None:
            counts.add(whole("scan: expected length", length, 0, STEPS))
        if len(counts) != 1:
            got = f"lengths {sorted(counts)}" if counts else "neither xs nor length"
            raise ShapeError(f"scan: expected xs and length to tell one number of steps, got {got}")
        return cls(xs, arrays, counts.pop())

    @property
    def vars(self) -> list[Any]:
        return [each for array in self.arrays if array.dtype == object for each in array.flat]

    @property
    def stepped(self) -> int:
        """Operands of each step."""
        return sum(_width(array) for array in self.arrays if array.dtype == object)

    @property
    def columns(self) -> int:
        """Numbers of each step."""
        return sum(_width(array) for array in self.arrays if array.dtype != object)

    def operands(self) -> list[Any]:
        """Return the Vars of all steps, one step after the other."""
        return list(self._joined(object).flat)

    def table(self) -> NDArray[np.float64]:
        """Return the numbers, a row for each step."""
        return self._joined(np.float64)

    def _joined(self, dtype: Any) -> NDArray[Any]:
        chosen = [
            np.asarray(array).reshape(self.steps, _width(array))
            for array in self.arrays
            if (array.dtype == object) == (dtype is object)
        ]
        return np.hstack(chosen) if chosen else np.empty((self.steps, 0), dtype=dtype)

    def arguments(self, held: Iterator[Var]) -> Tree:
        """Arrange arguments for one step like a row: those for Vars first, then for numbers."""
        made: dict[int, Any] = {}
        for of_vars in (True, False):
            for place, array in enumerate(self.arrays):
                if (array.dtype == object) == of_vars:
                    made[place] = _filled(array.shape[1:], held)
        return self._arranged([made[place] for place in range(len(self.arrays))])

    def row(self, place: int) -> Tree:
        """Return what the step gets at one place."""
        return self._arranged([array[place] for array in self.arrays])

    def first_or_ones(self) -> Tree:
        """Return what the step gets first, or ones in its place."""
        if self.steps:
            return self.row(0)
        return self._arranged([np.ones((1, *array.shape[1:]))[0] for array in self.arrays])

    def _arranged(self, parts: list[Any]) -> Tree:
        match self.structure:
            case None:
                return None
            case tuple():
                return _tuple_like(self.structure, parts)
            case dict():
                return dict(zip(self.structure, parts, strict=True))
        return parts[0]


def _parts(xs: Tree) -> list[Any]:
    """Return the arrays of xs: those of a tuple or dict, or the only one."""
    if isinstance(xs, tuple):
        return list(xs)
    return list(xs.values()) if isinstance(xs, dict) else [xs]


def _row_array(rows: Any) -> NDArray[Any]:
    rows = unmasked(rows, "scan: xs")
    array = rows if isinstance(rows, np.ndarray) else np.array(rows, dtype=object)
    if array.ndim == 0:
        raise ShapeError("scan: expected xs with a row for each step, got a single value")
    if array.dtype.kind not in "fiub":
        for each in array.flat:
            if not isinstance(each, Var) and not is_number(each):
                raise DTypeError(f"scan: expected xs of Vars and real numbers, got {_kind(each)}")
        if any(isinstance(each, Var) for each in array.flat):
            return array
    return np.asarray(array, dtype=np.float64)


def _kind(value: Any) -> str:
    return "rows of several lengths" if isinstance(value, list | tuple) else type(value).__name__


def _width(array: NDArray[Any]) -> int:
    return int(np.prod(array.shape[1:], dtype=np.int64))


# ---- trees --------------------------------------------------------------------------------------


def _leaves(tree: Tree, what: str) -> Iterator[Any]:
    """Yield the Vars and numbers of a tree, in order."""
    match tree:
        case None:
            return
        case _ if isinstance(tree, Var) or is_number(tree):
            yield tree
        case tuple() | list():
            for each in tree:
                yield from _leaves(each, what)
        case dict():
            for each in tree.values():
                yield from _leaves(each, what)
        case np.ndarray():
            for each in unmasked(tree, what).flat:
                yield from _leaves(each, what)
        case _:
            raise DTypeError(
                f"{what}: expected Vars and numbers in tuples, lists, dicts and arrays, got "
                f"{type(tree).__name__}"
            )


def _rebuilt(tree: Tree, leaves: Iterator[Any]) -> Tree:
    """Build a tree of the same structure from other leaves."""
    match tree:
        case None:
            return None
        case tuple() | list():
            return _tuple_like(tree, [_rebuilt(each, leaves) for each in tree])
        case dict():
            return {key: _rebuilt(each, leaves) for key, each in tree.items()}
        case np.ndarray():
            return _filled(tree.shape, leaves)
    return next(leaves)


def _tuple_like(given: Any, parts: list[Any]) -> Any:
    """Make a tuple, a named tuple or a list of parts, as the given one is."""
    return type(given)(*parts) if hasattr(given, "_fields") else type(given)(parts)


def _filled(shape: tuple[int, ...], leaves: Iterator[Any]) -> Any:
    """Fill an array; one without dimensions is its only element."""
    array = np.empty(shape, dtype=object)
    for place in np.ndindex(shape):
        array[place] = next(leaves)
    return array.view(VarArray) if shape else array[()]


def _stacked(y: Tree, results: list[Var], count: int) -> Tree:
    """Arrange all steps' results like y, each along a new first axis."""
    width = len(results) // count if count else 0
    columns = iter(range(width))

    def stack(part: Tree) -> Any:
        shape = np.shape(part) if isinstance(part, np.ndarray) else ()
        size = int(np.prod(shape, dtype=np.int64))
        places = [next(columns) for _ in range(size if width else 0)]
        array = np.empty((count, len(places)), dtype=object)
        for column, place in enumerate(places):
            array[:, column] = results[place::width]
        return array.reshape((count, *shape)).view(VarArray)

    def walk(part: Tree) -> Tree:
        match part:
            case None:
                return None
            case tuple() | list():
                return _tuple_like(part, [walk(each) for each in part])
            case dict():
                return {key: walk(each) for key, each in part.items()}
        return stack(part)

    return walk(y)


def _ordered(found: Tree, like: Tree) -> Tree:
    """Put the keys of dicts in the order of another tree, as far as the two are alike."""
    match like:
        case dict() if isinstance(found, dict) and found.keys() == like.keys():
            return {key: _ordered(found[key], each) for key, each in like.items()}
        case tuple() | list() if type(found) is type(like) and len(found) == len(like):
            return _tuple_like(like, [_ordered(*pair) for pair in zip(found, like, strict=True)])
    return found


def _same_structure(carry: Tree, found: Tree) -> None:
    given, got = _structure(carry), _structure(found)
    if given != got:
        raise ShapeError(
            f"scan: the step must return a carry like the one it is given, {given}; it returned "
            f"{got}"
        )


def _structure(tree: Tree) -> str:
    match tree:
        case tuple() | list():
            inner = ", ".join(_structure(each) for each in tree)
            return f"({inner})" if isinstance(tree, tuple) else f"[{inner}]"
        case dict():
            return "{" + ", ".join(f"{k!r}: {_structure(v)}" for k, v in tree.items()) + "}"
        case np.ndarray() if tree.ndim:
            return f"array{tree.shape}"
        case None:
            return "None"
    return "a number"


# ---- graphs -------------------------------------------------------------------------------------


def _called(step: Step, carry: Tree, x: Tree) -> tuple[Tree, Tree]:
    found = step(carry, x)
    if not isinstance(found, tuple) or len(found) != 2:
        raise DTypeError(
            f"scan: the step must return two things, (carry, y), where y may be None; it returned "
            f"{type(found).__name__}"
        )
    return found


def _graph_of(leaves: list[Any]) -> Graph | None:
    return next((each.graph for each in leaves if isinstance(each, Var)), None)


def _graph_by_trial(step: Step, carry: Tree, rows: _Rows) -> Graph | None:
    """Find the graph of Vars that the step takes from around it."""
    try:
        found = _called(step, carry, rows.first_or_ones())
    except TakesVarsError as error:  # a derivative of a function, in a graph of its own
        return error.graph
    return _graph_of(list(_leaves(found, "scan: the step's results")))


def _in_python(step: Step, carry: Tree, rows: _Rows) -> tuple[Tree, Tree]:
    """Run all steps on numbers."""
    if not rows.steps:
        _, y = _called(step, carry, rows.first_or_ones())
        return carry, _empty(y)
    collected = []
    for place in range(rows.steps):
        carry, y = _called(step, carry, rows.row(place))
        collected.append(y)
    return carry, _arrays(collected)


def _arrays(ys: list[Tree]) -> Tree:
    """Turn a list of alike trees into one tree of arrays."""
    match ys[0]:
        case None:
            return None
        case tuple() | list() as first:
            return _tuple_like(first, [_arrays(list(part)) for part in zip(*ys, strict=True)])
        case dict() as first:
            return {key: _arrays([y[key] for y in ys]) for key in first}
    return np.array(ys)


def _empty(y: Tree) -> Tree:
    """Turn a tree into one of arrays without rows."""
    match y:
        case None:
            return None
        case tuple() | list():
            return _tuple_like(y, [_empty(part) for part in y])
        case dict():
            return {key: _empty(part) for key, part in y.items()}
    return np.empty((0, *np.shape(y)))
