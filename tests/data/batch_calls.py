"""Batches of datasets, for any library of PyTorch's shape."""

from __future__ import annotations

from typing import Any


def batches(lib: Any) -> list[Any]:
    """Return the kinds and numbers of batches of rows, and of a dataset made of rows."""

    class Doubled(lib.data.TensorDataset):  # type: ignore[misc]
        def __getitem__(self, index: int) -> Any:
            x, y = super().__getitem__(index)
            return {"x": x * 2, "index": index, "y": (y, y + 1)}

    rows = lib.tt.arange(10).reshape(5, 2), lib.tt.arange(5)
    found = []
    for dataset in (lib.data.TensorDataset(*rows), Doubled(*rows)):
        for options in ({"batch_size": 2}, {"batch_sampler": [[0, 3], [4]]}):
            loader = lib.data.DataLoader(dataset, **options, pin_memory=False)
            found += [_plain(batch) for batch in loader]
    return found


def _plain(batch: Any) -> Any:
    if isinstance(batch, dict):
        return {key: _plain(each) for key, each in batch.items()}
    if isinstance(batch, (list, tuple)):
        return [type(batch).__name__, *map(_plain, batch)]
    return batch.numpy() if hasattr(batch, "numpy") else batch
