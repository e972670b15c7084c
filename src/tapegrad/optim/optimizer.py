"""What all optimisers share: groups of parameters, state, saving."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Set
from copy import deepcopy
from math import isfinite
from numbers import Real
from typing import Any

from tapegrad.errors import DTypeError, OptionError, StateError
from tapegrad.nn.module import Module, forget_gradient
from tapegrad.nn.state import read
from tapegrad.tensors import Tensor, enable_grad, float64, no_grad

#: Parameters as users give them: tensors, tensors with names, or dicts of groups.
Params = Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]]
Group = dict[str, Any]
#: The part of a state that is a number and no buffer, which PyTorch keeps as a tensor.
_COUNT = "step"
#: Options that states of older versions of PyTorch's optimisers do not have.
_LATER = {"maximize", "decoupled_weight_decay"}


class Optimizer:
    """The base of optimisers.

    Args:
        params: Parameters, or groups of them: dicts with "params" and the options that differ.
        defaults: Options of groups that do not give their own.

    A subclass says in `update` how one parameter changes.

    """

    def __init__(self, params: Params, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self.state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[Group] = []
        if isinstance(params, (Tensor, Mapping, Module)) or not isinstance(params, Iterable):
            raise DTypeError(
                f"{type(self).__name__}: expected parameters in a list, "
                f"got one {type(params).__name__}; pass model.parameters() or [parameter]"
            )
        given = self._in_order(params)
        if not given:
            raise OptionError(f"{type(self).__name__}: expected parameters, got an empty list")
        groups = given if isinstance(given[0], dict) else [{"params": given}]
        for group in groups:
            self.add_param_group(group)

    def update(self, parameter: Tensor, gradient: Tensor, group: Group) -> None:
        """Change one parameter, in place."""
        raise NotImplementedError(f"{type(self).__name__} has no method `update`")

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change all parameters that have a gradient.

        Args:
            closure: Computes the loss and its gradients again; its result is returned.

        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        self.update(parameter, parameter.grad, group)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients, or fill them with zeros."""
        for group in self.param_groups:
            for parameter in group["params"]:
                forget_gradient(parameter, set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with options of their own, as layers that are not frozen any more."""
        if not isinstance(param_group, dict) or "params" not in param_group:
            raise DTypeError(
                f"add_param_group: expected a dict with 'params', got {param_group!r:.80}"
            )
        group = self.defaults | param_group
        params = self._in_order(group["params"])
        named = [each for each in params if isinstance(each, tuple)]
        if named and len(named) < len(params):
            raise DTypeError(
                f"{type(self).__name__}: expected names for all parameters of a group or for none, "
                f"got {len(named)} of {len(params)} with a name"
            )
        if named:
            group["param_names"] = [name for name, _ in named]
            params = [parameter for _, parameter in named]
        group["params"] = params
        self._check_parameters(params)
        self.check(group)
        self.param_groups.append(group)

    def _in_order(self, params: Any) -> list[Any]:
        """Return parameters in their order, which says whose state is whose."""
        if isinstance(params, Set):
            raise DTypeError(
                f"{type(self).__name__}: expected parameters in an order, got a "
                f"{type(params).__name__}, whose order differs from run to run; pass a list"
            )
        return [params] if isinstance(params, Tensor) else list(params)

    def _check_parameters(self, parameters: list[Any]) -> None:
        known = {id(each) for group in self.param_groups for each in group["params"]}
        for parameter in parameters:
            if not isinstance(parameter, Tensor):
                raise DTypeError(
                    f"{type(self).__name__}: expected Tensors as parameters, "
                    f"got {type(parameter).__name__}"
                )
            if not parameter.is_leaf:
                raise OptionError(
                    f"{type(self).__name__}: expected leaves as parameters, got the result of a "
                    "computation; optimise what it was computed from"
                )
            if id(parameter) in known:
                raise OptionError(
                    f"{type(self).__name__}: a parameter of shape {tuple(parameter.shape)} is "
                    "there twice; give each parameter once"
                )
            known.add(id(parameter))

    def check(self, group: Group) -> None:
        """Raise OptionError if an option of a group makes no sense."""
        for name in ("lr", "eps", "weight_decay", "momentum", "alpha"):
            if name in group and not (_is_number(group[name]) and group[name] >= 0):
                raise OptionError(
                    f"{type(self).__name__}: expected a number of at least 0 as {name}, got "
                    f"{group[name]!r}"
                )
        betas = group.get("betas", (0, 0))
        pair = isinstance(betas, (tuple, list)) and len(betas) == 2
        if not pair or not all(_is_number(beta) and 0 <= beta < 1 for beta in betas):
            raise OptionError(f"{type(self).__name__}: expected two betas in [0, 1), got {betas!r}")

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of state and options; parameters have numbers, in the groups' order."""
        numbers = {id(each): number for number, each in enumerate(self._parameters())}
        groups = [
            group | {"params": [numbers[id(each)] for each in group["params"]]}
            for group in self.param_groups
        ]
        state = {numbers[id(each)]: _kept(values) for each, values in self.state.items()}
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take state and options from what `state_dict` gave; tensors are copied.

        The state of another optimiser, and one of other groups or shapes, raises StateError, and
        nothing is taken.
        """
        try:
            groups = [dict(group) for group in state_dict["param_groups"]]
            sizes = [len(group["params"]) for group in groups]
            numbers = [number for group in groups for number in group["params"]]
            state = dict(state_dict["state"])
        except (KeyError, TypeError, ValueError):
            raise StateError(
                f"{type(self).__name__}.load_state_dict: expected a dict with 'state' and "
                "'param_groups', as state_dict() gives it"
            ) from None
        own = [len(group["params"]) for group in self.param_groups]
        if sizes != own:
            raise StateError(
                f"{type(self).__name__}.load_state_dict: expected groups of {own} parameters, "
                f"got {sizes}; make the same groups in the same order"
            )
        self._check_options(groups)
        owners = dict(zip(numbers, self._parameters(), strict=True))
        kept = {number: self._taken(owners, number, state[number]) for number in state}
        self.state.clear()
        self.state.update({owners[number]: values for number, values in kept.items()})
        for group, saved in zip(self.param_groups, groups, strict=True):
            group.update(deepcopy(saved) | {"params": group["params"]})

    def _check_options(self, groups: list[Group]) -> None:
        """Refuse the state of another optimiser: its groups have no options of this one."""
        wanted = [name for name in self.defaults if name not in _LATER]
        for group in groups:
            given = [str(name) for name in group if name != "params"]
            if not {*given} >= {*wanted}:
                raise StateError(
                    f"{type(self).__name__}.load_state_dict: expected groups with the options "
                    f"{', '.join(wanted)}, got {', '.join(given)}; "
                    "make the optimiser whose state was saved"
                )

    def _taken(
        self, owners: dict[Any, Tensor], number: Any, saved: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return a parameter's saved state with tensors of its dtype, if it can be its state."""
        owner = owners.get(number)
        if owner is not None:
            saved = {name: self._read(number, name, value) for name, value in saved.items()}
        tensors = [
            value for name, value in saved.items() if isinstance(value, Tensor) and name != _COUNT
        ]
        if owner is None or any(value.shape != owner.shape for value in tensors):
            raise StateError(
                f"{type(self).__name__}.load_state_dict: the state of parameter {number} is "
                + ("of no parameter" if owner is None else "of another shape")
                + ("" if owner is None else f": expected {tuple(owner.shape)}, ")
                + ("" if owner is None else f"got {tuple(tensors[0].shape)}")
            )
        return {name: _copied(name, value, owner) for name, value in saved.items()}

    def _read(self, number: Any, name: str, value: Any) -> Any:
        """Return a value of saved state; arrays and tensors of other libraries are read."""
        found = read(value, float64)
        if isinstance(found, Exception):
            raise StateError(
                f"{type(self).__name__}.load_state_dict: expected tensors, arrays or numbers as "
                f"state, got {name!r} of parameter {number} that cannot be read: {found}"
            )
        return found

    def _parameters(self) -> list[Tensor]:
        return [each for group in self.param_groups for each in group["params"]]

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for number, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {number}")
            lines += [f"    {name}: {group[name]}" for name in sorted(group) if name != "params"]
        return "\n".join([*lines, ")"])


def refuse(owner: object, **options: bool) -> None:
    """Raise OptionError for options of PyTorch's that steps here do not have, if they are on."""
    for name, wanted in options.items():
        if wanted:
            raise OptionError(
                f"{type(owner).__name__}: steps are neither parts of CUDA graphs nor recorded; "
                f"leave {name}=True out"
            )


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and isfinite(value)


def _kept(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return state as it is now: no later step changes it."""
    return {
        name: value.detach().clone() if isinstance(value, Tensor) else deepcopy(value)
        for name, value in state.items()
    }


def _copied(name: str, value: Any, owner: Tensor) -> Any:
    """Copy a value of saved state; floats get the dtype and the place of their parameter."""
    if not isinstance(value, Tensor):
        return deepcopy(value)
    if name == _COUNT:
        return value.item()
    return value.detach().to(owner.device).to(owner.dtype).clone()
