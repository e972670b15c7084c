"""Functions that are recorded once per shape of their argument and replayed after."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tapegrad._core import Graph, Var
from tapegrad.errors import DTypeError, ShapeError
from tapegrad.scalar.arrays import ArrayOfVars, unmasked
from tapegrad.scalar.nodes import as_var
from tapegrad.scalar.program import Program, compile_entries
from tapegrad.scalar.sparse import SparseProgram, SparseVars

if TYPE_CHECKING:
    from scipy.sparse import csr_array

#: A function of an array of Vars (or of numbers) to a Var or an array of Vars.
Function: TypeAlias = Callable[[Any], Any]
Shape: TypeAlias = tuple[int, ...]


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
        self.dtype = dtype
        self.__doc__ = function.__doc__

    def __repr__(self) -> str:
        called = getattr(self._function, "__name__", type(self._function).__name__)
        return f"<{self._name} of {called}>"

    def point(self, x: ArrayLike) -> NDArray[Any]:
        """Take the argument of a call for an array of numbers."""
        point = as_point(x, self._name)
        if point.dtype == object and any(isinstance(each, Var) for each in point.flat):
            raise DTypeError(
                f"{self._name}: derivatives of functions take numbers, got a Var; of Vars they are "
                "written with what to differentiate by, as in "
                "tg.grad(lambda x: tg.grad(f(x), x)) for the second derivative"
            )
        return point

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
        results = [_in_graph(part, x) for part in self._derive(x, y, *given)]
        flat = np.concatenate([np.ravel(part) for part in results])
        inputs = np.concatenate([x.ravel(), *(part.ravel() for part in given)])
        return Recording(
            compile_entries(flat, graph, inputs=inputs, dtype=self.dtype),
            [np.shape(part) for part in results],
            given[0].shape if given else None,
        )

    def __call__(self, x: ArrayLike, second: ArrayLike | None = None, /) -> Any:
        """Evaluate at one point, an array of any shape."""
        point = self.point(x)
        recording = self.recorded(point.shape)
        values = point.ravel()
        if recording.second is not None:
            values = np.concatenate([values, self._along(second, recording.second)])
        elif second is not None:
            raise ShapeError(f"{self._name}: expected one argument, got two")
        results = recording.results(recording.program(values))
        return results[0] if len(results) == 1 else results

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
        self._latest: SparseProgram | None = None

    def recorded(self, shape: Shape) -> SparseProgram:
        """Return what is compiled for arguments of a shape."""
        found = self._recordings.get(shape)
        if found is None:
            x, y = record(self._function, shape, self._name)
            found = self._derive(x, y).compile(inputs=x, dtype=self.dtype)
            self._recordings[shape] = found
        return found

    def __call__(self, x: ArrayLike) -> csr_array[Any]:
        """Evaluate at one point."""
        point = self.point(x)
        self._latest = self.recorded(point.shape)
        return self._latest(point)

    @property
    def sweeps(self) -> int:
        """Sweeps that the latest result took."""
        if self._latest is None:
            raise ShapeError(f"{self._name}: sweeps are known after the first call")
        return self._latest.sweeps


def record(
    function: Function, shape: Shape, name: str, *, lines: bool = False
) -> tuple[ArrayOfVars, ArrayOfVars]:
    """Call a function with Vars; returns them and what came of them, as arrays.

    The function gets an array of its own: one that writes into its argument must not change by
    what the result is differentiated.
    """
    x = Graph(lines=lines).inputs(int(np.prod(shape, dtype=np.int64))).reshape(shape)
    y = unmasked(function(x.copy() if shape else x[()]), name)
    result = np.empty((), dtype=object)
    if isinstance(y, (np.ndarray, list, tuple)):
        result = np.array(y, dtype=object)
    else:
        result[()] = y
    complaint = f"{name}: the function must return one Var or an array of them, it returned"
    return x, _in_graph(result, x, complaint)


def _in_graph(
    array: ArrayOfVars, x: ArrayOfVars, complaint: str = "expected Vars, got"
) -> ArrayOfVars:
    """Make numbers among Vars constants of the graph; results may not depend on the argument."""
    graph = x.flat[0].graph
    made = np.empty(np.shape(array), dtype=object)
    for place, item in enumerate(np.asarray(array, dtype=object).flat):
        made.flat[place] = as_var(graph, item, complaint)
    return made


def one_var(y: ArrayOfVars, name: str) -> Var:
    """Return the only Var of a result."""
    if y.size != 1:
        raise DTypeError(
            f"{name}: the function must return one Var, it returned {y.size}; "
            "reduce arrays with tg.sum"
        )
    var: Var = y.flat[0]
    return var


def as_point(x: ArrayLike, name: str) -> NDArray[Any]:
    """Take an argument for an array."""
    point = x if isinstance(x, np.ndarray) else np.asarray(x)
    if point.size == 0:
        raise ShapeError(f"{name}: expected at least one value, got an empty array")
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
