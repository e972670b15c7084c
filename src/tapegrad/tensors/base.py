"""What a tensor is made of: an array of a device, and its place in the record of gradients."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tapegrad import _core
from tapegrad.backends import Backend
from tapegrad.errors import DeviceError, DTypeError, GradError, ShapeError
from tapegrad.tensors import autograd
from tapegrad.tensors.autograd import MODE, Hook, Node
from tapegrad.tensors.dtypes import BY_NUMPY, DType

if TYPE_CHECKING:
    from tapegrad.tensors.methods import Tensor


class TensorBase(_core.TensorState):
    """The state of a tensor. Operations are methods of `Tensor`, which is the only subclass.

    `_array` and `_device` are what it is; `_requires_grad`, `_node` and `_index` (which result of
    the node) its place in the record; `_cell` counts changes in place, shared by all views of one
    memory and made when first needed (what else is in it: `Backend.keeps`); `_grad` is what
    `backward` left here.
    """

    if TYPE_CHECKING:
        _array: Any
        _device: Backend
        _requires_grad: bool
        _node: Node | None
        _index: int
        _cell: list[Any] | None
        _hooks: dict[int, Hook] | None
        _accumulated: dict[int, Any] | None
        _grad: Tensor | None
        _base: Tensor | None
        _inference: bool

    # ---- what it is -----------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dimensions."""
        shape: tuple[int, ...] = self._array.shape
        return shape

    @property
    def dtype(self) -> DType:
        """The number type."""
        return BY_NUMPY[self._array.dtype]

    @property
    def device(self) -> Backend:
        """Where the elements live."""
        return self._device

    @property
    def ndim(self) -> int:
        """How many dimensions there are."""
        return len(self._array.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return int(self._array.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return int(self._array.nbytes)

    def dim(self) -> int:
        """Return how many dimensions there are."""
        return len(self._array.shape)

    def numel(self) -> int:
        """Return how many elements there are."""
        return int(self._array.size)

    def nelement(self) -> int:
        """Return how many elements there are."""
        return self.numel()

    def element_size(self) -> int:
        """Return the bytes of one element."""
        return self.itemsize

    def is_floating_point(self) -> bool:
        """Tell whether the elements are floating point numbers."""
        return bool(self._array.dtype.kind == "f")

    def stride(self, dim: int | None = None) -> tuple[int, ...] | int:
        """Return how many elements lie between neighbours of each dimension, or of one."""
        strides = tuple(int(each // self._array.itemsize) for each in self._array.strides)
        if dim is None:
            return strides
        if not isinstance(dim, int) or not -self.ndim <= dim < self.ndim:
            raise ShapeError(f"stride: expected a dimension of {self.shape}, got {dim!r}")
        return strides[dim]

    def is_contiguous(self) -> bool:
        """Tell whether elements lie in order, without gaps."""
        return bool(self._array.flags.c_contiguous)

    def __len__(self) -> int:
        if not self._array.shape:
            raise ShapeError("len(): a tensor without dimensions has no length")
        return int(self._array.shape[0])

    # ---- gradients ------------------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        """Whether operations on it are recorded."""
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        if wanted and self._array.dtype.kind != "f":
            raise DTypeError(
                f"requires_grad: only floating point tensors have gradients, this is {self.dtype}"
            )
        if wanted and self._inference and not MODE.inference:
            raise GradError(
                "requires_grad: Setting requires_grad=True on inference tensor outside "
                "InferenceMode is not allowed; use its clone(), or make it in no_grad()"
            )
        if not wanted and self._node is not None:
            raise GradError("requires_grad: a result cannot stop requiring gradients; use detach()")
        self._requires_grad = bool(wanted)

    @property
    def grad(self) -> Tensor | None:
        """The gradient that `backward` left here; None where there is none."""
        return self._grad

    @grad.setter
    def grad(self, gradient: Tensor | None) -> None:
        if gradient is not None:
            self._check_gradient(gradient)
        self._grad = gradient

    def _check_gradient(self, gradient: Any) -> None:
        """Raise for what is no gradient of this tensor."""
        if not isinstance(gradient, TensorBase) or gradient is self:
            got = "the tensor itself" if gradient is self else type(gradient).__name__
            raise DTypeError(f"grad: expected another tensor or None, got {got}")
        if gradient.shape != self.shape:
            raise ShapeError(f"grad: expected shape {self.shape}, got {gradient.shape}")
        if gradient.dtype is not self.dtype:
            raise DTypeError(
                f"grad: expected {self.dtype}, got {gradient.dtype}; convert it with .to(x.dtype)"
            )
        if gradient._device is not self._device:
            raise DeviceError(
                f"grad: expected a tensor of {self._device.name}, got {gradient._device.name}; "
                "move it with .to(x.device)"
            )

    @property
    def is_leaf(self) -> bool:
        """Whether it is no result of a recorded operation; `backward` sets `grad` of leaves."""
        return self._node is None

    @property
    def grad_fn(self) -> Node | None:
        """The recorded operation that made it."""
        return self._node

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Add to the `grad` of every leaf its gradient of this tensor.

        Args:
            gradient: Weights of the elements; may be left out for one element.
            retain_graph: Keep what was saved, to walk back again.
            create_graph: Record the walk itself, for gradients of gradients.
            inputs: Tensors to stop at; no others get a `grad`.

        """
        autograd.backward(self, gradient, retain_graph, create_graph, inputs)  # type: ignore[arg-type]

    def register_hook(self, hook: Hook) -> Handle:
        """Call hook(gradient) when the gradient is known; what it returns replaces it."""
        _check_hook("register_hook", hook)
        if not self._requires_grad:
            raise GradError("register_hook: the tensor does not require gradients")
        hooks = self._gradient_hooks()
        handle = Handle(hooks, hook)
        if _KEEP in hooks:  # it keeps what all others leave
            hooks[_KEEP] = hooks.pop(_KEEP)
        return handle

    def _gradient_hooks(self) -> dict[int, Hook]:
        if self._node is None:
            self._hooks = hooks = self._hooks or {}
            return hooks
        self._node.hooks = by_result = self._node.hooks or {}
        return by_result.setdefault(self._index, {})

    def register_post_accumulate_grad_hook(self, hook: Any) -> Handle:
        """Call hook(tensor) after `backward` has added to the `grad` of this leaf."""
        _check_hook("register_post_accumulate_grad_hook", hook)
        if self._node is not None:
            raise GradError("register_post_accumulate_grad_hook: only leaves accumulate gradients")
        self._accumulated = hooks = self._accumulated or {}
        return Handle(hooks, hook)

    def retain_grad(self) -> None:
        """Keep the gradient of this result in `grad`, as leaves do."""
        if not self._requires_grad:
            raise GradError("retain_grad: the tensor does not require gradients")

        held = weakref.ref(self)  # its node, which holds what is here, is held by it

        def keep(gradient: Tensor) -> None:
            if (kept := held()) is not None:
                kept.grad = gradient.clone() if kept.grad is None else kept.grad + gradient

        if self._node is not None:
            self._gradient_hooks().setdefault(_KEEP, keep)

    def _retain_instead(self, node: Node, index: int) -> None:
        """Keep the gradient of what it is now, and not that of a result that it was."""
        if (node.hooks or {}).get(index, {}).pop(_KEEP, None) is not None:
            self.retain_grad()

    def detach(self) -> Tensor:
        """Return the same elements without history; changes of one show in the other."""
        tensor: Tensor = _core.detached(self)
        return tensor

    def is_inference(self) -> bool:
        """Tell whether it was made in inference mode, and takes no part in what is recorded."""
        return self._inference

    # ---- changes in place -----------------------------------------------------------------------

    @property
    def _version(self) -> int:
        """How often the elements were changed in place."""
        return int(self._cell[0]) if self._cell else 0

    def _version_cell(self) -> list[Any]:
        if self._cell is None:
            self._cell = [0, None]
        return self._cell

    def _give_out(self) -> None:
        """Let others write to the memory, who do not count: a device may keep nothing of it."""
        self._version_cell()[1] = False

    def _take(self, value: Tensor) -> None:
        """Lie on the memory of a tensor that nobody else will change."""
        _core.part(self)
        self._array, self._device = value._array, value._device
        _core.changed(self)

    def _is_view(self) -> bool:
        """Tell whether it lies on the memory of another tensor, its base."""
        return self._base is not None

    # ---- out of tapegrad ------------------------------------------------------------------------

    def numpy(self, *, force: bool = False) -> Any:
        """Return the elements as a NumPy array on the same memory; `force` forgets gradients."""
        if self._requires_grad and MODE.enabled and not force:
            raise GradError("numpy(): the tensor requires gradients; use tensor.detach().numpy()")
        self._give_out()
        return self._device.to_numpy(self._array)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        self._give_out()
        array = self._device.to_numpy(self._array)
        return np.array(array, dtype=dtype, copy=True) if copy else np.asarray(array, dtype=dtype)

    def __dlpack__(self, **options: Any) -> Any:
        if self._requires_grad:
            raise GradError("dlpack: the tensor requires gradients; export tensor.detach()")
        if any(step < 0 for step in self._array.strides):  # which readers need not know
            return self._as_written(options.pop("copy", None)).__dlpack__(**options)
        self._give_out()
        return self._array.__dlpack__(**options)

    def _as_written(self, copy: bool | None) -> Any:
        """Return a copy of the elements in order, if there may be one."""
        if copy is False:
            raise BufferError(
                "dlpack: expected elements in order where copy=False, got strides "
                f"{self.stride()}; export tensor.contiguous()"
            )
        return self._array.copy()

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()

    def item(self) -> Any:
        """Return the only element as a Python number."""
        if self._array.size != 1:
            raise ShapeError(f"item(): expected one element, got shape {self.shape}")
        return self._device.to_numpy(self._array).item()

    def tolist(self) -> Any:
        """Return the elements as nested lists."""
        return self._device.to_numpy(self._array).tolist()

    def __bool__(self) -> bool:
        if self._array.size != 1:
            raise ShapeError(
                f"bool(): a tensor of shape {self.shape} is neither true nor false; "
                "use any() or all()"
            )
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if self._array.dtype.kind not in "ib":
            raise DTypeError(f"an index must be a whole number, got {self.dtype}")
        return int(self.item())

    def __format__(self, spec: str) -> str:
        if not self._array.ndim or (spec and self._array.size == 1):
            return format(self.item(), spec)
        return str(self)

    def __hash__(self) -> int:
        return id(self)


def _check_hook(op: str, hook: Any) -> None:
    if not callable(hook):
        raise DTypeError(f"{op}: expected a function, got {type(hook).__name__}")


#: The key of the hook that keeps a gradient; all others have numbers from 0 on.
_KEEP = -1
_numbers = count()


class Handle:
    """Takes its hook away again, by `remove` or at the end of a `with`."""

    def __init__(self, hooks: dict[int, Any], hook: Any, prepend: bool = False) -> None:
        self.id = next(_numbers)
        self._hooks = hooks
        others = dict(hooks) if prepend else {}
        if prepend:
            hooks.clear()
        hooks[self.id] = hook
        hooks.update(others)

    def remove(self) -> None:
        """Take the hook away; doing so twice is no error."""
        self._hooks.pop(self.id, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


#: A tensor on an array: wrap(array, device).
wrap: Callable[[Any, Backend], Tensor] = _core.wrap


def is_tensor(obj: Any) -> bool:
    """Tell whether a value is a tensor."""
    return isinstance(obj, TensorBase)
