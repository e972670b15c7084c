"""What a worker must answer to each message: it may be anything, so nothing is taken on trust."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import psutil
from numpy.typing import NDArray

from tapegrad.bench.errors import WorkerError
from tapegrad.bench.printable import printable
from tapegrad.bench.results import UNTIMED
from tapegrad.bench.units import size

Finite = Annotated[float, msgspec.Meta(gt=0, le=sys.float_info.max)]
FiniteNotNegative = Annotated[float, msgspec.Meta(ge=0, le=sys.float_info.max)]
Whole = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
#: How many calls or evaluations.
Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]
#: Those that cases have: a claim of less would buy tolerance.
Precision = Literal["float32", "float64"]
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
    phase_notes: dict[str, list[str]] = {}


class Arrays(msgspec.Struct):
    """Results as files."""

    arrays: dict[str, str]


class Time(msgspec.Struct, forbid_unknown_fields=True):
    """A block."""

    samples: Annotated[list[Finite], msgspec.Meta(min_length=1)]
    inner: Count
    units: Count
    controls: dict[str, Finite]
    warmup_calls: Whole
    stationary: bool
    cores: FiniteNotNegative


class OwnTool(msgspec.Struct):
    """What the framework's own tool found."""

    seconds: Finite | None


class Read(msgspec.Struct):
    """What reading costs."""

    read: FiniteNotNegative
    reading: FiniteNotNegative
    copying: FiniteNotNegative
    alone: FiniteNotNegative | None = None
    keeps: bool | None = None


class Fresh(msgspec.Struct):
    """What new inputs cost."""

    fresh: FiniteNotNegative
    again: FiniteNotNegative


class Cores(msgspec.Struct):
    """How many processors were busy, loop by loop."""

    cores: Annotated[list[FiniteNotNegative], msgspec.Meta(min_length=1)]


class Peaks(msgspec.Struct, forbid_unknown_fields=True):
    """Memory."""

    allocator: Whole | None
    resident: Whole | None


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
Sample = tuple[FiniteNotNegative, FiniteNotNegative, FiniteNotNegative, FiniteNotNegative]


class ProfiledRow(msgspec.Struct):
    """Times of a row, step by step; a row that was not traced has no number."""

    row: int | None
    name: str
    operator: str | None
    samples: list[Sample]


class Profile(msgspec.Struct):
    """Steps with and without a profiler."""

    plain: Annotated[list[Finite], msgspec.Meta(min_length=1)]
    profiled: Annotated[list[Finite], msgspec.Meta(min_length=1)]
    #: Of each step with the profiler: the share in which others had the processor.
    waited: list[FiniteNotNegative]
    events: list[int]
    event_seconds: FiniteNotNegative
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
    """Read a file that may be anything, so that reading it may raise anything."""
    try:
        array = _read(Path(path))
    except Exception as error:
        reason = f"{name} is no array of numbers: {_why(error)}"
        raise WorkerError("failed", printable(reason)) from None
    if array.dtype.kind not in KINDS:
        raise WorkerError("failed", f"{name} holds {array.dtype}, not real numbers")
    return array


def _why(error: Exception) -> str:
    """Say what is wrong with a file; of objects NumPy says only that it does not read them."""
    said = str(error) or type(error).__name__
    return "it holds Python objects" if "Python objects" in said else said


def _read(path: Path) -> NDArray[Any]:
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError(f"{path.name} is no regular file")
    # Refuses a header that claims more than is there; a file with holes may claim what it likes.
    claimed = np.lib.format.open_memmap(path, mode="r").nbytes
    if claimed > (free := psutil.virtual_memory().available):
        raise ValueError(f"it takes {size(claimed)}, and {size(free)} of memory are free")
    with path.open("rb") as file:
        array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    return array
