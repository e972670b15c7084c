"""Functions of NumPy that are no ufuncs, on arrays of Vars.

Those that NumPy's own code would get wrong, or would not do, on objects. Methods are the same
functions, so both agree.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapegrad._core import Var, functions
from tapegrad.errors import DTypeError, ShapeError
from tapegrad.scalar.arrays import (
    CALLS,
    FUNCTIONS,
    Elementwise,
    VarArray,
    accumulate,
    dots,
    matmul,
    of_vars,
    only,
    plain,
    record_function,
    record_ufunc,
    reduce,
    translates,
    unsupported,
)


def objects(value: Any) -> NDArray[Any]:
    """Return any operand as an array of objects that NumPy's own loops run on."""
    return np.asarray(plain(value), dtype=object)


# ---- along axes ---------------------------------------------------------------------------------


def _reduction(name: str, function: Elementwise) -> Elementwise:
    def reduction(
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        keepdims: Any = False,
        **options: Any,
    ) -> Any:
        only(name, options | {"dtype": dtype, "out": out})
        return reduce(function, plain(a), axis, bool(keepdims))

    return reduction


def _extremum(name: str, function: Elementwise) -> Elementwise:
    def extremum(
        a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, **options: Any
    ) -> Any:
        only(name, options | {"out": out})
        return reduce(function, plain(a), axis, bool(keepdims))

    return extremum


_sum = translates(np.sum)(_reduction("sum", functions.sum))
_max = translates(np.max, np.amax)(_extremum("max", functions.max))
_min = translates(np.min, np.amin)(_extremum("min", functions.min))
translates(np.prod)(_reduction("prod", functions.prod))


def _divided(total: Any, a: Any, lost: float = 0) -> Any:
    """Divide sums by how many entries each is of, less those that are lost; by 0 it is NaN."""
    count = np.size(plain(a)) / max(np.size(plain(total)), 1)
    return of_vars(functions.div(plain(total), max(count - lost, 0.0)))


@translates(np.mean)
def _mean(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    **options: Any,
) -> Any:
    only("mean", options | {"dtype": dtype, "out": out})
    return _divided(_sum(a, axis, keepdims=keepdims), a)


@translates(np.var)
def _var(  # noqa: PLR0917  the order is NumPy's
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: float = 0,
    keepdims: Any = False,
    *,
    correction: Any = np._NoValue,
    **options: Any,
) -> Any:
    only("var", options | {"dtype": dtype, "out": out})
    off = a - _mean(a, axis, keepdims=True)
    total = _sum(off * off, axis, keepdims=keepdims)
    return _divided(total, a, ddof if correction is np._NoValue else correction)


@translates(np.std)
def _std(*given: Any, **options: Any) -> Any:
    return of_vars(functions.sqrt(plain(_var(*given, **options))))


@translates(np.ptp)
def _ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    only("ptp", {"out": out})
    return _max(a, axis, keepdims=keepdims) - _min(a, axis, keepdims=keepdims)


@translates(np.average)
def _average(
    a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = False
) -> Any:
    array = objects(a)
    given = np.ones(array.shape) if weights is None else plain(weights)
    if np.shape(given) != array.shape:
        if axis is None or np.ndim(given) != 1 or len(given) != array.shape[axis]:
            raise ShapeError(
                f"average: expected weights of shape {array.shape}, or one for each entry along an "
                f"axis, got {np.shape(given)}"
            )
        side = np.expand_dims(given, [d for d in range(array.ndim) if d != axis % array.ndim])
        given = np.broadcast_to(side, array.shape)
    weighed = np.asarray(given, dtype=object)
    total = _sum(weighed, axis, keepdims=keepdims)
    found = of_vars(reduce(functions.sum, weighed * array, axis, bool(keepdims))) / total
    return (found, total) if returned else found


@translates(np.clip)
def _clip(
    a: Any,
    a_min: Any = None,
    a_max: Any = None,
    out: Any = None,
    *,
    min: Any = None,
    max: Any = None,
    **options: Any,
) -> Any:
    only("clip", options | {"out": out})
    least, most = (
        plain(second if first is None or first is np._NoValue else first)
        for first, second in ((a_min, min), (a_max, max))
    )
    found = plain(a)
    if least is not None and least is not np._NoValue:
        found = functions.maximum(found, least)
    if most is not None and most is not np._NoValue:
        found = functions.minimum(found, most)
    return of_vars(found)


def _cumulative(name: str, ufunc: np.ufunc) -> Elementwise:
    def cumulative(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
        only(name, {"dtype": dtype, "out": out})
        array = plain(a)
        flat = np.ravel(array) if axis is None or not np.ndim(array) else array
        return accumulate(CALLS[ufunc], flat, 0 if axis is None else axis)

    return cumulative


translates(np.cumsum)(_cumulative("cumsum", np.add))
translates(np.cumprod)(_cumulative("cumprod", np.multiply))


@translates(np.round, np.around)
def _round(a: Any, decimals: int = 0, out: Any = None) -> Any:
    """Round to places behind the point, or before it, as NumPy does: by a power of ten."""
    only("round", {"out": out})
    scale, array = 10.0 ** abs(operator.index(decimals)), plain(a)
    if not decimals:
        return of_vars(functions.round(array))
    there, back = (functions.mul, functions.div) if decimals > 0 else (functions.div, functions.mul)
    return of_vars(back(functions.round(there(array, scale)), scale))


# ---- norms --------------------------------------------------------------------------------------

#: Norms of vectors that are no powers and roots.
NORMS: dict[Any, Elementwise] = {
    1: lambda x, axis: reduce(functions.sum, functions.abs(x), axis, True),
    math.inf: lambda x, axis: reduce(functions.max, functions.abs(x), axis, True),
    -math.inf: lambda x, axis: reduce(functions.min, functions.abs(x), axis, True),
    0: lambda x, axis: reduce(functions.sum, functions.ne(x, 0.0), axis, True),
}


@translates(np.linalg.norm)
def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    array = objects(x)
    if axis is not None:
        axes = tuple(int(each) for each in np.atleast_1d(axis))
    elif ord is None or array.ndim <= 2:
        axes = tuple(range(array.ndim))
    else:
        axes = ()
    if ord is None or (ord in ("fro", "f") and len(axes) == 2):
        found = _length(array, axes)
    elif len(axes) == 1:
        found = _vector_norm(array, ord, axes)
    elif len(axes) == 2:
        found = _matrix_norm(array, ord, axes)
    else:
        raise ShapeError(f"norm: expected one axis or two, got {len(axes)} for ord={ord!r}")
    found = np.asarray(found, dtype=object)
    return of_vars(found if keepdims else found.squeeze(axes))


def _length(x: NDArray[Any], axes: tuple[int, ...]) -> Any:
    return functions.sqrt(plain(reduce(functions.sum, functions.square(x), axes, True)))


def _vector_norm(x: NDArray[Any], ord: Any, axes: tuple[int, ...]) -> Any:
    if ord == 2:
        return _length(x, axes)
    if ord in NORMS:
        return NORMS[ord](x, axes)
    if not isinstance(ord, (int, float)):
        raise unsupported("linalg.norm", f"of vectors with ord={ord!r}")
    powers = reduce(functions.sum, functions.pow(functions.abs(x), float(ord)), axes, True)
    return functions.pow(plain(powers), 1.0 / ord)


def _matrix_norm(x: NDArray[Any], ord: Any, axes: tuple[int, ...]) -> Any:
    """Take the largest or smallest of the sums of magnitudes along one of the axes."""
    if not isinstance(ord, (int, float)) or abs(ord) not in (1, math.inf):
        raise unsupported("linalg.norm", f"of matrices with ord={ord!r}")
    row, column = axes if abs(ord) == 1 else axes[::-1]
    sums = reduce(functions.sum, functions.abs(x), row, True)
    return reduce(functions.max if ord > 0 else functions.min, plain(sums), column, True)


# ---- products -----------------------------------------------------------------------------------


@translates(np.dot)
def _dot(a: Any, b: Any) -> Any:
    first, second = objects(a), objects(b)
    if not first.ndim or not second.ndim:
        return of_vars(first * second)
    if second.ndim > 2:
        return _tensordot(first, second, (-1, -2))
    return of_vars(matmul(first, second))


@translates(np.vdot)
def _vdot(a: Any, b: Any) -> Any:
    return _dot(np.ravel(a), np.ravel(b))


@translates(np.linalg.matmul)
def _matmul(a: Any, b: Any) -> Any:
    return of_vars(matmul(plain(a), plain(b)))


@translates(np.inner)
def _inner(a: Any, b: Any) -> Any:
    first, second = objects(a), objects(b)
    return _tensordot(first, second, (-1, -1)) if first.ndim and second.ndim else first * second


@translates(np.outer)
def _outer(a: Any, b: Any) -> Any:
    return np.ravel(a)[:, None] * np.ravel(b)[None, :]


@translates(np.linalg.outer)
def _outer_of_vectors(a: Any, b: Any) -> Any:
    if np.ndim(a) != 1 or np.ndim(b) != 1:
        raise ShapeError(
            "linalg.outer: expected arrays of one dimension, got shapes "
            f"{np.shape(a)} and {np.shape(b)}"
        )
    return _outer(a, b)


@translates(np.tensordot)
def _tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """Multiply and sum along pairs of axes; what is left of `a` comes first."""
    first, second = objects(a), objects(b)
    if np.ndim(axes) == 0:
        axes = range(first.ndim - axes, first.ndim), range(axes)
    left, right = ([int(each) for each in np.atleast_1d(side)] for side in axes)
    if [first.shape[each] for each in left] != [second.shape[each] for each in right]:
        raise ShapeError(
            f"tensordot: axes {left} of shape {first.shape} and {right} of {second.shape} do not "
            "match"
        )
    rows, columns = _summed_last(first, left), _summed_last(second, right)
    shape, length = rows.shape[:-1] + columns.shape[:-1], rows.shape[-1]
    rows = rows.reshape(math.prod(rows.shape[:-1]), 1, length)
    columns = columns.reshape(math.prod(columns.shape[:-1]), length)
    return of_vars(dots(rows, columns).reshape(shape))


def _summed_last(array: NDArray[Any], axes: Sequence[int]) -> NDArray[Any]:
    """Bring axes to the end, as one."""
    summed = [axis % array.ndim for axis in axes]
    kept = [axis for axis in range(array.ndim) if axis not in summed]
    length = math.prod(array.shape[axis] for axis in summed)
    return array.transpose(*kept, *summed).reshape(*(array.shape[axis] for axis in kept), length)


#: Ways to pad that move entries, or take means of them.
PADDINGS = ("constant", "edge", "mean", "reflect", "symmetric", "wrap")


@translates(np.pad)
def _pad(array: Any, pad_width: Any, mode: Any = "constant", **options: Any) -> Any:
    if isinstance(mode, str) and mode not in PADDINGS:
        raise unsupported("pad", f"with mode={mode!r}")
    padded: Any = np.pad
    return of_vars(padded._implementation(objects(array), pad_width, mode, **options))


@translates(np.copyto)
def _copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    if dst.dtype != object:
        raise DTypeError(
            f"numpy.copyto: an array of {dst.dtype} cannot hold Vars; make it with dtype=object"
        )
    if np.asarray(where).dtype == object:
        raise unsupported("copyto", "with where= of Vars")
    copied: Any = np.copyto
    copied._implementation(plain(dst), plain(src), casting=casting, where=where)


@translates(np.cross, np.linalg.cross)
def _cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, *, axis: int | None = None
) -> Any:
    if axis is not None:
        axisa = axisb = axisc = axis
    first, second = np.moveaxis(objects(a), axisa, -1), np.moveaxis(objects(b), axisb, -1)
    if first.shape[-1] != 3 or second.shape[-1] != 3:
        raise ShapeError(
            f"cross: expected vectors of 3, got {first.shape[-1]} and {second.shape[-1]}"
        )
    x, y, z = (
        first[..., i - 2] * second[..., i - 1] - first[..., i - 1] * second[..., i - 2]
        for i in range(3)
    )
    return of_vars(np.stack([x, y, z], axis=axisc))


@translates(np.einsum)
def _einsum(equation: Any, *operands: Any, **options: Any) -> Any:
    """Sum products over the letters that the result lacks; each operand has a letter once."""
    only("einsum", options)
    if not isinstance(equation, str):
        raise unsupported("einsum", "with lists of axes instead of letters")
    arrays = [objects(each) for each in operands]
    given, _, result = equation.replace(" ", "").partition("->")
    terms = given.split(",")
    if "->" not in equation:
        counts = sorted(set(given) - {","})
        result = "".join(letter for letter in counts if given.count(letter) == 1)
    sizes = [array.ndim for array in arrays]
    repeated = any(len(set(term)) != len(term) for term in (*terms, result))
    if [len(term) for term in terms] != sizes or repeated or "." in equation:
        raise unsupported("einsum", f"of {equation!r} on arrays of {sizes} dimensions")
    if not set(result) <= set(given):
        raise ShapeError(f"einsum: expected letters of operands in the result, got {equation!r}")
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
    factor = functools.reduce(functions.mul, flat[:-1])
    return of_vars(dots(factor, flat[-1]))


def _aligned(array: NDArray[Any], term: str, order: str) -> NDArray[Any]:
    """Bring an operand's axes into an order, with sides of 1 for the letters it lacks."""
    present = [term.index(letter) for letter in order if letter in term]
    shape = [array.shape[term.index(letter)] if letter in term else 1 for letter in order]
    return array.transpose(present).reshape(shape)


@translates(np.convolve)
def _convolve(a: Any, v: Any, mode: str = "full") -> Any:
    if np.ndim(a) > 1 or np.ndim(v) > 1:
        raise ShapeError(
            "convolve: expected arrays of one dimension, got shapes "
            f"{np.shape(a)} and {np.shape(v)}"
        )
    long, short = sorted((np.ravel(objects(a)), np.ravel(objects(v))), key=len, reverse=True)
    n, m = len(long), len(short)
    if not m:
        raise ShapeError("convolve: expected arrays that are not empty")
    padded = np.concatenate([np.zeros(m - 1), long, np.zeros(m - 1)]).astype(object)
    windows = np.lib.stride_tricks.sliding_window_view(padded, m)
    parts = {"full": slice(None), "same": slice((m - 1) // 2, (m - 1) // 2 + n)}
    parts["valid"] = slice(m - 1, n)
    if mode not in parts:
        raise unsupported("convolve", f"with mode={mode!r}")
    return of_vars(dots(windows[parts[mode]], short[::-1]))


# ---- choices ------------------------------------------------------------------------------------


@translates(np.where)
def _where(condition: Any, *branches: Any) -> Any:
    if len(branches) != 2:
        raise unsupported("where", "without the two branches")
    return of_vars(functions.where(plain(condition), *map(plain, branches)))


@translates(np.select)
def _select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
    if len(condlist) != len(choicelist) or not len(condlist):
        raise ShapeError(
            f"select: expected a choice for each condition, got {len(choicelist)} for "
            f"{len(condlist)}"
        )
    found = default
    for condition, choice in reversed(list(zip(condlist, choicelist, strict=True))):
        found = _where(condition, choice, found)
    return found


@translates(np.interp)
def _interp(
    x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, *, period: Any = None
) -> Any:
    """Choose among all segments, since which one a Var lies in is known only later."""
    if period is not None:
        raise unsupported("interp", "with period=")
    at, knots, values = objects(x), objects(xp), objects(fp)
    if knots.ndim != 1 or knots.shape != values.shape or not len(knots):
        raise ShapeError(f"interp: expected as many fp as xp, got {values.shape} for {knots.shape}")
    _expect_increasing(knots)
    slopes = np.diff(values) / np.diff(knots)
    # What lies neither before nor behind nor at a knot is NaN, and stays it.
    found: Any = functions.where(functions.eq(at, knots[-1]), values[-1], at)
    behind = values[-1] if right is None else objects(right)
    found = functions.where(functions.gt(at, knots[-1]), behind, found)
    for place in range(len(slopes) - 1, -1, -1):
        segment = slopes[place] * (at - knots[place]) + values[place]
        found = functions.where(functions.lt(at, knots[place + 1]), segment, found)
    before = values[0] if left is None else objects(left)
    return of_vars(np.asarray(functions.where(functions.lt(at, knots[0]), before, found), object))


def _expect_increasing(knots: NDArray[Any]) -> None:
    """Refuse numbers that do not increase; of Vars nobody knows yet."""
    try:
        numbers = knots.astype(np.float64)
    except (TypeError, DTypeError):
        return
    if not np.all(np.diff(numbers) > 0):
        raise ShapeError("interp: expected xp that increase")


# ---- methods -------------------------------------------------------------------------------------

#: Methods that NumPy's own code would get wrong, or refuse without a name.
METHODS = (
    "all", "any", "argmax", "argmin", "argpartition", "argsort", "choose", "clip", "cumprod",
    "cumsum", "dot", "max", "mean", "min", "nonzero", "partition", "prod", "round", "searchsorted",
    "sort", "std", "sum", "var",
)  # fmt: skip
#: Methods that make arrays of single Vars, as they do of NumPy's numbers.
MOVING = ("astype", "copy", "flatten", "ravel", "repeat", "reshape", "squeeze", "transpose")


def _as_method(function: Any) -> Elementwise:
    def method(self: VarArray, *arguments: Any, **options: Any) -> Any:
        return function(self, *arguments, **options)

    name, works = function.__name__, function in FUNCTIONS
    method.__qualname__ = f"VarArray.{name}"
    method.__doc__ = f"Do what numpy.{name} does." if works else f"Raise, as numpy.{name} does."
    return method


def _of_array(name: str) -> Elementwise:
    def method(self: Var, *arguments: Any, **options: Any) -> Any:
        return of_vars(getattr(plain(self), name)(*arguments, **options))

    method.__qualname__ = f"Var.{name}"
    method.__doc__ = f"Do what the method {name} of an array without dimensions does."
    return method


def _rounded(var: Var, digits: int | None = None) -> Any:
    return _round(var, digits or 0)


def enable() -> None:
    """Let NumPy's functions and arrays of numbers meet single Vars, and methods be functions."""
    for name in METHODS:
        method = _as_method(getattr(np, name))
        setattr(VarArray, name, method)
        if not hasattr(Var, name):
            setattr(Var, name, method)
    for name in MOVING:
        setattr(Var, name, _of_array(name))
    Var.__round__ = _rounded  # type: ignore[attr-defined]
    Var.__array_function__ = lambda self, *arguments: record_function(*arguments)  # type: ignore[attr-defined]
    Var.__array_ufunc__ = lambda self, *arguments, **options: record_ufunc(*arguments, **options)  # type: ignore[attr-defined]
