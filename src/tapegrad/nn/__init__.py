"""Layers and models as PyTorch has them: same names, arguments, defaults and state_dict keys.

Example:
    >>> from tapegrad import nn
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> model
    Sequential(                                              58 parameters
      (0): Linear(in_features=4, out_features=8, bias=True)  40
      (1): ReLU()
      (2): Linear(in_features=8, out_features=2, bias=True)  18
    )

"""

from sys import modules as _modules

from tapegrad.nn import clip as utils
from tapegrad.nn import functional, init
from tapegrad.nn.activation import GELU, LogSoftmax, ReLU, Sigmoid, SiLU, Softmax, Softplus, Tanh
from tapegrad.nn.attention import MultiheadAttention
from tapegrad.nn.container import ModuleList, Sequential
from tapegrad.nn.conv import Conv2d
from tapegrad.nn.dropout import Dropout
from tapegrad.nn.embedding import Embedding
from tapegrad.nn.linear import Flatten, Identity, Linear
from tapegrad.nn.loss import BCEWithLogitsLoss, CrossEntropyLoss, L1Loss, MSELoss, NLLLoss
from tapegrad.nn.module import Module
from tapegrad.nn.norm import BatchNorm1d, BatchNorm2d, LayerNorm
from tapegrad.nn.parameter import Parameter
from tapegrad.nn.pool import AdaptiveAvgPool2d, AvgPool2d, MaxPool2d

__all__ = [
    "GELU",
    "AdaptiveAvgPool2d",
    "AvgPool2d",
    "BCEWithLogitsLoss",
    "BatchNorm1d",
    "BatchNorm2d",
    "Conv2d",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "Flatten",
    "Identity",
    "L1Loss",
    "LayerNorm",
    "Linear",
    "LogSoftmax",
    "MSELoss",
    "MaxPool2d",
    "Module",
    "ModuleList",
    "MultiheadAttention",
    "NLLLoss",
    "Parameter",
    "ReLU",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Tanh",
    "functional",
    "init",
    "utils",
]

# PyTorch keeps clipping in `nn.utils`, and users import it from there.
_modules[f"{__name__}.utils"] = utils


def __dir__() -> list[str]:
    return __all__
