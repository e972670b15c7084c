"""Suite `operators`: the operators that networks are made of, small to skewed.

Each generator below is one category (`CATEGORIES`) and yields its cases for all four size classes.
What an operator takes is defined by its cases; the tables of `tapegrad.worker.operators` say how
each framework does it, and `tapegrad.bench.terms` how far results may differ. Shapes are chosen so
that

- no gradient is constant, which would show nothing (a sum over all of one row);
- operators with kinks (`relu`, `amax`, `sort`) see distinct numbers no closer than central
  differences reach, so their largest arrays have 2²⁰ elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from tapegrad.bench.suite import Suite
from tapegrad.bench.terms import tolerant
from tapegrad.worker.case import Array, Case

Shape = tuple[int, ...]

#: Shapes of elementwise and row-wise operators by size class.
ROWS = {"small": (32, 64), "medium": (256, 1024), "large": (2048, 2048), "skewed": (10_000, 1)}
WIDE = ROWS | {"skewed": (1, 10_000)}
#: Two rows where one would have a constant gradient.
PAIR = ROWS | {"skewed": (2, 10_000)}
#: For operators with kinks: at most 2²⁰ distinct numbers, which are 1.9e-6 apart.
KINKED = {"small": (32, 64), "medium": (64, 512), "large": (512, 2048), "skewed": (10_000, 1)}
KINKED_PAIR = KINKED | {"skewed": (2, 10_000)}
#: Images: batch, channels, side.
IMAGES = {
    "small": (2, 4, 8, 8),
    "medium": (4, 16, 32, 32),
    "large": (8, 64, 56, 56),
    "skewed": (1, 256, 4, 4),
}


_operator = partial(tolerant, "operator")


def _forward(op: str, size: str, *inputs: Array, random: bool = False, **attrs: Any) -> Case:
    """Describe an operator without gradients; its inputs have `grad=False`."""
    return Case("operator", op, inputs, attrs, size, phases=("forward",), random=random)


def _given(name: str, shape: Shape, kind: str = "normal", high: int = 0) -> Array:
    """Describe an input whose gradient is not asked for."""
    return Array(name, shape, grad=False, kind=kind, high=high)


def _unary() -> Iterator[Case]:
    for size, shape in ROWS.items():
        for op in ("exp", "tanh", "sin", "sigmoid", "erf", "square"):
            yield _operator(op, size, Array("x", shape))
        for op in ("log", "sqrt", "rsqrt"):
            yield _operator(op, size, Array("x", shape, kind="positive"))
    for size, shape in KINKED.items():
        x = Array("x", shape, kind="distinct")
        yield _operator("abs", size, x)
        for least, most in ((-0.5, 0.3), (0.0, 0.7)):  # none of the distinct numbers
            yield _operator("clip", size, x, min=least, max=most)


def _binary() -> Iterator[Case]:
    """Yield equal shapes, then a row with every row, a column with every column, both at once."""
    for size, shape in ROWS.items():
        x, y = Array("x", shape), Array("y", shape)
        for op in ("add", "mul", "sub"):
            yield _operator(op, size, x, y)
        yield _operator("div", size, x, Array("y", shape, kind="positive"))
        yield _operator("pow", size, Array("x", shape, kind="positive"), y)
        yield _operator("where", size, _given("mask", shape, "flags"), x, y)
    for size, shape in KINKED.items():
        yield _operator("maximum", size, Array("x", shape, kind="distinct"), Array("y", shape))
    for size, (rows, columns) in {**ROWS, "skewed": (100, 100)}.items():
        x = Array("x", (rows, columns))
        yield _operator("sub", size, x, Array("y", (columns,)))
        column = Array("y", (rows, 1), kind="positive")
        yield _operator("div", size, x, column)
        base, power = Array("x", (rows, 1), kind="positive"), Array("y", (1, columns))
        yield _operator("pow", size, base, power)


def _activations() -> Iterator[Case]:
    for size, shape in ROWS.items():
        x = Array("x", shape)
        for op in ("gelu", "silu", "softplus", "mish"):
            yield _operator(op, size, x)
        for alpha in (1.0, 0.5):
            yield _operator("elu", size, x, alpha=alpha)
    for size, shape in KINKED.items():
        x = Array("x", shape, kind="distinct")
        yield _operator("relu", size, x)
        yield _operator("hardswish", size, Array("x", shape))
        for slope in (0.01, 0.2):
            yield _operator("leaky_relu", size, x, slope=slope)
    for size, shape in (ROWS | {"skewed": (10_000, 2)}).items():
        yield _operator("glu", size, Array("x", shape), dim=-1)


def _reductions() -> Iterator[Case]:
    for size, (rows, columns) in PAIR.items():
        x = Array("x", (rows, columns))
        yield _operator("sum", size, x, dim=-1)
        yield _operator("mean", size, x, dim=-1)
        yield _operator("mean", size, x, dim=0)
        yield _operator("var", size, x, dim=-1, correction=1)
        yield _operator("var", size, x, dim=-1, correction=0)
        yield _operator("norm", size, x, dim=-1, order=2)
        yield _operator("logsumexp", size, x, dim=-1)
        yield _operator("cumsum", size, x, dim=-1)
    for size, shape in KINKED_PAIR.items():
        x = Array("x", shape, kind="distinct")
        yield _operator("amax", size, x, dim=-1)
        yield _operator("amax", size, x, dim=0)
        yield _operator("amin", size, x, dim=-1)
        yield _operator("norm", size, x, dim=-1, order=1)
    short = {"small": (32, 64), "medium": (4096, 64), "large": (65_536, 64), "skewed": (10_000, 1)}
    for size, (rows, columns) in short.items():  # longer products overflow
        x = Array("x", (rows, columns), kind="positive")
        yield _operator("prod", size, x, dim=-1)


def _softmax() -> Iterator[Case]:
    for size, (rows, columns) in WIDE.items():
        x = Array("x", (rows, columns))
        for op in ("softmax", "log_softmax", "softmin"):
            yield _operator(op, size, x, dim=-1)
    for size, (rows, columns) in ROWS.items():
        x = Array("x", (rows, columns))
        yield _operator("log_softmax", size, x, dim=0)


def _products() -> Iterator[Case]:
    shapes = {"small": (16, 32, 16), "medium": (128, 256, 128), "large": (512, 1024, 512)}
    for size, (m, k, n) in (shapes | {"skewed": (1, 4096, 16)}).items():
        matrices = Array("a", (m, k)), Array("b", (k, n))
        yield _operator("matmul", size, *matrices)
        layer = Array("x", (m, k)), Array("weight", (n, k)), Array("bias", (n,))
        yield _operator("linear", size, *layer)
        yield _operator("matvec", size, Array("a", (m, k)), Array("x", (k,)))
        yield _operator("outer", size, Array("x", (m * 4,)), Array("y", (k,)))
    batched = {"small": (4, 8, 16, 8), "medium": (16, 64, 64, 64), "large": (32, 256, 128, 256)}
    for size, (batch, m, k, n) in (batched | {"skewed": (1000, 1, 16, 4)}).items():
        a, b, turned = (Array("a", (batch, m, k)), Array("b", (batch, k, n)), (batch, n, k))
        yield _operator("bmm", size, a, b, transpose_b=False)
        yield _operator("bmm", size, a, Array("b", turned), transpose_b=True)
        yield _operator("einsum", size, a, Array("b", turned), equation="bmk,bnk->bmn")
        shared = Array("b", (k, n))
        yield _operator("einsum", size, a, shared, equation="bmk,kn->bmn")


def _convolutions() -> Iterator[Case]:
    shapes = {
        "small": (1, 3, 16, 8, 3, 1),
        "medium": (4, 16, 32, 32, 3, 1),
        "large": (8, 64, 64, 56, 3, 1),
        "skewed": (1, 256, 8, 7, 5, 2),
    }
    for size, (batch, channels, filters, side, kernel, stride) in shapes.items():
        x = (batch, channels, side, side)
        yield _conv("conv2d", size, x, filters, kernel, stride=stride, padding=1)
    for size, shape in IMAGES.items():
        channels = shape[1]
        yield _conv("conv2d_pointwise", size, shape, 2 * channels, 1, stride=1, padding=0)
        yield _conv("conv2d_wide", size, shape, channels, 5, stride=1, padding=2)
        yield _conv("conv2d_strided", size, shape, 2 * channels, 3, stride=2, padding=1)
        yield _conv("conv2d_dilated", size, shape, channels, 3, stride=1, padding=2, dilation=2)
        yield _conv("conv2d_grouped", size, shape, channels, 3, stride=1, padding=1, groups=2)
        one = {"groups": channels}
        yield _conv("conv2d_depthwise", size, shape, channels, 3, stride=1, padding=1, **one)
        for stride, padding, kernel in ((1, 1, 3), (2, 0, 2)):
            weight = Array("weight", (channels, 2 * channels, kernel, kernel))
            yield _operator(
                "conv_transpose2d",
                size,
                Array("x", shape),
                weight,
                Array("bias", (2 * channels,)),
                stride=stride,
                padding=padding,
            )
    signals = {"small": (2, 4, 32), "medium": (8, 32, 256), "large": (16, 128, 1024)}
    for size, signal in (signals | {"skewed": (1, 1, 10_000)}).items():
        for kernel, stride in ((3, 1), (5, 2)):
            yield _conv("conv1d", size, signal, 2 * signal[1], kernel, stride=stride, padding=1)


def _conv(op: str, size: str, shape: Shape, filters: int, kernel: int, **attrs: Any) -> Case:
    """Describe a convolution in as many dimensions as the shape has."""
    channels = shape[1] // attrs.get("groups", 1)
    window = (kernel,) * (len(shape) - 2)
    weight = Array("weight", (filters, channels, *window)), Array("bias", (filters,))
    return _operator(op, size, Array("x", shape), *weight, **attrs)


def _pooling() -> Iterator[Case]:
    shapes = {
        "small": (1, 3, 8, 8),
        "medium": (4, 16, 32, 32),
        "large": (8, 32, 64, 64),
        "skewed": (1, 256, 7, 7),
    }
    for size, shape in shapes.items():
        image = Array("x", shape, kind="distinct")
        yield _operator("max_pool2d", size, image, kernel=3, stride=2, padding=1)
    for size, shape in IMAGES.items():
        x = Array("x", shape)
        for kernel in (2, 3):
            yield _operator("avg_pool2d", size, x, kernel=kernel, stride=2)
        yield _operator("global_avg_pool2d", size, x)
        yield _operator("adaptive_avg_pool2d", size, x, parts=3)
        yield _operator("upsample_nearest2d", size, x, factor=2)
    signals = {"small": (2, 4, 32), "medium": (8, 16, 256), "large": (16, 64, 1024)}
    for size, signal in (signals | {"skewed": (1, 1, 10_000)}).items():
        for kernel in (2, 3):
            x = Array("x", signal, kind="distinct")
            yield _operator("max_pool1d", size, x, kernel=kernel, stride=2)
            yield _operator("avg_pool1d", size, x, kernel=kernel, stride=kernel)


def _norms() -> Iterator[Case]:
    for size, (rows, columns) in WIDE.items():
        x = Array("x", (rows, columns))
        weight, bias = Array("weight", (columns,)), Array("bias", (columns,))
        yield _operator("layer_norm", size, x, weight, bias, eps=1e-5)
        yield _operator("rms_norm", size, x, weight, eps=1e-6)
        yield _operator("l2_normalize", size, x, dim=-1)
    for size, shape in IMAGES.items():
        x, channels = Array("x", shape), shape[1:2]
        affine = Array("weight", channels), Array("bias", channels)
        yield _operator("batch_norm", size, x, *affine, eps=1e-5)
        yield _operator("instance_norm", size, x, *affine, eps=1e-5)
        for groups in (2, 4):
            yield _operator("group_norm", size, x, *affine, groups=groups, eps=1e-5)


def _losses() -> Iterator[Case]:
    for size, (rows, columns) in WIDE.items():
        shape = (rows, columns)
        x, label = Array("x", shape), _given("target", (rows,), "integers", columns)
        yield _operator("cross_entropy", size, x, label)
        yield _operator("nll_loss", size, x, label)
        yield _operator("mse_loss", size, x, Array("target", shape))
        for delta in (1.0, 0.5):
            target = _given("target", shape)
            yield _operator("huber_loss", size, x, target, delta=delta)
        share = _given("target", shape, "uniform")
        yield _operator("bce_with_logits", size, x, share)
        weight = _given("target", shape, "positive")
        yield _operator("kl_div", size, x, weight)
        yield _operator("cosine_similarity", size, x, Array("y", shape))
    for size, shape in KINKED.items():
        x = Array("x", shape, kind="distinct")
        yield _operator("l1_loss", size, x, _given("target", shape))


def _embedding() -> Iterator[Case]:
    """Look up a list of words, and the same words as a batch of sentences."""
    shapes = {"small": (64, 32, 16), "medium": (1024, 1000, 128), "large": (8192, 20_000, 256)}
    for size, (count, rows, width) in (shapes | {"skewed": (16, 50_000, 8)}).items():
        weight = Array("weight", (rows, width))
        for shape in ((count,), (4, count // 4)):
            yield _operator("embedding", size, _given("index", shape, "integers", rows), weight)


def _gather_and_scatter() -> Iterator[Case]:
    shapes = {"small": (64, 32, 16), "medium": (1024, 1000, 128), "large": (8192, 8192, 256)}
    for size, (count, rows, width) in (shapes | {"skewed": (16, 10_000, 1)}).items():
        x, index = Array("x", (rows, width)), _given("index", (count,), "integers", rows)
        yield _operator("index_select", size, x, index, dim=0)
        column = _given("index", (count // 16,), "integers", width)
        yield _operator("index_select", size, x, column, dim=1)
        source = Array("source", (count, width))
        yield _operator("scatter_add", size, x, index, source)
        columns = _given("index", (rows, 8), "integers", width)
        yield _operator("gather", size, x, columns)


def _sort() -> Iterator[Case]:
    for size, shape in KINKED_PAIR.items():
        for descending in (False, True):
            yield _operator("sort", size, Array("x", shape, kind="distinct"), descending=descending)
        yield _forward("argsort", size, _given("x", shape, "distinct"))


def _top_k() -> Iterator[Case]:
    for size, shape in KINKED_PAIR.items():
        for k in (1, 10):
            yield _operator("topk", size, Array("x", shape, kind="distinct"), k=k)


def _argmax() -> Iterator[Case]:
    for size, shape in KINKED_PAIR.items():
        x = _given("x", shape, "distinct")
        yield _forward("argmax", size, x, dim=-1)
        yield _forward("argmax", size, x, dim=0)
        yield _forward("argmin", size, x, dim=-1)


def _concat() -> Iterator[Case]:
    return _joined("concat")


def _stack() -> Iterator[Case]:
    return _joined("stack")


def _joined(op: str) -> Iterator[Case]:
    for size, shape in ROWS.items():
        for dim in (0, 1):
            yield _operator(op, size, Array("x", shape), Array("y", shape), dim=dim)


def _split() -> Iterator[Case]:
    """Yield parts of rows: of whole rows, some frameworks would give views."""
    for size, shape in PAIR.items():
        for parts in (2, 4):
            yield _operator("split", size, Array("x", shape), parts=parts, dim=1)


def _transpose() -> Iterator[Case]:
    for size, shape in ROWS.items():
        yield _operator("transpose", size, Array("x", shape))
    for size, images in IMAGES.items():
        for dims in ((0, 2, 3, 1), (1, 0, 3, 2)):
            yield _operator("permute", size, Array("x", images), dims=dims)


def _reshape() -> Iterator[Case]:
    for size, (rows, columns) in ROWS.items():
        for shape in ((rows // 2, columns * 2), (rows * columns,)):
            yield _operator("reshape", size, Array("x", (rows, columns)), shape=shape)


def _pad() -> Iterator[Case]:
    for size, shape in IMAGES.items():
        for mode in ("constant", "reflect"):
            yield _operator("pad", size, Array("x", shape), width=1, mode=mode)


def _rearranging() -> Iterator[Case]:
    for size, shape in ROWS.items():
        x = Array("x", shape)
        for dim in (0, 1):
            yield _operator("flip", size, x, dim=dim)
            yield _operator("roll", size, x, shift=3, dim=dim)
        yield _operator("triu", size, x)
    for size, shape in WIDE.items():
        yield _operator("slice", size, Array("x", shape), step=2)


def _expanding() -> Iterator[Case]:
    for size, (rows, columns) in ROWS.items():
        x = Array("x", (rows, columns))
        for dim in (0, 1):
            yield _operator("repeat", size, x, repeats=2, dim=dim)
        for reps in ((2, 1), (1, 3)):
            yield _operator("tile", size, x, reps=reps)
        one = Array("x", (1, columns)) if columns > 1 else x
        yield _operator("broadcast_to", size, one, shape=(2, rows, columns))


def _random() -> Iterator[Case]:
    for size, shape in ROWS.items():
        for p in (0.3, 0.8):
            yield _forward("dropout", size, _given("x", shape, "positive"), random=True, p=p)
        seed = _given("seed", (2,), "integers", 2**31)
        like = _given("like", shape)
        for op in ("random_uniform", "random_normal", "random_exponential"):
            yield _forward(op, size, seed, like, random=True)
        for p in (0.3, 0.8):
            yield _forward("random_bernoulli", size, seed, like, random=True, p=p)


def _optimisers() -> Iterator[Case]:
    adam: dict[str, Any] = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
    for size, shape in ROWS.items():
        p, g, m = (_given(name, shape) for name in "pgm")
        v = _given("v", shape, "positive")
        for decay in (0.0, 0.1):
            yield _forward("sgd", size, p, g, lr=0.1, decay=decay)
            yield _forward("adam", size, p, g, m, v, **adam, decay=decay)
        for nesterov in (False, True):
            yield _forward("momentum", size, p, g, m, lr=0.1, momentum=0.9, nesterov=nesterov)
        yield _forward("rmsprop", size, p, g, v, lr=0.01, decay=0.99, eps=1e-8)


def _attention() -> Iterator[Case]:
    shapes = {"small": (1, 2, 8, 16), "medium": (2, 4, 64, 32), "large": (4, 8, 256, 64)}
    for size, (batch, heads, length, width) in (shapes | {"skewed": (1, 1, 1024, 4)}).items():
        shape = (batch, heads, length, width)
        qkv = [Array(name, shape) for name in "qkv"]
        for causal in (False, True):
            yield _operator("scaled_dot_product_attention", size, *qkv, causal=causal)
        whole = heads * width
        block = {
            "x": (batch, length, whole),
            "weight": (3 * whole, whole),
            "bias": (3 * whole,),
            "out_weight": (whole, whole),
            "out_bias": (whole,),
        }  # numbers from -1 to 1: larger ones saturate the softmax
        arrays = [Array(name, shape, kind="distinct") for name, shape in block.items()]
        yield _operator("multi_head_attention", size, *arrays, heads=heads)


def _cells() -> Iterator[Case]:
    shapes = {"small": (4, 8, 16), "medium": (32, 64, 128), "large": (64, 256, 256)}
    for size, (batch, width, hidden) in (shapes | {"skewed": (10_000, 1, 2)}).items():
        for op, states, gates in (("lstm_cell", "hc", 4), ("gru_cell", "h", 3)):
            rows = gates * hidden
            cell = {
                "x": (batch, width),
                **dict.fromkeys(states, (batch, hidden)),
                "w_x": (rows, width),
                "w_h": (rows, hidden),
                "b_x": (rows,),
                "b_h": (rows,),
            }  # numbers from -1 to 1: larger ones saturate the gates
            arrays = [Array(name, shape, kind="distinct") for name, shape in cell.items()]
            yield _operator(op, size, *arrays)


#: What there is of each kind; the kinds are those of MXNet's opperf.
CATEGORIES: Mapping[str, Callable[[], Iterator[Case]]] = {
    "unary": _unary,
    "binary": _binary,
    "activations": _activations,
    "reductions": _reductions,
    "softmax": _softmax,
    "matrix products": _products,
    "convolutions": _convolutions,
    "pooling": _pooling,
    "norms": _norms,
    "losses": _losses,
    "embedding": _embedding,
    "gather and scatter": _gather_and_scatter,
    "sort": _sort,
    "top-k": _top_k,
    "argmax": _argmax,
    "concat": _concat,
    "split": _split,
    "stack": _stack,
    "transpose": _transpose,
    "reshape": _reshape,
    "pad": _pad,
    "rearranging": _rearranging,
    "expanding": _expanding,
    "random sampling": _random,
    "optimiser updates": _optimisers,
    "attention": _attention,
    "recurrent cells": _cells,
}

SUITE = Suite(
    name="operators",
    summary="operators that networks are made of, forward and backward, small to skewed",
    cases=tuple(case for cases in CATEGORIES.values() for case in cases()),
)
