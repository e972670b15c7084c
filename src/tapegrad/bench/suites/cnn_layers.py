"""Suite `cnn-layers`: the single layers of Flux's comparison with PyTorch.

Forward, backward and both in one go (`step`, the published "total"). Layers are those of the
start of a network, images of 224 by 224 pixels; the published figures are of batch 1. Gradients
are those of the input and of all parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from tapegrad.bench.suite import Suite
from tapegrad.bench.terms import tolerant
from tapegrad.worker.case import Array, Case

PHASES = ("forward", "backward", "step")
SIDE = 224
CHANNELS = 3
FILTERS = 64


class Layer(NamedTuple):
    """A case, what the published table calls the layer, and how it differs from the one there."""

    name: str
    variant: str
    case: Case

    @property
    def label(self) -> str:
        """Name the row: the published layer has the published name."""
        return ", ".join(filter(None, (self.name, self.variant)))


_case = partial(tolerant, "layer", phases=PHASES)


def _images(batch: int, channels: int = CHANNELS, kind: str = "normal") -> Array:
    return Array("x", (batch, channels, SIDE, SIDE), kind=kind)


def _variant(batch: int) -> str:
    return "" if batch == 1 else f"batch {batch}"


def _convolutions() -> Iterator[Layer]:
    for batch, size in ((1, "medium"), (8, "large")):
        for stride in (1, 2):
            for kernel in (3, 5):
                weight = Array("weight", (FILTERS, CHANNELS, kernel, kernel))
                inputs = (_images(batch), weight, Array("bias", (FILTERS,)))
                padding = kernel // 2
                case = _case("conv2d", size, *inputs, stride=stride, padding=padding)
                yield Layer(f"Conv{kernel}x{kernel}/{stride}", _variant(batch), case)


def _dense() -> Iterator[Layer]:
    for batch, size in ((1, "small"), (64, "medium")):
        layer = Array("weight", (512, 1024)), Array("bias", (512,))
        case = _case("linear", size, Array("x", (batch, 1024)), *layer)
        yield Layer("Dense", _variant(batch), case)


def _batch_norms() -> Iterator[Layer]:
    for channels, size in ((CHANNELS, "small"), (FILTERS, "large")):
        affine = Array("weight", (channels,)), Array("bias", (channels,))
        case = _case("batch_norm", size, _images(1, channels), *affine, eps=1e-5)
        yield Layer("BatchNorm", "" if channels == CHANNELS else f"{channels} channels", case)


def _pools() -> Iterator[Layer]:
    window: dict[str, Any] = {"kernel": 3, "stride": 2}
    for batch, size in ((1, "small"), (8, "medium")):
        distinct = _images(batch, kind="distinct")
        case = _case("max_pool2d", size, distinct, **window, padding=0)
        yield Layer("MaxPool3x3/2", _variant(batch), case)
        case = _case("avg_pool2d", size, _images(batch), **window)
        yield Layer("MeanPool3x3/2", _variant(batch), case)


LAYERS = (*_convolutions(), *_dense(), *_batch_norms(), *_pools())
#: Case key -> the layer as the published table calls it, and the label of its row.
LABELS = {layer.case.key: (layer.name, layer.label) for layer in LAYERS}

SUITE = Suite(
    name="cnn-layers",
    summary="layers at the start of a CNN on images of 224x224: forward, backward and total",
    cases=tuple(layer.case for layer in LAYERS),
)
