"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from tapegrad.errors import OptionError
from tapegrad.optim.optimizer import Group, Optimizer, Params, refuse
from tapegrad.tensors import Tensor, elementwise, zeros_like


class SGD(Optimizer):
    """Steps against the gradient.

    Args:
        params: Parameters or groups of them.
        lr: The step size.
        momentum: What part of the last step goes on.
        dampening: What part of the gradient does not enter the momentum.
        weight_decay: What part of a parameter is added to its gradient.
        nesterov: Whether the gradient is that of where the momentum leads.
        maximize: Whether to climb.
        foreach: Taken for PyTorch's sake, as `fused`: every step is one kernel per parameter.
        differentiable: Not there: steps are not recorded.
        fused: As `foreach`.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import optim
        >>> x = tg.tensor([4.0], requires_grad=True)
        >>> opt = optim.SGD([x], lr=0.25)
        >>> (x * x).sum().backward()
        >>> opt.step()
        >>> x.item()
        2.0

    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        refuse(self, differentiable=differentiable)
        options = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
        }
        super().__init__(params, options)

    def check(self, group: Group) -> None:
        """Raise OptionError if an option of a group makes no sense."""
        super().check(group)
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            raise OptionError(
                "SGD: nesterov needs a momentum above 0 and no dampening, "
                f"got momentum={group['momentum']}, dampening={group['dampening']}"
            )

    def update(self, parameter: Tensor, gradient: Tensor, group: Group) -> None:
        """Change one parameter by one fused kernel."""
        momentum, entering = group["momentum"], 1 - group["dampening"]
        state = self.state[parameter] if momentum else {}
        if momentum and "momentum_buffer" not in state:
            state["momentum_buffer"] = zeros_like(parameter)
            entering = 1.0
        rule = _rule(
            momentum, entering, group["nesterov"], group["weight_decay"], group["maximize"]
        )
        if momentum:
            buffer = state["momentum_buffer"]
            rule(parameter, gradient, buffer, -group["lr"], out=(parameter, buffer))
        else:
            rule(parameter, gradient, 0.0, -group["lr"], out=parameter)


@lru_cache(maxsize=64)
def _rule(
    momentum: float, entering: float, nesterov: bool, decay: float, maximize: bool
) -> Callable[..., Any]:
    """Return the step as a kernel; what changes from step to step is a number it takes.

    That is the negative step size: a product and a sum are one instruction.
    """

    @elementwise
    def sgd(p: Any, g: Any, m: Any, descent: Any) -> Any:
        g = -g if maximize else g
        g = g + decay * p if decay else g
        if not momentum:
            return p + descent * g
        m = momentum * m + entering * g
        return p + descent * (g + momentum * m if nesterov else m), m

    return sgd
