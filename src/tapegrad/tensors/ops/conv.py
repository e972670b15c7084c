"""Convolution. Its three forms are each other's gradients, so any order exists."""

# Arguments come in PyTorch's order.
# ruff: noqa: PLR0917

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tapegrad.errors import ShapeError
from tapegrad.tensors.autograd import Node
from tapegrad.tensors.ops import dims as _dims
from tapegrad.tensors.ops.matmul import check_types
from tapegrad.tensors.registry import Cost, Op, Sample, define

if TYPE_CHECKING:
    from tapegrad.tensors.methods import Tensor

_GEOMETRY = ("stride", "padding", "dilation", "groups")
_STRIDED = {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 1), "groups": 1}


def _geometry(node: Node) -> dict[str, Any]:
    return {name: node.attrs[name] for name in _GEOMETRY}


def _rule(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
) -> tuple[int, ...]:
    image, kernel = x._array.shape, weight._array.shape
    if len(image) != 4 or len(kernel) != 4:
        raise ShapeError(
            f"conv2d: expected x (N, C, H, W) and weight (O, C / groups, kH, kW), "
            f"got {image} and {kernel}"
        )
    if groups < 1 or image[1] != kernel[1] * groups or kernel[0] % groups:
        raise ShapeError(
            f"conv2d: weight expects {kernel[1]} * {groups} groups = {kernel[1] * groups} input "
            f"channels, x has {image[1]} (x: {image}, weight: {kernel})"
        )
    if bias is not None and bias._array.shape != kernel[:1]:
        raise ShapeError(f"conv2d: expected bias of shape {kernel[:1]}, got {bias.shape}")
    check_types("conv2d", x, weight, bias)
    out = []
    for d in (0, 1):
        reach = dilation[d] * (kernel[2 + d] - 1) + 1
        room = image[2 + d] + 2 * padding[d]
        if reach > room or not kernel[2 + d]:
            raise ShapeError(
                f"conv2d: the kernel {kernel[2:]} reaches over {reach} pixels, the padded image "
                f"has {room} (x: {image}, padding: {padding}, dilation: {dilation})"
            )
        out.append((room - reach) // stride[d] + 1)
    return (image[0], kernel[0], out[0], out[1])


def _vjp(node: Node, g: Tensor) -> tuple[Any, ...]:
    x, weight, _ = node.inputs
    needs, geometry = node.needs, _geometry(node)
    return (
        _INPUT_GRAD(g, weight, shape=node.shapes[0], **geometry) if needs[0] else None,
        _WEIGHT_GRAD(g, x, shape=node.shapes[1], **geometry) if needs[1] else None,
        g.sum((0, 2, 3)) if needs[2] else None,
    )


def _cost(x: Tensor, weight: Tensor, bias: Tensor | None = None, **geometry: Any) -> Cost:
    n, channels, height, width = _rule(x, weight, bias, **geometry)
    count = n * channels * height * width
    return Cost(
        2 * count * weight.numel() // weight.shape[0],
        x.nbytes + weight.nbytes + count * x.itemsize,
    )


_CONV2D = define(
    name="conv2d",
    doc="convolution of images (cross-correlation, as everywhere in this field)",
    rule=_rule,
    vjp=_vjp,
    saves={0: (1,), 1: (0,)},
    cost=_cost,
    samples=[
        Sample((2, 3, 6, 5), (4, 3, 3, 3), (4,)),
        Sample((1, 2, 5, 5), (3, 2, 3, 2), padding=1),
        Sample((2, 4, 7, 7), (4, 2, 3, 3), (4,), stride=2, padding=(1, 0), groups=2),
        Sample((1, 3, 8, 8), (3, 1, 3, 3), padding=2, dilation=2, groups=3),
        Sample((2, 3, 4, 4), (5, 3, 1, 1)),
    ],
    benchmark="conv2d",
)
_INPUT_GRAD = define(
    name="conv2d_input_grad",
    function=None,
    doc="the gradient of a convolution by its image",
    rule=lambda g, weight, shape, **_: shape,
    vjp=lambda node, u: (
        _CONV2D(u, node.inputs[1], None, **_geometry(node)) if node.needs[0] else None,
        _WEIGHT_GRAD(node.inputs[0], u, shape=node.shapes[1], **_geometry(node))
        if node.needs[1]
        else None,
    ),
    saves={0: (1,), 1: (0,)},
    cost=lambda g, weight, **_: Cost(2 * g.numel() * weight.numel() // weight.shape[0], g.nbytes),
    samples=[Sample((2, 4, 3, 3), (4, 3, 3, 3), shape=(2, 3, 6, 5), **_STRIDED)],
)
_WEIGHT_GRAD: Op = define(
    name="conv2d_weight_grad",
    function=None,
    doc="the gradient of a convolution by its weight",
    rule=lambda g, x, shape, **_: shape,
    vjp=lambda node, u: (
        _CONV2D(node.inputs[1], u, None, **_geometry(node)) if node.needs[0] else None,
        _INPUT_GRAD(node.inputs[0], u, shape=node.shapes[1], **_geometry(node))
        if node.needs[1]
        else None,
    ),
    saves={0: (1,), 1: (0,)},
    cost=lambda g, x, shape, **_: Cost(2 * g.numel() * shape[1] * shape[2] * shape[3], g.nbytes),
    samples=[Sample((2, 4, 3, 3), (2, 3, 6, 5), shape=(4, 3, 3, 3), **_STRIDED)],
)


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Return the convolution of images (N, C, H, W), or of one image (C, H, W).

    `padding` may be "valid" (none) or "same" (as large as the image; stride 1).
    """
    steps = _dims.pair("conv2d", "stride", stride, 1)
    spread = _dims.pair("conv2d", "dilation", dilation, 1)
    if isinstance(padding, str):
        input, border = _named_padding(input, weight, padding, steps, spread)
    else:
        border = _dims.pair("conv2d", "padding", padding)
    single = input._array.ndim == 3
    batch = input.unsqueeze(0) if single else input
    found: Tensor = _CONV2D(
        batch, weight, bias, stride=steps, padding=border, dilation=spread, groups=groups
    )
    return found.squeeze(0) if single else found


def _named_padding(
    x: Tensor, weight: Tensor, name: str, stride: tuple[int, int], dilation: tuple[int, int]
) -> tuple[Tensor, tuple[int, int]]:
    from tapegrad.tensors.ops.padding import pad

    if name == "valid":
        return x, (0, 0)
    if name != "same":
        raise ShapeError(f"conv2d: expected padding 'same', 'valid' or numbers, got {name!r}")
    if stride != (1, 1):
        raise ShapeError(f"conv2d: padding='same' needs stride 1, got {stride}")
    total = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
    if all(each % 2 == 0 for each in total):
        return x, (total[0] // 2, total[1] // 2)
    before = [each // 2 for each in total]
    widths = [before[1], total[1] - before[1], before[0], total[0] - before[0]]
    return pad(x, widths), (0, 0)


__all__ = ["conv2d"]
