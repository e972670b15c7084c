"""Suite `cnn-models`: VGG and ResNet on images of 224 pixels, as they train and as they predict.

Two cases per model: training (forward, backward, and both in one go as `step`: a training step but
for the optimiser) and inference. The truth about them in float64 would take minutes each. So each
has a stand-in, the same model in float64 on two small images: outputs, every gradient and every
batch norm's statistics are checked there, element by element. At full size, in float32, contenders
are compared with each other, and gradients by their norms (`tapegrad.bench.comparison` says why).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from tapegrad.bench.suite import Suite
from tapegrad.worker.case import Case
from tapegrad.worker.networks import Network, cnn

IMAGE = 224
#: Images at a time: the deepest take fewer.
BATCH = dict.fromkeys(cnn.MODELS, 8) | {"resnet101": 4, "resnet152": 4}
#: By the time they take.
SIZE = dict.fromkeys(cnn.MODELS, "large") | {
    "resnet18": "small",
    "resnet34": "small",
    "resnet50": "medium",
    "resnet101": "medium",
}
#: Small, but batch norms see 32 numbers per channel and more. With eight, some channels vary so
#: little that gradients of a VGG16 in two frameworks differ twice as much.
STAND_IN_BATCH = 2
STAND_IN_IMAGE = {name: 128 if name in cnn.RESNET_BLOCKS else 64 for name in cnn.MODELS}


def model(name: str, *, batch: int, image: int, training: bool, dtype: str = "float32") -> Case:
    """Describe a model as it trains or as it predicts, without a stand-in."""
    network = cnn.network(name, batch=batch, image=image, training=training)
    return Case(
        "model",
        name,
        network.inputs,
        {"batch": batch, "image": image, "training": training},
        size=SIZE[name],
        dtype=dtype,
        phases=("forward", "backward", "step") if training else ("inference",),
        reduction=_terms(network),
        flops=cnn.flops(name, batch=batch, image=image),
    )


def _terms(network: Network) -> int:
    """Add up the terms of all layers: sums follow each other, and errors add up in squares.

    Behind a gradient there are as many again, those of the backward pass.
    """
    weights = (array.shape for array in network.inputs[1:] if len(array.shape) > 1)
    return 2 * sum(math.prod(shape[1:]) for shape in weights)


def _cases() -> Iterator[Case]:
    for name in cnn.MODELS:
        for training in (True, False):
            stand_in = model(
                name,
                batch=STAND_IN_BATCH,
                image=STAND_IN_IMAGE[name],
                training=training,
                dtype="float64",
            )
            full = model(name, batch=BATCH[name], image=IMAGE, training=training)
            yield replace(full, stand_in=stand_in)


SUITE = Suite(
    name="cnn-models",
    summary="VGG 16 and 19, ResNet 18 to 152: training and inference at 224 pixels",
    cases=tuple(_cases()),
    frameworks=("torch", "tapegrad", "jax", "tensorflow", "mxnet"),
    defaults={"threads": 2, "timeout": 600.0},
)
