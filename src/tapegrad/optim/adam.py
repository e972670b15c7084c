"""Adam and AdamW."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import tapegrad as tg
from tapegrad.optim.optimizer import Group, Optimizer, Params, refuse
from tapegrad.tensors import Tensor, elementwise, zeros_like


class Adam(Optimizer):
    """Steps along the mean of gradients, divided by the root of the mean of their squares.

    Args:
        params: Parameters or groups of them.
        lr: The step size.
        betas: What part of the two means each step keeps.
        eps: Added to the root.
        weight_decay: What part of a parameter is added to its gradient.
        amsgrad: Whether to divide by the largest mean of squares so far.
        foreach: Taken for PyTorch's sake, as `fused`: every step is one kernel per parameter.
        maximize: Whether to climb.
        capturable: Not there, as `differentiable`: steps are no parts of CUDA graphs, nor recorded.
        differentiable: Not there.
        fused: As `foreach`.
        decoupled_weight_decay: Whether decay shrinks parameters and leaves gradients alone, as in
            AdamW.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import optim
        >>> x = tg.tensor([4.0], requires_grad=True)
        >>> opt = optim.Adam([x], lr=0.5)
        >>> (x * x).sum().backward()
        >>> opt.step()
        >>> round(x.item(), 3)
        3.5

    """

    #: Whether decay shrinks the parameter itself, whatever a group says.
    decoupled = False

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        refuse(self, capturable=capturable, differentiable=differentiable)
        options = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, options)

    def update(self, parameter: Tensor, gradient: Tensor, group: Group) -> None:
        """Change one parameter by one fused kernel."""
        state = self.state[parameter]
        amsgrad = group["amsgrad"]
        names = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")[: 3 if amsgrad else 2]
        for name in names:
            if name not in state:
                state[name] = zeros_like(parameter)
        state["step"] = step = int(state.get("step", 0)) + 1
        lr, (beta1, beta2), decay = group["lr"], group["betas"], group["weight_decay"]
        apart = self.decoupled or group["decoupled_weight_decay"]
        rule = _rule(beta1, beta2, group["eps"], decay, apart, amsgrad, group["maximize"])
        kept = tuple(state[name] for name in names)
        rule(
            parameter,
            gradient,
            kept[0],
            kept[1],
            kept[2] if amsgrad else 0.0,
            1 - lr * decay,
            -lr / (1 - beta1**step),
            1 / math.sqrt(1 - beta2**step),
            out=(parameter, *kept),
        )


class AdamW(Adam):
    """Adam with a decay that shrinks parameters and leaves gradients alone.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import optim
        >>> x = tg.tensor([4.0], requires_grad=True)
        >>> opt = optim.AdamW([x], lr=0.5, weight_decay=0.25)
        >>> (x * x).sum().backward()
        >>> opt.step()
        >>> round(x.item(), 3)
        3.0

    """

    decoupled = True

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            decoupled_weight_decay=True,
        )


@lru_cache(maxsize=64)
def _rule(
    beta1: float,
    beta2: float,
    eps: float,
    decay: float,
    decoupled: bool,
    amsgrad: bool,
    maximize: bool,
) -> Callable[..., Any]:
    """Return the step as a kernel; what changes from step to step are numbers it takes.

    These are what a decoupled decay leaves, the negative step size over the bias of the first mean,
    and one over the root of the bias of the second: a product and a sum are one instruction.
    """

    @elementwise
    def adam(
        p: Any, g: Any, m: Any, v: Any, largest: Any, left: Any, descent: Any, scale: Any
    ) -> Any:
        g = -g if maximize else g
        if decay and decoupled:
            p = p * left
        elif decay:
            g = g + decay * p
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        largest = tg.maximum(largest, v) if amsgrad else v
        p = p + descent * (m / (tg.sqrt(largest) * scale + eps))
        return (p, m, v, largest) if amsgrad else (p, m, v)

    return adam
