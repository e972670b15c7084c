"""Masks of NumPy's masked arrays are kept or refused, never dropped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapegrad as tg

MASKED = np.ma.masked_array([1.0, 2.0, 3.0], mask=[False, True, False])


def filled(x: Any) -> Any:
    """A function whose result has a mask."""
    return MASKED * x


CALLS: dict[str, Callable[[Any], Any]] = {
    "times": lambda x: x * MASKED,
    "ufunc": lambda x: np.add(x, MASKED),
    "own function": lambda x: tg.mul(x, MASKED),
    "where": lambda x: np.where(x > 0, MASKED, x),
    "matmul": lambda x: x @ MASKED,
    "dot": lambda x: np.dot(x, MASKED),
    "concatenate": lambda x: np.concatenate([x, MASKED]),
    "jvp": lambda x: tg.jvp(x * x, x, MASKED),
    "vjp": lambda x: tg.vjp(x * x, x, MASKED),
    "hvp of a function": lambda x: tg.hvp(lambda x: tg.sum(x * x))(np.ones(3), MASKED),
    "a point": lambda x: tg.grad(tg.sum)(MASKED),
    "a result": lambda x: tg.jacobian(filled)(np.ones(3)),
    "xs of a scan": lambda x: tg.scan(lambda c, v: (c * v, None), x[0], MASKED),
    "carry of a scan": lambda x: tg.scan(lambda c, _: (c * x[0], None), MASKED, length=2),
    "examples": lambda x: tg.Graph(branches="freeze").inputs(3, values=MASKED),
    "a point to profile": lambda x: tg.compile(tg.sum(x)).profile(MASKED),
    "a point to search": lambda x: tg.locate_nonfinite(tg.sum(x), MASKED),
    "a point to check": lambda x: tg.gradcheck(tg.sum, MASKED),
    "shared inputs": lambda x: tg.compile(tg.sum(x)).batch(np.empty((2, 0)), shared=MASKED),
    "a start": lambda x: tg.compile(tg.sum(x), wrt=x).minimize(MASKED),
    "bounds": lambda x: tg.compile(tg.sum(x), wrt=x).minimize(np.ones(3), bounds=(MASKED, None)),
    "a result of a custom function": lambda x: tg.compile(
        tg.custom(lambda a: np.ma.masked_array(a, mask=True), name="hidden")(x[0]), inputs=x
    )(np.ones(3)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_masks_that_would_be_lost_are_refused(call: Callable[[Any], Any]) -> None:
    with pytest.raises(tg.DTypeError, match="expected a plain array, got a masked one; fill it"):
        call(tg.Graph().inputs(3))


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize(
    "call",
    [
        lambda x, matrix: x.reshape(1, 3) * matrix,
        lambda x, matrix: np.matmul(matrix, x),
        lambda x, matrix: x @ matrix,
        np.dot,
        lambda x, matrix: x**matrix,
    ],
)
def test_matrices_which_multiply_in_another_way_are_refused(
    call: Callable[[Any, Any], Any],
) -> None:
    with pytest.raises(tg.DTypeError, match=r"got a matrix; write np\.asarray"):
        call(tg.Graph().inputs(3), np.matrix(np.eye(3)))


def test_masked_arrays_compute_with_vars_and_keep_their_masks() -> None:
    x = tg.Graph().inputs(3)
    for found in (MASKED * x, MASKED + x, x[0] * MASKED):
        assert np.ma.getmaskarray(found).tolist() == [False, True, False]
