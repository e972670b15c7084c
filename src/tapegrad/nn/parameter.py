"""Tensors that a module learns."""

from __future__ import annotations

from typing import Any, cast

from tapegrad.errors import DTypeError
from tapegrad.tensors import Tensor, empty


class Parameter(Tensor):
    """A tensor that becomes a parameter of the module it is assigned to.

    Args:
        data: Its values; the parameter shares their memory.
        requires_grad: Whether gradients flow to it.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import nn
        >>> layer = nn.Module()
        >>> layer.scale = nn.Parameter(tg.ones(3))
        >>> [name for name, _ in layer.named_parameters()]
        ['scale']

    """

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True) -> None:
        values = empty(0) if data is None else data
        if not isinstance(values, Tensor):
            raise DTypeError(
                f"Parameter: expected a Tensor, got {type(values).__name__}; "
                "make one with tapegrad.tensor(...)"
            )
        self._array, self._device = values._array, values._device
        self._cell, self._inference = values._version_cell(), values._inference
        self.requires_grad = requires_grad

    def __deepcopy__(self, memo: dict[Any, Any]) -> Parameter:
        """Copy it without its gradient, as PyTorch does."""
        made: Any = super().__deepcopy__(memo)
        made.grad = None
        return cast("Parameter", made)

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"
