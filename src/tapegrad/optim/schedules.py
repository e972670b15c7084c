"""Schedules of the learning rate, stepped once per epoch or per step, after the optimiser.

A schedule changes the rate that it finds, so several can work on one optimiser; `closed_form`
gives the rate of any epoch without those before, where there is such a formula.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tapegrad.errors import DTypeError, OptionError, StateError
from tapegrad.optim.optimizer import Optimizer


class LRScheduler:
    """The base of schedules.

    Args:
        optimizer: Whose groups' "lr" to set.
        last_epoch: -1 begins; any other goes on from a state that was loaded into the optimiser.

    A subclass says in `rate` how a group's rate changes.

    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self.expect_optimizer(optimizer)
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise OptionError(
                    f"{type(self).__name__}: last_epoch={last_epoch} needs 'initial_lr' in every "
                    "group; load the optimiser's state first, or begin with last_epoch=-1"
                )
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self.begin()

    @classmethod
    def expect_optimizer(cls, given: Any) -> None:
        """Raise if something else is given in the place of the optimiser."""
        if not isinstance(given, Optimizer):
            raise DTypeError(
                f"{cls.__name__}: expected an Optimizer, got {type(given).__name__}; make one, as "
                "by optim.SGD(model.parameters())"
            )

    #: Whether a rate is made of the one at first; groups that came later have none.
    from_first = False

    def rate(self, lr: float, base: float, place: int) -> float:
        """Return a group's rate in this epoch.

        Args:
            lr: Its rate in the last epoch.
            base: Its rate at first.
            place: The number of the group.

        """
        raise NotImplementedError(f"{type(self).__name__} has no method `rate`")

    def closed_form(self, lr: float, base: float, place: int) -> float:
        """Return a group's rate in this epoch, whatever it was in the last one."""
        return self.rate(lr, base, place)

    def begin(self) -> None:
        """Set the rates of the first epoch."""
        self._begun = False
        self.step()

    def step(self) -> None:
        """Go on to the next epoch."""
        self.last_epoch += 1
        self._set(self.rate)
        self._begun = True

    def restart(self) -> None:
        """Set the rates of epoch 0, whatever they are now."""
        self.last_epoch = 0
        self._set(self.closed_form)
        self._begun = True

    def rewind(self) -> None:
        """Take the first step back; another schedule says when this one begins."""
        self.last_epoch -= 1

    def _set(self, rate: Callable[[float, float, int], float]) -> None:
        """Set the rates; a group that came later follows where its present rate is enough."""
        groups, known = self.optimizer.param_groups, len(self.base_lrs)
        if len(groups) < known or (len(groups) > known and (self.from_first or rate != self.rate)):
            raise StateError(
                f"{type(self).__name__}: expected the {known} groups that the optimiser had at "
                f"first, got {len(groups)}; make the schedule after the groups"
            )
        for place, group in enumerate(groups):
            base = self.base_lrs[place] if place < known else group["lr"]
            group["lr"] = rate(group["lr"], base, place)
        self._last_lr = [group["lr"] for group in groups]

    def get_last_lr(self) -> list[float]:
        """Return the rates that the last step set, one per group."""
        return list(self._last_lr)

    def state_dict(self) -> dict[str, Any]:
        """Return all but the optimiser and functions."""
        return {
            name: value
            for name, value in self.__dict__.items()
            if name != "optimizer" and name not in self.not_saved
        }

    #: Attributes that are no plain data.
    not_saved: tuple[str, ...] = ()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take what `state_dict` gave."""
        expected = set(self.state_dict())
        if not isinstance(state_dict, Mapping) or set(state_dict) != expected:
            raise StateError(
                f"{type(self).__name__}.load_state_dict: expected a dict with "
                f"{', '.join(sorted(expected))}, got {_names(state_dict)}"
            )
        self.__dict__.update(state_dict)


class LambdaLR(LRScheduler):
    """The initial rate times a function of the epoch; one function, or one per group.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import optim
        >>> opt = optim.SGD([tg.ones(1, requires_grad=True)], lr=2.0)
        >>> optim.LambdaLR(opt, lambda epoch: 0.5 ** (epoch + 1)).get_last_lr()
        [1.0]

    """

    not_saved = ("lr_lambdas",)
    from_first = True

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        self.expect_optimizer(optimizer)
        groups = optimizer.param_groups
        self.lr_lambdas = [lr_lambda] * len(groups) if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != len(groups):
            raise OptionError(
                f"LambdaLR: expected {len(groups)} functions, one per group, "
                f"got {len(self.lr_lambdas)}"
            )
        super().__init__(optimizer, last_epoch)

    def rate(self, lr: float, base: float, place: int) -> float:
        """Return a group's rate in this epoch."""
        return base * self.lr_lambdas[place](self.last_epoch)


class StepLR(LRScheduler):
    """Multiplies rates by gamma every step_size epochs.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import optim
        >>> opt = optim.SGD([tg.ones(1, requires_grad=True)], lr=1.0)
        >>> schedule = optim.StepLR(opt, step_size=2, gamma=0.5)
        >>> rates = []
        >>> for epoch in range(5):
        ...     rates += schedule.get_last_lr()
        ...     opt.step()
        ...     schedule.step()
        >>> rates
        [1.0, 1.0, 0.5, 0.5, 0.25]

    """

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        if step_size < 1:
            raise OptionError(f"StepLR: expected step_size of at least 1, got {step_size}")
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def rate(self, lr: float, base: float, place: int) -> float:
        """Return a group's rate in this epoch."""
        falls = self.last_epoch > 0 and self.last_epoch % self.step_size == 0
        return lr * self.gamma if falls else lr

    def closed_form(self, lr: float, base: float, place: int) -> float:
        """Return a group's rate in this epoch, whatever it was in the last one."""
        return base * self.gamma ** (self.last_epoch // self.step_size)


class MultiStepLR(LRScheduler):
    """Multiplies rates by gamma at each milestone; one that is there twice counts twice.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import optim
        >>> opt = optim.SGD([tg.ones(1, requires_grad=True)], lr=2.0)
        >>> schedule = optim.MultiStepLR(opt, [1], gamma=0.5)
        >>> schedule.step()
        >>> schedule.get_last_lr()
        [1.0]

    """

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Iterable[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:
        self.milestones = sorted(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def rate(self, lr: float, base: float, place: int) -> float:
        """Return a group's rate in this epoch."""
        return lr * self.gamma ** Counter(self.milestones)[self.last_epoch]

    def closed_form(self, lr: float, base: float, place: int) -> float:
        """Return a group's rate in this epoch, whatever it was in the last one."""
        return base * self.gamma ** bisect_right(self.milestones, self.last_epoch)


class LinearLR(LRScheduler):
    """Warm-up: the factor of rates goes from start_factor to end_factor in total_iters epochs.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import optim
        >>> opt = optim.SGD([tg.ones(1, requires_grad=True)], lr=2.0)
        >>> optim.LinearLR(opt, start_factor=0.25).get_last_lr()
        [0.5]

    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1 or not 0 <= end_factor <= 1:
            raise OptionError(
                "LinearLR: expected start_factor in (0, 1] and end_factor in [0, 1], "
                f"got {start_factor} and {end_factor}"
            )
        if total_iters < 0:
            raise OptionError(f"LinearLR: expected total_iters of at least 0, got {total_iters}")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def rate(self, lr: float, base: float, place: int) -> float:
        """Return a group's rate in this epoch."""
        if self.last_epoch == 0:
            return lr * self.start_factor
        if not self._begun or self.last_epoch > self.total_iters:
            return lr  # what was loaded is the rate of this epoch
        return lr * self._factor(self.last_epoch) / self._factor(self.last_epoch - 1)

    def closed_form(self, lr: float, base: float, place: int) -> float:
        """Return a group's rate in this epoch, whatever it was in the last one."""
        return base * self._factor(self.last_epoch)

    def _factor(self, epoch: int) -> float:
        part = min(epoch, self.total_iters) / max(self.total_iters, 1)
        return self.start_factor + (self.end_factor - self.start_factor) * part


class CosineAnnealingLR(LRScheduler):
    """Rates go from the initial ones to eta_min in T_max epochs, along half a cosine.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import optim
        >>> opt = optim.SGD([tg.ones(1, requires_grad=True)], lr=2.0)
        >>> schedule = optim.CosineAnnealingLR(opt, T_max=2)
        >>> schedule.step()
        >>> [round(rate, 6) for rate in schedule.get_last_lr()]
        [1.0]

    """

    from_first = True

    def __init__(
        self,
        optimizer: Optimizer,
        T_max: int,  # noqa: N803  PyTorch's name
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        if T_max < 1:
            raise OptionError(f"CosineAnnealingLR: expected T_max of at least 1, got {T_max}")
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def rate(self, lr: float, base: float, place: int) -> float:
        """Return a group's rate in this epoch."""
        if self.last_epoch == 0 or not self._begun:
            return lr  # what was loaded is the rate of this epoch
        before = self._height(self.last_epoch - 1)
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            return lr + (base - self.eta_min) * self._height(self.last_epoch)
        ratio = self._height(self.last_epoch) / before
        return ratio * (lr - self.eta_min) + self.eta_min

    def closed_form(self, lr: float, base: float, place: int) -> float:
        """Return a group's rate in this epoch, whatever it was in the last one."""
        return self.eta_min + (base - self.eta_min) * self._height(self.last_epoch)

    def _height(self, epoch: int) -> float:
        return (1 + math.cos(math.pi * epoch / self.T_max)) / 2


class SequentialLR(LRScheduler):
    """Schedules one after another: the next one begins at each milestone.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad import optim
        >>> opt = optim.SGD([tg.ones(1, requires_grad=True)], lr=1.0)
        >>> warm_up = optim.LinearLR(opt, start_factor=0.5, total_iters=2)
        >>> cosine = optim.CosineAnnealingLR(opt, T_max=2)
        >>> schedule = optim.SequentialLR(opt, [warm_up, cosine], milestones=[2])
        >>> rates = []
        >>> for epoch in range(5):
        ...     rates += [round(rate, 6) for rate in schedule.get_last_lr()]
        ...     opt.step()
        ...     schedule.step()
        >>> rates
        [0.5, 0.75, 1.0, 0.5, 0.0]

    """

    not_saved = ("schedulers",)

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Sequence[LRScheduler],
        milestones: Iterable[int],
        last_epoch: int = -1,
    ) -> None:
        self.schedulers = list(schedulers)
        self.milestones = list(milestones)
        if not self.schedulers or len(self.milestones) != len(self.schedulers) - 1:
            raise OptionError(
                "SequentialLR: expected one milestone fewer than schedules, "
                f"got {len(self.schedulers)} schedules and {len(self.milestones)} milestones"
            )
        if any(each.optimizer is not optimizer for each in self.schedulers):
            raise OptionError("SequentialLR: expected schedules of the same optimiser")
        for each in self.schedulers:
            each.rewind()
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        super().__init__(optimizer, last_epoch)

    def begin(self) -> None:
        """Let the first schedule begin."""
        self.last_epoch += 1
        self._current().begin()

    def step(self) -> None:
        """Go on to the next epoch, in the schedule whose turn it is."""
        self.last_epoch += 1
        if self.last_epoch in self.milestones:
            self._current().restart()
        else:
            self._current().step()

    def restart(self) -> None:
        """Begin again with the first schedule."""
        self.last_epoch = 0
        self._current().restart()

    def rewind(self) -> None:
        """Take the first step back, in the schedule that took it."""
        self._current().rewind()
        self.last_epoch -= 1

    def get_last_lr(self) -> list[float]:
        """Return the rates that the last step set, one per group."""
        return self._current().get_last_lr()

    def _current(self) -> LRScheduler:
        return self.schedulers[bisect_right(self.milestones, self.last_epoch)]

    def state_dict(self) -> dict[str, Any]:
        """Return its own state and that of all schedules."""
        inner = [each.state_dict() for each in self.schedulers]
        return super().state_dict() | {"schedulers": inner}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take what `state_dict` gave."""
        schedules = self.schedulers
        saved = state_dict.get("schedulers") if isinstance(state_dict, Mapping) else None
        if not isinstance(saved, list) or len(saved) != len(schedules):
            raise StateError(
                f"SequentialLR.load_state_dict: expected the state of {len(schedules)} schedules"
            )
        super().load_state_dict(state_dict)
        self.schedulers = schedules
        for each, state in zip(schedules, saved, strict=True):
            each.load_state_dict(state)


def _names(state_dict: object) -> str:
    if isinstance(state_dict, Mapping):
        return ", ".join(sorted(map(str, state_dict))) or "an empty one"
    return type(state_dict).__name__
