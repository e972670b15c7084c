"""`tapegrad bench profile` on networks whose shares are known, and on files with mistakes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tapegrad.bench import frameworks, inputs, suites
from tapegrad.bench.errors import BenchError, MalformedFileError
from tapegrad.bench.process import WorkerProcess
from tapegrad.bench.profile import Profile, profile
from tapegrad.bench.profile.page import page_of
from tapegrad.bench.profile.results import Row, evaluate
from tapegrad.bench.profile.visits import Place, RowKey, Time, Visit, Visits
from tapegrad.bench.results import Machine
from tapegrad.cli import main

EXAMPLE = Path(__file__).parents[2] / "examples" / "profile_model.py"

#: Operators that take a known time of the processor, forward and backward: it spins.
SPINNING = """
import time
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass

class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seconds, backward):
        ctx.seconds = backward
        spin(seconds)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        spin(ctx.seconds)
        return gradient, None, None

class Quick(Slow):
    pass

slow = Slow.apply  # as files often do

class Layer(nn.Module):
    def __init__(self, function, forward, backward):
        super().__init__()
        self.function, self.times = function, (forward, backward)

    def forward(self, x):
        return self.function(x, *self.times)

def net(*layers):
    return nn.Sequential(*layers), torch.ones(8, requires_grad=True)

def make_model():
    return net(Layer(slow, 8e-4, 16e-4), Layer(Quick.apply, 4e-4, 4e-4), Layer(slow, 8e-4, 16e-4))

def make_faster():
    return net(Layer(slow, 4e-4, 8e-4), Layer(Quick.apply, 4e-4, 4e-4), Layer(slow, 4e-4, 8e-4))

class EverySecond(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer, self.steps = layer, 0

    def forward(self, x):
        self.steps += 1
        return self.layer(x) if self.steps % 2 else x

def make_changing():
    return net(EverySecond(Layer(slow, 4e-4, 4e-4)), Layer(Quick.apply, 2e-4, 2e-4))

class Checkpointed(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return checkpoint(lambda x: torch.tanh(self.layer(x)), x, use_reentrant=False)

def make_checkpointed():
    return net(Checkpointed(Layer(slow, 4e-4, 2e-4)), Layer(Quick.apply, 2e-4, 2e-4))

def make_shared():
    layer = Layer(slow, 1e-4, 1e-4)
    return net(layer, nn.Sequential(layer))
"""
#: Networks that do what few do.
UNUSUAL = """
import torch
from torch import nn

@torch.library.custom_op("custom::scale", mutates_args=())
def scale(x: torch.Tensor) -> torch.Tensor:
    return x * 2

class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x ** 3

    @staticmethod
    def backward(ctx, gradient):
        return gradient

class cumulative(Cube):
    pass

class Net(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.layer, self.function = nn.Linear(4, 4), function

    def forward(self, x):
        return self.layer(x) + self.function(x).sum()

def attention_fails(x):
    rest = torch.ones(12, 4), torch.ones(12), None, None, False, 0.0, torch.ones(3, 3), None
    try:
        nn.functional.multi_head_attention_forward(x, x, x, 4, 1, *rest)
    except RuntimeError:
        pass
    return x

def without_versions(x):
    with torch.inference_mode():
        y = x * 2
        y.relu_()
    return y.clone()

def ragged(x):
    return torch.nested.as_nested_tensor([x[:3], x[3:]]).to_padded_tensor(0.0)

def model(function):
    return Net(function), torch.ones(8, 4)

def custom():
    return model(scale)

def custom_function():
    return model(cumulative.apply)

def mapped():
    return model(torch.func.vmap(lambda row: torch.tanh(row).cumsum(0)))

def differentiated():
    return model(torch.func.vmap(torch.func.grad(lambda row: torch.sin(row).sum())))

def failing():
    return Net(attention_fails), torch.ones(8, 2, 4)

def inference_mode():
    return model(without_versions)

def nested():
    return model(ragged)

def compiled_function():
    return model(torch.compile(lambda x: torch.sin(x) * 2, backend="aot_eager"))

def scripted():
    return model(torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.Sigmoid())))
"""
#: An operator of each: it is in the table.
UNUSUAL_ROWS = {
    "custom": "custom::scale",
    "custom_function": "cumulative",
    "mapped": "aten::tanh",
    "differentiated": "aten::sin",
    "failing": "multi_head_attention_forward",
    "inference_mode": "aten::relu_",
    "nested": "aten::to_padded_tensor",
    "scripted": "forward",
    "compiled_function": "aten::linear",  # the rest is known by its name only
}
#: Two processes would differ in nothing here; several rounds find quiet moments.
QUICK = {"processes": 1, "rounds": 3, "block": 0.1}


@pytest.fixture(scope="module")
def spinning(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("nets") / "spinning.py"
    file.write_text(SPINNING)
    return file


@pytest.fixture(scope="module")
def known(spinning: Path) -> Profile:
    return profile(str(spinning), **QUICK)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    """Give one worker for several files: none of them may hurt it."""
    torch = frameworks.find("torch")
    folder = tmp_path_factory.mktemp("worker")
    found = WorkerProcess(torch, folder, threads=1, device="cpu", timeout=60.0)
    yield found
    found.close()


def row_of(found: Profile, name: str) -> Row:
    (row,) = (row for row in found.rows if row.name == name)
    return row


def test_shares_are_those_that_the_operators_were_given(known: Profile) -> None:
    slow, quick = row_of(known, "Slow"), row_of(known, "Quick")
    assert (slow.calls, slow.modules, quick.calls, quick.modules) == (2, ["0", "2"], 1, ["1"])
    given = 5.6e-3  # seconds of spinning in a step
    assert slow.share == pytest.approx(4.8e-3 / given, abs=0.08)
    assert quick.share == pytest.approx(0.8e-3 / given, abs=0.04)
    assert known.rows[0] == slow
    assert known.unknown == pytest.approx(slow.share + quick.share)


def test_backward_is_linked_to_its_forward(known: Profile) -> None:
    slow, quick = row_of(known, "Slow"), row_of(known, "Quick")
    for row, expected in ((slow, 2.0), (quick, 1.0)):
        assert row.forward is not None and row.backward is not None
        assert row.backward.time / row.forward.time == pytest.approx(expected, rel=0.25)


def test_parts_and_residual_make_the_step(known: Profile) -> None:
    parts = sum(row.total.time for row in known.rows)
    assert parts + known.residual == pytest.approx(known.step.time)
    assert sum(group.total.time for group in known.groups) == pytest.approx(parts, rel=0.02)
    # Only Python between operators is nobody's: parts counted twice or not at all would show.
    assert -0.03 < known.residual_share < 0.15
    assert known.residual_low <= known.residual_high
    assert known.inflation.value > 0.9


def test_operators_alone_take_what_they_were_given(known: Profile) -> None:
    slow = row_of(known, "Slow")
    assert slow.alone is not None and slow.ratio is not None
    assert slow.alone.time == pytest.approx(4.8e-3, rel=0.15)
    assert slow.ratio.value == pytest.approx(1.0, abs=0.15)


def test_a_faster_operator_gains_what_was_predicted(known: Profile, spinning: Path) -> None:
    (slow,) = (group for group in known.groups if group.operator == "Slow")
    faster = profile(f"{spinning}:make_faster", **QUICK)  # type: ignore[arg-type]
    gained = 1 - faster.step.time / known.step.time
    assert gained == pytest.approx(slow.gain(2), abs=0.06)


SMALL = """
import torch
from torch import nn

def make_model():
    layers = (layer for _ in range(5) for layer in (nn.Linear(64, 64), nn.ReLU()))
    return nn.Sequential(*layers), torch.randn(32, 64)
"""


def test_small_operators_keep_their_share(tmp_path: Path) -> None:
    """Recording takes long beside them, but by the clock ten products are most of this net."""
    file = tmp_path / "small.py"
    file.write_text(SMALL)
    found = profile(str(file), **QUICK)  # type: ignore[arg-type]
    (linear,) = (group for group in found.groups if group.operator == "linear")
    assert 0.3 < linear.share < 0.75
    assert found.residual_share < 0.6


def test_what_runs_in_some_steps_only_counts_with_its_part_of_them(spinning: Path) -> None:
    found = profile(f"{spinning}:make_changing", **QUICK)  # type: ignore[arg-type]
    (slow,) = (group for group in found.groups if group.operator == "Slow")
    (quick,) = (group for group in found.groups if group.operator == "Quick")
    assert slow.total.time == pytest.approx(4e-4, rel=0.2)  # 0.8 ms in every second step
    assert quick.total.time == pytest.approx(4e-4, rel=0.2)
    assert found.step.time > 0.9 * (slow.total.time + quick.total.time)


def test_what_a_checkpoint_does_once_more_is_its_operators(spinning: Path) -> None:
    found = profile(f"{spinning}:make_checkpointed", **QUICK)  # type: ignore[arg-type]
    slow, tanh = row_of(found, "Slow"), row_of(found, "aten::tanh")
    assert slow.forward is not None and slow.backward is not None
    assert slow.forward.time == pytest.approx(4e-4, rel=0.15)
    assert slow.backward.time == pytest.approx(6e-4, rel=0.15)  # 0.4 ms of them forward again
    assert tanh.share < 0.25


def test_a_module_in_two_places_has_both_names(spinning: Path) -> None:
    once = {"processes": 1, "rounds": 1, "block": 0.01}
    found = profile(f"{spinning}:make_shared", **once)  # type: ignore[arg-type]
    slow = row_of(found, "Slow")
    assert (slow.calls, slow.modules) == (2, ["0 = 1.0"])


def test_what_takes_no_time_that_can_be_seen_shows_none() -> None:
    seen = Visit(1e-3, 1e-3, 10, 1e-6, {RowKey(None, "view", "view"): Time(2e-7, 0.0, 1, 0)})
    visits = Visits(places={Place(process, 0): seen for process in range(3)})
    facts = {"model": "", "phase": "step", "device": "cpu", "threads": 1, "framework": ""}
    machine = Machine("f0", "laptop")
    found = evaluate(visits, kernels=False, **facts, machine=machine, options={})
    (row,) = found.rows
    assert (row.total.time, row.forward, row.share) == (0.0, None, 0.0)
    assert found.residual == pytest.approx(1e-3)
    page = page_of(found, 5)
    texts = [entry.text for table in page.tables for line in table.lines for entry in line.entries]
    assert not any(text.endswith("ns") or " ns " in text for text in texts)


def test_both_tables_split_a_time_alike() -> None:
    """An operator at one place has the same passes in both, which make its total together."""
    rng = np.random.default_rng(0)
    described = dict.fromkeys(("modules", "inputs", "outputs", "dtypes", "attributes"), ())
    names = {0: "conv2d", 1: "linear", 2: "linear"}
    visits = Visits(
        rows=[{"name": name, "operator": name, "calls": 1, **described} for name in names.values()]
    )
    for process, round in np.ndindex(3, 4):
        times = {RowKey(row): Time(*rng.lognormal(-7, 0.5, 2)) for row in names}
        visits.places[Place(process, round)] = Visit(0.02, 0.03, 10, 1e-7, times)
    facts = dict.fromkeys(("model", "phase", "device", "framework"), "") | {"threads": 1}
    machine = Machine("f0", "laptop")
    found = evaluate(visits, kernels=True, **facts, machine=machine, options={})
    (row,) = (row for row in found.rows if row.name == "conv2d")
    (group,) = (group for group in found.groups if group.operator == "conv2d")
    assert row.forward is not None and row.backward is not None
    assert (row.forward.time, row.backward.time) == (group.forward, group.backward)
    for group in found.groups:
        assert group.forward + group.backward == pytest.approx(group.total.time)
    for row in found.rows:
        assert row.forward is not None and row.backward is not None
        assert row.forward.time + row.backward.time == pytest.approx(row.total.time)
        assert row.forward.low is not None and row.forward.high is not None
        assert row.forward.low < row.forward.time < row.forward.high


def test_the_example_prints_tables_and_writes_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chart, file = tmp_path / "chart.png", tmp_path / "profile.json"
    options = ["--processes", "1", "--rounds", "1", "--block", "0.02", "--top", "4"]
    written = ["--chart", str(chart), "--json", str(file)]
    with pytest.raises(SystemExit) as end:
        main(["bench", "profile", f"{EXAMPLE}:make_model", *options, *written])
    assert end.value.code == 0
    text = capsys.readouterr().out
    shares = [line.split() for line in text.splitlines()]
    operators = {words[0] for words in shares if words}
    assert {"conv2d", "batch_norm", "residual", "step"} <= operators
    assert "4x16x32x32, 16x16x3x3 → 4x16x32x32" in text
    assert "blocks.0.conv1, blocks.0.conv2" in text
    assert "2× faster, the step would take" in text
    assert chart.read_bytes().startswith(b"\x89PNG")
    found = json.loads(file.read_text())
    rows = {(row["operator"], *row["inputs"]): row for row in found["rows"]}
    conv = rows["conv2d", "4x16x32x32", "16x16x3x3"]
    assert conv["calls"] == 2 and conv["backward"]["time"] > 0 and conv["alone"]["time"] > 0
    assert conv["attributes"] == ["None", "(1, 1)", "(1, 1)", "(1, 1)", "1"]
    assert found["unknown"] == 0
    shares_found = [row["share"] for row in found["rows"]]
    assert shares_found == sorted(shares_found, reverse=True)


MISTAKES = {
    "nothing_here": (None, "There is no function missing .* The file defines: something"),
    "raises": ("raise ValueError('bad size')", "ValueError: bad size .line 4 of"),
    "returns_none": ("return None", "returned nothing. It must return .model, inputs."),
    "only_a_model": ("return torch.nn.Linear(2, 2)", "returned Linear. It must return"),
    "inputs_are_wrong": ("return torch.nn.Linear(2, 2), 'x'", "returned str as inputs"),
    "no_gradient": (
        "return torch.nn.Linear(2, 2).requires_grad_(False), torch.ones(2)",
        "no tensor with a gradient",
    ),
    "model_fails": ("return torch.nn.Linear(2, 2), torch.ones(3)", "The model of .* fails"),
    "compiled": ("return torch.compile(torch.nn.Linear(2, 2)), torch.ones(2)", "compiled model"),
    "compiled_part": (
        "return torch.nn.Sequential(torch.compile(torch.nn.Linear(2, 2))), torch.ones(2)",
        "whose part 0 is compiled",
    ),
    "compiled_in_place": (
        "model = torch.nn.Linear(2, 2); model.compile(); return model, torch.ones(2)",
        "compiled model",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_in_a_file_are_explained(name: str, tmp_path: Path, worker: WorkerProcess) -> None:
    body, expected = MISTAKES[name]
    function = "missing" if body is None else "make_model"
    file = tmp_path / f"{name}.py"
    file.write_text(f"import torch\n\ndef {'something' if body is None else function}():\n")
    with file.open("a") as text:
        text.write(f"    {body or 'pass'}\n")
    with pytest.raises(BenchError, match=expected):
        worker.ask("model", file=str(file), function=function, phase="step")


@pytest.mark.parametrize("function", UNUSUAL_ROWS)
def test_unusual_networks_are_profiled(
    function: str, tmp_path: Path, worker: WorkerProcess
) -> None:
    file = tmp_path / f"unusual_{function}.py"
    file.write_text(UNUSUAL)
    rows = worker.ask("model", file=str(file), function=function, phase="step")["rows"]
    names = [row["name"] for row in rows]
    assert {"aten::linear", UNUSUAL_ROWS[function]} <= set(names)
    found = worker.ask("profile", seconds=0.001)["rows"]
    times = {row["row"]: row["samples"] for row in found}
    assert all(forward > 0 for forward, *_ in times[names.index(UNUSUAL_ROWS[function])])
    assert worker.ask("replay", row=names.index("aten::linear"), seconds=0.001)["samples"]


def test_what_names_no_function_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MalformedFileError, match="There is no file"):
        profile(str(tmp_path / "nothing.py"))
    for target in ("net.txt:make_model", "torch", f"{EXAMPLE}:not a name"):
        with pytest.raises(BenchError, match="expected file"):
            profile(target)
    with pytest.raises(BenchError, match=r"no phase 'stop'\. Did you mean step"):
        profile(str(EXAMPLE), phase="stop")
    with pytest.raises(BenchError, match="no program"):
        profile(str(EXAMPLE), python="no-such-python")


@pytest.mark.usefixtures("ctrl_c_is_heard")
def test_an_interrupted_profile_shows_what_was_measured(spinning: Path) -> None:
    command = [sys.executable, "-m", "tapegrad.cli", "bench", "profile", str(spinning)]
    options = ["--processes", "1", "--rounds", "500", "--block", "0.01"]
    process = subprocess.Popen(
        [*command, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("in place"):
            break
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=3)  # some visits
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Interrupted: this is what was measured until then." in text
    assert "Slow" in text


#: All operators of the bench as one model, a module for each.
ALL_OPERATORS = """
import json
from functools import partial
from pathlib import Path

import numpy as np
import torch

from tapegrad.worker.adapter import input_dtype
from tapegrad.worker.case import Case
from tapegrad.worker.operators.torch import OPERATORS

class Operator(torch.nn.Module):
    def __init__(self, case, arrays):
        super().__init__()
        self.call = partial(OPERATORS[case.op], **case.attrs)
        self.inputs = [
            torch.tensor(
                np.load(arrays[array.name]).astype(input_dtype(array.kind, case.dtype)),
                requires_grad=array.grad,
            )
            for array in case.inputs
        ]

    def forward(self):
        return self.call(*self.inputs)

class Operators(torch.nn.Module):
    def __init__(self, operators):
        super().__init__()
        self.operators = torch.nn.ModuleDict(operators)

    def forward(self):
        return [operator() for operator in self.operators.values()]

def make_model():
    cases = json.loads((Path(__file__).parent / "cases.json").read_text())
    cases = [(Case.from_dict(case), arrays) for case, arrays in cases]
    return Operators({case.op: Operator(case, arrays) for case, arrays in cases}), ()
"""
#: Cases of the bench that are variants of an operator, or that PyTorch composes of others.
COMPOSED = {
    "conv2d_pointwise": {"conv2d"},
    "conv2d_wide": {"conv2d"},
    "conv2d_strided": {"conv2d"},
    "conv2d_dilated": {"conv2d"},
    "conv2d_grouped": {"conv2d"},
    "conv2d_depthwise": {"conv2d"},
    "global_avg_pool2d": {"mean"},
    "split": {"view", "copy"},
    "transpose": {"view", "copy"},
    "permute": {"view", "copy"},
    "slice": {"view", "copy"},
    "broadcast_to": {"view", "copy"},
    "sgd": {"add", "sub"},
    "momentum": {"add", "sub"},
    "rmsprop": {"add", "mul", "sqrt"},
    "adam": {"add", "mul", "div", "sqrt"},
    "multi_head_attention": {"linear", "scaled_dot_product_attention", "view", "reshape"},
}


def test_every_operator_of_the_bench_has_a_canonical_name(
    tmp_path: Path, worker: WorkerProcess
) -> None:
    cases = {case.op: case for case in suites.find("operators").cases if case.size == "small"}
    saved = [
        (case.as_dict(), inputs.save(inputs.make_inputs(case, 0), tmp_path / op))
        for op, case in cases.items()
    ]
    (tmp_path / "cases.json").write_text(json.dumps(saved))
    file = tmp_path / "all_operators.py"
    file.write_text(ALL_OPERATORS)
    rows = worker.ask("model", file=str(file), function="make_model", phase="forward")["rows"]
    assert [row["name"] for row in rows if row["operator"] is None] == []
    found: dict[str, set[str]] = {op: set() for op in cases}
    for row in rows:
        for module in row["modules"]:
            found[module.removeprefix("operators.")].add(row["operator"])
    assert all(found.values())
    assert {op: names for op, names in found.items() if not names >= COMPOSED.get(op, {op})} == {}
