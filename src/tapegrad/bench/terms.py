"""How many numbers are summed behind one number of an operator's result.

What rounding may do to a result grows with the root of it (`tapegrad.bench.comparison`). It follows
from shapes and attributes, so that a case of any shape has its tolerance. An operator that is not
named here sums nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tapegrad.worker.case import Array, Case

Shape = tuple[int, ...]
#: Shapes of the inputs by name and attributes by name -> terms.
Rule = Callable[[Mapping[str, Shape], Mapping[str, Any]], int]


def terms(op: str, shapes: Mapping[str, Shape], attrs: Mapping[str, Any]) -> int:
    """Return the terms in the longest sum behind one number.

    Example:
        >>> terms("softmax", {"x": (64, 1000)}, {"dim": -1})
        1000

    """
    rule = RULES.get(op)
    return max(1, rule(shapes, attrs)) if rule else 1


def tolerant(
    level: str,
    op: str,
    size: str,
    /,
    *inputs: Array,
    phases: tuple[str, ...] = ("forward", "backward"),
    **attrs: Any,
) -> Case:
    """Make a case whose tolerance follows from its shapes."""
    shapes = {array.name: array.shape for array in inputs}
    length = terms(op, shapes, attrs)
    return Case(level, op, inputs, attrs, size, phases=phases, reduction=length)


def _along(shapes: Mapping[str, Shape], attrs: Mapping[str, Any]) -> int:
    return shapes["x"][int(attrs["dim"])]


def _all(shapes: Mapping[str, Shape], _: Mapping[str, Any]) -> int:
    return math.prod(np.broadcast_shapes(*shapes.values()))


def _side(name: str, index: int) -> Rule:
    return lambda shapes, _: shapes[name][index]


def _pixels(shapes: Mapping[str, Shape], _: Mapping[str, Any]) -> int:
    return math.prod(shapes["x"][2:])


def _window(shapes: Mapping[str, Shape], attrs: Mapping[str, Any]) -> int:
    return int(attrs["kernel"] ** len(shapes["x"][2:]))


def _filter(shapes: Mapping[str, Shape], _: Mapping[str, Any]) -> int:
    return math.prod(shapes["weight"][1:])


def _transposed_filter(shapes: Mapping[str, Shape], _: Mapping[str, Any]) -> int:
    return shapes["weight"][0] * math.prod(shapes["weight"][2:])


def _batch_norm(shapes: Mapping[str, Shape], _: Mapping[str, Any]) -> int:
    return shapes["x"][0] * math.prod(shapes["x"][2:])


def _group_norm(shapes: Mapping[str, Shape], attrs: Mapping[str, Any]) -> int:
    return math.prod(shapes["x"][1:]) // int(attrs["groups"])


def _einsum(shapes: Mapping[str, Shape], attrs: Mapping[str, Any]) -> int:
    """Multiply the sides whose letters the result lacks."""
    inputs, _, output = attrs["equation"].partition("->")
    letters = zip(inputs.split(","), shapes.values(), strict=True)
    sides = {
        letter: side
        for word, shape in letters
        for letter, side in zip(word, shape, strict=True)
        if letter not in output
    }
    return math.prod(sides.values())


def _scatter(shapes: Mapping[str, Shape], _: Mapping[str, Any]) -> int:
    return 1 + shapes["index"][0] // shapes["x"][0]


def _attention(shapes: Mapping[str, Shape], _: Mapping[str, Any]) -> int:
    return math.prod(shapes["k"][-2:])


def _multi_head_attention(shapes: Mapping[str, Shape], _: Mapping[str, Any]) -> int:
    return math.prod(shapes["x"][1:])


def _cell(shapes: Mapping[str, Shape], _: Mapping[str, Any]) -> int:
    return shapes["x"][-1] + shapes["h"][-1]


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("sum", "mean", "var", "norm", "logsumexp", "cumsum", "prod"), _along),
    **dict.fromkeys(("softmax", "log_softmax", "softmin", "l2_normalize"), _along),
    **dict.fromkeys(("matmul", "bmm", "matvec"), _side("a", -1)),
    "linear": _side("x", -1),
    "einsum": _einsum,
    **dict.fromkeys(("conv2d", "conv2d_pointwise", "conv2d_wide", "conv2d_strided"), _filter),
    **dict.fromkeys(("conv2d_dilated", "conv2d_grouped", "conv2d_depthwise", "conv1d"), _filter),
    "conv_transpose2d": _transposed_filter,
    **dict.fromkeys(("avg_pool1d", "avg_pool2d"), _window),
    **dict.fromkeys(("global_avg_pool2d", "adaptive_avg_pool2d", "instance_norm"), _pixels),
    **dict.fromkeys(("layer_norm", "rms_norm", "cosine_similarity"), _side("x", -1)),
    "batch_norm": _batch_norm,
    "group_norm": _group_norm,
    "cross_entropy": _side("x", 1),
    "nll_loss": _side("x", 0),
    **dict.fromkeys(("mse_loss", "l1_loss", "huber_loss", "bce_with_logits", "kl_div"), _all),
    "scatter_add": _scatter,
    "scaled_dot_product_attention": _attention,
    "multi_head_attention": _multi_head_attention,
    **dict.fromkeys(("lstm_cell", "gru_cell"), _cell),
}
