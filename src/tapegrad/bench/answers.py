"""What a worker must answer to each message: it may be anything, so nothing is taken on trust."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from tapegrad.bench.errors import WorkerError
from tapegrad.bench.results import UNTIMED

Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Bytes = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
Precision = Literal["float16", "float32", "float64"]
Phase = Literal["build", "compile", "forward", "backward", "step", "inference"]
#: Kinds of arrays that results may be: booleans, integers and real numbers.
KINDS = "biuf"


class Nothing(msgspec.Struct):
    """No content."""


class Hello(msgspec.Struct):
    """Who it is."""

    version: str
    python: str
    details: dict[str, Any]
    devices: list[str]


class Prepare(msgspec.Struct):
    """What it offers for a case."""

    phases: list[Phase]
    looped: list[str]
    joint: bool
    precision: Precision | None
    notes: list[str]


class Arrays(msgspec.Struct):
    """Results as files."""

    arrays: dict[str, str]


class Time(msgspec.Struct, forbid_unknown_fields=True):
    """A block."""

    samples: Annotated[list[Positive], msgspec.Meta(min_length=1)]
    inner: int
    units: int
    controls: dict[str, Positive]
    warmup_calls: int
    stationary: bool
    cores: float


class OwnTool(msgspec.Struct):
    """What the framework's own tool found."""

    seconds: Positive | None


class Read(msgspec.Struct):
    """What reading costs."""

    read: float
    reading: float
    copying: float


class Fresh(msgspec.Struct):
    """What new inputs cost."""

    fresh: float
    again: float


class Cores(msgspec.Struct):
    """How many processors were busy, loop by loop."""

    cores: list[float]


class Peaks(msgspec.Struct, forbid_unknown_fields=True):
    """Memory."""

    allocator: Bytes | None
    resident: Bytes | None


class ModelRow(msgspec.Struct):
    """Calls of a user's model that are alike."""

    name: str
    operator: str | None
    modules: list[str]
    calls: int
    inputs: list[str]
    outputs: list[str]
    dtypes: list[str]
    attributes: list[str]


class Model(msgspec.Struct):
    """What a step of a user's model consists of."""

    rows: list[ModelRow]


#: Seconds forward and backward, and events that the profiler recorded in them.
Sample = tuple[NotNegative, NotNegative, NotNegative, NotNegative]


class ProfiledRow(msgspec.Struct):
    """Times of a row, step by step; a row that was not traced has no number."""

    row: int | None
    name: str
    operator: str | None
    samples: list[Sample]


class Profile(msgspec.Struct):
    """Steps with and without a profiler."""

    plain: Annotated[list[Positive], msgspec.Meta(min_length=1)]
    profiled: Annotated[list[Positive], msgspec.Meta(min_length=1)]
    #: Of each step with the profiler: the share in which others had the processor.
    waited: list[NotNegative]
    events: list[int]
    event_seconds: NotNegative
    rows: list[ProfiledRow]


class Replay(msgspec.Struct):
    """An operator alone, repetition by repetition; none where it could not be repeated."""

    samples: list[Sample]


class Registry(msgspec.Struct):
    """The operators that a framework has, by group."""

    operators: dict[str, list[str]]


class Calls(msgspec.Struct):
    """The operators that a call runs."""

    calls: list[str]


ANSWERS: dict[str, type[msgspec.Struct]] = {
    "hello": Hello,
    "prepare": Prepare,
    "feed": Nothing,
    "check": Arrays,
    "repeat": Arrays,
    "time": Time,
    "read": Read,
    "fresh": Fresh,
    "cores": Cores,
    "memory": Peaks,
    "own_tool": OwnTool,
    "registry": Registry,
    "calls": Calls,
    "forget": Nothing,
    "model": Model,
    "profile": Profile,
    "replay": Replay,
}


def complaint(answer: dict[str, Any]) -> WorkerError:
    """Turn a complaint into an error; it cannot claim a verdict that comes with times."""
    kind = answer["complaint"]
    return WorkerError(kind if kind in UNTIMED else "failed", str(answer.get("message", "")))


def check(do: str, answer: Any) -> dict[str, Any]:
    """Return an answer that is one; raises `WorkerError`."""
    try:
        msgspec.convert(answer, ANSWERS.get(do, Nothing))
    except msgspec.ValidationError as error:
        raise WorkerError("failed", f"answered `{do}` with rubbish: {error}") from None
    found: dict[str, Any] = answer
    return found


def load(answer: dict[str, Any]) -> dict[str, NDArray[Any]]:
    """Read the arrays that an answer names; raises `WorkerError`."""
    return {name: _load(name, path) for name, path in answer["arrays"].items()}


def _load(name: str, path: str) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(path)
    except (OSError, ValueError) as error:
        raise WorkerError("failed", f"{name} is no array of numbers: {error}") from None
    if array.dtype.kind not in KINDS:
        raise WorkerError("failed", f"{name} holds {array.dtype}, not real numbers")
    return array
