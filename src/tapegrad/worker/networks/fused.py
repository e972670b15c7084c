"""Operators that frameworks offer as one call, as the parts that they are made of.

Each is a chain: a part takes what the one before gave, then inputs of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tapegrad.worker.case import Case
from tapegrad.worker.networks import Network, Node


@dataclass(frozen=True)
class Part:
    """One link of a chain."""

    op: str
    #: Inputs of the fused operator that it takes, after what the part before gave.
    takes: tuple[str, ...] = ()
    #: Attributes of the fused operator that it has, and those of its own.
    attrs: tuple[str, ...] = ()
    always: Mapping[str, Any] = field(default_factory=dict)


LINEAR = Part("linear", ("x", "weight", "bias"))
ADD = Part("add", ("x", "y"))
RELU = Part("relu")
#: Without a bias, which a batch norm would take away again.
CONV_BEFORE_NORM = Part("conv2d", ("x", "weight"), ("stride", "padding"))
BATCH_NORM = Part("batch_norm", ("gamma", "beta"), ("eps",))

#: What each fused operator is made of.
PARTS: Mapping[str, tuple[Part, ...]] = {
    "conv2d_relu": (Part("conv2d", ("x", "weight", "bias"), ("stride", "padding")), RELU),
    "conv2d_batch_norm": (CONV_BEFORE_NORM, BATCH_NORM),
    "conv2d_batch_norm_relu": (CONV_BEFORE_NORM, BATCH_NORM, RELU),
    "linear_relu": (LINEAR, RELU),
    "linear_gelu": (LINEAR, Part("gelu")),
    "add_relu": (ADD, RELU),
    "add_layer_norm": (ADD, Part("layer_norm", ("gamma", "beta"), ("eps",))),
    "softmax_cross_entropy": (
        Part("log_softmax", ("x",), always={"dim": -1}),
        Part("nll_loss", ("target",)),
    ),
}


def network(case: Case) -> Network:
    """Return the parts of a fused operator, wired; a value is named after what gave it."""
    nodes: list[Node] = []
    before: tuple[str, ...] = ()
    for part in PARTS[case.op]:
        attrs = {name: case.attrs[name] for name in part.attrs}
        nodes.append(Node(part.op, before + part.takes, (part.op,), {**attrs, **part.always}))
        before = (part.op,)
    return Network(case.inputs, tuple(nodes), before)
