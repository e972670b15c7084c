"""A device whose memory nobody else can read: one more backend, and nothing else changes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import backends, nn, optim
from tapegrad.backends import views
from tapegrad.backends.reference import BACKEND as REFERENCE
from tapegrad.backends.reference import Reference

NAME = "far"


class Far:
    """An array in memory that NumPy cannot see: it offers views, and no elements."""

    def __init__(self, near: Any, base: Far | None = None) -> None:
        self.near = near
        self.base = base

    def _view(self, near: Any) -> Far:
        return Far(near, (self.base or self) if np.may_share_memory(near, self.near) else None)

    def __getattr__(self, name: str) -> Any:
        if name in ("shape", "dtype", "strides", "flags", "size", "ndim", "itemsize", "nbytes"):
            return getattr(self.near, name)
        raise AttributeError(f"arrays of devices need not have {name}")

    def __getitem__(self, index: Any) -> Far:
        return self._view(self.near[index])

    def reshape(self, *shape: Any) -> Far:
        """Return the elements in another shape."""
        return self._view(self.near.reshape(*shape))

    def transpose(self, *order: Any) -> Far:
        """Return the dimensions in another order."""
        return self._view(self.near.transpose(*order))

    def copy(self) -> Far:
        """Return the elements elsewhere."""
        return Far(self.near.copy())


def _near(value: Any) -> Any:
    if isinstance(value, Far):
        return value.near
    return tuple(map(_near, value)) if type(value) is tuple else value


def _far(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return Far(np.asarray(value))
    return tuple(map(_far, value)) if type(value) is tuple else value


def _carried(kernel: Callable[..., Any]) -> Callable[..., Any]:
    def carried(*arrays: Any, **attributes: Any) -> Any:
        near = {name: _near(value) for name, value in attributes.items()}
        found = kernel(*map(_near, arrays), **near)
        return attributes["out"] if attributes.get("out") is not None else _far(found)

    return carried


class FarDevice(Reference):
    """Computes as the reference does, on memory of its own."""

    name = NAME

    def __init__(self) -> None:
        looking = {
            "reshape": lambda x, shape: x.reshape(shape),
            "permute": lambda x, order: x.transpose(order),
            "slice": lambda x, index: x[index],
            "expand": lambda x, shape: x._view(np.broadcast_to(x.near, shape)),
        }
        carried = {name: _carried(kernel) for name, kernel in REFERENCE.kernels.items()}
        self.kernels = carried | looking

    def from_numpy(self, array: Any) -> Any:
        return Far(np.array(array))

    def to_numpy(self, array: Any) -> Any:
        return array.near.copy()

    def address(self, array: Any) -> int:
        return views.address(array.near)

    def view(self, array: Any, *layout: Any) -> Any:
        return array._view(views.view(array.near, *layout))

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return Far(np.empty(shape, dtype))

    def map1(self, op: int, a: Any, out: Any = None) -> Any:
        return _carried(REFERENCE.map1)(op, a, out=out)

    def map2(self, op: int, a: Any, b: Any, out: Any = None) -> Any:
        return _carried(REFERENCE.map2)(op, a, b, out=out)

    def map_program(self, program: Any, operands: Any, out: Any = None) -> Any:
        return _carried(REFERENCE.map_program)(program, operands, out=out)


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> str:
    """Add the device."""
    monkeypatch.setitem(backends._LOADED, NAME, FarDevice())
    return NAME


def _trained(device: str) -> list[Any]:
    """Return what a network of many layers is after some steps."""
    tg.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Dropout(0.2), nn.Linear(36, 8), nn.LayerNorm(8), nn.Linear(8, 3)),
    ).to(device)
    optimizer = optim.AdamW(model.parameters(), lr=0.01)
    images, labels = tg.rand(6, 1, 8, 8).to(device), (tg.arange(6) % 3).to(device)
    for _ in range(3):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return [each.to("cpu").numpy() for each in model.state_dict().values()]


def test_a_network_is_trained_on_it(far: str) -> None:
    for ours, theirs in zip(_trained(far), _trained("reference"), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_its_memory_is_not_numpys(far: str) -> None:
    x = tg.ones(2, device=far)
    assert x.device.name == far and not hasattr(x._array, "__array_interface__")


def test_views_that_are_changed_have_their_gradients(far: str) -> None:
    def gradients(device: str) -> list[Any]:
        x = tg.arange(1.0, 7.0).to(device).requires_grad_()
        y = x * 2
        last, square = y[3:], y.view(2, 3)
        y[1:5:2].mul_(3)
        square[:, 0] = last[0] * 2
        (slope,) = tg.grad((y**3).sum() + last.sum(), x, create_graph=True)
        (curve,) = tg.grad(slope.sum(), x)
        return [each.detach().tolist() for each in (y, last, square, slope, curve)]

    assert gradients(far) == gradients("cpu")


def test_copies_of_views_share_memory(far: str) -> None:
    whole = tg.arange(6.0, device=far)
    copied, part, turned = copy.deepcopy((whole, whole[2:4], whole.view(2, 3).T))
    part.fill_(9.0)
    assert copied.tolist() == [0.0, 1.0, 9.0, 9.0, 4.0, 5.0]
    assert turned.tolist() == [[0.0, 9.0], [1.0, 4.0], [9.0, 5.0]]
    assert whole.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
