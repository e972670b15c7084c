"""What is to be done, as data: no framework, no arrays, no code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

LEVELS = ("operator", "fused", "layer", "model", "graph")
SIZES = ("small", "medium", "large", "skewed")
#: In the order in which they are measured and printed.
PHASES = ("build", "compile", "forward", "backward", "step", "inference")


@dataclass(frozen=True)
class Array:
    """One input of a case, made by the driver from a seed and handed to every worker."""

    name: str
    shape: tuple[int, ...]
    #: Whether the gradient with respect to it is part of the work.
    grad: bool = True
    #: `normal`, `uniform` (0 to 1), `positive` (0.5 to 2), `distinct` (no two equal) or `integers`.
    kind: str = "normal"
    #: Integers are drawn from 0 up to this, exclusively.
    high: int = 0


@dataclass(frozen=True)
class Case:
    """One piece of work, the same for every framework."""

    level: str
    op: str
    inputs: tuple[Array, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    size: str = "medium"
    dtype: str = "float32"
    phases: tuple[str, ...] = ("forward", "backward")
    #: Terms in the longest sum behind one number: the tolerance grows with its square root.
    reduction: int = 1
    #: The result is random: it is checked by its distribution.
    random: bool = False
    #: Floating-point operations of one forward go, where they are known.
    flops: float = 0.0

    @property
    def label(self) -> str:
        """Name the case for people: operator, shapes and attributes."""
        shapes = " ".join("x".join(map(str, array.shape)) or "()" for array in self.inputs)
        attrs = " ".join(f"{key}={_plain(value)}" for key, value in self.attrs.items())
        return " ".join(part for part in (self.op, shapes, attrs) if part)

    @property
    def key(self) -> str:
        """Identify the case for ever: the same work has the same key in every run."""
        content = self.as_dict()
        for measured_not_done in ("phases", "size", "flops"):
            del content[measured_not_done]
        text = json.dumps(content, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def wrt(self) -> tuple[str, ...]:
        """Names of the inputs whose gradients are asked for."""
        return tuple(array.name for array in self.inputs if array.grad)

    def as_dict(self) -> dict[str, Any]:
        """Turn the case into plain values for JSON."""
        return asdict(self) | {"attrs": dict(self.attrs)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Case:
        """Read what `as_dict` wrote."""
        arrays = tuple(
            Array(**{**array, "shape": tuple(array["shape"])}) for array in content["inputs"]
        )
        return cls(**{**content, "inputs": arrays, "phases": tuple(content["phases"])})


def _plain(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
