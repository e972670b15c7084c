"""Optimisers and schedules against PyTorch; their state, and misuse."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tapegrad import io, nn, optim
from tapegrad.errors import DTypeError, OptionError, StateError
from tapegrad.tensors import Tensor, ones, tensor
from tests.oracles.torch import Torch, assert_equal, tapegrad
from tests.oracles.training import optimise, rates, resumed_rates

OPTIMISERS = [
    "optim.SGD(model.parameters(), lr=0.1)",
    "optim.SGD(model.parameters(), 0.1, 0.9, weight_decay=0.01)",
    "optim.SGD(model.parameters(), lr=0.1, momentum=0.9, dampening=0.3)",
    "optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)",
    "optim.SGD(model.parameters(), lr=0.01, momentum=0.5, maximize=True)",
    "optim.SGD([{'params': model[0].parameters()}, "
    "{'params': model[2].parameters(), 'lr': 0.01, 'weight_decay': 0.1}], lr=0.1)",
    "optim.SGD(list(model.named_parameters()), lr=0.1, momentum=0.9)",
    "optim.Adam(model.parameters())",
    "optim.Adam(model.parameters(), lr=0.02, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.1)",
    "optim.Adam(model.parameters(), lr=0.02, amsgrad=True, maximize=True)",
    "optim.Adam(model.parameters(), lr=0.02, weight_decay=0.1, decoupled_weight_decay=True)",
    "optim.AdamW(model.parameters(), lr=0.02)",
    "optim.AdamW(model.parameters(), lr=0.02, foreach=True)",
    "optim.SGD(model.parameters(), lr=0.1, foreach=False, fused=False)",
    "optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.0, amsgrad=True)",
    "optim.RMSprop(model.parameters())",
    "optim.RMSprop(model.parameters(), lr=0.02, alpha=0.9, weight_decay=0.1, momentum=0.9)",
    "optim.RMSprop(model.parameters(), centered=True, momentum=0.5)",
    "optim.RMSprop(model.parameters(), centered=True, maximize=True)",
    "optim.RMSprop(model.parameters(), 0.02, 0.9, 1e-6, 0.1, 0.5, True, False, None, True)",
]
SCHEDULES = [
    "S.StepLR(opt, 3)",
    "S.StepLR(opt, step_size=2, gamma=0.5)",
    "S.MultiStepLR(opt, [2, 5, 5, 7], gamma=0.3)",
    "S.CosineAnnealingLR(opt, 10)",
    "S.CosineAnnealingLR(opt, T_max=4, eta_min=0.01)",
    "S.LinearLR(opt)",
    "S.LinearLR(opt, start_factor=0.1, end_factor=0.8, total_iters=7)",
    "S.LinearLR(opt, total_iters=0)",
    "S.LambdaLR(opt, lambda epoch: 0.9**epoch)",
    "S.LambdaLR(opt, [lambda epoch: 0.9**epoch, lambda epoch: 1 / (1 + epoch)])",
    "S.SequentialLR(opt, [S.LinearLR(opt, 0.1, total_iters=4), S.CosineAnnealingLR(opt, 8)], [4])",
    "S.SequentialLR(opt, [S.LinearLR(opt), S.StepLR(opt, 2), S.MultiStepLR(opt, [1])], [3, 8])",
    "[S.LinearLR(opt, 0.5), S.StepLR(opt, 3)]",
    "[S.CosineAnnealingLR(opt, 6), S.MultiStepLR(opt, [4])]",
]


@pytest.mark.parametrize(("dtype", "rtol"), [("float64", 1e-10), ("float32", 1e-4)])
@pytest.mark.parametrize("build", OPTIMISERS)
def test_optimiser_trains_as_in_pytorch(torch: Torch, build: str, dtype: str, rtol: float) -> None:
    assert_equal(optimise(tapegrad(), build, dtype), torch(optimise, build, dtype), rtol)


@pytest.mark.parametrize("option", ["capturable", "differentiable"])
def test_steps_that_are_recorded_are_refused(option: str) -> None:
    for kind in (optim.SGD, optim.Adam, optim.AdamW, optim.RMSprop):
        if (kind, option) != (optim.SGD, "capturable"):
            with pytest.raises(OptionError, match=f"{kind.__name__}: .* leave {option}=True out"):
                kind([ones(1, requires_grad=True)], **{option: True})  # type: ignore[arg-type]


@pytest.mark.parametrize("build", SCHEDULES)
def test_schedule_is_pytorchs(torch: Torch, build: str) -> None:
    assert_equal(rates(tapegrad(), build, 20), torch(rates, build, 20), 1e-12)


@pytest.mark.parametrize("before", [1, 4, 9])
@pytest.mark.parametrize("build", SCHEDULES[:9])
def test_schedule_that_goes_on_is_pytorchs(torch: Torch, build: str, before: int) -> None:
    ours, theirs = resumed_rates(tapegrad(), build, before), torch(resumed_rates, build, before)
    assert_equal(ours, theirs, 1e-12)


#: Schedules that begin with the rates at first, which groups that come later do not have.
FROM_FIRST = ("Lambda", "Cosine", "Sequential")


@pytest.mark.parametrize("build", SCHEDULES)
def test_groups_that_come_later_have_the_rates_of_pytorch(torch: Torch, build: str) -> None:
    if not any(name in build for name in FROM_FIRST):
        assert_equal(rates(tapegrad(), build, 20, 3), torch(rates, build, 20, 3), 1e-12)
        return
    with pytest.raises(StateError, match=r"expected the 2 groups .*; make the schedule after"):
        rates(tapegrad(), build, 20, 3)
    with pytest.raises(AssertionError, match="zip"):  # PyTorch's own error
        torch(rates, build, 20, 3)


def _network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def _steps(model: nn.Module, optimizer: optim.Optimizer, number: int) -> None:
    x = tensor(np.random.default_rng(0).standard_normal((5, 3)).astype("float32"))
    for _ in range(number):
        optimizer.zero_grad()
        (model(x) ** 2).sum().backward()
        optimizer.step()


def _values(model: nn.Module) -> list[Any]:
    return [each.detach().numpy().copy() for each in model.parameters()]


@pytest.mark.parametrize(
    "make",
    [
        lambda params: optim.SGD(params, lr=0.01, momentum=0.9),
        lambda params: optim.Adam(params, amsgrad=True),
        lambda params: optim.RMSprop(params, momentum=0.9, centered=True),
    ],
)
def test_training_goes_on_from_a_saved_state(
    make: Callable[[Any], optim.Optimizer],
) -> None:
    model = _network()
    optimizer = make(model.parameters())
    _steps(model, optimizer, 3)
    other = copy.deepcopy(model)
    resumed = make(other.parameters())
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    _steps(model, optimizer, 3)
    _steps(other, resumed, 3)
    for ours, theirs in zip(_values(model), _values(other), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("size", [1, 15, 17, 63, 513, 1025, 5000])
def test_bits_do_not_depend_on_the_size_of_a_parameter(size: int) -> None:
    random = np.random.default_rng(size)
    values, gradients = (random.standard_normal(5000).astype("float32") for _ in range(2))
    found = []
    for count in (5000, size):
        weight = tensor(values[:count]).requires_grad_()
        optimizer = optim.AdamW([weight], lr=0.1)
        for _ in range(3):
            weight.grad = tensor(gradients[:count])
            optimizer.step()
        found.append(weight.detach().numpy()[:size])
    np.testing.assert_array_equal(*found)


def test_loaded_state_is_a_copy() -> None:
    model = _network()
    first, second = (optim.Adam(model.parameters()) for _ in range(2))
    _steps(model, first, 1)
    second.load_state_dict(first.state_dict())
    _steps(model, first, 1)
    assert second.state_dict()["state"][0]["step"] == 1
    assert first.state_dict()["state"][0]["step"] == 2


def test_groups_can_be_added() -> None:
    model = _network()
    optimizer = optim.SGD(model[0].parameters(), lr=1.0)
    optimizer.add_param_group({"params": model[2].parameters(), "lr": 0.1})
    assert [group["lr"] for group in optimizer.param_groups] == [1.0, 0.1]
    assert "Parameter Group 1" in repr(optimizer) and "    lr: 0.1" in repr(optimizer)
    _steps(model, optimizer, 1)


def test_step_calls_a_closure_with_gradients_on() -> None:
    weight = tensor([2.0], requires_grad=True)
    optimizer = optim.SGD([weight], lr=0.5)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (weight * weight).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 4.0
    assert weight.item() == 0.0


def test_parameters_without_gradient_stay() -> None:
    used, unused = ones(1, requires_grad=True), ones(1, requires_grad=True)
    optimizer = optim.Adam([used, unused], lr=0.1, weight_decay=0.5)
    used.sum().backward()
    optimizer.step()
    assert unused.item() == 1.0 and used.item() != 1.0
    assert list(optimizer.state_dict()["state"]) == [0]
    optimizer.zero_grad(set_to_none=False)
    assert used.grad is not None and used.grad.item() == 0.0


@pytest.mark.parametrize(
    "make",
    [
        lambda opt: optim.CosineAnnealingLR(opt, 10),
        lambda opt: optim.SequentialLR(
            opt, [optim.LinearLR(opt, 0.1, total_iters=3), optim.StepLR(opt, 2)], [3]
        ),
    ],
)
def test_schedules_go_on_from_a_saved_state(
    make: Callable[[optim.Optimizer], optim.LRScheduler],
) -> None:
    def begun() -> tuple[optim.Optimizer, optim.LRScheduler]:
        optimizer = optim.SGD([ones(1, requires_grad=True)], lr=0.3)
        return optimizer, make(optimizer)

    optimizer, schedule = begun()
    for _ in range(5):
        schedule.step()
    other, resumed = begun()
    resumed.load_state_dict(copy.deepcopy(schedule.state_dict()))
    other.load_state_dict(optimizer.state_dict())
    for _ in range(4):
        schedule.step()
        resumed.step()
        assert resumed.get_last_lr() == schedule.get_last_lr()
        assert other.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]


def test_sequences_of_sequences() -> None:
    optimizer = optim.SGD([ones(1, requires_grad=True)], lr=1.0)
    flat = optim.StepLR(optimizer, 100)
    inner = optim.SequentialLR(
        optimizer,
        [optim.LinearLR(optimizer, 0.5, total_iters=2), optim.StepLR(optimizer, 1, 0.1)],
        [2],
    )
    outer = optim.SequentialLR(optimizer, [flat, inner], [2])
    found = []
    for _ in range(7):
        found += outer.get_last_lr()
        outer.step()
    np.testing.assert_allclose(found, [1, 1, 0.5, 0.75, 1, 0.1, 0.01])


#: Without types, for what types would not let pass.
loose: Any = optim


def _sgd() -> optim.SGD:
    return optim.SGD([ones(2, requires_grad=True)], lr=0.1)


def _other_shape() -> None:
    model = nn.Linear(2, 2)
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(ones(1, 2)).sum().backward()
    optimizer.step()
    optim.SGD(nn.Linear(3, 2).parameters(), momentum=0.9).load_state_dict(optimizer.state_dict())


@pytest.mark.parametrize(
    ("misuse", "error", "message"),
    [
        (lambda: loose.SGD([]), OptionError, "an empty list"),
        (lambda: loose.SGD(ones(1)), DTypeError, "in a list"),
        (lambda: loose.SGD([1.0]), DTypeError, "expected Tensors"),
        (lambda: loose.SGD([ones(1, requires_grad=True) * 2]), OptionError, "expected leaves"),
        (lambda: loose.SGD([ones(1, requires_grad=True)] * 2), OptionError, "there twice"),
        (lambda: loose.SGD({ones(1), ones(1)}), DTypeError, "in an order, got a set"),
        (lambda: loose.SGD([{"params": {ones(1)}}]), DTypeError, "in an order, got a set"),
        (lambda: loose.SGD([("a", ones(1)), ones(1)]), DTypeError, "got 1 of 2 with a name"),
        (lambda: loose.SGD([ones(1), ("a", ones(1))]), DTypeError, "got 1 of 2 with a name"),
        (lambda: loose.SGD([{"lr": 1.0}]), DTypeError, "a dict with 'params'"),
        (
            lambda: loose.SGD([ones(1)], lr=-1.0),
            OptionError,
            "at least 0 as lr, got -1",
        ),
        (lambda: loose.SGD([ones(1)], lr=math.nan), OptionError, "got nan"),
        (lambda: loose.SGD([ones(1)], nesterov=True), OptionError, "nesterov needs"),
        (lambda: loose.Adam([ones(1)], betas=(0.9, 1.0)), OptionError, r"betas in \[0, 1\)"),
        (lambda: _sgd().load_state_dict({}), StateError, "'state' and 'param_groups'"),
        (
            lambda: _sgd().load_state_dict({"state": {}, "param_groups": [{"params": [0, 1]}]}),
            StateError,
            r"groups of \[1\] parameters, got \[2\]",
        ),
        (_other_shape, StateError, "of another shape"),
        (lambda: loose.StepLR(1, 2), DTypeError, "expected an Optimizer"),
        (lambda: loose.StepLR(_sgd(), 0), OptionError, "step_size of at least 1"),
        (lambda: loose.StepLR(_sgd(), 2, last_epoch=3), OptionError, "needs 'initial_lr'"),
        (lambda: loose.LinearLR(_sgd(), 0.0), OptionError, "start_factor"),
        (lambda: loose.LinearLR(_sgd(), total_iters=-1), OptionError, "total_iters"),
        (lambda: loose.CosineAnnealingLR(_sgd(), 0), OptionError, "T_max"),
        (lambda: loose.LambdaLR(_sgd(), [abs, abs]), OptionError, "expected 1 functions"),
        (lambda: loose.SequentialLR(_sgd(), [], []), OptionError, "one milestone fewer"),
        (lambda: loose.StepLR(_sgd(), 2).load_state_dict({"a": 1}), StateError, "got a"),
    ],
)
def test_misuse_is_explained(
    misuse: Callable[[], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        misuse()


@pytest.mark.parametrize(
    "make",
    [
        lambda params: optim.SGD(params, lr=0.1, momentum=0.9),
        lambda params: optim.Adam(params, lr=0.1),
        lambda params: optim.AdamW(params, lr=0.1),
        lambda params: optim.RMSprop(params, lr=0.1, momentum=0.9),
    ],
    ids=["sgd", "adam", "adamw", "rmsprop"],
)
def test_training_with_a_parameter_without_dimensions_goes_on(make: Callable[..., Any]) -> None:
    def steps(scale: nn.Parameter, optimiser: Any, count: int) -> None:
        for _ in range(count):
            optimiser.zero_grad()
            (scale * scale * 3 - scale).sum().backward()
            optimiser.step()

    whole = nn.Parameter(tensor(2.0))
    steps(whole, make([whole]), 6)
    first = nn.Parameter(tensor(2.0))
    begun = make([first])
    steps(first, begun, 3)
    second = nn.Parameter(first.detach().clone())
    resumed = make([second])
    resumed.load_state_dict(begun.state_dict())
    steps(second, resumed, 3)
    assert second.item() == whole.item()


KINDS: list[Callable[[Any], optim.Optimizer]] = [
    lambda params: optim.SGD(params, lr=0.1, momentum=0.9),
    lambda params: optim.Adam(params, lr=0.2),
    lambda params: optim.RMSprop(params, lr=0.3, momentum=0.9),
]


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("make_other", KINDS)
def test_the_state_of_another_optimiser_is_refused(
    make: Callable[[Any], optim.Optimizer],
    make_other: Callable[[Any], optim.Optimizer],
    tmp_path: Path,
) -> None:
    if make is make_other:
        return
    model = _network()
    other, ours = make_other(model.parameters()), make(model.parameters())
    _steps(model, other, 2)
    _steps(model, ours, 2)
    before = repr(ours.state_dict())
    match = "expected groups with the options .*; make the optimiser whose state"
    with pytest.raises(StateError, match=match):
        ours.load_state_dict(other.state_dict())
    io.save_training(tmp_path / "state", step=2, model=model, optimizer=other)
    with pytest.raises(StateError, match=match):
        io.load_training(tmp_path / "state", model=model, optimizer=ours)
    assert repr(ours.state_dict()) == before


def test_states_of_older_and_newer_versions_of_pytorch_load() -> None:
    optimizer = optim.Adam([nn.Parameter(ones(2))], lr=0.1)
    (group,) = optimizer.state_dict()["param_groups"]
    newer = group | {"foreach": None, "capturable": False, "fused": True, "lr": 0.5}
    older = {name: each for name, each in newer.items() if name != "decoupled_weight_decay"}
    del older["maximize"]
    for saved in (newer, older):
        optimizer.load_state_dict({"state": {}, "param_groups": [saved]})
        assert optimizer.param_groups[0]["lr"] == 0.5
        assert optimizer.param_groups[0]["maximize"] is False


def test_the_state_of_a_number_is_not_that_of_a_matrix() -> None:
    scale, matrix = nn.Parameter(tensor(2.0)), nn.Parameter(ones(3, 2))
    begun = optim.Adam([scale])
    (scale * scale).backward()
    begun.step()
    with pytest.raises(StateError, match=r"expected \(3, 2\), got \(\)"):
        optim.Adam([matrix]).load_state_dict(begun.state_dict())


@pytest.mark.parametrize("make", [optim.SGD, optim.Adam, optim.RMSprop])
@pytest.mark.parametrize("lr", [np.float32(0.25), np.int64(1)])
def test_options_may_be_numbers_of_numpy(make: Any, lr: Any, tmp_path: Path) -> None:
    def stepped(rate: Any) -> Any:
        parameter = ones(3, requires_grad=True)
        optimizer = make([parameter], lr=rate, weight_decay=rate)
        parameter.sum().backward()
        optimizer.step()
        io.save_training(tmp_path / "state", optimizer=optimizer, step=int(rate))
        io.load_training(tmp_path / "state", optimizer=optimizer)
        optimizer.step()
        return parameter.tolist(), optimizer.param_groups[0]["lr"]

    assert stepped(lr) == stepped(float(lr))
