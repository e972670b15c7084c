"""Module: a function with parameters, buffers and modules inside.

Whatever is assigned to a module is sorted by its kind: Parameters, Modules and registered buffers
go into dicts of their own, in the order of assignment, which is the order of `state_dict`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self

from tapegrad.errors import DTypeError, OptionError
from tapegrad.nn import state
from tapegrad.nn.hooks import BackwardHooks, Hook
from tapegrad.nn.parameter import Parameter
from tapegrad.nn.table import layer_table
from tapegrad.tensors import Tensor
from tapegrad.tensors.base import Handle
from tapegrad.tensors.methods import destination

#: Where a module keeps what is assigned to it, by kind.
_KINDS = ("_parameters", "_buffers", "_modules")


class Module:
    """The base of all layers and models.

    A subclass makes its layers in `__init__`, after `super().__init__()`, and uses them in
    `forward`.

    Example:
        >>> from tapegrad import nn
        >>> class Scale(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.layer = nn.Linear(2, 3)
        ...     def forward(self, x):
        ...         return 2 * self.layer(x)
        >>> Scale()
        Scale(                                                       9 parameters
          (layer): Linear(in_features=2, out_features=3, bias=True)  9
        )

    """

    training: bool
    #: Names of its own state that a state_dict may lack, as older files do.
    may_lack: tuple[str, ...] = ()
    #: Whether the repr shows equal neighbours inside as one line.
    repeats_are_folded = False

    def __init__(self) -> None:
        fields: dict[str, Any] = self.__dict__
        fields["training"] = True
        for name in _KINDS:
            fields[name] = {}
        fields["_non_persistent"] = set()
        fields["_forward_pre_hooks"] = {}
        fields["_forward_hooks"] = {}
        fields["_backward_pre_hooks"] = {}
        fields["_backward_hooks"] = {}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the module's result; subclasses say how."""
        raise NotImplementedError(f"{type(self).__name__} has no method `forward`")

    # Calls and hooks

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call `forward`, and hooks around it."""
        try:
            fields = self.__dict__
            hooked = (
                fields["_forward_hooks"]
                or fields["_forward_pre_hooks"]
                or fields["_backward_hooks"]
                or fields["_backward_pre_hooks"]
            )
        except KeyError:
            raise self._not_initialised() from None
        if hooked:
            return self._call_with_hooks(args, kwargs)
        return self.forward(*args, **kwargs)

    def _call_with_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        late = [hook for hook in self._forward_hooks.values() if hook.always_call]
        result = None
        try:
            args, kwargs = self._before(args, kwargs)
            backward = None
            if self._backward_hooks or self._backward_pre_hooks:
                backward = BackwardHooks(
                    self,
                    list(self._backward_pre_hooks.values()),
                    list(self._backward_hooks.values()),
                )
                args = backward.enter(args)
            result = self.forward(*args, **kwargs)
            for hook in list(self._forward_hooks.values()):
                late = [each for each in late if each is not hook]
                result = self._after(hook, args, kwargs, result)
            return result if backward is None else backward.leave(result)
        except BaseException:
            for hook in late:
                self._after(hook, args, kwargs, result)
            raise

    def _before(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        for hook in list(self._forward_pre_hooks.values()):
            if hook.with_kwargs:
                answer = hook.function(self, args, kwargs)
                args, kwargs = (args, kwargs) if answer is None else answer
            else:
                answer = hook.function(self, args)
                if answer is not None:
                    args = answer if isinstance(answer, tuple) else (answer,)
        return args, kwargs

    def _after(self, hook: Hook, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        if hook.with_kwargs:
            answer = hook.function(self, args, kwargs, result)
        else:
            answer = hook.function(self, args, result)
        return result if answer is None else answer

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> Handle:
        """Call hook(module, args) before `forward`; what it returns replaces the arguments."""
        return Handle(self._forward_pre_hooks, Hook(hook, with_kwargs), prepend)

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> Handle:
        """Call hook(module, args, output) after `forward`; what it returns replaces the output."""
        return Handle(self._forward_hooks, Hook(hook, with_kwargs, always_call), prepend)

    def register_full_backward_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> Handle:
        """Call hook(module, grad_output) before the module's backward; its answer replaces them."""
        return Handle(self._backward_pre_hooks, Hook(hook), prepend)

    def register_full_backward_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> Handle:
        """Call hook(module, grad_input, grad_output) behind backward; it may replace grad_input."""
        return Handle(self._backward_hooks, Hook(hook), prepend)

    # Attributes

    def __getattr__(self, name: str) -> Any:
        fields = self.__dict__
        for kind in _KINDS:
            if kind in fields and name in fields[kind]:
                return fields[kind][name]
        if "_modules" not in fields:
            raise self._not_initialised()
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Parameter):
            self._forget(name, keep="_parameters")
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            self._forget(name, keep="_modules")
            self.register_module(name, value)
        elif (kind := self._kind_of(name)) is None:
            object.__setattr__(self, name, value)
        elif value is None or (kind == "_buffers" and isinstance(value, Tensor)):
            self.__dict__[kind][name] = value
        else:
            raise DTypeError(
                f"{type(self).__name__}.{name}: expected {_WANTED[kind]} or None, "
                f"got {type(value).__name__}; `del` the attribute first to change its kind"
            )

    def __delattr__(self, name: str) -> None:
        if self._kind_of(name) is None:
            object.__delattr__(self, name)
        else:
            self._forget(name)

    def __dir__(self) -> list[str]:
        kept = (key for kind in _KINDS for key in self.__dict__.get(kind, ()))
        return sorted({*super().__dir__(), *kept})

    def _kind_of(self, name: str) -> str | None:
        fields = self.__dict__
        return next((kind for kind in _KINDS if name in fields.get(kind, ())), None)

    def _forget(self, name: str, keep: str = "") -> None:
        """Let go of a name, but for its place among those of a kind that is kept."""
        self.__dict__.pop(name, None)
        for kind in _KINDS:
            if kind != keep:
                self.__dict__.get(kind, {}).pop(name, None)
        self.__dict__.get("_non_persistent", set()).discard(name)

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter; None keeps its place free."""
        self._check_name(name, "_parameters")
        if param is not None and not isinstance(param, Parameter):
            raise DTypeError(
                f"register_parameter({name!r}): expected a Parameter or None, got "
                f"{type(param).__name__}; wrap tensors as nn.Parameter(tensor)"
            )
        if param is not None and not param.is_leaf:
            raise DTypeError(
                f"register_parameter({name!r}): expected a leaf, got the result of a computation; "
                "compute it in `forward`, or detach() it first"
            )
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is state but not learnt, as running statistics.

        Args:
            name: The attribute that it becomes.
            tensor: Its value; None keeps its place free.
            persistent: Whether it is part of `state_dict`.

        """
        self._check_name(name, "_buffers")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise DTypeError(
                f"register_buffer({name!r}): expected a Tensor or None, got {type(tensor).__name__}"
            )
        self._buffers[name] = tensor
        self._non_persistent.discard(name)
        if not persistent:
            self._non_persistent.add(name)

    def register_module(self, name: str, module: Module | None) -> None:
        """Add a module inside this one."""
        self._check_name(name, "_modules")
        if module is not None and not isinstance(module, Module):
            raise DTypeError(
                f"add_module({name!r}): expected a Module or None, got {type(module).__name__}"
            )
        self._modules[name] = module

    add_module = register_module

    def _check_name(self, name: str, kind: str) -> None:
        if "_modules" not in self.__dict__:
            raise self._not_initialised()
        if not isinstance(name, str) or not name or "." in name:
            raise OptionError(
                f"{type(self).__name__}: expected a name that is not empty and has no dot, "
                f"got {name!r}"
            )
        if hasattr(self, name) and name not in self.__dict__[kind]:
            raise OptionError(f"{type(self).__name__} has an attribute {name!r} already")

    def _not_initialised(self) -> AttributeError:
        return AttributeError(
            f"{type(self).__name__}: call super().__init__() before layers and parameters are set"
        )

    # Walks

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """Walk over this module and all inside it, with dotted names."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, _joined(prefix, name), remove_duplicate)

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """Walk over this module and all inside it."""
        walk = self.named_modules(remove_duplicate=remove_duplicate)
        return (module for _, module in walk)

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Walk over the modules directly inside this one, with names."""
        seen: set[Module] = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        """Walk over the modules directly inside this one."""
        return (module for _, module in self.named_children())

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Walk over all parameters, with dotted names; shared ones come once."""
        return self._named("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Walk over all parameters."""
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Walk over all buffers, with dotted names."""
        return self._named("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Walk over all buffers."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def _named(
        self, kind: str, prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        modules: Iterable[tuple[str, Module]] = [(prefix, self)]
        if recurse:
            modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
        for path, module in modules:
            for name, tensor in module.__dict__[kind].items():
                if tensor is None or id(tensor) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(tensor))
                yield _joined(path, name), tensor

    def get_submodule(self, target: str) -> Module:
        """Return the module with a dotted name; the empty one is this module's own."""
        module = self
        for name in target.split(".") if target else ():
            inner = module._modules.get(name)
            if inner is None:
                raise AttributeError(
                    f"get_submodule({target!r}): {type(module).__name__} has no module {name!r}, "
                    f"only {', '.join(module._modules) or 'none'}"
                )
            module = inner
        return module

    def get_parameter(self, target: str) -> Parameter:
        """Return the parameter with a dotted name."""
        parameter: Parameter = self._get("_parameters", target)
        return parameter

    def get_buffer(self, target: str) -> Tensor:
        """Return the buffer with a dotted name."""
        buffer: Tensor = self._get("_buffers", target)
        return buffer

    def _get(self, kind: str, target: str) -> Any:
        path, _, name = target.rpartition(".")
        kept = self.get_submodule(path).__dict__[kind]
        if kept.get(name) is None:
            raise AttributeError(
                f"{target!r}: there is none among {', '.join(kept) or 'no names'} there"
            )
        return kept[name]

    # Everything at once

    def apply(self, fn: Callable[[Module], object]) -> Self:
        """Call fn with every module inside, then with this one; as to initialise weights."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def train(self, mode: bool = True) -> Self:
        """Set training mode, which changes dropout and batch norm, here and inside."""
        if not isinstance(mode, bool):
            raise DTypeError(f"train: expected True or False, got {mode!r}")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Self:
        """Set evaluation mode: the same as train(False)."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Let gradients flow to all parameters, or freeze them."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or fill them with zeros."""
        for parameter in self.parameters():
            forget_gradient(parameter, set_to_none)

    def to(
        self, *args: Any, dtype: Any = None, device: Any = None, non_blocking: bool = False
    ) -> Self:
        """Move parameters and buffers, by `to(device)`, `to(dtype)`, both, or `to(tensor)`.

        A dtype must be one of floats, and is that of all floats then; integers stay as they are.
        The parameters stay the same objects, so optimisers keep them. `non_blocking` is taken for
        PyTorch's sake: nothing is done later here.
        """
        kind, place = destination(args, dtype, device)
        if kind is not None and not kind.is_floating_point:
            raise DTypeError(f"to: expected float32 or float64 for a module, got {kind}")
        return self._apply(
            lambda each: each.to(dtype=kind if each.is_floating_point() else None, device=place)
        )

    def cpu(self) -> Self:
        """Move parameters and buffers to the CPU."""
        return self._apply(lambda each: each.cpu())

    def float(self) -> Self:
        """Make all floats float32."""
        return self._apply(lambda each: each.float() if each.is_floating_point() else each)

    def double(self) -> Self:
        """Make all floats float64."""
        return self._apply(lambda each: each.double() if each.is_floating_point() else each)

    def _apply(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Put changed tensors in place of parameters' values, gradients and buffers."""
        for parameter in self.parameters():
            before = parameter.data
            after = change(before)
            if after is before:  # what was recorded of it still holds
                continue
            gradient, parameter.grad = parameter.grad, None
            parameter._take(after)
            if gradient is not None:
                parameter.grad = change(gradient)
        for module in self.modules():
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = change(buffer)
        return self

    # State

    def state_dict(
        self,
        *,
        destination: dict[str, Tensor] | None = None,
        prefix: str = "",
        keep_vars: bool = False,
    ) -> dict[str, Tensor]:
        """Return all parameters and persistent buffers by dotted names; they share memory.

        Args:
            destination: A dict to add them to.
            prefix: What names start with.
            keep_vars: Give the parameters themselves, not detached tensors.

        """
        found = {} if destination is None else destination
        for name, tensor in self._own_state():
            found[prefix + name] = tensor if keep_vars else tensor.detach()
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=found, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        return found

    def _own_state(self) -> Iterator[tuple[str, Tensor]]:
        for name, parameter in self._parameters.items():
            if parameter is not None:
                yield name, parameter
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent:
                yield name, buffer

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> state.IncompatibleKeys:
        """Copy tensors into the parameters and buffers of the same names.

        Args:
            state_dict: Tensors by dotted names, as `state_dict` gives them; also arrays, and
                tensors of other libraries, as a PyTorch model's `state_dict`.
            strict: Whether names must be the same on both sides. Shapes always must.
            assign: Whether parameters and buffers lie on the given tensors' memory from now on.

        If anything does not fit, nothing is loaded, and StateError lists what is missing, what is
        unexpected and which shapes differ.

        """
        own = self.state_dict(keep_vars=True)
        may_lack = {
            _joined(path, name)
            for path, module in self.named_modules(remove_duplicate=False)
            for name in module.may_lack
        }
        return state.load(type(self).__name__, own, state_dict, strict, assign, may_lack)

    # Text

    def extra_repr(self) -> str:
        """Return what the repr shows in brackets: the layer's options."""
        return ""

    def __repr__(self) -> str:
        return layer_table(self)


_WANTED = {"_parameters": "a Parameter", "_buffers": "a Tensor", "_modules": "a Module"}


def forget_gradient(parameter: Tensor, set_to_none: bool) -> None:
    """Drop a gradient, or fill it with zeros."""
    if parameter.grad is None:
        return
    if set_to_none:
        parameter.grad = None
    else:
        parameter.grad = parameter.grad.detach()
        parameter.grad.zero_()


def _joined(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name
