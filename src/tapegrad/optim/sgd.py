"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from tapegrad.errors import OptionError
from tapegrad.optim.optimizer import Group, Optimizer, Params
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
    ) -> None:
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
        momentum, decay = group["momentum"], group["weight_decay"]
        rule = _rule(momentum != 0, group["nesterov"], decay != 0, group["maximize"])
        if momentum == 0:
            rule(parameter, gradient, 0.0, group["lr"], 0.0, 0.0, decay, out=parameter)
            return
        state = self.state[parameter]
        entering = 1 - group["dampening"]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = zeros_like(parameter)
            entering = 1.0
        buffer = state["momentum_buffer"]
        numbers = group["lr"], momentum, entering, decay
        rule(parameter, gradient, buffer, *numbers, out=(parameter, buffer))


@cache
def _rule(momentum: bool, nesterov: bool, decay: bool, maximize: bool) -> Callable[..., Any]:
    """Return the step as a kernel without the terms that an option of zero takes out."""

    @elementwise
    def sgd(p: Any, g: Any, m: Any, lr: Any, mu: Any, entering: Any, weight_decay: Any) -> Any:
        g = -g if maximize else g
        g = g + weight_decay * p if decay else g
        if not momentum:
            return p - lr * g
        m = mu * m + entering * g
        return p - lr * (g + mu * m if nesterov else m), m

    return sgd
