"""Tensors: PyTorch-shaped arrays with gradients, eager, on devices."""

import sys

from tapegrad._core import set_tensors
from tapegrad.backends import device
from tapegrad.backends.cpu import get_num_threads, set_num_threads
from tapegrad.tensors import creation as _creation
from tapegrad.tensors import random as _random
from tapegrad.tensors.autograd import (
    backward,
    enable_grad,
    grad,
    inference_mode,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)
from tapegrad.tensors.base import is_tensor
from tapegrad.tensors.check import gradcheck, gradgradcheck
from tapegrad.tensors.creation import *  # noqa: F403
from tapegrad.tensors.dtypes import DType, bool_, float32, float64, int32, int64
from tapegrad.tensors.function import Function, checkpoint
from tapegrad.tensors.fused import elementwise
from tapegrad.tensors.methods import Tensor
from tapegrad.tensors.ops import attention as _attention
from tapegrad.tensors.ops import conv as _conv
from tapegrad.tensors.ops import elementwise as _elementwise
from tapegrad.tensors.ops import index as _index
from tapegrad.tensors.ops import loss as _loss
from tapegrad.tensors.ops import matmul as _matmul
from tapegrad.tensors.ops import norm as _norm
from tapegrad.tensors.ops import pool as _pool
from tapegrad.tensors.ops import reduce as _reduce
from tapegrad.tensors.ops import shape as _shape
from tapegrad.tensors.ops import softmax as _softmax
from tapegrad.tensors.ops.attention import *  # noqa: F403
from tapegrad.tensors.ops.conv import *  # noqa: F403
from tapegrad.tensors.ops.elementwise import *  # noqa: F403
from tapegrad.tensors.ops.index import *  # noqa: F403
from tapegrad.tensors.ops.loss import *  # noqa: F403
from tapegrad.tensors.ops.matmul import *  # noqa: F403
from tapegrad.tensors.ops.norm import *  # noqa: F403
from tapegrad.tensors.ops.pool import *  # noqa: F403
from tapegrad.tensors.ops.reduce import *  # noqa: F403
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
    "grad",
    "gradcheck",
    "gradgradcheck",
    "inference_mode",
    "int32",
    "int64",
    "is_grad_enabled",
    "is_tensor",
    "no_grad",
    "set_grad_enabled",
    "set_num_threads",
]
__all__ += _creation.__all__
__all__ += _random.__all__
__all__ += _attention.__all__
__all__ += _conv.__all__
__all__ += _elementwise.__all__
__all__ += _index.__all__
__all__ += _loss.__all__
__all__ += _matmul.__all__
__all__ += _norm.__all__
__all__ += _pool.__all__
__all__ += _reduce.__all__
__all__ += _shape.__all__
__all__ += _softmax.__all__
set_tensors(Tensor, sys.modules[__name__])
