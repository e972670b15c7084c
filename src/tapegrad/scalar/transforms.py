"""Derivatives of Vars as Vars, and of Python functions as functions.

Every transform takes Vars, and gives Vars of the same graph, or takes a function of an array, and
gives a function: recorded once for each shape of its argument, compiled, and replayed after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias, overload

from tapegrad._core import Var
from tapegrad.errors import DTypeError
from tapegrad.scalar import derivatives
from tapegrad.scalar.arrays import ArrayOfVars
from tapegrad.scalar.derivatives import Mode
from tapegrad.scalar.replay import Function, Replayed, SparseReplayed, one_var
from tapegrad.scalar.sparse import SparseVars, sparse_hessian, sparse_jacobian

Vars: TypeAlias = Var | Iterable[Var]


def value_and_grad(function: Function, *, dtype: str = "float64") -> Replayed:
    """Turn a function of an array into one that returns its value and its gradient.

    The function is recorded with Vars at the first call for each shape, compiled, and replayed at
    every later call.

    Example:
        >>> import tapegrad as tg
        >>> f = tg.value_and_grad(lambda x: tg.sum(tg.exp(x)))
        >>> value, gradient = f([0.0, 0.0])
        >>> float(value), gradient.tolist()
        (2.0, [1.0, 1.0])

    """

    def derive(x: ArrayOfVars, y: ArrayOfVars) -> tuple[ArrayOfVars, ...]:
        loss = one_var(y, "value_and_grad")
        return y.reshape(()), derivatives.gradient(loss, x)

    return Replayed(function, derive, "value_and_grad", dtype=dtype)


@overload
def grad(output: Var, wrt: Var) -> Var: ...
@overload
def grad(output: Var, wrt: Iterable[Var]) -> ArrayOfVars: ...
@overload
def grad(output: Function, *, dtype: str = "float64") -> Replayed: ...


def grad(output: Var | Function, wrt: Vars | None = None, *, dtype: str = "float64") -> Any:
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
    if isinstance(output, Var):
        return derivatives.gradient(output, _given(wrt, "grad", "the Vars to differentiate by"))

    def derive(x: ArrayOfVars, y: ArrayOfVars) -> tuple[ArrayOfVars, ...]:
        return (derivatives.gradient(one_var(y, "grad"), x),)

    return Replayed(_function(output, wrt, "grad"), derive, "grad", dtype=dtype)


@overload
def vjp(outputs: Vars, wrt: Var, cotangents: Any) -> Var: ...
@overload
def vjp(outputs: Vars, wrt: Iterable[Var], cotangents: Any) -> ArrayOfVars: ...
@overload
def vjp(outputs: Function, *, dtype: str = "float64") -> Replayed: ...


def vjp(
    outputs: Vars | Function,
    wrt: Vars | None = None,
    cotangents: Any = None,
    *,
    dtype: str = "float64",
) -> Any:
    """Multiply cotangents with the Jacobian, by one reverse sweep.

    Of Vars, the result has the shape of `wrt`. A function becomes one of a point and cotangents,
    which returns its values and the product.

    Example:
        >>> import tapegrad as tg
        >>> values, product = tg.vjp(lambda x: x * x)([1.0, 2.0], [1.0, 10.0])
        >>> values.tolist(), product.tolist()
        ([1.0, 4.0], [2.0, 40.0])

    """
    if _are_vars(outputs):
        by = _given(wrt, "vjp", "the Vars to differentiate by")
        return derivatives.pullback(outputs, by, _given(cotangents, "vjp", "cotangents"))

    def derive(x: ArrayOfVars, y: ArrayOfVars, u: ArrayOfVars) -> tuple[ArrayOfVars, ...]:
        return y, derivatives.pullback(y, x, u)

    function = _function(outputs, wrt, "vjp")
    return Replayed(function, derive, "vjp", second="outputs", dtype=dtype)


@overload
def jvp(outputs: Var, wrt: Vars, tangents: Any) -> Var: ...
@overload
def jvp(outputs: Iterable[Var], wrt: Vars, tangents: Any) -> ArrayOfVars: ...
@overload
def jvp(outputs: Function, *, dtype: str = "float64") -> Replayed: ...


def jvp(
    outputs: Vars | Function,
    wrt: Vars | None = None,
    tangents: Any = None,
    *,
    dtype: str = "float64",
) -> Any:
    """Multiply the Jacobian with tangents, by one forward sweep.

    Of Vars, the result has the shape of `outputs`. A function becomes one of a point and tangents,
    which returns its values and the product.

    Example:
        >>> import tapegrad as tg
        >>> values, product = tg.jvp(lambda x: x * x)([1.0, 2.0], [1.0, 10.0])
        >>> values.tolist(), product.tolist()
        ([1.0, 4.0], [2.0, 40.0])

    """
    if _are_vars(outputs):
        by = _given(wrt, "jvp", "the Vars to differentiate by")
        return derivatives.push(outputs, by, _given(tangents, "jvp", "tangents"))

    def derive(x: ArrayOfVars, y: ArrayOfVars, v: ArrayOfVars) -> tuple[ArrayOfVars, ...]:
        return y, derivatives.push(y, x, v)

    function = _function(outputs, wrt, "jvp")
    return Replayed(function, derive, "jvp", second="inputs", dtype=dtype)


@overload
def hvp(output: Var, wrt: Var, vector: Any) -> Var: ...
@overload
def hvp(output: Var, wrt: Iterable[Var], vector: Any) -> ArrayOfVars: ...
@overload
def hvp(output: Function, *, dtype: str = "float64") -> Replayed: ...


def hvp(
    output: Var | Function, wrt: Vars | None = None, vector: Any = None, *, dtype: str = "float64"
) -> Any:
    """Multiply the Hessian with a vector at the cost of a few gradients, without the Hessian.

    A function becomes one of a point and a vector.

    Example:
        >>> import tapegrad as tg
        >>> tg.hvp(lambda x: x[0] ** 2 * x[1])([1.0, 2.0], [1.0, 0.0]).tolist()
        [4.0, 2.0]

    """
    if isinstance(output, Var):
        by = _given(wrt, "hvp", "the Vars to differentiate by")
        return derivatives.hessian_product(output, by, _given(vector, "hvp", "a vector"))

    def derive(x: ArrayOfVars, y: ArrayOfVars, v: ArrayOfVars) -> tuple[ArrayOfVars, ...]:
        return (derivatives.hessian_product(one_var(y, "hvp"), x, v),)

    return Replayed(_function(output, wrt, "hvp"), derive, "hvp", second="inputs", dtype=dtype)


@overload
def jacobian(
    outputs: Vars, wrt: Vars, *, mode: Mode = "auto", sparse: Literal[False] = False
) -> ArrayOfVars: ...
@overload
def jacobian(
    outputs: Vars, wrt: Vars, *, mode: Mode = "auto", sparse: Literal[True]
) -> SparseVars: ...
@overload
def jacobian(
    outputs: Function,
    *,
    mode: Mode = "auto",
    sparse: Literal[False] = False,
    dtype: str = "float64",
) -> Replayed: ...
@overload
def jacobian(
    outputs: Function, *, mode: Mode = "auto", sparse: Literal[True], dtype: str = "float64"
) -> SparseReplayed: ...


def jacobian(
    outputs: Vars | Function,
    wrt: Vars | None = None,
    *,
    mode: Mode = "auto",
    sparse: bool = False,
    dtype: str = "float64",
) -> Any:
    """Give the Jacobian of Vars as Vars, or of a function as a function.

    Args:
        outputs: Vars, or a function of an array to Vars.
        wrt: The Vars to differentiate by; a function takes its point when called.
        mode: "forward" takes a sweep for each variable, "reverse" one for each output, "auto" the
            fewer.
        sparse: Find out which entries there are, and take a sweep for each group of variables (or
            outputs) that do not meet. The result is a `SparseVars`, or a function that returns
            scipy.sparse arrays of shape (outputs, variables); both know their `sweeps`.
        dtype: Of the compiled function.

    Dense results have the shape of the outputs, then that of the variables.

    Example:
        >>> import tapegrad as tg
        >>> tg.jacobian(lambda x: x[1:] * x[:-1])([1.0, 2.0, 3.0]).tolist()
        [[2.0, 1.0, 0.0], [0.0, 3.0, 2.0]]
        >>> banded = tg.jacobian(lambda x: x[1:] * x[:-1], sparse=True)
        >>> banded([1.0, 2.0, 3.0]).nnz, banded.sweeps
        (4, 2)

    """
    if _are_vars(outputs):
        by = _given(wrt, "jacobian", "the Vars to differentiate by")
        return (sparse_jacobian if sparse else derivatives.dense_jacobian)(outputs, by, mode)
    function = _function(outputs, wrt, "jacobian")
    derivatives.by_columns(mode, 1, 1)  # an unknown mode is told at once
    if sparse:
        return SparseReplayed(function, lambda x, y: sparse_jacobian(y, x, mode), "jacobian", dtype)
    return Replayed(
        function, lambda x, y: (derivatives.dense_jacobian(y, x, mode),), "jacobian", dtype=dtype
    )


@overload
def hessian(output: Var, wrt: Vars, *, sparse: Literal[False] = False) -> ArrayOfVars: ...
@overload
def hessian(output: Var, wrt: Vars, *, sparse: Literal[True]) -> SparseVars: ...
@overload
def hessian(
    output: Function, *, sparse: Literal[False] = False, dtype: str = "float64"
) -> Replayed: ...
@overload
def hessian(
    output: Function, *, sparse: Literal[True], dtype: str = "float64"
) -> SparseReplayed: ...


def hessian(
    output: Var | Function, wrt: Vars | None = None, *, sparse: bool = False, dtype: str = "float64"
) -> Any:
    """Give the second derivatives of a Var as Vars, or of a function as a function.

    With `sparse`, as for `jacobian`: the symmetric matrix takes a handful of sweeps where every
    term of the function has few variables.

    Example:
        >>> import tapegrad as tg
        >>> tg.hessian(lambda x: x[0] ** 2 * x[1])([1.0, 2.0]).tolist()
        [[4.0, 2.0], [2.0, 0.0]]
        >>> chain = tg.hessian(lambda x: tg.sum((x[1:] - x[:-1] ** 2) ** 2), sparse=True)
        >>> chain([0.0] * 1000).shape, chain.sweeps
        ((1000, 1000), 3)

    """
    if isinstance(output, Var):
        by = _given(wrt, "hessian", "the Vars to differentiate by")
        return (sparse_hessian if sparse else derivatives.dense_hessian)(output, by)
    function = _function(output, wrt, "hessian")
    if sparse:
        return SparseReplayed(
            function, lambda x, y: sparse_hessian(one_var(y, "hessian"), x), "hessian", dtype
        )
    return Replayed(
        function,
        lambda x, y: (derivatives.dense_hessian(one_var(y, "hessian"), x),),
        "hessian",
        dtype=dtype,
    )


def _are_vars(outputs: object) -> bool:
    """Tell Vars from functions: whatever cannot be called is taken for Vars."""
    return isinstance(outputs, Var) or not callable(outputs)


def _given(argument: Any, name: str, what: str) -> Any:
    if argument is None:
        raise DTypeError(f"{name}: Vars need {what} too")
    return argument


def _function(function: object, wrt: object, name: str) -> Callable[..., Any]:
    if not callable(function):
        raise DTypeError(f"{name}: expected a Var or a function, got {type(function).__name__}")
    if wrt is not None:
        raise DTypeError(f"{name}: a function takes its point when called, as tg.{name}(f)(x)")
    return function
