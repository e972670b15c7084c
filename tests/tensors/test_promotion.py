"""Number types of results, for all pairs of operands, against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tapegrad as tg
import tapegrad.tensors as tt
from tapegrad.errors import DTypeError, ShapeError
from tests.oracles.torch import Torch, tapegrad
from tests.tensors.cases import DEVICES
from tests.tensors.torch_calls import promotions

KINDS = ["bool", "int32", "int64", "float32", "float64"]
NUMBERS = [True, 3, 1.5]
OPS = [
    *("a + b", "a * b", "a / b", "a == b", "a < b"),
    *("tt.maximum(a, b)", "tt.where(a > 0, a, b)", "a - b", "tt.sub(a, b)", "-a + b"),
]
REDUCTIONS = ["sum", "prod", "mean", "amax", "any", "cumsum", "argmax"]


def test_types_of_two_operands_are_those_of_pytorch(torch: Torch) -> None:
    theirs = torch(promotions, KINDS, NUMBERS, OPS)
    ours = promotions(tapegrad(), KINDS, NUMBERS, OPS)
    assert len(theirs) > 700
    wrong = {
        what: (ours[what], kind)
        for what, kind in theirs.items()
        if ours[what] != kind and (kind != "error" or "-" in what or "sub" in what)
    }
    assert wrong == {}


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "maximum", "lt", "eq", "pow", "atan2"])
def test_types_are_the_same_on_both_devices(op: str) -> None:
    for left in KINDS:
        for right in [*KINDS, *NUMBERS]:
            if op == "sub" and {left, right} & {"bool", True}:  # bools have no difference
                continue
            if op == "pow" and left == right == "bool":  # and no powers by each other
                continue
            kinds = []
            for where in DEVICES:
                a = tt.ones(2, dtype=left, device=where)
                b = tt.ones(2, dtype=right, device=where) if isinstance(right, str) else right
                kinds.append(getattr(tt, op)(a, b).dtype)
            assert kinds[0] is kinds[1], (op, left, right)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
def test_reductions_keep_floats_and_widen_whole_numbers(kind: str, device: str) -> None:
    x = tt.ones((2, 3), dtype=kind, device=device)
    floating = x.is_floating_point()
    assert (
        x.sum().dtype is x.prod().dtype is x.cumsum(0).dtype is (x.dtype if floating else tt.int64)
    )
    assert x.amax().dtype is x.max(0).values.dtype is x.dtype
    assert x.argmax().dtype is x.max(0).indices.dtype is tt.int64
    assert x.any().dtype is x.all().dtype is tt.bool_
    assert x.sum(dtype=tt.float64).dtype is tt.float64
    assert float(x.sum()) == 6.0


@pytest.mark.parametrize("device", DEVICES)
def test_functions_of_whole_numbers_give_float32(device: str) -> None:
    x = tt.tensor([1, 2, 3], device=device)
    np.testing.assert_allclose(x.exp().numpy(), np.exp([1, 2, 3]), rtol=1e-6)
    assert x.sqrt().dtype is tt.sigmoid(x).dtype is (x / 2).dtype is tt.float32
    assert x.abs().dtype is x.neg().dtype is x.square().dtype is tt.int64


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "number", [np.int32(3), np.int64(3), np.uint8(3), np.float32(3), np.bool_(1)]
)
def test_numbers_of_numpy_are_numbers(number: Any, device: str) -> None:
    plain = number.item()
    for kind in KINDS:
        x = tt.ones(2, dtype=kind, device=device)
        for ours, expected in (
            (x * number, x * plain),
            (number + x, plain + x),
            (number / x, plain / x),
            (x == number, x == plain),
            (tt.maximum(x, number), tt.maximum(x, plain)),
        ):
            assert ours.dtype is expected.dtype and ours.tolist() == expected.tolist()


def test_other_operands_are_refused() -> None:
    x = tt.ones(2)
    for other in (np.ones(2), np.array(1.0)):
        for call in (lambda: x * other, lambda: other * x, lambda: x @ other):  # noqa: B023
            with pytest.raises(DTypeError, match=r"tg\.from_numpy"):
                call()
    for thing in (None, "text", 1j, [1.0]):
        with pytest.raises(TypeError):
            x + thing
    with pytest.raises(DTypeError, match="64 bits"):
        x + 10**30


def test_matrices_of_two_types_are_an_error_that_names_them() -> None:
    with pytest.raises(DTypeError, match="float32, float64"):
        tt.matmul(tt.ones(2, 2), tt.ones(2, 2, dtype="float64"))
    with pytest.raises(DTypeError, match=r"int32, int64; convert one, as by x\.to"):
        tt.matmul(tt.ones(2, 2, dtype="int32"), tt.ones(2, 2, dtype="int64"))
    with pytest.raises(DTypeError, match=r"bool; use x\.float\(\)"):
        tt.matmul(tt.ones(2, 2, dtype="bool"), tt.ones(2, 2, dtype="bool"))
    with pytest.raises(DTypeError, match="floating point"):
        tt.tensor([1, 2]).mean()


def test_types_have_names_and_one_object_each() -> None:
    assert tt.ones(1, dtype=np.float64).dtype is tt.ones(1, dtype="float64").dtype is tt.float64
    assert tt.ones(1, dtype=float).dtype is tt.float64
    assert repr(tt.int32) == "tapegrad.int32"
    names = {"bool": "bool", "int": "int32", "long": "int64", "float": "float32"}
    for name, kind in (names | {"double": "float64"}).items():
        assert getattr(tg, name) is getattr(tt, name) is tt.ones(1, dtype=kind).dtype
        assert name not in tg.__all__  # which may be Python's
    with pytest.raises(DTypeError, match="float16"):
        tt.ones(1, dtype="float16")


@pytest.mark.parametrize("device", DEVICES)
def test_casts_cut_off_and_bools_are_zero_or_not(device: str) -> None:
    x = tt.tensor([-1.7, 0.0, 2.9], device=device)
    assert x.int().tolist() == [-1, 0, 2]
    assert x.bool().tolist() == [True, False, True]
    assert x.double().dtype is tt.float64 and x.long().dtype is tt.int64
    assert x.to(tt.float32) is x and x.type_as(tt.tensor([1])).dtype is tt.int64


def test_shapes_and_ends_have_names() -> None:
    for make in (tt.zeros, tt.ones, tt.empty, tt.rand, tt.randn):
        assert make(size=(2, 3)).shape == make(size=[2, 3]).shape == make(2, 3).shape == (2, 3)
        with pytest.raises(ShapeError, match="got both"):
            make(2, size=(2,))
    assert tt.arange(end=3).tolist() == [0, 1, 2] and tt.arange(start=1, end=3).tolist() == [1, 2]
    with pytest.raises(ShapeError, match="expected an end"):
        tt.arange()
