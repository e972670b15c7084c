"""Convolution."""

from __future__ import annotations

from typing import Any

from tapegrad.errors import OptionError
from tapegrad.nn import functional as F
from tapegrad.nn import init
from tapegrad.nn.module import Module
from tapegrad.nn.parameter import Parameter
from tapegrad.nn.sizes import Pair, pair
from tapegrad.tensors import Tensor, empty
from tapegrad.tensors.dtypes import DType

_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class Conv2d(Module):
    """Convolution of images (N, C, H, W).

    Args:
        in_channels: Channels of inputs.
        out_channels: Channels of outputs.
        kernel_size: Pixels that each output sees: a number, or height and width.
        stride: Pixels from one output to the next.
        padding: Zeros at each side; or "valid" (none) or "same" (outputs as large as inputs).
        dilation: Pixels from one that an output sees to the next.
        groups: Into how many parts channels are split that do not see each other.
        bias: Whether there is a bias.
        padding_mode: What the border holds: "zeros", or the image's own pixels by "reflect",
            "replicate" or "circular" (see `nn.functional.pad`).
        device: Where its parameters live.
        dtype: Of its parameters.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import nn
        >>> nn.Conv2d(3, 8, 3, padding="same")(tg.ones(1, 3, 10, 10)).shape
        (1, 8, 10, 10)

    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Pair,
        stride: int | Pair = 1,
        padding: int | Pair | str = 0,
        dilation: int | Pair = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = pair("kernel_size", kernel_size, 1)
        self.stride = pair("stride", stride, 1)
        self.dilation = pair("dilation", dilation, 1)
        self.padding = padding if isinstance(padding, str) else pair("padding", padding, 0)
        self.groups = groups
        self.padding_mode = padding_mode
        self._check()
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        self.weight = Parameter(empty(shape, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def _check(self) -> None:
        channels = self.in_channels, self.out_channels
        if self.groups < 1 or any(each < 0 or each % self.groups for each in channels):
            raise OptionError(
                "Conv2d: expected channels that are multiples of groups, got "
                f"in_channels={channels[0]}, out_channels={channels[1]}, groups={self.groups}"
            )
        if isinstance(self.padding, str) and self.padding not in ("same", "valid"):
            raise OptionError(
                f"Conv2d: expected numbers, 'same' or 'valid' for padding, got {self.padding!r}"
            )
        if self.padding == "same" and self.stride != (1, 1):
            raise OptionError(f"Conv2d: padding='same' needs stride 1, got {self.stride}")
        if self.padding_mode not in _PADDING_MODES:
            raise OptionError(
                f"Conv2d: expected padding_mode {', '.join(map(repr, _PADDING_MODES))}, got "
                f"{self.padding_mode!r}"
            )

    def reset_parameters(self) -> None:
        """Draw weight and bias uniformly within 1/sqrt(numbers that an output is made of)."""
        init.layer_(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Convolve images with the layer's kernels."""
        padding = self.padding
        if self.padding_mode != "zeros":
            input, padding = F.pad(input, self._widths(), self.padding_mode), (0, 0)
        return F.conv2d(
            input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups
        )

    def _widths(self) -> list[int]:
        """Return the border's widths as `pad` takes them: left, right, above, below."""
        if not isinstance(self.padding, str):
            return [width for width in self.padding[::-1] for _ in range(2)]
        seen = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size, strict=True)]
        total = seen[::-1] if self.padding == "same" else [0, 0]
        return [width for each in total for width in (each // 2, each - each // 2)]

    def extra_repr(self) -> str:
        """Return the layer's options that are not the default."""
        text = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}"
        )
        if self.padding != (0, 0):
            text += f", padding={self.padding}"
        if self.dilation != (1, 1):
            text += f", dilation={self.dilation}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        text += "" if self.bias is not None else ", bias=False"
        return text if self.padding_mode == "zeros" else f"{text}, padding_mode={self.padding_mode}"
