"""Time per kind of instruction."""

from __future__ import annotations

import numpy as np
import pytest

import tapegrad as tg


def test_the_table_has_every_kernel_of_the_program() -> None:
    x = tg.Graph().inputs(50)
    program = tg.compile(tg.sum(tg.exp(x) * tg.sin(x)), wrt=x)
    found = program.profile(np.zeros(50))
    assert {k.name: k.instructions for k in found.kernels} == program.stats["kernels"]
    assert sum(k.runs for k in found.kernels) == program.stats["runs"]
    assert found.seconds > 0
    assert found.rows == 1
    assert [k.seconds for k in found.kernels] == sorted(k.seconds for k in found.kernels)[::-1]
    lines = repr(found).splitlines()
    assert lines[0].endswith("us for 1 row")
    assert len(lines) == 2 + len(found.kernels)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_costly_functions_take_most_of_the_time(dtype: str) -> None:
    x = tg.Graph().inputs(200)
    program = tg.compile(tg.sum([tg.pow(a, b) for a, b in zip(x[1:], x, strict=False)]),
                         dtype=dtype)  # fmt: skip
    found = program.profile(np.full((64, 200), 1.5))
    assert found.rows > 1
    assert found.kernels[0].name == "pow"
    assert found.kernels[0].seconds > sum(k.seconds for k in found.kernels[1:])
    # Run by run and as a whole it is the same work; other processes may disturb either.
    assert found.seconds / 10 < sum(k.seconds for k in found.kernels) < found.seconds * 10


def test_profiling_leaves_no_trace() -> None:
    x = tg.Graph().inputs(3)
    end, _ = tg.scan(lambda c, _: (tg.tanh(c + x[0]), None), x[1], length=100)
    program = tg.compile(end * x[2], wrt=x)
    before = program([0.1, 0.2, 0.3])
    assert "loop" in {kernel.name for kernel in program.profile([0.5, 0.5, 0.5]).kernels}
    after = program([0.1, 0.2, 0.3])
    assert before[0] == after[0]
    assert before[1].tobytes() == after[1].tobytes()


def test_what_evaluations_raise_is_raised() -> None:
    g = tg.Graph(branches="freeze")
    x = g.inputs(1, values=[1.0])
    assert x[0] > 0
    with pytest.raises(tg.BranchChanged):
        tg.compile(x[0] * 2).profile([-1.0])
    with pytest.raises(tg.ShapeError, match="profile"):
        tg.compile(x[0] * 2).profile([1.0, 2.0])
    with pytest.raises(tg.ShapeError, match="expected a point"):
        tg.compile(x[0] * 2).profile(1.0)
    with pytest.raises(tg.ShapeError, match="got none"):
        tg.compile(x[0] * 2).profile(np.empty((0, 1)))
