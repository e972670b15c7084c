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

import sys

from tapegrad.nn import clip as utils
from tapegrad.nn import functional as functional
from tapegrad.nn import init as init
from tapegrad.nn.activation import GELU as GELU
from tapegrad.nn.activation import LogSoftmax as LogSoftmax
from tapegrad.nn.activation import ReLU as ReLU
from tapegrad.nn.activation import Sigmoid as Sigmoid
from tapegrad.nn.activation import SiLU as SiLU
from tapegrad.nn.activation import Softmax as Softmax
from tapegrad.nn.activation import Softplus as Softplus
from tapegrad.nn.activation import Tanh as Tanh
from tapegrad.nn.attention import MultiheadAttention as MultiheadAttention
from tapegrad.nn.container import ModuleList as ModuleList
from tapegrad.nn.container import Sequential as Sequential
from tapegrad.nn.conv import Conv2d as Conv2d
from tapegrad.nn.dropout import Dropout as Dropout
from tapegrad.nn.embedding import Embedding as Embedding
from tapegrad.nn.linear import Flatten as Flatten
from tapegrad.nn.linear import Identity as Identity
from tapegrad.nn.linear import Linear as Linear
from tapegrad.nn.loss import BCEWithLogitsLoss as BCEWithLogitsLoss
from tapegrad.nn.loss import CrossEntropyLoss as CrossEntropyLoss
from tapegrad.nn.loss import L1Loss as L1Loss
from tapegrad.nn.loss import MSELoss as MSELoss
from tapegrad.nn.loss import NLLLoss as NLLLoss
from tapegrad.nn.module import Module as Module
from tapegrad.nn.norm import BatchNorm1d as BatchNorm1d
from tapegrad.nn.norm import BatchNorm2d as BatchNorm2d
from tapegrad.nn.norm import LayerNorm as LayerNorm
from tapegrad.nn.parameter import Parameter as Parameter
from tapegrad.nn.pool import AdaptiveAvgPool2d as AdaptiveAvgPool2d
from tapegrad.nn.pool import AvgPool2d as AvgPool2d
from tapegrad.nn.pool import MaxPool2d as MaxPool2d

# PyTorch keeps clipping in `nn.utils`, and users import it from there.
sys.modules[f"{__name__}.utils"] = utils
