"""locate_nonfinite names the operation where trouble began."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tapegrad as tg

#: For calls that the types forbid.
untyped: Any = tg

INF, NAN = math.inf, math.nan


def located(*arguments: Any, **options: Any) -> tg.NonFinite:
    found = tg.locate_nonfinite(*arguments, **options)
    assert found is not None
    return found


# ---- values ------------------------------------------------------------------------------------


def test_finite_results_have_no_trouble() -> None:
    g = tg.Graph()
    x = g.inputs(3)
    assert tg.locate_nonfinite([tg.sum(x), tg.prod(x)], [1.0, 2.0, 3.0], x) is None


@pytest.mark.parametrize(
    ("build", "point", "op", "value", "operands"),
    [
        (lambda x, y: tg.exp(tg.log(x) * y), (-1.0, 2.0), "log", NAN, [("x", -1.0)]),
        (lambda x, y: tg.exp(x) - tg.exp(x + y), (800.0, 1.0), "exp", INF, [("x", 800.0)]),
        (lambda x, y: tg.sin(1 / (x - y)), (2.0, 2.0), "div", INF, [("1.0", 1.0), ("%2", 0.0)]),
        (lambda x, y: x * 2 + y, (1.0, NAN), "input", NAN, []),
        (lambda x, y: tg.softmax([x, y])[1] + 1, (INF, 0.0), "input", INF, []),
        (lambda x, y: x * math.inf + y, (1.0, 2.0), "constant", INF, []),
        (lambda x, y: tg.pow(x, y) + x, (-8.0, 0.5), "pow", NAN, [("x", -8.0), ("y", 0.5)]),
    ],
)
def test_the_first_bad_value_is_named_with_its_operands(
    build: Callable[..., tg.Var],
    point: tuple[float, float],
    op: str,
    value: float,
    operands: list[tuple[str, float]],
) -> None:
    g = tg.Graph()
    x, y = g.input("x"), g.input("y")
    found = located(build(x, y), point)
    assert (found.direction, found.op, found.output) == ("forward", op, 0)
    np.testing.assert_equal(found.value, value)
    assert list(found.operands) == operands
    assert op in (*str(found).split(), found.var.op)


def test_the_spoilt_output_is_told() -> None:
    x = tg.Graph().input("x")
    found = located([x, tg.sin(x), tg.log(x) + 1, tg.sqrt(x)], -1.0)
    assert (found.output, found.op) == (2, "log")


def test_infinities_that_do_no_harm_are_passed_over() -> None:
    g = tg.Graph()
    x, y = g.input("x"), g.input("y")
    harmless = tg.where(x > 0, tg.log(x), 0.0) + tg.logsumexp([tg.log(x), y])
    assert tg.locate_nonfinite(harmless, [0.0, 800.0], [y]) is None
    found = located(tg.where(x > 0, tg.log(x), 0.0) * tg.asin(y), [0.0, 2.0])
    assert found.op == "asin"
    found = located(tg.where(x > 0, 0.0, tg.log(x)), [0.0, 2.0])
    assert found.op == "log"


@pytest.mark.parametrize(
    ("build", "point", "op", "operand"),
    [
        (lambda x, y: tg.maximum(tg.log(x), tg.log(y)), (0.0, -1.0), "log", -1.0),
        (lambda x, y: tg.minimum(x.graph.constant(INF), -1 / x), (0.0, 1.0), "div", -1.0),
        (lambda x, y: tg.max([x.graph.constant(-INF), x, tg.log(y)]), (1.0, -2.0), "log", -2.0),
        (lambda x, y: np.clip(tg.log(x), -INF, INF) + y, (-3.0, 1.0), "log", -3.0),
        (lambda x, y: tg.logsumexp([tg.log(x), tg.exp(y)]), (0.0, 800.0), "exp", 800.0),
        (lambda x, y: tg.sum([1 / x, tg.log(y), x]), (0.0, -1.0), "log", -1.0),
    ],
)
def test_infinite_operands_that_a_result_does_not_come_from_are_passed_over(
    build: Callable[..., tg.Var], point: tuple[float, float], op: str, operand: float
) -> None:
    g = tg.Graph()
    x, y = g.input("x"), g.input("y")
    found = located(build(x, y), point)
    assert (found.op, found.operands[0][1]) == (op, operand)


@given(st.integers(0, 10**9), st.integers(5, 60))
def test_a_bad_operation_is_found_wherever_it_is_put(seed: int, size: int) -> None:
    random = np.random.default_rng(seed)
    x = tg.Graph().inputs(4)
    nodes = list(x)
    bad = None
    place = int(random.integers(size))
    for step in range(size):
        a, b = (nodes[int(i)] for i in random.integers(len(nodes), size=2))
        if step == place:
            bad = tg.log(tg.sin(a) - 2)
            nodes.append(bad)
        nodes.append([a + b, tg.tanh(a) * b, tg.sin(a), tg.softmax([a, b])[1]][step % 4])
    assert bad is not None
    found = located(tg.sum(nodes), random.uniform(-1, 1, 4))
    assert found.var.index == bad.index
    assert found.operands[0][1] < -1


# ---- derivatives -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "op", "by"),
    [
        (lambda x, y: tg.exp(tg.sqrt(x)) * y, "sqrt", "x"),
        (lambda x, y: (y - 1) * tg.sqrt(x), "sqrt", "x"),
        (lambda x, y: tg.sin(tg.asin(x + 1)) + x * y, "asin", "%3"),
        (lambda x, y: tg.pow(x, 0.5) * y + tg.sin(x), "pow", "x"),
        (lambda x, y: tg.where(y < 0, tg.log(x), 1.0) + tg.sqrt(x), "sqrt", "x"),
    ],
)
def test_the_operation_whose_derivative_is_bad_is_named(
    build: Callable[..., tg.Var], op: str, by: str
) -> None:
    g = tg.Graph()
    x, y = g.input("x"), g.input("y")
    output = build(x, y)
    program = tg.compile(output, wrt=[x, y])
    assert not np.isfinite(program([0.0, 1.0])[1]).all()
    assert tg.locate_nonfinite(output, [0.0, 1.0]) is None
    assert tg.locate_nonfinite(output, [0.0, 1.0], y) is None
    found = located(output, [0.0, 1.0], [x, y])
    assert (found.direction, found.op, found.overflow) == ("backward", op, False)
    assert found.by is not None
    assert by in (found.by.name, f"%{found.by.index}")
    assert not math.isfinite(found.value)
    assert op in str(found)


def test_overflow_of_finite_derivatives_is_told_apart() -> None:
    x = tg.Graph().input("x")
    found = located((x * 1e200) * 1e200, 0.0, x)
    assert found.overflow
    assert "overflow" in str(found)


def test_trouble_of_float32_is_found_in_float32() -> None:
    x = tg.Graph().input("x")
    assert tg.locate_nonfinite(tg.exp(x), 100.0, x) is None
    assert located(tg.exp(x), 100.0, x, dtype="float32").op == "exp"


def test_functions_are_searched_with_their_gradients() -> None:
    found = located(lambda x: tg.sum(tg.sqrt(x.ravel())), [[1.0, 4.0], [0.0, 9.0]])
    assert (found.direction, found.op) == ("backward", "sqrt")
    assert found.operands == (("%2", 0.0),)
    assert tg.locate_nonfinite(lambda x: x * x, [[1.0, 4.0]]) is None


def test_each_output_is_differentiated() -> None:
    x = tg.Graph().inputs(2, "x")
    found = located([x[0] * x[1], tg.sqrt(x[1])], [1.0, 0.0], x)
    assert (found.output, found.op) == (1, "sqrt")


def test_derivatives_by_any_node_are_searched() -> None:
    g = tg.Graph()
    x, three = g.input("x"), g.constant(3.0)
    inner = x * three
    for by in (inner, three):
        assert located(tg.sqrt(inner), 0.0, by).op == "sqrt"


def test_inputs_may_be_ordered() -> None:
    g = tg.Graph()
    x, y = g.input("x"), g.input("y")
    assert located(tg.log(x) + y, [1.0, -1.0], inputs=[y, x]).operands == (("x", -1.0),)


def test_long_messages_are_cut() -> None:
    x = tg.Graph().inputs(1000, "x")
    found = located(tg.sum(x), np.full(1000, 1e308))
    assert len(found.operands) == 1000
    assert "992 more" in str(found)
    assert len(str(found)) < 500


def test_deep_graphs_are_searched_without_recursion() -> None:
    x = tg.Graph().input("x")
    y = tg.sqrt(x)
    for _ in range(20_000):
        y = tg.sin(y)
    assert located(y, 0.0, x).op == "sqrt"
    assert located(y, -1.0, x).op == "sqrt"


def test_repeated_searches_add_nothing_to_the_graph() -> None:
    x = tg.Graph().inputs(3)
    y = tg.prod(tg.sqrt(x))
    located(y, np.zeros(3), x)
    nodes = len(x[0].graph)
    located(y, np.zeros(3), x)
    assert len(x[0].graph) == nodes


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda x: untyped.locate_nonfinite(tg.compile(x), [1.0], wrt=[x]),
            tg.DTypeError,
            "program",
        ),
        (lambda x: untyped.locate_nonfinite(3.0, [1.0]), tg.DTypeError, "Var"),
        (lambda x: untyped.locate_nonfinite(["x"], [1.0]), tg.DTypeError, "str"),
        (lambda x: untyped.locate_nonfinite(tg.sin, [1.0], x), tg.DTypeError, "neither"),
        (lambda x: tg.locate_nonfinite(x, [1.0, 2.0]), tg.ShapeError, "1 input"),
        (lambda x: tg.locate_nonfinite([x, tg.Graph().input()], [1.0]), tg.GraphError, "one graph"),
        (lambda x: tg.locate_nonfinite([], [1.0]), tg.DTypeError, "none"),
        (lambda x: tg.locate_nonfinite(x, []), tg.ShapeError, "empty"),
        (lambda x: tg.locate_nonfinite(x, [1.0], tg.Graph().input()), ValueError, "graph"),
    ],
)
def test_wrong_arguments_are_told(
    call: Callable[[tg.Var], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call(tg.Graph().input("x"))


@pytest.mark.parametrize("of", [tg.grad, tg.value_and_grad, tg.jacobian, tg.hessian])
def test_derivatives_of_functions_are_searched(of: Any) -> None:
    def function(x: Any) -> Any:
        return tg.sqrt(x[0]) * x[1]

    found = located(of(function), [0.0, 1.0])
    assert (found.op, found.direction) == ("sqrt", "backward")
    assert found.line == f"{__file__}:{function.__code__.co_firstlineno + 1}"
    assert tg.locate_nonfinite(of(function), [4.0, 1.0]) is None
    if of is not tg.hessian:
        return
    found = located(of(function, sparse=True), [0.0, 1.0])
    assert (found.op, found.direction) == ("sqrt", "backward")


def test_trouble_in_values_is_told_by_the_line_of_the_function() -> None:
    def function(x: Any) -> Any:
        y = x[0] * 2
        return tg.log(y)

    found = located(tg.value_and_grad(function), [-1.0])
    assert (found.op, found.direction) == ("log", "forward")
    assert found.line == f"{__file__}:{function.__code__.co_firstlineno + 2}"


def test_only_results_of_a_derivative_count() -> None:
    """Beyond 88 float32 has no exp(x), and the slopes by what is added to it do not care."""

    def function(x: Any) -> Any:
        return tg.where(x[0] > 0, tg.exp(x[0]), 0.0) * 0.0 + x[1]

    slopes, both = (of(function, dtype="float32") for of in (tg.grad, tg.value_and_grad))
    assert slopes([100.0, 1.0]).tolist() == [0.0, 1.0]
    assert tg.locate_nonfinite(slopes, [100.0, 1.0]) is None
    assert located(both, [100.0, 1.0]).op == "exp"
    assert tg.locate_nonfinite(tg.value_and_grad(function), [100.0, 1.0]) is None


def test_trouble_of_second_derivatives_alone_is_found() -> None:
    """x**1.5 has the slope 0 at 0, and an infinite curvature."""
    found = located(tg.hessian(lambda x: x[0] ** 1.5), [0.0])
    assert not math.isfinite(found.value)
    assert tg.locate_nonfinite(tg.grad(lambda x: x[0] ** 1.5), [0.0]) is None


def test_derivatives_along_vectors_are_refused() -> None:
    with pytest.raises(tg.DTypeError, match="takes a vector too"):
        tg.locate_nonfinite(tg.hvp(lambda x: tg.sqrt(x[0])), [0.0])


def test_graphs_with_lines_tell_where_a_node_was_recorded() -> None:
    g = tg.Graph(lines=True)
    x = g.inputs(2)
    spoilt = tg.sum(np.log(x)) * 2
    line = test_graphs_with_lines_tell_where_a_node_was_recorded.__code__.co_firstlineno + 3
    found = tg.locate_nonfinite(spoilt, [1.0, -1.0])
    assert found is not None
    assert found.line == f"{__file__}:{line}"
    assert str(found).endswith(f"({__file__}:{line})")
    assert x[0].line == f"{__file__}:{line - 1}"


def test_functions_are_recorded_with_lines() -> None:
    def root(x: Any) -> Any:
        return tg.sqrt(x[0])

    found = tg.locate_nonfinite(root, [0.0])
    assert found is not None
    assert found.line == f"{__file__}:{root.__code__.co_firstlineno + 1}"


def test_graphs_without_lines_have_none() -> None:
    assert tg.Graph().input().line is None
    found = tg.locate_nonfinite(tg.log(tg.Graph().input("x")), [0.0])
    assert found is not None
    assert str(found) == "%1 = log(x) is -inf, where x = 0.0; it spoils output 0"


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_programs_are_searched(dtype: str) -> None:
    g = tg.Graph(lines=True)
    x, y = g.input("x"), g.input("y")
    program = tg.compile(tg.exp(x) * tg.sqrt(y), wrt=[x, y], inputs=[y, x], dtype=dtype)
    line = test_programs_are_searched.__code__.co_firstlineno + 4
    assert tg.locate_nonfinite(program, [1.0, 1.0]) is None
    forward = located(program, [1.0, 800.0])
    assert (forward.op, forward.operands) == ("exp", (("x", 800.0),))
    assert forward.line == f"{__file__}:{line}"
    backward = located(program, [0.0, 1.0])
    assert (backward.direction, backward.op) == ("backward", "sqrt")
    again = tg.Program.from_bytes(program.to_bytes())
    assert located(again, [1.0, 800.0]).op == "exp"
    assert (located(program, [1.0, 100.0]).op == "exp") if dtype == "float32" else True
    with pytest.raises(tg.DTypeError, match="neither wrt nor inputs"):
        tg.locate_nonfinite(program, [1.0, 1.0], wrt=[x])


def logarithms(a: Any, c: Any, r: Any) -> Any:
    return c + tg.log(r) * a, r


@pytest.mark.parametrize("steps", [5, 63, 64, 65, 1000, 5000])
@pytest.mark.parametrize("checkpoint", [4, 64])
def test_scans_are_searched_step_by_step(steps: int, checkpoint: int) -> None:
    data = np.linspace(1, 2, steps)
    for spoilt in {0, 3, steps // 2, steps - 1}:
        rows = data.copy()
        rows[spoilt] = -1.0
        a = tg.Graph(lines=True).input("a")
        step = functools.partial(logarithms, a)
        end, _ = tg.scan(step, 0.0, rows, checkpoint=checkpoint)
        found = located(tg.compile(end * 2), [0.5])
        assert (found.op, found.operands) == ("log", (("x[0]", -1.0),))
        assert found.steps == (spoilt,)
        assert found.line == f"{__file__}:{logarithms.__code__.co_firstlineno + 1}"
        assert f"in step {spoilt:,} of a scan" in str(found)


def roots_within_a_scan() -> tuple[Any, Any]:
    """Return 20 inputs, and the sum of the roots of each less 0 to 4: a scan within a scan."""
    x = tg.Graph().inputs(20, name="x")

    def outer(c: Any, k: Any) -> Any:
        end, _ = tg.scan(lambda d, each: (d + tg.sqrt(each - k), None), c, x, checkpoint=4)
        return end, None

    end, _ = tg.scan(outer, 0.0, np.arange(5.0), checkpoint=2)
    return x, end


def test_scans_within_scans_are_searched() -> None:
    x, end = roots_within_a_scan()
    point = np.full(20, 10.0)
    point[13] = 2.5
    found = located(end, point, inputs=x)
    assert found.steps == (3, 13)
    assert found.op == "sqrt"


def test_outputs_of_steps_are_searched() -> None:
    g = tg.Graph()
    x = g.input("x")
    _, ys = tg.scan(lambda c, t: (c + x, 1 / (c - 30.0)), 0.0, length=100, checkpoint=4)
    assert tg.locate_nonfinite(list(ys), [0.5], wrt=[x]) is not None
    found = located(list(ys), [1.0])
    assert (found.op, found.steps, found.output) == ("div", (30,), 30)
    assert located(ys[30:], [1.0]).steps == (30,)


def apart(carry: Any, _: Any) -> Any:
    """Two carries that do not meet: the first soon is NaN, the second is 0 in step 3."""
    a, b = carry
    return (tg.log(a) - 1.0, b - 1.0), 1 / b


@pytest.mark.parametrize("checkpoint", [2, 64])
def test_carries_that_a_result_does_not_come_from_are_passed_over(checkpoint: int) -> None:
    g = tg.Graph()
    x, y = g.input("x"), g.input("y")
    (a, b), ys = tg.scan(apart, (x, y), length=9, checkpoint=checkpoint)
    found = located(list(ys), [1.5, 3.0])
    assert (found.op, found.steps, found.output) == ("div", (3,), 3)
    found = located([b, a], [1.5, 3.0])
    assert (found.op, found.steps, found.output) == ("log", (1,), 1)


@pytest.mark.parametrize("checkpoint", [2, 64])
def test_operands_of_scans_are_followed_and_those_that_do_no_harm_passed_over(
    checkpoint: int,
) -> None:
    g = tg.Graph()
    x, y = g.input("x"), g.input("y")
    inverse = 1 / y

    def without_large(c: Any, t: Any) -> Any:
        return tg.log(c) + tg.where(t > 5, 2.0, t), None

    end, _ = tg.scan(without_large, tg.sqrt(x), [y, inverse, y], checkpoint=checkpoint)
    found = located(end, [1.0, 0.0])
    assert (found.op, found.steps, found.operands[0][1]) == ("log", (1,), 0.0)
    assert located(end, [-1.0, 0.5]).op == "sqrt"
    end, _ = tg.scan(lambda c, t: (c + t, None), x, [y, inverse, y], checkpoint=checkpoint)
    found = located(end, [1.0, 0.0])
    assert (found.var.index, found.steps) == (inverse.index, ())
    end, _ = tg.scan(lambda c, t: (c * t, None), x, [1.0, 2.0, NAN, 1.0], checkpoint=checkpoint)
    found = located(end, [INF, 1.0])
    assert (found.op, found.steps, math.isnan(found.value)) == ("input", (2,), True)


def roots(a: Any, total: Any, x: Any) -> Any:
    return total + tg.sqrt(x * a), None


@pytest.mark.parametrize(("steps", "checkpoint"), [(5, 64), (63, 4), (65, 64), (1000, 4)])
def test_derivatives_of_scans_are_searched_step_by_step(steps: int, checkpoint: int) -> None:
    for spoilt in {0, 3, steps // 2, steps - 1}:
        rows = np.linspace(1, 2, steps)
        rows[spoilt] = 0.0
        a = tg.Graph(lines=True).input("a")
        end, _ = tg.scan(functools.partial(roots, a), 0.0, rows, checkpoint=checkpoint)
        assert tg.locate_nonfinite(end, [0.5]) is None
        found = located(end * 2, [0.5], wrt=[a])
        assert (found.direction, found.op, found.steps) == ("backward", "sqrt", (spoilt,))
        assert [value for _, value in found.operands] == [0.0]
        assert not found.overflow
        assert found.line == f"{__file__}:{roots.__code__.co_firstlineno + 1}"
        assert f"in step {spoilt:,} of a scan" in str(found)


@pytest.mark.parametrize("checkpoint", [4, 64])
@pytest.mark.parametrize("spoilt", [0, 21, 39])
def test_derivatives_are_followed_through_the_carries(spoilt: int, checkpoint: int) -> None:
    """Only the start is differentiated by; what it hits on its way is many steps later."""
    g = tg.Graph()
    start, other = g.input("start"), g.input("other")
    rows = np.ones((40, 1))
    rows[spoilt] = 0.0

    def step(carry: Any, x: Any) -> Any:
        a, b = carry
        return (a * 0.5 + 1 - x[0], b + tg.sqrt(x[0] * a)), None

    (_, end), _ = tg.scan(step, (start, other), rows, checkpoint=checkpoint)
    found = located(end, [4.0, 0.0], wrt=[other, start])
    assert (found.op, found.steps) == ("sqrt", (spoilt,))


@pytest.mark.parametrize("spoilt", range(5))
@pytest.mark.parametrize("checkpoint", [2, 3, 64])
def test_derivatives_are_followed_through_blocks_of_steps(spoilt: int, checkpoint: int) -> None:
    g = tg.Graph()
    x, b = g.input("x"), g.input("b")
    rows = np.ones((5, 2))
    rows[spoilt, 1] = 0.0

    def step(carry: Any, r: Any) -> Any:
        _, c = carry
        return (tg.tanh(c) + tg.sqrt(r[0] * x) / 2, tg.tanh(c) + tg.sqrt(r[1] * b * b) / 2), None

    (a, c), _ = tg.scan(step, (b * 1.0, b * 1.0), rows, checkpoint=checkpoint)
    found = located(a + c, [0.5, 0.3], wrt=[x, b])
    assert (found.direction, found.op, found.steps) == ("backward", "sqrt", (spoilt,))
    assert [value for _, value in found.operands] == [0.0]


def test_derivatives_by_operands_of_steps_are_searched() -> None:
    g = tg.Graph()
    x = g.inputs(30, name="x")
    end, ys = tg.scan(lambda c, each: (c + each, tg.log(each * each)), 0.0, x, checkpoint=4)
    point = np.full(30, 2.0)
    point[17] = 1e-200  # its square is 0
    assert located([end, *ys], point, inputs=x).steps == (17,)  # the value itself
    end, _ = tg.scan(lambda c, each: (c + tg.sqrt(each), None), 0.0, x, checkpoint=4)
    point[17] = 0.0
    found = located(end, point, wrt=x, inputs=x)
    assert (found.op, found.steps, found.value) == ("sqrt", (17,), np.inf)


def test_derivatives_of_scans_within_scans_are_searched() -> None:
    x, end = roots_within_a_scan()
    point = np.full(20, 10.0)
    point[13] = 4.0  # minus the last k is 0
    found = located(end, point, wrt=x, inputs=x)
    assert (found.direction, found.op, found.steps) == ("backward", "sqrt", (4, 13))


def test_derivatives_that_overflow_in_a_scan_are_told_with_their_step() -> None:
    x = tg.Graph().input("x")
    end, _ = tg.scan(lambda c, _: (c * 1e50, None), x * 1e-300, length=20, checkpoint=4)
    found = located(tg.tanh(end) * 1e300, [0.0], wrt=[x])
    assert found.direction == "backward"
    assert found.op == "mul"
    assert found.overflow
    assert len(found.steps) == 1


def test_of_two_scans_the_one_that_overflows_is_told() -> None:
    x = tg.Graph().input("x")
    half, _ = tg.scan(lambda c, _: (c * 0.5, None), x, length=3)
    large, _ = tg.scan(lambda c, _: (c * 1e100, None), x, length=2)
    found = tg.locate_nonfinite(half + 1e200 * large, [1e-300], wrt=[x])
    assert found is not None
    assert (found.op, found.overflow, found.steps) == ("mul", True, (0,))


def test_steps_that_a_where_leaves_out_do_no_harm_backward() -> None:
    a = tg.Graph().input("a")
    rows = np.array([0.0, 1.0, 2.0, 3.0])

    def guarded(total: Any, x: Any) -> Any:
        return total + tg.where(x > 0, tg.sqrt(x * a), 0.0), None

    end, _ = tg.scan(guarded, 0.0, rows)
    assert tg.locate_nonfinite(end, [1.0], wrt=[a]) is None
    assert located(tg.where(a > 2, 0.0, end) * 1.0, [0.0], wrt=[a]).steps == (3,)


@pytest.mark.parametrize("mode", ["forward", "reverse"])
@pytest.mark.parametrize("checkpoint", [4, 64])
def test_derivatives_as_outputs_name_the_step(mode: str, checkpoint: int) -> None:
    rows = np.linspace(1, 2, 100)
    rows[37] = 0.0
    a = tg.Graph().input("a")
    end, _ = tg.scan(functools.partial(roots, a), 0.0, rows, checkpoint=checkpoint)
    derivative = tg.grad(end, a) if mode == "reverse" else tg.jvp([end], [a], [1.0])[0]
    found = located(derivative, [0.5])
    assert (found.direction, found.steps) == ("forward", (37,))
    assert 0.0 in [value for _, value in found.operands]


def test_a_constant_that_is_not_finite_is_told_as_one() -> None:
    x = tg.Graph().input("x")
    found = tg.locate_nonfinite(x * np.inf, [0.0], wrt=[x])
    assert str(found) == "the constant inf spoils output 0"
