"""Python functions as operations of graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad import _core
from tapegrad._core import Graph, Var
from tapegrad.errors import DTypeError, ShapeError
from tapegrad.scalar.nodes import as_var
from tapegrad.scalar.options import whole
from tapegrad.scalar.program import compile

#: Of arrays, a number for each row, to one such array or a tuple of several.
ArrayFunction = Callable[..., Any]

#: Results that an operation may have.
OUTPUTS = 1000


class CustomOp:
    """A Python function as an operation; made by `tg.custom`, called with Vars."""

    def __init__(
        self, function: ArrayFunction, vjp: ArrayFunction | CustomOp | None, outputs: int, name: str
    ) -> None:
        self._function = function
        self._vjp = vjp
        self._outputs = outputs
        self._name = name
        self._natives: dict[int, _core.Custom] = {}
        self.__doc__ = function.__doc__

    def native(self, operands: int) -> _core.Custom:
        """Return the operation for a number of operands."""
        found = self._natives.get(operands)
        if found is None:
            found = _core.Custom(
                self._function, self._name, operands, self._outputs, self._derivative(operands)
            )
            self._natives[operands] = found
        return found

    def _derivative(self, operands: int) -> _core.Custom | None:
        if self._vjp is None:
            return None
        taken = self._outputs + operands
        if isinstance(self._vjp, CustomOp):
            return CustomOp(self._vjp._function, self._vjp._vjp, operands, self._vjp._name).native(
                taken
            )
        return _core.Custom(self._vjp, f"{self._name}.vjp", taken, operands, None)

    def __call__(self, *operands: Any) -> Any:
        """Record a call; numbers alone are computed at once."""
        graphs = [each.graph for each in operands if isinstance(each, Var)]
        graph = graphs[0] if graphs else Graph()
        complaint = (
            f"custom {self._name!r}: expected Vars and numbers, one by one (call it for each "
            "element of an array), got"
        )
        given = [as_var(graph, each, complaint) for each in operands]
        results = _core.record_custom(self.native(len(given)), given)
        if not graphs:
            results = compile(results)([]).tolist()
        return results[0] if self._outputs == 1 else tuple(results)

    def __repr__(self) -> str:
        return f"<custom operation {self._name!r}>"


def custom(
    function: ArrayFunction,
    vjp: ArrayFunction | CustomOp | None = None,
    *,
    outputs: int = 1,
    vectorized: bool = True,
    name: str | None = None,
) -> CustomOp:
    """Make an operation of a Python function, with its derivative.

    Args:
        function: Called with an array for each operand, which has a number for each row of the
            batch (one, where a program is called with one point), and returns an array of that
            length, or a tuple of `outputs` such; a number of Python's stands for one that all rows
            have. What NumPy's ufuncs do needs no change. It must be pure: a call may be left out,
            or be made for several rows at once.
        vjp: Called with arrays for the cotangent (each of the `outputs` cotangents) and then the
            operands; returns the adjoint of the operand, or a tuple of those of all. None: the
            operation has no derivative. A `tg.custom` operation gives it a derivative of its own,
            and so the operation a second one.
        outputs: How many results the function has.
        vectorized: False: `function` and `vjp` take and return numbers, and are called once for
            each row: some twenty times as slow in large batches.
        name: For messages and pictures; the function's own by default.

    Calls hold the interpreter lock. What a function raises is raised by the program. Programs with
    such operations cannot be saved, pickled or written as C.

    Example:
        >>> import numpy as np, tapegrad as tg
        >>> cube = tg.custom(lambda x: x**3, lambda g, x: 3 * g * x**2, name="cube")
        >>> g = tg.Graph()
        >>> x = g.input("x")
        >>> program = tg.compile(cube(x) + x, wrt=[x])
        >>> program([2.0])
        (10.0, array([13.]))
        >>> program.batch([[1.0], [2.0]])[0].tolist()
        [2.0, 10.0]

    """
    for what, called in (("a function", function), ("vjp to be a function", vjp)):
        if called is not None and not callable(called):
            raise DTypeError(f"custom: expected {what}, got {type(called).__name__}")
    outputs = whole("custom: expected outputs", outputs, 1, OUTPUTS + 1)
    if name is not None and not isinstance(name, str):
        raise DTypeError(f"custom: expected name as a string, got {type(name).__name__}")
    label = name or str(getattr(function, "__name__", type(function).__name__))
    if not vectorized:
        function = _row_by_row(function, label)
        vjp = vjp if vjp is None or isinstance(vjp, CustomOp) else _row_by_row(vjp, f"{label}.vjp")
    return CustomOp(function, vjp, outputs, label)


def _row_by_row(function: Callable[..., Any], label: str) -> ArrayFunction:
    """Let a function of numbers take arrays."""

    def over_rows(*columns: Any) -> Any:
        rows = [function(*row) for row in zip(*(each.tolist() for each in columns), strict=True)]
        counts = {len(row) if isinstance(row, tuple | list) else None for row in rows}
        if len(counts) > 1:
            told = " and ".join(
                "a number" if count is None else f"a tuple of {count}"
                for count in sorted(counts, key=str)
            )
            raise ShapeError(f"custom {label!r}: expected the same for every row, got {told}")
        if isinstance(rows[0], tuple | list):
            return tuple(np.array(column) for column in zip(*rows, strict=True))
        return np.array(rows)

    over_rows.__doc__ = function.__doc__
    return over_rows
