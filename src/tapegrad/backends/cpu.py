"""The CPU: kernels of the native core, with oneDNN where it is there.

An array is a NumPy array: its memory, shape and views are NumPy's, its arithmetic is ours.
"""

# Kernels take arrays by place and attributes by name, which lambdas give them.
# ruff: noqa: PLW0108

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tapegrad import _tensor
from tapegrad._core import pointwise
from tapegrad._core import views as native_views
from tapegrad.backends import Backend, views
from tapegrad.errors import OptionError

try:
    from tapegrad import _onednn
except ImportError:  # on machines that it was not built for
    _onednn = None  # type: ignore[assignment]

Array = Any
pointwise.set_empty(_tensor.empty)


def _reduce(op: str) -> Callable[..., Array]:
    return lambda x, dims, keepdim: _tensor.reduce(op, x, dims, keepdim)


def _extreme(op: str) -> Callable[..., tuple[Array, Array]]:
    def kernel(x: Array, dim: int, keepdim: bool) -> tuple[Array, Array]:
        if not x.ndim:
            return x.copy(), _zeros((), "int64")
        values, places = _tensor.arg_reduce(op, x, dim)
        if not keepdim:
            return values, places
        shape = (*x.shape[:dim], 1, *x.shape[dim + 1 :])
        return values.reshape(shape), places.reshape(shape)

    return kernel


def _place(op: str) -> Callable[..., Array]:
    both = _extreme(op)
    return lambda x, dim, keepdim: both(x, dim, keepdim)[1]


def _cumsum(x: Array, dim: int) -> Array:
    x = x if x.dtype.kind == "f" else _cast(x, "int64")
    return _tensor.cumsum(x, dim) if x.ndim else x.copy()


def _logsumexp(x: Array, dims: tuple[int, ...], keepdim: bool) -> Array:
    shape = tuple(
        1 if d in dims else size for d, size in enumerate(x.shape) if keepdim or d not in dims
    )
    return _tensor.logsumexp(x, dims).reshape(shape)


# ---- indices ------------------------------------------------------------------------------------


def _take(x: Array, index: Any) -> Array:
    """Return the elements at lists of places.

    Slices along one dimension have a kernel: NumPy lays them out in another order, if that is not
    the first.
    """
    places, dim = index[-1], len(index) - 1
    single = not dim or all(isinstance(each, slice) for each in index[:-1])
    if not single or dim >= x.ndim or places.dtype.kind == "b" or not x.flags.c_contiguous:
        return views.take(x, index, _copy)
    return _tensor.take_rows(x, dim, places)


def _put_add(x: Array, index: Any, shape: tuple[int, ...]) -> Array:
    """Add rows to zeros: dimensions with lists side by side are one, else they come first."""
    lists, sizes = _lists(index, shape)
    dims = list(lists)
    first = dims[0] if dims[-1] - dims[0] == len(dims) - 1 else 0
    rest = [d for d in range(len(sizes)) if d not in lists]
    order = [*rest[:first], *dims, *rest[first:]]
    parts = [math.prod([sizes[d] for d in each]) for each in (rest[:first], dims, rest[first:])]
    places = _row_numbers(lists, sizes)
    rows = x.reshape(parts[0], places.size, parts[2])
    out = _tensor.index_add(_zeros(tuple(parts), x.dtype), 1, places.reshape(-1), rows)
    moved = out.reshape([sizes[d] for d in order])
    found = moved.transpose([order.index(d) for d in range(len(sizes))]).reshape(shape)
    return found if found.flags.c_contiguous else _copy(found)


def _lists(index: Any, shape: tuple[int, ...]) -> tuple[dict[int, Array], list[int]]:
    """Return lists of places by dimension, and the sizes: those below a mask are one."""
    lists: dict[int, Array] = {}
    sizes: list[int] = []
    left = list(shape)
    for each in index:
        width = 1 if isinstance(each, slice) or each.dtype.kind != "b" else each.ndim
        size = math.prod(left[:width])
        if not isinstance(each, slice):
            truth = each.dtype.kind == "b"
            lists[len(sizes)] = each.reshape(-1).nonzero()[0] if truth else _counted(each, size)
        sizes.append(size)
        left = left[width:]
    return lists, sizes + left


def _counted(places: Array, size: int) -> Array:
    """Return places counted from the first; -1 is the last."""
    if not _tensor.reduce("any", pointwise.map2(_LT, places, 0), tuple(range(places.ndim)), False):
        return places
    return pointwise.select(
        pointwise.map2(_LT, places, 0), pointwise.map2(_ADD, places, size), places
    )


def _row_numbers(lists: dict[int, Array], sizes: list[int]) -> Array:
    """Return places in several dimensions as places in all of them, counted in C order."""
    flat: Any = None
    for d, places in lists.items():
        flat = (
            places
            if flat is None
            else pointwise.map2(_ADD, pointwise.map2(_MUL, flat, sizes[d]), places)
        )
    return flat


def _sort(x: Array, dim: int, descending: bool, count: int) -> tuple[Array, Array]:
    places = _tensor.order(x, dim, descending, count)
    return _tensor.gather(x, dim, places), places


def _zeros(shape: tuple[int, ...], dtype: Any) -> Array:
    out = _tensor.empty(shape, dtype)
    _tensor.fill(out, 0)
    return out


def _index_add(x: Array, index: Array, dim: int, size: int) -> Array:
    shape = (*x.shape[:dim], size, *x.shape[dim + 1 :])
    return _tensor.index_add(_zeros(shape, x.dtype), dim, index, x)


def _embedding(weight: Array, index: Array, padding_idx: int, by_frequency: bool) -> Array:
    rows = _tensor.index_select(weight, 0, index.reshape(-1))
    return rows.reshape(*index.shape, weight.shape[1])


# ---- matrices and images ------------------------------------------------------------------------


def _fast(array: Array) -> bool:
    """Tell whether oneDNN has kernels for this array."""
    return _onednn is not None and bool(array.dtype.char == "f")


#: What takes fewer multiplications takes oneDNN longer to prepare than us to do.
_SMALL = 16 * 16 * 16


def _key(cell: Any) -> Any:
    """Return where packed copies of a weight are kept, and the version of its numbers."""
    if cell[1] is None:
        cell[1] = _onednn.Weight()
    return (cell[1], cell[0]) if cell[1] else None


def _matmul(a: Array, b: Array) -> Array:
    if a.size * b.shape[-1] < _SMALL or not _fast(a):
        return _tensor.matmul(a, b)
    return _onednn.matmul(a, b)


def _linear(x: Array, weight: Array, bias: Array | None, cell: Any) -> Array:
    if _fast(x):
        return _onednn.linear(x, weight, bias, _key(cell))
    rows = _tensor.matmul(x.reshape(math.prod(x.shape[:-1]), x.shape[-1]), weight.T)
    rows = rows if bias is None else pointwise.map2(_ADD, rows, bias, rows)
    return rows.reshape(*x.shape[:-1], weight.shape[0])


def _conv2d(x: Array, weight: Array, bias: Array | None, cell: Any, **geometry: Any) -> Array:
    small = x.size * weight.size < _SMALL * x.shape[1]
    if small or not _fast(x):
        return _tensor.conv2d(x, weight, bias, **geometry)
    return _onednn.conv2d(x, weight, bias, **geometry, key=_key(cell))


def _input_grad(g: Array, weight: Array, cell: Any, shape: Any, **geometry: Any) -> Array:
    if _fast(g):
        return _onednn.conv2d_input_grad(g, weight, shape, **geometry, key=_key(cell))
    return _tensor.conv2d_input_grad(g, weight, shape, **geometry)


def _weight_grad(g: Array, x: Array, shape: Any, **geometry: Any) -> Array:
    if _fast(g):
        return _onednn.conv2d_weight_grad(g, x, shape, **geometry, with_bias=False)[0]
    return _tensor.conv2d_weight_grad(g, x, shape, **geometry)


# ---- the device ---------------------------------------------------------------------------------


def _copy(x: Array) -> Array:
    out = _tensor.empty(x.shape, x.dtype)
    _tensor.copy_to(out, x)
    return out


def _cast(x: Array, dtype: Any) -> Array:
    out = _tensor.empty(x.shape, dtype)
    _tensor.copy_to(out, x)
    return out


_ADD, _MUL, _LT = map(pointwise.op_number, ("add", "mul", "lt"))
KERNELS: dict[str, Callable[..., Any]] = {
    "reshape": native_views.reshape,
    "permute": native_views.permute,
    "slice": native_views.slice,
    "expand": native_views.expand,
    "clone": _copy,
    "cast": _cast,
    "where": pointwise.select,
    "bitwise_and": pointwise.bitwise_and,
    "bitwise_or": pointwise.bitwise_or,
    "bitwise_xor": pointwise.bitwise_xor,
    "sum": _reduce("sum"),
    "prod": _reduce("prod"),
    "amax": _reduce("max"),
    "amin": _reduce("min"),
    "var": _tensor.var,
    "any": _reduce("any"),
    "all": _reduce("all"),
    "max_dim": _extreme("max"),
    "min_dim": _extreme("min"),
    "argmax": _place("max"),
    "argmin": _place("min"),
    "cumsum": _cumsum,
    "sort": _sort,
    "take": _take,
    "put_add": _put_add,
    "gather": lambda x, index, dim: _tensor.gather(x, dim, index),
    "scatter_add": lambda x, index, y, dim: _tensor.scatter_add(x, dim, index, y),
    "index_select": lambda x, index, dim: _tensor.index_select(x, dim, index),
    "index_add": _index_add,
    "embedding": _embedding,
    "cat": lambda *arrays, dim: _tensor.cat(arrays, dim),
    "stack": lambda *arrays, dim: _tensor.stack(arrays, dim),
    "pad": _tensor.pad,
    "nll_loss": _tensor.nll_loss,
    "nll_loss_backward": _tensor.nll_loss_backward,
    "matmul": _matmul,
    "linear": _linear,
    "conv2d": _conv2d,
    "conv2d_input_grad": _input_grad,
    "conv2d_weight_grad": _weight_grad,
    "max_pool2d": _tensor.max_pool2d,
    "max_pool2d_backward": lambda g, places, shape: _tensor.max_pool2d_backward(g, places, shape),
    "avg_pool2d": _tensor.avg_pool2d,
    "avg_pool2d_backward": lambda g, shape, **attrs: _tensor.avg_pool2d_backward(g, shape, **attrs),
    "adaptive_avg_pool2d": lambda x, size: _tensor.adaptive_avg_pool2d(x, size),
    "adaptive_avg_pool2d_backward": lambda g, shape: _tensor.adaptive_avg_pool2d_backward(g, shape),
    "batch_norm_train": _tensor.batch_norm,
    "batch_norm_backward": _tensor.batch_norm_backward,
    "layer_norm": _tensor.layer_norm,
    "layer_norm_backward": lambda g, x, weight, mean, rstd, dims, needs: (
        _tensor.layer_norm_backward(g, x, mean, rstd, weight, needs)
    ),
    "attention": _tensor.attention,
    "attention_backward": _tensor.attention_backward,
    "softmax": _tensor.softmax,
    "softmax_backward": _tensor.softmax_backward,
    "log_softmax": _tensor.log_softmax,
    "log_softmax_backward": _tensor.log_softmax_backward,
    "logsumexp": _logsumexp,
    "uniform": _tensor.philox_uniform,
    "normal": _tensor.philox_normal,
    "integers": lambda low, high, shape, seed, offset: _tensor.philox_integers(
        low, high, shape, seed, offset
    ),
    "mask": lambda shape, keep, seed, offset: _tensor.philox_mask(shape, keep, seed, offset),
}


class Cpu(Backend):
    """The native core."""

    name = "cpu"
    keeps = {"linear": 1, "conv2d": 1, "conv2d_input_grad": 1}  # noqa: RUF012
    map1 = staticmethod(pointwise.map1)
    map2 = staticmethod(pointwise.map2)
    map_program = staticmethod(pointwise.map_program)
    empty = staticmethod(_tensor.empty)
    address = staticmethod(views.address)
    view = staticmethod(views.view)

    def __init__(self) -> None:
        memory = views.Memory(_tensor.empty, _tensor.fill, _tensor.copy_to)
        self.kernels = views.kernels(memory) | KERNELS

    def from_numpy(self, array: Any) -> Array:
        """Return the array itself."""
        return array

    def to_numpy(self, array: Array) -> Any:
        """Return the array itself."""
        return array


BACKEND = Cpu()


def set_num_threads(threads: int) -> None:
    """Set how many threads the kernels of the CPU use; all cores if never called.

    Example:
        >>> import tapegrad as tg
        >>> tg.set_num_threads(2)
        >>> tg.get_num_threads()
        2

    """
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise OptionError(f"set_num_threads: expected a number of at least 1, got {threads!r}")
    pointwise.set_num_threads(threads)
    _tensor.set_num_threads(threads)
    if _onednn is not None:
        _onednn.set_num_threads(threads)


def set_packed_limit(bytes: int) -> None:
    """Set how many bytes the packed copies of weights may take in all; 0: none are kept.

    Layers whose weights do not change between two calls keep them as the kernels want them, up to
    1 GiB if this is never called. Copies go with their weights; results are the same bits.

    Example:
        >>> import tapegrad as tg
        >>> tg.set_packed_limit(2**30)
        >>> tg.get_packed_limit() // 2**20
        1024

    """
    if isinstance(bytes, bool) or not isinstance(bytes, int) or not 0 <= bytes < 2**63:
        raise OptionError(f"set_packed_limit: expected a number of bytes, got {bytes!r}")
    if _onednn is not None:
        _onednn.set_packed_limit(bytes)


def get_packed_limit() -> int:
    """Return how many bytes the packed copies of weights may take in all."""
    return 0 if _onednn is None else _onednn.packed_limit()


def get_num_threads() -> int:
    """Return how many threads the kernels of the CPU use."""
    return _tensor.get_num_threads()
