"""Training loops that run in any library of PyTorch's shape; imports NumPy and nothing else."""

from __future__ import annotations

from math import prod, sqrt
from typing import Any

import numpy as np

STEPS = 20
cos = np.cos  # a test takes NumPy's functions away


def train(
    lib: Any,
    build: str,
    call: str,
    arrays: dict[str, Any],
    dtype: str,
    *,
    device: Any = None,
    prepare: Any = None,
) -> Any:
    """Train a module, and its inputs with it, over some steps; return all that it came to.

    Args:
        lib: The library.
        build: The module, as text over `nn` and `tt`.
        call: Its call, as text over `model` and the names of arrays.
        arrays: Inputs. Floats are of the dtype, require gradients and are trained.
        dtype: "float32" or "float64".
        device: Where all of it happens, if not where the library puts it.
        prepare: Called with the module and its inputs before they are trained.
    """
    floats = getattr(lib.tt, dtype)
    model = filled(lib, eval(build, {"nn": lib.nn, "tt": lib.tt}).to(floats), 0)
    inputs = {name: _input(lib, array, floats, device) for name, array in arrays.items()}
    if device is not None:
        model.to(device)
    if prepare is not None:
        prepare(model, inputs)
    trained = [each for each in inputs.values() if each.requires_grad]
    optimizer = lib.optim.SGD([*model.parameters(), *trained], lr=0.05, momentum=0.9)
    losses = []
    for _ in range(STEPS):
        output = eval(call, {"model": model, "tt": lib.tt, **inputs})
        parts = output if isinstance(output, tuple) else (output,)
        loss = sum(((part - target(lib, part)) ** 2).mean() for part in parts)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    evaluated = eval(call, {"model": model, "tt": lib.tt, **inputs})
    return {
        "losses": losses,
        "outputs": [numpy(part) for part in parts],
        "evaluated": [
            numpy(part) for part in (evaluated if isinstance(evaluated, tuple) else (evaluated,))
        ],
        "inputs": [numpy(each) for each in trained],
        "input gradients": [numpy(each.grad) for each in trained],
        "gradients": {name: numpy(each.grad) for name, each in model.named_parameters()},
        "state": {name: numpy(each) for name, each in model.state_dict().items()},
        "buffers": [name for name, _ in model.named_buffers()],
    }


def optimise(lib: Any, build: str, dtype: str) -> Any:
    """Train a small network with an optimiser, given as text over `optim` and `model`."""
    nn, floats = lib.nn, getattr(lib.tt, dtype)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).to(floats)
    filled(lib, model, 1)
    optimizer = eval(build, {"optim": lib.optim, "model": model})
    random = np.random.default_rng(2)
    losses = []
    for _ in range(STEPS):
        x = lib.tt.tensor(random.standard_normal((4, 5)).astype(dtype))
        loss = lib.F.cross_entropy(model(x), lib.tt.tensor(random.integers(0, 3, 4)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    state = optimizer.state_dict()
    options = [
        {name: group[name] for name in ("lr", "weight_decay", "params")}
        for group in state["param_groups"]
    ]
    return {
        "losses": losses,
        "state": {name: numpy(each) for name, each in model.state_dict().items()},
        "optimiser": {
            number: {name: number_or_array(kept[name]) for name in sorted(kept)}
            for number, kept in state["state"].items()
        },
        "options": options,
    }


def rates(lib: Any, build: str, epochs: int, late: int = -1) -> Any:
    """Return the learning rates of a schedule, given as text over `optim` and `opt`.

    In the epoch `late` the optimiser gets another group.
    """
    weights = [lib.tt.ones(1, requires_grad=True), lib.tt.ones(1, requires_grad=True)]
    opt = lib.optim.SGD([{"params": weights[:1], "lr": 0.5}, {"params": weights[1:]}], lr=0.1)
    names = {"optim": lib.optim, "S": lib.optim.lr_scheduler, "opt": opt}
    schedules = eval(build, names)
    schedules = schedules if isinstance(schedules, list) else [schedules]
    found = []
    for epoch in range(epochs):
        if epoch == late:
            opt.add_param_group({"params": [lib.tt.ones(1, requires_grad=True)], "lr": 0.25})
        found.append([group["lr"] for group in opt.param_groups])
        opt.step()
        for schedule in schedules:
            schedule.step()
    found.append(schedules[-1].get_last_lr())
    return found


def resumed_rates(lib: Any, build: str, before: int) -> Any:
    """Return the learning rates of a schedule that goes on by `last_epoch` after some epochs."""
    weight = lib.tt.ones(1, requires_grad=True)
    names = {"S": lib.optim.lr_scheduler, "opt": lib.optim.SGD([weight], lr=0.5)}
    schedule = eval(build, names)
    for _ in range(before):
        names["opt"].step()
        schedule.step()
    state = names["opt"].state_dict()
    names["opt"] = lib.optim.SGD([weight], lr=0.1)
    names["opt"].load_state_dict(state)
    schedule = eval(f"{build[:-1]}, last_epoch={before - 1})", names)
    found = [schedule.get_last_lr()]
    for _ in range(8):
        names["opt"].step()
        schedule.step()
        found.append(schedule.get_last_lr())
    return found


def filled(lib: Any, model: Any, seed: int) -> Any:
    """Give all parameters and buffers of a model numbers that depend on seed and order alone."""
    random = np.random.default_rng(seed)
    with lib.tt.no_grad():
        for name, each in model.state_dict().items():
            if each.is_floating_point():
                values = _values(random, name, tuple(each.shape))
                each.copy_(lib.tt.tensor(values).to(each.dtype))
    return model


def _values(random: np.random.Generator, name: str, shape: tuple[int, ...]) -> Any:
    values = random.standard_normal(shape)
    if len(shape) > 1:
        return values * sqrt(2 / prod(shape[1:]))
    if name.endswith("running_var"):
        return 1 + values**2
    return 0.1 * values + (1 if name.endswith("weight") else 0)


def target(lib: Any, output: Any) -> Any:
    """Return numbers of the shape of an output for it to learn."""
    shape = tuple(output.shape)
    numbers = cos(np.arange(prod(shape))).reshape(shape)
    return lib.tt.tensor(numbers).to(output.device).to(output.dtype)


def numpy(each: Any) -> Any:
    """Return a tensor as an array with memory of its own."""
    return each.detach().numpy().copy()


def number_or_array(value: Any) -> Any:
    """Return state of an optimiser: arrays, and numbers as floats."""
    return float(value) if getattr(value, "ndim", 0) == 0 else numpy(value)


def _input(lib: Any, array: Any, floats: Any, device: Any) -> Any:
    each = lib.tt.tensor(array, device=device)
    return each.to(floats).requires_grad_() if each.is_floating_point() else each
