"""Gradients against differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tapegrad.errors import DTypeError, GradError
from tapegrad.tensors.autograd import grad
from tapegrad.tensors.base import TensorBase

if TYPE_CHECKING:
    from tapegrad.tensors.methods import Tensor


def gradcheck(
    function: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
) -> bool:
    """Compare a function's gradients with differences; True if they agree.

    Args:
        function: Takes the inputs, returns a tensor or a tuple of them. Results without gradients
            must not depend on the inputs; whole numbers are left out.
        inputs: Of float64; those that require gradients are checked.
        eps: The step of the differences.
        atol: The error allowed, absolute and
        rtol: relative.
        raise_exception: Raise GradError with the numbers rather than return False.

    Example:
        >>> import tapegrad as tg
        >>> x = tg.tensor([0.3, 0.7], dtype="float64", requires_grad=True)
        >>> gradcheck(lambda x: x.exp() * x, x)
        True

    """
    listed = [inputs] if isinstance(inputs, TensorBase) else list(inputs)
    checked = [x for x in listed if isinstance(x, TensorBase) and x.requires_grad]
    if not checked or any(x.dtype.name != "float64" for x in checked):
        raise DTypeError("gradcheck: expected inputs of float64 that require gradients")
    outs = _outputs(function(*listed))
    for number, out in enumerate(outs):
        for place, x in enumerate(checked):
            ours = _jacobian(out, x)
            theirs = _differences(function, listed, x, number, eps)
            if not np.allclose(ours, theirs, rtol=rtol, atol=atol):
                if not raise_exception:
                    return False
                raise GradError(
                    f"gradcheck: output {number} by input {place}:\n{ours}\nby differences:\n"
                    f"{theirs}"
                )
    return True


def gradgradcheck(
    function: Callable[..., Any], inputs: Tensor | Sequence[Any], **options: Any
) -> bool:
    """Compare the gradients of a function's gradients with differences.

    The gradients are functions of the inputs and of the weights that the function's results have:
    they are differentiated by both.
    """
    listed = [inputs] if isinstance(inputs, TensorBase) else list(inputs)
    weights = [_fixed_weights(out) for out in _smooth(function(*listed))]
    if not weights:
        raise GradError(
            "gradgradcheck: expected a function whose results require gradients; gradcheck tells "
            "whether they do not depend on the inputs"
        )

    def gradients(*given: Any) -> tuple[Any, ...]:
        own, weights = given[: len(listed)], given[len(listed) :]
        wanted: list[Any] = [x for x in own if isinstance(x, TensorBase) and x.requires_grad]
        outs = _smooth(function(*own))
        found = grad(outs, wanted, weights, create_graph=True, allow_unused=True)
        pairs = zip(found, wanted, strict=True)
        return tuple(x.new_zeros(x.shape) if each is None else each for each, x in pairs)

    return gradcheck(gradients, [*listed, *weights], **options)


def _fixed_weights(out: Any) -> Any:
    weights = np.cos(np.arange(out.numel(), dtype="float64")).reshape(out.shape)
    return out.new_tensor(weights).requires_grad_()


def _outputs(found: Any) -> list[Any]:
    """Return the results that can have gradients."""
    listed = found if isinstance(found, (tuple, list)) else [found]
    return [out for out in listed if isinstance(out, TensorBase) and out.is_floating_point()]


def _smooth(found: Any) -> list[Any]:
    """Return the results that have gradients."""
    return [out for out in _outputs(found) if out.requires_grad]


def _jacobian(out: Any, x: Any) -> Any:
    if not out.requires_grad:
        return np.zeros((out.numel(), x.numel()))
    rows = []
    for i in range(out.numel()):
        weight = np.zeros(out.numel())
        weight[i] = 1.0
        seed = out.new_tensor(weight.reshape(out.shape))
        (row,) = grad(out, x, seed, retain_graph=True, allow_unused=True)
        rows.append(np.zeros(x.shape).ravel() if row is None else row.numpy().ravel())
    return np.array(rows).reshape(out.numel(), x.numel())


def _differences(
    function: Callable[..., Any], listed: list[Any], x: Any, number: int, eps: float
) -> Any:
    columns = []
    start = x.detach().numpy().copy()

    def value(array: Any) -> Any:
        moved = x.detach().new_tensor(array).requires_grad_()
        given = [moved if each is x else each for each in listed]
        return _outputs(function(*given))[number].detach().numpy().ravel().astype("float64")

    for i in range(x.numel()):
        step = np.zeros(x.numel())
        step[i] = eps
        step = step.reshape(x.shape)
        columns.append((value(start + step) - value(start - step)) / (2 * eps))
    return np.array(columns).T.reshape(-1, x.numel())
