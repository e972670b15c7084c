"""Losses as modules."""

from __future__ import annotations

from tapegrad.errors import OptionError
from tapegrad.nn import functional as F
from tapegrad.nn.module import Module
from tapegrad.tensors import Tensor
from tapegrad.tensors.ops.loss import known_reduction


class _Loss(Module):
    """A loss: "none" keeps one number per sample, "mean" and "sum" give one for all."""

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        reduction = known_reduction(reduction, size_average, reduce)
        if reduction not in ("none", "mean", "sum"):
            raise OptionError(
                f"{type(self).__name__}: expected reduction 'none', 'mean' or 'sum', "
                f"got {reduction!r}"
            )
        self.reduction = reduction


class L1Loss(_Loss):
    """|input - target|.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import nn
        >>> nn.L1Loss()(tg.tensor([1.0, 2.0]), tg.tensor([3.0, 5.0])).item()
        2.5

    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Compute the loss."""
        return F.l1_loss(input, target, reduction=self.reduction)


class MSELoss(_Loss):
    """(input - target) squared.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import nn
        >>> nn.MSELoss()(tg.tensor([1.0, 2.0]), tg.tensor([3.0, 2.0])).item()
        2.0

    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Compute the loss."""
        return F.mse_loss(input, target, reduction=self.reduction)


class BCEWithLogitsLoss(_Loss):
    """Binary cross entropy of sigmoid(input), computed without forming it.

    Args:
        weight: A factor for each sample.
        size_average: An older name for a reduction, as `reduce`.
        reduce: False for "none", an older name.
        reduction: "none", "mean" or "sum".
        pos_weight: A factor for positive samples.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import nn
        >>> round(nn.BCEWithLogitsLoss()(tg.zeros(1), tg.ones(1)).item(), 4)
        0.6931

    """

    weight: Tensor | None
    pos_weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Compute the loss."""
        return F.binary_cross_entropy_with_logits(
            input, target, self.weight, pos_weight=self.pos_weight, reduction=self.reduction
        )


class NLLLoss(_Loss):
    """Minus the log-probability of the right class.

    Args:
        weight: A factor for each class.
        size_average: An older name for a reduction, as `reduce`.
        ignore_index: Samples of this class do not count.
        reduce: False for "none", an older name.
        reduction: "none", "mean" or "sum".

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import nn
        >>> nn.NLLLoss()(tg.tensor([[-3.0, -0.5]]), tg.tensor([1])).item()
        0.5

    """

    weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Compute the loss from log-probabilities."""
        return F.nll_loss(
            input, target, self.weight, ignore_index=self.ignore_index, reduction=self.reduction
        )


class CrossEntropyLoss(NLLLoss):
    """Cross entropy of softmax(input).

    Args:
        weight: A factor for each class.
        size_average: An older name for a reduction, as `reduce`.
        ignore_index: Samples of this class do not count.
        reduce: False for "none", an older name.
        reduction: "none", "mean" or "sum".
        label_smoothing: How much of the target is spread evenly over all classes.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import nn
        >>> round(nn.CrossEntropyLoss()(tg.zeros(1, 2), tg.tensor([1])).item(), 4)
        0.6931

    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, size_average, ignore_index, reduce, reduction)
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Compute the loss from logits; targets are class numbers or probabilities."""
        return F.cross_entropy(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )
