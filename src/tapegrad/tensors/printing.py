"""Tensors as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tapegrad.tensors.dtypes import bool_, float32, int64

if TYPE_CHECKING:
    from tapegrad.tensors.base import TensorBase

#: More elements than this are shown by their first and last three.
MOST = 1000


def text(tensor: TensorBase, name: str = "tensor") -> str:
    """Return a tensor as Python text: its elements, and what cannot be seen from them."""
    array = tensor._device.to_numpy(tensor._array)
    body = np.array2string(
        array,
        separator=", ",
        precision=4,
        suppress_small=True,
        threshold=MOST,
        prefix=f"{name}(",
        max_line_width=80,
    )
    return f"{name}({body}{_rest(tensor, array)})"


def _rest(tensor: TensorBase, array: Any) -> str:
    parts = []
    if not array.size and array.ndim != 1:
        parts.append(f"size={tensor.shape}")
    if tensor.dtype not in (float32, int64, bool_) or (not array.size and tensor.dtype != float32):
        parts.append(f"dtype={tensor.dtype}")
    if tensor.device.name != "cpu":
        parts.append(f"device={tensor.device.name!r}")
    if tensor._node is not None:
        parts.append(f"grad_fn={tensor._node}")
    elif tensor._requires_grad:
        parts.append("requires_grad=True")
    return "".join(f", {each}" for each in parts)
