"""Suite `operators`: the operators that networks are made of, small to skewed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tapegrad.bench.suite import Suite
from tapegrad.worker.case import Array, Case

#: Shapes of elementwise and row-wise operators by size class.
ROWS = {"small": (32, 64), "medium": (256, 1024), "large": (2048, 2048), "skewed": (10_000, 1)}
WIDE = ROWS | {"skewed": (1, 10_000)}


def _operator(op: str, size: str, *inputs: Array, reduction: int = 1, **attrs: Any) -> Case:
    return Case("operator", op, inputs, attrs, size, reduction=reduction)


def _elementwise() -> Iterator[Case]:
    for size, shape in ROWS.items():
        for op in ("add", "mul"):
            yield _operator(op, size, Array("x", shape), Array("y", shape))
        for op in ("exp", "tanh", "relu", "gelu"):
            yield _operator(op, size, Array("x", shape))


def _rows() -> Iterator[Case]:
    for size, (rows, columns) in WIDE.items():
        x = Array("x", (rows, columns))
        yield _operator("sum", size, x, reduction=columns, dim=-1)
        yield _operator("softmax", size, x, reduction=columns, dim=-1)
        yield _operator("log_softmax", size, x, reduction=columns, dim=-1)
        scale = Array("weight", (columns,)), Array("bias", (columns,))
        yield _operator("layer_norm", size, x, *scale, reduction=columns, eps=1e-5)
        target = Array("target", (rows,), grad=False, kind="integers", high=columns)
        yield _operator("cross_entropy", size, x, target, reduction=columns)


def _products() -> Iterator[Case]:
    shapes = {"small": (16, 32, 16), "medium": (128, 256, 128), "large": (512, 1024, 512)}
    for size, (m, k, n) in (shapes | {"skewed": (1, 4096, 16)}).items():
        matrices = Array("a", (m, k)), Array("b", (k, n))
        yield _operator("matmul", size, *matrices, reduction=k)
        layer = Array("x", (m, k)), Array("weight", (n, k)), Array("bias", (n,))
        yield _operator("linear", size, *layer, reduction=k)


def _images() -> Iterator[Case]:
    shapes = {
        "small": (1, 3, 16, 8, 3, 1),
        "medium": (4, 16, 32, 32, 3, 1),
        "large": (8, 64, 64, 56, 3, 1),
        "skewed": (1, 256, 8, 7, 5, 2),
    }
    for size, (batch, channels, filters, side, kernel, stride) in shapes.items():
        x = Array("x", (batch, channels, side, side))
        weight = Array("weight", (filters, channels, kernel, kernel)), Array("bias", (filters,))
        terms = channels * kernel * kernel
        yield _operator("conv2d", size, x, *weight, reduction=terms, stride=stride, padding=1)
        image = Array("x", x.shape, kind="distinct")
        yield _operator("max_pool2d", size, image, kernel=3, stride=2, padding=1)


def _lookups() -> Iterator[Case]:
    shapes = {"small": (64, 32, 16), "medium": (1024, 1000, 128), "large": (8192, 20_000, 256)}
    for size, (count, rows, width) in (shapes | {"skewed": (16, 50_000, 8)}).items():
        index = Array("index", (count,), grad=False, kind="integers", high=rows)
        yield _operator("embedding", size, index, Array("weight", (rows, width)))


def _random() -> Iterator[Case]:
    for size, shape in ROWS.items():
        x = Array("x", shape, grad=False, kind="positive")
        yield Case("operator", "dropout", (x,), {"p": 0.3}, size, phases=("forward",), random=True)


SUITE = Suite(
    name="operators",
    summary="operators that networks are made of, forward and backward, small to skewed",
    cases=(
        *_elementwise(),
        *_rows(),
        *_products(),
        *_images(),
        *_lookups(),
        *_random(),
    ),
)
