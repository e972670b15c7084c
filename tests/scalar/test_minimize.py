"""Program.minimize: sgd and adam step by step, lanes, history, callbacks, interrupts, arguments."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tapegrad as tg

Array = NDArray[Any]
METHODS = ["sgd", "adam"]
each_method = pytest.mark.parametrize("method", METHODS)
LR = {"sgd": 1e-3, "adam": 0.02}
START = [-1.2, 1.0, 0.5]


def valley(dtype: str = "float64", **options: Any) -> tg.Program:
    """Rosenbrock's function of three numbers with a term that is no polynomial."""
    x = tg.Graph().inputs(3)
    loss = tg.sum([100 * (x[i + 1] - x[i] ** 2) ** 2 + (1 - x[i]) ** 2 for i in range(2)])
    return tg.compile(loss + tg.softplus(x[0] * x[2]), wrt=x, dtype=dtype, **options)


def endless() -> tg.Program:
    """A program whose value always falls, so that the best point is the last."""
    x = tg.Graph().inputs(2)
    return tg.compile(x[0] + x[1], wrt=x)


def starts(count: int, dtype: str = "float64") -> Array:
    return np.random.default_rng(count).normal(size=(count, 3)).astype(dtype)


def descend(
    program: tg.Program,
    method: str,
    steps: int,
    *,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
) -> tuple[list[Array], list[float]]:
    """Points and values of every step, by NumPy."""
    x = np.array(START)
    m, v = np.zeros_like(x), np.zeros_like(x)
    xs, values = [], []
    for t in range(1, steps + 2):
        value, g = program(x)
        xs.append(x)
        values.append(value)
        if method == "sgd":
            x = x - lr * g
            continue
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g * g
        x = x - lr * (m / (1 - betas[0] ** t)) / (np.sqrt(v / (1 - betas[1] ** t)) + eps)
    return xs, values


@each_method
@pytest.mark.parametrize("steps", [0, 1, 2, 3, 10, 200])
def test_steps_are_those_of_the_textbook(method: Any, steps: int, isa: str) -> None:
    program = valley()
    found = program.minimize(START, method, steps=steps, lr=LR[method], history=1)
    xs, values = descend(program, method, steps, lr=LR[method])
    np.testing.assert_allclose(found.last_x, xs[-1], rtol=1e-9)
    assert found.history is not None
    np.testing.assert_allclose(found.history, np.array(values), rtol=1e-9)
    best = int(np.argmin(values))
    np.testing.assert_allclose(found.x, xs[best], rtol=1e-9)
    assert found.value == pytest.approx(values[best], rel=1e-9)
    assert found.last_value == pytest.approx(values[-1], rel=1e-9)
    assert (found.steps, found.stopped) == (steps, False)


@pytest.mark.parametrize("betas", [(0.0, 0.0), (0.5, 0.9), (0.99, 0.9)])
@pytest.mark.parametrize("eps", [0.0, 1e-3])
def test_adam_follows_its_options(betas: tuple[float, float], eps: float) -> None:
    program = valley()
    found = program.minimize(START, "adam", steps=50, lr=0.01, betas=betas, eps=eps)
    xs, _ = descend(program, "adam", 50, lr=0.01, betas=betas, eps=eps)
    np.testing.assert_allclose(found.last_x, xs[-1], rtol=1e-9)


@each_method
def test_values_are_those_of_the_program_at_the_points(method: Any, isa: str) -> None:
    program = valley()
    found = program.minimize(START, method, steps=30, lr=LR[method])
    assert program(found.x)[0] == found.value
    assert program(found.last_x)[0] == found.last_value


@each_method
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 40])
def test_lanes_equal_single_starts_bit_for_bit(
    count: int, dtype: str, method: Any, isa: str
) -> None:
    program = valley(dtype)
    x0 = starts(count, dtype)
    many = program.minimize(x0, method, steps=25, lr=LR[method], history=5)
    assert many.history is not None
    assert (many.x.shape, many.value.shape) == ((count, 3), (count,))
    assert many.history.shape == (6, count)
    assert many.x.dtype == dtype
    for row, start in enumerate(x0):
        one = program.minimize(start, method, steps=25, lr=LR[method], history=5)
        assert one.history is not None
        np.testing.assert_array_equal(many.x[row], one.x)
        np.testing.assert_array_equal(many.last_x[row], one.last_x)
        # One that ends in NaN ends early; its value stays in the history of all.
        np.testing.assert_array_equal(many.history[: len(one.history), row], one.history)
        np.testing.assert_array_equal(many.value[row], one.value)
        np.testing.assert_array_equal(many.last_value[row], one.last_value)


@each_method
@pytest.mark.parametrize("threads", [1, 2, 100, None])
def test_bits_do_not_depend_on_threads(method: Any, threads: int | None) -> None:
    x0 = starts(2000)
    program = valley()
    want = program.minimize(x0, method, steps=20, lr=LR[method], history=3, threads=1)
    got = program.minimize(x0, method, steps=20, lr=LR[method], history=3, threads=threads)
    for field in ("x", "value", "last_x", "last_value", "history"):
        np.testing.assert_array_equal(getattr(got, field), getattr(want, field))


def processor_time(call: Callable[[], object], calls: int) -> float:
    before = time.process_time()
    for _ in range(calls):
        call()
    return time.process_time() - before


@pytest.mark.parametrize(("method", "count", "steps"), [("lbfgs", 64, 20), ("sgd", 1024, 200)])
def test_threads_cost_little_where_others_have_the_cores(
    method: Any, count: int, steps: int
) -> None:
    program: Any = valley()
    options = {"gtol": 0, "ftol": 0} if method == "lbfgs" else {"lr": 1e-4}

    def run(threads: int) -> None:
        program.minimize(starts(count), method, steps=steps, threads=threads, **options)

    busy = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(busy) for _ in os.sched_getaffinity(0)]
    try:
        one, two = (processor_time(partial(run, threads), calls=200) for threads in (1, 2))
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert two < 3 * one


@each_method
@pytest.mark.parametrize("every", [1, 2, 3, 7, 20, 21, 100])
@pytest.mark.parametrize("steps", [0, 1, 20, 21])
def test_history_has_a_value_every_so_many_steps(every: int, steps: int, method: Any) -> None:
    program = valley()
    found = program.minimize(START, method, steps=steps, lr=LR[method], history=every)
    _, values = descend(program, method, steps, lr=LR[method])
    assert found.history is not None
    np.testing.assert_allclose(found.history, values[: steps + 1 : every], rtol=1e-9)


def test_history_takes_memory_as_it_grows() -> None:
    found = valley().minimize(START, "lbfgs", gtol=1e-6, history=1, steps=2**62)
    assert found.history is not None
    assert found.reason == "gradient"
    assert len(found.history) == found.steps + 1


def test_no_history_unless_asked_for() -> None:
    assert valley().minimize(START, steps=3).history is None


def test_best_is_not_last_where_steps_are_too_long() -> None:
    x = tg.Graph().input()
    program = tg.compile(x * x, wrt=[x])
    found = program.minimize([1.0], "sgd", steps=5, lr=1.5)  # x -> -2 x
    assert (found.x.tolist(), found.value) == ([1.0], 1.0)
    assert (found.last_x.tolist(), found.last_value) == ([-32.0], 1024.0)


def test_inputs_that_are_not_in_wrt_stay() -> None:
    x = tg.Graph().inputs(3)
    program = tg.compile((x[0] - x[1]) ** 2 + x[2] ** 2, wrt=[x[2], x[0]])
    found = program.minimize([0.0, 3.0, 1.0], "sgd", steps=400, lr=0.1)
    np.testing.assert_allclose(found.x, [3.0, 3.0, 0.0], atol=1e-9)
    assert found.x[1] == 3.0


def test_start_is_left_as_it_is_and_may_be_of_any_kind() -> None:
    program = valley()
    want = program.minimize(START, "sgd", steps=9, lr=1e-3).x
    x0 = np.array(START)
    for start in (
        x0,
        np.array(START, np.float32),
        tuple(START),
        np.repeat(x0, 2)[::2],
        x0.astype(object),
    ):
        got = program.minimize(start, "sgd", steps=9, lr=1e-3).x
        np.testing.assert_allclose(got, want, rtol=1e-5)
    np.testing.assert_array_equal(x0, START)
    rows = np.asfortranarray(starts(5))
    np.testing.assert_array_equal(
        program.minimize(rows, "sgd", steps=9, lr=1e-3).x,
        program.minimize(rows.tolist(), "sgd", steps=9, lr=1e-3).x,
    )


# ---- NaN ---------------------------------------------------------------------------------------


@each_method
def test_a_value_that_becomes_nan_never_is_the_best(method: Any) -> None:
    x = tg.Graph().input()
    program = tg.compile(tg.sqrt(x), wrt=[x])  # NaN below zero
    found = program.minimize([0.5], method, steps=50, lr=0.2)
    assert math.isfinite(found.value)
    assert found.value == program(found.x)[0]
    assert found.value <= math.sqrt(0.5)


@each_method
def test_nan_in_one_start_leaves_the_others_alone(method: Any) -> None:
    program = valley()
    x0 = starts(9)
    want = program.minimize(x0, method, steps=20, lr=LR[method])
    x0[4] = math.nan
    got = program.minimize(x0, method, steps=20, lr=LR[method])
    keep = np.arange(9) != 4
    np.testing.assert_array_equal(got.x[keep], want.x[keep])
    np.testing.assert_array_equal(got.value[keep], want.value[keep])


def test_all_values_nan_give_the_start_and_nan() -> None:
    x = tg.Graph().input()
    found = tg.compile(tg.log(x), wrt=[x]).minimize([-1.0], "sgd", steps=5)
    assert found.x.tolist() == [-1.0]
    assert math.isnan(found.value)
    assert math.isnan(found.last_value)


def test_start_at_infinity_is_reported_as_it_is() -> None:
    x = tg.Graph().input()
    found = tg.compile(tg.abs(x), wrt=[x]).minimize([math.inf], "sgd", steps=3)
    assert found.x.tolist() == [math.inf]
    assert found.value == math.inf


# ---- callbacks ---------------------------------------------------------------------------------


@each_method
@pytest.mark.parametrize(
    ("every", "calls"), [(1, range(1, 21)), (7, [7, 14]), (20, [20]), (50, [])]
)
def test_callback_comes_every_so_many_steps(every: int, calls: Any, method: Any) -> None:
    seen: list[tuple[int, Array, float]] = []
    program = valley()
    found = program.minimize(
        START,
        method,
        steps=20,
        lr=LR[method],
        callback=lambda step, x, value: seen.append((step, x, value)),
        every=every,
    )
    assert [step for step, _, _ in seen] == list(calls)
    xs, _ = descend(program, method, 20, lr=LR[method])
    for step, x, _ in seen:
        np.testing.assert_allclose(x, xs[step], rtol=1e-9)
    assert (found.steps, found.stopped) == (20, False)


@pytest.mark.parametrize("every", [1, 3])
def test_value_given_to_the_callback_belongs_to_its_point(every: int) -> None:
    program = valley()
    seen: list[tuple[float, float]] = []

    def callback(step: int, x: Array, value: Any) -> None:
        seen.append((value, program(x)[0]))

    program.minimize(START, "sgd", steps=9, lr=1e-3, callback=callback, every=every)
    assert seen
    for given, there in seen:
        assert given == there


def test_callback_of_several_starts_gets_rows() -> None:
    shapes = []

    def callback(step: int, x: Array, value: Any) -> None:
        shapes.append((step, x.shape, value.shape))

    valley().minimize(starts(5), steps=4, callback=callback, every=2)
    assert shapes == [(2, (5, 3), (5,)), (4, (5, 3), (5,))]


@pytest.mark.parametrize("truth", [True, 1, "yes", np.True_])
def test_callback_that_returns_true_ends_the_run(truth: Any) -> None:
    program = valley()
    found = program.minimize(
        START,
        "sgd",
        steps=1000,
        lr=1e-3,
        callback=lambda s, x, v: s == 30 and truth,
        every=10,
        history=10,
    )
    assert (found.steps, found.stopped) == (30, True)
    whole = program.minimize(START, "sgd", steps=30, lr=1e-3, history=10)
    np.testing.assert_array_equal(found.last_x, whole.last_x)
    np.testing.assert_array_equal(found.history, whole.history)
    assert found.value == whole.value


@pytest.mark.parametrize("error", [ValueError, ZeroDivisionError, SystemExit, StopIteration])
def test_errors_of_the_callback_come_through(error: type[BaseException]) -> None:
    def callback(step: int, x: Array, value: Any) -> None:
        raise error("inside")

    program = valley()
    with pytest.raises(error, match="inside"):
        program.minimize(START, steps=10, callback=callback, every=2)
    assert math.isfinite(program(START)[0])


def test_truth_of_the_answer_may_raise() -> None:
    with pytest.raises(ValueError, match="truth value"):
        valley().minimize(START, steps=9, callback=lambda s, x, v: np.zeros(2), every=3)


def test_callback_may_change_its_copy_and_run_the_program() -> None:
    program = valley()
    want = program.minimize(START, "sgd", steps=10, lr=1e-3)

    def callback(step: int, x: Array, value: Any) -> None:
        x[:] = math.nan
        program(START)
        program.batch([START] * 10)
        program.minimize(START, steps=2)

    got = program.minimize(START, "sgd", steps=10, lr=1e-3, callback=callback, every=2)
    np.testing.assert_array_equal(got.x, want.x)
    np.testing.assert_array_equal(got.last_x, want.last_x)


# ---- Ctrl-C ------------------------------------------------------------------------------------


def check_interrupted(found: tg.Minimum, program: tg.Program) -> None:
    assert found.stopped
    assert 0 < found.steps < 10**12
    assert program(found.x)[0] == found.value
    assert found.value <= program([0.0, 0.0])[0]


@pytest.mark.usefixtures("ctrl_c_is_heard")
def test_ctrl_c_from_outside_returns_the_best_so_far() -> None:
    program = endless()
    timer = threading.Timer(0.1, signal.raise_signal, [signal.SIGINT])
    timer.start()
    try:
        check_interrupted(program.minimize([0.0, 0.0], "sgd", steps=10**12, lr=1e-6), program)
    finally:
        timer.cancel()
        timer.join()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no interval timers")
def test_ctrl_c_by_an_interval_timer_returns_the_best_so_far() -> None:
    def interrupt(signum: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        program = endless()
        found = program.minimize([0.0, 0.0], "adam", steps=10**12, lr=1e-6)
        check_interrupted(found, program)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("ctrl_c_is_heard")
def test_ctrl_c_with_history_and_several_starts() -> None:
    timer = threading.Timer(0.1, signal.raise_signal, [signal.SIGINT])
    timer.start()
    try:
        found = endless().minimize(np.zeros((50, 2)), "sgd", steps=10**9, lr=1e-6, history=10**6)
    finally:
        timer.cancel()
        timer.join()
    assert found.stopped
    assert found.history is not None
    assert found.history.shape == (math.ceil((found.steps + 1) / 10**6), 50)


@pytest.mark.usefixtures("ctrl_c_is_heard")
@pytest.mark.parametrize("how", ["signal", "exception"])
def test_ctrl_c_within_the_callback_returns_the_best_so_far(how: str) -> None:
    def callback(step: int, x: Array, value: Any) -> None:
        if step == 20:
            if how == "signal":
                signal.raise_signal(signal.SIGINT)
            else:
                raise KeyboardInterrupt

    program = endless()
    found = program.minimize([0.0, 0.0], "sgd", steps=10**6, callback=callback, every=10)
    check_interrupted(found, program)
    assert found.steps == 20


def test_other_signals_raise_what_their_handler_raises() -> None:
    class AlarmError(Exception):
        pass

    def ring(signum: int, frame: object) -> None:
        raise AlarmError

    before = signal.signal(signal.SIGUSR1, ring)
    timer = threading.Timer(0.05, signal.raise_signal, [signal.SIGUSR1])
    timer.start()
    try:
        with pytest.raises(AlarmError):
            endless().minimize([0.0, 0.0], "sgd", steps=10**12)
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)


# ---- arguments ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda p: p.minimize(START, "newton"),
        lambda p: p.minimize(START, None),
        lambda p: p.minimize(START, steps=-1),
        lambda p: p.minimize(START, steps=1.5),
        lambda p: p.minimize(START, steps="3"),
        lambda p: p.minimize(START, history=-1),
        lambda p: p.minimize(START, callback=print, every=0),
        lambda p: p.minimize(START, callback=print, every=-5),
        lambda p: p.minimize(START, steps=2, callback=3, every=1),
        lambda p: p.minimize(START, threads=0),
        lambda p: p.minimize(START, threads=-2),
        lambda p: p.minimize(START, lr="fast"),
        lambda p: p.minimize(START, betas=(0.9,)),
        lambda p: p.minimize(START, betas=0.9),
        lambda p: p.minimize(START, eps=None),
        lambda p: p.minimize([1.0, 2.0]),
        lambda p: p.minimize([]),
        lambda p: p.minimize(1.0),
        lambda p: p.minimize(np.zeros((2, 2))),
        lambda p: p.minimize(np.zeros((0, 3))),
        lambda p: p.minimize(np.zeros((1, 1, 3))),
        lambda p: p.minimize([1j, 2, 3]),
        lambda p: p.minimize(["a", "b", "c"]),
        lambda p: p.minimize(None),
        lambda p: p.minimize(START, momentum=0.9),
    ],
)
def test_wrong_arguments_raise(call: Callable[[Any], Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        call(valley())


@pytest.mark.parametrize("callback", [3, 0, "print", [print]])
def test_a_callback_is_a_function_before_the_first_step(callback: Any) -> None:
    with pytest.raises(tg.DTypeError, match=f"callback.*{type(callback).__name__}"):
        valley().minimize(START, steps=0, callback=callback)


def test_programs_without_one_output_and_its_gradient_cannot_be_minimized() -> None:
    x = tg.Graph().inputs(2)
    for program in (
        tg.compile(x[0] * x[1]),
        tg.compile([x[0] * x[1]], wrt=x),
        tg.compile([x[0], x[1]], wrt=x),
        tg.compile(x[0] * x[1], wrt=[x[0] * x[1]]),
        tg.compile(x[0] * x[1], wrt=[x[0], x[0]]),
    ):
        with pytest.raises(tg.GradError, match="minimize"):
            program.minimize([1.0, 2.0], steps=1)


def test_float32_steps_are_close_to_float64() -> None:
    want = valley().minimize(START, "adam", steps=100, lr=0.01)
    got = valley("float32").minimize(START, "adam", steps=100, lr=0.01)
    assert got.x.dtype == np.float32
    np.testing.assert_allclose(got.x, want.x, rtol=1e-3, atol=1e-4)


def test_a_minimum_cannot_be_changed() -> None:
    found: Any = valley().minimize(START, steps=1)
    with pytest.raises(AttributeError):
        found.x = 3


@pytest.mark.parametrize(
    "options",
    [
        {"steps": -1},
        {"steps": 1.5},
        {"every": 0},
        {"history": -1},
        {"lr": math.nan},
        {"eps": -1.0},
        {"betas": (1.0, 0.9)},
        {"betas": (0.9,)},
        {"method": "newton"},
        {"threads": 0},
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    x = tg.Graph().inputs(1)
    program = tg.compile(x[0] * x[0], wrt=x)
    with pytest.raises(tg.OptionError, match=next(iter(options))):
        program.minimize([1.0], **options)
