"""A small image classifier: a file for `tapegrad bench profile`.

tapegrad bench frameworks install torch
tapegrad bench profile examples/profile_model.py:make_model --chart profile.png
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Block(nn.Module):
    """Two convolutions with a way past them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, x: Any) -> Any:
        """Return what the next block takes."""
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(x + self.norm2(self.conv2(y)))


class Classifier(nn.Module):
    """Two blocks, and one number for each class; returns the loss."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.blocks = nn.Sequential(Block(16), nn.MaxPool2d(2), Block(16))
        self.head = nn.Linear(16, classes)

    def forward(self, images: Any, labels: Any) -> Any:
        """Return the loss."""
        features = self.blocks(self.stem(images)).mean((2, 3))
        return nn.functional.cross_entropy(self.head(features), labels)


def make_model() -> tuple[nn.Module, tuple[Any, Any]]:
    """Return a model and its inputs: what `tapegrad bench profile` asks for."""
    return Classifier(), (torch.randn(4, 3, 32, 32), torch.randint(0, 10, (4,)))
