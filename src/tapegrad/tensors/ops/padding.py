"""Borders around tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tapegrad.errors import OptionError, ShapeError
from tapegrad.tensors.autograd import Node
from tapegrad.tensors.ops.index import index_select
from tapegrad.tensors.registry import Sample, define, moved

if TYPE_CHECKING:
    from tapegrad.tensors.methods import Tensor


def _pad_vjp(node: Node, g: Tensor) -> Tensor:
    widths = node.attrs["widths"]
    return g[tuple(slice(a, size - b) for (a, b), size in zip(widths, g.shape, strict=True))]


_PAD = define(
    name="pad",
    total=True,
    doc="a border of one value",
    rule=lambda x, widths, value: x.shape,
    vjp=_pad_vjp,
    cost=lambda x, **_: moved(x.shape, x.shape),
    samples=[
        Sample((2, 3), pad=(1, 2)),
        Sample((1, 2, 3), pad=(0, 1, 2, 0), value=1.5),
        Sample((2, 3, 4), pad=(3, 2), mode="reflect"),
        Sample((1, 2, 3, 4), pad=(1, 0, 2, 1), mode="reflect"),
        Sample((1, 2, 3, 4), pad=(5, 1, 0, 4), mode="replicate"),
        Sample((1, 2, 3, 4), pad=(4, 1, 0, 3), mode="circular"),
    ],
    benchmark="pad",
)


def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """Return x with a border of these widths.

    First before and after the last dimension, then the one before it, and so on. Negative widths
    cut off.

    Args:
        input: What gets a border.
        pad: Two widths per dimension.
        mode: "constant"; or "reflect" (as in a mirror on the outermost elements), "replicate"
            (these again and again) or "circular" (the other end).
        value: Of a constant border; 0 if left out.

    """
    if mode != "constant" and mode not in _MODES:
        raise OptionError(
            f"pad: expected mode 'constant', {', '.join(map(repr, _MODES))}, got {mode!r}"
        )
    given, ndim = list(pad), input._array.ndim
    if len(given) % 2 or len(given) > 2 * ndim:
        raise ShapeError(
            f"pad: expected two widths per dimension for at most {ndim} dimensions, got {given}"
        )
    widths = [(0, 0)] * (ndim - len(given) // 2)
    widths += [(given[i], given[i + 1]) for i in range(len(given) - 2, -2, -2)]
    if min(given, default=0) < 0:
        input, widths = _cut(input, widths)
    if mode != "constant":
        return _continued(input, widths, mode)
    found: Tensor = _PAD(input, widths=tuple(widths), value=0.0 if value is None else value)
    return found


#: Where an element outside of a size comes from, and the widest border that has one.
_MODES: dict[str, tuple[Callable[[Any, int], Tensor], Callable[[int], float]]] = {
    "reflect": (lambda i, n: n - 1 - abs(n - 1 - abs(i)), lambda n: n - 1),
    "replicate": (lambda i, n: i.clamp(0, n - 1), lambda n: float("inf") if n else 0),
    "circular": (lambda i, n: i % n, lambda n: n),
}


def _continued(x: Tensor, widths: list[tuple[int, int]], mode: str) -> Tensor:
    """Return x within a border of its own elements."""
    from tapegrad.tensors.creation import arange

    source, widest = _MODES[mode]
    for d, (before, after) in enumerate(widths):
        size = x._array.shape[d]
        if not before and not after:
            continue
        if max(before, after) > widest(size):
            raise ShapeError(
                f"pad: expected widths of at most {widest(size)} for mode {mode!r} in dimension "
                f"{d} of shape {x.shape}, got {before} and {after}"
            )
        places = arange(-before, size + after, device=x.device)
        x = index_select(x, d, source(places, size))
    return x


def _cut(x: Tensor, widths: list[tuple[int, int]]) -> tuple[Tensor, list[tuple[int, int]]]:
    """Cut off what negative widths ask for, and return the others."""
    inner = []
    for d, ((before, after), size) in enumerate(zip(widths, x.shape, strict=True)):
        first, last = max(-before, 0), size - max(-after, 0)
        if first > last:
            raise ShapeError(
                f"pad: widths {before} and {after} cut off more than there is in dimension {d} of "
                f"shape {x.shape}"
            )
        inner.append(slice(first, last))
    return x[tuple(inner)], [(max(a, 0), max(b, 0)) for a, b in widths]


__all__ = ["pad"]
