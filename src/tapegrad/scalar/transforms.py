"""Derivatives of Vars as Vars, and of Python functions as functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tapegrad import _core
from tapegrad._core import Graph, Var
from tapegrad.errors import DTypeError, ShapeError
from tapegrad.scalar.program import Program, as_vars, compile

#: A function of an array of Vars (or of numbers) to one Var.
ScalarFunction = Callable[[Any], Any]


class Replayed:
    """A function recorded once per shape of its argument and replayed after.

    What the function does besides arithmetic on its argument (reading globals, printing) happens
    only when it is recorded.
    """

    def __init__(self, function: ScalarFunction, dtype: str, returns: str) -> None:
        self._function = function
        self._dtype = dtype
        self._returns = returns
        self._programs: dict[tuple[int, ...], Program] = {}
        self.__doc__ = function.__doc__

    def program(self, shape: tuple[int, ...]) -> Program:
        """Return the compiled program for arguments of this shape."""
        if shape not in self._programs:
            x = Graph().inputs(int(np.prod(shape, dtype=np.int64)))
            loss = self._function(x.reshape(shape) if shape else x[0])
            if isinstance(loss, np.ndarray) and loss.size == 1:
                loss = loss.ravel()[0]
            if isinstance(loss, int | float | np.floating | np.integer) and len(x):
                loss = x[0].graph.constant(float(loss))
            if not isinstance(loss, Var):
                raise DTypeError(
                    f"{self._returns}: the function must return one Var, "
                    f"it returned {type(loss).__name__}; reduce arrays with tg.sum"
                )
            self._programs[shape] = compile(loss, wrt=x, inputs=x, dtype=self._dtype)
        return self._programs[shape]

    def __call__(self, x: ArrayLike) -> Any:
        """Evaluate at one point, an array of any shape."""
        point = x if isinstance(x, np.ndarray) else np.asarray(x)
        if point.size == 0:
            raise ShapeError(f"{self._returns}: expected at least one value, got an empty array")
        value, gradient = self.program(point.shape)(point.ravel())
        gradient = gradient.reshape(point.shape)
        return (value, gradient) if self._returns == "value_and_grad" else gradient


def value_and_grad(function: ScalarFunction, *, dtype: str = "float64") -> Replayed:
    """Turn a function of an array into one that returns its value and its gradient.

    The function is recorded with Vars at the first call for each shape, compiled, and replayed at
    every later call.

    Example:
        >>> import tapegrad as tg
        >>> f = tg.value_and_grad(lambda x: tg.sum(tg.exp(x)))
        >>> value, gradient = f([0.0, 0.0])
        >>> value, gradient.tolist()
        (2.0, [1.0, 1.0])

    """
    return Replayed(function, dtype, "value_and_grad")


@overload
def grad(output: Var, wrt: Var) -> Var: ...
@overload
def grad(output: Var, wrt: Iterable[Var]) -> NDArray[Any]: ...
@overload
def grad(output: ScalarFunction) -> Replayed: ...


def grad(output: Var | ScalarFunction, wrt: Var | Iterable[Var] | None = None) -> Any:
    """Give the gradient of a Var as Vars of the same graph, or of a function as a function.

    Gradients are Vars like any others: combine them, differentiate them again, compile them.

    Example:
        >>> import tapegrad as tg
        >>> g = tg.Graph()
        >>> x = g.input("x")
        >>> first = tg.grad(x**3, x)
        >>> second = tg.grad(first, x)
        >>> tg.compile([first, second])([2.0]).tolist()
        [12.0, 12.0]
        >>> tg.grad(lambda x: tg.sum(x * x))([1.0, 2.0]).tolist()
        [2.0, 4.0]

    """
    if not isinstance(output, Var):
        if not callable(output):
            raise DTypeError(f"grad: expected a Var or a function, got {type(output).__name__}")
        if wrt is not None:
            raise DTypeError("grad: a function takes its point when called, as tg.grad(f)(x)")
        return Replayed(output, "float64", "grad")
    if wrt is None:
        raise DTypeError("grad: expected the Vars to differentiate by, as tg.grad(y, x)")
    found = _core.gradient(output, as_vars(wrt, "grad: wrt"))
    if isinstance(wrt, Var):
        return found[0]
    gradient = np.empty(len(found), dtype=object)
    gradient[:] = found
    return gradient.reshape(wrt.shape) if isinstance(wrt, np.ndarray) else gradient
