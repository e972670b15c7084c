"""Samples, and batches of them.

Example:
    >>> import tapegrad as tg
    >>> from tapegrad.data import DataLoader, TensorDataset
    >>> rows = TensorDataset(tg.arange(6))
    >>> loader = DataLoader(rows, 3, shuffle=True, generator=tg.Generator().manual_seed(1))
    >>> sorted(number for x, in loader for number in x.tolist())
    [0, 1, 2, 3, 4, 5]

"""

from tapegrad.data.collate import default_collate
from tapegrad.data.dataset import Dataset, TensorDataset
from tapegrad.data.loader import DataLoader

__all__ = [
    "DataLoader",
    "Dataset",
    "TensorDataset",
    "default_collate",
]


def __dir__() -> list[str]:
    return __all__
