"""Tensors that a module learns."""

from __future__ import annotations

from typing import Any, Self

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

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Self:
        """Make a parameter that shares the memory of `data`."""
        values = empty(0) if data is None else data
        if not isinstance(values, Tensor):
            raise DTypeError(
                f"Parameter: expected a Tensor, got {type(values).__name__}; "
                "make one with tapegrad.tensors.tensor(...)"
            )
        return values.detach().as_subclass(cls).requires_grad_(requires_grad)

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.detach().clone(), self.requires_grad)
        copied: Self = memo[id(self)]
        return copied

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return type(self), (self.detach().as_subclass(Tensor), self.requires_grad)
