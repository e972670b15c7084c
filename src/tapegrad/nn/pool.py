"""Pooling of images (N, C, H, W)."""

from __future__ import annotations

from typing import Any

from tapegrad.nn import functional as F
from tapegrad.nn.module import Module
from tapegrad.nn.sizes import Pair
from tapegrad.tensors import Tensor


class MaxPool2d(Module):
    """The largest number of each window.

    Args:
        kernel_size: Size of windows.
        stride: Pixels from one window to the next; the kernel's size by default.
        padding: Pixels at each side that count as minus infinity.
        dilation: Pixels from one that a window sees to the next.
        return_indices: Return (output, indices): where in H * W each number came from.
        ceil_mode: Whether windows that reach over the end count.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import nn
        >>> nn.MaxPool2d(2)(tg.arange(4.0).reshape(1, 1, 2, 2)).item()
        3.0

    """

    def __init__(
        self,
        kernel_size: int | Pair,
        stride: int | Pair | None = None,
        padding: int | Pair = 0,
        dilation: int | Pair = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Any:
        """Pool the input."""
        return F.max_pool2d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
            self.return_indices,
        )

    def extra_repr(self) -> str:
        """Return the layer's options."""
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class AvgPool2d(Module):
    """The mean of each window.

    Args:
        kernel_size: Size of windows.
        stride: Pixels from one window to the next; the kernel's size by default.
        padding: Zeros at each side.
        ceil_mode: Whether windows that reach over the end count.
        count_include_pad: Whether padding counts in the mean.
        divisor_override: What sums are divided by instead of how many elements count.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import nn
        >>> nn.AvgPool2d(2)(tg.arange(4.0).reshape(1, 1, 2, 2)).item()
        1.5

    """

    def __init__(
        self,
        kernel_size: int | Pair,
        stride: int | Pair | None = None,
        padding: int | Pair = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        """Pool the input."""
        return F.avg_pool2d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )

    def extra_repr(self) -> str:
        """Return the layer's options."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AdaptiveAvgPool2d(Module):
    """Means of as many windows as the output has pixels, whatever the size of the input.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import nn
        >>> nn.AdaptiveAvgPool2d((7, 7))(tg.ones(1, 3, 20, 30)).shape
        (1, 3, 7, 7)

    """

    def __init__(self, output_size: int | Pair) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        """Pool the input."""
        return F.adaptive_avg_pool2d(input, self.output_size)

    def extra_repr(self) -> str:
        """Return the layer's options."""
        return f"output_size={self.output_size}"
