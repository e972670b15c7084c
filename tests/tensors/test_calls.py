"""Calls of operations: what the native way from arguments to a node takes and turns down."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
import tapegrad.tensors as tt
from tapegrad import _core
from tapegrad.errors import DeviceError, DTypeError, GradError, ShapeError
from tapegrad.tensors.registry import REGISTRY, Op
from tests.tensors.cases import DEVICES


def leaf(*shape: int, device: str = "cpu") -> Any:
    values = np.random.default_rng(sum(shape)).standard_normal(shape)
    return tt.tensor(values, device=device, requires_grad=True)


# ---- operations ---------------------------------------------------------------------------------


def test_an_operation_takes_tensors_of_one_device() -> None:
    op, x = REGISTRY["matmul"], leaf(2, 2)
    with pytest.raises(DTypeError, match="matmul: expected tensors, got int"):
        op(x, 1)
    with pytest.raises(DTypeError, match="at least one tensor"):
        op()
    with pytest.raises(DeviceError, match="cpu and reference"):
        op(x, leaf(2, 2, device="reference"))
    with pytest.raises(TypeError, match="set up"):
        _core.OpState()(x)


def test_an_operation_keeps_its_attributes_by_name() -> None:
    y = REGISTRY["sum"](leaf(2, 3), dims=(0,), keepdim=True)
    assert y.grad_fn.attrs == {"dims": (0,), "keepdim": True}
    with pytest.raises(TypeError):
        REGISTRY["sum"](leaf(2, 3), way="up")


def test_a_subclass_with_a_call_of_its_own_is_called_by_that() -> None:
    class Loud(Op):
        def __call__(self, *inputs: Any, **attrs: Any) -> str:
            return f"{self.name}!"

    fields: dict[str, Any] = dict.fromkeys(("doc", "rule", "vjp", "cost", "samples"))
    assert Loud(name="loud", **fields)(leaf(1)) == "loud!"
    assert REGISTRY["clone"](leaf(2)).shape == (2,)


def test_nothing_holds_a_result_that_nobody_has() -> None:
    x = leaf(3)
    y = tt.softmax(x, 0)
    node = y.grad_fn
    gone = weakref.ref(y)
    del y
    assert gone() is None and node is not None
    z = (x * 2).exp().sum()
    z.backward()
    gone = weakref.ref(z)
    del z
    gc.collect()
    assert gone() is None


def test_an_elementwise_function_of_too_many_operands_records_no_gradients() -> None:
    names = ", ".join(f"x{i}" for i in range(70))
    many = tg.elementwise(eval(f"lambda {names}: {names.replace(', ', ' + ')}"))
    with tg.no_grad():
        assert many(*[tt.ones(2)] * 70).tolist() == [70.0, 70.0]
    with pytest.raises(ShapeError, match="at most 64 operands"):
        many(*[leaf(2)] * 70)


# ---- arguments ----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, np.int64(1), np.array(1), tt.tensor(1)])
def test_whole_numbers_of_any_kind_name_dimensions_and_sizes(number: Any) -> None:
    x = leaf(2, 3)
    assert x.sum(number).shape == (2,)
    assert x.transpose(0, number).shape == (3, 2)
    assert x.reshape(number, 6).shape == x.reshape([number, -1]).shape == (1, 6)
    assert x[number].shape == (3,)
    assert tt.zeros(number, 2).shape == (1, 2)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda x: x.sum(1.0), DTypeError, "whole number, got 1.0"),
        (lambda x: x.sum("a"), DTypeError, "whole number, got 'a'"),
        (lambda x: x.sum(10**30), ShapeError, "from -2 to 1"),
        (lambda x: x.sum(-(10**30)), ShapeError, "from -2 to 1"),
        (lambda x: x.sum((0, None)), DTypeError, "whole number, got None"),
        (lambda x: x.transpose(0, None), DTypeError, "whole number, got None"),
        (lambda x: x.reshape(2, 1.5), DTypeError, "whole numbers as sizes"),
        (lambda x: x.reshape("ab"), DTypeError, "whole numbers as sizes"),
        (lambda x: x.reshape(-1, -1), ShapeError, "at most one -1"),
        (lambda x: x.reshape(-2, 3), ShapeError, "at most one -1"),
        (lambda x: x.reshape(-1, 0), ShapeError, r"does not fit \(-1, 0\)"),
        (lambda x: x.reshape(2**40, 2**40), ShapeError, "does not fit"),
        (lambda x: x.reshape(2**32, 2**32, 6), ShapeError, "does not fit"),
        (lambda x: x.permute(0), ShapeError, "each of 2 dimensions once"),
        (lambda x: x.permute(0, 5), ShapeError, "from -2 to 1"),
        (lambda x: x.expand(3), ShapeError, "at least 2 sizes"),
        (lambda x: x.expand(-1, 2, 3), ShapeError, "at least 0"),
        (lambda x: x.expand(4, 3), ShapeError, r"\(2, 3\) does not expand to \(4, 3\)"),
        (lambda x: x.sum().expand(2**40, 2**40), ShapeError, "fits in memory, got"),
        (lambda x: x.flatten(1, 0), ShapeError, "start_dim before end_dim, got 1, 0"),
        (lambda x: x.repeat_interleave(tt.tensor([2**62, 1]), 0), ShapeError, "memory|too big"),
        (lambda x: tt.pad(x, (2**62, 1), mode="replicate"), ShapeError, "too big"),
        (lambda x: x[2**70], IndexError, "x"),
        (lambda x: x[0, 0, 0], IndexError, r"shape \(2, 3\)"),
        (lambda x: tt.zeros(2, -1), ShapeError, r"at least 0, got \(2, -1\)"),
        (lambda x: tt.max_pool2d(x, (1, 2, 3)), ShapeError, "kernel_size as a whole number"),
        (lambda x: tt.max_pool2d(x, 1.5), ShapeError, "or two of them, got 1.5"),
        (lambda x: tt.max_pool2d(x, 0), ShapeError, "at least 1"),
        (
            lambda x: tt.where(x.tolist(), 1.0, 2.0),
            DTypeError,
            "to be a tensor, got list",
        ),
        (lambda x: tt.cat([x, x.sum()]), ShapeError, r"got \(2, 3\) and \(\)"),
        (lambda x: tt.cat([x.sum(), x]), ShapeError, "use stack"),
        (lambda x: x @ tt.ones(2), ShapeError, r"\(2, 3\) and \(2,\) do not fit"),
    ],
)
@pytest.mark.parametrize("device", DEVICES)
def test_arguments_that_do_not_fit_are_explained(
    call: Any, error: Any, message: str, device: str
) -> None:
    with pytest.raises(error, match=message):
        call(tt.ones(2, 3, device=device))


def test_sizes_that_no_image_has_are_explained() -> None:
    with pytest.raises(ShapeError, match=r"of 1 or more, at most 2147483648, got \(1099511627776"):
        tt.adaptive_avg_pool2d(tt.ones(1, 4, 4), 2**40)


# ---- the walk -----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [1.0, "g", [1], np.ones(2)])
def test_a_hook_returns_a_tensor_or_nothing(value: Any) -> None:
    x = leaf(2)
    x.register_hook(lambda g: value)
    with pytest.raises(DTypeError, match="a tensor or None"):
        (x * 2).sum().backward()
    y = x.detach().requires_grad_() * 2
    y.register_hook(lambda g: value)
    with pytest.raises(DTypeError, match="a tensor or None"):
        y.sum().backward()


def test_a_rule_returns_tensors() -> None:
    class Wrong(tg.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return 2.0

    with pytest.raises(DTypeError, match="Wrong: expected tensors as gradients, got float"):
        Wrong.apply(leaf(2)).sum().backward()


def test_a_tensor_made_by_its_class_can_be_written_to() -> None:
    x, w = tt.Tensor([1.0, 2.0]), leaf(1)
    x[0] = w[0]
    (x * 3).sum().backward()
    assert w.grad is not None and w.grad.tolist() == [3.0]


def test_a_tensor_that_was_never_filled_is_an_error_and_no_crash() -> None:
    x = tt.Tensor.__new__(tt.Tensor)
    calls: list[Any] = [lambda: x * 2, lambda: x.sum(0), lambda: x[0], lambda: tt.cat([x])]
    for call in calls:
        with pytest.raises((AttributeError, DTypeError)):
            call()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_weights_of_classes_have_gradients(reduction: str, device: str) -> None:
    logs, weight = leaf(4, 3, device=device), leaf(3, device=device).detach().abs()
    target = tt.tensor([0, 2, 1, 2], device=device)

    def loss(logs: Any, weight: Any) -> Any:
        return tt.nll_loss(logs, target, weight, ignore_index=1, reduction=reduction)

    tg.gradcheck(loss, (logs, weight.requires_grad_()))
    tg.gradgradcheck(loss, (logs, weight))


def test_a_change_in_place_shows_in_views_and_is_noticed() -> None:
    x = leaf(2, 3)
    y = x * 1
    views = [y.reshape(6), y.T, y[0], y.expand(2, 2, 3), y.flatten(), y.unsqueeze(0)]
    saved = [(view * view).sum() for view in views]
    with tg.no_grad():
        y.add_(1.0)
    for view, total in zip(views, saved, strict=True):
        assert view._version == 1
        with pytest.raises(GradError, match="changed in place"):
            total.backward(retain_graph=True)
