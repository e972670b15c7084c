"""Suite `modules`: four layers of tensorgrad's comparison with PyTorch, with the shapes it names.

The published script ran other shapes than its labels say, gave the two sides different batch
layouts and different gradients (docs/bench.md). Here images and sequences come batch first, and
every side computes the gradients of the input and of all parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from tapegrad.bench.suite import Suite
from tapegrad.bench.terms import tolerant
from tapegrad.worker.case import SIZES, Array, Case

KERNEL = 3


class Module(NamedTuple):
    """A case, and what the published tables call it."""

    name: str
    label: str
    case: Case


_case = partial(tolerant, "layer")


def _linear() -> Iterator[Module]:
    shapes = ((32, 64, 128), (64, 1024, 2048), (128, 2048, 4096))
    for size, (rows, before, after) in zip(SIZES, shapes, strict=False):
        layer = Array("weight", (after, before)), Array("bias", (after,))
        case = _case("linear", size, Array("x", (rows, before)), *layer)
        yield Module("nn.Linear", f"input={rows}x{before}, features={after}", case)


def _conv2d() -> Iterator[Module]:
    shapes = (((4, 3, 32, 32), 16), ((8, 32, 64, 64), 64), ((8, 64, 128, 128), 128))
    for size, (shape, filters) in zip(SIZES, shapes, strict=False):
        layer = Array("weight", (filters, shape[1], KERNEL, KERNEL)), Array("bias", (filters,))
        case = _case("conv2d", size, Array("x", shape), *layer, stride=1, padding=0)
        label = f"input={_by(shape)} kernel={KERNEL} channels={filters}"
        yield Module("nn.Conv2d", label, case)


def _attention() -> Iterator[Module]:
    """Yield self-attention with biases and without dropout, whose weights nobody asks for."""
    shapes = (((16, 32, 64), 4), ((32, 64, 128), 8), ((32, 128, 256), 8))
    for size, (shape, heads) in zip(SIZES, shapes, strict=False):
        width = shape[-1]
        scale = width**-0.5  # larger weights saturate the softmax
        inputs = (
            Array("x", shape),
            Array("weight", (3 * width, width), scale=scale),
            Array("bias", (3 * width,), scale=scale),
            Array("out_weight", (width, width), scale=scale),
            Array("out_bias", (width,), scale=scale),
        )
        case = _case("multi_head_attention", size, *inputs, heads=heads)
        label = f"input={_by(shape)} d_model={width} n_heads={heads}"
        yield Module("nn.MultiheadAttention", label, case)


def _softmax() -> Iterator[Module]:
    for size, shape in zip(SIZES, ((128, 64), (512, 256), (1024, 512)), strict=False):
        case = _case("softmax", size, Array("x", shape), dim=-1)
        yield Module("nn.Softmax", f"input={_by(shape)} dim=-1", case)


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


MODULES = (*_linear(), *_conv2d(), *_attention(), *_softmax())
#: Case key -> module and the label of its row in the published tables.
LABELS = {module.case.key: (module.name, module.label) for module in MODULES}

SUITE = Suite(
    name="modules",
    summary="Linear, Conv2d, MultiheadAttention and Softmax, forward and backward, three sizes",
    cases=tuple(module.case for module in MODULES),
)
