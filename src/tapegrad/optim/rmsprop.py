"""RMSprop."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import tapegrad as tg
from tapegrad.optim.optimizer import Group, Optimizer, Params, refuse
from tapegrad.tensors import Tensor, elementwise, zeros_like


class RMSprop(Optimizer):
    """Steps along the gradient, divided by the root of the mean of its squares.

    Args:
        params: Parameters or groups of them.
        lr: The step size.
        alpha: What part of the mean of squares each step keeps.
        eps: Added to the root.
        weight_decay: What part of a parameter is added to its gradient.
        momentum: What part of the last step goes on.
        centered: Whether to divide by the root of the variance instead.
        capturable: Not there, as `differentiable`: steps are no parts of CUDA graphs, nor recorded.
        foreach: Taken for PyTorch's sake: every step is one kernel per parameter.
        maximize: Whether to climb.
        differentiable: Not there.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import optim
        >>> x = tg.tensor([4.0], requires_grad=True)
        >>> opt = optim.RMSprop([x], lr=0.5, alpha=0.0)
        >>> (x * x).sum().backward()
        >>> opt.step()
        >>> round(x.item(), 3)
        3.5

    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        refuse(self, capturable=capturable, differentiable=differentiable)
        options = {
            "lr": lr,
            "alpha": alpha,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "centered": centered,
            "maximize": maximize,
        }
        super().__init__(params, options)

    def update(self, parameter: Tensor, gradient: Tensor, group: Group) -> None:
        """Change one parameter by one fused kernel."""
        state = self.state[parameter]
        state["step"] = int(state.get("step", 0)) + 1
        heavy, centered = group["momentum"] != 0, group["centered"]
        names = ["square_avg", *["momentum_buffer"] * heavy, *["grad_avg"] * centered]
        for name in names:
            if name not in state:
                state[name] = zeros_like(parameter)
        rule = _rule(
            group["alpha"],
            group["eps"],
            group["weight_decay"],
            group["momentum"],
            centered,
            group["maximize"],
        )
        rule(
            parameter,
            gradient,
            state["square_avg"],
            state["momentum_buffer"] if heavy else 0.0,
            state["grad_avg"] if centered else 0.0,
            -group["lr"],
            out=(parameter, *(state[name] for name in names)),
        )


@lru_cache(maxsize=64)
def _rule(
    alpha: float, eps: float, decay: float, momentum: float, centered: bool, maximize: bool
) -> Callable[..., Any]:
    """Return the step as a kernel; what changes from step to step is a number it takes.

    That is the negative step size: a product and a sum are one instruction.
    """

    @elementwise
    def rmsprop(p: Any, g: Any, square: Any, buffer: Any, mean: Any, descent: Any) -> Any:
        g = -g if maximize else g
        g = g + decay * p if decay else g
        square = alpha * square + (1 - alpha) * g * g
        mean = alpha * mean + (1 - alpha) * g
        change = g / (tg.sqrt(square - mean * mean if centered else square) + eps)
        change = momentum * buffer + change if momentum else change
        kept = [square, *[change] * bool(momentum), *[mean] * centered]
        return p + descent * change, *kept

    return rmsprop
