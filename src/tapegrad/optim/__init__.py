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

from sys import modules as _modules

from tapegrad.optim import schedules as lr_scheduler
from tapegrad.optim.adam import Adam, AdamW
from tapegrad.optim.optimizer import Optimizer
from tapegrad.optim.rmsprop import RMSprop
from tapegrad.optim.schedules import (
    CosineAnnealingLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    MultiStepLR,
    SequentialLR,
    StepLR,
)
from tapegrad.optim.sgd import SGD

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "CosineAnnealingLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "Optimizer",
    "RMSprop",
    "SequentialLR",
    "StepLR",
    "lr_scheduler",
]

# PyTorch keeps schedules in `optim.lr_scheduler`, and users import them from there.
_modules[f"{__name__}.lr_scheduler"] = lr_scheduler


def __dir__() -> list[str]:
    return __all__
