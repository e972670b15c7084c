"""Optimisers and schedules as PyTorch has them.

Example:
    >>> import tapegrad as tg
    >>> from tapegrad import nn, optim
    >>> model = nn.Linear(2, 1)
    >>> opt = optim.AdamW(model.parameters(), lr=1e-3)
    >>> schedule = optim.CosineAnnealingLR(opt, T_max=100)
    >>> model(tg.ones(3, 2)).sum().backward()
    >>> opt.step()
    >>> schedule.step()

"""

import sys

from tapegrad.optim import schedules as lr_scheduler
from tapegrad.optim.adam import Adam as Adam
from tapegrad.optim.adam import AdamW as AdamW
from tapegrad.optim.optimizer import Optimizer as Optimizer
from tapegrad.optim.rmsprop import RMSprop as RMSprop
from tapegrad.optim.schedules import CosineAnnealingLR as CosineAnnealingLR
from tapegrad.optim.schedules import LambdaLR as LambdaLR
from tapegrad.optim.schedules import LinearLR as LinearLR
from tapegrad.optim.schedules import LRScheduler as LRScheduler
from tapegrad.optim.schedules import MultiStepLR as MultiStepLR
from tapegrad.optim.schedules import SequentialLR as SequentialLR
from tapegrad.optim.schedules import StepLR as StepLR
from tapegrad.optim.sgd import SGD as SGD

# PyTorch keeps schedules in `optim.lr_scheduler`, and users import them from there.
sys.modules[f"{__name__}.lr_scheduler"] = lr_scheduler
