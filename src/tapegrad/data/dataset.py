"""Where samples come from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tapegrad.errors import ShapeError
from tapegrad.tensors import Tensor
from tapegrad.tensors.arguments import expect_tensors


class Dataset:
    """Samples by number. A subclass says `__getitem__` and `__len__`.

    Example:
        >>> from tapegrad.data import Dataset
        >>> class Squares(Dataset):
        ...     def __len__(self):
        ...         return 10
        ...     def __getitem__(self, index):
        ...         return index, index**2
        >>> Squares()[3]
        (3, 9)

    """

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no method `__getitem__`")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} has no method `__len__`")

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))


class TensorDataset(Dataset):
    """Rows of tensors that have the same first dimension; a sample is a tuple of rows.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad.data import TensorDataset
        >>> rows = TensorDataset(tg.arange(3), tg.arange(3) * 10)
        >>> len(rows), [each.item() for each in rows[2]]
        (3, [2, 20])

    """

    def __init__(self, *tensors: Tensor) -> None:
        expect_tensors("TensorDataset", **{f"tensor {n}": x for n, x in enumerate(tensors)})
        sizes = [each.shape[0] if each.ndim else None for each in tensors]
        if not tensors or None in sizes or len(set(sizes)) != 1:
            raise ShapeError(
                "TensorDataset: expected tensors with as many rows each, got shapes "
                + (", ".join(str(tuple(each.shape)) for each in tensors) or "none")
            )
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(each[index] for each in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].shape[0])
