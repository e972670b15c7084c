"""Pooling of images."""

# Arguments come in PyTorch's order.
# ruff: noqa: PLR0917

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tapegrad._core import rules
from tapegrad.errors import OptionError, ShapeError
from tapegrad.tensors.autograd import MODE, Node
from tapegrad.tensors.ops import dims as _dims
from tapegrad.tensors.ops.matmul import check_types
from tapegrad.tensors.registry import Cost, Op, Sample, define, raw

if TYPE_CHECKING:
    from tapegrad.tensors.methods import Tensor


def _cost(x: Tensor, **_: Any) -> Cost:
    return Cost(x.numel(), x.nbytes)


def _max_vjp(node: Node, g: Tensor, _: Any = None) -> Tensor:
    from tapegrad.tensors.ops.index import put_along

    if not MODE.enabled:
        found: Tensor = raw("max_pool2d_backward", g, node.outputs[1], shape=node.shapes[0])
        return found
    n, c, h, w = node.shapes[0]
    places = node.outputs[1].flatten(2)
    return put_along((n, c, h * w), 2, places, g.flatten(2)).reshape((n, c, h, w))


_MAX = define(
    name="max_pool2d",
    doc="the largest element of each window, and where it is",
    rule=rules.pooling,
    vjp=_max_vjp,
    keeps=(1,),
    results=2,
    cost=_cost,
    samples=[
        Sample((2, 3, 6, 6), kernel_size=2),
        Sample((1, 2, 7, 5), kernel_size=3, stride=2, padding=1),
        Sample((1, 2, 7, 7), kernel_size=2, stride=2, ceil_mode=True),
        Sample((1, 1, 8, 8), kernel_size=3, stride=1, dilation=2),
        Sample((1, 2, 2, 2), kernel_size=3, ceil_mode=True),
        Sample((1, 1, 4, 2), kernel_size=2, dilation=2, ceil_mode=True),
    ],
    benchmark="max_pool2d",
)
_AVERAGE = define(
    name="avg_pool2d",
    doc="the mean of each window",
    rule=rules.pooling,
    vjp=lambda node, g: _AVERAGE_BACK(g, shape=node.shapes[0], **node.attrs),
    cost=_cost,
    samples=[
        Sample((2, 3, 6, 6), kernel_size=2),
        Sample((1, 2, 7, 5), kernel_size=3, stride=2, padding=1),
        Sample((1, 2, 7, 7), kernel_size=2, ceil_mode=True, count_include_pad=False),
        Sample((1, 2, 2, 2), kernel_size=3, ceil_mode=True),
        Sample((1, 1, 1, 3), kernel_size=4, padding=1, ceil_mode=True),
        Sample((1, 2, 7, 5), kernel_size=3, stride=2, padding=1, divisor_override=-5),
    ],
    benchmark="avg_pool2d",
)
_AVERAGE_BACK: Op = define(
    name="avg_pool2d_backward",
    function=None,
    doc="the gradient of avg_pool2d",
    rule=lambda g, shape, **_: shape,
    vjp=lambda node, u: _AVERAGE(
        u, **{name: value for name, value in node.attrs.items() if name != "shape"}
    ),
    cost=_cost,
    samples=[
        Sample(
            (1, 2, 4, 3),
            shape=(1, 2, 7, 5),
            kernel=(3, 3),
            stride=(2, 2),
            padding=(1, 1),
            ceil_mode=False,
            count_include_pad=True,
            divisor=0,
        )
    ],
)
_ADAPTIVE = define(
    name="adaptive_avg_pool2d",
    doc="means of windows that cover the image with the number of windows wanted",
    rule=lambda x, size: (*x.shape[:2], *size),
    vjp=lambda node, g: _ADAPTIVE_BACK(g, shape=node.shapes[0]),
    cost=_cost,
    samples=[
        Sample((2, 3, 7, 5), output_size=1),
        Sample((1, 2, 7, 5), output_size=(3, 2)),
        Sample((1, 2, 3, 3), output_size=7),
    ],
    benchmark="adaptive_avg_pool2d",
)
_ADAPTIVE_BACK: Op = define(
    name="adaptive_avg_pool2d_backward",
    function=None,
    doc="the gradient of adaptive_avg_pool2d",
    rule=lambda g, shape: shape,
    vjp=lambda node, u: _ADAPTIVE(u, size=node.shapes[0][2:]),
    cost=_cost,
    samples=[Sample((1, 2, 3, 2), shape=(1, 2, 7, 5))],
)


def _batched(x: Tensor) -> Tensor:
    return x.unsqueeze(0) if x._array.ndim == 3 else x


def max_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Return the largest element of each window; with return_indices also where it is."""
    kernel = _dims.pair("max_pool2d", "kernel_size", kernel_size, 1)
    values, places = _MAX(
        _batched(input),
        kernel=kernel,
        stride=kernel if stride is None else _dims.pair("max_pool2d", "stride", stride, 1),
        padding=_dims.pair("max_pool2d", "padding", padding),
        dilation=_dims.pair("max_pool2d", "dilation", dilation, 1),
        ceil_mode=ceil_mode,
    )
    if input._array.ndim == 3:
        values, places = values.squeeze(0), places.squeeze(0)
    return (values, places) if return_indices else values


def avg_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Return the mean of each window, with or without the border's zeros.

    With `divisor_override`, return its sum divided by that.
    """
    if divisor_override is not None and not _is_divisor(divisor_override):
        raise OptionError(
            "avg_pool2d: expected divisor_override to be a whole number that is not 0, got "
            f"{divisor_override!r}"
        )
    kernel = _dims.pair("avg_pool2d", "kernel_size", kernel_size, 1)
    found: Tensor = _AVERAGE(
        _batched(input),
        kernel=kernel,
        stride=kernel if stride is None else _dims.pair("avg_pool2d", "stride", stride, 1),
        padding=_dims.pair("avg_pool2d", "padding", padding),
        ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
        divisor=divisor_override or 0,
    )
    return found.squeeze(0) if input._array.ndim == 3 else found


def _is_divisor(value: Any) -> bool:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return whole and value != 0 and -(2**63) <= value < 2**63


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Return means of windows that cover the image; None keeps a size."""
    if input.ndim not in (3, 4):
        raise ShapeError(f"adaptive_avg_pool2d: expected images, got {input.shape}")
    check_types("adaptive_avg_pool2d", input)
    wanted = output_size if isinstance(output_size, (tuple, list)) else (output_size, output_size)
    sizes = [
        have if want is None else want for want, have in zip(wanted, input.shape[-2:], strict=True)
    ]
    found: Tensor = _ADAPTIVE(
        _batched(input), size=_dims.pair("adaptive_avg_pool2d", "output_size", sizes, 1)
    )
    return found.squeeze(0) if input._array.ndim == 3 else found


__all__ = ["adaptive_avg_pool2d", "avg_pool2d", "max_pool2d"]
