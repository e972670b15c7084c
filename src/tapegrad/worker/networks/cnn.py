"""VGG and ResNet as data."""

from __future__ import annotations

from tapegrad.worker.networks import Network


def network(name: str, *, batch: int, image: int, training: bool) -> Network:
    """Return a model for a batch of square images, as it trains or as it predicts."""
    raise KeyError(name)
