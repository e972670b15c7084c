"""What an operator demands of its shapes and attributes, so that nonsense is refused at once.

A rule yields what is wrong, in words; only the first word is heard, so that later ones may rely on
those before them. It refuses what nobody can compute: what one framework alone does not take is
that framework's to say. An operator that is not named here takes any shapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]
Attrs = Mapping[str, Any]
#: Shapes of the inputs by name and attributes by name -> complaints.
Rule = Callable[[Shapes, Attrs], Iterator[str]]


def flaw(op: str, shapes: Shapes, attrs: Attrs) -> str | None:
    """Return why an operator cannot be computed at these shapes, if it cannot.

    Example:
        >>> flaw("matmul", {"a": (8, 16), "b": (17, 8)}, {})
        'rows of a have 16 elements and columns of b 17'

    """
    rule = RULES.get(op)
    return next(rule(shapes, attrs), None) if rule else None


def _text(shape: Shape) -> str:
    """Write a shape as labels and the command line do."""
    return "x".join(map(str, shape)) or "()"


def _is(shapes: Shapes, name: str, *wanted: int) -> Iterator[str]:
    if shapes[name] != wanted:
        yield f"{name} must be {_text(wanted)}"


def _rank(shapes: Shapes, rank: int, *names: str) -> Iterator[str]:
    for name in names:
        if len(shapes[name]) != rank:
            yield f"{name} must have {rank} dimension{'s' if rank > 1 else ''}"


def _least(attrs: Attrs, least: int, *names: str) -> Iterator[str]:
    for name in names:
        if attrs.get(name, least) < least:
            yield f"{name} must be {least} or more"


def _divides(what: str, number: int, sides: str, side: int) -> Iterator[str]:
    if number < 1 or side % number:
        yield f"{what} must divide {sides}, {side}"


def _broadcast(shapes: Shapes, _: Attrs) -> Iterator[str]:
    try:
        np.broadcast_shapes(*shapes.values())
    except ValueError:
        yield f"{' and '.join(shapes)} do not broadcast"


def _clip(_: Shapes, attrs: Attrs) -> Iterator[str]:
    if attrs["min"] > attrs["max"]:
        yield "min must be at most max"


def _share(_: Shapes, attrs: Attrs) -> Iterator[str]:
    if not 0 <= attrs["p"] <= 1:
        yield "p must be from 0 to 1"


def _along(shapes: Shapes, attrs: Attrs) -> Iterator[str]:
    (shape,) = shapes.values()
    yield from _dim(attrs, len(shape))


def _dim(attrs: Attrs, rank: int) -> Iterator[str]:
    if not -rank <= attrs["dim"] < rank:
        yield f"dim must be from {-rank} to {rank - 1}" if rank else "x must have dimensions"


def _glu(shapes: Shapes, attrs: Attrs) -> Iterator[str]:
    yield from _along(shapes, attrs)
    yield from _divides("2", 2, "the side of x", shapes["x"][attrs["dim"]])


def _split(shapes: Shapes, attrs: Attrs) -> Iterator[str]:
    yield from _along(shapes, attrs)
    yield from _divides("parts", attrs["parts"], "the side of x", shapes["x"][attrs["dim"]])


def _repeat(shapes: Shapes, attrs: Attrs) -> Iterator[str]:
    yield from _along(shapes, attrs)
    yield from _least(attrs, 1, "repeats")


def _concat(shapes: Shapes, attrs: Attrs) -> Iterator[str]:
    x, y = shapes["x"], shapes["y"]
    yield from _rank(shapes, len(x), "y")
    yield from _dim(attrs, len(x))
    joined = range(len(x))[attrs["dim"]]
    if any(a != b for place, (a, b) in enumerate(zip(x, y, strict=True)) if place != joined):
        yield f"x and y may differ in dimension {joined} alone"


def _stack(shapes: Shapes, attrs: Attrs) -> Iterator[str]:
    yield from _is(shapes, "y", *shapes["x"])
    yield from _dim(attrs, len(shapes["x"]) + 1)


def _some(rank: int) -> Rule:
    """Demand at least so many dimensions."""

    def rule(shapes: Shapes, attrs: Attrs) -> Iterator[str]:
        if len(shapes["x"]) < rank:
            yield f"x must have {rank} dimensions or more"
        yield from _least(attrs, 1, "step", "k")

    return rule


def _topk(shapes: Shapes, attrs: Attrs) -> Iterator[str]:
    yield from _some(1)(shapes, attrs)
    if attrs["k"] > shapes["x"][-1]:
        yield f"k must be at most the last side of x, {shapes['x'][-1]}"


def _matrix(shapes: Shapes, _: Attrs) -> Iterator[str]:
    yield from _rank(shapes, 2, "x")


def _permute(shapes: Shapes, attrs: Attrs) -> Iterator[str]:
    if sorted(attrs["dims"]) != [*range(len(shapes["x"]))]:
        yield f"dims must name each of the {len(shapes['x'])} dimensions of x once"


def _reshape(shapes: Shapes, attrs: Attrs) -> Iterator[str]:
    if min(attrs["shape"], default=1) < 1 or math.prod(attrs["shape"]) != math.prod(shapes["x"]):
        yield f"shape must hold the {math.prod(shapes['x'])} elements of x"


def _broadcast_to(shapes: Shapes, attrs: Attrs) -> Iterator[str]:
    wanted = tuple(attrs["shape"])
    fitting = len(shapes["x"]) <= len(wanted) and all(
        side in (1, other) for side, other in zip(shapes["x"][::-1], wanted[::-1], strict=False)
    )
    if not fitting or min(wanted, default=1) < 1:
        yield f"x does not broadcast to {_text(wanted)}"


def _tile(_: Shapes, attrs: Attrs) -> Iterator[str]:
    if min(attrs["reps"], default=1) < 1:
        yield "reps must be 1 or more"


def _pad(shapes: Shapes, attrs: Attrs) -> Iterator[str]:
    yield from _images(shapes, attrs)
    if attrs["mode"] not in ("constant", "reflect"):
        yield "mode must be constant or reflect"
    yield from _least(attrs, 0, "width")
    if attrs["mode"] == "reflect" and attrs["width"] >= min(shapes["x"][2:]):
        yield "width must be less than the sides of the images that it reflects"


def _images(shapes: Shapes, attrs: Attrs) -> Iterator[str]:
    yield from _rank(shapes, 4, "x")
    yield from _least(attrs, 1, "factor", "parts")


def _matmul(shapes: Shapes, _: Attrs) -> Iterator[str]:
    a, b = shapes["a"], shapes["b"]
    if not a or not b:
        yield "a and b must have dimensions"
    rows = b[-2] if len(b) > 1 else b[0]
    if a[-1] != rows:
        yield f"rows of a have {a[-1]} elements and columns of b {rows}"
    yield from _broadcast({"a": a[:-2], "b": b[:-2]}, {})


def _bmm(shapes: Shapes, attrs: Attrs) -> Iterator[str]:
    yield from _rank(shapes, 3, "a", "b")
    (batch, _, inner), (_, rows, columns) = shapes["a"], shapes["b"]
    sides = (rows, inner) if attrs["transpose_b"] else (inner, columns)
    yield from _is(shapes, "b", batch, *sides)


def _matvec(shapes: Shapes, _: Attrs) -> Iterator[str]:
    yield from _rank(shapes, 2, "a")
    yield from _is(shapes, "x", shapes["a"][1])


def _outer(shapes: Shapes, _: Attrs) -> Iterator[str]:
    yield from _rank(shapes, 1, "x", "y")


def _linear(shapes: Shapes, _: Attrs) -> Iterator[str]:
    yield from _rank(shapes, 2, "weight")
    filters, width = shapes["weight"]
    if shapes["x"][-1:] != (width,):
        yield f"the last side of x must be that of weight, {width}"
    yield from _is(shapes, "bias", filters)


def _einsum(shapes: Shapes, attrs: Attrs) -> Iterator[str]:
    taken, arrow, result = attrs["equation"].partition("->")
    words = taken.split(",")
    if not arrow or [*map(len, words)] != [*map(len, shapes.values())]:
        yield "equation must name every dimension, as bmk,bnk->bmn"
    letters = [*zip("".join(words), sum(shapes.values(), ()), strict=True)]
    sides = dict(letters)
    if any(sides[letter] != side for letter, side in letters):
        yield "a letter of the equation must stand for one length"
    if len({*result}) != len(result) or not {*result} <= sides.keys():
        yield "the result of the equation must have letters of the inputs, each once"


def _conv(shapes: Shapes, attrs: Attrs, rank: int = 4) -> Iterator[str]:
    yield from _rank(shapes, rank, "x", "weight")
    yield from _least(attrs, 1, "stride", "dilation", "groups")
    yield from _least(attrs, 0, "padding")
    groups, dilation = attrs.get("groups", 1), attrs.get("dilation", 1)
    (_, channels, *sides), (filters, _, *kernel) = shapes["x"], shapes["weight"]
    yield from _divides("groups", groups, "the channels of x", channels)
    yield from _divides("groups", groups, "the first side of weight", filters)
    yield from _is(shapes, "weight", filters, channels // groups, *kernel)
    yield from _is(shapes, "bias", filters)
    windows = [(side - 1) * dilation + 1 for side in kernel]
    yield from _windows(sides, windows, attrs["padding"])


def _named(suits: Callable[[Shapes, Attrs], bool], what: str) -> Rule:
    """Demand of a convolution that it is what its name says."""

    def rule(shapes: Shapes, attrs: Attrs) -> Iterator[str]:
        yield from _conv(shapes, attrs)
        if not suits(shapes, attrs):
            yield f"{what}; conv2d takes any other"

    return rule


def _conv1d(shapes: Shapes, attrs: Attrs) -> Iterator[str]:
    return _conv(shapes, attrs, 3)


def _windows(sides: list[int], windows: list[int], padding: int) -> Iterator[str]:
    for side, window in zip(sides, windows, strict=True):
        if window > side + 2 * padding:
            yield f"a window of {window} does not fit into {side} with padding {padding}"


def _conv_transpose2d(shapes: Shapes, attrs: Attrs) -> Iterator[str]:
    yield from _rank(shapes, 4, "x", "weight")
    yield from _least(attrs, 1, "stride")
    yield from _least(attrs, 0, "padding")
    (_, channels, *sides), (_, filters, *kernel) = shapes["x"], shapes["weight"]
    yield from _is(shapes, "weight", channels, filters, *kernel)
    yield from _is(shapes, "bias", filters)
    stride, padding = attrs["stride"], attrs["padding"]
    if any((s - 1) * stride + k <= 2 * padding for s, k in zip(sides, kernel, strict=True)):
        yield "padding leaves nothing of the result"


def _pool(rank: int) -> Rule:
    def rule(shapes: Shapes, attrs: Attrs) -> Iterator[str]:
        yield from _rank(shapes, rank, "x")
        yield from _least(attrs, 1, "kernel", "stride")
        yield from _least(attrs, 0, "padding")
        padding, sides = attrs.get("padding", 0), [*shapes["x"][2:]]
        if 2 * padding > attrs["kernel"]:
            yield "padding must be at most half of kernel"
        yield from _windows(sides, [attrs["kernel"]] * len(sides), padding)

    return rule


def _layer_norm(shapes: Shapes, attrs: Attrs) -> Iterator[str]:
    yield from _some(1)(shapes, attrs)
    for name in shapes.keys() - {"x"}:
        yield from _is(shapes, name, shapes["x"][-1])


def _channel_norm(shapes: Shapes, attrs: Attrs) -> Iterator[str]:
    yield from _rank(shapes, 4, "x")
    channels = shapes["x"][1]
    for name in ("weight", "bias"):
        yield from _is(shapes, name, channels)
    yield from _divides("groups", attrs.get("groups", 1), "the channels of x", channels)


def _labels(shapes: Shapes, _: Attrs) -> Iterator[str]:
    yield from _rank(shapes, 2, "x")
    yield from _is(shapes, "target", shapes["x"][0])


def _embedding(shapes: Shapes, _: Attrs) -> Iterator[str]:
    yield from _rank(shapes, 2, "weight")


def _index_select(shapes: Shapes, attrs: Attrs) -> Iterator[str]:
    yield from _rank(shapes, 1, "index")
    yield from _dim(attrs, len(shapes["x"]))


def _gather(shapes: Shapes, attrs: Attrs) -> Iterator[str]:
    yield from _some(2)(shapes, attrs)
    yield from _rank(shapes, len(shapes["x"]), "index")
    rows, _, *rest = shapes["x"]
    yield from _is(shapes, "index", rows, shapes["index"][1], *rest)


def _scatter_add(shapes: Shapes, attrs: Attrs) -> Iterator[str]:
    yield from _some(1)(shapes, attrs)
    yield from _rank(shapes, 1, "index")
    yield from _is(shapes, "source", *shapes["index"], *shapes["x"][1:])


def _attention(shapes: Shapes, _: Attrs) -> Iterator[str]:
    for name, shape in shapes.items():
        if len(shape) < 2:
            yield f"{name} must have 2 dimensions or more"
    q, k, v = shapes.values()
    if k[-1] != q[-1]:
        yield f"the last side of k must be that of q, {q[-1]}"
    if v[-2] != k[-2]:
        yield f"v must be as long as k, {k[-2]}"
    yield from _broadcast({name: shape[:-2] for name, shape in shapes.items()}, {})


def _multi_head_attention(shapes: Shapes, attrs: Attrs) -> Iterator[str]:
    yield from _rank(shapes, 3, "x")
    width = shapes["x"][2]
    yield from _is(shapes, "weight", 3 * width, width)
    yield from _is(shapes, "bias", 3 * width)
    yield from _is(shapes, "out_weight", width, width)
    yield from _is(shapes, "out_bias", width)
    yield from _divides("heads", attrs["heads"], "the last side of x", width)


def _cell(gates: int) -> Rule:
    def rule(shapes: Shapes, _: Attrs) -> Iterator[str]:
        yield from _rank(shapes, 2, "x", "h")
        batch, width = shapes["x"]
        hidden = shapes["h"][1]
        for state in shapes.keys() & {"h", "c"}:
            yield from _is(shapes, state, batch, hidden)
        yield from _is(shapes, "w_x", gates * hidden, width)
        yield from _is(shapes, "w_h", gates * hidden, hidden)
        for bias in ("b_x", "b_h"):
            yield from _is(shapes, bias, gates * hidden)

    return rule


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("add", "sub", "mul", "div", "maximum", "pow", "where"), _broadcast),
    **dict.fromkeys(("mse_loss", "l1_loss", "huber_loss", "bce_with_logits", "kl_div"), _broadcast),
    **dict.fromkeys(("cosine_similarity", "sgd", "momentum", "rmsprop", "adam"), _broadcast),
    **dict.fromkeys(("sum", "mean", "var", "norm", "logsumexp", "cumsum", "prod"), _along),
    **dict.fromkeys(("amax", "amin", "argmax", "argmin", "flip", "roll"), _along),
    **dict.fromkeys(("softmax", "log_softmax", "softmin", "l2_normalize"), _along),
    "clip": _clip,
    **dict.fromkeys(("dropout", "random_bernoulli"), _share),
    "glu": _glu,
    "split": _split,
    "repeat": _repeat,
    "concat": _concat,
    "stack": _stack,
    **dict.fromkeys(("sort", "argsort"), _some(1)),
    **dict.fromkeys(("slice", "triu"), _some(2)),
    "topk": _topk,
    "transpose": _matrix,
    "permute": _permute,
    "reshape": _reshape,
    "broadcast_to": _broadcast_to,
    "tile": _tile,
    "pad": _pad,
    "matmul": _matmul,
    "bmm": _bmm,
    "matvec": _matvec,
    "outer": _outer,
    "linear": _linear,
    "einsum": _einsum,
    **dict.fromkeys(("conv2d", "conv2d_wide"), _conv),
    "conv2d_pointwise": _named(
        lambda shapes, _: shapes["weight"][2:] == (1, 1), "the last sides of weight must be 1x1"
    ),
    "conv2d_strided": _named(lambda _, attrs: attrs["stride"] > 1, "stride must be 2 or more"),
    "conv2d_dilated": _named(lambda _, attrs: attrs["dilation"] > 1, "dilation must be 2 or more"),
    "conv2d_grouped": _named(lambda _, attrs: attrs["groups"] > 1, "groups must be 2 or more"),
    "conv2d_depthwise": _named(
        lambda shapes, attrs: attrs["groups"] == shapes["x"][1],
        "groups must be as many as x has channels",
    ),
    "conv1d": _conv1d,
    "conv_transpose2d": _conv_transpose2d,
    **dict.fromkeys(("max_pool2d", "avg_pool2d"), _pool(4)),
    **dict.fromkeys(("max_pool1d", "avg_pool1d"), _pool(3)),
    **dict.fromkeys(("global_avg_pool2d", "adaptive_avg_pool2d", "upsample_nearest2d"), _images),
    **dict.fromkeys(("layer_norm", "rms_norm"), _layer_norm),
    **dict.fromkeys(("batch_norm", "instance_norm", "group_norm"), _channel_norm),
    **dict.fromkeys(("cross_entropy", "nll_loss"), _labels),
    "embedding": _embedding,
    "index_select": _index_select,
    "gather": _gather,
    "scatter_add": _scatter_add,
    "scaled_dot_product_attention": _attention,
    "multi_head_attention": _multi_head_attention,
    "lstm_cell": _cell(4),
    "gru_cell": _cell(3),
}
