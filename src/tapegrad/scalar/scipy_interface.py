"""Programs as arguments of scipy.optimize.minimize."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tapegrad._core import Program
from tapegrad.errors import GradError

#: A program of points followed by vectors, or a function of a point and a vector.
Product: TypeAlias = Program | Callable[[Any, Any], Any]


def arguments(program: Program, hessp: Product | None) -> dict[str, Any]:
    """Return `fun`, `jac` and perhaps `hessp`, which take and give float64.

    SciPy's methods compare, scale and keep what they are given: L-BFGS-B refuses float32, and BFGS
    holds on to gradients, so each call returns an array of its own.
    """
    if program.n_outputs != 1 or program.n_derivatives != program.n_inputs:
        raise GradError(
            "scipy: expected a program of one output and its gradient by all inputs, as "
            f"tg.compile(loss, wrt=inputs); got {program.n_outputs} outputs and "
            f"{program.n_derivatives} derivatives by {program.n_inputs} inputs"
        )
    found: dict[str, Any] = {"fun": _Function(program), "jac": True}
    if hessp is not None:
        found["hessp"] = _Product(hessp, program.n_inputs)
    return found


class _Function:
    """Value and gradient; the order of the gradient is compared once with the native loop's."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._checked = False

    def __call__(self, x: NDArray[Any]) -> tuple[float, NDArray[np.float64]]:
        value, gradient = self._program(x)
        if not self._checked:
            self._check_order(x, gradient)
            self._checked = True
        return float(value), np.array(gradient, dtype=np.float64)

    def _check_order(self, x: NDArray[Any], gradient: NDArray[Any]) -> None:
        """Refuse gradients whose entries are not in the order of the inputs.

        The native loop knows which entry belongs to which input: a step of size 1 shows it.
        """
        point = np.asarray(x, dtype=self._program.dtype)
        moved = self._program.descend(point, "sgd", 1, 1.0, 0.0, 0.0, 0.0, 0, None, 0, 1)[2]
        if not np.array_equal(moved, point - gradient, equal_nan=True):
            raise GradError("scipy: expected wrt in the order of the inputs, got another order")


class _Product:
    """The Hessian times a vector."""

    def __init__(self, product: Product, size: int) -> None:
        self._product = product
        if isinstance(product, Program) and (
            product.n_derivatives or (product.n_inputs, product.n_outputs) != (2 * size, size)
        ):
            raise GradError(
                f"scipy: expected hessp as a program of {size} values and {size} of a vector to "
                f"{size}, as tg.compile(tg.hvp(loss, x, v), inputs=[*x, *v]); got one of "
                f"{product.n_inputs} to {product.n_outputs} with "
                f"{product.n_derivatives} derivatives"
            )

    def __call__(self, x: NDArray[Any], vector: NDArray[Any]) -> NDArray[np.float64]:
        if isinstance(self._product, Program):
            return np.array(self._product(np.concatenate([x, vector])), dtype=np.float64)
        return np.array(self._product(x, vector), dtype=np.float64)
