"""Arrays of Vars that NumPy's functions work on: the same source runs on numbers and on Vars.

A `VarArray` is an ndarray of objects, so slicing, reshaping and stacking are NumPy's own. What
computes is translated: element by element into the op table, sums and products of rows into nodes
with many operands. What has no translation raises and names the function; nothing becomes a float.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tapegrad._core import Var, functions
from tapegrad.errors import DTypeError, ShapeError

Elementwise = Callable[..., Any]
#: A VarArray as far as types go: NumPy's do not tell that its slices and results are some too.
ArrayOfVars: TypeAlias = NDArray[Any]


class VarArray(np.ndarray[Any, np.dtype[np.object_]]):
    """An array of Vars (and numbers); made by `Graph.inputs`, and by arithmetic on such arrays."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Record what a ufunc does."""
        return record_ufunc(ufunc, method, *inputs, **options)

    def __array_function__(
        self, function: Any, types: Any, arguments: Iterable[Any], options: Any
    ) -> Any:
        """Record what another function of NumPy does."""
        own = FUNCTIONS.get(function)
        if own is not None:
            return own(*arguments, **options)
        if function not in STRUCTURAL:
            raise _unsupported(_name(function))
        return _of_vars(super().__array_function__(function, types, tuple(arguments), options))

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """Keep results without dimensions what they are: Vars."""
        return array[()] if return_scalar else super().__array_wrap__(array, context)


def record_ufunc(ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
    """Do what a ufunc means: on every element, along an axis, or on all pairs."""
    name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
    arrays = [_plain(each) for each in inputs]
    call = CALLS.get(ufunc) or (ufunc if _is_of_objects(ufunc) else None)
    match method:
        case "__call__" if call is not None:
            (place,) = _only(name, options, "out").get("out") or (None,)
            return _put(call(*arrays), place)
        case "reduce" if ufunc in REDUCTIONS:
            return reduce(REDUCTIONS[ufunc], arrays[0], **_only(name, options, "axis", "keepdims"))
        case "accumulate" if call is not None:
            return accumulate(call, arrays[0], **_only(name, options, "axis"))
        case "outer" if call is not None:
            _only(name, options)
            first, second = map(np.asarray, arrays)
            grown = first.reshape(first.shape + (1,) * second.ndim)
            return _of_vars(call(grown, second))
    raise _unsupported(name)


def _put(result: Any, place: Any) -> Any:
    """Return a result, or write it where `x += y` wants it."""
    if place is None:
        return _of_vars(result)
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
    axes = range(array.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    chosen = tuple(sorted(_axis(each, array.ndim) for each in axes))
    kept = [dim for dim in range(array.ndim) if dim not in chosen]
    shape = [array.shape[dim] for dim in kept]
    # The length is named: -1 would stand for any where another side is 0.
    length = math.prod(array.shape[dim] for dim in chosen)
    rows = array.transpose(*kept, *chosen).reshape(math.prod(shape), length)
    results = _array([function(row.tolist()) for row in rows])
    if keepdims:
        shape = [1 if dim in chosen else side for dim, side in enumerate(array.shape)]
    return _of_vars(results.reshape(shape))


def accumulate(function: Elementwise, array: Any, axis: int = 0) -> Any:
    """Apply a function to what it gave so far and the next slice."""
    slices = np.moveaxis(np.asarray(array, dtype=object), axis, 0)
    found = list(slices[:1])
    for each in slices[1:]:
        found.append(function(found[-1], each))
    joined = np.stack([_array_of(each) for each in found]) if found else slices
    return _of_vars(np.moveaxis(joined, 0, axis))


# ---- element by element -------------------------------------------------------------------------


def _native(ufunc: np.ufunc) -> Elementwise:
    """Let NumPy's loop over objects call the operators of Vars."""
    return lambda *arrays: ufunc(*map(_plain, arrays), dtype=object)


def _logaddexp(a: Any, b: Any) -> Any:
    pairs = np.frompyfunc(lambda x, y: functions.logsumexp([x, y]), 2, 1)
    return pairs(a, b)


def _clip(x: Any, least: Any = None, most: Any = None) -> Any:
    above = x if least is None else functions.maximum(x, least)
    return above if most is None else functions.minimum(above, most)


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
    found = _dots(rows, columns)
    if second.ndim == 1:
        found = found[..., 0]
    return (
        found[..., 0, :]
        if first.ndim == 1 and second.ndim > 1
        else (found[..., 0] if first.ndim == 1 else found)
    )


def _dots(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """Multiply and sum along the last axis."""
    a, b = np.broadcast_arrays(a, b)
    shape, length = a.shape[:-1], a.shape[-1]
    pairs = zip(a.reshape(-1, length), b.reshape(-1, length), strict=True) if length else ()
    found = [functions.dot(x.tolist(), y.tolist()) for x, y in pairs]
    return _array(found or [0.0] * math.prod(shape)).reshape(shape)


#: How each ufunc is recorded, element by element.
CALLS: dict[np.ufunc, Elementwise] = {
    np.add: _native(np.add),
    np.subtract: _native(np.subtract),
    np.multiply: _native(np.multiply),
    np.true_divide: _native(np.true_divide),
    np.negative: _native(np.negative),
    np.positive: _native(np.positive),
    np.power: _native(np.power),
    np.float_power: functions.pow,
    np.absolute: functions.abs,
    np.fabs: functions.abs,
    np.sign: functions.sign,
    np.square: functions.square,
    np.sqrt: functions.sqrt,
    np.reciprocal: lambda x: 1.0 / x,
    np.exp: functions.exp,
    np.exp2: lambda x: functions.exp(x * math.log(2.0)),
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
    np.minimum: functions.minimum,
    np.maximum: functions.maximum,
    np.less: functions.lt,
    np.less_equal: functions.le,
    np.greater: functions.gt,
    np.greater_equal: functions.ge,
    np.equal: functions.eq,
    np.not_equal: functions.ne,
    np.logical_and: lambda a, b: functions.ne(a, 0.0) * functions.ne(b, 0.0),
    np.logical_or: lambda a, b: functions.maximum(functions.ne(a, 0.0), functions.ne(b, 0.0)),
    np.logical_not: lambda a: functions.eq(a, 0.0),
    np.isnan: lambda a: functions.ne(a, a),
    np.matmul: matmul,
}
#: Which node of many operands a ufunc makes along an axis.
REDUCTIONS: dict[np.ufunc, Elementwise] = {
    np.add: functions.sum,
    np.multiply: functions.prod,
    np.maximum: functions.max,
    np.minimum: functions.min,
    np.logaddexp: functions.logsumexp,
}


# ---- functions that are no ufuncs ---------------------------------------------------------------


def _reduction(name: str, function: Elementwise) -> Elementwise:
    def reduction(a: Any, axis: Any = None, *, keepdims: Any = False, **options: Any) -> Any:
        _only(name, options)
        return reduce(function, _plain(a), axis, bool(keepdims))

    return reduction


def _mean(a: Any, axis: Any = None, *, keepdims: Any = False, **options: Any) -> Any:
    _only("mean", options)
    total = reduce(functions.sum, _plain(a), axis, bool(keepdims))
    return total * (np.size(total) / np.size(a))


def _var(
    a: Any, axis: Any = None, *, ddof: float = 0, keepdims: Any = False, **options: Any
) -> Any:
    _only("var", options)
    off = a - _mean(a, axis, keepdims=True)
    total = reduce(functions.sum, _plain(functions.square(_plain(off))), axis, bool(keepdims))
    return total / (np.size(a) / np.size(total) - ddof)


def _dot(a: Any, b: Any) -> Any:
    first, second = np.asarray(_plain(a), object), np.asarray(_plain(b), object)
    if not first.ndim or not second.ndim:
        return _of_vars(first * second)
    if second.ndim > 2:
        raise _unsupported("dot", "of more than two dimensions")
    return _of_vars(matmul(first, second))


def _inner(a: Any, b: Any) -> Any:
    first, second = np.asarray(_plain(a), object), np.asarray(_plain(b), object)
    shape = first.shape[:-1] + (1,) * (second.ndim - 1) + first.shape[-1:]
    return _of_vars(_dots(first.reshape(shape), second))


def _outer(a: Any, b: Any) -> Any:
    return np.ravel(a)[:, None] * np.ravel(b)[None, :]


def _einsum(equation: str, *operands: Any, **options: Any) -> Any:
    """Sum products over the letters that the result lacks; each operand has a letter once."""
    _only("einsum", options)
    arrays = [np.asarray(_plain(each), object) for each in operands]
    given, _, result = equation.replace(" ", "").partition("->")
    terms = given.split(",")
    if "->" not in equation:
        counts = sorted(set(given) - {","})
        result = "".join(letter for letter in counts if given.count(letter) == 1)
    sizes = [array.ndim for array in arrays]
    repeated = any(len(set(term)) != len(term) for term in (*terms, result))
    if [len(term) for term in terms] != sizes or repeated or "." in equation:
        raise _unsupported("einsum", f"of {equation!r} on arrays of {sizes} dimensions")
    summed = "".join(dict.fromkeys(letter for letter in given if letter not in result + ","))
    order = result + summed
    aligned = [_aligned(array, term, order) for array, term in zip(arrays, terms, strict=True)]
    sides = np.broadcast_shapes(*(array.shape for array in aligned))
    kept = sides[: len(result)]
    flat = [
        np.broadcast_to(array, sides).reshape(*kept, math.prod(sides[len(result) :]))
        for array in aligned
    ]
    if len(flat) == 1:
        return reduce(functions.sum, flat[0], -1)
    factor = functools.reduce(_native(np.multiply), flat[:-1])
    return _of_vars(_dots(factor, flat[-1]))


def _aligned(array: NDArray[Any], term: str, order: str) -> NDArray[Any]:
    """Bring an operand's axes into an order, with sides of 1 for the letters it lacks."""
    present = [term.index(letter) for letter in order if letter in term]
    shape = [array.shape[term.index(letter)] if letter in term else 1 for letter in order]
    return array.transpose(present).reshape(shape)


def _where(condition: Any, *branches: Any) -> Any:
    if len(branches) != 2:
        raise _unsupported("where", "without the two branches")
    return _of_vars(functions.where(_plain(condition), *map(_plain, branches)))


def _cumulative(name: str, ufunc: np.ufunc) -> Elementwise:
    def cumulative(a: Any, axis: int | None = None, **options: Any) -> Any:
        _only(name, options)
        array = _plain(a)
        flat = np.ravel(array) if axis is None else array
        return accumulate(CALLS[ufunc], flat, axis or 0)

    return cumulative


#: What NumPy's own code would get wrong, or would not do, on objects.
FUNCTIONS: dict[Any, Elementwise] = {
    np.sum: _reduction("sum", functions.sum),
    np.prod: _reduction("prod", functions.prod),
    np.max: _reduction("max", functions.max),
    np.amax: _reduction("amax", functions.max),
    np.min: _reduction("min", functions.min),
    np.amin: _reduction("amin", functions.min),
    np.mean: _mean,
    np.var: _var,
    np.std: lambda *given, **options: functions.sqrt(_plain(_var(*given, **options))),
    np.dot: _dot,
    np.vdot: lambda a, b: _dot(np.ravel(a), np.ravel(b)),
    np.inner: _inner,
    np.outer: _outer,
    np.einsum: _einsum,
    np.where: _where,
    np.clip: lambda a, a_min=None, a_max=None: _of_vars(_clip(_plain(a), a_min, a_max)),
    np.cumsum: _cumulative("cumsum", np.add),
    np.cumprod: _cumulative("cumprod", np.multiply),
}
#: What only moves elements: NumPy's own code does that right.
STRUCTURAL: frozenset[Any] = frozenset(
    (
        np.append, np.array_split, np.atleast_1d, np.atleast_2d, np.atleast_3d, np.block,
        np.broadcast_arrays, np.broadcast_to, np.column_stack, np.compress, np.concatenate,
        np.copy, np.copyto, np.delete, np.diag, np.diagflat, np.diagonal, np.diff, np.dsplit,
        np.dstack,
        np.empty_like, np.expand_dims, np.flip, np.fliplr, np.flipud, np.full_like, np.hsplit,
        np.hstack, np.insert, np.kron, np.meshgrid, np.moveaxis, np.ndim, np.ones_like, np.pad,
        np.ravel, np.repeat, np.reshape, np.resize, np.roll, np.rollaxis, np.rot90, np.shape,
        np.size, np.split, np.squeeze, np.stack, np.swapaxes, np.take, np.take_along_axis, np.tile,
        np.trace, np.transpose, np.trapezoid, np.tril, np.triu, np.vsplit, np.vstack,
        np.zeros_like,
    )
)  # fmt: skip


# ---- helpers ------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
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


def _of_vars(result: Any) -> Any:
    """Make arrays of objects arrays of Vars; a single element is itself."""
    if isinstance(result, (list, tuple)):
        return type(result)(_of_vars(each) for each in result)
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
    if not -ndim <= axis < ndim:
        raise ShapeError(f"axis {axis} is out of bounds for an array of {ndim} dimensions")
    return int(axis) % ndim


def _only(name: str, options: dict[str, Any], *allowed: str) -> dict[str, Any]:
    """Return the options that are allowed; others must say what holds without them."""
    for option, value in options.items():
        harmless = any(value is default for default in (None, np._NoValue, True))
        if option not in allowed and not harmless:
            raise _unsupported(name, f"with {option}=")
    return {option: options[option] for option in allowed if option in options}


def _name(function: Any) -> str:
    module = getattr(function, "__module__", "numpy") or "numpy"
    return f"{module.removeprefix('numpy').lstrip('.')}.{function.__name__}".lstrip(".")


def _unsupported(name: str, how: str = "") -> DTypeError:
    return DTypeError(
        f"numpy.{name} {how}".rstrip() + " does not work on Vars; compose it of arithmetic and of "
        "the functions that tapegrad has (docs/ops.md)"
    )


def enable() -> None:
    """Let NumPy's functions and arrays of numbers meet single Vars."""
    Var.__array_ufunc__ = lambda self, *arguments, **options: record_ufunc(*arguments, **options)  # type: ignore[attr-defined]
