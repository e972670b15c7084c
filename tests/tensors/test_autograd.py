"""The walk back: backward and grad with their options, hooks, modes, errors, deep graphs."""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
import tapegrad.tensors as tt
from tapegrad import nn
from tapegrad.errors import DeviceError, DTypeError, GradError, ShapeError
from tests.tensors.cases import DEVICES


def leaf(*values: float, device: str = "cpu") -> Any:
    return tt.tensor(list(values), dtype="float64", device=device, requires_grad=True)


def test_backward_adds_to_the_gradients_of_leaves() -> None:
    x = leaf(1.0, 2.0)
    (x * x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 4.0]
    (x * x).sum().backward()
    assert x.grad.tolist() == [4.0, 8.0]
    x.grad = None
    (3 * x).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]


def test_backward_of_several_elements_needs_weights() -> None:
    x = leaf(1.0, 2.0)
    with pytest.raises(GradError, match=r"shape \(2,\).*y\.sum\(\)"):
        (x * x).backward()
    (x * x).backward(tt.tensor([1.0, 10.0], dtype="float64"))
    assert x.grad is not None and x.grad.tolist() == [2.0, 40.0]
    with pytest.raises(ShapeError, match=r"\(2,\), got \(3,\)"):
        (x * x).backward(tt.ones(3, dtype="float64"))
    with pytest.raises(DTypeError, match="int64"):
        (x * x).backward(tt.tensor([1, 2]))


def test_a_second_backward_needs_a_graph_that_was_kept() -> None:
    x = leaf(1.0, 2.0)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad is not None and x.grad.tolist() == [4.0, 8.0]
    with pytest.raises(GradError, match="retain_graph=True"):
        y.backward()


@pytest.mark.parametrize("op", [lambda x: x.exp(), lambda x: x * x, lambda x: x.softmax(0)])
def test_a_second_backward_is_an_error_whatever_was_saved(op: Any) -> None:
    y = op(leaf(1.0)).sum()
    y.backward()
    with pytest.raises(GradError, match="retain_graph=True"):
        y.backward()


def test_gradients_of_any_order() -> None:
    x = leaf(0.7, -1.2)
    y = (x.sin() * x.exp()).sum()
    for _ in range(3):
        (y,) = tt.grad(y, x, create_graph=True)
        y = y.sum()
    s, c, e = np.sin([0.7, -1.2]), np.cos([0.7, -1.2]), np.exp([0.7, -1.2])
    np.testing.assert_allclose(y.item(), (e * (2 * c - 2 * s)).sum(), rtol=1e-12)
    (fourth,) = tt.grad(y, x)
    np.testing.assert_allclose(fourth.numpy(), -4 * e * s, rtol=1e-12)
    assert not fourth.requires_grad


def test_backward_with_create_graph_leaves_gradients_with_a_history() -> None:
    x = leaf(2.0)
    (x**3).sum().backward(create_graph=True)
    assert x.grad is not None and x.grad.requires_grad
    (second,) = tt.grad(x.grad.sum(), x)
    assert second.tolist() == [12.0]


def test_grad_leaves_grad_alone_and_stops_at_its_inputs() -> None:
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    middle = x * w
    y = (middle * middle).sum()
    by_middle, by_w = tt.grad(y, [middle, w])
    assert x.grad is None and w.grad is None
    assert by_middle.tolist() == [6.0, 16.0] and by_w.tolist() == [6.0, 32.0]
    assert tg.grad((x * x).sum(), x)[0].tolist() == [2.0, 4.0]


def test_grad_of_what_takes_no_part() -> None:
    x, w = leaf(1.0), leaf(1.0)
    with pytest.raises(GradError, match=r"input 1 .*allow_unused=True"):
        tt.grad(x.sum(), [x, w])
    assert tt.grad(x.sum(), [x, w], allow_unused=True)[1] is None
    with pytest.raises(GradError, match="requires_grad=True"):
        tt.grad(x.sum(), tt.ones(1))
    with pytest.raises(GradError, match="does not depend"):
        tt.ones(1).backward()


def test_an_input_named_twice_gets_its_gradient_twice() -> None:
    x = leaf(3.0)
    first, second = tt.grad((x * x).sum(), [x, x])
    assert first.tolist() == second.tolist() == [6.0]


def test_several_outputs_with_weights() -> None:
    x = leaf(1.0, 2.0)
    y, z = x * x, x.exp()
    tt.backward([y, z.sum()], [tt.ones_like(y), None])
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), [2 + np.e, 4 + np.e**2])


def test_backward_with_inputs_fills_those_alone() -> None:
    x, w = leaf(1.0), leaf(2.0)
    (x * w).sum().backward(inputs=[w])
    assert x.grad is None and w.grad is not None and w.grad.tolist() == [1.0]
    y = x * 2
    (y * y).sum().backward(inputs=y)
    assert x.grad is None and y.grad is not None and y.grad.tolist() == [4.0]
    with pytest.raises(GradError, match="at least one"):
        y.sum().backward(inputs=[])
    with pytest.raises(GradError, match="require gradients"):
        y.sum().backward(inputs=tt.ones(1))
    with pytest.raises(DTypeError, match="got str"):
        y.sum().backward(inputs="x")


# ---- hooks --------------------------------------------------------------------------------------


def test_hooks_see_and_replace_gradients() -> None:
    x, seen = leaf(1.0, 2.0), []
    y = x * 3
    handle = y.register_hook(lambda g: seen.append(g.tolist()))
    x.register_hook(lambda g: g * 10)
    y.sum().backward()
    handle.remove()
    (x * 3).sum().backward()
    assert seen == [[1.0, 1.0]]
    assert x.grad is not None and x.grad.tolist() == [60.0, 60.0]


def test_hooks_of_leaves_run_once_on_the_whole_gradient() -> None:
    x, seen = leaf(1.0), []
    x.register_hook(lambda g: seen.append(g.item()))
    (x * 2 + x * 3).sum().backward()
    assert seen == [5.0]


@pytest.mark.parametrize("by", ["hook", "function"])
@pytest.mark.parametrize("lent", ["buffer", "dlpack"])
def test_gradients_on_memory_of_others_are_copied(by: str, lent: str) -> None:
    memory = bytearray(np.array([1.0, 2.0]).tobytes())
    array = np.frombuffer(memory)

    def given() -> Any:
        return tt.from_dlpack(array) if lent == "dlpack" else tt.from_numpy(np.frombuffer(memory))

    class Lending(tg.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return given()

    x = leaf(3.0, 4.0)
    if by == "hook":
        x.register_hook(lambda gradient: given())
    for _ in range(2):
        (Lending.apply(x) if by == "function" else x * 1).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]
    assert array.tolist() == [1.0, 2.0]


def test_gradients_of_another_device_are_refused() -> None:
    for kept in (False, True):
        x = tt.ones(2, requires_grad=True)
        y = x * 2
        (y if kept else x).register_hook(lambda g: g.to("reference"))
        with pytest.raises(DeviceError, match="of device cpu, got one of reference"):
            y.sum().backward()
        assert x.grad is None
    y = tt.ones(2, requires_grad=True) * 2
    with pytest.raises(DeviceError, match="weights of cpu, got reference"):
        y.backward(tt.ones(2, device="reference"))


def test_hooks_on_results_that_are_kept() -> None:
    x = leaf(1.0, 2.0)
    y = x.exp()
    y.retain_grad()
    (y * y).sum().backward()
    assert y.grad is not None
    np.testing.assert_allclose(y.grad.numpy(), 2 * np.exp([1.0, 2.0]))


def test_a_gradient_that_is_kept_has_the_shape_that_its_tensor_got_meanwhile() -> None:
    y = leaf(1.0, 2.0) * 2
    y.retain_grad()
    y.unsqueeze_(0)
    (y * y).sum().backward()
    assert y.grad is not None
    assert y.grad.tolist() == [[4.0, 8.0]]


def test_a_shape_that_is_changed_in_no_grad_keeps_the_history() -> None:
    changes: list[Callable[[Any], Any]] = [lambda y: y.unsqueeze_(0), lambda y: y.squeeze_()]
    for change in changes:
        x = tt.ones(2, requires_grad=True)
        y = (x * 2).reshape(1, 2)
        with tt.no_grad():
            change(y)
        assert y.requires_grad
        (y.sum() + x.sum()).backward()
        assert x.grad is not None
        assert x.grad.tolist() == [3.0, 3.0]


def test_hooks_after_accumulation() -> None:
    x, seen = leaf(1.0), []
    x.register_post_accumulate_grad_hook(lambda each: seen.append(each.grad.item()))
    (x * 2).sum().backward()
    (x * 2).sum().backward()
    assert seen == [2.0, 4.0]
    with pytest.raises(GradError, match="leaves"):
        (x * 2).register_post_accumulate_grad_hook(seen.append)
    with pytest.raises(GradError, match="does not require"):
        tt.ones(1).register_hook(seen.append)


# ---- modes --------------------------------------------------------------------------------------


def test_modes_switch_recording() -> None:
    x = leaf(1.0)
    with tt.no_grad():
        assert not (x * 2).requires_grad and not tt.is_grad_enabled()
        with tt.enable_grad():
            assert (x * 2).requires_grad
        assert not tt.is_grad_enabled()
    with tt.inference_mode():
        assert not (x * 2).requires_grad
    with tt.inference_mode(mode=False), tt.set_grad_enabled(True):
        assert (x * 2).requires_grad

    @tt.no_grad()
    def plain(value: Any) -> Any:
        return value * 2

    assert not plain(x).requires_grad and (x * 2).requires_grad


def test_inference_mode_marks_what_is_made() -> None:
    x, w = tt.ones(2), leaf(1.0, 2.0)
    with tt.inference_mode():
        assert tt.is_inference_mode_enabled()
        made = [x * 1, w * 1, x.clone(), tt.ones(2), tt.ones(2, requires_grad=True)]
        seen = [x[:1], w.T, x.detach(), x.reshape(2, 1)]
        made += [made[0][:1], made[0].detach()]
        with tt.enable_grad():
            assert not (w * 2).requires_grad
        with tt.inference_mode(mode=False):
            made_outside = w * 2
            assert made_outside.requires_grad and not tt.is_inference_mode_enabled()
        assert (w * 2).is_inference() and x.add_(1) is x
    assert not tt.is_inference_mode_enabled() and tt.is_grad_enabled()
    made += [made[0].view(2, 1), copy.copy(made[0])]
    assert all(each.is_inference() for each in made)
    normal = [made[0] * 1, made[0].clone(), made[0] + w, copy.deepcopy(made[0]), made_outside]
    assert not any(each.is_inference() for each in seen + normal)


def test_tensors_of_inference_mode_take_no_part_in_what_is_recorded() -> None:
    w = leaf(1.0, 2.0)
    with tt.inference_mode():
        x = tt.ones(2, dtype="float64") * 3
        (x * w).mul_(x).unsqueeze_(0)[0] = 1.0
    (x + w).sum().backward()
    assert w.grad is not None and w.grad.tolist() == [1.0, 1.0]

    class Kept(tt.Function):
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            ctx.save_for_backward(a)
            return b * 2

    saving: list[Any] = [lambda: x * w, lambda: x @ w, lambda: Kept.apply(x, w)]
    for call in (*saving, lambda: (w * 1).mul_(x[:1])):
        with pytest.raises(RuntimeError, match=r"Inference tensors cannot be saved.*clone\(\)"):
            call()
    changes: list[Any] = [x.zero_, lambda: x.add_(1), lambda: x[:1].mul_(2), lambda: x.squeeze_(0)]
    out = tt.elementwise(lambda a: a * 2)
    changes += [lambda: x.__setitem__(0, 1.0), lambda: out(tt.ones_like(x), out=x)]
    for change in changes:
        with pytest.raises(RuntimeError, match="Inplace update to inference tensor"), tt.no_grad():
            change()
    for call in (x.requires_grad_, lambda: nn.Parameter(x)):
        with pytest.raises(RuntimeError, match="Setting requires_grad=True on inference tensor"):
            call()
    with tt.inference_mode():
        assert x.mul_(2).tolist() == [6.0, 6.0] and Kept.apply(x, w).is_inference()
    (x.clone() * w).sum().backward()
    assert w.grad.tolist() == [7.0, 7.0]


def test_modes_switch_as_statements_and_decorate_without_brackets() -> None:
    x = leaf(1.0)
    switch = tt.set_grad_enabled(False)
    try:
        assert not tt.is_grad_enabled()
        with tt.set_grad_enabled(True):
            assert tt.is_grad_enabled()
        assert not tt.is_grad_enabled()
        with switch:
            assert not tt.is_grad_enabled()
        assert tt.is_grad_enabled()  # as it was when the switch was made
    finally:
        tt.set_grad_enabled(True)

    @tt.no_grad
    def bare(value: Any) -> Any:
        """Double."""
        return value * 2

    @tt.enable_grad
    def recorded(value: Any) -> Any:
        return value * 2

    @tt.inference_mode
    def inferred(value: Any) -> Any:
        return value * 2

    @tt.set_grad_enabled(False)
    def switched(value: Any) -> Any:
        return value * 2

    assert tt.is_grad_enabled() and bare.__doc__ == "Double."
    assert not any(each(x).requires_grad for each in (bare, inferred, switched))
    with tt.no_grad():
        assert recorded(x).requires_grad
        assert not switched(x).requires_grad and not tt.is_grad_enabled()
    assert tt.is_grad_enabled()


def test_modes_end_with_errors_and_belong_to_a_thread() -> None:
    with pytest.raises(ZeroDivisionError), tt.no_grad():
        _ = 1 // 0
    assert tt.is_grad_enabled()
    seen: list[bool] = []
    with tt.no_grad():
        thread = threading.Thread(target=lambda: seen.append(tt.is_grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]


@pytest.mark.parametrize("mode", [tt.no_grad, tt.inference_mode])
def test_threads_share_a_function_within_a_mode(mode: Any) -> None:
    first_is_in, second_is_in, first_is_out = (threading.Event() for _ in range(3))

    def waiting(enters: threading.Event, leaves: threading.Event) -> None:
        enters.set()
        assert leaves.wait(10)

    function = mode()(waiting)

    def recorded() -> bool:
        function(first_is_in, second_is_in)
        first_is_out.set()
        return tt.is_grad_enabled()

    def unrecorded() -> bool:
        with tt.no_grad():
            assert first_is_in.wait(10)
            function(second_is_in, first_is_out)
            return tt.is_grad_enabled()

    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(each) for each in (recorded, unrecorded)]
        assert [each.result() for each in calls] == [True, False]


def test_threads_walk_graphs_of_their_own() -> None:
    weight = tt.randn(32, 32, dtype="float64", generator=tt.Generator(1)).requires_grad_()

    def gradient(seed: int) -> Any:
        x = tt.randn(16, 32, dtype="float64", generator=tt.Generator(seed))
        loss = tt.cross_entropy((x @ weight).tanh() @ weight.T, tt.zeros(16, dtype="int64"))
        return tt.grad(loss, weight)[0].numpy()

    expected = [gradient(seed) for seed in range(8)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            for ours, theirs in zip(pool.map(gradient, range(8)), expected, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-15)


def test_threads_add_to_the_gradients_of_shared_leaves() -> None:
    x = tt.zeros(1_000_000, requires_grad=True)
    ones = tt.ones(1_000_000)

    def walk(_: int) -> None:
        for _ in range(60):
            x.backward(ones)  # which takes no more than the sum

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(walk, range(4)))
    assert x.grad is not None
    assert (x.grad.amin().item(), x.grad.amax().item()) == (240.0, 240.0)


def test_detach_shares_elements_and_stops_gradients() -> None:
    x = leaf(1.0, 2.0)
    y = x * x
    still = y.detach()
    assert not still.requires_grad and still.is_leaf and y.grad_fn is not None
    assert np.shares_memory(still.numpy(), y.detach().numpy())
    (y * still).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 16.0]


def test_requires_grad_has_its_rules() -> None:
    with pytest.raises(DTypeError, match="int64"):
        tt.tensor([1], requires_grad=True)
    y = leaf(1.0) * 2
    with pytest.raises(GradError, match=r"detach\(\)"):
        y.requires_grad = False
    x = tt.ones(2).requires_grad_()
    assert x.is_leaf and x.requires_grad and not y.is_leaf
    assert not x.requires_grad_(False).requires_grad


# ---- large graphs -------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_graphs_ten_thousand_deep(device: str) -> None:
    x = leaf(1.0, device=device)
    y = x
    for _ in range(10_000):
        y = y * 1.0001
    (gradient,) = tt.grad(y, x, create_graph=True)
    np.testing.assert_allclose(gradient.item(), 1.0001**10_000, rtol=1e-10)
    y.backward()
    del y, gradient  # neither is what is let go of recursive
    assert x.grad is not None


def test_shared_results_are_walked_once() -> None:
    x = leaf(1.0)
    y = x
    for _ in range(60):
        y = y + y
    y.backward()
    assert x.grad is not None and x.grad.item() == 2.0**60


def test_what_was_saved_is_let_go_of() -> None:
    x = leaf(*range(10))
    y = x * 2
    z = y.sin()
    saved = weakref.ref(y)
    del y
    assert saved() is not None
    z.sum().backward()
    assert saved() is None


def test_gradients_do_not_share_memory() -> None:
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    given = tt.ones(2, dtype="float64")
    (x + w).backward(given)
    assert x.grad is not None and w.grad is not None
    x.grad.mul_(5)
    assert w.grad.tolist() == given.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("view", [lambda x: x.view(2, 1), lambda x: x.clone(), lambda x: x.sum()])
def test_gradients_with_a_history_share_no_memory_and_can_be_added_to(
    view: Any, device: str
) -> None:
    x = tt.ones(2, device=device, requires_grad=True)
    y = view(x)
    given = tt.ones_like(y)
    y.backward(given, create_graph=True)
    (x * 2).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3.0, 3.0]
    assert given.tolist() == tt.ones_like(y).tolist()


def test_broadcast_operands_get_gradients_of_their_own_shape_and_type() -> None:
    x = tt.ones((3, 1), requires_grad=True)
    w = tt.ones((4,), dtype="float64", requires_grad=True)
    s = tt.tensor(2.0, requires_grad=True)
    (x * w * s).sum().backward()
    for each, total in ((x, 8.0), (w, 6.0), (s, 12.0)):
        assert each.grad is not None
        assert each.grad.shape == each.shape and each.grad.dtype is each.dtype
        assert set(np.asarray(each.grad).ravel().tolist()) == {total}


def test_branches_not_taken_do_no_harm() -> None:
    x = leaf(0.0, 4.0)
    tt.where(x > 0, x.sqrt(), 0.0).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0.0, 0.25]


def test_inputs_may_come_from_a_generator() -> None:
    model = nn.Linear(2, 3)
    loss = model(tt.ones(1, 2)).sum()
    gradients = tg.grad(loss, model.parameters(), retain_graph=True)
    assert [each.shape for each in gradients] == [(3, 2), (3,)]
    loss.backward(inputs=model.parameters())
    assert all(each.grad is not None for each in model.parameters())
    named = dict(model.named_parameters())
    assert len(tg.grad(model(tt.ones(1, 2)).sum(), named.values())) == 2
