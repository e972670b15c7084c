"""Functions that are recorded once per shape of their argument and replayed after."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tapegrad import _core
from tapegrad._core import Graph, Var
from tapegrad.errors import DTypeError, GraphError, ShapeError
from tapegrad.scalar.arrays import ArrayOfVars, VarArray, unmasked
from tapegrad.scalar.nodes import as_var, is_number
from tapegrad.scalar.options import dtype_name
from tapegrad.scalar.program import Program, compile_entries
from tapegrad.scalar.sparse import SparseProgram, SparseVars

#: A function of an array of Vars (or of numbers) to a Var or an array of Vars.
Function: TypeAlias = Callable[[Any], Any]
Shape: TypeAlias = tuple[int, ...]


#: The graphs in which functions are being recorded, the outermost first.
_RECORDING: ContextVar[tuple[Graph, ...]] = ContextVar("recording", default=())


class TakesVarsError(GraphError):
    """A function that is recorded in a graph of its own takes Vars from around it."""

    def __init__(self, name: str, graph: Graph) -> None:
        super().__init__(
            f"{name}: the function takes Vars from around it, and with its argument they belong to "
            "two graphs; give it Vars of theirs, as x.graph.constant(1.0) makes one of a number"
        )
        #: The graph of those Vars.
        self.graph = graph

    def open_graph(self) -> Graph:
        """Return the graph, if the function is called by one that is being recorded in it.

        To any other it would add nodes that nobody asked for: Vars may be left over from earlier
        recordings.
        """
        if any(self.graph is each for each in _RECORDING.get()):
            return self.graph
        raise self


class Recording:
    """What was compiled for one shape: results lie one behind the other."""

    def __init__(self, program: Program, shapes: list[Shape], second: Shape | None) -> None:
        self.program = program
        #: Shape of the second argument, as tangents; None where there is none.
        self.second = second
        ends = np.cumsum([math.prod(shape) for shape in shapes]).tolist()
        self._parts = list(zip([0, *ends[:-1]], ends, shapes, strict=True))

    def results(self, flat: NDArray[Any]) -> tuple[Any, ...]:
        """Cut the program's results apart; one without dimensions is a number of NumPy's."""
        return tuple(flat[start:end].reshape(shape)[()] for start, end, shape in self._parts)


class Derived:
    """What transforms make of a function: it is recorded when called, once per shape."""

    def __init__(self, function: Function, name: str, dtype: str) -> None:
        if not callable(function):
            raise DTypeError(f"{name}: expected a function, got {type(function).__name__}")
        self._function = function
        self._name = name
        self.dtype = dtype_name(name, dtype)
        self.__doc__ = function.__doc__

    def __repr__(self) -> str:
        called = getattr(self._function, "__name__", type(self._function).__name__)
        return f"<{self._name} of {called}>"

    def at_vars(self, point: NDArray[Any], graph: Graph) -> tuple[ArrayOfVars, ArrayOfVars]:
        """Record the function in a graph, at Vars of it: argument and value.

        The argument is made of new Vars: what the function takes from around it may depend on those
        that are given, and must not count as a part of its argument.
        """
        given = _in_graph(point, graph, f"{self._name}: expected Vars and numbers, got")
        x = _in_graph(_core.apart(given.ravel().tolist()), graph).reshape(given.shape)
        return x, value_at(self._function, x, self._name)

    def with_lines(self, shape: Shape) -> tuple[ArrayOfVars, ArrayOfVars]:
        """Record the function itself again, argument and value, in a graph that knows its lines."""
        return record(self._function, shape, self._name, lines=True)


class Replayed(Derived):
    """A derivative of a function, recorded once per shape of its argument and replayed after.

    What the function does besides arithmetic on its argument (reading globals, printing) happens
    only when it is recorded. `derive` makes the results from argument, value and, if `second` names
    whose shape it has, a second argument.
    """

    def __init__(
        self,
        function: Function,
        derive: Callable[..., tuple[ArrayOfVars, ...]],
        name: str,
        *,
        second: Literal["inputs", "outputs"] | None = None,
        dtype: str = "float64",
    ) -> None:
        super().__init__(function, name, dtype)
        self._derive = derive
        self._second = second
        self._recordings: dict[Shape, Recording] = {}

    def recorded(self, shape: Shape) -> Recording:
        """Return what is compiled for arguments of a shape."""
        found = self._recordings.get(shape)
        if found is None:
            found = self._recordings[shape] = self._record(shape)
        return found

    def program(self, shape: int | Sequence[int]) -> Program:
        """Return the compiled program for arguments of a shape: its results are flat."""
        return self.recorded(as_shape(shape, self._name)).program

    def _record(self, shape: Shape) -> Recording:
        x, y = record(self._function, shape, self._name)
        graph = x.flat[0].graph
        given: list[ArrayOfVars] = []
        if self._second:
            like = x if self._second == "inputs" else y
            given = [graph.inputs(like.size).reshape(like.shape)]
        results = [_in_graph(part, graph) for part in self._derive(x, y, *given)]
        flat = np.concatenate([np.ravel(part) for part in results])
        inputs = np.concatenate([x.ravel(), *(part.ravel() for part in given)])
        return Recording(
            compile_entries(flat, graph, inputs=inputs, dtype=self.dtype),
            [np.shape(part) for part in results],
            given[0].shape if given else None,
        )

    def __call__(self, x: ArrayLike, second: ArrayLike | None = None, /) -> Any:
        """Evaluate at one point, an array of any shape; at Vars the results are Vars.

        So they are at numbers, where the function takes Vars from one around it that is being
        recorded.
        """
        point = as_point(x, self._name)
        if graph := graph_among(point, second):
            return self._symbolic(point, second, graph)
        try:
            recording = self.recorded(point.shape)
        except TakesVarsError as error:
            graph = error.open_graph()
        if graph:  # outside of the handler: what fails there has nothing to do with the error
            return self._symbolic(point, second, graph)
        values = point.ravel()
        if recording.second is not None:
            values = np.concatenate([values, self._along(second, recording.second)])
        elif second is not None:
            raise ShapeError(f"{self._name}: expected one argument, got two")
        return _one_or_all(recording.results(recording.program(values)))

    def _symbolic(self, point: NDArray[Any], second: ArrayLike | None, graph: Graph) -> Any:
        """Make the results Vars of the graph that the argument lies in."""
        x, y = self.at_vars(point, graph)
        given: list[ArrayOfVars] = []
        if self._second:
            like = x if self._second == "inputs" else y
            given = [self._along(second, like.shape).reshape(like.shape)]
        elif second is not None:
            raise ShapeError(f"{self._name}: expected one argument, got two")
        results = self._derive(x, y, *given)
        return _one_or_all(tuple(np.asanyarray(part, dtype=object)[()] for part in results))

    def _along(self, second: ArrayLike | None, shape: Shape) -> NDArray[Any]:
        given = None if second is None else np.asarray(unmasked(second, self._name))
        if given is None or given.shape != shape:
            got = "none" if given is None else f"shape {given.shape}"
            raise ShapeError(
                f"{self._name}: expected a second argument of shape {shape}, got {got}"
            )
        return given.ravel()


class SparseReplayed(Derived):
    """A sparse derivative of a function: scipy.sparse arrays, by few sweeps."""

    def __init__(
        self,
        function: Function,
        derive: Callable[[ArrayOfVars, ArrayOfVars], SparseVars],
        name: str,
        dtype: str,
    ) -> None:
        super().__init__(function, name, dtype)
        self._derive = derive
        self._recordings: dict[Shape, SparseProgram] = {}
        self._sweeps: int | None = None

    def recorded(self, shape: Shape) -> SparseProgram:
        """Return what is compiled for arguments of a shape."""
        found = self._recordings.get(shape)
        if found is None:
            x, y = record(self._function, shape, self._name)
            found = self._derive(x, y).compile(inputs=x, dtype=self.dtype)
            self._recordings[shape] = found
        return found

    def __call__(self, x: ArrayLike) -> Any:
        """Evaluate at one point: a scipy.sparse array; at Vars the result is a SparseVars."""
        point = as_point(x, self._name)
        if graph := graph_among(point):
            return self._symbolic(point, graph)
        try:
            program = self.recorded(point.shape)
        except TakesVarsError as error:
            graph = error.open_graph()
        if graph:  # outside of the handler: what fails there has nothing to do with the error
            return self._symbolic(point, graph)
        self._sweeps = program.sweeps
        return program(point)

    def _symbolic(self, point: NDArray[Any], graph: Graph) -> SparseVars:
        found = self._derive(*self.at_vars(point, graph))
        self._sweeps = found.sweeps
        return found

    @property
    def sweeps(self) -> int:
        """Sweeps that the latest result took."""
        if self._sweeps is None:
            raise ShapeError(f"{self._name}: sweeps are known after the first call")
        return self._sweeps


def record(
    function: Function, shape: Shape, name: str, *, lines: bool = False
) -> tuple[ArrayOfVars, ArrayOfVars]:
    """Call a function with Vars; returns them and what came of them, as arrays.

    The function gets an array of its own: one that writes into its argument must not change by
    what the result is differentiated.
    """
    graph = Graph(lines=lines)
    x = graph.inputs(int(np.prod(shape, dtype=np.int64))).reshape(shape)
    try:
        return x, value_at(function, x, name)
    except GraphError as error:
        around = [each for each in error.graphs if each is not graph]
        if len(around) != 1:  # the function has other troubles
            raise
        raise TakesVarsError(name, around[0]) from error


def value_at(function: Function, x: ArrayOfVars, name: str) -> ArrayOfVars:
    """Call a function with an array of Vars; returns what came of them, as an array."""
    graph = x.flat[0].graph
    before = _RECORDING.set((*_RECORDING.get(), graph))
    try:
        y = unmasked(function(x.copy() if x.shape else x[()]), name)
    finally:
        _RECORDING.reset(before)
    result = np.empty((), dtype=object)
    if isinstance(y, (np.ndarray, list, tuple)):
        result = np.array(y, dtype=object)
    else:
        result[()] = y
    complaint = f"{name}: the function must return one Var or an array of them, it returned"
    value = _in_graph(result, graph, complaint)
    for var in value.flat:
        if var.graph is not graph:
            error = GraphError(f"{complaint} one of another graph than its argument is in")
            error.graphs = (graph, var.graph)
            raise error
    return value


def _in_graph(
    array: ArrayOfVars | list[Var], graph: Graph, complaint: str = "expected Vars, got"
) -> ArrayOfVars:
    """Make numbers among Vars constants of the graph; results may not depend on the argument."""
    entries = np.asarray(array, dtype=object)
    made = np.empty(entries.shape, dtype=object).view(VarArray)
    for place, item in enumerate(entries.flat):
        made.flat[place] = as_var(graph, item, complaint)
    return made


def _one_or_all(results: tuple[Any, ...]) -> Any:
    return results[0] if len(results) == 1 else results


def graph_among(*arguments: object) -> Graph | None:
    """Return the graph of the first Var among arguments, or None: all are numbers."""
    for argument in arguments:
        array = argument if isinstance(argument, np.ndarray) else np.asarray(argument)
        if array.dtype == object:
            for each in array.flat:
                if isinstance(each, Var):
                    return each.graph
    return None


def one_var(y: ArrayOfVars, name: str) -> Var:
    """Return the only Var of a result."""
    if y.size != 1:
        raise DTypeError(
            f"{name}: the function must return one Var, it returned {y.size}; "
            "reduce arrays with np.sum"
        )
    var: Var = y.flat[0]
    return var


def as_point(x: ArrayLike, name: str) -> NDArray[Any]:
    """Take an argument for an array of numbers, or of Vars and numbers."""
    try:
        point = x if isinstance(x, np.ndarray) else np.asarray(x)
    except ValueError:
        raise ShapeError(f"{name}: expected an array, got rows of several lengths") from None
    if point.size == 0:
        raise ShapeError(f"{name}: expected at least one value, got an empty array")
    if point.dtype.kind not in "fiub":
        for each in point.flat:
            if not isinstance(each, Var) and not is_number(each):
                expected = "Vars and numbers" if graph_among(point) else "an array of numbers"
                as_python = isinstance(each, np.character | np.complexfloating)
                got = each.item() if as_python else each
                raise DTypeError(f"{name}: expected {expected}, got {type(got).__name__}")
    return point


def as_shape(shape: int | Sequence[int], name: str) -> Shape:
    """Take what is given for the shape of an argument that has a value or more."""
    entries = shape if isinstance(shape, (tuple, list)) else (shape,)
    try:
        found = tuple(operator.index(entry) for entry in entries)
    except TypeError:
        raise DTypeError(f"{name}: expected a shape as (2, 3), got {shape!r}") from None
    if any(entry < 1 for entry in found):
        raise ShapeError(f"{name}: expected a shape of at least one value, got {found}")
    return found
