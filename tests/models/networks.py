"""VGG and ResNet written out for PyTorch, apart from tapegrad's, and their training.

Runs in both libraries; imports NumPy and nothing else.
"""

from __future__ import annotations

import runpy
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

TRAINING = str(Path(__file__).parents[1] / "oracles" / "training.py")
#: Convolutions before each of VGG's pools, and blocks of each of ResNet's layers.
CONVOLUTIONS = {"vgg11": (1, 1, 2, 2, 2), "vgg13": (2, 2, 2, 2, 2)}
CONVOLUTIONS |= {"vgg16": (2, 2, 3, 3, 3), "vgg19": (2, 2, 4, 4, 4)}
BLOCKS = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3), "resnet50": (3, 4, 6, 3)}
BLOCKS |= {"resnet101": (3, 4, 23, 3), "resnet152": (3, 8, 36, 3)}
DEEP = ("resnet50", "resnet101", "resnet152")
#: `width_per_group` where the whole width takes long.
WIDTHS = {"resnet101": 8, "resnet152": 8}
HIDDEN = 32
CLASSES = 5
STEPS = 3
BATCH = 3


def narrow(nn: Any, model: Any) -> Any:
    """Make VGG's linear layers narrow: their real sizes are in the counts of parameters."""
    sizes = 512 * 49, HIDDEN, HIDDEN, CLASSES
    for place, (width, out) in zip((0, 3, 6), pairwise(sizes), strict=True):
        model.classifier[place] = nn.Linear(width, out)
    return model


def vgg(nn: Any, name: str) -> Any:
    """Return a VGG with torchvision's keys."""
    plain = name.removesuffix("_bn")
    layers: list[Any] = []
    channels = 3
    for number, width in zip(CONVOLUTIONS[plain], (64, 128, 256, 512, 512), strict=True):
        for _ in range(number):
            layers.append(nn.Conv2d(channels, width, 3, padding=1))
            layers += [nn.BatchNorm2d(width)] * (name != plain) + [nn.ReLU(inplace=True)]
            channels = width
        layers.append(nn.MaxPool2d(2, 2))
    model = nn.Sequential()
    model.add_module("features", nn.Sequential(*layers))
    model.add_module("avgpool", nn.AdaptiveAvgPool2d(7))
    model.add_module("flatten", nn.Flatten())
    hidden = [nn.Identity(), nn.ReLU(), nn.Dropout(0.0)]
    model.add_module("classifier", nn.Sequential(*hidden, *hidden, nn.Identity()))
    return narrow(nn, model)


def resnet(nn: Any, name: str) -> Any:
    """Return a ResNet with torchvision's keys."""
    deep, part = name in DEEP, WIDTHS.get(name, 64) / 64

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self, channels: int, width: int, stride: int) -> None:
            super().__init__()
            out = width * (4 if deep else 1)
            kernels = ((1, 1), (3, stride), (1, 1)) if deep else ((3, stride), (3, 1))
            inner = int(width * part)
            sizes = [channels, inner, inner, out] if deep else [channels, width, out]
            for number, (kernel, step) in enumerate(kernels):
                a, b = sizes[number : number + 2]
                conv = nn.Conv2d(a, b, kernel, step, kernel // 2, bias=False)
                self.add_module(f"conv{number + 1}", conv)
                self.add_module(f"bn{number + 1}", nn.BatchNorm2d(b))
            self.depth = len(kernels)
            if stride != 1 or channels != out:
                self.downsample = nn.Sequential(
                    nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out)
                )

        def forward(self, x: Any) -> Any:
            y = x
            for number in range(1, self.depth + 1):
                y = getattr(self, f"bn{number}")(getattr(self, f"conv{number}")(y))
                y = y if number == self.depth else y.clamp(min=0)
            return (y + (self.downsample(x) if hasattr(self, "downsample") else x)).clamp(min=0)

    model = nn.Sequential()
    model.add_module("conv1", nn.Conv2d(3, 64, 7, 2, 3, bias=False))
    model.add_module("bn1", nn.BatchNorm2d(64))
    model.add_module("relu", nn.ReLU())
    model.add_module("maxpool", nn.MaxPool2d(3, 2, 1))
    channels = 64
    for layer, blocks in enumerate(BLOCKS[name]):
        row = []
        for block in range(blocks):
            width = 64 * 2**layer
            row.append(Block(channels, width, 2 if layer and not block else 1))
            channels = width * (4 if deep else 1)
        model.add_module(f"layer{layer + 1}", nn.Sequential(*row))
    model.add_module("avgpool", nn.AdaptiveAvgPool2d(1))
    model.add_module("flatten", nn.Flatten())
    model.add_module("fc", nn.Linear(channels, CLASSES))
    return model


def reference(lib: Any, name: str, dtype: str) -> Any:
    """Train the network that is written out here."""
    made = vgg(lib.nn, name) if name.startswith("vgg") else resnet(lib.nn, name)
    return train(lib, made, name, dtype)


def train(lib: Any, model: Any, name: str, dtype: str) -> Any:
    """Return outputs and gradients of the first step, and all state after three steps."""
    training = runpy.run_path(TRAINING)
    floats, numpy = getattr(lib.tt, dtype), training["numpy"]
    side = 32 if name.startswith("vgg") else 33  # the last layers see 1x1 and 2x2 pixels
    training["filled"](lib, model.to(floats), 0)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    random = np.random.default_rng(1)
    found: dict[str, Any] = {}
    for step in range(STEPS):
        x = lib.tt.tensor(random.standard_normal((BATCH, 3, side, side)).astype(dtype))
        output = model(x)
        loss = lib.F.cross_entropy(output, lib.tt.tensor(random.integers(0, CLASSES, BATCH)))
        optimizer.zero_grad()
        loss.backward()
        found[f"outputs of step {step}"] = numpy(output)
        if step == 0:
            found["gradients"] = {name: numpy(each.grad) for name, each in model.named_parameters()}
        optimizer.step()
    found["state"] = {name: numpy(each) for name, each in model.state_dict().items()}
    return found
