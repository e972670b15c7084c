"""Shapes: views of the same elements, and copies in another order."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from tapegrad import _core
from tapegrad._core import rules
from tapegrad.errors import DTypeError, ShapeError
from tapegrad.tensors.autograd import Node
from tapegrad.tensors.base import TensorBase
from tapegrad.tensors.ops import dims as _dims
from tapegrad.tensors.ops.composite import composite
from tapegrad.tensors.registry import Cost, Draw, Op, Sample, define, moved

if TYPE_CHECKING:
    from tapegrad.tensors.methods import Tensor

_FREE = Cost(0, 0)


# ---- views --------------------------------------------------------------------------------------

_RESHAPE = define(
    name="reshape",
    total=True,
    view=True,
    doc="the same elements in another shape",
    rule=lambda x, shape: shape,
    vjp=lambda node, g: in_shape(g, node.shapes[0]),
    cost=lambda x, **_: _FREE,
    samples=[
        Sample((3, 4), shape=(2, 6)),
        Sample((2, 3, 4), shape=(-1,)),
        Sample((), shape=(1, 1)),
    ],
    benchmark="reshape",
)


def reshape(input: Tensor, *sizes: Any, shape: Any = None) -> Tensor:
    """Return the same elements in another shape; one size may be -1. A view where possible."""
    if shape is not None:
        sizes = _by_name("reshape", "shape", sizes, shape)
    found: Tensor = _RESHAPE(input, shape=_dims.reshaped(input._array.shape, sizes))
    return found


def _by_name(op: str, name: str, given: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    """Return what is given by its name, in the place of numbers one by one."""
    if given:
        raise ShapeError(f"{op}: expected numbers or {name}=..., got both: {given} and {value!r}")
    return (value,)


def in_shape(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return x in a whole shape that has its number of elements: x itself if that is its own.

    For operations that are made of others. Users get a tensor of its own from every view, as in
    PyTorch: its hooks, its kept gradient and what changes it in place are not those of x.
    """
    found: Tensor = x if shape == x._array.shape else _RESHAPE(x, shape=shape)
    return found


def widened(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return x expanded to a whole shape: x itself if that is its own, as `in_shape`."""
    found: Tensor = x if shape == x._array.shape else _EXPAND(x, shape=shape)
    return found


@composite(Sample((3, 4), size=(3, 2, 2)))
def view(input: Tensor, *sizes: Any, size: Any = None) -> Tensor:
    """Return the same memory in another shape; an error where that needs a copy."""
    if size is not None:
        sizes = _by_name("view", "size", sizes, size)
    shape = _dims.reshaped(input._array.shape, sizes, "view")
    found: Tensor = _RESHAPE(input, shape=shape)
    if shape != input._array.shape and not _core.is_view(found._array) and input.numel():
        raise ShapeError(
            f"view: shape {found.shape} of strides {input.stride()} needs a copy; use reshape()"
        )
    return found


def view_as(input: Tensor, other: Tensor) -> Tensor:
    """Return the same memory in the shape of another tensor."""
    return view(input, other._array.shape)


def reshape_as(input: Tensor, other: Tensor) -> Tensor:
    """Return the same elements in the shape of another tensor."""
    return reshape(input, other._array.shape)


def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """Return a view with dimensions of one element repeated as another tensor has them."""
    return expand(input, other._array.shape)


@composite(Sample((2, 3, 4)), Sample((2, 3, 4), start_dim=1), Sample(()))
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Return x with the dimensions from start to end as one."""
    return in_shape(input, _dims.flattened(input._array.shape, start_dim, end_dim))


_PERMUTE = define(
    name="permute",
    total=True,
    view=True,
    doc="the dimensions in another order",
    rule=lambda x, order: tuple(x.shape[d] for d in order),
    vjp=lambda node, g: permute(g, [node.attrs["order"].index(d) for d in range(g.ndim)]),
    cost=lambda x, **_: _FREE,
    samples=[Sample((2, 3, 4), dims=(2, 0, 1)), Sample((3, 4), dims=(1, 0))],
    benchmark="permute",
)


def permute(input: Tensor, *order: Any, dims: Any = None) -> Tensor:
    """Return a view with the dimensions in another order."""
    if dims is not None:
        order = _by_name("permute", "dims", order, dims)
    found: Tensor = _PERMUTE(input, order=_dims.order("permute", order, input._array.ndim))
    return found


def reverse_dims(x: Tensor) -> Tensor:
    """Return a view with the dimensions in reverse order."""
    found: Tensor = _PERMUTE(x, order=tuple(range(x._array.ndim - 1, -1, -1)))
    return found


@composite(Sample((2, 3, 4), dim0=0, dim1=-1), benchmark="transpose")
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Return a view with two dimensions exchanged."""
    order = _dims.exchanged("transpose", dim0, dim1, input._array.ndim)
    found: Tensor = _PERMUTE(input, order=order)
    return found


_EXPAND = define(
    name="expand",
    total=True,
    view=True,
    doc="dimensions of one element repeated, without a copy",
    rule=lambda x, shape: shape,
    vjp=lambda node, g: g,  # the walk sums over what was expanded
    cost=lambda x, **_: _FREE,
    samples=[Sample((3, 1), size=(3, 4)), Sample((4,), size=(2, 3, 4))],
)


def expand(input: Tensor, *sizes: Any, size: Any = None) -> Tensor:
    """Return a view with dimensions of one element repeated; -1 keeps a size."""
    if size is not None:
        sizes = _by_name("expand", "size", sizes, size)
    have = input._array.shape
    wanted = _dims.expanded(have, sizes)
    found: Tensor = (_RESHAPE if wanted == have else _EXPAND)(input, shape=wanted)
    return found


@composite(Sample((1, 3, 1)), Sample((1, 3, 1), dim=0), Sample((1, 3), dim=1))
def squeeze(input: Tensor, dim: Any = None) -> Tensor:
    """Return a view without dimensions of one element, all or those named."""
    found: Tensor = _RESHAPE(input, shape=_dims.squeezed(input._array.shape, dim))
    return found


@composite(Sample((3, 4), dim=1), Sample((3, 4), dim=-1), Sample((), dim=0))
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """Return a view with a dimension of one element more."""
    have = input._array.shape
    place = _dims.one("unsqueeze", dim, len(have) + 1)
    return in_shape(input, (*have[:place], 1, *have[place:]))


@composite(Sample((3, 1), size=(2, 3, 4)), benchmark="broadcast_to")
def broadcast_to(input: Tensor, size: Sequence[int]) -> Tensor:
    """Return a view of this shape, with dimensions repeated; -1 keeps a size."""
    return expand(input, size)


@composite(
    Sample((6, 2), dim=0, sizes=(2, 3)),
    Sample((2, 6), dim=-1, sizes=(3, -1)),
    Sample((4,), dim=0, sizes=(4,)),
)
def unflatten(input: Tensor, dim: int, sizes: Any) -> Tensor:
    """Return x with one dimension as several; one of their sizes may be -1."""
    place = _dims.own("unflatten", dim, input.ndim)
    parts = _dims.reshaped((input.shape[place],), (sizes,))
    return reshape(input, (*input.shape[:place], *parts, *input.shape[place + 1 :]))


@composite(
    Sample((2, 3, 4), source=0, destination=-1),
    Sample((2, 3, 4), source=(0, 1), destination=(2, 0)),
)
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Return a view with dimensions at other places, and the others in the order they had."""
    given = [each if isinstance(each, (tuple, list)) else (each,) for each in (source, destination)]
    places, targets = ([_dims.one("movedim", d, input.ndim) for d in each] for each in given)
    if len(places) != len(targets) or len(set(places)) + len(set(targets)) != 2 * len(places):
        raise ShapeError(
            f"movedim: expected as many different places as dimensions, got {source} and "
            f"{destination}"
        )
    order = [d for d in range(input.ndim) if d not in places]
    for target, place in sorted(zip(targets, places, strict=True)):
        order.insert(target, place)
    return permute(input, order if input.ndim else ())


# ---- parts --------------------------------------------------------------------------------------

_SLICES = (slice(None, None, 2), slice(1, 3))
SLICE = define(
    name="slice",
    total=True,
    view=True,
    function=None,
    doc="x[...] by slices and whole numbers: a view",
    rule=lambda x, index: None,
    vjp=lambda node, g: _UNSLICE(g, index=node.attrs["index"], shape=node.shapes[0]),
    cost=lambda x, **_: moved(x.shape, x.shape),
    samples=[Sample((3, 4), index=_SLICES), Sample((3,), index=(None, 1))],
    benchmark="slice",
)
_UNSLICE: Op = define(
    name="unslice",
    total=True,
    function=None,
    doc="zeros with x in the place of a slice",
    rule=lambda x, index, shape: shape,
    vjp=lambda node, g: SLICE(g, index=node.attrs["index"]),
    cost=lambda x, **_: moved(x.shape, x.shape),
    samples=[Sample((2, 2), index=_SLICES, shape=(3, 4))],
)


def _part(x: Tensor, place: int, chosen: Any) -> Tensor:
    """Return a view of one element, or of a slice, along a dimension."""
    found: Tensor = SLICE(x, index=(*(slice(None),) * place, chosen, ...))
    return found


@composite(Sample((5, 3), dim=0, start=1, length=3))
def narrow(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """Return a view of `length` elements along a dimension; -1 as start is the last one."""
    place = _dims.own("narrow", dim, input.ndim)
    start = operator.index(start)
    start += input.shape[place] if start < 0 else 0
    if not 0 <= start <= start + length <= input.shape[place]:
        raise ShapeError(
            f"narrow: elements {start} to {start + length} do not lie within "
            f"dimension {place} of shape {input.shape}"
        )
    return _part(input, place, slice(start, start + length))


@composite(
    Sample((5, 3), split_size_or_sections=2),
    Sample((3, 5), split_size_or_sections=[1, 4], dim=1),
    benchmark="split",
)
def split(tensor: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Return views of parts along a dimension: of one size, or of the sizes listed."""
    have = tensor._array.shape
    place = _dims.own("split", dim, len(have))
    total = have[place]
    if isinstance(split_size_or_sections, int):
        size = split_size_or_sections
        if size < 1 or isinstance(size, bool):
            raise ShapeError(f"split: expected a size of at least 1, got {size}")
        starts = range(0, total, size) or (0,)
        return tuple([_part(tensor, place, slice(start, start + size)) for start in starts])
    parts = _dims.shape("split", (split_size_or_sections,))
    if sum(parts) != total:
        raise ShapeError(f"split: sizes {list(parts)} do not add up to {total}")
    ends = accumulate(parts)
    return tuple(
        [_part(tensor, place, slice(end - n, end)) for n, end in zip(parts, ends, strict=True)]
    )


@composite(Sample((5, 3), chunks=2), Sample((3, 5), chunks=4, dim=1))
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Return views of at most `chunks` parts of one size along a dimension."""
    if chunks < 1:
        raise ShapeError(f"chunk: expected at least one part, got {chunks}")
    size = input.shape[_dims.own("chunk", dim, input.ndim)]
    if not size:
        return split(input, [0] * chunks, dim)
    return split(input, max(-(-size // chunks), 1), dim)


@composite(Sample((2, 3)), Sample((2, 3), dim=1))
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Return a view per element of a dimension, without that dimension."""
    have = input._array.shape
    place = _dims.own("unbind", dim, len(have))
    if not place:
        return tuple([SLICE(input, index=(i, ...)) for i in range(have[0])])
    return tuple([_part(input, place, i) for i in range(have[place])])


@composite(Sample((2, 3), dims=(0,)), Sample((2, 3, 2), dims=(0, 2)), benchmark="flip")
def flip(input: Tensor, *places: Any, dims: Any = None) -> Tensor:
    """Return a copy with the order of elements reversed along dimensions."""
    if dims is not None:
        places = _by_name("flip", "dims", places, dims)
    named = _dims.named("flip", places[0] if len(places) == 1 else places, input.ndim)
    return clone(backwards(input, named))


def backwards(x: Tensor, dims: Sequence[int]) -> Tensor:
    """Return a view with the order of elements reversed along dimensions."""
    steps = [slice(None, None, -1) if d in dims else slice(None) for d in range(x.ndim)]
    return x[tuple(steps)]


@composite(
    Sample((5,), shifts=2),
    Sample((3, 4), shifts=(1, -2), dims=(0, 1)),
    Sample((3, 4), shifts=5),
    benchmark="roll",
)
def roll(input: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """Return x with elements moved along dimensions; what leaves at one end enters at the other."""
    if dims is None:
        return roll(flatten(input), shifts, 0).reshape(input.shape)
    found = input
    moves, places = ([each] if isinstance(each, int) else list(each) for each in (shifts, dims))
    if len(moves) != len(places):
        raise ShapeError(f"roll: expected a shift per dimension, got {shifts} for {dims}")
    for shift, dim in zip(moves, places, strict=True):
        place = _dims.own("roll", dim, input.ndim)
        size = input.shape[place]
        if size and shift % size:
            parts = split(found, [size - shift % size, shift % size], place)
            found = cat(parts[::-1], place)
    return clone(input) if found is input else found


# ---- copies -------------------------------------------------------------------------------------

_CLONE = define(
    name="clone",
    total=True,
    doc="a copy",
    rule=lambda x: x.shape,
    vjp=lambda node, g: g,
    cost=lambda x: moved(x.shape, x.shape),
    samples=[Sample((3, 4))],
)
_CAST = define(
    name="cast",
    total=True,
    function=None,
    doc="the elements in another number type",
    rule=lambda x, dtype: x.shape,
    vjp=lambda node, g: g,  # the walk returns to the operand's type
    cost=lambda x, **_: moved(x.shape, x.shape),
    samples=[Sample((3, 4), dtype=np.dtype("float64"))],
)


def clone(input: Tensor) -> Tensor:
    """Return a copy."""
    found: Tensor = _CLONE(input)
    return found


@composite(Sample((3, 4)))
def contiguous(input: Tensor) -> Tensor:
    """Return x itself if its elements lie in order, else a copy in which they do."""
    return input if input.is_contiguous() else clone(input)


@composite(
    Sample((2, 3), repeats=(2, 2)),
    Sample((3,), repeats=(4, 2, 1)),
    Sample((2, 1), repeats=(1, 0)),
)
def repeat(input: Tensor, *sizes: Any, repeats: Any = None) -> Tensor:
    """Return x so many times along each dimension; further sizes make dimensions in front."""
    if repeats is not None:
        sizes = _by_name("repeat", "repeats", sizes, repeats)
    times = _dims.shape("repeat", sizes)
    extra = len(times) - input.ndim
    if extra < 0:
        raise ShapeError(f"repeat: expected at least {input.ndim} numbers, got {times}")
    shape = (*[1] * extra, *input.shape)
    apart = reshape(input, tuple(size for each in shape for size in (1, each)))
    spread = expand(apart, tuple(n for pair in zip(times, shape, strict=True) for n in pair))
    found = reshape(spread, tuple(n * size for n, size in zip(times, shape, strict=True)))
    return found if not found._is_view() and found is not input else clone(found)


@composite(Sample((2, 3), dims=(2,)), Sample((3,), dims=(2, 2)), benchmark="tile")
def tile(input: Tensor, *sizes: Any, dims: Any = None) -> Tensor:
    """Return x so many times along its last dimensions, as NumPy's tile."""
    times = _dims.shape("tile", sizes if dims is None else _by_name("tile", "dims", sizes, dims))
    return repeat(input, (*[1] * (input.ndim - len(times)), *times))


@composite(
    Sample((2, 3), repeats=2, dim=0),
    Sample((2, 3), repeats=3),
    Sample((2, 3), repeats=0, dim=1),
    benchmark="repeat",
)
def repeat_interleave(
    input: Tensor, repeats: Any, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Return x with each element along a dimension so many times; of all elements in order.

    Args:
        input: What is repeated.
        repeats: How often, for all elements; or a tensor with a number for each.
        dim: Along which dimension.
        output_size: What the size will be; taken for PyTorch's sake, and not needed here.

    """
    flat = flatten(input) if dim is None else input
    place = 0 if dim is None else _dims.own("repeat_interleave", dim, input.ndim)
    if isinstance(repeats, TensorBase) and repeats._array.size != 1:
        return _repeated(flat, place, repeats)
    repeats = repeats.item() if isinstance(repeats, TensorBase) else repeats
    if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 0:
        raise DTypeError(f"repeat_interleave: expected a whole number of repeats, got {repeats!r}")
    shape = (*flat.shape[: place + 1], repeats, *flat.shape[place + 1 :])
    return flatten(clone(expand(unsqueeze(flat, place + 1), shape)), place, place + 1)


def _repeated(x: Tensor, place: int, repeats: Any) -> Tensor:
    """Return the elements along a dimension as often as each is to be there."""
    from tapegrad.tensors.creation import ones_like, zeros
    from tapegrad.tensors.ops.index import index_select, scatter_add

    size = x._array.shape[place]
    if repeats._array.dtype.kind != "i" or repeats._array.shape != (size,):
        raise ShapeError(
            f"repeat_interleave: expected {size} whole numbers of repeats, got {repeats.dtype} of "
            f"shape {repeats.shape}"
        )
    times = repeats.tolist()
    if min(times, default=0) < 0:
        raise ShapeError(f"repeat_interleave: expected repeats of at least 0, got {min(times)}")
    total = sum(times)
    # One more is counted wherever the next element begins.
    begins = zeros(total + 1, dtype="int64", device=x.device)
    ends = repeats.to(x.device).long().cumsum(0)
    counted = scatter_add(begins, 0, ends, ones_like(ends)).cumsum(0)
    return index_select(x, place, counted[:total])


def cast(input: Tensor, dtype: Any) -> Tensor:
    """Return the elements in another number type; x itself if it has that."""
    if input._array.dtype == dtype.numpy:
        return input
    found: Tensor = _CAST(input, dtype=dtype.numpy)
    if not dtype.is_floating_point and found._requires_grad:
        return found.detach()
    return found


def _cat_vjp(node: Node, g: Tensor) -> tuple[Tensor, ...]:
    dim = node.attrs["dim"]
    return split(g, [shape[dim] for shape in node.shapes], dim)


_CAT = define(
    name="cat",
    doc="tensors one behind the other along a dimension",
    rule=rules.cat,
    vjp=_cat_vjp,
    cost=lambda *tensors, dim: moved(*[x.shape for x in tensors], *[x.shape for x in tensors]),
    samples=[
        Sample((2, 3), (4, 3), dim=0),
        Sample((2, 3), (2, 1), (2, 2), dim=-1),
        Sample(Draw((0,), grad=False), (2, 3), Draw((0,), grad=False), dim=1),
    ],
    benchmark="concat",
)


def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Return tensors one behind the other along a dimension that they have."""
    listed = tuple(tensors)
    if not listed:
        raise ShapeError("cat: expected at least one tensor, got none")
    try:
        found: Tensor = _CAT(*listed, dim=_dims.one("cat", dim, listed[0]._array.ndim))
    except ShapeError:
        # tensors of shape (0,) join anything: as a part of no size
        filled = [each for each in listed if each._array.shape != (0,)]
        shape = filled[0]._array.shape if filled else ()
        if len(filled) == len(listed) or len(shape) < 2:
            raise
        place = _dims.own("cat", dim, len(shape))
        none = (*shape[:place], 0, *shape[place + 1 :])
        parts = [each if each._array.shape != (0,) else in_shape(each, none) for each in listed]
        return cat(parts, place)
    return found


_STACK = define(
    name="stack",
    doc="tensors of one shape side by side along a new dimension",
    rule=rules.stack,
    vjp=lambda node, g: unbind(g, node.attrs["dim"]),
    cost=lambda *tensors, dim: moved(*[x.shape for x in tensors], *[x.shape for x in tensors]),
    samples=[Sample((2, 3), (2, 3)), Sample((2, 3), (2, 3), dim=-1)],
    benchmark="stack",
)


def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Return tensors of one shape side by side along a new dimension."""
    listed = tuple(tensors)
    if not listed:
        raise ShapeError("stack: expected at least one tensor, got none")
    found: Tensor = _STACK(*listed, dim=_dims.one("stack", dim, listed[0]._array.ndim + 1))
    return found


__all__ = [
    "broadcast_to",
    "cat",
    "chunk",
    "clone",
    "contiguous",
    "expand",
    "flatten",
    "flip",
    "movedim",
    "narrow",
    "permute",
    "repeat",
    "repeat_interleave",
    "reshape",
    "roll",
    "split",
    "squeeze",
    "stack",
    "tile",
    "transpose",
    "unbind",
    "unflatten",
    "unsqueeze",
    "view",
]
