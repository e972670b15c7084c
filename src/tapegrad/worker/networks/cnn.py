"""VGG and ResNet as data, layer for layer as torchvision has them.

Names of parameters are torchvision's keys with underscores for dots (`layer1_0_conv1_weight`).
Three things differ:

- VGG has no dropout: random results could not be compared, and its time is small;
- VGG has no adaptive pooling: at 224 pixels it leaves the 7x7 pixels as they are. At other sizes
  the classifier's first layer takes as many numbers as there are;
- weights are drawn so that numbers neither grow nor vanish on their way (He's initialisation;
  small weights where a residual branch ends), so that every layer counts in what is checked.

A model that trains gives, beside its logits, the mean and the variance that each batch norm found.
One that predicts takes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tapegrad.worker.case import Array
from tapegrad.worker.networks import Network, Node

CLASSES = 1000
EPS = 1e-5
#: Channels of VGG's five groups of convolutions, how many there are in each, and its classifier.
VGG_CHANNELS = (64, 128, 256, 512, 512)
VGG_CONVOLUTIONS = {"vgg16": (2, 2, 3, 3, 3), "vgg19": (2, 2, 4, 4, 4)}
VGG_HIDDEN = 4096
#: Channels inside the blocks of ResNet's four layers, how many blocks there are in each.
RESNET_CHANNELS = (64, 128, 256, 512)
RESNET_BLOCKS = {
    "resnet18": (2, 2, 2, 2),
    "resnet34": (3, 4, 6, 3),
    "resnet50": (3, 4, 6, 3),
    "resnet101": (3, 4, 23, 3),
    "resnet152": (3, 8, 36, 3),
}
#: Those whose blocks narrow the channels, and by how much.
BOTTLENECKS = ("resnet50", "resnet101", "resnet152")
EXPANSION = 4
MODELS = (*(f"{name}{bn}" for name in VGG_CONVOLUTIONS for bn in ("", "_bn")), *RESNET_BLOCKS)

#: Scale of weights of the last batch norm in a residual branch.
BRANCH = 0.25
#: Scale of running variances, with which a batch norm of positive weights keeps sizes on average.
VARIANCE = 1.6


def network(name: str, *, batch: int, image: int, training: bool) -> Network:
    """Return a model for a batch of square images, as it trains or as it predicts."""
    return _built(name, batch, image, training).network()


def flops(name: str, *, batch: int, image: int) -> float:
    """Count the multiplications and additions of a forward pass in products of matrices."""
    return _built(name, batch, image, training=True).flops


def _built(name: str, batch: int, image: int, training: bool) -> _Builder:
    builder = _Builder(batch, image, training)
    if name in RESNET_BLOCKS:
        _resnet(builder, name)
    else:
        _vgg(builder, name)
    return builder


@dataclass(frozen=True)
class _Value:
    """A value on its way: a square image with channels, or a vector where the side is zero."""

    name: str
    channels: int
    side: int = 0


@dataclass
class _Builder:
    """Adds layers to a network, with their parameters."""

    batch: int
    image: int
    training: bool
    flops: float = 0.0
    _inputs: list[Array] = field(default_factory=list)
    _nodes: list[Node] = field(default_factory=list)
    _statistics: list[str] = field(default_factory=list)

    def start(self) -> _Value:
        shape = (self.batch, 3, self.image, self.image)
        self._inputs.append(Array("x", shape, grad=False))
        return _Value("x", 3, self.image)

    def network(self) -> Network:
        """Return what was built; the last value is its output."""
        output = self._nodes[-1].gives[0]
        return Network(tuple(self._inputs), tuple(self._nodes), (output,), tuple(self._statistics))

    def conv(  # noqa: PLR0917  as PyTorch's Conv2d
        self, key: str, x: _Value, channels: int, kernel: int, stride: int = 1, bias: bool = False
    ) -> _Value:
        fan = x.channels * kernel**2
        takes = [self._weight(f"{key}_weight", (channels, x.channels, kernel, kernel), fan)]
        if bias:
            takes.append(self._bias(f"{key}_bias", channels))
        value = _Value(key, channels, (x.side - 1) // stride + 1)
        self.flops += 2.0 * self.batch * channels * value.side**2 * fan
        return self._add("conv2d", x, takes, value, stride=stride, padding=kernel // 2)

    def batch_norm(self, key: str, x: _Value, scale: float = 1.0) -> _Value:
        shape = (x.channels,)
        takes = [
            self._parameter(Array(f"{key}_weight", shape, kind="positive", scale=scale)),
            self._bias(f"{key}_bias", x.channels),
            self._given(Array(f"{key}_running_mean", shape, scale=0.1)),
            self._given(Array(f"{key}_running_var", shape, kind="positive", scale=VARIANCE)),
        ]
        value = replace(x, name=key)
        if not self.training:
            return self._add("batch_norm_inference", x, takes, value, eps=EPS)
        found = f"{key}_mean", f"{key}_var"
        self._statistics += found
        return self._add("batch_norm_training", x, takes, value, found, eps=EPS)

    def relu(self, key: str, x: _Value) -> _Value:
        return self._add("relu", x, [], replace(x, name=key))

    def add(self, key: str, x: _Value, y: _Value) -> _Value:
        return self._add("add", x, [y.name], replace(x, name=key))

    def max_pool(self, key: str, x: _Value, kernel: int, padding: int) -> _Value:
        value = _Value(key, x.channels, (x.side + 2 * padding - kernel) // 2 + 1)
        return self._add("max_pool2d", x, [], value, kernel=kernel, stride=2, padding=padding)

    def global_avg_pool(self, key: str, x: _Value) -> _Value:
        return self._add("global_avg_pool2d", x, [], _Value(key, x.channels))

    def flatten(self, key: str, x: _Value) -> _Value:
        width = x.channels * x.side**2
        return self._add("reshape", x, [], _Value(key, width), shape=(self.batch, width))

    def linear(self, key: str, x: _Value, width: int) -> _Value:
        takes = [
            self._weight(f"{key}_weight", (width, x.channels), x.channels),
            self._bias(f"{key}_bias", width),
        ]
        self.flops += 2.0 * self.batch * width * x.channels
        return self._add("linear", x, takes, _Value(key, width))

    def _add(
        self,
        op: str,
        x: _Value,
        takes: list[str],
        value: _Value,
        statistics: tuple[str, ...] = (),
        **attrs: Any,
    ) -> _Value:
        self._nodes.append(Node(op, (x.name, *takes), (value.name, *statistics), attrs))
        return value

    def _weight(self, name: str, shape: tuple[int, ...], fan: int) -> str:
        return self._parameter(Array(name, shape, scale=math.sqrt(2 / fan)))

    def _bias(self, name: str, width: int) -> str:
        return self._parameter(Array(name, (width,), scale=0.1))

    def _parameter(self, array: Array) -> str:
        """Take an input that training changes."""
        self._inputs.append(array if self.training else replace(array, grad=False))
        return array.name

    def _given(self, array: Array) -> str:
        self._inputs.append(replace(array, grad=False))
        return array.name


def _vgg(net: _Builder, name: str) -> None:
    plain = name.removesuffix("_bn")
    x, index = net.start(), 0
    for channels, count in zip(VGG_CHANNELS, VGG_CONVOLUTIONS[plain], strict=True):
        for _ in range(count):
            x = net.conv(f"features_{index}", x, channels, 3, bias=True)
            if plain != name:
                index += 1
                x = net.batch_norm(f"features_{index}", x)
            x = net.relu(f"features_{index + 1}", x)
            index += 2
        x = net.max_pool(f"features_{index}", x, 2, 0)
        index += 1
    x = net.flatten("flatten", x)
    for index in (0, 3):
        x = net.linear(f"classifier_{index}", x, VGG_HIDDEN)
        x = net.relu(f"classifier_{index + 1}", x)
    net.linear("classifier_6", x, CLASSES)


def _resnet(net: _Builder, name: str) -> None:
    x = net.conv("conv1", net.start(), 64, 7, 2)
    x = net.relu("relu", net.batch_norm("bn1", x))
    x = net.max_pool("maxpool", x, 3, 1)
    block = _bottleneck if name in BOTTLENECKS else _basic_block
    for number, (channels, count) in enumerate(
        zip(RESNET_CHANNELS, RESNET_BLOCKS[name], strict=True), start=1
    ):
        for index in range(count):
            stride = 2 if number > 1 and index == 0 else 1
            x = _residual(net, f"layer{number}_{index}", x, block, channels, stride)
    net.linear("fc", net.global_avg_pool("avgpool", x), CLASSES)


def _residual(  # noqa: PLR0917  as torchvision's blocks
    net: _Builder, key: str, x: _Value, block: _Block, channels: int, stride: int
) -> _Value:
    """Add what a block makes of a value to the value, brought to the same shape if need be."""
    branch = block(net, key, x, channels, stride)
    if (x.channels, x.side) != (branch.channels, branch.side):
        x = net.conv(f"{key}_downsample_0", x, branch.channels, 1, stride)
        x = net.batch_norm(f"{key}_downsample_1", x)
    return net.relu(f"{key}_relu", net.add(key, branch, x))


def _basic_block(net: _Builder, key: str, x: _Value, channels: int, stride: int) -> _Value:
    x = net.conv(f"{key}_conv1", x, channels, 3, stride)
    x = net.relu(f"{key}_relu1", net.batch_norm(f"{key}_bn1", x))
    x = net.conv(f"{key}_conv2", x, channels, 3)
    return net.batch_norm(f"{key}_bn2", x, BRANCH)


def _bottleneck(net: _Builder, key: str, x: _Value, channels: int, stride: int) -> _Value:
    """Narrow, convolve, widen; the stride is where torchvision has it, in the middle."""
    x = net.conv(f"{key}_conv1", x, channels, 1)
    x = net.relu(f"{key}_relu1", net.batch_norm(f"{key}_bn1", x))
    x = net.conv(f"{key}_conv2", x, channels, 3, stride)
    x = net.relu(f"{key}_relu2", net.batch_norm(f"{key}_bn2", x))
    x = net.conv(f"{key}_conv3", x, EXPANSION * channels, 1)
    return net.batch_norm(f"{key}_bn3", x, BRANCH)


_Block = Callable[[_Builder, str, _Value, int, int], _Value]
