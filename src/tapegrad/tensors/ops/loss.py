"""Losses, most of them written in operations."""

# Arguments come in PyTorch's order.
# ruff: noqa: PLR0917

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any
from warnings import warn

from tapegrad.errors import DTypeError, OptionError, ShapeError
from tapegrad.tensors.autograd import MODE, Node
from tapegrad.tensors.fused import elementwise
from tapegrad.tensors.ops import dims as _dims
from tapegrad.tensors.ops import elementwise as _e
from tapegrad.tensors.ops.arithmetic import square
from tapegrad.tensors.ops.composite import composite
from tapegrad.tensors.ops.index import gather, put_along
from tapegrad.tensors.ops.softmax import log_softmax
from tapegrad.tensors.registry import Draw, Sample, define, moved, raw

if TYPE_CHECKING:
    from tapegrad.tensors.methods import Tensor


def _check_reduction(reduction: str) -> None:
    if reduction not in ("mean", "sum", "none"):
        raise OptionError(f"reduction: expected 'mean', 'sum' or 'none', got {reduction!r}")


def known_reduction(reduction: str, size_average: bool | None, reduce: bool | None) -> str:
    """Return the reduction; what its two older names ask for, with a warning, as PyTorch does."""
    if size_average is None and reduce is None:
        return reduction
    total = "sum" if size_average is not None and not size_average else "mean"
    found = "none" if reduce is not None and not reduce else total
    warn(f"size_average and reduce are old names; write reduction={found!r}", stacklevel=3)
    return found


def _reduced(loss: Tensor, reduction: str) -> Tensor:
    _check_reduction(reduction)
    if reduction == "none":
        return loss
    return loss.mean() if reduction == "mean" else loss.sum()


def _weighted(op: str, loss: Tensor, x: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    """Return a loss times a factor per element; its mean is that of the factors, too."""
    if weight is None:
        return _reduced(loss, reduction)
    if weight.shape != x.shape:
        raise ShapeError(f"{op}: expected weight of shape {x.shape}, got {weight.shape}")
    found = _reduced(loss * weight, "sum" if reduction == "mean" else reduction)
    return found / weight.sum() if reduction == "mean" else found


def _same_shape(op: str, x: Tensor, target: Tensor) -> None:
    if x.shape != target.shape:
        raise ShapeError(f"{op}: expected a target of shape {x.shape}, got {target.shape}")


def _check_broadcast(op: str, x: Tensor, target: Tensor) -> None:
    """Take a target of another shape if it broadcasts, but warn: it seldom is what was meant."""
    have, wanted = target._array.shape, x._array.shape
    if have != wanted:
        try:
            _dims.broadcast(op, wanted, have)
        except ShapeError:
            raise ShapeError(f"{op}: expected a target of shape {wanted}, got {have}") from None
        text = f"{op}: expected a target of shape {wanted}, got {have}, which broadcasts"
        warn(f"{text}; give both one shape", stacklevel=3)


def _nll_rule(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    dim: int,
    ignore_index: int,
    reduction: str,
) -> None:
    _check_classes("nll_loss", x, target, weight, dim)
    _check_reduction(reduction)


def _check_classes(op: str, x: Tensor, target: Tensor, weight: Tensor | None, dim: int) -> None:
    """Refuse classes that do not fit the scores, and weights that do not fit the classes."""
    have, classes = x._array.shape, target._array.shape
    if not have or classes != have[:dim] + have[dim + 1 :]:
        raise ShapeError(
            f"{op}: expected input (N, C, ...) and target (N, ...), got {have} and {classes}"
        )
    kind = x._array.dtype
    if kind.kind != "f" or target._array.dtype.kind != "i":
        raise DTypeError(
            f"{op}: expected floating point input and whole numbers as target, "
            f"got {x.dtype} and {target.dtype}; use x.float() and target.long()"
        )
    if weight is not None and (weight._array.dtype != kind or weight.shape != (have[dim],)):
        raise ShapeError(
            f"{op}: expected weight of shape {(have[dim],)} and type {x.dtype}, "
            f"got {weight.shape} and {weight.dtype}"
        )


def _nll_vjp(node: Node, g: Tensor, _: Any = None) -> tuple[Any, ...]:
    if MODE.enabled or node.needs[2]:
        return _nll_gradients(node, g)
    (_, target, weight), total = node.inputs, node.outputs[1]
    found = raw("nll_loss_backward", g, target, weight, total, shape=node.shapes[0], **node.attrs)
    return found, None, None


def _nll_gradients(node: Node, g: Tensor) -> tuple[Any, ...]:
    """Return the gradients by scores and weights, in operations."""
    x, target, weight = node.inputs
    dim, mean = node.attrs["dim"], node.attrs["reduction"] == "mean"
    counted = target != node.attrs["ignore_index"]
    known = _e.where(counted, target, 0)
    ones = counted.to(g.dtype)
    factors = ones if weight is None else ones * weight[known]
    g = g / factors.sum() if mean else g
    places = known.unsqueeze(dim)
    # What does not count has the gradient 0, even where all of it, and so the mean's divisor, is 0.
    by_x = put_along(
        node.shapes[0], dim, places, _e.where(counted, -factors * g, 0.0).unsqueeze(dim)
    )
    if not node.needs[2]:
        return by_x, None, None
    losses = _e.where(counted, -gather(x, dim, places).squeeze(dim), 0.0)
    above = losses - (losses * factors).sum() / factors.sum() if mean else losses
    by_weight = _e.where(counted, above * g, 0.0)
    return by_x, None, put_along(node.shapes[2], 0, known.flatten(), by_weight.flatten())


_NLL = define(
    name="nll_loss",
    doc="minus the log-probabilities of classes, and the sum of the weights of these",
    rule=_nll_rule,
    vjp=_nll_vjp,
    saves={0: (1, 2), 2: (0, 1, 2)},
    keeps=(1,),
    results=2,
    cost=lambda x, target, weight=None, **_: moved(target.shape, target.shape),
    samples=[
        Sample((4, 3), Draw((4,), 0, 3, "int64")),
        Sample((4, 3), Draw((4,), 0, 3, "int64"), Draw((3,), 0.5, 2, grad=False), ignore_index=1),
        Sample((2, 3, 4), Draw((2, 4), 0, 3, "int64"), reduction="none"),
        Sample((3,), Draw((), 0, 3, "int64"), reduction="sum"),
    ],
    benchmark="nll_loss",
)


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Return minus the log-probabilities x (N, C, ...) of the target classes (N, ...)."""
    reduction = known_reduction(reduction, size_average, reduce)
    return _nll_loss(input, target, weight, ignore_index, reduction)


def _nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str
) -> Tensor:
    dim = 1 if input._array.ndim > 1 else 0
    found: Tensor = _NLL(
        input, target, weight, dim=dim, ignore_index=ignore_index, reduction=reduction
    )[0]
    return found


@composite(
    Sample((4, 3), Draw((4,), 0, 3, "int64")),
    Sample((4, 3), Draw((4,), 0, 3, "int64"), label_smoothing=0.1),
    Sample((4, 3), Draw((4,), 0, 3, "int64"), Draw((3,), 0.5, 2, grad=False), ignore_index=1),
    Sample(
        (4, 3),
        Draw((4,), 0, 3, "int64"),
        Draw((3,), 0.5, 2, grad=False),
        ignore_index=2,
        label_smoothing=0.2,
    ),
    Sample((2, 3, 4), Draw((2, 4), 0, 3, "int64"), reduction="none", label_smoothing=0.2),
    Sample((4, 3), Draw((4, 3), 0, 1)),
    Sample(
        (4, 3),
        Draw((4, 3), 0, 1),
        Draw((3,), 0.5, 2, grad=False),
        label_smoothing=0.1,
        reduction="sum",
    ),
    Sample((3,), Draw((), 0, 3, "int64")),
    benchmark="cross_entropy",
)
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Return the cross entropy of scores x (N, C, ...) and classes, or probabilities of classes.

    Args:
        input: Scores, not normalised.
        target: Classes (N, ...), or probabilities of the shape of the scores.
        weight: A factor per class.
        size_average: An older name for a reduction, as `reduce`.
        ignore_index: A class that does not count.
        reduce: False for "none", an older name.
        reduction: "mean", "sum" or "none".
        label_smoothing: Share of the target that is spread over all classes.

    """
    if not 0.0 <= label_smoothing <= 1.0:
        raise OptionError(f"cross_entropy: label_smoothing is from 0 to 1, got {label_smoothing}")
    reduction = known_reduction(reduction, size_average, reduce)
    classes = 1 if input.ndim > 1 else 0
    soft = target.is_floating_point()
    if soft and ignore_index >= 0:
        raise OptionError(
            "cross_entropy: probabilities of classes have no class to ignore, got "
            f"ignore_index={ignore_index}; leave it out, or give classes as target"
        )
    if not soft:
        _check_classes("cross_entropy", input, target, weight, classes)
    logs = log_softmax(input, classes)
    if soft:
        return _soft(logs, target, weight, classes, reduction, label_smoothing)
    hard = _nll_loss(logs, target, weight, ignore_index, reduction)
    if not label_smoothing:
        return hard
    counted = target != ignore_index
    spread = logs if weight is None else logs * _wide(weight, logs, classes)
    smooth = _e.where(counted, -spread.sum(classes), 0.0)
    if reduction == "mean":
        factors = counted.to(input.dtype)
        if weight is not None:
            factors = factors * weight[_e.where(counted, target, 0)]
        smooth = smooth.sum() / factors.sum()
    else:
        smooth = _reduced(smooth, reduction)
    return hard * (1 - label_smoothing) + smooth * _per_class(label_smoothing, input, classes)


def _per_class(label_smoothing: float, x: Tensor, classes: int) -> float:
    """Return what each class gets of a part of the target."""
    count = x._array.shape[classes]
    return label_smoothing / count if count else math.inf


def _wide(weight: Tensor, x: Tensor, classes: int) -> Tensor:
    return weight.reshape(tuple(-1 if d == classes else 1 for d in range(x.ndim)))


def _soft(
    logs: Tensor,
    target: Tensor,
    weight: Tensor | None,
    classes: int,
    reduction: str,
    label_smoothing: float,
) -> Tensor:
    _same_shape("cross_entropy", logs, target)
    if label_smoothing:
        target = target * (1 - label_smoothing) + _per_class(label_smoothing, logs, classes)
    product = logs * target
    if weight is not None:
        product = product * _wide(weight, logs, classes)
    loss = -product.sum(classes)
    if reduction == "mean":
        return loss.sum() / (loss.numel() if logs._array.shape[classes] else math.nan)
    return _reduced(loss, reduction)


@composite(
    Sample((3, 4), (3, 4)),
    Sample((3,), (3,), reduction="sum"),
    benchmark="mse_loss",
)
def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """Return the squares of the differences, times a factor for each; operands broadcast."""
    reduction = known_reduction(reduction, size_average, reduce)
    _check_broadcast("mse_loss", input, target)
    return _weighted("mse_loss", square(input - target), input, weight, reduction)


@composite(Sample((3, 4), (3, 4)), Sample((3,), (3,), reduction="none"), benchmark="l1_loss")
def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """Return the absolute differences, times a factor for each; operands broadcast."""
    reduction = known_reduction(reduction, size_average, reduce)
    _check_broadcast("l1_loss", input, target)
    return _weighted("l1_loss", _e.abs(input - target), input, weight, reduction)


@elementwise
def _bce_with_logits(x: Any, y: Any, positive: Any) -> Any:
    from tapegrad._core.functions import softplus

    return (1 - y) * x + (1 + (positive - 1) * y) * softplus(-x)


@composite(
    Sample((3, 4), Draw((3, 4), 0, 1)),
    Sample((3, 4), Draw((3, 4), 0, 1), Draw((4,), 0.5, 2, grad=False), reduction="sum"),
    Sample((3, 4), Draw((3, 4), 0, 1), reduction="none"),
    benchmark="bce_with_logits",
)
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Return the cross entropy of scores x and targets from 0 to 1, element by element."""
    reduction = known_reduction(reduction, size_average, reduce)
    _same_shape("binary_cross_entropy_with_logits", input, target)
    loss: Tensor = _bce_with_logits(input, target, 1.0 if pos_weight is None else pos_weight)
    return _reduced(loss if weight is None else loss * weight, reduction)


__all__ = [
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "l1_loss",
    "mse_loss",
    "nll_loss",
]
