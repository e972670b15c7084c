"""VGG, with the layers, keys and defaults of torchvision.

Simonyan and Zisserman, Very Deep Convolutional Networks for Large-Scale Image Recognition,
https://arxiv.org/abs/1409.1556.
"""

from __future__ import annotations

from typing import Any

from tapegrad import nn
from tapegrad.models.weights import without_weights
from tapegrad.nn import init
from tapegrad.tensors import Tensor

#: Channels of the convolutions of each group; a pooling follows each group.
LAYERS = {
    11: ((64,), (128,), (256,) * 2, (512,) * 2, (512,) * 2),
    13: ((64,) * 2, (128,) * 2, (256,) * 2, (512,) * 2, (512,) * 2),
    16: ((64,) * 2, (128,) * 2, (256,) * 3, (512,) * 3, (512,) * 3),
    19: ((64,) * 2, (128,) * 2, (256,) * 4, (512,) * 4, (512,) * 4),
}


class VGG(nn.Module):
    """Groups of 3x3 convolutions with a pooling behind each, then three linear layers.

    Args:
        features: The convolutions, which must give 512 channels; see `make_layers`.
        num_classes: Outputs.
        init_weights: Whether to draw weights as torchvision does, not as each layer does.
        dropout: Probability of dropout between the linear layers.

    Example:
        >>> from tapegrad import models
        >>> model = models.vgg11(num_classes=10)
        >>> list(model.state_dict())[:2]
        ['features.0.weight', 'features.0.bias']

    """

    def __init__(
        self,
        features: nn.Module,
        num_classes: int = 1000,
        init_weights: bool = True,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.features = features
        self.avgpool = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096),
            nn.ReLU(True),
            nn.Dropout(p=dropout),
            nn.Linear(4096, 4096),
            nn.ReLU(True),
            nn.Dropout(p=dropout),
            nn.Linear(4096, num_classes),
        )
        if init_weights:
            self.apply(_begin)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits of images (N, 3, H, W)."""
        logits: Tensor = self.classifier(self.avgpool(self.features(x)).flatten(1))
        return logits


def make_layers(depth: int, batch_norm: bool = False) -> nn.Sequential:
    """Return the convolutions of VGG of a depth."""
    layers: list[nn.Module] = []
    channels = 3
    for group in LAYERS[depth]:
        for width in group:
            layers.append(nn.Conv2d(channels, width, kernel_size=3, padding=1))
            if batch_norm:
                layers.append(nn.BatchNorm2d(width))
            layers.append(nn.ReLU(inplace=True))
            channels = width
        layers.append(nn.MaxPool2d(kernel_size=2, stride=2))
    return nn.Sequential(*layers)


def _begin(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        init.zeros_(module.bias)
    elif isinstance(module, nn.Linear):
        init.normal_(module.weight, 0, 0.01)
        init.zeros_(module.bias)


def vgg11(**options: Any) -> VGG:
    """VGG with 11 layers; options are those of `VGG`."""
    return VGG(make_layers(11), **without_weights(options))


def vgg11_bn(**options: Any) -> VGG:
    """VGG with 11 layers and batch norm; options are those of `VGG`."""
    return VGG(make_layers(11, batch_norm=True), **without_weights(options))


def vgg13(**options: Any) -> VGG:
    """VGG with 13 layers; options are those of `VGG`."""
    return VGG(make_layers(13), **without_weights(options))


def vgg13_bn(**options: Any) -> VGG:
    """VGG with 13 layers and batch norm; options are those of `VGG`."""
    return VGG(make_layers(13, batch_norm=True), **without_weights(options))


def vgg16(**options: Any) -> VGG:
    """VGG with 16 layers; options are those of `VGG`."""
    return VGG(make_layers(16), **without_weights(options))


def vgg16_bn(**options: Any) -> VGG:
    """VGG with 16 layers and batch norm; options are those of `VGG`."""
    return VGG(make_layers(16, batch_norm=True), **without_weights(options))


def vgg19(**options: Any) -> VGG:
    """VGG with 19 layers; options are those of `VGG`."""
    return VGG(make_layers(19), **without_weights(options))


def vgg19_bn(**options: Any) -> VGG:
    """VGG with 19 layers and batch norm; options are those of `VGG`."""
    return VGG(make_layers(19, batch_norm=True), **without_weights(options))
