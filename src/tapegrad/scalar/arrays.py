"""Arrays of Vars that NumPy's functions work on: the same source runs on numbers and on Vars.

A `VarArray` is an ndarray of objects, so slicing, reshaping and stacking are NumPy's own. What
computes is translated: element by element into the op table, sums and products of rows into nodes
with many operands. What has no translation raises and names the function; nothing becomes a float.
"""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tapegrad import _core
from tapegrad._core import Var, functions, power
from tapegrad.errors import DTypeError, ShapeError
from tapegrad.scalar.nodes import formula

Elementwise = Callable[..., Any]
#: A VarArray as far as types go: NumPy's do not tell that its slices and results are some too.
ArrayOfVars: TypeAlias = NDArray[Any]
#: How functions of NumPy that are no ufuncs are recorded; `array_functions` fills it.
FUNCTIONS: dict[Any, Elementwise] = {}


def translates(*originals: Any) -> Callable[[Elementwise], Elementwise]:
    """Record calls of these functions of NumPy by the function that is decorated."""

    def add(function: Elementwise) -> Elementwise:
        FUNCTIONS.update(dict.fromkeys(originals, function))
        return function

    return add


class VarArray(np.ndarray[Any, np.dtype[np.object_]]):
    """An array of Vars (and numbers); made by `Graph.inputs`, and by arithmetic on such arrays."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Record what a ufunc does."""
        return record_ufunc(ufunc, method, *inputs, **options)

    def __array_function__(
        self, function: Any, types: Any, arguments: Iterable[Any], options: Any
    ) -> Any:
        """Record what another function of NumPy does."""
        return record_function(function, types, arguments, options)

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """Keep results without dimensions what they are: Vars."""
        return array[()] if return_scalar else super().__array_wrap__(array, context)

    def __contains__(self, item: object) -> bool:
        """Tell whether `item` is an element, as `in` of a list does."""
        return item in self.ravel().tolist()


_core.explain_subscripts(VarArray)


def record_function(function: Any, _: Any, arguments: Iterable[Any], options: Any) -> Any:
    """Do what a function of NumPy that is no ufunc means, on arrays of Vars and single ones."""
    given = tuple(arguments)
    for each in given:
        for part in each if isinstance(each, list | tuple) else (each,):
            unmasked(part, _name(function))
    own = FUNCTIONS.get(function)
    if own is not None:
        try:
            return own(*given, **options)
        except TypeError:
            _expect_fit(function, own, given, options)
            raise
    if function not in STRUCTURAL:
        raise unsupported(_name(function))
    moved = (plain(each) if isinstance(each, Var) or function in LIKE else each for each in given)
    return of_vars(function._implementation(*moved, **options))


def _expect_fit(function: Any, own: Elementwise, given: Sequence[Any], options: Any) -> None:
    """Name the function if the translation does not know the arguments, which NumPy does."""
    try:
        inspect.signature(own).bind(*given, **options)
    except TypeError as error:
        raise unsupported(_name(function), f"with these arguments ({error})") from None


def record_ufunc(ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
    """Do what a ufunc means: on every element, along an axis, or on all pairs."""
    name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
    arrays = [plain(unmasked(each, name)) for each in inputs]
    call = CALLS.get(ufunc) or (ufunc if _is_of_objects(ufunc) else None)
    match method:
        case "__call__" if call is not None:
            places = only(name, options, "out").get("out") or (None,)
            if len(places) > 1:
                raise unsupported(name, "with out=")
            return _put(call(*arrays), places[0])
        case "reduce" if ufunc in REDUCTIONS:
            return reduce(REDUCTIONS[ufunc], arrays[0], **only(name, options, "axis", "keepdims"))
        case "accumulate" if call is not None:
            first = functions.ne(arrays[0], 0.0) if ufunc in LOGICAL else arrays[0]
            return accumulate(call, first, **only(name, options, "axis"))
        case "outer" if call is not None:
            only(name, options)
            first, second = map(np.asarray, arrays)
            grown = first.reshape(first.shape + (1,) * second.ndim)
            return of_vars(call(grown, second))
    raise unsupported(name)


def _put(result: Any, place: Any) -> Any:
    """Return a result, or write it where `x += y` wants it."""
    if place is None:
        return of_vars(result)
    if place.dtype != object:
        raise DTypeError(f"an array of {place.dtype} cannot hold Vars; make it with dtype=object")
    place[...] = result
    return place


def _is_of_objects(ufunc: np.ufunc) -> bool:
    """Tell a ufunc that was made of a Python function: it takes any object as it is."""
    return all(set(each) <= set("O->") for each in ufunc.types)


def reduce(
    function: Elementwise,
    array: Any,
    axis: int | Sequence[int] | None = 0,
    keepdims: bool = False,
) -> Any:
    """Apply a function of many operands along some axes, or along all."""
    array = np.asarray(array, dtype=object)
    axes = range(array.ndim) if axis is None else np.atleast_1d(axis)
    chosen = tuple(sorted(_axis(each, max(array.ndim, 1)) for each in axes))
    if not array.ndim:  # NumPy takes a number for its own only row
        chosen = ()
    kept = [dim for dim in range(array.ndim) if dim not in chosen]
    shape = [array.shape[dim] for dim in kept]
    # The length is named: -1 would stand for any where another side is 0.
    length = math.prod(array.shape[dim] for dim in chosen)
    rows = array.transpose(*kept, *chosen).reshape(math.prod(shape), length)
    if not length:
        function([])  # raises, if it has no result for nothing, even where there are no rows
    results = _array([function(row.tolist()) for row in rows])
    if keepdims:
        shape = [1 if dim in chosen else side for dim, side in enumerate(array.shape)]
    found = of_vars(results.reshape(shape))
    return np.float64(found) if isinstance(found, float) else found  # as NumPy's own of numbers


def accumulate(function: Elementwise, array: Any, axis: int = 0) -> Any:
    """Apply a function to what it gave so far and the next slice."""
    slices = np.moveaxis(np.asarray(array, dtype=object), operator.index(axis), 0)
    found = list(slices[:1])
    for each in slices[1:]:
        found.append(function(found[-1], each))
    joined = np.stack([_array_of(each) for each in found]) if found else slices
    return of_vars(np.moveaxis(joined, 0, axis))


# ---- element by element -------------------------------------------------------------------------


def _logaddexp(a: Any, b: Any) -> Any:
    """Add what the smaller one brings to the larger one, which keeps it where that is nearly 0.

    Which is larger is asked by `where`: derivatives of any order are right at ties, where those of
    `maximum` are not. Infinities that are alike have no difference.
    """
    off = functions.sub(a, b)
    first = functions.gt(off, 0.0)
    larger = functions.where(first, a, b)
    below = functions.where(first, functions.neg(off), off)
    found = functions.add(larger, functions.softplus(below))
    alike = functions.mul(0.5, functions.add(a, b))
    return functions.where(functions.eq(off, off), found, alike)


def _divmod(a: Any, b: Any) -> tuple[Any, Any]:
    return functions.floor_divide(a, b), functions.remainder(a, b)


#: Operations whose results are conditions, 1 or 0.
CONDITIONS = frozenset(("lt", "le", "gt", "ge", "eq", "ne"))


def _is_condition(value: Any) -> bool:
    if isinstance(value, Var) and value.op != "constant":
        return value.op in CONDITIONS
    return (float(formula(value)) if isinstance(value, Var) else value) in (0, 1)


def _of_conditions(name: str, logical: Elementwise) -> Elementwise:
    """Let bits be those of conditions: of other numbers neither NumPy nor Vars have any."""

    def call(*operands: Any) -> Any:
        for each in (item for side in operands for item in np.asarray(side, dtype=object).flat):
            if not _is_condition(each):
                raise DTypeError(
                    f"numpy.{name} (&, |, ^, ~) works on conditions such as x > 0, got "
                    f"{repr(each)[:80]}; np.logical_and, np.logical_or and np.logical_not take "
                    "any numbers"
                )
        return logical(*operands)

    return call


# Logic is written in comparisons, so that its results are conditions, too.


def _and(a: Any, b: Any) -> Any:
    return functions.lt(functions.eq(a, 0.0), functions.ne(b, 0.0))


def _or(a: Any, b: Any) -> Any:
    return functions.le(functions.eq(a, 0.0), functions.ne(b, 0.0))


def _xor(a: Any, b: Any) -> Any:
    return functions.ne(functions.ne(a, 0.0), functions.ne(b, 0.0))


def _not(a: Any) -> Any:
    return functions.eq(a, 0.0)


def matmul(a: Any, b: Any) -> Any:
    """Multiply matrices, stacks of them and vectors, as NumPy does."""
    first, second = np.asarray(a, dtype=object), np.asarray(b, dtype=object)
    if not first.ndim or not second.ndim:
        raise ShapeError("matmul: expected arrays of one dimension or more, got a number")
    left = first if first.ndim > 1 else first[None, :]
    right = second if second.ndim > 1 else second[:, None]
    if left.shape[-1] != right.shape[-2]:
        raise ShapeError(f"matmul: shapes {first.shape} and {second.shape} do not match")
    rows, columns = left[..., :, None, :], right.swapaxes(-1, -2)[..., None, :, :]
    found = dots(rows, columns)
    lost = [axis for axis, side in ((-2, first), (-1, second)) if side.ndim == 1]
    return found.squeeze(tuple(lost))


def _vecdot(a: Any, b: Any) -> Any:
    first, second = np.asarray(a, dtype=object), np.asarray(b, dtype=object)
    if not first.ndim or not second.ndim or first.shape[-1] != second.shape[-1]:
        raise ShapeError(
            f"vecdot: expected vectors of one length, got shapes {first.shape} and {second.shape}"
        )
    return dots(first, second)


def dots(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """Multiply and sum along the last axis."""
    a, b = np.broadcast_arrays(a, b)
    shape, length = a.shape[:-1], a.shape[-1]
    pairs = zip(a.reshape(-1, length), b.reshape(-1, length), strict=True) if length else ()
    found = [functions.dot(x.tolist(), y.tolist()) for x, y in pairs]
    return _array(found or [0.0] * math.prod(shape)).reshape(shape)


#: How each ufunc is recorded, element by element.
CALLS: dict[np.ufunc, Elementwise] = {
    np.add: functions.add,
    np.subtract: functions.sub,
    np.multiply: functions.mul,
    np.true_divide: functions.div,
    np.negative: functions.neg,
    np.positive: lambda x: x,
    np.power: power,
    np.float_power: functions.pow,
    np.absolute: functions.abs,
    np.fabs: functions.abs,
    np.sign: functions.sign,
    np.square: functions.square,
    np.sqrt: functions.sqrt,
    np.reciprocal: lambda x: 1.0 / x,
    np.exp: functions.exp,
    np.exp2: lambda x: functions.pow(2.0, x),
    np.expm1: functions.expm1,
    np.log: functions.log,
    np.log2: functions.log2,
    np.log10: functions.log10,
    np.log1p: functions.log1p,
    np.logaddexp: _logaddexp,
    np.sin: functions.sin,
    np.cos: functions.cos,
    np.tan: functions.tan,
    np.arcsin: functions.asin,
    np.arccos: functions.acos,
    np.arctan: functions.atan,
    np.arctan2: functions.atan2,
    np.sinh: functions.sinh,
    np.cosh: functions.cosh,
    np.tanh: functions.tanh,
    np.hypot: functions.hypot,
    np.deg2rad: lambda x: x * (math.pi / 180),
    np.radians: lambda x: x * (math.pi / 180),
    np.rad2deg: lambda x: x * (180 / math.pi),
    np.degrees: lambda x: x * (180 / math.pi),
    np.floor: functions.floor,
    np.ceil: functions.ceil,
    np.trunc: functions.trunc,
    np.rint: functions.round,
    np.floor_divide: functions.floor_divide,
    np.remainder: functions.remainder,
    np.divmod: _divmod,
    np.minimum: functions.minimum,
    np.maximum: functions.maximum,
    np.less: functions.lt,
    np.less_equal: functions.le,
    np.greater: functions.gt,
    np.greater_equal: functions.ge,
    np.equal: functions.eq,
    np.not_equal: functions.ne,
    np.logical_and: _and,
    np.logical_or: _or,
    np.logical_xor: _xor,
    np.logical_not: _not,
    np.bitwise_and: _of_conditions("bitwise_and", _and),
    np.bitwise_or: _of_conditions("bitwise_or", _or),
    np.bitwise_xor: _of_conditions("bitwise_xor", _xor),
    np.invert: _of_conditions("invert", _not),
    np.isnan: lambda a: functions.ne(a, a),
    np.conjugate: lambda x: x,
    np.matmul: matmul,
    np.vecdot: _vecdot,
}
#: Which node of many operands a ufunc makes along an axis.
REDUCTIONS: dict[np.ufunc, Elementwise] = {
    np.add: functions.sum,
    np.multiply: functions.prod,
    np.maximum: functions.max,
    np.minimum: functions.min,
    np.logaddexp: functions.logsumexp,
}


#: Ufuncs whose running results are 1 or 0, the first of them too.
LOGICAL = frozenset((np.logical_and, np.logical_or, np.logical_xor))


#: What only moves elements: NumPy's own code does that right.
STRUCTURAL: frozenset[Any] = frozenset(
    (
        np.append, np.array_split, np.atleast_1d, np.atleast_2d, np.atleast_3d, np.block,
        np.broadcast_arrays, np.broadcast_to, np.column_stack, np.compress, np.concatenate,
        np.copy, np.delete, np.diag, np.diagflat, np.diagonal, np.diff, np.dsplit,
        np.dstack, np.empty_like, np.expand_dims, np.flip, np.fliplr, np.flipud, np.full_like,
        np.hsplit, np.hstack, np.insert, np.iscomplexobj, np.isrealobj, np.kron, np.meshgrid,
        np.moveaxis, np.ndim, np.ones_like, np.polyval, np.ravel, np.real, np.repeat, np.reshape,
        np.resize, np.roll, np.rollaxis, np.rot90, np.shape, np.size, np.split, np.squeeze,
        np.stack, np.swapaxes, np.take, np.take_along_axis, np.tile, np.trace, np.transpose,
        np.trapezoid, np.tril, np.triu, np.vsplit, np.vstack, np.zeros_like,
    )
)  # fmt: skip


#: Those of them that make an array like another and fill it, which stays an array meanwhile.
LIKE: frozenset[Any] = frozenset((np.empty_like, np.full_like, np.ones_like, np.zeros_like))


# ---- to objects and back -------------------------------------------------------------------------


def unmasked(value: Any, what: str) -> Any:
    """Return an operand or argument, if it has no mask that would be lost; `what` is the call.

    Nor is it a matrix: those multiply in another way.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise DTypeError(f"{what}: expected a plain array, got a masked one; fill it first")
    if isinstance(value, np.matrix):
        raise DTypeError(f"{what}: expected a plain array, got a matrix; write np.asarray(matrix)")
    return value


def plain(value: Any) -> Any:
    """Take the translation off, so that NumPy's own loops run."""
    match value:
        case VarArray():
            return value.view(np.ndarray)
        case Var():
            return _array([value]).reshape(())
        case np.generic() | np.ndarray() if value.dtype.kind in "fiub":
            return value.astype(np.float64)  # others would ask Vars to take part as arrays
        case _:
            return value


def of_vars(result: Any) -> Any:
    """Make arrays of objects arrays of Vars; a single element is itself."""
    if isinstance(result, (list, tuple)):
        return type(result)(of_vars(each) for each in result)
    if not isinstance(result, np.ndarray) or result.dtype != object:
        return result
    return result.view(VarArray) if result.ndim else result[()]


def _array(items: Iterable[Any]) -> NDArray[Any]:
    """Make an array of objects, none of which is looked into."""
    listed = list(items)
    array = np.empty(len(listed), dtype=object)
    array[:] = listed
    return array


def _array_of(value: Any) -> NDArray[Any]:
    return value if isinstance(value, np.ndarray) else _array([value]).reshape(())


def _axis(axis: Any, ndim: int) -> int:
    place = operator.index(axis)
    if not -ndim <= place < ndim:
        raise ShapeError(f"axis {place} is out of bounds for an array of {ndim} dimensions")
    return place % ndim


#: Values of options that change nothing, besides None.
HARMLESS: dict[str, tuple[Any, ...]] = {
    "where": (True,),
    "subok": (True,),
    "optimize": (True, False),
}


def only(name: str, options: dict[str, Any], *allowed: str) -> dict[str, Any]:
    """Return the options that are allowed; others must say what holds without them."""
    for option, value in options.items():
        defaults = (None, np._NoValue, *HARMLESS.get(option, ()))
        if option not in allowed and not any(value is default for default in defaults):
            raise unsupported(name, f"with {option}=")
    return {option: options[option] for option in allowed if option in options}


def _name(function: Any) -> str:
    module = getattr(function, "__module__", "numpy") or "numpy"
    return f"{module.removeprefix('numpy').lstrip('.')}.{function.__name__}".lstrip(".")


def unsupported(name: str, how: str = "") -> DTypeError:
    """Name what has no translation."""
    return DTypeError(
        f"numpy.{name} {how}".rstrip() + " does not work on Vars; compose it of arithmetic and of "
        "the functions that tapegrad has (docs/ops.md)"
    )
