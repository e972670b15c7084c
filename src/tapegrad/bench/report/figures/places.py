"""In which table a case is shown, and under which name."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tapegrad.worker.case import Case

MODELS = "CNN models"
LAYERS = "CNN layers"
OPERATORS = "Time of one call"
PARTS = "Their parts: time of one call"
FUSED = "Fused operators: time of one call"


@dataclass(frozen=True)
class Place:
    """A table, how it is laid out, and a case's name in it."""

    #: `operators`, `modules`, `layers` or `models`.
    kind: str
    title: str
    name: str


def place_of(case: Case, *, part: bool = False) -> Place:
    """Return where a case is shown; a layer may be there as part of a fused operator.

    Example:
        >>> place_of(Case("model", "resnet50", (), {"batch": 8, "image": 224})).name
        'ResNet-50'
        >>> place_of(Case("model", "vgg16_bn", (), {"batch": 1, "image": 64})).name
        'VGG16 BN, batch 1, 64x64'

    """
    match case.level:
        case "model":
            return Place("models", MODELS, _typed(case, _model(case)))
        case "layer":
            return Place("operators", PARTS, case.label) if part else _layer(case)
        case "fused":
            return Place("operators", FUSED, case.label)
        case "graph":
            title = f"Graphs, {case.op}: time of one evaluation or step"
            return Place("operators", title, case.label)
        case _:
            return Place("operators", OPERATORS, case.label)


def _typed(case: Case, name: str) -> str:
    """Add the type to a name, where it is not the one that all names are for."""
    return name if case.dtype == "float32" else f"{name} {case.dtype}"


def _layer(case: Case) -> Place:
    """Look a layer up in the suites that follow a document."""
    from tapegrad.bench.suites import cnn_layers, modules

    usual = replace(case, dtype="float32").key
    if usual in modules.LABELS:
        title, name = modules.LABELS[usual]
        return Place("modules", title, _typed(case, name))
    if usual in cnn_layers.LABELS:
        return Place("layers", LAYERS, _typed(case, cnn_layers.LABELS[usual][1]))
    return Place("layers", LAYERS, case.label)


def _model(case: Case) -> str:
    """Name a model; what it is measured with is said where it is not the usual."""
    from tapegrad.bench.suites import cnn_models

    name = case.op.replace("_bn", " BN").replace("vgg", "VGG")
    name = re.sub(r"resnet(\d)", r"ResNet-\1", name)
    batch, image = case.attrs.get("batch"), case.attrs.get("image")
    if (batch, image) == (cnn_models.BATCH.get(case.op), cnn_models.IMAGE):
        return name
    return f"{name}, batch {batch}, {image}x{image}"
