"""One step, watched: which calls the model makes, from which module, with which arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.profiler import record_function

from tapegrad.worker.profiling import events
from tapegrad.worker.profiling.model import Model
from tapegrad.worker.profiling.names import canonical
from tapegrad.worker.profiling.tree import leaves, mapped

#: Longest text of an attribute.
ATTRIBUTE = 60


@dataclass(frozen=True)
class Saved:
    """A tensor that a call took: as it was, not as the call has left it."""

    value: Any
    requires_grad: bool


@dataclass
class Kind:
    """Calls that are alike: the same function with equal shapes, types, layouts and attributes."""

    function: Callable[..., Any]
    #: None, where they cannot be kept, as what `vmap` wraps: then it is not run alone.
    arguments: tuple[Any, ...] | None
    named: dict[str, Any]
    inputs: list[str]
    dtypes: list[str]
    attributes: list[str]
    #: Of a call that has failed there are none.
    outputs: list[str] = field(default_factory=list)
    #: Whether it writes into its arguments, or may do so unseen.
    in_place: bool = False


@dataclass
class Row:
    """A line of the table: an operator, at places that are alike."""

    name: str
    operator: str | None
    kind: Kind | None
    modules: list[str] = field(default_factory=list)
    calls: int = 0


@dataclass
class Trace:
    """The rows, and the row of each operator of a step in its order."""

    rows: list[Row]
    names: list[str]
    places: list[int]


class Recorder(TorchFunctionMode):  # type: ignore[misc]
    """Sees every call of a function of PyTorch, keeps one of each kind, and marks its range."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds: dict[str, Kind] = {}
        #: Of each call: its kind, and the module that made it.
        self.calls: list[tuple[str, str]] = []
        self.modules: list[str] = []
        self._within = False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return self.run(func, args, kwargs or {})

    def run(self, function: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Do a call; those within it, and those that a compiler only reads, are its own affair."""
        if self._within or torch.compiler.is_compiling() or _is_read_by_compiler(args):
            return function(*args, **named)
        key = _key(function, args, named)
        given = list(leaves([args, named]))
        kind = None if key in self.kinds else _kind(function, args, named, given)
        if kind is not None:
            self.kinds[key] = kind
        versions = [_version(tensor) for tensor in given]
        self.calls.append((key, self.modules[-1] if self.modules else ""))
        self._within = True
        try:
            with record_function(f"{events.CALL}{len(self.calls) - 1}"):
                result = function(*args, **named)
        finally:
            self._within = False
        if kind is not None:
            kind.outputs = [shape(tensor) for tensor in leaves(result)]
            kind.in_place = any(
                version is None or _version(tensor) != version
                for tensor, version in zip(given, versions, strict=True)
            )
        return result

    @contextmanager
    def watching(self, model: Model) -> Iterator[None]:
        """Keep track of the module that runs."""
        handles = []
        for path, module in model.modules.items():
            handles += [
                module.register_forward_pre_hook(lambda *_, path=path: self.modules.append(path)),
                module.register_forward_hook(
                    lambda *_: self.modules.pop() and None, always_call=True
                ),
            ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


#: Who watches calls of the user's own `autograd.Function`, which no mode sees.
_watcher: Recorder | None = None
_apply = torch.autograd.Function.__dict__["apply"]


def _is_read_by_compiler(args: tuple[Any, ...]) -> bool:
    return any(isinstance(tensor, FakeTensor) for tensor in leaves(args))


def watch_functions() -> None:
    """See calls of `autograd.Function` from now on; to be called before a user's file is loaded.

    Files often keep `apply` under a name of their own, so it cannot be replaced later.
    """

    def apply(cls: Any, *args: Any, **named: Any) -> Any:
        call = _apply.__get__(None, cls)
        return call(*args, **named) if _watcher is None else _watcher.run(call, args, named)

    torch.autograd.Function.apply = classmethod(apply)


def traced(model: Model, device: str) -> Trace:
    """Run a step, watched, and return the rows of the table."""
    recorder = Recorder()

    def run() -> None:
        global _watcher  # noqa: PLW0603  autograd.Function has no other way to reach the recorder
        model.reset()
        _watcher = recorder
        try:
            with events.step_range(), recorder.watching(model), recorder:
                model.forward()
        finally:
            _watcher = None

    (step,) = events.recorded(device, run)
    return _rows(step.operators, recorder)


def _rows(operators: list[events.Operator], recorder: Recorder) -> Trace:
    """Join operators of one call, and calls of one kind."""
    parts: dict[int | None, list[str]] = {}
    for operator in operators:
        parts.setdefault(operator.call, []).append(operator.name)
    rows: list[Row] = []
    numbers: dict[tuple[str, str], int] = {}
    places = []
    counted = set()
    for operator in operators:
        key, module = ("", "") if operator.call is None else recorder.calls[operator.call]
        name = operator.name
        if operator.call is not None and len(parts[operator.call]) > 1:
            name = _function_name(recorder.kinds[key].function)
        kind = recorder.kinds.get(key)
        number = numbers.setdefault((key, name), len(rows))
        if number == len(rows):
            rows.append(Row(name, canonical(name), kind))
        row = rows[number]
        places.append(number)
        if operator.call is None or operator.call not in counted:
            counted.add(operator.call)
            row.calls += 1
            if module not in row.modules:
                row.modules.append(module)
    return Trace(rows, [operator.name for operator in operators], places)


def _kind(function: Any, args: tuple[Any, ...], named: dict[str, Any], given: list[Any]) -> Kind:
    kept = not any(map(torch._C._functorch.is_functorch_wrapped_tensor, given))
    arguments, by_name = _saved(args, named) if kept else (None, {})
    return Kind(
        function=function,
        arguments=arguments,
        named=by_name,
        inputs=[shape(tensor) for tensor in given],
        dtypes=sorted({str(tensor.dtype).removeprefix("torch.") for tensor in given}),
        attributes=_attributes(args, named),
    )


def _version(tensor: Any) -> int | None:
    """Return how often a tensor was written into; those of `inference_mode` do not count."""
    return None if tensor.is_inference() else int(tensor._version)


def _saved(args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, Any]:
    """Copy the arguments of a call, with their layout; a tensor given twice stays one."""
    copies: dict[int, Saved] = {}

    def copy(tensor: Any) -> Saved:
        if id(tensor) not in copies:
            copies[id(tensor)] = Saved(_copy(tensor.detach()), tensor.requires_grad)
        return copies[id(tensor)]

    with record_function(events.ASIDE), torch.inference_mode(False), torch.no_grad():
        return mapped(args, copy), mapped(named, copy)


def _copy(tensor: Any) -> Any:
    """Copy a tensor; one whose elements share memory, or that has no strides, is kept as it is."""
    if not _is_strided(tensor) or 0 in tensor.stride():
        return tensor
    copy = torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )
    return copy.copy_(tensor)


def _attributes(args: tuple[Any, ...], named: dict[str, Any]) -> list[str]:
    """Write the arguments that are no tensors."""
    plain = [str(each)[:ATTRIBUTE] for each in args if not _has_tensors(each)]
    return plain + [
        f"{name}={each}"[:ATTRIBUTE] for name, each in named.items() if not _has_tensors(each)
    ]


def _has_tensors(value: Any) -> bool:
    return next(leaves(value), None) is not None


def _key(function: Any, args: tuple[Any, ...], named: dict[str, Any]) -> str:
    """Tell which calls are alike."""
    return f"{_function_name(function)}{mapped(args, _Description)}{mapped(named, _Description)}"


class _Description:
    """How a tensor looks from outside."""

    def __init__(self, tensor: Any) -> None:
        strides = tensor.stride() if _is_strided(tensor) else tensor.layout
        self._text = f"{tensor.dtype}{shape(tensor)}{strides}{tensor.requires_grad}"

    def __repr__(self) -> str:
        return self._text


def _function_name(function: Any) -> str:
    owner = getattr(function, "__self__", None)
    if isinstance(owner, type) and issubclass(owner, torch.autograd.Function):
        return owner.__name__
    return str(getattr(function, "__name__", function))


def _is_strided(tensor: Any) -> bool:
    """Tell whether a tensor has sides and strides: one that is nested has them for each part."""
    return bool(tensor.layout == torch.strided and not tensor.is_nested)


def shape(tensor: Any) -> str:
    """Write a shape as the tables do; a scalar has none."""
    if tensor.is_nested and tensor.layout == torch.strided:
        return f"nested {tensor.size(0)}"
    return "x".join(map(str, tensor.shape)) or "scalar"
