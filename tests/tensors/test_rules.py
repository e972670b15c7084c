"""Rules of PyTorch's at their edges: what is refused, what changes in place, gradients at 0."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
import tapegrad.tensors as tt
from tapegrad import nn
from tapegrad.errors import DTypeError, OptionError, ShapeError, TapegradError
from tests.oracles.torch import Torch, tapegrad
from tests.tensors.cases import DEVICES
from tests.tensors.torch_calls import changed, gradients_of, refusals

NAN, INF = float("nan"), float("inf")
#: Refused by both.
REFUSED = [
    *("t([2, 3]).pow_(0.5)", "t([2, 3]).pow_(t([0.5, 1.0]))", "t([5]).clamp_(max=2.5)"),
    *("t([2]).add_(0.5)", "-t([True])", "t([True]) - t([True])", "t([True]) - 1", "1 - t([True])"),
    *("t([1.0]) - t([True])", "t([1.0]) - True", "t([True]).neg_()", "t([1.0]).sub_(True)"),
    *("tt.tensor(2**63)", "tt.tensor([1, 2**63])", "tt.tensor([[-(2**63) - 1]])"),
    *("tt.tensor([2**40], dtype=tt.int32)", "tt.tensor([2.5e12], dtype=tt.int32)"),
    *("tt.tensor([float('nan')], dtype=tt.int64)", "tt.tensor(2**70)", "tt.full((2,), 2**63)"),
    *("tt.full((2,), 2**40, dtype=tt.int32)", "tt.full((2,), float('inf'), dtype=tt.int64)"),
    *(
        "t([1], dtype=tt.int32).fill_(2**40)",
        "t([1], dtype=tt.int32).masked_fill(t([True]), 2**40)",
    ),
    *("t([1.0]).masked_fill(t([True]), t([1.0]))", "t([1.0]).masked_fill(t([1]), 1.0)"),
    *(
        "F.one_hot(t([5]), 3)",
        "F.one_hot(t([-1]))",
        "F.one_hot(t([-1]), 3)",
        "F.one_hot(t([1]), 0)",
    ),
    *(
        "F.one_hot(tt.zeros(0, dtype=tt.int64))",
        "tt.bernoulli(t([2.0]))",
        "tt.bernoulli(t([-0.1]))",
    ),
    *("tt.bernoulli(t([float('nan')]))", "tt.bernoulli(t([1]))", "t([[True]]) @ t([[True]])"),
    *("t([1], dtype=tt.int32) @ t([1])", "t(1.0).unbind()", "t(1.0).chunk(2)", "t(1.0).split(1)"),
    *("t(1.0).narrow(0, 0, 1)", "t(1.0).unflatten(0, (1, 1))", "t(1.0).roll(1, 0)"),
    *("t([[1.0]]).sum(0, 1)", "tt.randint(0, 2.5, (2,))", "tt.randn(2, generator=5)"),
    *("None in t([1.0])", "'a' in t([1.0])", "t([1.0]) << 1", "t([1.5]) & 1", "2.0 >> t([1])"),
    *("~t([1.5])", "t([1]) | 0.5", "t([1, 2]) ^ t([1.0, 2.0])", "t([True]).__ior__(t([2]))"),
    *("F.pad(t([[1.0, 2.0]]), (2, 0), mode='reflect')", "tt.einsum('i,i', t([1.0]), 2)"),
    *("F.pad(t([[1.0, 2.0]]), (3, 0), mode='circular')", "F.pad(t([[1.0]]), (1, 1), mode='no')"),
    *(
        f"F.avg_pool2d(tt.ones(1, 2, 2), 2, divisor_override={each})"
        for each in ("0", "1.5", "'a'")
    ),
    "F.scaled_dot_product_attention(*[tt.ones(1, 2, 3)] * 3, attn_mask=tt.ones(2, 2).long())",
]
#: Refused by neither.
ALLOWED = [
    *(
        "t([2.5]).pow_(2)",
        "t([2]).pow_(2)",
        "t([5]).clamp_(max=2)",
        "t([1]).masked_fill_(t([True]), 2.5)",
    ),
    *("tt.tensor([300.7], dtype=tt.int32)", "tt.tensor([1.5, 2**63])", "tt.tensor([2**63 - 1])"),
    *(
        "tt.tensor([1, 2**63], dtype=tt.float32)",
        "tt.full((2,), 2.5, dtype=tt.int32)",
        "t(1.0).roll(1)",
    ),
    *("F.one_hot(tt.zeros(0, dtype=tt.int64), 3)", "tt.where(t([1, 0]))", "t([[1.0]]).flip(0, 1)"),
    *("1.0 in t([1.0])", "tt.cat([tt.zeros(0), tt.ones(2, 3)])", "t([1]) << 1", "t([True]) & True"),
    *("t([True]) & 0", "t([1], dtype=tt.int32).__iand__(t([3]))", "~t([1])", "t([True]) ^ t([2])"),
]


@pytest.mark.parametrize("device", DEVICES)
def test_what_pytorch_refuses_is_refused(torch: Torch, device: str) -> None:
    expressions = [*REFUSED, *ALLOWED]
    expected = [True] * len(REFUSED) + [False] * len(ALLOWED)
    assert torch(refusals, expressions) == expected
    ours = refusals(tapegrad(), expressions, device)
    pairs = zip(expressions, ours, expected, strict=True)
    assert [text for text, found, wanted in pairs if found != wanted] == []


@pytest.mark.parametrize("expression", REFUSED)
def test_what_is_refused_is_explained(expression: str) -> None:
    names = {"tt": tt, "F": nn.functional, "t": tt.tensor}
    with pytest.raises((TapegradError, IndexError)) as caught:
        eval(expression, names)
    text = str(caught.value)
    assert len(text) > 30 and "object has no attribute" not in text and "overload" not in text
    assert "tuple index" not in text


GRADIENTS: list[tuple[str, list[Any]]] = [
    ("x.std()", [[1.0, 1.0, 1.0]]),
    ("x.std(0)", [[[1.0, 2.0], [1.0, 3.0]]]),
    ("x.std(correction=2)", [[1.0, 2.0]]),
    ("x.var(correction=2)", [[1.0, 2.0]]),
    ("x.var(correction=3)", [[1.0, 2.0, 1.5]]),
    ("x.var()", [[1.0]]),
    ("x.logsumexp(0)", [[INF, 1.0, 2.0]]),
    ("x.logsumexp(0)", [[-INF, 1.0, 2.0]]),
    ("x.logsumexp(0)", [[NAN, 1.0]]),
    ("x ** y", [[0.0, 0.0, 0.0, 0.0, 2.0, 3.0], [0.0, 1.0, 2.0, -1.0, 0.0, 2.0]]),
    ("0.0 ** x", [[0.0, 1.0, 2.0]]),
    ("x ** y", [0.0, [0.0, 1.0]]),
    ("x.max(dim=0)[0]", [1.5]),
    ("x.min(dim=-1, keepdim=True)[0]", [1.5]),
    ("x.sort(dim=0)[0]", [1.5]),
    ("x.clamp(min=float('nan'))", [[1.0, 2.0]]),
    ("x.clamp(y)", [[1.0, 2.0, 3.0], [2.0, 1.0, 3.5]]),
    ("x.clamp(2, 1)", [[0.0, 1.5, 3.0]]),
    ("tt.where(x > 1, x, y)", [[0.0, 1.5], [2.0, 3.0]]),
    ("tt.cat([y, x])", [[[1.0, 2.0]], []]),
    ("x.flip(0, 1) * x", [[[1.0, 2.0], [3.0, 4.0]]]),
    ("F.pad(x[None], (2, 1, 1, 1), mode='reflect') ** 2", [[[1.0, 2.0, 3.0], [3.0, 4.0, 5.0]]]),
    ("F.pad(x, (-1, 1), mode='replicate') ** 2", [[[1.0, 2.0, 3.0], [3.0, 4.0, 5.0]]]),
]


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_at_edges_are_those_of_pytorch(torch: Torch, device: str) -> None:
    for expression, given in GRADIENTS:
        theirs = torch(gradients_of, expression, given)
        ours = gradients_of(tapegrad(), expression, given, device)
        for our, their in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(our, their, 1e-12, 1e-12, err_msg=f"{expression} {given}")


CHANGES = [
    *(f"y.pow_({k})" for k in (2, 3, -1, 2.5, 0.5, 1)),
    *("y **= 2", "y **= z", "y.pow_(z)", "y.clamp_(z)", "y.clamp_(1.0, 2.0)"),
    *("y.index_put_([tt.tensor([2, 0])], z[:2])", "y.index_put_((y > 1.5,), z[0], True)"),
    *("y.index_put_((tt.tensor([0, -1, 0]),), z * 2, accumulate=True)", "y[1:].pow_(z[1:])"),
    *("y.masked_fill_(y > 1.5, 7.0)", "y.masked_fill_(y > 1.5, z.detach().sum())"),
    *("y.masked_fill_(y > 1.5, z.sum())", "y[y > 1.5] = z.sum()", "y[[0, 2]] = z[:2] * 2"),
]


@pytest.mark.parametrize("device", DEVICES)
def test_changes_in_place_are_differentiated_as_in_pytorch(torch: Torch, device: str) -> None:
    given = [[1.0, 1.75, 3.0], [2.0, 1.5, 1.25]]
    for statement in CHANGES:
        theirs = torch(changed, statement, given)
        ours = changed(tapegrad(), statement, given, device)
        assert len(ours) == len(theirs), statement
        for our, their in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(our, their, 1e-12, err_msg=statement)


@pytest.mark.parametrize("device", DEVICES)
def test_bools_change_in_place(device: str) -> None:
    a, b = (tt.tensor(each, device=device) for each in ([True, True, False], [True, False, False]))
    changes: list[Callable[[Any], Any]] = [
        lambda x: x.__iand__(b),
        lambda x: x.__ior__(b),
        lambda x: x.__ixor__(b),
    ]
    wanted = [[True, False, False], [True, True, False], [False, True, False]]
    for change, expected in zip(changes, wanted, strict=True):
        x = a.clone()
        assert change(x) is x and x.tolist() == expected


@pytest.mark.parametrize("device", DEVICES)
def test_masked_products_take_tensors(device: str) -> None:
    x = tt.tensor([0.0, 2.0], device=device, requires_grad=True)
    y = tt.tensor([INF, 3.0], device=device)
    assert tg.masked_mul(x, y).tolist() == [0.0, 6.0]
    assert tg.masked_both(x, y).tolist() == tg.masked_both(y, x).tolist() == [0.0, 6.0]


def test_a_copy_of_a_parameter_is_a_parameter_on_its_memory() -> None:
    weight = nn.Parameter(tt.ones(2))
    made = copy.copy(weight)
    assert type(made) is nn.Parameter and made is not weight and made.requires_grad
    with tt.no_grad():
        made.fill_(3.0)
    assert weight.tolist() == [3.0, 3.0]


def test_errors_name_the_function_that_was_called() -> None:
    x, target = tt.ones(2, 3), tt.tensor([0, 1])
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: tt.cross_entropy(x, tt.tensor([0, 1, 2])), "cross_entropy: "),
        (lambda: tt.cross_entropy(x.long(), target), "cross_entropy: "),
        (lambda: tt.log_softmax(target, 0), "log_softmax: .*float"),
        (lambda: tt.softmax(target, 0), "softmax: .*float"),
        (lambda: tt.layer_norm(tt.ones(0, 2), ()), "layer_norm: .*at least one size"),
        (lambda: tt.linear(x, x.double()), r"linear: .*x\.to\("),
        (lambda: tt.einsum("i,i", x[0], 2), "einsum: expected tensors"),
    ]
    for call, text in calls:
        with pytest.raises((DTypeError, ShapeError, OptionError), match=text):
            call()


def test_gradients_of_few_elements_take_memory_for_these_alone() -> None:
    x = tt.ones(100_000, requires_grad=True)
    y = x[[0, 5]].sum()
    import tracemalloc

    tracemalloc.start()
    try:
        (gradient,) = tt.grad(y, x)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert gradient.sum().item() == 2.0 and gradient[5].item() == 1.0
    assert peak < 2 * gradient.nbytes
