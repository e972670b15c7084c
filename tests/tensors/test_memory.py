"""Into tapegrad and out of it: NumPy, DLPack, pickles, copies, text; and between devices."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
import tapegrad.tensors as tt
from tapegrad.errors import DeviceError, DTypeError, GradError, OptionError, ShapeError
from tests.tensors.cases import DEVICES, LAYOUTS

KINDS = ("bool", "int32", "int64", "float32", "float64")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_numpy_arrays_share_memory_both_ways(kind: str, layout: str) -> None:
    array = LAYOUTS[layout](np.arange(6).reshape(2, 3).astype(kind))
    x = tt.from_numpy(array)
    assert x.dtype.name == kind and np.shares_memory(x.numpy(), array)
    assert np.shares_memory(np.asarray(x), array)
    array[0, 0] = 1
    assert x[0, 0].item() == 1
    x[1, 2] = 0
    assert array[1, 2] == 0
    assert not np.shares_memory(tt.tensor(array).numpy(), array)
    assert not np.shares_memory(np.array(x), array)
    assert np.asarray(x, dtype="float64").dtype == "float64"


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "spread"])
@pytest.mark.parametrize("kind", KINDS)
def test_dlpack_shares_memory_both_ways(kind: str, layout: str) -> None:
    array = LAYOUTS[layout](np.arange(6).reshape(2, 3).astype(kind))
    x = tt.from_dlpack(array)
    assert np.shares_memory(x.numpy(), array)
    out = np.from_dlpack(x)
    assert np.shares_memory(out, array)
    np.testing.assert_array_equal(out, array)
    assert x.__dlpack_device__() == (1, 0)


def test_elements_in_reverse_are_handed_out_as_a_copy_alone() -> None:
    x = tt.arange(6.0).reshape(2, 3)
    for view in (x[::-1], x[:, ::-1], x.T[::-1]):
        for copied in (None, True):
            out = np.from_dlpack(view, copy=copied)
            np.testing.assert_array_equal(out, view.numpy())
            assert min(out.strides) > 0 and not np.shares_memory(out, view.numpy())
        with pytest.raises(BufferError, match=r"strides .*contiguous\(\)"):
            np.from_dlpack(view, copy=False)
        assert np.shares_memory(np.from_dlpack(view.contiguous()), x.numpy()) is False
    assert np.shares_memory(np.from_dlpack(x[::-1][::-1]), x.numpy())


def test_what_has_gradients_is_not_handed_out() -> None:
    x = tt.ones(2, requires_grad=True)
    with pytest.raises(GradError, match=r"detach\(\)"):
        x.numpy()
    with pytest.raises(GradError, match=r"detach\(\)"):
        np.from_dlpack(x)
    assert np.shares_memory(x.detach().numpy(), x.detach().numpy())


@pytest.mark.parametrize("bad", [np.ones(2, "float16"), np.ones(2, "complex64"), np.array(["a"])])
def test_other_types_are_refused(bad: Any) -> None:
    for make in (tt.tensor, tt.from_numpy, tt.as_tensor):
        with pytest.raises(DTypeError, match="float32"):
            make(bad)


@pytest.mark.parametrize("bad", [[[1, 2], [3]], "text", None, object(), {"a": 1}, [1j]])
def test_what_is_no_number_is_refused(bad: Any) -> None:
    with pytest.raises((DTypeError, ShapeError), match="tensor"):
        tt.tensor(bad)


def test_creation_is_pytorchs() -> None:
    assert tt.tensor([1, 2]).dtype is tt.int64 and tt.tensor([1.0]).dtype is tt.float32
    assert tt.tensor(True).dtype is tt.bool_ and tt.tensor([1, 2.5]).dtype is tt.float32
    assert tt.tensor(np.float64(3)).dtype is tt.float64
    assert tt.tensor([tt.tensor(1.0), tt.tensor(2.0)]).tolist() == [1.0, 2.0]
    assert tt.arange(3).dtype is tt.int64 and tt.arange(0, 1, 0.25).tolist() == [0, 0.25, 0.5, 0.75]
    assert tt.linspace(0, 1, 5).tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert tt.full((2,), 3).dtype is tt.int64 and tt.full((2,), 3.0).dtype is tt.float32
    assert tt.eye(2, 3).tolist() == [[1, 0, 0], [0, 1, 0]]
    assert tt.zeros(2, dtype="int32").dtype is tt.int32 and tt.empty(2, 3).shape == (2, 3)
    assert tt.zeros_like(tt.ones(2, dtype="bool")).tolist() == [False, False]
    assert tt.full_like(tt.ones(2), 5).tolist() == [5.0, 5.0]
    assert tt.as_tensor(x := tt.ones(1)) is x and tt.as_tensor(x, dtype="int64").dtype is tt.int64


# ---- copies -------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_pickles_keep_elements_type_device_and_wish_for_gradients(device: str) -> None:
    x = tt.tensor([[1.5, 2.5]], dtype="float64", device=device, requires_grad=True)
    back = pickle.loads(pickle.dumps(x))
    assert back.tolist() == x.tolist() and back.dtype is x.dtype and back.device is x.device
    assert back.requires_grad and type(back) is type(x)
    assert pickle.loads(pickle.dumps(tt.float32)) is tt.float32
    assert pickle.loads(pickle.dumps(x.device)) is x.device
    with pytest.raises(OptionError, match=r"detach\(\)"):
        pickle.dumps(x * 2)


def test_results_whose_gradient_is_kept_end_with_their_last_name() -> None:
    x = tt.ones(3, requires_grad=True)
    y = x * 2
    y.retain_grad()
    (y * y).sum().backward(inputs=[x, y])
    assert y.grad is not None and y.grad.tolist() == [4.0] * 3
    held = weakref.ref(y)
    gc.disable()
    try:
        del y
        assert held() is None
    finally:
        gc.enable()


def test_deep_copies_have_memory_of_their_own() -> None:
    x = tt.ones(2, requires_grad=True)
    (x * 3).sum().backward()
    pair = copy.deepcopy([x, x])
    assert pair[0] is pair[1] is not x and pair[0].requires_grad
    assert pair[0].grad is not None and pair[0].grad.tolist() == [3.0, 3.0]
    with tt.no_grad():
        pair[0].zero_()
    assert x.tolist() == [1.0, 1.0]
    assert not np.shares_memory(x.clone().detach().numpy(), x.detach().numpy())
    with pytest.raises(OptionError, match=r"detach\(\)"):
        copy.deepcopy(x * 2)
    assert copy.copy(x).requires_grad


# ---- text and numbers ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: tt.tensor([1.0, 2.5]), "tensor([1.0000, 2.5000])"),
        (lambda: tt.tensor([[1, 2], [3, 4]]), "tensor([[1, 2],\n        [3, 4]])"),
        (lambda: tt.tensor(3.0), "tensor(3.)"),
        (lambda: tt.tensor([True]), "tensor([True])"),
        (lambda: tt.zeros(2, dtype="float64"), "tensor([0., 0.], dtype=tapegrad.float64)"),
        (lambda: tt.zeros(1, device="reference"), "tensor([0.], device='reference')"),
        (lambda: tt.zeros(1, requires_grad=True), "tensor([0.], requires_grad=True)"),
        (lambda: tt.zeros(1, requires_grad=True) + 1, "tensor([1.], grad_fn=<add backward>)"),
        (lambda: tt.zeros(2, 0), "tensor([], size=(2, 0))"),
        (lambda: tt.tensor([float("nan"), float("inf")]), "tensor([nan, inf])"),
    ],
)
def test_text(make: Any, text: str) -> None:
    assert repr(make()) == text


def test_text_of_many_elements_is_short() -> None:
    text = repr(tt.zeros(100, 100))
    assert "..." in text and len(text.splitlines()) < 12
    assert f"{tt.tensor(1.2345):.2f}" == "1.23" and f"{tt.ones(1)}" == "tensor([1.])"
    loss = tt.tensor(0.25, requires_grad=True) * 2
    assert f"{loss} {tt.tensor(3)} {tt.tensor(True)}" == "0.5 3 True"


def test_single_elements_are_numbers() -> None:
    x = tt.tensor([[2.5]])
    assert x.item() == float(x) == 2.5 and int(x) == 2 and bool(x)
    assert tt.tensor([1, 2]).tolist() == [1, 2] and len(tt.ones(3, 2)) == 3
    assert [each.item() for each in tt.tensor([1, 2])] == [1, 2]
    assert 2 in tt.tensor([1, 2]) and 5 not in tt.tensor([1, 2])
    with pytest.raises(ShapeError, match="any"):
        bool(tt.ones(2))
    with pytest.raises(ShapeError, match="one element"):
        tt.ones(2).item()
    with pytest.raises(ShapeError):
        len(tt.tensor(1.0))
    with pytest.raises(DTypeError):
        list(tt.tensor(1.0))
    assert {tt.ones(1): 1}


def test_sizes_and_strides() -> None:
    x = tt.zeros(2, 3, 4).transpose(0, 2)
    assert x.shape == x.size() == (4, 3, 2) and x.size(0) == 4 and x.ndim == x.dim() == 3
    assert x.stride() == (1, 4, 12) and x.stride(1) == 4
    assert not x.is_contiguous() and x.contiguous().is_contiguous()
    assert x.numel() == x.nelement() == 24 and x.nbytes == 96 and x.element_size() == 4


# ---- devices ------------------------------------------------------------------------------------


def test_tensors_move_between_devices_with_their_gradients() -> None:
    x = tt.tensor([1.0, 2.0], requires_grad=True)
    y = x.to("reference")
    assert y.device is tt.device("reference") and x.to("cpu") is x
    assert not np.shares_memory(y.detach().numpy(), x.detach().numpy())
    (y * y).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 4.0] and x.grad.device is x.device
    assert x.to("reference", "float64").dtype is tt.float64
    assert x.to(tt.zeros(1, device="reference")).device is y.device
    assert y.cpu().device is x.device


@pytest.mark.parametrize(
    "call",
    [
        lambda a, b: a + b,
        lambda a, b: tt.where(a > 0, a, b),
        tt.matmul,
        lambda a, b: tt.cat([a, b]),
        lambda a, b: a.add_(b),
        tt.elementwise(lambda x, y: x * y),
        tt.linear,
        lambda a, b: a.__setitem__(0, b[0]),
    ],
)
def test_devices_do_not_mix(call: Any) -> None:
    a, b = tt.ones(2, 2), tt.ones((2, 2), device="reference")
    for first, second in ((a, b), (b, a)):
        with pytest.raises(DeviceError, match=r"reference.*\.to\("):
            call(first, second)


def test_unknown_devices_are_named() -> None:
    with pytest.raises(DeviceError, match="cpu, reference, got 'tpu'"):
        tt.ones(2, device="tpu")
    with pytest.raises((DeviceError, DTypeError), match="tpu"):
        tt.ones(2).to("tpu")
    assert tg.device("cpu") is tt.ones(1).device and repr(tg.device("cpu")) == "device('cpu')"
    place = tt.ones(1, device="reference").device
    assert (str(place), place.type, place.index) == ("reference", "reference", None)


@pytest.mark.parametrize("device", DEVICES)
def test_deep_copies_share_memory_as_their_originals_do(device: str) -> None:
    x = tt.arange(6.0, device=device).reshape(2, 3).clone()
    views = [x[0], x.T, x[:, ::-1], x.view(-1)[2:], x.expand(2, 2, 3), x.detach(), x.data[1]]
    for step in (1, -1):
        copies = copy.deepcopy([x, *views][::step])[::step]
        own, others = copies[0], copies[1:]
        for ours, theirs in zip(others, views, strict=True):
            assert ours.tolist() == theirs.tolist() and ours.stride() == theirs.stride()
        own.mul_(2.0)
        assert [each.tolist() for each in others[:6]] == [(v * 2).tolist() for v in views[:6]]
        assert x.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
        w = tt.ones(3, device=device, requires_grad=True)
        own.mul_(w)
        assert [each.requires_grad for each in others] == [True] * 5 + [False] * 2
        assert not any(view.requires_grad for view in views)


def test_a_deep_copy_of_a_view_is_one() -> None:
    x = tt.arange(6.0)
    row = copy.deepcopy(x[2:4])
    row.add_(1)
    assert row.tolist() == [3.0, 4.0] and x.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    h = tt.ones(3, requires_grad=True) * 2
    with tt.no_grad():
        part = h[:2]
    assert copy.deepcopy(part).tolist() == [2.0, 2.0]


def test_arrays_are_copied_with_their_tensors() -> None:
    x = tt.arange(3.0)
    for given in ([x, x.numpy()], [x.numpy(), x]):
        both = copy.deepcopy(given)
        array = next(each for each in both if isinstance(each, np.ndarray))
        own = next(each for each in both if isinstance(each, tt.Tensor))
        own[0] = 7.0
        assert array.tolist() == [7.0, 1.0, 2.0] and x.tolist() == [0.0, 1.0, 2.0]
