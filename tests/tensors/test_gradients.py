"""Gradients of every operation against differences, and of kernels against those in operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tapegrad.tensors as tt
from tests.oracles.torch import Torch, assert_equal, tapegrad
from tests.tensors.cases import DEVICES, DTYPES, PUBLIC, RECORDS, RTOL, Case, cases
from tests.tensors.test_ops import gradients
from tests.tensors.torch_calls import differentiate_twice, weight

SMOOTH = {name: op for name, op in RECORDS.items() if op.orders and getattr(op, "vjp", True)}


def weighted(case: Case) -> Callable[..., Any]:
    """Return the function of a case with its results summed up to one number."""

    def function(*operands: Any) -> Any:
        outs = [out for out in case(list(operands)) if out.requires_grad]
        return sum(((out * out.new_tensor(weight(out.shape))).sum() for out in outs), start=0.0)

    return function


def slope(case: Case) -> Callable[..., Any]:
    """Return the derivative of a case in one direction, as a function of its operands."""
    function = weighted(case)

    def derivative(*operands: Any) -> Any:
        wanted = [x for x in operands if x.requires_grad]
        found = tt.grad(function(*operands), wanted, create_graph=True, allow_unused=True)
        parts = [each for each in found if each is not None]
        total = sum((part * part.new_tensor(weight(part.shape))).sum() for part in parts)
        return total if parts else operands[0].new_zeros(())

    return derivative


def differentiable(case: Case, operands: list[Any]) -> bool:
    """Tell whether the results depend on an operand in a way that can be differentiated."""
    return any(out.requires_grad and out.numel() for out in case(operands))


@pytest.mark.parametrize("name", SMOOTH)
def test_first_derivatives_are_those_of_differences(name: str) -> None:
    for case in cases(SMOOTH[name], "float64"):
        operands = case.tensors("cpu")
        if differentiable(case, operands):
            assert tt.gradcheck(weighted(case), operands)


@pytest.mark.parametrize("name", [name for name, op in SMOOTH.items() if op.orders > 1])
def test_second_derivatives_are_those_of_differences(name: str) -> None:
    for case in cases(SMOOTH[name], "float64"):
        operands = case.tensors("cpu")
        if differentiable(case, operands):
            assert tt.gradcheck(slope(case), operands)


#: PyTorch has no second derivatives of these.
ONCE_IN_PYTORCH = {"attention"}


@pytest.mark.parametrize("name", [n for n, op in SMOOTH.items() if op.orders > 1 and n in PUBLIC])
def test_second_derivatives_are_those_of_pytorch(torch: Torch, name: str) -> None:
    calls = [case.torch_call() for case in cases(PUBLIC[name], "float64")]
    ours, theirs = differentiate_twice(tapegrad(), calls), torch(differentiate_twice, calls)
    assert any(each is None for each in theirs) == (name in ONCE_IN_PYTORCH)
    for call, our, their in zip(calls, ours, theirs, strict=True):
        if their is not None:
            assert_equal(our, their, RTOL["float64"], f"{call}")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_by_kernels_are_those_written_in_operations(
    name: str, dtype: str, device: str
) -> None:
    for case in cases(SMOOTH[name], dtype):
        operands = case.tensors(device)
        by_kernels = gradients(case(operands), operands)
        in_operations = gradients(case(operands), operands, create_graph=True)
        assert_equal(by_kernels, in_operations, RTOL[dtype], f"{name} {case.sample}")


@pytest.mark.parametrize("name", [n for n, op in SMOOTH.items() if op.function is None])
def test_operations_that_users_do_not_call_agree_on_all_devices(name: str) -> None:
    for case in cases(SMOOTH[name], "float64"):
        found = []
        for device in DEVICES:
            operands = case.tensors(device, "strided")
            outs = case(operands)
            found.append([[out.detach().numpy() for out in outs], gradients(outs, operands)])
        assert_equal(found[0], found[1], 1e-12, f"{name} {case.sample}")
