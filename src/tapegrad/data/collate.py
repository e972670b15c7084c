"""Making a batch of samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tapegrad.errors import DTypeError, ShapeError
from tapegrad.tensors import Tensor, float64, stack, tensor


def default_collate(batch: Sequence[Any]) -> Any:
    """Put samples together: numbers and arrays as tensors with a new first dimension.

    Tuples and lists become lists with a batch in place of each entry, as texts become a list;
    dicts and named tuples keep their form.

    Example:
        >>> from tapegrad.data import default_collate
        >>> x, names = default_collate([(1, "a"), (2, "b")])
        >>> x.tolist(), names
        ([1, 2], ['a', 'b'])

    """
    first = batch[0]
    if isinstance(first, Tensor):
        return stack(list(batch))
    if isinstance(first, (np.ndarray, np.generic)):
        shapes = {np.shape(sample) for sample in batch}
        if len(shapes) > 1:
            raise ShapeError(
                "default_collate: expected arrays of one shape, got shapes "
                f"{', '.join(map(str, sorted(shapes)))}; give DataLoader a collate_fn"
            )
        return tensor(np.stack(batch))
    if isinstance(first, (int, float)):
        return tensor(list(batch), dtype=float64 if isinstance(first, float) else None)
    if isinstance(first, (str, bytes)):
        return list(batch)
    if isinstance(first, Mapping):
        return {key: default_collate([sample[key] for sample in batch]) for key in first}
    if isinstance(first, (tuple, list)):
        return _columns(first, batch)
    raise DTypeError(
        "default_collate: expected samples of tensors, arrays, numbers, texts, tuples, lists or "
        f"dicts, got {type(first).__name__}; give DataLoader a collate_fn"
    )


def _columns(first: tuple[Any, ...] | list[Any], batch: Sequence[Any]) -> Any:
    if any(len(sample) != len(first) for sample in batch):
        raise DTypeError(
            "default_collate: expected samples of equal length, got lengths "
            f"{sorted({len(sample) for sample in batch})}"
        )
    columns = [default_collate(column) for column in zip(*batch, strict=True)]
    return type(first)(*columns) if hasattr(first, "_fields") else columns
