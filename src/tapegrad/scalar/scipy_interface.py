"""Programs as arguments of scipy.optimize.minimize."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tapegrad._core import Program
from tapegrad.errors import DTypeError, GradError

#: A program of points followed by vectors, or a function of a point and a vector.
Product: TypeAlias = Program | Callable[[Any, Any], Any]


def arguments(program: Program, hessp: Product | None) -> dict[str, Any]:
    """Return `fun`, `jac` and perhaps `hessp`, which take and give float64.

    SciPy's methods compare, scale and keep what they are given: L-BFGS-B refuses float32, and BFGS
    holds on to gradients, so each call returns an array of its own.
    """
    places = _places(program)
    found: dict[str, Any] = {"fun": _Function(program, places), "jac": True}
    if hessp is not None:
        if not isinstance(hessp, Program) and not callable(hessp):
            raise DTypeError(
                "scipy: expected hessp as a program or a function of a point and a vector, got "
                f"{type(hessp).__name__}"
            )
        found["hessp"] = _Product(hessp, program.n_inputs, places)
    return found


def _places(program: Program) -> NDArray[np.intp]:
    """Return the inputs that the entries of the gradient belong to."""
    if program.n_outputs != 1 or not program.n_derivatives:
        raise GradError(
            "scipy: expected a program of one output and its gradient, as "
            f"tg.compile(loss, wrt=inputs); got {program.n_outputs} outputs and "
            f"{program.n_derivatives} derivatives of each"
        )
    places = [place for place in program.wrt_inputs if place is not None]
    if len(set(places)) < program.n_derivatives:
        raise GradError("scipy: every Var of `wrt` must be a different input of the program")
    return np.array(places, dtype=np.intp)


class _Function:
    """Value and gradient, whose entries are in the order of the inputs."""

    def __init__(self, program: Program, places: NDArray[np.intp]) -> None:
        self._program = program
        self._places = places

    def __call__(self, x: NDArray[Any]) -> tuple[float, NDArray[np.float64]]:
        value, derivatives = self._program(x)
        gradient = np.zeros(self._program.n_inputs)
        gradient[self._places] = derivatives
        return float(np.squeeze(value)), gradient


class _Product:
    """The Hessian times a vector, over the inputs that move."""

    def __init__(self, product: Product, size: int, places: NDArray[np.intp]) -> None:
        self._product = product
        self._moves = np.zeros(size)
        self._moves[places] = 1.0
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
        along = vector * self._moves
        if isinstance(self._product, Program):
            product = self._product(np.concatenate([x, along]))
        else:
            product = self._product(x, along)
        return np.asarray(product, dtype=np.float64) * self._moves
