"""Normalisation."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from tapegrad.errors import OptionError, ShapeError
from tapegrad.nn import functional as F
from tapegrad.nn import init
from tapegrad.nn.module import Module
from tapegrad.nn.parameter import Parameter
from tapegrad.tensors import Tensor, empty, int64, no_grad, ones, tensor, zeros
from tapegrad.tensors.arguments import expect_tensors
from tapegrad.tensors.dtypes import DType


class _BatchNorm(Module):
    """Gives each channel mean 0 and variance 1 over a batch, then weight and bias of its own.

    Args:
        num_features: Channels, which are the second dimension.
        eps: Added to variances.
        momentum: What part of the running statistics each batch replaces; None takes the mean of
            all batches.
        affine: Whether there are weight and bias.
        track_running_stats: Whether running statistics are kept, and used in evaluation mode.
        device: Where parameters and statistics live.
        dtype: Of parameters and statistics.
        bias: Whether there is a bias beside the weight.

    """

    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None
    #: PyTorch's first batch norms did not count, nor do files from then, as torchvision's.
    may_lack = ("num_batches_tracked",)
    #: Numbers of dimensions that inputs may have.
    dimensions: tuple[int, ...]

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        for name, there in (("weight", affine), ("bias", affine and bias)):
            values = empty(num_features, device=device, dtype=dtype) if there else None
            self.register_parameter(name, None if values is None else Parameter(values))
        kept = track_running_stats
        self.register_buffer(
            "running_mean", zeros(num_features, device=device, dtype=dtype) if kept else None
        )
        self.register_buffer(
            "running_var", ones(num_features, device=device, dtype=dtype) if kept else None
        )
        self.register_buffer(
            "num_batches_tracked", tensor(0, device=device, dtype=int64) if kept else None
        )
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Forget all batches."""
        with no_grad():
            for buffer, value in (
                (self.running_mean, 0),
                (self.running_var, 1),
                (self.num_batches_tracked, 0),
            ):
                if buffer is not None:
                    buffer.fill_(value)

    def reset_parameters(self) -> None:
        """Begin again: weight 1, bias 0, no batch seen."""
        self.reset_running_stats()
        _begin(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Normalise by the batch's statistics in training mode, else by the running ones."""
        expect_tensors(type(self).__name__, input=input)
        if input.ndim not in self.dimensions or input.shape[1] != self.num_features:
            raise ShapeError(
                f"{type(self).__name__}: expected {' or '.join(map(str, self.dimensions))} "
                f"dimensions, {self.num_features} channels in the second, "
                f"got shape {tuple(input.shape)}"
            )
        mean, var = self.running_mean, self.running_var
        kept = not self.training or self.track_running_stats
        return F.batch_norm(
            input,
            mean if kept else None,
            var if kept else None,
            self.weight,
            self.bias,
            self.training or mean is None,
            self._count_batch(),
            self.eps,
        )

    def _count_batch(self) -> float:
        """Count a training batch, and return its part in the running statistics."""
        batches = self.num_batches_tracked if self.training else None
        if batches is not None:
            with no_grad():
                batches.add_(1)
        if self.momentum is not None:
            return self.momentum
        return 0.0 if batches is None else 1.0 / float(batches.item())

    def extra_repr(self) -> str:
        """Return the layer's options."""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
            f"affine={self.affine}, bias={self.bias is not None}, "
            f"track_running_stats={self.track_running_stats}"
        )


class BatchNorm1d(_BatchNorm):
    """Batch norm of (N, C) or (N, C, L).

    Example:
        >>> from tapegrad import nn
        >>> nn.BatchNorm1d(3)
        BatchNorm1d(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)

    """

    dimensions = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch norm of images (N, C, H, W).

    Example:
        >>> from tapegrad import nn
        >>> list(nn.BatchNorm2d(3).state_dict())
        ['weight', 'bias', 'running_mean', 'running_var', 'num_batches_tracked']

    """

    dimensions = (4,)


class LayerNorm(Module):
    """Gives the last dimensions of each sample mean 0 and variance 1, then weight and bias.

    Args:
        normalized_shape: The last dimensions: a size, or several.
        eps: Added to variances.
        elementwise_affine: Whether there is a weight.
        bias: Whether there is a bias beside the weight.
        device: Where parameters live.
        dtype: Of parameters.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import nn
        >>> [round(each, 3) for each in nn.LayerNorm(2)(tg.tensor([1.0, 3.0])).tolist()]
        [-1.0, 1.0]

    """

    def __init__(
        self,
        normalized_shape: int | Iterable[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _sizes(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        for name, there in (("weight", elementwise_affine), ("bias", elementwise_affine and bias)):
            values = empty(self.normalized_shape, device=device, dtype=dtype) if there else None
            self.register_parameter(name, None if values is None else Parameter(values))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Begin again: weight 1, bias 0."""
        _begin(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Normalise each sample."""
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Return the layer's options."""
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        )


def _begin(weight: Tensor | None, bias: Tensor | None) -> None:
    """Set weight and bias to what changes nothing."""
    if weight is not None:
        init.ones_(weight)
    if bias is not None:
        init.zeros_(bias)


def _sizes(shape: int | Iterable[int]) -> tuple[int, ...]:
    try:
        given = shape if isinstance(shape, Iterable) else (shape,)
        return tuple(operator.index(size) for size in given)
    except TypeError:
        raise OptionError(
            f"LayerNorm: expected a size or several for normalized_shape, got {shape!r}"
        ) from None
