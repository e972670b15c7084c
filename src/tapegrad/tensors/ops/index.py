"""Elements by their place: slices, lists of indices, masks."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

import numpy as np

from tapegrad._core.arguments import plain_index
from tapegrad.errors import DTypeError, ShapeError, TapegradError
from tapegrad.tensors.autograd import Node
from tapegrad.tensors.base import TensorBase
from tapegrad.tensors.ops import dims as _dims
from tapegrad.tensors.ops.composite import composite
from tapegrad.tensors.ops.matmul import as_rows
from tapegrad.tensors.registry import Draw, Op, Sample, common_device, define, moved

if TYPE_CHECKING:
    from tapegrad.tensors.methods import Tensor


def _cost(x: Tensor, *_: Any, **attrs: Any) -> Any:
    return moved(x.shape, x.shape)


# ---- x[...] -------------------------------------------------------------------------------------

_SLICES = (slice(None, None, 2), slice(1, 3))
_PLACES = (np.array([[0, 2], [2, 0]]), slice(1, None))

_SLICE = define(
    name="slice",
    total=True,
    view=True,
    function=None,
    doc="x[...] by slices and whole numbers: a view",
    rule=lambda x, index: None,
    vjp=lambda node, g: _UNSLICE(g, index=node.attrs["index"], shape=node.shapes[0]),
    cost=_cost,
    samples=[Sample((3, 4), index=_SLICES), Sample((3,), index=(None, 1))],
    benchmark="slice",
)
_UNSLICE: Op = define(
    name="unslice",
    total=True,
    function=None,
    doc="zeros with x in the place of a slice",
    rule=lambda x, index, shape: shape,
    vjp=lambda node, g: _SLICE(g, index=node.attrs["index"]),
    cost=_cost,
    samples=[Sample((2, 2), index=_SLICES, shape=(3, 4))],
)
_TAKE = define(
    name="take",
    total=True,
    function=None,
    doc="x[...] by lists of indices or masks: a copy",
    rule=lambda x, index: None,
    vjp=lambda node, g: _PUT_ADD(g, index=node.attrs["index"], shape=node.shapes[0]),
    cost=_cost,
    samples=[Sample((3, 4), index=_PLACES)],
)
_PUT_ADD: Op = define(
    name="put_add",
    total=True,
    function=None,
    doc="zeros with x added in the places of lists of indices",
    rule=lambda x, index, shape: shape,
    vjp=lambda node, g: _TAKE(g, index=node.attrs["index"]),
    cost=_cost,
    samples=[Sample((2, 2, 3), index=_PLACES, shape=(3, 4))],
)


def getitem(input: Tensor, index: Any) -> Tensor:
    """Return x[index]: a view for slices and whole numbers, a copy for lists and masks."""
    items, op = plain_index(index), _SLICE
    if items is None:
        items, advanced = _plain(index)
        op = _TAKE if advanced else _SLICE
    try:
        found: Tensor = op(input, index=items)
    except IndexError as error:
        raise IndexError(f"x[...]: {error}, shape {input.shape}") from None
    return found


def _plain(index: Any) -> tuple[Any, bool]:
    """Return an index in NumPy's words, and whether it is a list of places."""
    listed = index if isinstance(index, tuple) else (index,)
    items = tuple(_item(each) for each in listed)
    if builtins.any(isinstance(each, np.ndarray) for each in items):
        return items, True
    return plain_index(items), False


def _item(each: Any) -> Any:
    if isinstance(each, TensorBase):
        if each._array.dtype.kind == "f":
            raise DTypeError(f"x[...]: expected whole numbers or a mask as index, got {each.dtype}")
        each = each._device.to_numpy(each._array)
    if isinstance(each, (list, np.ndarray)):
        array = np.asarray(each)
        if not array.size and array.dtype.kind == "f":  # of an empty list
            array = array.astype(np.int64)
        return array if array.ndim or array.dtype.kind == "b" else int(array)
    if each is None or each is Ellipsis or isinstance(each, (slice, bool)):
        return np.asarray(each) if isinstance(each, bool) else each
    try:
        return each.__index__()
    except AttributeError:
        raise DTypeError(f"x[...]: {type(each).__name__} is no index") from None


def setitem(input: Tensor, index: Any, value: Any) -> None:
    """Write into x[index] in place."""
    from tapegrad.tensors.creation import scalar_like

    items, _ = _plain(index)
    source = scalar_like(value, input)
    common_device("x[...] = y", (input, source))
    try:
        if input._requires_grad or source._requires_grad:
            _recorded_setitem(input, items, source)
            return
        input._array[items] = source._array
    except ValueError as error:
        if isinstance(error, TapegradError):
            raise
        raise ShapeError(f"x[...] = y: {error}") from None
    input._changed()


def _recorded_setitem(x: Tensor, items: Any, source: Tensor) -> None:
    """Write in place while gradients are recorded: x becomes the result of an operation."""
    from tapegrad.tensors.autograd import MODE
    from tapegrad.tensors.fused import _check_in_place

    if not MODE.enabled:
        x._array[items] = source._array
        x._changed()
        return
    _check_in_place("x[...] = y", x)
    before = x.detach().clone()
    if x._requires_grad:
        before._requires_grad, before._node, before._index = True, x._node, x._index
    after: Tensor = _PLACE(before, source, index=items)
    x._array[...] = after._array
    x._changed(recorded=True)
    x._requires_grad, x._node, x._index = True, after._node, after._index


def _place_vjp(node: Node, g: Tensor) -> tuple[Any, Any]:
    from tapegrad.tensors.creation import scalar_like

    index = node.attrs["index"]
    kept: Tensor = _PLACE(g, scalar_like(0.0, g), index=index)
    return kept, getitem(g, index) if node.needs[1] else None


_PLACE = define(
    name="place",
    total=True,
    function=None,
    doc="a copy of x with y in the place of x[...]",
    rule=lambda x, y, index: x.shape,
    vjp=_place_vjp,
    cost=_cost,
    samples=[Sample((3, 4), (2, 2), index=_SLICES), Sample((3, 4), (2, 1), index=_SLICES)],
)

# ---- along a dimension --------------------------------------------------------------------------


def _check_index(op: str, index: Tensor) -> None:
    if not isinstance(index, TensorBase) or index._array.dtype.kind != "i":
        kind = index.dtype if isinstance(index, TensorBase) else type(index).__name__
        raise DTypeError(f"{op}: expected a tensor of int32 or int64 as index, got {kind}")


def _along_rule(op: str, x: Tensor, index: Tensor, dim: int) -> None:
    _check_index(op, index)
    have, places = x._array.shape, index._array.shape
    larger = [d for d, (i, s) in enumerate(zip(places, have, strict=False)) if i > s and d != dim]
    if len(places) != len(have) or larger:
        raise ShapeError(
            f"{op}: expected an index with the dimensions of shape {have}, none larger but "
            f"{dim}, got {places}"
        )


_GATHER = define(
    name="gather",
    doc="elements of x along a dimension, one per index",
    rule=lambda x, index, dim: _along_rule("gather", x, index, dim),
    vjp=lambda node, g: (put_along(node.shapes[0], node.attrs["dim"], node.inputs[1], g), None),
    saves=(1,),
    cost=_cost,
    samples=[Sample((3, 4), Draw((2, 4), 0, 3, "int64"), dim=0)],
    benchmark="gather",
)
_SCATTER_ADD = define(
    name="scatter_add",
    doc="x with y added along a dimension, one element per index",
    rule=lambda x, index, y, dim: _along_rule("scatter_add", x, index, dim),
    vjp=lambda node, g: (g, None, gather(g, node.attrs["dim"], node.inputs[1])),
    saves=(1,),
    cost=_cost,
    samples=[Sample((3, 4), Draw((2, 4), 0, 3, "int64"), (2, 4), dim=0)],
    benchmark="scatter_add",
)


def gather(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """Return x[i, index[i, j]] for dim 1, and so on: one element per index."""
    found: Tensor = _GATHER(input, index, dim=_dims.one("gather", dim, input.ndim))
    return found


def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Return x with src[i, j] added to x[i, index[i, j]] for dim 1, and so on."""
    if src._array.dtype != input._array.dtype:
        raise DTypeError(f"scatter_add: expected src of {input.dtype}, got {src.dtype}")
    if src.shape != index.shape:
        raise ShapeError(f"scatter_add: expected src of shape {index.shape}, got {src.shape}")
    found: Tensor = _SCATTER_ADD(input, index, src, dim=_dims.one("scatter_add", dim, input.ndim))
    return found


def put_along(shape: tuple[int, ...], dim: int, index: Tensor, g: Tensor) -> Tensor:
    """Return zeros of a shape with g added along a dimension, one element per index."""
    from tapegrad.tensors.creation import zeros

    return scatter_add(zeros(shape, dtype=g.dtype, device=g.device), dim, index, g)


def _select_rule(x: Tensor, index: Tensor, dim: int) -> None:
    _check_index("index_select", index)
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
    found: Tensor = _INDEX_SELECT(input, index, dim=_dims.one("index_select", dim, input.ndim))
    return found


def _embedding_vjp(node: Node, g: Tensor) -> tuple[Any, None]:
    index, padding = node.inputs[1], node.attrs["padding_idx"]
    flat = index.reshape((-1,))
    rows = as_rows(g)
    if padding >= 0:
        rows = rows * (flat != padding).to(g.dtype).reshape((-1, 1))
    return _INDEX_ADD(rows, flat, dim=0, size=node.shapes[0][0]), None


def _embedding_rule(weight: Tensor, index: Tensor, padding_idx: int) -> None:
    _check_index("embedding", index)
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


def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """Return the rows of `weight` that x names; the row `padding_idx` gets no gradient."""
    rows = weight.shape[0] if weight.ndim else 0
    place = -1 if padding_idx is None else padding_idx + rows * (padding_idx < 0)
    if padding_idx is not None and not 0 <= place < rows:
        raise ShapeError(f"embedding: padding_idx {padding_idx} is no row of {weight.shape}")
    found: Tensor = _EMBEDDING(weight, input, padding_idx=place)
    return found


@composite(Sample(Draw((2, 3), 0, 5, "int64"), num_classes=5))
def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    """Return a 1 at the place of each index among `num_classes` zeros."""
    from tapegrad.tensors.creation import arange
    from tapegrad.tensors.ops.elementwise import eq

    _check_index("one_hot", input)
    count = num_classes if num_classes >= 0 else int(input.max().item()) + 1
    classes = arange(count, dtype=input.dtype, device=input.device)
    return eq(input.reshape((*input.shape, 1)), classes).to("int64")


@composite(Sample((3, 4)), Sample((2, 3, 3), diagonal=1))
def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """Return x with zeros above a diagonal of the last two dimensions."""
    return _triangle(input, diagonal, below=True)


@composite(Sample((3, 4)), Sample((2, 3, 3), diagonal=-1), benchmark="triu")
def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """Return x with zeros below a diagonal of the last two dimensions."""
    return _triangle(input, diagonal, below=False)


def _triangle(x: Tensor, diagonal: int, below: bool) -> Tensor:
    from tapegrad.tensors.creation import arange
    from tapegrad.tensors.ops.elementwise import where

    if x.ndim < 2:
        raise ShapeError(f"tril, triu: expected at least two dimensions, got {x.shape}")
    rows = arange(x.shape[-2], device=x.device).reshape((-1, 1))
    columns = arange(x.shape[-1], device=x.device)
    offset = columns - rows
    return where(offset <= diagonal if below else offset >= diagonal, x, 0).to(x.dtype)


__all__ = [
    "embedding",
    "gather",
    "index_select",
    "one_hot",
    "scatter_add",
    "tril",
    "triu",
]
