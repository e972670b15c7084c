"""Derivatives of Vars as Vars of the same graph: rows by reverse mode, columns by forward mode."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

import numpy as np

from tapegrad import _core
from tapegrad._core import Var
from tapegrad.errors import DTypeError, OptionError, ShapeError
from tapegrad.scalar.arrays import ArrayOfVars, VarArray, unmasked
from tapegrad.scalar.nodes import as_vars, is_number

Mode: TypeAlias = Literal["auto", "forward", "reverse"]
MODES = ("auto", "forward", "reverse")


def var_array(items: Any, what: str) -> ArrayOfVars:
    """Turn a Var, a sequence or an array of Vars and numbers into an array, shape kept."""
    items = unmasked(items, what)
    if isinstance(items, np.ndarray):
        return items.astype(object).view(VarArray)
    shape: tuple[int, ...] = ()
    if isinstance(items, Var) or is_number(items):
        items = [items]
    else:
        items = as_vars(items, what)
        shape = (len(items),)
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array.reshape(shape).view(VarArray)


def _only_vars(items: Any, what: str) -> ArrayOfVars:
    """Turn Vars into an array, and refuse numbers among them."""
    array = var_array(items, what)
    for place, item in enumerate(array.flat):
        if not isinstance(item, Var):
            raise DTypeError(f"{what}: expected Vars, element {place} is a {type(item).__name__}")
    return array


def gradient(output: Var, wrt: Var | Iterable[Var]) -> Any:
    """Differentiate one Var by one or several; the result has the shape of `wrt`."""
    variables = var_array(wrt, "grad: wrt")
    found = var_array(_core.gradient(output, variables.ravel().tolist()), "grad")
    return found.reshape(variables.shape)[()]


def pullback(outputs: Any, wrt: Any, cotangents: Any) -> Any:
    """Return the gradient of the sum of `cotangents` times `outputs`, in the shape of `wrt`."""
    ends, weights = var_array(outputs, "vjp: outputs"), var_array(cotangents, "vjp: cotangents")
    variables = var_array(wrt, "vjp: wrt")
    _same_shape("vjp: cotangents", weights, ends, "outputs")
    if not ends.size or not variables.size:
        return np.zeros(variables.shape, dtype=object).view(VarArray)
    total = _core.functions.dot(weights.ravel().tolist(), ends.ravel().tolist())
    if not isinstance(total, Var):
        raise DTypeError("vjp: expected Vars as outputs, got numbers")
    found = _core.gradient(total, variables.ravel().tolist())
    return var_array(found, "vjp").reshape(variables.shape)[()]


def push(outputs: Any, wrt: Any, tangents: Any) -> Any:
    """Return how `outputs` move where `wrt` moves along `tangents`, in the shape of `outputs`."""
    ends, directions = var_array(outputs, "jvp: outputs"), var_array(tangents, "jvp: tangents")
    variables = var_array(wrt, "jvp: wrt")
    _same_shape("jvp: tangents", directions, variables, "wrt")
    found = _core.tangents(
        ends.ravel().tolist(), variables.ravel().tolist(), directions.ravel().tolist()
    )
    return var_array(found, "jvp").reshape(ends.shape)[()]


def dense_jacobian(outputs: Any, wrt: Any, mode: Mode = "auto") -> ArrayOfVars:
    """Differentiate all outputs by all variables: shape of `outputs`, then that of `wrt`."""
    ends, variables = _only_vars(outputs, "jacobian: outputs"), _only_vars(wrt, "jacobian: wrt")
    shape = ends.shape + variables.shape
    if not ends.size or not variables.size:
        return var_array(np.zeros(shape), "jacobian")
    if by_columns(mode, ends.size, variables.size):
        columns = [push(ends.ravel(), variables.ravel(), unit) for unit in np.eye(variables.size)]
        return np.stack(columns, axis=1).reshape(shape)
    return np.stack([gradient(end, variables.ravel()) for end in ends.ravel()]).reshape(shape)


def dense_hessian(output: Var, wrt: Any) -> ArrayOfVars:
    """Differentiate one Var twice by all variables: the shape of `wrt` twice.

    The gradient comes by reverse mode, its derivatives by forward mode: the gradient of n variables
    has n outputs, of which columns need no more work than rows and less memory.
    """
    variables = _only_vars(wrt, "hessian: wrt")
    first = gradient(output, variables.ravel())
    return dense_jacobian(first, variables, "forward").reshape(variables.shape * 2)


def hessian_product(output: Var, wrt: Any, vector: Any) -> Any:
    """Multiply the Hessian with a vector, without the Hessian: the gradient's motion along it."""
    variables = var_array(wrt, "hvp: wrt")
    return push(gradient(output, variables), variables, vector)


def by_columns(mode: str, rows: int, columns: int) -> bool:
    """Decide whether forward mode, a sweep for each column, is the cheaper one."""
    if mode not in MODES:
        raise OptionError(f"mode: expected one of {', '.join(MODES)}, got {mode!r}")
    return columns < rows if mode == "auto" else mode == "forward"


def _same_shape(what: str, array: ArrayOfVars, other: ArrayOfVars, name: str) -> None:
    if array.shape != other.shape:
        raise ShapeError(f"{what}: expected the shape of {name}, {other.shape}, got {array.shape}")
