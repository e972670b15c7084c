"""Elements by their place: slices, lists of indices, masks."""

# Arguments come in PyTorch's order.
# ruff: noqa: PLR0917

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

import numpy as np

from tapegrad import _core
from tapegrad._core import rules
from tapegrad._core.arguments import plain_index
from tapegrad.errors import DTypeError, OptionError, ShapeError, TapegradError
from tapegrad.tensors import creation, in_place
from tapegrad.tensors.autograd import MODE, Node, no_grad
from tapegrad.tensors.base import TensorBase
from tapegrad.tensors.ops import dims as _dims
from tapegrad.tensors.ops import elementwise as _e
from tapegrad.tensors.ops.composite import composite
from tapegrad.tensors.ops.matmul import as_rows
from tapegrad.tensors.ops.shape import SLICE
from tapegrad.tensors.registry import Draw, Op, Sample, common_device, define, moved

if TYPE_CHECKING:
    from tapegrad.tensors.methods import Tensor


def _cost(x: Tensor, *_: Any, **attrs: Any) -> Any:
    return moved(x.shape, x.shape)


# ---- x[...] -------------------------------------------------------------------------------------

_ALL = slice(None)
_PLACES = (_ALL, np.array([[0, 2], [2, -4]]))
_APART = (np.array([0, 2, 2]), _ALL, np.array([[1], [-1]]))

_TAKE = define(
    name="take",
    total=True,
    function=None,
    doc="x[...] by lists of indices or masks among whole dimensions: a copy",
    rule=lambda x, index: None,
    vjp=lambda node, g: _PUT_ADD(g, index=node.attrs["index"], shape=node.shapes[0]),
    cost=_cost,
    samples=[Sample((3, 4), index=_PLACES), Sample((3, 2, 2), index=_APART)],
)
_PUT_ADD: Op = define(
    name="put_add",
    total=True,
    function=None,
    doc="zeros with x added in the places of lists of indices",
    rule=lambda x, index, shape: shape,
    vjp=lambda node, g: _TAKE(g, index=node.attrs["index"]),
    cost=_cost,
    samples=[
        Sample((3, 2, 2), index=_PLACES, shape=(3, 4)),
        Sample((2, 3, 2), index=_APART, shape=(3, 2, 2)),
    ],
)


def getitem(input: Tensor, index: Any) -> Tensor:
    """Return x[index]: a view for slices and whole numbers, a copy for lists and masks."""
    slices = plain_index(index)
    places: tuple[Any, ...] | None = None
    if slices is None:
        if isinstance(index, TensorBase) and index._array.ndim:
            places = (_item(index),)
        else:
            slices, places = _split(index, input._array.ndim)
        if places is not None and input._requires_grad:  # what the way back needs nobody changes
            places = _own(places)
    try:
        return _chosen(input, slices, places)
    except IndexError as error:
        raise IndexError(f"x[...]: {error}, shape {input.shape}") from None


def _chosen(x: Tensor, slices: Any, places: Any) -> Tensor:
    x = x if slices is None else SLICE(x, index=slices)
    return x if places is None else _TAKE(x, index=places)


def _split(index: Any, ndim: int) -> tuple[Any, Any]:
    """Return an index as slices and whole numbers, and as lists of places in what these leave.

    Either is None where it has nothing to do. Whole numbers come first, as in PyTorch: to NumPy
    they are lists of one place, which may move the dimension of another list to the front.
    """
    items = [_item(each) for each in (index if isinstance(index, tuple) else (index,))]
    if not builtins.any(isinstance(each, np.ndarray) for each in items):
        return plain_index(tuple(items)), None
    unnamed = ndim - builtins.sum(_width(each) for each in items)
    slices: list[Any] = []
    places: list[Any] = []
    for each in items:
        if isinstance(each, np.ndarray):
            slices += [_ALL] * _width(each) if each.ndim else [None]
            places.append(each if each.ndim else each.reshape(1))
        else:
            slices.append(each)
            if each is Ellipsis:
                places += [_ALL] * unnamed
            elif not isinstance(each, int):
                places.append(_ALL)
    whole = builtins.all(each is Ellipsis or each == _ALL for each in slices)
    return None if whole else plain_index(tuple(slices)), tuple(places)


def _own(places: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return lists of places that are nobody else's."""
    return tuple([each if each is _ALL else each.copy() for each in places])


def _width(item: Any) -> int:
    """Return how many dimensions an item of an index stands for."""
    if isinstance(item, np.ndarray):
        return item.ndim if item.dtype.kind == "b" else 1
    return int(item is not None and item is not Ellipsis)


def _item(each: Any) -> Any:
    if isinstance(each, TensorBase):
        if each._array.dtype.kind == "f":
            raise DTypeError(
                f"x[...]: expected whole numbers or a mask as index, got {each.dtype}; "
                "use i.long() or i.bool()"
            )
        each = each._device.to_numpy(each._array)
    if isinstance(each, (list, tuple, np.ndarray)):
        return _listed(each)
    if each is None or each is Ellipsis or isinstance(each, slice):
        return each
    if isinstance(each, (bool, np.bool_)):
        return np.asarray(each)
    try:
        return each.__index__()
    except AttributeError:
        raise DTypeError(
            f"x[...]: {type(each).__name__} is no index; use whole numbers, slices, None, ..., "
            "or lists, masks and tensors of whole numbers"
        ) from None


def _listed(each: Any) -> Any:
    """Return a list of places, or a mask; a list without dimensions is a whole number."""
    try:
        array = np.asarray(each)
    except ValueError as error:
        raise ShapeError(f"x[...]: {error}") from None
    kind = array.dtype.kind
    if kind not in "biu" and array.size:
        raise DTypeError(f"x[...]: expected whole numbers or a mask as index, got {array.dtype}")
    if kind == "b":
        return array
    return array.astype(np.int64, copy=False) if array.ndim else int(array)


def setitem(input: Tensor, index: Any, value: Any) -> None:
    """Write into x[index] in place."""
    if input._inference:
        in_place.refuse_inference("x[...] = y", input)
    slices, places = plain_index(index), None
    if slices is None:
        slices, places = _split(index, input._array.ndim)
    source = _without_ones(creation.scalar_like("x[...] = y", value, input))
    device = common_device("x[...] = y", (input, source))
    wanted = source._requires_grad and input.is_floating_point()
    recorded = (wanted or _core.has_history(input)) and MODE.enabled
    if recorded:
        in_place.check("x[...] = y", input)
        places = places if places is None else _own(places)
    try:
        target = input._array if slices is None else input._array[slices]
        _check_target(target, source if places is None else None)
        device.kernels["write"](target, source._array, places=places)
    except IndexError as error:
        raise IndexError(f"x[...] = y: {error}, shape {input.shape}") from None
    except (ValueError, TypeError) as error:
        if isinstance(error, TapegradError):
            raise
        room = _chosen(input.detach(), slices, places).shape
        raise ShapeError(
            f"x[...] = y: expected y to broadcast to {room}, got {source.shape}"
        ) from None
    _core.changed(input)
    if recorded:
        in_place.note(_PLACE, (input, source), input, {"slices": slices, "places": places})
        in_place.follow(input)


def put(input: Tensor, indices: Any, values: Tensor, accumulate: bool) -> Tensor:
    """Write values into x[indices] in place, or add them there, as often as a place is named."""
    if not accumulate:
        setitem(input, tuple(indices), values)
        return input
    slices, places = _split(tuple(indices), input._array.ndim)
    target = input if slices is None else SLICE(input, index=slices)
    if places is None:
        target.add_(values)
        return input
    places = _own(places)
    room = _TAKE(target.detach(), index=places).shape
    target.add_(_PUT_ADD(values.expand(room), index=places, shape=target.shape))
    return input


def _without_ones(source: Tensor) -> Tensor:
    """Return y without dimensions of one element in front, which broadcasting gives back."""
    shape = source._array.shape
    if not shape or shape[0] != 1:
        return source
    ones = next((d for d, size in enumerate(shape) if size != 1), len(shape))
    return source.reshape(shape[ones:])


def _check_target(target: Any, source: Tensor | None) -> None:
    """Refuse memory that cannot be written, and what does not broadcast to its shape."""
    if not target.flags.writeable:
        raise ShapeError(
            "x[...] = y: the memory of x cannot be written: it is that of an expanded view, or of "
            "an array that is read-only; use x.clone()"
        )
    given = source._array.shape if source is not None else ()
    if given and _dims.broadcast("x[...] = y", target.shape, given) != target.shape:
        raise ShapeError(f"x[...] = y: expected y to broadcast to {target.shape}, got {given}")


def _place_vjp(node: Node, g: Tensor) -> tuple[Any, Any]:
    zero = creation.scalar_like("place", 0.0, g)
    kept = _PLACE(g, zero, **node.attrs) if node.needs[0] else None
    return kept, _chosen(g, **node.attrs) if node.needs[1] else None


_PLACE = define(
    name="place",
    total=True,
    function=None,
    doc="a copy of x with y in the place of x[...]",
    rule=lambda x, y, slices, places: x.shape,
    vjp=_place_vjp,
    cost=_cost,
    samples=[
        Sample((3, 4), (2, 2), slices=(slice(None, None, 2), slice(1, 3)), places=None),
        Sample((3, 4), (2, 1), slices=(slice(None, None, 2), slice(1, 3)), places=None),
        Sample((3, 4), (2,), slices=(1, ...), places=(np.array([3, 0]),)),
    ],
)

# ---- by layouts, for changes in place -----------------------------------------------------------

_DENSE = ((3, 4), (4, 1), 0)
_APART_IN_MEMORY = ((3, 2), (-2, 7), 0)


def _look_vjp(node: Node, g: Tensor) -> Tensor:
    """Return zeros with the gradient where the view looks; its elements may stand for several."""
    shape, steps, start = node.attrs["seen"]
    several = [d for d, step in enumerate(steps) if not step and shape[d] > 1]
    if several:
        g = g.sum(several, True)
    zeros = creation.zeros(node.shapes[0], dtype=g.dtype, device=g.device)
    found: Tensor = _COVER(zeros, g, have=node.attrs["have"], seen=(g.shape, steps, start))
    return found


_LOOK = define(
    name="look",
    total=True,
    function=None,
    doc="the elements of x that a view looks at, by its layout: a copy",
    rule=lambda x, have, seen: seen[0],
    vjp=_look_vjp,
    cost=_cost,
    samples=[
        Sample((3, 4), have=_DENSE, seen=((2, 2), (4, 2), 5)),
        Sample((3, 4), have=_DENSE, seen=((2, 3), (0, -4), 10)),
        Sample((3, 2), have=_APART_IN_MEMORY, seen=((2,), (7,), -2)),
    ],
)
_COVER: Op = define(
    name="cover",
    total=True,
    function=None,
    doc="a copy of x with y where a view looks, by its layout",
    rule=lambda x, y, have, seen: have[0],
    vjp=lambda node, g: (
        _COVER(g, creation.scalar_like("cover", 0.0, g), **node.attrs) if node.needs[0] else None,
        _LOOK(g, **node.attrs) if node.needs[1] else None,
    ),
    cost=_cost,
    samples=[
        Sample((3, 4), (2, 2), have=_DENSE, seen=((2, 2), (4, 2), 5)),
        Sample((3, 2), (2,), have=_APART_IN_MEMORY, seen=((2,), (7,), -2)),
    ],
)

# ---- along a dimension --------------------------------------------------------------------------


_GATHER = define(
    name="gather",
    doc="elements of x along a dimension, one per index",
    rule=rules.gather,
    vjp=lambda node, g: (put_along(node.shapes[0], node.attrs["dim"], node.inputs[1], g), None),
    saves=(1,),
    cost=_cost,
    samples=[Sample((3, 4), Draw((2, 4), 0, 3, "int64"), dim=0)],
    benchmark="gather",
)
_SCATTER_ADD = define(
    name="scatter_add",
    doc="x with y added along a dimension, one element per index",
    rule=rules.scatter_add,
    vjp=lambda node, g: (
        g,
        None,
        gather(g, node.attrs["dim"], node.inputs[1]) if node.needs[2] else None,
    ),
    saves={2: (1,)},
    cost=_cost,
    samples=[Sample((3, 4), Draw((2, 4), 0, 3, "int64"), (2, 4), dim=0)],
    benchmark="scatter_add",
)


def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """Return x[i, index[i, j]] for dim 1, and so on: one element per index."""
    if sparse_grad:
        raise OptionError("gather: there are no sparse gradients; leave sparse_grad=True out")
    found: Tensor = _GATHER(input, index, dim=_dims.own("gather", dim, input._array.ndim))
    return found


def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Return x with src[i, j] added to x[i, index[i, j]] for dim 1, and so on."""
    if src._array.dtype != input._array.dtype:
        raise DTypeError(f"scatter_add: expected src of {input.dtype}, got {src.dtype}")
    if src.shape != index.shape:
        src = _first(src, index.shape)
    found: Tensor = _SCATTER_ADD(input, index, src, dim=_dims.own("scatter_add", dim, input.ndim))
    return found


def _first(src: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return the part of src that indices of a shape name: as many first elements."""
    have = src.shape
    if len(have) != len(shape) or builtins.any(n > m for n, m in zip(shape, have, strict=True)):
        raise ShapeError(f"scatter_add: expected src of at least shape {shape}, got {have}")
    part: Tensor = SLICE(src, index=(*[slice(size) for size in shape], ...))
    return part


def put_along(shape: tuple[int, ...], dim: int, index: Tensor, g: Tensor) -> Tensor:
    """Return zeros of a shape with g added along a dimension, one element per index."""
    return scatter_add(creation.zeros(shape, dtype=g.dtype, device=g.device), dim, index, g)


def _select_rule(x: Tensor, index: Tensor, dim: int) -> None:
    rules.check_index("index_select", index)
    if index.ndim > 1:
        raise ShapeError(f"index_select: expected indices in one dimension, got {index.shape}")


_INDEX_SELECT = define(
    name="index_select",
    doc="slices of x along a dimension, one per index",
    rule=_select_rule,
    vjp=lambda node, g: (
        _INDEX_ADD(
            g, node.inputs[1], dim=node.attrs["dim"], size=node.shapes[0][node.attrs["dim"]]
        ),
        None,
    ),
    saves=(1,),
    cost=_cost,
    samples=[Sample((3, 4), Draw((5,), 0, 3, "int64"), dim=0)],
    benchmark="index_select",
)
_INDEX_ADD: Op = define(
    name="index_add",
    function=None,
    doc="zeros with slices added along a dimension, one per index",
    rule=lambda x, index, dim, size: None,
    vjp=lambda node, g: (index_select(g, node.attrs["dim"], node.inputs[1]), None),
    saves=(1,),
    cost=_cost,
    samples=[Sample((5, 2), Draw((5,), 0, 3, "int64"), dim=0, size=3)],
)


def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """Return slices of x along a dimension, one per index."""
    found: Tensor = _INDEX_SELECT(input, index, dim=_dims.own("index_select", dim, input.ndim))
    return found


def _embedding_vjp(node: Node, g: Tensor) -> tuple[Any, None]:
    index, padding = node.inputs[1], node.attrs["padding_idx"]
    flat = index.reshape((-1,))
    rows = as_rows(g)
    count = node.shapes[0][0]
    if padding >= 0:
        rows = rows * (flat != padding).to(g.dtype).reshape((-1, 1))
    if node.attrs["by_frequency"]:
        ones = creation.ones((flat.numel(), 1), dtype=g.dtype, device=g.device)
        rows = rows / index_select(_INDEX_ADD(ones, flat, dim=0, size=count), 0, flat)
    return _INDEX_ADD(rows, flat, dim=0, size=count), None


def _embedding_rule(weight: Tensor, index: Tensor, padding_idx: int, by_frequency: bool) -> None:
    rules.check_index("embedding", index)
    if weight.ndim != 2:
        raise ShapeError(f"embedding: expected a weight of two dimensions, got {weight.shape}")


_EMBEDDING = define(
    name="embedding",
    doc="rows of a table, one per index",
    rule=_embedding_rule,
    vjp=_embedding_vjp,
    saves=(1,),
    cost=_cost,
    samples=[Sample(Draw((2, 3), 0, 5, "int64"), (5, 4))],
    benchmark="embedding",
)


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Return the rows of `weight` that x names.

    Args:
        input: Places of rows.
        weight: A matrix.
        padding_idx: A row that gets no gradient.
        max_norm: The largest norm of rows; those named whose norm is above it are scaled down to
            it in `weight` itself.
        norm_type: Which norm that is.
        scale_grad_by_freq: Divide the gradient of a row by how often it is named.
        sparse: Not there: gradients are as large as `weight`.

    """
    if sparse:
        raise OptionError("embedding: there are no sparse gradients; leave sparse=True out")
    rows = weight.shape[0] if weight.ndim else 0
    place = -1 if padding_idx is None else padding_idx + rows * (padding_idx < 0)
    if padding_idx is not None and not 0 <= place < rows:
        raise ShapeError(f"embedding: padding_idx {padding_idx} is no row of {weight.shape}")
    if max_norm is not None:
        _embedding_rule(weight, input, place, scale_grad_by_freq)
        with no_grad():
            _shorten(weight, input.flatten(), max_norm, norm_type)
    found: Tensor = _EMBEDDING(weight, input, padding_idx=place, by_frequency=scale_grad_by_freq)
    return found


def _shorten(weight: Tensor, places: Tensor, max_norm: float, norm_type: float) -> None:
    """Scale rows that are too long down in place, as PyTorch does: a little below the bound."""
    rows = index_select(weight, 0, places)
    norms = rows.norm(norm_type, 1, True)
    setitem(weight, places, _e.where(norms > max_norm, rows * (max_norm / (norms + 1e-7)), rows))


@composite(Sample(Draw((2, 3), 0, 5, "int64"), num_classes=5))
def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    """Return a 1 at the place of each index among `num_classes` zeros."""
    rules.check_index("one_hot", input)
    if not input.numel() and num_classes < 1:
        raise ShapeError("one_hot: no element says how many classes there are; name num_classes")
    low, high = (int(input.min()), int(input.max())) if input.numel() else (0, -1)
    count = num_classes if num_classes >= 0 else high + 1
    if low < 0 or high >= count:
        raise IndexError(
            f"one_hot: expected classes from 0 to {count - 1}, got some from {low} to {high}"
        )
    classes = creation.arange(count, dtype=input.dtype, device=input.device)
    return _e.eq(input.reshape((*input.shape, 1)), classes).to("int64")


@composite(Sample((3, 4)), Sample((2, 3, 3), diagonal=1))
def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """Return x with zeros above a diagonal of the last two dimensions."""
    return _triangle(input, diagonal, below=True)


@composite(Sample((3, 4)), Sample((2, 3, 3), diagonal=-1), benchmark="triu")
def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """Return x with zeros below a diagonal of the last two dimensions."""
    return _triangle(input, diagonal, below=False)


def _triangle(x: Tensor, diagonal: int, below: bool) -> Tensor:
    if x.ndim < 2:
        raise ShapeError(f"tril, triu: expected at least two dimensions, got {x.shape}")
    rows = creation.arange(x.shape[-2], device=x.device).reshape((-1, 1))
    columns = creation.arange(x.shape[-1], device=x.device)
    offset = columns - rows
    return _e.where(offset <= diagonal if below else offset >= diagonal, x, 0).to(x.dtype)


__all__ = [
    "embedding",
    "gather",
    "index_select",
    "one_hot",
    "scatter_add",
    "tril",
    "triu",
]
