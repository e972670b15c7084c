"""Random graphs: values, gradients and second derivatives against hyperdual numbers, bit for bit
between single and batch runs, and between instruction sets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import tapegrad as tg
from tests.scalar.random_graphs import SHAPES, Grown, grow

#: Kept the same bits of functions too; others round their multiply-adds twice.
FUSED = ("avx512", "avx2", "neon")


def graphs(count: int) -> settings:
    """As many graphs, the same in every run."""
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


each_plan = given(
    shape=st.sampled_from(SHAPES),
    inputs=st.integers(1, 6),
    steps=st.integers(0, 40),
    seed=st.integers(0, 2**32 - 1),
)


@contextmanager
def using(isa: str) -> Iterator[None]:
    before = tg.isa()
    tg.set_isa(isa)
    try:
        yield
    finally:
        tg.set_isa(before)


def outputs_of(grown: Grown) -> list[tg.Var]:
    """The value, the gradient, and the Hessian times the direction."""
    y, x = grown.vars[-1], grown.inputs
    gradient = tg.grad(y, x)
    along = tg.dot(gradient, grown.direction)
    return [y, *gradient, *tg.grad(along, x)]


def neighbours(grown: Grown, rows: int) -> NDArray[np.float64]:
    """The point, and points around it, as a batch."""
    random = np.random.default_rng(rows)
    points = np.array(grown.point) + random.normal(scale=0.5, size=(rows, len(grown.point)))
    points[rows // 2] = grown.point
    return points


def check(grown: Grown, isas: list[str]) -> dict[str, Any]:
    """Compares one graph with its hyperdual numbers; returns the batch of every instruction set."""
    program = tg.compile(outputs_of(grown))
    want = grown.duals[-1]
    n, points, found = len(grown.point), neighbours(grown, 9), {}
    for isa in isas:
        with using(isa):
            single = program(grown.point)
            rows = program.batch(points, threads=1)
            np.testing.assert_array_equal(rows, np.array([program(p) for p in points]))
        scale = max(1.0, *(dual.size for dual in grown.duals))
        close = {"rtol": 1e-9, "atol": 1e-10 * scale}
        np.testing.assert_allclose(single[0], want.value, **close)
        np.testing.assert_allclose(single[1 : n + 1], want.gradient, **close)
        np.testing.assert_allclose(single[n + 1 :], want.curved, **close)
        np.testing.assert_array_equal(rows[4], single)
        found[isa] = rows
    return found


@graphs(4000)
@each_plan
def test_derivatives_agree_with_hyperdual_numbers(
    shape: str, inputs: int, steps: int, seed: int
) -> None:
    found = check(grow(shape, inputs, steps, seed, functions=True), tg.isas())
    fused = [found[isa] for isa in found if isa in FUSED]
    for rows in fused[1:]:
        np.testing.assert_array_equal(rows, fused[0])


@graphs(2000)
@each_plan
def test_arithmetic_has_the_same_bits_on_every_instruction_set(
    shape: str, inputs: int, steps: int, seed: int
) -> None:
    first, *others = check(grow(shape, inputs, steps, seed, functions=False), tg.isas()).values()
    for rows in others:
        np.testing.assert_array_equal(rows, first)


@graphs(1000)
@each_plan
def test_float32_is_close_to_float64(shape: str, inputs: int, steps: int, seed: int) -> None:
    grown = grow(shape, inputs, min(steps, 20), seed, functions=True)
    outputs = outputs_of(grown)
    wide, narrow = (tg.compile(outputs, dtype=dtype) for dtype in ("float64", "float32"))
    want, got = wide(grown.point), narrow(np.array(grown.point, np.float32))
    assert got.dtype == np.float32
    scale = max(1.0, *(dual.size for dual in grown.duals))
    np.testing.assert_allclose(got, want, rtol=5e-3, atol=5e-3 * scale)
    points = neighbours(grown, 9).astype(np.float32)
    np.testing.assert_array_equal(narrow.batch(points), np.array([narrow(p) for p in points]))


@graphs(600)
@each_plan
def test_jacobian_rows_are_the_gradients_of_the_outputs(
    shape: str, inputs: int, steps: int, seed: int
) -> None:
    grown = grow(shape, inputs, steps, seed, functions=True)
    last = grown.vars[-4:]
    values, jacobian = tg.compile(last, wrt=grown.inputs)(grown.point)
    scale = max(1.0, *(dual.size for dual in grown.duals))
    for k, dual in enumerate(grown.duals[-4:]):
        assert values[k] == pytest.approx(dual.value, rel=1e-9, abs=1e-10 * scale)
        np.testing.assert_allclose(jacobian[k], dual.gradient, rtol=1e-9, atol=1e-10 * scale)


@graphs(400)
@each_plan
def test_many_outputs_and_derivatives_by_intermediates_compile(
    shape: str, inputs: int, steps: int, seed: int
) -> None:
    """By the chain rule through any two Vars: what a Var contributes is what its slope says."""
    grown = grow(shape, inputs, steps, seed, functions=True)
    middle = grown.vars[len(grown.vars) // 2]
    y = grown.vars[-1]
    by_middle, by_itself = tg.grad(y, middle), tg.grad(y, y)
    values = tg.compile([*grown.vars, by_middle, by_itself])(grown.point)
    got = values[: len(grown.vars)]
    np.testing.assert_allclose(got, [dual.value for dual in grown.duals], rtol=1e-9, atol=1e-9)
    assert values[-1] == 1.0
    assert np.isfinite(values[-2])


@graphs(600)
@each_plan
def test_rows_of_jacobians_do_not_depend_on_the_order_of_outputs(
    shape: str, inputs: int, steps: int, seed: int
) -> None:
    grown = grow(shape, inputs, steps, seed, functions=True)
    outputs = grown.vars[-5:]
    points = np.concatenate([neighbours(grown, 5), 500 * neighbours(grown, 5)])
    ahead, behind = (
        tg.compile(each, wrt=grown.inputs).batch(points) for each in (outputs, outputs[::-1])
    )
    for found, reversed_ in zip(ahead, behind, strict=True):
        np.testing.assert_array_equal(found, reversed_[:, ::-1])
