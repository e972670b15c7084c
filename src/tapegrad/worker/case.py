"""What is to be done, as data: no framework, no arrays, no code."""

from __future__ import annotations

import difflib
import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

LEVELS = ("operator", "fused", "layer", "model", "graph")
SIZES = ("small", "medium", "large", "skewed")
#: In the order in which they are measured and printed.
PHASES = ("build", "compile", "forward", "backward", "step", "inference")
DTYPES = ("float32", "float64")
#: How an input is drawn.
KINDS = ("normal", "uniform", "positive", "distinct", "integers", "flags")


@dataclass(frozen=True)
class Array:
    """One input of a case, made by the driver from a seed and handed to every worker."""

    name: str
    shape: tuple[int, ...]
    #: Whether the gradient with respect to it is part of the work.
    grad: bool = True
    #: `normal`, `uniform` (0 to 1), `positive` (0.5 to 2), `distinct` (no two equal), `integers` or
    #: `flags` (true or false); of a user's own input, its type where that is none of these.
    kind: str = "normal"
    #: Integers are drawn from 0 up to this, exclusively.
    high: int = 0
    #: What drawn numbers are multiplied by: weights of deep networks are small.
    scale: float = 1.0

    def flaws(self) -> Iterator[str]:
        """Yield what is wrong with it, in words."""
        if not (isinstance(self.name, str) and self.name.isidentifier()):
            yield f"an input's name must be an identifier like 'x', not {self.name!r}."
        yield from _flaws_of_shape(self.name, self.shape)
        yield from _unknown(f"kind of input {self.name}", self.kind, KINDS)
        yield from _flaws_of_flag(f"grad of input {self.name}", self.grad)
        if self.kind == "integers" and not _whole(self.high, 1):
            yield (
                f"input {self.name}: integers are drawn from 0 up to `high`, exclusively: give it "
                f"a whole number of 1 or more, not {self.high!r}."
            )
        if not _amount(self.scale) or not self.scale:
            yield f"input {self.name}: scale must be a number above 0, not {self.scale!r}."

    def nbytes(self, dtype: str) -> int:
        """Return its size in a case of a type; integers have 64 bits, flags one byte."""
        widths = {"integers": 8, "flags": 1}
        return math.prod(self.shape) * widths.get(self.kind, 4 if dtype == "float32" else 8)


#: More terms than anybody adds up.
MOST_TERMS = 2**53


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
    #: Terms in the longest sum behind one number: the tolerance grows with its square root. Zero,
    #: for a user's own functions, lets the sizes of inputs and outputs decide.
    reduction: int = 1
    #: The result is random: it is checked by its distribution.
    random: bool = False
    #: Floating-point operations of one forward go, where they are known.
    flops: float = 0.0
    #: A smaller case of the same work in float64, which is checked in place of this one where
    #: the truth about this one would take too long.
    stand_in: Case | None = None

    @property
    def label(self) -> str:
        """Name the case for people: operator, shapes and attributes; a model's shapes follow."""
        taken = () if self.level == "model" else self.inputs
        shapes = " ".join("x".join(map(str, array.shape)) or "()" for array in taken)
        attrs = " ".join(f"{key}={plain(value)}" for key, value in self.attrs.items())
        return " ".join(part for part in (self.op, shapes, attrs) if part)

    @property
    def key(self) -> str:
        """Identify the case for ever: the same work has the same key in every run."""
        content = self.as_dict()
        for measured_not_done in ("phases", "size", "flops", "stand_in"):
            del content[measured_not_done]
        for array in content["inputs"]:
            if array["scale"] == 1.0:
                del array["scale"]
        text = json.dumps(content, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def wrt(self) -> tuple[str, ...]:
        """Names of the inputs whose gradients are asked for."""
        return tuple(array.name for array in self.inputs if array.grad)

    @property
    def nbytes(self) -> int:
        """Size of all inputs together."""
        return sum(array.nbytes(self.dtype) for array in self.inputs)

    def flaws(self) -> Iterator[str]:
        """Yield what is wrong with it, in words."""
        yield from _unknown("level", self.level, LEVELS)
        yield from _unknown("size", self.size, SIZES)
        yield from _unknown("dtype", self.dtype, DTYPES)
        if not (isinstance(self.op, str) and self.op):
            yield f"op must be the name of an operator, not {self.op!r}."
        yield from self._flaws_of_inputs()
        yield from _flaws_of_attrs(self.attrs)
        yield from _flaws_of_phases(self.phases)
        if not (_whole(self.reduction, 1) and self.reduction <= MOST_TERMS):
            yield f"reduction must be a whole number from 1 to 2**53, not {self.reduction!r}."
        if not _amount(self.flops):
            yield f"flops must be a number of 0 or more, not {self.flops!r}."
        yield from _flaws_of_flag("random", self.random)
        if self.stand_in is not None:
            for flaw in self.stand_in.flaws():
                yield f"stand-in: {flaw}"

    def _flaws_of_inputs(self) -> Iterator[str]:
        if not _are_arrays(self.inputs):
            yield f"inputs must be a tuple of Array, not {_short(self.inputs)}."
            return
        for array in self.inputs:
            yield from array.flaws()
        for name in _repeated(array.name for array in self.inputs):
            yield f"two inputs are named {name!r}; give each a name of its own."

    def as_dict(self) -> dict[str, Any]:
        """Turn the case into plain values for JSON."""
        return asdict(self) | {"attrs": dict(self.attrs)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Case:
        """Read what `as_dict` wrote."""
        arrays = tuple(
            Array(**{**array, "shape": tuple(array["shape"])}) for array in content["inputs"]
        )
        stand_in = content.get("stand_in")
        return cls(
            **{
                **content,
                "inputs": arrays,
                "phases": tuple(content["phases"]),
                "stand_in": stand_in and cls.from_dict(stand_in),
            }
        )


def plain(value: object) -> str:
    """Write an attribute as labels do."""
    return "x".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _unknown(kind: str, name: object, known: tuple[str, ...]) -> Iterator[str]:
    """Yield a complaint with the nearest name, unless the name is known."""
    if name not in known:
        close = difflib.get_close_matches(str(name), known, n=1, cutoff=0.4)
        guess = f" Did you mean {close[0]}?" if close else ""
        yield f"there is no {kind} {name!r}.{guess} There are: {', '.join(known)}."


def _flaws_of_flag(name: str, value: object) -> Iterator[str]:
    if not isinstance(value, bool):
        yield f"{name} must be True or False, not {_short(value)}."


def _flaws_of_shape(name: object, shape: object) -> Iterator[str]:
    if not (isinstance(shape, (tuple, list)) and all(_whole(side, 0) for side in shape)):
        yield (
            f"the shape of input {name} must be a tuple of whole numbers of 0 or more, like "
            f"(32, 64), not {_short(shape)}."
        )


def _flaws_of_attrs(attrs: object) -> Iterator[str]:
    if not (isinstance(attrs, Mapping) and all(isinstance(name, str) for name in attrs)):
        yield f"attrs must be a dictionary from names to values, not {_short(attrs)}."
        return
    for name, value in attrs.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            yield (
                f"attribute {name!r} must be of what JSON can hold (str, bool, int, finite float, "
                f"None, lists of these), not {_short(value)}."
            )


def _flaws_of_phases(phases: object) -> Iterator[str]:
    if not (isinstance(phases, (tuple, list)) and phases):
        yield f'phases must be a tuple like ("forward", "backward"), not {_short(phases)}.'
        return
    for phase in phases:
        yield from _unknown("phase", phase, PHASES)
    for phase in _repeated(phases):
        yield f"phase {phase!r} is there twice; name it once."


def _repeated(names: Iterable[object]) -> list[object]:
    return [name for name, count in Counter(map(str, names)).items() if count > 1]


def _are_arrays(values: object) -> bool:
    return isinstance(values, (tuple, list)) and all(isinstance(each, Array) for each in values)


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _amount(value: object) -> bool:
    return isinstance(value, (int, float)) and 0 <= value < math.inf


def _short(value: object) -> str:
    """Show a value together with its type, since 3 may be one that JSON does not know."""
    return f"{repr(value)[:60]} ({type(value).__name__})"
