"""ResNet, with the layers, keys and defaults of torchvision.

He, Zhang, Ren and Sun, Deep Residual Learning for Image Recognition,
https://arxiv.org/abs/1512.03385. As in torchvision, the stride of a bottleneck is in its 3x3
convolution ("v1.5"), not in the 1x1 before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tapegrad import nn
from tapegrad.errors import OptionError
from tapegrad.models.weights import without_weights
from tapegrad.nn import init
from tapegrad.tensors import Tensor

NormLayer = Callable[[int], nn.Module]


def _conv3x3(channels: int, width: int, stride: int, groups: int, dilation: int) -> nn.Conv2d:
    return nn.Conv2d(
        channels,
        width,
        kernel_size=3,
        stride=stride,
        padding=dilation,
        groups=groups,
        bias=False,
        dilation=dilation,
    )


def _conv1x1(channels: int, width: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels, width, kernel_size=1, stride=stride, bias=False)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and the input, added."""

    expansion = 1

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        groups: int = 1,
        base_width: int = 64,
        dilation: int = 1,
        norm_layer: NormLayer = nn.BatchNorm2d,
    ) -> None:
        super().__init__()
        if groups != 1 or base_width != 64 or dilation != 1:
            raise OptionError(
                "BasicBlock: expected groups=1, base_width=64 and dilation=1, "
                f"got {groups}, {base_width} and {dilation}; Bottleneck takes others"
            )
        self.conv1 = _conv3x3(inplanes, planes, stride, 1, 1)
        self.bn1 = norm_layer(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = _conv3x3(planes, planes, 1, 1, 1)
        self.bn2 = norm_layer(planes)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """Add the convolutions of an image to the image."""
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out = out + (x if self.downsample is None else self.downsample(x))
        added: Tensor = self.relu(out)
        return added


class Bottleneck(nn.Module):
    """Convolutions 1x1 to fewer channels, 3x3, and 1x1 to more, and the input, added."""

    expansion = 4

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        groups: int = 1,
        base_width: int = 64,
        dilation: int = 1,
        norm_layer: NormLayer = nn.BatchNorm2d,
    ) -> None:
        super().__init__()
        width = int(planes * (base_width / 64.0)) * groups
        self.conv1 = _conv1x1(inplanes, width)
        self.bn1 = norm_layer(width)
        self.conv2 = _conv3x3(width, width, stride, groups, dilation)
        self.bn2 = norm_layer(width)
        self.conv3 = _conv1x1(width, planes * self.expansion)
        self.bn3 = norm_layer(planes * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """Add the convolutions of an image to the image."""
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out = out + (x if self.downsample is None else self.downsample(x))
        added: Tensor = self.relu(out)
        return added


class ResNet(nn.Module):
    """A convolution, four layers of residual blocks, the mean over pixels, a linear layer.

    Args:
        block: BasicBlock or Bottleneck.
        layers: Blocks in each of the four layers.
        num_classes: Outputs.
        zero_init_residual: Whether each block begins as the identity.
        groups: Of the 3x3 convolutions in bottlenecks.
        width_per_group: Their width; 64 is as wide as the paper's.
        replace_stride_with_dilation: For layers 2 to 4, whether they dilate and do not shrink.
        norm_layer: Makes a norm of a number of channels.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import models
        >>> models.resnet18(num_classes=10)(tg.ones(2, 3, 32, 32)).shape
        (2, 10)

    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        layers: Sequence[int],
        num_classes: int = 1000,
        zero_init_residual: bool = False,
        groups: int = 1,
        width_per_group: int = 64,
        replace_stride_with_dilation: Sequence[bool] | None = None,
        norm_layer: NormLayer | None = None,
    ) -> None:
        super().__init__()
        dilated = replace_stride_with_dilation or (False, False, False)
        if len(dilated) != 3 or len(layers) != 4:
            raise OptionError(
                "ResNet: expected 4 layers and None or 3 values for replace_stride_with_dilation, "
                f"got {list(layers)} and {replace_stride_with_dilation!r}"
            )
        self._norm_layer = norm_layer or nn.BatchNorm2d
        self.inplanes = 64
        self.dilation = 1
        self.groups = groups
        self.base_width = width_per_group
        self.conv1 = nn.Conv2d(3, 64, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = self._norm_layer(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layer1 = self._layer(block, 64, layers[0], stride=1, dilate=False)
        self.layer2 = self._layer(block, 128, layers[1], stride=2, dilate=dilated[0])
        self.layer3 = self._layer(block, 256, layers[2], stride=2, dilate=dilated[1])
        self.layer4 = self._layer(block, 512, layers[3], stride=2, dilate=dilated[2])
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512 * block.expansion, num_classes)
        self.apply(_begin)
        if zero_init_residual:
            self.apply(_begin_as_identity)

    def _layer(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        planes: int,
        blocks: int,
        stride: int,
        dilate: bool,
    ) -> nn.Sequential:
        """Return blocks of one width; the first one changes size and channels."""
        dilation = self.dilation
        if dilate:
            self.dilation *= stride
            stride = 1
        width = planes * block.expansion
        shortcut = None
        if stride != 1 or self.inplanes != width:
            shortcut = nn.Sequential(
                _conv1x1(self.inplanes, width, stride), self._norm_layer(width)
            )
        shape = self.groups, self.base_width
        row: list[nn.Module] = [
            block(self.inplanes, planes, stride, shortcut, *shape, dilation, self._norm_layer)
        ]
        self.inplanes = width
        row += (
            block(width, planes, 1, None, *shape, self.dilation, self._norm_layer)
            for _ in range(blocks - 1)
        )
        return nn.Sequential(*row)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits of images (N, 3, H, W)."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.fc(self.avgpool(x).flatten(1))
        return logits


def _begin(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def _begin_as_identity(module: nn.Module) -> None:
    if isinstance(module, Bottleneck) and module.bn3.weight is not None:
        init.zeros_(module.bn3.weight)
    elif isinstance(module, BasicBlock) and module.bn2.weight is not None:
        init.zeros_(module.bn2.weight)


def resnet18(**options: Any) -> ResNet:
    """ResNet with 18 layers; options are those of `ResNet`."""
    return ResNet(BasicBlock, (2, 2, 2, 2), **without_weights(options))


def resnet34(**options: Any) -> ResNet:
    """ResNet with 34 layers; options are those of `ResNet`."""
    return ResNet(BasicBlock, (3, 4, 6, 3), **without_weights(options))


def resnet50(**options: Any) -> ResNet:
    """ResNet with 50 layers; options are those of `ResNet`."""
    return ResNet(Bottleneck, (3, 4, 6, 3), **without_weights(options))


def resnet101(**options: Any) -> ResNet:
    """ResNet with 101 layers; options are those of `ResNet`."""
    return ResNet(Bottleneck, (3, 4, 23, 3), **without_weights(options))


def resnet152(**options: Any) -> ResNet:
    """ResNet with 152 layers; options are those of `ResNet`."""
    return ResNet(Bottleneck, (3, 8, 36, 3), **without_weights(options))
