"""Suite `fused`: operators that run as one call or one kernel, and their parts one by one.

Beside each fused operator the suite holds its parts, at the same shapes (`parts` says which belong
to which), so that its time can be set against theirs added up. Where a framework has a
fused call for inference only, it shows in that phase.

The offsets before a ReLU are ten times as large as what they are added to: a number near zero,
whose sign rounding may turn in one framework and not in another, is then rare, and every channel
is still either on, off or mixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from tapegrad.bench.suite import Suite
from tapegrad.bench.terms import terms
from tapegrad.worker.case import Array, Case
from tapegrad.worker.networks import network_of

Shape = tuple[int, ...]

PHASES = ("forward", "backward", "inference")
OFFSET = 10.0
EPS = 1e-5
#: Batch, channels, filters and side of images for kernels of three by three.
IMAGES = {"small": (2, 3, 8, 16), "medium": (4, 16, 32, 32), "large": (8, 64, 64, 56)}
#: Rows, features before and after a linear layer.
LAYERS = {"small": (32, 64, 128), "medium": (128, 512, 512), "large": (512, 1024, 1024)}
ROWS = {"small": (32, 64), "medium": (256, 1024), "large": (1024, 1024)}


def _convolved(x: Shape, weight: Shape, *_: Shape, stride: int, padding: int) -> Shape:
    kernel = weight[-1]
    return x[0], weight[0], *((side + 2 * padding - kernel) // stride + 1 for side in x[2:])


#: Shapes of results by those of inputs, where they differ from that of the first.
SHAPES: Mapping[str, Callable[..., Shape]] = {
    "conv2d": _convolved,
    "linear": lambda x, weight, bias: (*x[:-1], weight[0]),
    "nll_loss": lambda x, target: (),
}


def parts(case: Case) -> list[Case]:
    """Return the parts of a fused operator as layers of their own, on the same shapes.

    The times of these, added up, are what the time of the fused operator is set against. Numbers
    are drawn as for any operator, so that parts which several have in common are one case.
    """
    network = network_of(case)
    assert network is not None, f"{case.label} is not fused"
    values = {array.name: replace(array, scale=1.0) for array in case.inputs}
    found: list[Case] = []
    for node in network.nodes:
        taken = tuple(values[name] for name in node.takes)
        shapes = {array.name: array.shape for array in taken}
        found.append(
            replace(
                case,
                level="layer",
                op=node.op,
                inputs=taken,
                attrs=node.attrs,
                reduction=terms(node.op, shapes, node.attrs),
            )
        )
        rule = SHAPES.get(node.op)
        shape = rule(*shapes.values(), **node.attrs) if rule else taken[0].shape
        (result,) = node.gives
        values[result] = Array("x", shape, grad=any(array.grad for array in taken))
    return found


def _fused(op: str, size: str, *inputs: Array, **attrs: Any) -> Case:
    """Describe a fused operator; its longest sum is the longest of its parts."""
    case = Case("fused", op, inputs, attrs, size, phases=PHASES)
    return replace(case, reduction=max(part.reduction for part in parts(case)))


def _convolutions() -> Iterator[Case]:
    for size, (batch, channels, filters, side) in IMAGES.items():
        x = Array("x", (batch, channels, side, side))
        scale = (9 * channels) ** -0.5
        weight = Array("weight", (filters, channels, 3, 3), scale=scale)
        bias = Array("bias", (filters,), scale=OFFSET)
        attrs = {"stride": 1, "padding": 1}
        yield _fused("conv2d_relu", size, x, weight, bias, **attrs)
        gamma = Array("gamma", (filters,), kind="positive")
        for op, scale in (("conv2d_batch_norm", 1.0), ("conv2d_batch_norm_relu", OFFSET)):
            beta = Array("beta", (filters,), scale=scale)
            yield _fused(op, size, x, weight, gamma, beta, **attrs, eps=EPS)


def _linears() -> Iterator[Case]:
    for size, (rows, before, after) in LAYERS.items():
        x = Array("x", (rows, before))
        weight = Array("weight", (after, before), scale=before**-0.5)
        for op, scale in (("linear_relu", OFFSET), ("linear_gelu", 1.0)):
            yield _fused(op, size, x, weight, Array("bias", (after,), scale=scale))


def _sums() -> Iterator[Case]:
    for size, shape in ROWS.items():
        x, y, width = Array("x", shape), Array("y", shape), shape[-1:]
        yield _fused("add_relu", size, x, y)
        affine = Array("gamma", width), Array("beta", width)
        yield _fused("add_layer_norm", size, x, y, *affine, eps=EPS)


def _losses() -> Iterator[Case]:
    for size, (rows, classes) in ROWS.items():
        target = Array("target", (rows,), grad=False, kind="integers", high=classes)
        yield _fused("softmax_cross_entropy", size, Array("x", (rows, classes)), target)


def _with_parts(cases: Iterator[Case]) -> Iterator[Case]:
    for case in cases:
        yield case
        yield from parts(case)


def _cases() -> Iterator[Case]:
    for category in (_convolutions, _linears, _sums, _losses):
        yield from _with_parts(category())


SUITE = Suite(
    name="fused",
    summary="fused operators against the sum of their parts: forward, backward and inference",
    cases=tuple({case.key: case for case in _cases()}.values()),  # some share a part
    frameworks=("torch", "torch-compile", "tapegrad", "jax", "tensorflow", "mxnet"),
)
