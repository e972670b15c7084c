"""Tensors: PyTorch-shaped arrays with gradients, eager, on devices."""

import sys

from tapegrad._core import set_tensors
from tapegrad.backends import device
from tapegrad.backends.cpu import (
    get_num_threads,
    get_packed_limit,
    set_num_threads,
    set_packed_limit,
)
from tapegrad.tensors import compare, creation, ops, random
from tapegrad.tensors.absent import missing as missing
from tapegrad.tensors.arguments import checked
from tapegrad.tensors.autograd import (
    backward,
    enable_grad,
    grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from tapegrad.tensors.base import is_tensor
from tapegrad.tensors.check import gradcheck, gradgradcheck
from tapegrad.tensors.compare import *  # noqa: F403
from tapegrad.tensors.creation import *  # noqa: F403
from tapegrad.tensors.dtypes import OTHER_NAMES as OTHER_NAMES
from tapegrad.tensors.dtypes import DType, bool_, float32, float64, int32, int64
from tapegrad.tensors.function import Function, checkpoint
from tapegrad.tensors.fused import elementwise
from tapegrad.tensors.methods import Tensor
from tapegrad.tensors.ops.arithmetic import *  # noqa: F403
from tapegrad.tensors.ops.attention import *  # noqa: F403
from tapegrad.tensors.ops.bits import *  # noqa: F403
from tapegrad.tensors.ops.conv import *  # noqa: F403
from tapegrad.tensors.ops.elementwise import *  # noqa: F403
from tapegrad.tensors.ops.elementwise import masked_both as masked_both
from tapegrad.tensors.ops.elementwise import masked_mul as masked_mul
from tapegrad.tensors.ops.index import *  # noqa: F403
from tapegrad.tensors.ops.loss import *  # noqa: F403
from tapegrad.tensors.ops.matmul import *  # noqa: F403
from tapegrad.tensors.ops.norm import *  # noqa: F403
from tapegrad.tensors.ops.padding import *  # noqa: F403
from tapegrad.tensors.ops.pool import *  # noqa: F403
from tapegrad.tensors.ops.reduce import *  # noqa: F403
from tapegrad.tensors.ops.search import *  # noqa: F403
from tapegrad.tensors.ops.shape import *  # noqa: F403
from tapegrad.tensors.ops.softmax import *  # noqa: F403
from tapegrad.tensors.random import *  # noqa: F403

__all__ = [
    "DType",
    "Function",
    "Tensor",
    "backward",
    "bool_",
    "checkpoint",
    "device",
    "elementwise",
    "enable_grad",
    "float32",
    "float64",
    "get_num_threads",
    "get_packed_limit",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "inference_mode",
    "int32",
    "int64",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "is_tensor",
    "no_grad",
    "set_grad_enabled",
    "set_num_threads",
    "set_packed_limit",
]
for _part in (compare, creation, random, *ops.FILES):
    __all__ += _part.__all__
    for _name in _part.__all__:
        if not isinstance(_found := globals()[_name], type):
            globals()[_name] = _asking = checked(_found)
            if _asking is not _found:  # where pickles look for it
                _asking.__module__ = __name__
set_tensors(Tensor, sys.modules[__name__])


def __getattr__(name: str) -> DType:
    """Return a number type by a name that is not exported, as Python has one of its own."""
    if name in OTHER_NAMES:
        return OTHER_NAMES[name]
    raise missing(f"module {__name__!r}", name)
