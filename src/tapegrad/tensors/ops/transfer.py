"""The way from one device to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tapegrad import _core
from tapegrad.backends import DEVICES, Backend
from tapegrad.backends import device as find_device
from tapegrad.tensors.autograd import MODE
from tapegrad.tensors.base import wrap
from tapegrad.tensors.registry import Op, Sample, define, moved

if TYPE_CHECKING:
    from tapegrad.tensors.methods import Tensor


class _ToDevice(Op):
    """The way to another device and, for gradients, back."""

    has_kernel = False

    def __call__(self, *inputs: Tensor | None, **attrs: Any) -> Tensor:
        """Copy the elements there."""
        (x,) = inputs
        assert x is not None
        place = find_device(attrs["device"])
        out = wrap(place.from_numpy(x._device.to_numpy(x._array).copy()), place)
        if MODE.enabled and x._requires_grad:
            _core.record(self, self.plans, (x,), (out,), {"device": x._device}, x._device, 1)
        return out


_TO_DEVICE = define(
    kind=_ToDevice,
    name="to_device",
    function=None,
    doc="a copy on another device",
    rule=lambda x, device: x.shape,
    vjp=lambda node, g: g.to(node.attrs["device"]),
    cost=lambda x, **_: moved(x.shape),
    samples=[Sample(shape, device=name) for shape in ((2, 3), (2, 0, 3)) for name in DEVICES],
)


def to_device(x: Tensor, device: Backend) -> Tensor:
    """Return a copy on another device."""
    found: Tensor = _TO_DEVICE(x, device=device)
    return found


__all__: list[str] = []
