"""The reference device: NumPy, plain and slow; the tests' oracle and the fallback anywhere."""

# Kernels take arrays by place and attributes by name, which lambdas give them.
# ruff: noqa: PLR0917, PLW0108

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad import _core
from tapegrad.backends import Backend, philox, views
from tapegrad.backends import reference_images as images
from tapegrad.backends import reference_norms as norms
from tapegrad.errors import DTypeError, OptionError, ShapeError
from tapegrad.scalar.c_source import PAIRED, Instruction

Array = Any


def _erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=[x.dtype])(x)


def _erfc(x: Array) -> Array:
    return np.vectorize(math.erfc, otypes=[x.dtype])(x)


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small)).astype(x.dtype)


#: The scalar op table in NumPy's words.
ELEMENTWISE: dict[str, Callable[..., Array]] = {
    "neg": lambda a: -a,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "masked_mul": lambda a, b: np.where(a == 0, a, a * b),
    "masked_both": lambda a, b: np.where(a == 0, a, np.where(b == 0, b, a * b)),
    "pow": np.power,
    "sqrt": np.sqrt,
    "square": lambda a: a * a,
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "log2": np.log2,
    "log10": np.log10,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "softplus": lambda a: np.logaddexp(a, np.zeros_like(a)),
    "relu": lambda a: np.maximum(a, 0),
    "gelu": lambda a: np.where(a < -40, -0.0, 0.5 * a * _erfc(-a / math.sqrt(2))),
    "erf": _erf,
    "erfc": _erfc,
    "abs": np.abs,
    "sign": np.sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,
    "floor_divide": np.floor_divide,
    "remainder": np.remainder,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "hypot": np.hypot,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
_INTEGER = (
    *_COMPARISONS,
    *("neg", "add", "sub", "mul", "square", "relu", "abs", "sign", "floor", "ceil"),
    *("trunc", "round", "floor_divide", "remainder", "minimum", "maximum"),
)
_NAMES = {_core.pointwise.op_number(name): name for name in ELEMENTWISE}


def promoted(operands: tuple[Any, ...]) -> np.dtype[Any]:
    """Return the type of a result by PyTorch's rule: arrays count before numbers."""
    order = ["bool", "int32", "int64", "float32", "float64"]

    def kind(rank: int) -> int:
        return -1 if rank < 0 else (0, 1, 1, 2, 2)[rank]

    ranks = [-1, -1, -1]
    for each in operands:
        if isinstance(each, np.ndarray):
            place, name = (0 if each.ndim else 1), each.dtype.name
        else:
            place = 2
            kind_of_number = np.asarray(each).dtype.kind
            if kind_of_number not in "biuf":
                raise DTypeError(f"expected arrays and real numbers, got {type(each).__name__}")
            name = {"b": "bool", "i": "int64", "u": "int64"}.get(kind_of_number, "float32")
        ranks[place] = max(ranks[place], order.index(name))
    out = ranks[0]
    for rank in ranks[1:]:
        if kind(rank) > kind(out):
            out = max(out, rank)
    return np.dtype(order[out])


def _elementwise(name: str, operands: tuple[Any, ...], out: Array | None) -> Array:
    kind = promoted(operands[1:] if name == "where" else operands)
    if kind.kind != "f" and name not in (*_INTEGER, "where"):
        kind = np.dtype(np.float32)
    compute = np.dtype(np.int32) if kind.kind == "b" else kind
    _check_signed(name, operands)
    _common_shape(name, operands)
    with np.errstate(all="ignore"):
        if name == "where":
            if np.asarray(operands[0]).dtype != bool:
                raise DTypeError(
                    "where: expected a condition of bool, got "
                    f"{np.asarray(operands[0]).dtype}; compare first, as x > 0"
                )
            a, b = (np.asarray(x).astype(kind) for x in operands[1:])
            found = np.where(np.asarray(operands[0]), a, b)
        else:
            given = [np.asarray(x).astype(compute) for x in operands]
            found = np.asarray(ELEMENTWISE[name](*given))
    found = found.astype(bool if name in _COMPARISONS else kind, order="C")
    if out is None:
        return found
    _store(name, found, out)
    return out


def _bits(name: str) -> Callable[[Array, Array], Array]:
    def kernel(a: Array, b: Array) -> Array:
        kind = promoted((a, b))
        _common_shape(name, (a, b))
        return np.asarray(getattr(np, name)(a.astype(kind), b.astype(kind)))

    return kernel


def _store(name: str, found: Array, out: Array) -> None:
    """Write a result into an array that can hold it."""
    if "bif".index(found.dtype.kind) > "bif".index(out.dtype.kind):
        raise DTypeError(
            f"{name}: a result of type {found.dtype} cannot be stored in this array; convert it "
            "first"
        )
    if found.shape != out.shape:
        raise ShapeError(f"{name}: the result {found.shape} does not fit into shape {out.shape}")
    if not out.flags.writeable:
        raise ShapeError(
            f"{name}: the memory of the result cannot be written: it is that of an expanded view, "
            "or of an array that is read-only; use x.clone()"
        )
    out[...] = found


def _check_signed(name: str, operands: tuple[Any, ...]) -> None:
    """Refuse differences and negatives of bools: who writes 1 - mask means its opposite."""
    if name in ("sub", "neg") and any(np.asarray(x).dtype.kind == "b" for x in operands):
        raise DTypeError(
            f"{name}: expected numbers, got bool; use ~ or ^ for what is true, or convert it "
            "first, as by x.int()"
        )


def _common_shape(name: str, operands: tuple[Any, ...]) -> tuple[int, ...]:
    shapes = [np.shape(x) for x in operands]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        text = " and ".join(map(str, shapes))
        raise ShapeError(f"{name}: shapes {text} do not broadcast") from None


# ---- programs -----------------------------------------------------------------------------------


def _instruction(name: str, values: list[Array], n: int) -> list[Array]:
    """Run one line of a program's listing."""
    if name in PAIRED:
        return [np.asarray(ELEMENTWISE[each](*values)) for each in PAIRED[name]]
    if name in ELEMENTWISE:
        found = np.asarray(ELEMENTWISE[name](*values))
        return [found.astype(values[0].dtype)]
    if name == "where":
        return [np.where(values[0] != 0, values[1], values[2])]
    if name in ("sub_product", "product_sub"):
        a, b, c = values
        return [a - b * c if name == "sub_product" else a * b - c]
    if name == "sumdot":
        pairs = values[n:]
        products = [a * b for a, b in zip(pairs[::2], pairs[1::2], strict=True)]
        return [sum([*values[:n], *products][1:], [*values[:n], *products][0])]
    return _over_operands(name, np.stack(np.broadcast_arrays(*values)))


def _over_operands(name: str, whole: Array) -> list[Array]:
    """Run an instruction of many operands, which lie in the first dimension."""
    if name == "softmax":
        return list(_softmax(whole, 0))
    if name == "softmax_vjp":
        y, g = np.split(whole, 2)
        return list(y * (g - (y * g).sum(0)))
    if name == "logsumexp":
        return [_logsumexp(whole, (0,), keepdim=False)]
    if name in ("prod", "max", "min"):
        return [getattr(whole, name)(0)]
    raise OptionError(f"elementwise: the reference device runs no {name}; use the device 'cpu'")


# ---- reductions ---------------------------------------------------------------------------------


def _reduce(function: Callable[..., Array]) -> Callable[..., Array]:
    def kernel(x: Array, dims: tuple[int, ...], keepdim: bool) -> Array:
        found = np.asarray(function(x, axis=dims, keepdims=keepdim))
        return found.astype(x.dtype) if x.dtype.kind == "f" else found

    return kernel


def _var(x: Array, dims: tuple[int, ...], keepdim: bool, correction: float) -> Array:
    count = math.prod(x.shape[d] for d in dims)
    far = x - np.sum(x, axis=dims, keepdims=True) / x.dtype.type(count)
    total = np.sum(far * far, axis=dims, keepdims=keepdim)
    return np.asarray(total / x.dtype.type(max(count - correction, 0)))


def _extreme(name: str) -> Callable[..., tuple[Array, Array]]:
    def kernel(x: Array, dim: int, keepdim: bool) -> tuple[Array, Array]:
        if not x.ndim:
            return x.copy(), np.zeros((), np.int64)
        places = np.expand_dims(getattr(np, f"arg{name}")(x, axis=dim), dim).astype(np.int64)
        values = np.take_along_axis(x, places, dim)
        return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))

    return kernel


def _cumsum(x: Array, dim: int) -> Array:
    computed = np.float64 if x.dtype.kind == "f" else np.int64
    found = np.cumsum(x, axis=dim, dtype=computed) if x.ndim else x.copy()
    return found.astype(x.dtype if x.dtype.kind == "f" else np.int64).reshape(x.shape)


# ---- indices ------------------------------------------------------------------------------------


def _checked(index: Array, size: int) -> Array:
    """Return indices if all of them lie within a size."""
    if index.size and not (int(index.min()) >= 0 and int(index.max()) < size):
        raise IndexError(
            f"indices from {int(index.min())} to {int(index.max())} are not all within 0 to "
            f"{size - 1}"
        )
    return index


def _put_add(x: Array, index: Any, shape: tuple[int, ...]) -> Array:
    out = np.zeros(shape, x.dtype)
    np.add.at(out, index, x)
    return out


def _gather(x: Array, index: Array, dim: int) -> Array:
    _checked(index, x.shape[dim])
    cut = tuple(slice(None) if d == dim else slice(n) for d, n in enumerate(index.shape))
    return np.take_along_axis(x[cut], index, dim)


def _scatter_add(x: Array, index: Array, y: Array, dim: int) -> Array:
    _checked(index, x.shape[dim])
    out = x.copy()
    places = list(np.indices(index.shape))
    places[dim] = index
    np.add.at(out, tuple(places), y)
    return out


def _index_add(x: Array, index: Array, dim: int, size: int) -> Array:
    out = np.zeros((*x.shape[:dim], size, *x.shape[dim + 1 :]), x.dtype)
    np.add.at(np.moveaxis(out, dim, 0), _checked(index, size), np.moveaxis(x, dim, 0))
    return out


# ---- matrices ------------------------------------------------------------------------


def _linear(x: Array, weight: Array, bias: Array | None) -> Array:
    y = x @ weight.T
    return y if bias is None else y + bias


# ---- softmax and attention ----------------------------------------------------------------------


def _softmax(x: Array, dim: int) -> Array:
    if not x.ndim:
        return np.ones_like(x)
    shifted = np.exp(x - x.max(dim, keepdims=True, initial=-np.inf))
    return (shifted / shifted.sum(dim, keepdims=True, dtype=np.float64)).astype(x.dtype)


def _log_softmax(x: Array, dim: int) -> Array:
    if not x.ndim:
        return np.zeros_like(x)
    shifted = x - x.max(dim, keepdims=True, initial=-np.inf)
    total = np.exp(shifted).sum(dim, keepdims=True, dtype=np.float64)
    return shifted - np.log(total).astype(x.dtype)


def _sort(x: Array, dim: int, descending: bool, count: int) -> tuple[Array, Array]:
    if descending:  # from the end, so that of equal elements the first comes first
        places = x.shape[dim] - 1 - np.flip(np.argsort(np.flip(x, dim), dim, kind="stable"), dim)
    else:
        places = np.argsort(x, dim, kind="stable")
    places = np.take(places, np.arange(count), dim).astype(np.int64)
    return np.take_along_axis(x, places, dim), places


def _logsumexp(x: Array, dims: tuple[int, ...], keepdim: bool) -> Array:
    top = x.max(dims, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0).astype(x.dtype)
    total = np.exp(x - top).sum(dims, keepdims=True, dtype=np.float64)
    found = (np.log(total) + top).astype(x.dtype)
    shape = tuple(n for d, n in enumerate(found.shape) if keepdim or d not in dims)
    return np.asarray(found.reshape(shape))


def _factors(
    kind: Any, target: Array, weight: Array | None, classes: int, ignore_index: int
) -> tuple[Array, Array]:
    """Return classes that exist, and their factors: 0 for the one that does not count."""
    counted = target != ignore_index
    known = _checked(np.where(counted, target, 0), classes)
    factors = np.ones(target.shape, kind) if weight is None else weight[known]
    return known, np.where(counted, factors, np.zeros((), kind))


def _nll(
    x: Array, target: Array, weight: Array | None, dim: int, ignore_index: int, reduction: str
) -> tuple[Array, Array]:
    known, factors = _factors(x.dtype, target, weight, x.shape[dim], ignore_index)
    picked = np.take_along_axis(x, np.expand_dims(known, dim), dim).squeeze(dim)
    losses = np.where(target == ignore_index, np.zeros((), x.dtype), -picked * factors)
    total = np.asarray(factors.sum())
    if reduction == "none":
        return losses, total
    return np.asarray(losses.sum() / (total if reduction == "mean" else 1)).astype(x.dtype), total


def _nll_backward(
    g: Array,
    target: Array,
    weight: Array | None,
    total: Array,
    *,
    shape: tuple[int, ...],
    dim: int,
    ignore_index: int,
    reduction: str,
) -> Array:
    known, factors = _factors(g.dtype, target, weight, shape[dim], ignore_index)
    values = -g * factors / (total if reduction == "mean" else np.ones((), g.dtype))
    values = np.where(target == ignore_index, np.zeros((), g.dtype), values)
    out = np.zeros(shape, g.dtype)
    np.put_along_axis(out, np.expand_dims(known, dim), np.expand_dims(values, dim), dim)
    return out


def _attention(
    q: Array, k: Array, v: Array, mask: Array | None, scale: float, is_causal: bool
) -> tuple[Array, Array]:
    scores = (q @ k.swapaxes(-1, -2)) * q.dtype.type(scale)
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:]) > 0, scores, -np.inf)
    scores = scores if mask is None else scores + mask
    nothing = np.isneginf(scores).all(-1, keepdims=True)  # a query that sees no key
    p = np.where(nothing, 0, _softmax(scores, -1)).astype(q.dtype)
    return p @ v, p


def _attention_backward(
    g: Array, q: Array, k: Array, v: Array, p: Array, scale: float
) -> tuple[Array, ...]:
    gp = g @ v.swapaxes(-1, -2)
    gs = p * (gp - (gp * p).sum(-1, keepdims=True)) * q.dtype.type(scale)
    return gs @ k, gs.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ g


# ---- the device ---------------------------------------------------------------------------------


def _quiet(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Let NaN and infinity pass without a warning, as kernels do."""

    def called(*args: Any, **attrs: Any) -> Any:
        with np.errstate(all="ignore"):
            return kernel(*args, **attrs)

    return called


def _packed(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Let results lie in order, as those of kernels do; NumPy's lie as the operands do."""

    def called(*args: Any, **attrs: Any) -> Any:
        found = kernel(*args, **attrs)
        if isinstance(found, tuple):
            return tuple([np.asarray(each, order="C") for each in found])
        return np.asarray(found, order="C")

    return called


KERNELS: dict[str, Callable[..., Any]] = {
    "clone": lambda x: x.copy(order="C"),
    "cast": lambda x, dtype: x.astype(dtype),
    "where": lambda c, a, b: _elementwise("where", (c, a, b), None),
    "bitwise_and": _bits("bitwise_and"),
    "bitwise_or": _bits("bitwise_or"),
    "bitwise_xor": _bits("bitwise_xor"),
    "sum": _reduce(np.sum),
    "prod": _reduce(np.prod),
    "amax": _reduce(np.max),
    "amin": _reduce(np.min),
    "var": _var,
    "any": lambda x, dims, keepdim: np.asarray(np.any(x, axis=dims, keepdims=keepdim)),
    "all": lambda x, dims, keepdim: np.asarray(np.all(x, axis=dims, keepdims=keepdim)),
    "max_dim": _extreme("max"),
    "min_dim": _extreme("min"),
    "argmax": lambda x, dim, keepdim: _extreme("max")(x, dim, keepdim)[1],
    "argmin": lambda x, dim, keepdim: _extreme("min")(x, dim, keepdim)[1],
    "cumsum": _cumsum,
    "sort": _sort,
    "take": lambda x, index: views.take(x, index, np.ascontiguousarray),
    "put_add": _put_add,
    "gather": _gather,
    "scatter_add": _scatter_add,
    "index_select": lambda x, index, dim: np.take(
        x, _checked(index.reshape(-1), x.shape[dim]), dim
    ),
    "index_add": _index_add,
    "embedding": lambda weight, index, **_: weight[_checked(index, weight.shape[0])],
    "matmul": np.matmul,
    "linear": _linear,
    "conv2d": images.conv2d,
    "conv2d_input_grad": images.input_grad,
    "conv2d_weight_grad": images.weight_grad,
    "max_pool2d": images.max_pool2d,
    "max_pool2d_backward": images.max_pool2d_backward,
    "avg_pool2d": images.avg_pool2d,
    "avg_pool2d_backward": images.avg_pool2d_backward,
    "adaptive_avg_pool2d": images.adaptive,
    "adaptive_avg_pool2d_backward": images.adaptive_backward,
    "batch_norm_train": norms.batch_norm,
    "batch_norm_backward": norms.batch_norm_backward,
    "layer_norm": norms.layer_norm,
    "layer_norm_backward": norms.layer_norm_backward,
    "softmax": _softmax,
    "softmax_backward": lambda g, y, dim: (
        y * (g - (g * y).sum(dim if y.ndim else (), keepdims=True))
    ),
    "log_softmax": _log_softmax,
    "log_softmax_backward": lambda g, y, dim: (
        g - np.exp(y) * g.sum(dim if y.ndim else (), keepdims=True)
    ),
    "logsumexp": _logsumexp,
    "nll_loss": _nll,
    "nll_loss_backward": _nll_backward,
    "attention": _attention,
    "attention_backward": _attention_backward,
    "uniform": philox.uniform,
    "normal": philox.normal,
    "integers": philox.integers,
    "mask": lambda shape, keep, seed, offset: philox.mask(shape, keep, seed, offset),
}


def _write(x: Array, y: Array) -> None:
    x[...] = y


class Reference(Backend):
    """NumPy."""

    name = "reference"
    address = staticmethod(views.address)
    view = staticmethod(views.view)

    def __init__(self) -> None:
        moving = views.kernels(views.Memory(self.empty, np.ndarray.fill, _write))
        computing = {name: _packed(kernel) for name, kernel in KERNELS.items()}
        self.kernels = {name: _quiet(kernel) for name, kernel in (moving | computing).items()}

    def from_numpy(self, array: Any) -> Array:
        """Return the array itself."""
        return array

    def to_numpy(self, array: Array) -> Any:
        """Return the array itself."""
        return array

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return an array whose elements are not set."""
        return np.empty(shape, dtype)

    def map1(self, op: int, a: Array, out: Array | None = None) -> Array:
        """Apply an operation of the scalar table to every element."""
        return _elementwise(_NAMES[op], (a,), out)

    def map2(self, op: int, a: Any, b: Any, out: Array | None = None) -> Array:
        """Apply an operation of two operands, broadcast."""
        return _elementwise(_NAMES[op], (a, b), out)

    def map_program(
        self, program: Any, operands: tuple[Any, ...], out: tuple[Array, ...] | None = None
    ) -> tuple[Array, ...]:
        """Run a scalar program line by line."""
        kind = np.dtype(program.dtype)
        listing = program.listing()
        shape = _common_shape("elementwise", operands)
        values: dict[int, Array] = {
            value: np.asarray(x).astype(kind)
            for value, x in zip(listing["inputs"], operands, strict=True)
            if value is not None
        }
        values |= {value: np.asarray(number, kind) for value, number in listing["constants"]}
        with np.errstate(all="ignore"):
            self._run(listing["instructions"], values)
        found = [
            np.array(np.broadcast_to(values[each], shape), dtype=kind, order="C")
            for each in listing["outputs"]
        ]
        if out is None:
            return tuple(found)
        for target, source in zip(out, found, strict=True):
            _store("elementwise", source, target)
        return out

    def _run(self, instructions: Any, values: dict[int, Array]) -> None:
        for line in instructions:
            each = Instruction(*line)
            operands = [values[value] for value in each.operands]
            for i, result in enumerate(_instruction(each.kernel, operands, each.n)):
                values[each.first + i] = result


BACKEND = Reference()
