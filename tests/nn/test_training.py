"""Every module against PyTorch: outputs, gradients, parameters and buffers over 20 steps."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.oracles.torch import Torch, assert_equal, tapegrad
from tests.oracles.training import train
from tests.tensors.no_numpy import guard, take_away


class Case(NamedTuple):
    build: str
    shapes: Mapping[str, tuple[int, ...]]
    call: str = "model(x)"
    integers: Mapping[str, Any] = MappingProxyType({})

    def arrays(self) -> dict[str, Any]:
        random = np.random.default_rng(3)
        floats = {name: random.standard_normal(shape) for name, shape in self.shapes.items()}
        return {**floats, **self.integers}


def x(*shape: int) -> dict[str, tuple[int, ...]]:
    return {"x": shape}


LABELS = {"y": np.array([1, 0, 3, 2, 1])}
MASK = np.triu(np.ones((4, 6), bool), 3)
PADDING = np.array([[False] * 6, [False] * 4 + [True] * 2])
SEQUENCES = {"q": (4, 2, 8), "k": (6, 2, 8), "v": (6, 2, 8)}
CASES = [
    Case("nn.Linear(4, 3)", x(5, 4)),
    Case("nn.Linear(4, 3, bias=False)", x(2, 5, 4)),
    Case("nn.Linear(4, 3)", x(4)),
    Case("nn.Identity(7)", x(3)),
    Case("nn.Flatten()", x(2, 3, 4)),
    Case("nn.Flatten(0, 1)", x(2, 3, 4)),
    Case("nn.Conv2d(2, 4, 3)", x(2, 2, 6, 5)),
    Case("nn.Conv2d(2, 4, (3, 2), stride=2, padding=(1, 0), bias=False)", x(2, 2, 7, 6)),
    Case("nn.Conv2d(4, 6, 3, dilation=2, groups=2, padding=2)", x(1, 4, 6, 6)),
    Case("nn.Conv2d(2, 3, 3, padding='same')", x(2, 2, 5, 5)),
    Case("nn.Conv2d(2, 3, (4, 3), padding='same', dilation=(1, 2))", x(2, 2, 7, 6)),
    Case("nn.Conv2d(2, 3, 2, padding='valid')", x(2, 2, 5, 5)),
    Case("nn.Conv2d(2, 3, 3, 2, (2, 1), padding_mode='reflect')", x(2, 2, 5, 4)),
    Case("nn.Conv2d(2, 3, (2, 3), padding='same', padding_mode='replicate')", x(2, 2, 5, 4)),
    Case("nn.Conv2d(2, 4, 3, padding=2, groups=2, padding_mode='circular')", x(2, 5, 4)),
    Case("nn.BatchNorm1d(3)", x(6, 3)),
    Case("nn.BatchNorm1d(3, momentum=None, eps=1e-3)", x(4, 3, 5)),
    Case("nn.BatchNorm1d(3, affine=False)", x(6, 3)),
    Case("nn.BatchNorm2d(3)", x(4, 3, 3, 2)),
    Case("nn.BatchNorm2d(3, bias=False)", x(4, 3, 3, 2)),
    Case("nn.BatchNorm2d(3, track_running_stats=False)", x(4, 3, 3, 2)),
    Case("nn.LayerNorm(4)", x(3, 4)),
    Case("nn.LayerNorm((3, 4), eps=1e-3, bias=False)", x(2, 3, 4)),
    Case("nn.LayerNorm([4], elementwise_affine=False)", x(3, 4)),
    Case("nn.MaxPool2d(2)", x(2, 3, 6, 4)),
    Case("nn.MaxPool2d(3, stride=2, padding=1, ceil_mode=True)", x(1, 2, 6, 6)),
    Case("nn.MaxPool2d((2, 3), dilation=(2, 1))", x(1, 2, 7, 6)),
    Case("nn.AvgPool2d(2)", x(2, 3, 6, 4)),
    Case("nn.AvgPool2d(3, 2, padding=1, count_include_pad=False)", x(1, 2, 6, 6)),
    Case("nn.AvgPool2d(3, 2, ceil_mode=True, divisor_override=4)", x(1, 2, 6, 6)),
    Case("nn.AvgPool2d(3, 2, ceil_mode=True)", x(1, 2, 6, 6)),
    Case("nn.AdaptiveAvgPool2d((2, 3))", x(1, 2, 5, 7)),
    Case("nn.AdaptiveAvgPool2d(7)", x(1, 2, 1, 3)),
    Case("nn.ReLU()", x(3, 4)),
    Case("nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))", x(3, 4)),
    Case("nn.GELU()", x(3, 4)),
    Case("nn.GELU(approximate='tanh')", x(3, 4)),
    Case("nn.SiLU()", x(3, 4)),
    Case("nn.Sigmoid()", x(3, 4)),
    Case("nn.Tanh()", x(3, 4)),
    Case("nn.Softplus()", x(3, 4)),
    Case("nn.Softplus(beta=2, threshold=1)", x(3, 4)),
    Case("nn.Softmax(-1)", x(3, 4)),
    Case("nn.Softmax(dim=0)", x(3, 4)),
    Case("nn.LogSoftmax(1)", x(3, 4, 2)),
    Case("nn.Dropout(0.0)", x(3, 4)),
    Case("nn.Embedding(5, 3)", {}, "model(y)", {"y": np.array([[1, 2, 2], [0, 4, 1]])}),
    Case("nn.Embedding(5, 3, padding_idx=-1)", {}, "model(y)", {"y": np.array([1, 4, 4, 0])}),
    Case("nn.L1Loss()", {"x": (3, 4), "z": (3, 4)}, "model(x, z)"),
    Case("nn.MSELoss(reduction='sum')", {"x": (3, 4), "z": (3, 4)}, "model(x, z)"),
    Case("nn.MSELoss(reduction='none')", {"x": (3, 4), "z": (3, 4)}, "model(x, z)"),
    Case("nn.BCEWithLogitsLoss()", {"x": (3, 4)}, "model(x, tt.sigmoid(3 * x.detach()))"),
    Case(
        "nn.BCEWithLogitsLoss(tt.tensor([1.0, 0.5, 2.0]), pos_weight=tt.tensor([2.0, 1.0, 3.0]))",
        {"x": (4, 3)},
        "model(x, (x.detach() > 0).to(x.dtype))",
    ),
    Case("nn.NLLLoss()", x(5, 4), "model(x, y)", LABELS),
    Case(
        "nn.NLLLoss(tt.tensor([1.0, 2.0, 0.5, 3.0]), ignore_index=2)",
        x(5, 4),
        "model(x, y)",
        LABELS,
    ),
    Case("nn.CrossEntropyLoss()", x(5, 4), "model(x, y)", LABELS),
    Case(
        "nn.CrossEntropyLoss(tt.tensor([1.0, 2.0, 0.5, 3.0]), ignore_index=0, label_smoothing=0.1)",
        x(5, 4),
        "model(x, y)",
        LABELS,
    ),
    Case("nn.CrossEntropyLoss(reduction='none')", x(5, 4), "model(x, y)", LABELS),
    Case("nn.CrossEntropyLoss(reduction='sum')", x(5, 4), "model(x, tt.softmax(-x.detach(), 1))"),
    Case("nn.MultiheadAttention(8, 2)", SEQUENCES, "model(q, k, v)"),
    Case("nn.MultiheadAttention(8, 4, bias=False)", x(5, 2, 8), "model(x, x, x)"),
    Case("nn.MultiheadAttention(8, 2, batch_first=True)", x(2, 5, 8), "model(x, x, x)"),
    Case("nn.MultiheadAttention(8, 2)", x(5, 8), "model(x, x, x)"),
    Case("nn.MultiheadAttention(8, 2)", SEQUENCES, "model(q, k, v, need_weights=False)[0]"),
    Case(
        "nn.MultiheadAttention(8, 2)",
        SEQUENCES,
        "model(q, k, v, average_attn_weights=False, attn_mask=m, key_padding_mask=p)",
        {"m": MASK, "p": PADDING},
    ),
    Case(
        "nn.MultiheadAttention(8, 2)",
        SEQUENCES,
        "model(q, k, v, need_weights=False, attn_mask=m, key_padding_mask=p)[0]",
        {"m": MASK, "p": PADDING},
    ),
    Case(
        "nn.MultiheadAttention(8, 2)",
        {**SEQUENCES, "m": (4, 4, 6)},
        "model(q, k, v, attn_mask=m)",
    ),
    Case(
        "nn.MultiheadAttention(8, 2, kdim=5, vdim=6)",
        {"q": (4, 2, 8), "k": (6, 2, 5), "v": (6, 2, 6)},
        "model(q, k, v)",
    ),
    Case(
        "nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True)",
        SEQUENCES,
        "model(q, k, v, attn_mask=m, key_padding_mask=p)",
        {"m": MASK, "p": PADDING},
    ),
    Case(
        "nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), "
        "nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3))",
        x(3, 1, 6, 6),
    ),
    Case("nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 2)])", x(3, 4), "model[1](model[0](x))"),
]


IDS = [f"{case.build}-{case.call}" for case in CASES]


@pytest.mark.parametrize(("dtype", "rtol"), [("float64", 1e-9), ("float32", 2e-4)])
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_module_trains_as_in_pytorch(torch: Torch, case: Case, dtype: str, rtol: float) -> None:
    arguments = case.build, case.call, case.arrays(), dtype
    assert_equal(train(tapegrad(), *arguments), torch(train, *arguments), rtol)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_module_trains_on_the_reference_device(torch: Torch, case: Case) -> None:
    arguments = case.build, case.call, case.arrays(), "float64"
    ours = train(tapegrad(), *arguments, device="reference")
    assert_equal(ours, torch(train, *arguments), 1e-9)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_numpy_computes_nothing(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    library = tapegrad()
    drawn = [case.arrays() for case in CASES]
    train(library, CASES[0].build, CASES[0].call, drawn[0], dtype)
    take_away(monkeypatch)
    for case, arrays in zip(CASES, drawn, strict=True):
        train(library, case.build, case.call, arrays, dtype, prepare=_guard_all)


def _guard_all(model: Any, inputs: dict[str, Any]) -> None:
    for each in [*model.parameters(), *model.buffers(), *inputs.values()]:
        guard(each)
