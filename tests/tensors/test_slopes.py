"""Slopes of elementwise operations over arrays: what they save, and what they are far out."""

from __future__ import annotations

import numpy as np
import pytest

import tapegrad as tg
import tapegrad.tensors as tt
from tapegrad.tensors.ops.elementwise import TABLE
from tests.oracles.torch import Torch, tapegrad
from tests.tensors.cases import DEVICES
from tests.tensors.torch_calls import derivatives

NAN, INF = float("nan"), float("inf")
#: Operations whose gradient looks at their result alone.
BY_RESULT = ["exp", "sqrt", "tan", "relu", "tanh", "sigmoid"]
#: Those whose slope vanishes far out.
FLAT = ["tanh", "sigmoid", "erf", "erfc", "atan"]
POINTS = [-INF, -1e30, -100.0, -20.0, -3.0, -0.5, -1e-20, 0.0, 0.25, 2.0, 9.0, 50.0, 1e25, INF]


@pytest.mark.parametrize("name", BY_RESULT)
def test_a_slope_by_the_result_saves_the_result_alone(name: str) -> None:
    assert TABLE[name].plan(1) == (0, 1)
    x = tg.tensor([0.5, 0.75], requires_grad=True)
    y = getattr(tg, name)(x)
    with tg.no_grad():
        x += 100.0  # nobody looks at it again
    y.sum().backward()
    want = tg.tensor([0.5, 0.75], dtype="float64", requires_grad=True)
    getattr(tg, name)(want).sum().backward()
    assert x.grad is not None and want.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), want.grad.numpy(), 1e-6)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("name", FLAT)
def test_slopes_are_pytorchs_to_a_rounding_and_finite(
    torch: Torch, name: str, kind: str, device: str
) -> None:
    bound = {"float32": 1e-6, "float64": 1e-14}[kind]
    theirs = torch(derivatives, name, POINTS, kind)
    ours = derivatives(tapegrad(), name, POINTS, kind, device)
    assert all(np.isfinite(each).all() for each in ours)
    np.testing.assert_array_equal(ours[0], ours[1])  # recorded or not
    finite = [np.isfinite(each) for each in theirs]  # PyTorch has NaN at infinity
    for our, their, at in zip(ours, theirs, finite, strict=True):
        np.testing.assert_allclose(our[at], their[at], bound, bound)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", FLAT)
def test_a_branch_not_taken_has_no_gradient(name: str, device: str) -> None:
    x = tt.tensor([NAN, INF, 0.5], device=device, requires_grad=True)
    tg.where(
        tt.tensor([False, False, True], device=device), getattr(tg, name)(x), 1.0
    ).sum().backward()
    assert x.grad is not None
    assert x.grad[:2].tolist() == [0.0, 0.0] and x.grad[2].item() != 0.0
