"""The functions behind the modules, by PyTorch's names.

They are the tensor engine's operations; nothing is defined here.
"""

from tapegrad.tensors.ops import adaptive_avg_pool2d as adaptive_avg_pool2d
from tapegrad.tensors.ops import avg_pool2d as avg_pool2d
from tapegrad.tensors.ops import batch_norm as batch_norm
from tapegrad.tensors.ops import (
    binary_cross_entropy_with_logits as binary_cross_entropy_with_logits,
)
from tapegrad.tensors.ops import conv2d as conv2d
from tapegrad.tensors.ops import cross_entropy as cross_entropy
from tapegrad.tensors.ops import dropout as dropout
from tapegrad.tensors.ops import embedding as embedding
from tapegrad.tensors.ops import gelu as gelu
from tapegrad.tensors.ops import l1_loss as l1_loss
from tapegrad.tensors.ops import layer_norm as layer_norm
from tapegrad.tensors.ops import linear as linear
from tapegrad.tensors.ops import log_softmax as log_softmax
from tapegrad.tensors.ops import max_pool2d as max_pool2d
from tapegrad.tensors.ops import mse_loss as mse_loss
from tapegrad.tensors.ops import nll_loss as nll_loss
from tapegrad.tensors.ops import pad as pad
from tapegrad.tensors.ops import relu as relu
from tapegrad.tensors.ops import scaled_dot_product_attention as scaled_dot_product_attention
from tapegrad.tensors.ops import sigmoid as sigmoid
from tapegrad.tensors.ops import silu as silu
from tapegrad.tensors.ops import softmax as softmax
from tapegrad.tensors.ops import softplus as softplus
from tapegrad.tensors.ops import tanh as tanh
