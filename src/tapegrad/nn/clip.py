"""Keep gradients in bounds between backward and the optimiser's step."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tapegrad.errors import DTypeError, GradError, OptionError
from tapegrad.nn.module import Module
from tapegrad.tensors import Tensor, no_grad, stack, zeros


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients by one factor, so that their norm together is at most max_norm.

    Args:
        parameters: Whose gradients to scale, in place.
        max_norm: The largest norm that is left alone.
        norm_type: 2 for the Euclidean norm, math.inf for the largest number, or any other p > 0.
        error_if_nonfinite: Raise GradError if the norm is not finite.
        foreach: Taken for PyTorch's sake; it changes nothing.

    Returns:
        The norm before.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import nn
        >>> x = tg.tensor([3.0, 4.0], requires_grad=True)
        >>> (x * x / 2).sum().backward()
        >>> nn.utils.clip_grad_norm_([x], max_norm=1.0).item()
        5.0
        >>> [round(each, 4) for each in x.grad.tolist()]
        [0.6, 0.8]

    """
    if not isinstance(norm_type, (int, float)) or not norm_type > 0:
        raise OptionError(
            f"clip_grad_norm_: expected norm_type above 0, or math.inf, got {norm_type!r}"
        )
    _check_bound("clip_grad_norm_", "max_norm", max_norm)
    with no_grad():
        gradients = _gradients("clip_grad_norm_", parameters)
        total = _norm(gradients, float(norm_type))
        norm = float(total.item())
        if error_if_nonfinite and not math.isfinite(norm):
            raise GradError(f"clip_grad_norm_: expected a finite norm of gradients, got {norm}")
        factor = max_norm / (norm + 1e-6)
        for gradient in gradients if not factor >= 1 else ():
            gradient.mul_(factor)
    return total


def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None
) -> None:
    """Cut every number of the gradients to the range from -clip_value to clip_value, in place.

    `foreach` is taken for PyTorch's sake; it changes nothing.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import nn
        >>> x = tg.tensor([3.0, 4.0], requires_grad=True)
        >>> (x * x / 2).sum().backward()
        >>> nn.utils.clip_grad_value_([x], 3.5)
        >>> x.grad
        tensor([3.0000, 3.5000])

    """
    _check_bound("clip_grad_value_", "clip_value", clip_value)
    with no_grad():
        for gradient in _gradients("clip_grad_value_", parameters):
            gradient.clamp_(-clip_value, clip_value)


def _check_bound(op: str, name: str, value: object) -> None:
    if not isinstance(value, (int, float)):
        raise DTypeError(f"{op}: expected {name} to be a number, got {type(value).__name__}")


def _gradients(op: str, parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    given = [parameters] if isinstance(parameters, Tensor) else parameters
    if isinstance(given, Module) or not isinstance(given, Iterable):
        raise DTypeError(
            f"{op}: expected parameters, got {type(given).__name__}; pass model.parameters()"
        )
    listed = list(given)
    for each in listed:
        if not isinstance(each, Tensor):
            raise DTypeError(f"{op}: expected Tensors as parameters, got {type(each).__name__}")
    return [each.grad for each in listed if each.grad is not None]


def _norm(gradients: list[Tensor], p: float) -> Tensor:
    """Return the norm of the norms, which is that of all numbers."""
    if not gradients:
        return zeros(())
    if p == math.inf:
        return stack([gradient.abs().amax() for gradient in gradients]).amax()
    if p == 2:
        return stack([gradient.square().sum() for gradient in gradients]).sum().sqrt()
    return stack([(gradient.abs() ** p).sum() for gradient in gradients]).sum().pow(1 / p)
