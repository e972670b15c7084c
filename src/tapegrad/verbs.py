"""Verbs that scalars and tensors share: one name, and the arguments say which is meant."""

from __future__ import annotations

import sys
from typing import Any

from tapegrad import scalar

__all__ = ["grad", "gradcheck"]


def _of_tensors(given: Any) -> bool:
    """Tell whether arguments are tensors; these cannot be there before their module is loaded."""
    if "tapegrad.tensors" not in sys.modules:
        return False
    from tapegrad.tensors import is_tensor

    listed = given if isinstance(given, (list, tuple)) and given else (given,)
    return is_tensor(listed[0])


def grad(y: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the gradient of Vars as Vars, of a function as a function, of tensors as tensors.

    `grad(y, wrt)` of Vars records adjoint nodes; `grad(f)` is a function of numbers;
    `grad(outputs, inputs)` of tensors returns a tuple, with PyTorch's options (`grad_outputs`,
    `retain_graph`, `create_graph`, `allow_unused`).

    Example:
        >>> import tapegrad as tg
        >>> float(tg.grad(lambda x: x**3)(2.0))
        12.0
        >>> x = tg.tensor(2.0, requires_grad=True)
        >>> tg.grad(x**3, x)
        (tensor(12.),)

    """
    if _of_tensors(y):
        from tapegrad import tensors

        return tensors.grad(y, *args, **kwargs)
    return scalar.grad(y, *args, **kwargs)


def gradcheck(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Compare the gradient of a function of numbers, or of tensors, with differences.

    Example:
        >>> import tapegrad as tg
        >>> x = tg.tensor([0.3, 0.7], dtype="float64", requires_grad=True)
        >>> tg.gradcheck(lambda x: x.exp() * x, x)
        True

    """
    if args and _of_tensors(args[0]):
        from tapegrad import tensors

        return tensors.gradcheck(function, *args, **kwargs)
    return scalar.gradcheck(function, *args, **kwargs)
