"""Tensor: the state of `base` with the operations of `ops` as methods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tapegrad import _core
from tapegrad.backends import Backend
from tapegrad.backends import device as find_device
from tapegrad.errors import GradError, OptionError, ShapeError
from tapegrad.tensors import compare, copies, creation, printing, random
from tapegrad.tensors.absent import missing
from tapegrad.tensors.arguments import checked as _checked
from tapegrad.tensors.autograd import Node
from tapegrad.tensors.base import TensorBase
from tapegrad.tensors.base import is_tensor as _is_tensor
from tapegrad.tensors.dtypes import DType, as_dtype, is_dtype
from tapegrad.tensors.operands import before as _before
from tapegrad.tensors.operands import into as _into
from tapegrad.tensors.operands import no_items as _no_items
from tapegrad.tensors.operands import only_tensor as _tensor
from tapegrad.tensors.operands import operand as _operand
from tapegrad.tensors.operands import other as _other
from tapegrad.tensors.operands import take_shape as _take_shape
from tapegrad.tensors.ops import arithmetic as a
from tapegrad.tensors.ops import bits, index, matmul, reduce, search, shape, softmax, transfer
from tapegrad.tensors.ops import dims as _dims
from tapegrad.tensors.ops import elementwise as e

_TABLE = e.TABLE
_ADD, _SUB, _MUL, _DIV = (_TABLE[name] for name in ("add", "sub", "mul", "div"))
_NUMBERS = e.OPERANDS
_FLAGS = (True, False)


def _in_place(name: str) -> Callable[[Any], Tensor]:
    op = _TABLE[name]

    def method(self: Tensor) -> Tensor:
        return op.in_place(self)

    method.__name__ = method.__qualname__ = f"{name}_"
    method.__doc__ = f"Do in place what `{name}` does."
    return method


_split = _checked(shape.split)


class Tensor(TensorBase):
    """An array of numbers on a device whose operations can be differentiated.

    Made by `tapegrad.tensor`, `zeros`, `randn` and their like. Methods, arguments and defaults are
    PyTorch's.

    Example:
        >>> import tapegrad as tg
        >>> x = tg.tensor([1.0, 2.0], requires_grad=True)
        >>> (x * x).sum().backward()
        >>> x.grad
        tensor([2., 4.])

    """

    __array_priority__ = 1000  # NumPy leaves `array * tensor` to us
    __array_ufunc__ = None

    def __init__(self, data: Any = (), dtype: Any = None, device: Any = None) -> None:
        made = creation.tensor(data, dtype, device)
        self._array = made._array
        self._device = made._device

    # ---- operators ------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Tensor:
        return _ADD.binary(self, other) if isinstance(other, _NUMBERS) else _other(other)

    def __radd__(self, other: Any) -> Tensor:
        return _ADD.binary(other, self) if isinstance(other, _NUMBERS) else _other(other)

    def __sub__(self, other: Any) -> Tensor:
        return _SUB.binary(self, other) if isinstance(other, _NUMBERS) else _other(other)

    def __rsub__(self, other: Any) -> Tensor:
        return _SUB.binary(other, self) if isinstance(other, _NUMBERS) else _other(other)

    def __mul__(self, other: Any) -> Tensor:
        return _MUL.binary(self, other) if isinstance(other, _NUMBERS) else _other(other)

    def __rmul__(self, other: Any) -> Tensor:
        return _MUL.binary(other, self) if isinstance(other, _NUMBERS) else _other(other)

    def __truediv__(self, other: Any) -> Tensor:
        return _DIV.binary(self, other) if isinstance(other, _NUMBERS) else _other(other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return _DIV.binary(other, self) if isinstance(other, _NUMBERS) else _other(other)

    def __pow__(self, other: Any) -> Tensor:
        return a.pow(self, other) if isinstance(other, _NUMBERS) else _other(other)

    def __rpow__(self, other: Any) -> Tensor:
        return a.pow(other, self) if isinstance(other, _NUMBERS) else _other(other)

    def __floordiv__(self, other: Any) -> Tensor:
        return a.floor_divide(self, other) if isinstance(other, _NUMBERS) else _other(other)

    def __rfloordiv__(self, other: Any) -> Tensor:
        return a.floor_divide(other, self) if isinstance(other, _NUMBERS) else _other(other)

    def __mod__(self, other: Any) -> Tensor:
        return a.remainder(self, other) if isinstance(other, _NUMBERS) else _other(other)

    def __rmod__(self, other: Any) -> Tensor:
        return a.remainder(other, self) if isinstance(other, _NUMBERS) else _other(other)

    def __divmod__(self, other: Any) -> tuple[Tensor, Tensor]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Tensor, Tensor]:
        return other // self, other % self

    def __round__(self, decimals: int | None = None) -> Tensor:
        return a.round(self, decimals=decimals or 0)

    def __matmul__(self, other: Tensor) -> Tensor:
        return matmul.matmul(self, other) if isinstance(other, TensorBase) else _other(other)

    def __rmatmul__(self, other: Any) -> Tensor:
        return _other(other)  # type: ignore[no-any-return]

    def __neg__(self) -> Tensor:
        return e.neg(self)

    def __pos__(self) -> Tensor:
        return self

    def __abs__(self) -> Tensor:
        return e.abs(self)

    def __invert__(self) -> Tensor:
        return bits.bitwise_not(self)

    def __and__(self, other: Any) -> Tensor:
        return bits.bitwise_and(self, _operand("&", other))

    def __or__(self, other: Any) -> Tensor:
        return bits.bitwise_or(self, _operand("|", other))

    def __xor__(self, other: Any) -> Tensor:
        return bits.bitwise_xor(self, _operand("^", other))

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __lshift__(self, other: Any) -> Tensor:
        return bits.bitwise_left_shift(self, _operand("<<", other))

    def __rlshift__(self, other: Any) -> Tensor:
        return bits.bitwise_left_shift(_operand("<<", other), self)

    def __rshift__(self, other: Any) -> Tensor:
        return bits.bitwise_right_shift(self, _operand(">>", other))

    def __rrshift__(self, other: Any) -> Tensor:
        return bits.bitwise_right_shift(_operand(">>", other), self)

    def __lt__(self, other: Any) -> Tensor:
        return e.lt(self, other)

    def __le__(self, other: Any) -> Tensor:
        return e.le(self, other)

    def __gt__(self, other: Any) -> Tensor:
        return e.gt(self, other)

    def __ge__(self, other: Any) -> Tensor:
        return e.ge(self, other)

    def __eq__(self, other: Any) -> Any:
        return e.eq(self, other) if isinstance(other, _NUMBERS) else NotImplemented

    def __ne__(self, other: Any) -> Any:
        return e.ne(self, other) if isinstance(other, _NUMBERS) else NotImplemented

    __hash__ = TensorBase.__hash__

    def __iadd__(self, other: Any) -> Tensor:
        return self.add_(other)

    def __isub__(self, other: Any) -> Tensor:
        return self.sub_(other)

    def __imul__(self, other: Any) -> Tensor:
        return self.mul_(other)

    def __itruediv__(self, other: Any) -> Tensor:
        return self.div_(other)

    def __ifloordiv__(self, other: Any) -> Tensor:
        return self.floor_divide_(other)

    def __imod__(self, other: Any) -> Tensor:
        return self.remainder_(other)

    def __ipow__(self, other: Any) -> Tensor:
        return self.pow_(other)

    def __iand__(self, other: Any) -> Tensor:
        return _into("&=", self, self & other)

    def __ior__(self, other: Any) -> Tensor:
        return _into("|=", self, self | other)

    def __ixor__(self, other: Any) -> Tensor:
        return _into("^=", self, self ^ other)

    def __ilshift__(self, other: Any) -> Tensor:
        return _into("<<=", self, self << other)

    def __irshift__(self, other: Any) -> Tensor:
        return _into(">>=", self, self >> other)

    __getitem__ = index.getitem
    __setitem__ = index.setitem

    def __iter__(self) -> Iterator[Tensor]:
        return iter(shape.unbind(self)) if self.ndim else iter(_no_items())

    def __contains__(self, value: Any) -> bool:
        return bool((self == _operand("in", value)).any())

    # ---- operations -----------------------------------------------------------------------------

    add, sub, mul, div = a.add, a.sub, e.mul, a.div
    floor_divide, remainder, pow = a.floor_divide, a.remainder, a.pow
    neg, sqrt, square, exp, expm1 = e.neg, e.sqrt, a.square, e.exp, e.expm1
    log, log1p, log2, log10 = e.log, e.log1p, e.log2, e.log10
    sin, cos, tan, asin, acos, atan = e.sin, e.cos, e.tan, e.asin, e.acos, e.atan
    sinh, cosh, tanh, sigmoid, relu = e.sinh, e.cosh, e.tanh, e.sigmoid, e.relu
    erf, erfc, abs, sign, floor, ceil = e.erf, e.erfc, e.abs, e.sign, e.floor, e.ceil
    round, trunc = _checked(a.round), e.trunc
    atan2, hypot, minimum, maximum = e.atan2, e.hypot, e.minimum, e.maximum
    lt, le, gt, ge, eq, ne = e.lt, e.le, e.gt, e.ge, e.eq, e.ne
    reciprocal, rsqrt = e.reciprocal, e.rsqrt
    isnan, isinf, isfinite, isclose = e.isnan, e.isinf, e.isfinite, _checked(e.isclose)
    logical_not, logical_and = e.logical_not, _checked(e.logical_and)
    logical_or, logical_xor = _checked(e.logical_or), _checked(e.logical_xor)
    bitwise_and, bitwise_or = _checked(bits.bitwise_and), _checked(bits.bitwise_or)
    bitwise_xor, bitwise_not = _checked(bits.bitwise_xor), bits.bitwise_not
    clamp, clip = _checked(e.clamp), _checked(e.clip)
    clamp_min, clamp_max = _checked(e.clamp_min), _checked(e.clamp_max)
    masked_fill = _checked(e.masked_fill)
    sum, mean, prod = reduce.sum, reduce.mean, reduce.prod
    var, std = reduce.var, _checked(reduce.std)
    max, min, amax, amin = reduce.max, reduce.min, reduce.amax, reduce.amin
    argmax, argmin, cumsum = reduce.argmax, reduce.argmin, reduce.cumsum
    any, all, norm = reduce.any, reduce.all, _checked(reduce.norm)
    sort, argsort = _checked(search.sort), _checked(search.argsort)
    topk = _checked(search.topk)
    nonzero, masked_select = search.nonzero, _checked(search.masked_select)
    reshape, view, flatten = shape.reshape, shape.view, shape.flatten
    view_as, reshape_as = _checked(shape.view_as), _checked(shape.reshape_as)
    expand_as = _checked(shape.expand_as)
    permute, transpose, expand = shape.permute, shape.transpose, shape.expand
    squeeze, unsqueeze, broadcast_to = shape.squeeze, shape.unsqueeze, shape.broadcast_to
    unflatten, movedim = _checked(shape.unflatten), _checked(shape.movedim)
    repeat, tile = _checked(shape.repeat), _checked(shape.tile)
    repeat_interleave, roll = _checked(shape.repeat_interleave), _checked(shape.roll)
    narrow, chunk, unbind = _checked(shape.narrow), _checked(shape.chunk), shape.unbind
    flip, clone, contiguous = shape.flip, shape.clone, shape.contiguous
    gather, scatter_add = _checked(index.gather), _checked(index.scatter_add)
    index_select = _checked(index.index_select)
    tril, triu = _checked(index.tril), _checked(index.triu)
    dot, mv, outer = _checked(matmul.dot), _checked(matmul.mv), _checked(matmul.outer)
    matmul, mm, bmm = _checked(matmul.matmul), _checked(matmul.mm), _checked(matmul.bmm)
    softmax, log_softmax, logsumexp = softmax.softmax, softmax.log_softmax, softmax.logsumexp
    equal, allclose = _checked(compare.equal), _checked(compare.allclose)

    def where(self, condition: Tensor, other: Any) -> Tensor:
        """Return the elements where a condition holds, else those of `other`."""
        return e.where(_tensor("where", condition), self, other)

    def split(self, split_size: Any, dim: int = 0) -> tuple[Tensor, ...]:
        """Return views of parts along a dimension: of one size, or of the sizes listed."""
        return _split(self, split_size, dim)

    def size(self, dim: int | None = None) -> Any:
        """Return the shape, or the size of one dimension."""
        return self.shape if dim is None else self.shape[_dims.own("size", dim, self.ndim)]

    def t(self) -> Tensor:
        """Return a matrix with rows and columns exchanged; a vector as it is."""
        if self.ndim > 2:
            raise ShapeError(f"t: expected at most two dimensions, got {self.shape}; use mT")
        return shape.reverse_dims(self)

    @property
    def T(self) -> Tensor:  # noqa: N802  everybody's name
        """The dimensions in reverse order."""
        return shape.reverse_dims(self)

    @property
    def mT(self) -> Tensor:  # noqa: N802
        """The last two dimensions exchanged."""
        if self.ndim == 1:
            raise ShapeError(f"mT: expected at least two dimensions, got {self.shape}; use x[None]")
        return self.transpose(-1, -2) if self.ndim else self

    # ---- changes in place -----------------------------------------------------------------------

    def add_(self, other: Any, *, alpha: float = 1) -> Tensor:
        """Add in place."""
        return _ADD.in_place(self, a.scaled("add_", self, other, alpha))

    def sub_(self, other: Any, *, alpha: float = 1) -> Tensor:
        """Subtract in place."""
        return _SUB.in_place(self, a.scaled("sub_", self, other, alpha))

    def mul_(self, other: Any) -> Tensor:
        """Multiply in place."""
        return _MUL.in_place(self, _operand("mul_", other))

    def div_(self, other: Any, *, rounding_mode: str | None = None) -> Tensor:
        """Divide in place, and round as `div` does."""
        if rounding_mode is not None:
            before = _before(self, other)
            return _into("div_", self, a.div(before, other, rounding_mode=rounding_mode))
        return _DIV.in_place(self, _operand("div_", other))

    def floor_divide_(self, other: Any) -> Tensor:
        """Divide in place, and round down."""
        a.check_divisor("floor_divide_", self, other)
        return _TABLE["floor_divide"].in_place(self, _operand("floor_divide_", other))

    def remainder_(self, other: Any) -> Tensor:
        """Replace the elements by what division leaves."""
        a.check_divisor("remainder_", self, other)
        return _TABLE["remainder"].in_place(self, _operand("remainder_", other))

    def pow_(self, exponent: Any) -> Tensor:
        """Replace the elements by their powers."""
        before = _before(self, exponent)
        return _into("pow_", self, before.pow(exponent))

    relu_, neg_, exp_, sqrt_, abs_ = map(_in_place, ("relu", "neg", "exp", "sqrt", "abs"))
    log_, tanh_, sigmoid_, sin_, cos_ = map(_in_place, ("log", "tanh", "sigmoid", "sin", "cos"))
    floor_, ceil_, trunc_ = map(_in_place, ("floor", "ceil", "trunc"))

    def round_(self, *, decimals: int = 0) -> Tensor:
        """Do in place what `round` does."""
        if decimals:
            return _into("round_", self, a.round(_before(self), decimals=decimals))
        return _TABLE["round"].in_place(self)

    def masked_fill_(self, mask: Tensor, value: Any) -> Tensor:
        """Write a value where the mask holds."""
        return self.copy_(self.masked_fill(mask, value))

    def clamp_(self, min: Any = None, max: Any = None) -> Tensor:
        """Bring the elements within bounds in place."""
        return _into("clamp_", self, _before(self, min, max).clamp(min, max))

    def scatter_add_(self, dim: int, index: Tensor, src: Tensor) -> Tensor:
        """Add elements along a dimension in place, one per index."""
        return _into("scatter_add_", self, _before(self, src).scatter_add(dim, index, src))

    def index_put_(self, indices: Any, values: Tensor, accumulate: Any = False) -> Tensor:
        """Write values into x[indices]; or add them, where a place may be named twice."""
        return index.put(self, indices, _tensor("index_put_", values), accumulate)

    def uniform_(
        self, low: float = 0.0, to: float = 1.0, *, generator: random.Generator | None = None
    ) -> Tensor:
        """Write numbers drawn evenly from low (PyTorch's `from`) up to, not including, `to`."""
        return self.copy_(random.uniform_like(self, low, to, generator))

    def normal_(
        self, mean: float = 0.0, std: float = 1.0, *, generator: random.Generator | None = None
    ) -> Tensor:
        """Write numbers drawn from a normal distribution."""
        return self.copy_(random.normal_like(self, mean, std, generator))

    def copy_(self, other: Any, non_blocking: bool = False) -> Tensor:
        """Write the elements of another tensor, broadcast, or a number into this one."""
        source = _operand("copy_", other)
        index.setitem(self, ..., source.to(self.device) if _is_tensor(source) else source)
        return self

    def fill_(self, value: Any) -> Tensor:
        """Write one value everywhere."""
        index.setitem(self, Ellipsis, value)
        return self

    def zero_(self) -> Tensor:
        """Write zeros everywhere."""
        return self.fill_(0)

    def unsqueeze_(self, dim: int) -> Tensor:
        """Give it a dimension of one element more."""
        return _take_shape("unsqueeze_", self, lambda: self.unsqueeze(dim))

    def squeeze_(self, dim: Any = None) -> Tensor:
        """Take dimensions of one element from it, all or those named."""

        def squeezed() -> Tensor:
            view = self.squeeze(dim)
            return self if view.ndim == self.ndim else view

        return _take_shape("squeeze_", self, squeezed)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Set whether operations on it are recorded."""
        self.requires_grad = requires_grad
        return self

    def detach_(self) -> Tensor:
        """Forget where it came from; a view cannot."""
        if _core.base_of(self) is not None:
            raise GradError("detach_: a view cannot be detached in place; use detach()")
        self._node, self._index, self._requires_grad = None, 0, False
        return self

    @property
    def data(self) -> Tensor:
        """The same elements without history."""
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        _tensor("data", value)
        if value._version_cell() is not self._version_cell():  # two counts for one memory
            value._give_out()
            self._give_out()
        self._take(value)

    # ---- types and devices ----------------------------------------------------------------------

    def to(
        self,
        *wanted: Any,
        dtype: Any = None,
        device: Any = None,
        non_blocking: bool = False,
        copy: bool = False,
    ) -> Tensor:
        """Return it in another number type, on another device, or as another tensor is.

        With `copy` it is never the same tensor. `non_blocking` is taken for PyTorch's sake: nothing
        is done later here.
        """
        if len(wanted) > 2 and wanted[-2] in _FLAGS:  # the last two without their names
            copy = wanted[-1]
        dtype, device = destination(wanted, dtype, device)
        found = self if dtype is None else shape.cast(self, dtype)
        if device is not None and (place := find_device(device)) is not found._device:
            found = transfer.to_device(found, place)
        return found.clone() if copy and found is self else found

    def type(self, dtype: Any) -> Tensor:
        """Return it in another number type."""
        return self.to(as_dtype(dtype))

    def type_as(self, other: Tensor) -> Tensor:
        """Return it in the number type of another tensor."""
        return self.to(_tensor("type_as", other).dtype)

    def float(self) -> Tensor:
        """Return it as float32."""
        return self.to("float32")

    def double(self) -> Tensor:
        """Return it as float64."""
        return self.to("float64")

    def int(self) -> Tensor:
        """Return it as int32."""
        return self.to("int32")

    def long(self) -> Tensor:
        """Return it as int64."""
        return self.to("int64")

    def bool(self) -> Tensor:
        """Return which elements are not 0."""
        return self.to("bool")

    def cpu(self) -> Tensor:
        """Return it on the CPU."""
        return self.to("cpu")

    # ---- copies ---------------------------------------------------------------------------------

    def new_zeros(self, *sizes: Any, **options: Any) -> Tensor:
        """Return zeros of its type and device, as far as options do not name others."""
        return creation.zeros(*sizes, **_own(self, options))

    def new_ones(self, *sizes: Any, **options: Any) -> Tensor:
        """Return ones of its type and device, as far as options do not name others."""
        return creation.ones(*sizes, **_own(self, options))

    def new_full(self, size: Any, fill_value: Any, **options: Any) -> Tensor:
        """Return one value everywhere, as `new_zeros` returns zeros."""
        return creation.full(size, fill_value, **_own(self, options))

    def new_empty(self, *sizes: Any, **options: Any) -> Tensor:
        """Return a tensor whose elements are not set, as `new_zeros` returns zeros."""
        return creation.empty(*sizes, **_own(self, options))

    def new_tensor(self, data: Any, **options: Any) -> Tensor:
        """Return numbers as a tensor, as `new_zeros` returns zeros."""
        return creation.tensor(data, **_own(self, options))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Say what to write instead of what is not there."""
            raise missing("Tensor", name)

    def __copy__(self) -> Tensor:
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        made._array, made._device, made._cell = self._array, self._device, self._version_cell()
        made._requires_grad, made._inference = self._requires_grad, self._inference
        return made

    def __deepcopy__(self, memo: dict[Any, Any]) -> Tensor:
        if self._node is not None:
            raise OptionError("deepcopy: only leaves can be copied with their gradients; detach()")
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        made._device = self._device
        copies.share(self, made, memo)
        made._requires_grad = self._requires_grad
        made.grad = None if self.grad is None else self.grad.detach().clone()
        memo[id(self)] = made
        return made

    def __reduce__(self) -> Any:
        if self._node is not None:
            raise OptionError("pickle: a result has a history that cannot be saved; detach() first")
        array = self._device.to_numpy(self._array)
        return _restored, (type(self), array, self._device.name, self._requires_grad)

    def __repr__(self) -> str:
        return printing.text(self)


_core.set_types(Tensor, Node)


def destination(wanted: Sequence[Any], dtype: Any, device: Any) -> tuple[DType | None, Any]:
    """Return the number type and the device that arguments of `to` ask for, None for neither."""
    for each in wanted:
        if isinstance(each, TensorBase):
            dtype, device = each.dtype, each.device
        elif isinstance(each, Backend) or (isinstance(each, str) and not is_dtype(each)):
            device = each
        elif not isinstance(each, bool):
            dtype = each
    return None if dtype is None else as_dtype(dtype), device


def _own(x: Tensor, options: dict[str, Any]) -> dict[str, Any]:
    """Return options of a new tensor, with type and device of another where they name none."""
    if not options:
        return {"dtype": x.dtype, "device": x.device}
    named = {name: value for name, value in options.items() if value is not None}
    return {"dtype": x.dtype, "device": x.device, **named}


def _restored(cls: type[Tensor], array: Any, device: str, requires_grad: bool) -> Tensor:
    place = find_device(device)
    made = cls.__new__(cls)
    made._array, made._device = place.from_numpy(array), place
    made._requires_grad = requires_grad
    return made
