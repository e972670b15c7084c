"""Weights and whole training states as safetensors files, which hold data and no code.

A training state is a tree: dicts, lists, tuples, numbers and texts with tensors at some leaves.
The tensors are the file's tensors; the rest is JSON in the file's metadata, with the names of
tensors in their places. Files get a checksum of tensors and metadata, and say twice whose they are,
so that one whose checksum cannot be found any more is known to be damaged. Files of others have no
checksum and load as well.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from secrets import token_hex
from shutil import copymode
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tapegrad.errors import DTypeError, FileError, StateError
from tapegrad.tensors import Generator, Tensor, tensor
from tapegrad.tensors.random import DEFAULT

_CHECKSUM = "tapegrad.crc32"
_STATE = "tapegrad.state"
#: The one name that no tensor in a safetensors file can have.
_RESERVED = "__metadata__"
#: Who wrote a file: all such files have a checksum.
_OURS = {"written_by": "tapegrad"}
#: What safetensors raises for types that NumPy has no name for.
_UNREADABLE = (ValueError, TypeError, AttributeError, KeyError)
_DTYPES = ("bool", "int32", "int64", "float32", "float64")


class Stateful(Protocol):
    """What has a state_dict: a module, an optimiser, a schedule."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""

    def load_state_dict(self, state_dict: Any) -> Any:
        """Take a state."""


def save(tensors: Mapping[str, Tensor], path: str | Path) -> None:
    """Write tensors, as a model's `state_dict()`, into a safetensors file.

    The file is there whole or not at all: it is written under another name first.

    Example:
        >>> import tempfile, pathlib
        >>> from tapegrad import io, nn
        >>> model = nn.Linear(2, 3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "weights.safetensors"
        ...     io.save(model.state_dict(), path)
        ...     model.load_state_dict(io.load(path))
        <All keys matched successfully>

    """
    _write(_arrays(tensors), {}, Path(path))


def load(path: str | Path) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file; a damaged one raises FileError.

    Example:
        >>> import tempfile, pathlib
        >>> import tapegrad as tg
        >>> with tempfile.TemporaryDirectory() as folder:
        ...    tg.io.save({'a': tg.ones(2)}, pathlib.Path(folder) / 'a')
        ...    tg.io.load(pathlib.Path(folder) / 'a')
        {'a': tensor([1., 1.])}

    """
    arrays, _ = _read(Path(path))
    return {name: tensor(array) for name, array in arrays.items()}


def save_training(
    path: str | Path,
    *,
    model: Stateful | None = None,
    optimizer: Stateful | None = None,
    schedule: Stateful | None = None,
    generator: Generator | None = None,
    step: int = 0,
) -> None:
    """Write all that training needs to go on as if it had not stopped.

    Args:
        path: The file.
        model: The model.
        optimizer: Its optimiser.
        schedule: The schedule of learning rates.
        generator: The source of random numbers; tapegrad's own if None.
        step: How far training is, as a number of steps or epochs.

    Example:
        >>> import tempfile, pathlib
        >>> from tapegrad import io, nn, optim
        >>> model = nn.Linear(2, 3)
        >>> opt = optim.Adam(model.parameters())
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "training.safetensors"
        ...     io.save_training(path, model=model, optimizer=opt, step=7)
        ...     io.load_training(path, model=model, optimizer=opt)
        7

    """
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule}
    state: dict[str, Any] = {
        name: part.state_dict() for name, part in parts.items() if part is not None
    }
    state["generator"] = (generator or DEFAULT).get_state()
    state["step"] = step
    tensors: dict[str, Tensor] = {}
    text = json.dumps(_packed(state, "", tensors))
    _write(_arrays(tensors), {_STATE: text}, Path(path))


def load_training(
    path: str | Path,
    *,
    model: Stateful | None = None,
    optimizer: Stateful | None = None,
    schedule: Stateful | None = None,
    generator: Generator | None = None,
) -> int:
    """Give back what `save_training` wrote, and return the step.

    What the file has and is not asked for is left; what is asked for must be there. A damaged file
    raises FileError, one of other parts or shapes StateError; everything is as it was then.
    """
    arrays, metadata = _read(Path(path))
    if _STATE not in metadata:
        raise FileError(
            f"{path}: expected a training state, got tensors alone; read them with io.load"
        )
    try:
        state = _unpacked(json.loads(metadata[_STATE]), arrays)
        step, random = int(state["step"]), Generator().set_state(state["generator"])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise FileError(f"{path}: the training state is damaged: {error!r}") from None
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule}
    for name, part in parts.items():
        if part is not None and name not in state:
            raise StateError(f"{path}: expected the state of a {name}, there is none in the file")
    _load_all([(part, state[name]) for name, part in parts.items() if part is not None])
    (generator or DEFAULT).set_state(random.get_state())
    return step


def _load_all(parts: Sequence[tuple[Stateful, Any]]) -> None:
    """Give each part its state; if one does not take it, all get back what they had."""
    before = [(part, _copied(part.state_dict())) for part, _ in parts]
    try:
        for part, state in parts:
            part.load_state_dict(state)
    except BaseException:
        for part, state in before:
            part.load_state_dict(state)
        raise


def _copied(tree: Any) -> Any:
    """Return a state with tensors of its own."""
    if isinstance(tree, Tensor):
        return tree.detach().clone()
    if isinstance(tree, Mapping):
        return {key: _copied(each) for key, each in tree.items()}
    return [_copied(each) for each in tree] if isinstance(tree, list) else tree


def _packed(tree: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """Return a tree as JSON can hold it: what it has no word for becomes {"kind": content}."""
    if isinstance(tree, Tensor):
        name = path if path not in tensors else f"{path} {len(tensors)}"
        tensors[name] = tree
        return {"tensor": name}
    start = f"{path}." if path else ""
    if isinstance(tree, Mapping):
        pairs = tree.items()
        return {"dict": [[key, _packed(each, f"{start}{key}", tensors)] for key, each in pairs]}
    if isinstance(tree, (list, tuple)):
        entries = [_packed(each, f"{start}{place}", tensors) for place, each in enumerate(tree)]
        return {"tuple": entries} if isinstance(tree, tuple) else entries
    if isinstance(tree, np.generic) and tree.dtype.kind in "biuf":
        return tree.item()
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return tree
    raise DTypeError(
        "save_training: expected tensors, numbers, texts, lists and dicts as state, got "
        f"{type(tree).__name__} at {path}"
    )


def _unpacked(tree: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    if isinstance(tree, list):
        return [_unpacked(each, arrays) for each in tree]
    if not isinstance(tree, dict):
        return tree
    ((kind, content),) = tree.items()
    if kind == "tensor":
        return tensor(arrays[content])
    if kind == "tuple":
        return tuple(_unpacked(each, arrays) for each in content)
    if kind == "dict":
        return {key: _unpacked(value, arrays) for key, value in content}
    raise ValueError(f"unknown kind {kind!r}")


def _arrays(tensors: Any) -> dict[str, NDArray[Any]]:
    if not isinstance(tensors, Mapping):
        advice = "; pass its state_dict()" if hasattr(tensors, "state_dict") else ""
        raise DTypeError(
            f"save: expected a dict of Tensors by names, got {type(tensors).__name__}{advice}"
        )
    for name, each in tensors.items():
        if not isinstance(name, str) or not isinstance(each, Tensor):
            raise DTypeError(
                f"save: expected Tensors by names, got {type(each).__name__} at {name!r}"
            )
    if _RESERVED in tensors:
        raise DTypeError(
            f"save: expected names that safetensors does not use itself, got {_RESERVED!r}; "
            "rename the tensor"
        )
    return {
        name: np.ascontiguousarray(each.device.to_numpy(each._array)).reshape(tuple(each.shape))
        for name, each in tensors.items()
    }


def _safetensors(part: str = "") -> Any:
    try:
        return import_module(f"safetensors.{part}" if part else "safetensors")
    except ImportError as error:
        raise ImportError(
            f"tapegrad.io needs safetensors ({error}): pip install 'tapegrad[weights]'"
        ) from None


def _write(arrays: dict[str, NDArray[Any]], metadata: dict[str, str], path: Path) -> None:
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: expected a folder {path.parent}, there is none; make it")
    save_file, failure = _safetensors("numpy").save_file, _safetensors().SafetensorError
    path = path.resolve()  # a link stays one
    part = path.with_name(f"{path.name}.{token_hex(8)}.part")  # others may write the same file
    metadata |= _OURS
    try:
        save_file(arrays, part, metadata | {_CHECKSUM: _checksum(arrays, metadata)})
        with suppress(FileNotFoundError):
            copymode(path, part)  # who may read the file may go on doing so
        part.replace(path)
    except failure as error:
        raise OSError(f"{path}: the file could not be written: {error}") from None
    finally:
        with suppress(OSError):
            part.unlink()


def _read(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    safetensors = _safetensors()
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected a safetensors file, there is none")
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (safetensors.SafetensorError, OSError, *_UNREADABLE) as error:
        raise FileError(
            f"{path}: expected a safetensors file of {', '.join(_DTYPES)}, got one that is "
            f"damaged or of other types: {error}"
        ) from None
    for name, array in arrays.items():
        if array.dtype.name not in _DTYPES:
            raise FileError(
                f"{path}: {name} is of {array.dtype}, expected one of {', '.join(_DTYPES)}; "
                "convert the file first"
            )
        if array.dtype == np.bool_ and (array.view(np.uint8) > 1).any():
            raise FileError(
                f"{path}: the file is damaged: {name} is of bool, and holds bytes that are neither "
                "0 nor 1"
            )
    if _is_ours(metadata) and metadata.get(_CHECKSUM) != _checksum(arrays, metadata):
        raise FileError(f"{path}: the file is damaged: its checksum is wrong; save it again")
    return arrays, metadata


def _is_ours(metadata: Mapping[str, str]) -> bool:
    """Tell whether this library wrote a file, as long as one of its names is whole.

    A file that only speaks of it, as in a note, is another's.
    """
    return any(
        key.startswith("tapegrad.") or value == _OURS["written_by"]
        for key, value in metadata.items()
    )


def _checksum(arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> str:
    """Return the CRC-32 of names, shapes, bytes and metadata, which finds damage by accident."""
    told = sorted((key, value) for key, value in metadata.items() if key != _CHECKSUM)
    sum_ = zlib.crc32(repr(told).encode())
    for name, array in sorted(arrays.items()):
        sum_ = zlib.crc32(f"{name}{array.dtype}{array.shape}".encode(), sum_)
        sum_ = zlib.crc32(array.reshape(-1).view(np.uint8).data, sum_)
    return f"{sum_:08x}"
