"""Functions that users hang into a module: before and after forward, and behind backward.

Backward hooks see the gradients at the module's border. Two gates stand there, identities that
autograd records: one takes in the gradients of the outputs, the other hands the gradients of the
inputs to the hooks. Modules without such hooks have no gates.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tapegrad.errors import GradError
from tapegrad.tensors import Function, Tensor, is_grad_enabled

if TYPE_CHECKING:
    from tapegrad.nn.module import Module

Gradients = tuple[Tensor | None, ...]


class Hook(NamedTuple):
    """A function and how it wants to be called."""

    function: Callable[..., Any]
    with_kwargs: bool = False
    always_call: bool = False


class _Gate(Function):
    """Identity of several tensors; their gradients pass through a function on the way back.

    With `fills` the function sees zeros for those that have no gradient.
    """

    @staticmethod
    def forward(
        ctx: Any, passed: Callable[[Gradients], Gradients], fills: bool, *tensors: Tensor
    ) -> Any:
        ctx.passed = passed
        ctx.set_materialize_grads(fills)
        found = tuple(each.view(each.shape) for each in tensors)
        needs = ctx.needs_input_grad[2:]
        ctx.mark_non_differentiable(
            *(each for each, needed in zip(found, needs, strict=True) if not needed)
        )
        return found

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        return None, None, *ctx.passed(gradients)


class BackwardHooks:
    """The backward hooks of one call of a module: what they saw, and what they changed."""

    def __init__(self, module: Module, pre_hooks: Sequence[Hook], hooks: Sequence[Hook]) -> None:
        self._module = module
        self._pre_hooks = pre_hooks
        self._hooks = hooks
        self._grad_output: Gradients | None = None
        self._inputs = 0
        self._has_gate = False

    def enter(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments as the module's forward shall see them."""
        self._inputs = len(args)
        self._has_gate = is_grad_enabled() and any(
            isinstance(each, Tensor) and each.requires_grad for each in args
        )
        return _through_gate(args, self._leave_backward, fills=True) if self._has_gate else args

    def leave(self, result: Any) -> Any:
        """Return the result as the caller of the module shall see it."""
        if not isinstance(result, (Tensor, tuple, list)):
            warnings.warn(
                f"{type(self._module).__name__}: backward hooks are not called, as they need a "
                "tensor, or a tuple or list of tensors, as the result of forward, which is a "
                f"{type(result).__name__}",
                stacklevel=4,
            )
        values = result if isinstance(result, (tuple, list)) else (result,)
        if not is_grad_enabled() or not any(
            isinstance(each, Tensor) and each.requires_grad for each in values
        ):
            return result
        gated = _through_gate(tuple(values), self._enter_backward, fills=False)
        return type(result)(gated) if isinstance(result, (tuple, list)) else gated[0]

    def _enter_backward(self, gradients: Gradients) -> Gradients:
        for hook in self._pre_hooks:
            gradients = _checked(hook.function(self._module, gradients), gradients)
        self._grad_output = gradients
        if not self._has_gate:
            self._call((None,) * self._inputs)
        return gradients

    def _leave_backward(self, gradients: Gradients) -> Gradients:
        # Without gradients of outputs the way back came in past the gate, as by a dict.
        return gradients if self._grad_output is None else self._call(gradients)

    def _call(self, gradients: Gradients) -> Gradients:
        for hook in self._hooks:
            answer = hook.function(self._module, gradients, self._grad_output)
            gradients = _checked(answer, gradients)
        self._grad_output = None
        return gradients


def _through_gate(
    values: tuple[Any, ...], passed: Callable[[Gradients], Gradients], fills: bool
) -> tuple[Any, ...]:
    """Send the tensors among some values through a gate; hooks see None for the others."""
    places = [place for place, value in enumerate(values) if isinstance(value, Tensor)]

    def spread(gradients: Gradients) -> Gradients:
        everywhere: list[Tensor | None] = [None] * len(values)
        for place, gradient in zip(places, gradients, strict=True):
            everywhere[place] = gradient
        answers = passed(tuple(everywhere))
        return tuple(answers[place] for place in places)

    gated = list(values)
    outputs = _Gate.apply(spread, fills, *(values[place] for place in places))
    for place, output in zip(places, outputs, strict=True):
        gated[place] = output
    return tuple(gated)


def _checked(answer: Any, gradients: Gradients) -> Gradients:
    """Return what a hook gave in place of some gradients, if it gave anything."""
    if answer is None:
        return gradients
    changed = answer if isinstance(answer, tuple) else (answer,)
    if len(changed) != len(gradients):
        raise GradError(
            f"backward hook: expected None or {len(gradients)} gradients, got {len(changed)}"
        )
    return changed
