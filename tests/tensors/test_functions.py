"""Functions of one's own, checkpoints, fused functions and the checks of gradients."""

from __future__ import annotations

import gc
import weakref
from collections import OrderedDict
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import tapegrad as tg
import tapegrad.tensors as tt
from tapegrad.errors import DeviceError, DTypeError, GradError, OptionError, ShapeError
from tests.tensors.cases import DEVICES


class Cube(tt.Function):
    """A function whose gradient is written in operations, so it has gradients in turn."""

    @staticmethod
    def forward(ctx: Any, x: Any, factor: float) -> Any:
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * x * x * factor

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (x,) = ctx.saved_tensors
        return gradients[0] * 3 * ctx.factor * x * x, None


class SumAndDifference(tt.Function):
    @staticmethod
    def forward(ctx: Any, a: Any, b: Any) -> Any:
        return a + b, a - b

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        of_sum, of_difference = gradients
        zero = 0.0
        s = zero if of_sum is None else of_sum
        d = zero if of_difference is None else of_difference
        return s + d, s - d


def leaf(*values: float) -> Any:
    return tt.tensor(list(values), dtype="float64", requires_grad=True)


def test_a_function_of_ones_own_has_its_own_gradient() -> None:
    x = leaf(1.0, -2.0)
    y = Cube.apply(x, 2.0)
    assert y.tolist() == [2.0, -16.0] and not y.is_leaf
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [6.0, 24.0]
    assert tt.gradcheck(lambda x: Cube.apply(x, 0.5), x)
    assert tt.gradgradcheck(lambda x: Cube.apply(x, 0.5), x)


def test_a_function_of_several_tensors() -> None:
    a, b = leaf(1.0, 2.0), leaf(3.0, 4.0)
    total, difference = SumAndDifference.apply(a, b)
    (total * 2 + difference).sum().backward()
    assert a.grad is not None and b.grad is not None
    assert a.grad.tolist() == [3.0, 3.0] and b.grad.tolist() == [1.0, 1.0]
    (only,) = tt.grad(SumAndDifference.apply(a, b)[1].sum(), b)
    assert only.tolist() == [-1.0, -1.0]


def test_a_function_must_return_a_gradient_per_argument() -> None:
    class Short(tt.Function):
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            return a * b

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return gradients[0]

    with pytest.raises(GradError, match="expected 2 gradients"):
        Short.apply(leaf(1.0), leaf(2.0)).sum().backward()


def test_what_a_function_saved_may_not_be_changed() -> None:
    x = leaf(1.0) * 1
    y = Cube.apply(x, 1.0)
    x.mul_(2)
    with pytest.raises(GradError, match=r"Cube.*changed in place"):
        y.sum().backward()


def test_a_function_that_saves_its_results_lets_go_of_them() -> None:
    class Exp(tt.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y, twice = x.exp(), x * 2
            ctx.save_for_backward(y, twice)
            return y, twice, 3

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            y, _ = ctx.saved_tensors
            return gradients[0] * y + gradients[1] * 2

    x = leaf(1.0, 2.0)
    gc.disable()
    try:
        for backward in (False, True):
            y, twice, _ = Exp.apply(x)
            ends = [weakref.ref(y), weakref.ref(twice), weakref.ref(y.grad_fn.op)]
            if backward:
                (y + twice).sum().backward(retain_graph=True)
            del y, twice
            assert [end() for end in ends] == [None] * 3
    finally:
        gc.enable()


def test_a_function_says_what_it_cannot_do() -> None:
    class Dirty(tt.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, way: str) -> Any:
            if way == "list":
                return [x]
            getattr(ctx, way)(x)
            return x

    for way, error in (("mark_dirty", GradError), ("save_for_forward", GradError)):
        with pytest.raises(error, match=way):
            Dirty.apply(leaf(1.0), way)
    with pytest.raises(DTypeError, match="a tensor or a tuple, got list"):
        Dirty.apply(leaf(1.0), "list")


class Pair(NamedTuple):
    a: Any
    b: Any


def test_checkpoints_do_not_miss_tensors_in_objects() -> None:
    x = leaf(1.0)
    with pytest.raises(DTypeError, match=r"checkpoint.*SimpleNamespace"):
        tt.checkpoint(lambda x: SimpleNamespace(y=x * 2), x)
    assert tt.checkpoint(lambda x: (None, "a", 3, np.float64(2)), x) == (None, "a", 3, 2.0)
    found = tt.checkpoint(lambda x: Pair(x * 2, OrderedDict(c=x * 3)), x)
    assert isinstance(found, Pair) and type(found.b) is OrderedDict
    (found.a + found.b["c"]).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [5.0]


def test_checkpoints_give_the_same_gradients() -> None:
    w, x = leaf(0.5, -0.3), leaf(1.0, 2.0)

    def part(x: Any) -> Any:
        return tt.dropout((x * w).sin(), 0.5).exp()

    tt.manual_seed(3)
    part(x).sum().backward()
    assert x.grad is not None and w.grad is not None
    expected, x.grad = x.grad, None
    expected_w, w.grad = w.grad, None
    tt.manual_seed(3)
    y = tt.checkpoint(part, x)
    state = tt.random.DEFAULT.get_state()
    y.sum().backward()
    assert x.grad is not None and w.grad is not None
    assert x.grad.tolist() == expected.tolist() and w.grad.tolist() == expected_w.tolist()
    assert tt.random.DEFAULT.get_state() == state


def test_checkpoints_of_inputs_without_gradients_reach_parameters() -> None:
    w = leaf(2.0, 3.0)
    y = tt.checkpoint(lambda x: x * w * w, tt.ones(2, dtype="float64"))
    assert y.requires_grad
    y.sum().backward()
    assert w.grad is not None and w.grad.tolist() == [4.0, 6.0]


@pytest.mark.parametrize(
    ("second", "found"),
    [
        (lambda x: x[:1].sin(), r"float32 of shape \(1,\)"),
        (lambda x: x.double().sin(), r"float64 of shape \(4,\)"),
        (lambda x: (), "nothing"),
        (lambda x: 3.0, "a float"),
    ],
)
def test_checkpoints_must_compute_the_same_again(second: Any, found: str) -> None:
    x, calls = tg.ones(4, requires_grad=True), []

    def changing(x: Any) -> Any:
        calls.append(x)
        return x.sin() if len(calls) == 1 else second(x)

    y = tg.checkpoint(changing, x)
    with pytest.raises(GradError, match=rf"float32 of shape \(4,\) the first time, and {found}"):
        y.sum().backward()
    assert x.grad is None


def test_checkpoints_keep_less() -> None:
    x = leaf(*range(5))
    y = tt.checkpoint(lambda x: x.exp().sin().exp(), x)
    assert y.grad_fn is not None and len(y.grad_fn.edges) == 1 and y.grad_fn.edges[0] is x


@pytest.mark.parametrize("device", DEVICES)
def test_fused_functions_are_their_parts(device: str) -> None:
    @tt.elementwise
    def swish(x: Any, beta: Any) -> Any:
        return x * tg.sigmoid(beta * x)

    x = tt.tensor([[0.5, -1.0], [2.0, 0.0]], dtype="float64", device=device, requires_grad=True)
    b = tt.tensor([1.0, 2.0], dtype="float64", device=device, requires_grad=True)
    plain = x * (x * b).sigmoid()
    np.testing.assert_allclose(swish(x, b).detach().numpy(), plain.detach().numpy(), rtol=1e-12)
    assert tt.gradcheck(swish, [x, b]) and tt.gradgradcheck(swish, [x, b])
    assert swish(x.float(), 1.5).dtype is tt.float32


def test_fused_functions_have_names_and_defaults() -> None:
    @tt.elementwise
    def scaled(x: Any, a: Any = 3.0, *, b: Any = 0.5) -> Any:
        return x * a + b

    x = leaf(1.0, 2.0)
    assert scaled(x).tolist() == [3.5, 6.5]
    assert scaled(x, 1.0).tolist() == [1.5, 2.5] and scaled(x, b=x).tolist() == [4.0, 8.0]
    assert scaled(a=x, x=2.0).tolist() == [2.5, 4.5]
    scaled(x, b=x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [4.0, 4.0]
    for args, named in (((), {}), ((x, 1.0, 2.0), {}), ((x,), {"c": 1.0}), ((x,), {"x": x})):
        with pytest.raises(ShapeError, match="expected x, a, b"):
            scaled(*args, **named)
    with pytest.raises(OptionError, match=r"got \*xs"):
        tt.elementwise(lambda *xs: xs[0])


def test_fused_functions_of_many_operands_agree_on_both_devices() -> None:
    @tt.elementwise
    def mixed(x: Any, y: Any, z: Any) -> Any:
        a, b, c = tg.softmax([x, y, z])
        return a * tg.max([x, y]) + b * tg.logsumexp([x, z]) + tg.prod([x, c, y]) - tg.min([y, z])

    values = np.random.default_rng(3).standard_normal((3, 5))
    found = []
    for device in DEVICES:
        x, y, z = (tt.tensor(row, device=device).requires_grad_() for row in values)
        out = mixed(x, y, z)
        first = tt.grad(out.sum(), [x, y, z], create_graph=True)
        second = tt.grad(sum((each * each).sum() for each in first), [x, y, z])
        found.append([each.detach().numpy() for each in (out, *first, *second)])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
    with pytest.raises(ShapeError, match="broadcast"):
        mixed(x, y, tt.ones(4, device="reference"))


@pytest.mark.parametrize("device", DEVICES)
def test_fused_updates_write_in_place(device: str) -> None:
    @tt.elementwise
    def step(p: Any, g: Any, m: Any, lr: Any) -> Any:
        m = 0.9 * m + g
        return p - lr * m, m

    p, g, m = (tt.full((3,), value, device=device) for value in (1.0, 2.0, 3.0))
    before = p._version
    step(p, g, m, 0.5, out=(p, m))
    np.testing.assert_allclose(m.numpy(), 4.7, rtol=1e-6)
    np.testing.assert_allclose(p.numpy(), 1 - 0.5 * 4.7, rtol=1e-6)
    assert p._version == before + 1
    with pytest.raises(ShapeError, match="p, g, m, lr"):
        step(p, g, m)
    with pytest.raises(GradError, match=r"no_grad\(\)"):
        step(p, g, m, 0.5, out=(p.requires_grad_(), m))


def test_what_is_written_has_no_gradient() -> None:
    @tt.elementwise
    def both(a: Any, b: Any) -> Any:
        return a + b, a * b

    x, y, z = leaf(1.0, 2.0), leaf(3.0, 4.0).detach(), leaf(0.0, 0.0).detach()
    for operands, out in (((x, y), (y, z)), ((y, z), (x, z)), ((y, x), (y, z))):
        with pytest.raises(GradError, match=r"no gradient.*no_grad\(\)"):
            both(*operands, out=out)
    h = x * 1
    with tt.no_grad():
        assert both(h, x, out=(h, z))[0] is h
    assert h.tolist() == [2.0, 4.0] and z.tolist() == [1.0, 4.0] and h.grad_fn is not None
    square = h * h
    with tt.no_grad():
        both(h, 1.0, out=(h, z))
    with pytest.raises(GradError, match="changed in place"):
        square.sum().backward()


def test_results_are_written_into_tensors_of_the_same_device() -> None:
    @tt.elementwise
    def both(a: Any, b: Any) -> Any:
        return a + b, a * b

    x, there = tt.ones(2), tt.ones(2, device="reference")
    with pytest.raises(DeviceError, match="reference"):
        both(x, x, out=(there, tt.ones(2)))
    assert there.tolist() == [1.0, 1.0]
    for wrong in ((None, x), (x, 3), {"a": x}, 3, ("a", "b")):
        with pytest.raises(DTypeError, match="expected a tensor per result"):
            both(x, x, out=wrong)
    with pytest.raises(ShapeError, match="2 arrays for results, got 1"):
        both(x, x, out=x)


def test_checks_find_wrong_gradients() -> None:
    class Wrong(tt.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return gradients[0] * 3

    x = leaf(1.0, 2.0)
    with pytest.raises(GradError, match="by differences"):
        tt.gradcheck(Wrong.apply, x)
    assert not tt.gradcheck(Wrong.apply, x, raise_exception=False)
    with pytest.raises(DTypeError, match="float64"):
        tt.gradcheck(lambda x: x * 2, tt.ones(2, requires_grad=True))

    class WrongTwice(Cube):
        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            (x,) = ctx.saved_tensors
            return gradients[0] * 3 * ctx.factor * x.detach() * x, None

    assert tt.gradcheck(lambda x: WrongTwice.apply(x, 1.0), x)
    with pytest.raises(GradError, match="by differences"):
        tt.gradgradcheck(lambda x: WrongTwice.apply(x, 1.0), x)

    class Forgets(Cube):
        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            (x,) = ctx.saved_tensors
            return gradients[0] * 3 * ctx.factor * x.detach() ** 2, None

    with pytest.raises(GradError, match="by differences"):
        tt.gradgradcheck(lambda x: Forgets.apply(x, 1.0), x)

    class ForgetsWeights(Cube):
        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            (x,) = ctx.saved_tensors
            return gradients[0].detach() * 3 * ctx.factor * x * x, None

    with pytest.raises(GradError, match="by differences"):
        tt.gradgradcheck(lambda x: ForgetsWeights.apply(x, 1.0), x)


def test_checks_take_results_without_gradients_as_constant() -> None:
    x = leaf(1.0, 2.0)
    with pytest.raises(GradError, match="by differences"):
        tt.gradcheck(lambda x: (x * x).detach(), x)
    with pytest.raises(GradError, match="output 1"):
        tt.gradcheck(lambda x: (x * x, (x * x).detach()), x)
    assert tt.gradcheck(lambda x: (x * x, tt.ones(2), x.argmax()), x)
    with pytest.raises(GradError, match="expected a function whose results require"):
        tt.gradgradcheck(lambda x: x.detach(), x)
    assert tt.gradgradcheck(lambda x: x * 2, x)
    assert tt.gradgradcheck(lambda x, y: x * x, [x, leaf(3.0)])
