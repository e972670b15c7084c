"""Programs as C: compiled by gcc, compared with the engine and with hyperdual numbers."""

from __future__ import annotations

import ctypes
import math
import re
import shutil
import subprocess
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tapegrad as tg
from tapegrad.scalar import c_source
from tests.scalar.random_graphs import SHAPES, grow
from tests.scalar.reference import RECORDS, Record

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")

#: Calls a C function: values and derivatives at a point.
Call = Callable[[Any], tuple[NDArray[Any], NDArray[Any]]]


def compiled(programs: dict[str, tg.Program], folder: Path) -> dict[str, Call]:
    """Compile programs as one file of C, without a warning."""
    source = folder / "programs.c"
    library = folder / "programs.so"
    source.write_text("\n".join(p.to_c(name=name) for name, p in programs.items()))
    flags = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, str(source), "-o", str(library), "-lm"], check=True)
    loaded = ctypes.CDLL(str(library))
    return {name: _call(getattr(loaded, name), p) for name, p in programs.items()}


def _call(function: Any, program: tg.Program) -> Call:
    def call(point: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        x = np.ascontiguousarray(point, dtype=program.dtype)
        values = np.full(program.n_outputs, 7.5, dtype=program.dtype)
        derivatives = np.full((program.n_outputs, program.n_derivatives), 7.5, program.dtype)
        arrays = [x, values, *([derivatives] if program.n_derivatives else [])]
        function(*(ctypes.c_void_p(array.ctypes.data) for array in arrays))
        return values, derivatives

    return call


def results(program: tg.Program, point: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """What the engine gives, as C gives it."""
    found = program(point)
    values, derivatives = found if program.n_derivatives else (found, ())
    shape = (program.n_outputs, program.n_derivatives)
    return (
        np.reshape(values, -1).astype(program.dtype),
        np.reshape(derivatives, shape).astype(program.dtype),
    )


def bits(array: NDArray[Any]) -> bytes:
    return array.tobytes()


# ---- random graphs -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_random_graphs_match_the_engine_and_hyperdual_numbers(dtype: str, tmp_path: Path) -> None:
    grown = {
        f"{shape}{seed}": grow(shape, 5, 60, seed, True) for shape in SHAPES for seed in range(5)
    }
    programs = {
        name: tg.compile(g.vars[-1], wrt=g.inputs, dtype=dtype) for name, g in grown.items()
    }
    tolerance = 1e-11 if dtype == "float64" else 2e-3
    for name, call in compiled(programs, tmp_path).items():
        g, program = grown[name], programs[name]
        value, gradient = call(g.point)
        engine_value, engine_gradient = results(program, g.point)
        scale = np.abs(engine_gradient).max() + 1
        np.testing.assert_allclose(value, engine_value, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(gradient / scale, engine_gradient / scale, atol=tolerance)
        dual = g.duals[-1]
        assert value[0] == pytest.approx(dual.value, rel=tolerance, abs=tolerance)
        np.testing.assert_allclose(gradient[0] / scale, dual.gradient / scale, atol=tolerance)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_arithmetic_is_equal_bit_by_bit(dtype: str, tmp_path: Path) -> None:
    grown = [grow(shape, 6, 120, seed, False) for shape in SHAPES for seed in range(4)]
    programs = {
        f"f{i}": tg.compile(g.vars[-1], wrt=g.inputs, dtype=dtype) for i, g in enumerate(grown)
    }
    x = tg.Graph().inputs(70)
    sums = [
        tg.sum(x),
        tg.dot(x[:35], x[35:]),
        tg.sum(list(x[:20]) + [a * b for a, b in zip(x[20:45], x[45:], strict=True)]),
    ]
    programs["sums"] = tg.compile(
        [*sums, *(tg.sum(x[:n]) for n in range(1, 20))], wrt=x, dtype=dtype
    )
    calls = compiled(programs, tmp_path)
    points = [g.point for g in grown] + [np.random.default_rng(0).normal(size=70)]
    for (name, program), point in zip(programs.items(), points, strict=True):
        for ours, engine in zip(calls[name](point), results(program, point), strict=True):
            assert bits(ours) == bits(engine), name


# ---- every operation ---------------------------------------------------------------------------


SPECIAL = [0.0, -0.0, 0.25, -0.75, 1.0, -1.0, 2.5, -7.0, 30.0, -30.0, 700.0, -700.0]
SPECIAL += [math.inf, -math.inf, math.nan]


def special_points(record: Record) -> NDArray[Any]:
    grid = np.meshgrid(*[SPECIAL] * record.arity)
    return np.stack([axis.ravel() for axis in grid], axis=1)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_operation_matches_at_special_points(dtype: str, tmp_path: Path) -> None:
    programs = {}
    for record in RECORDS:
        x = tg.Graph().inputs(record.arity)
        programs[f"op_{record.name}"] = tg.compile(record.record(x), dtype=dtype)
    calls = compiled(programs, tmp_path)
    tolerance = 1e-12 if dtype == "float64" else 3e-6
    tiny = float(np.finfo(dtype).tiny)
    for record in RECORDS:
        name = f"op_{record.name}"
        points = special_points(record)
        ours = np.array([calls[name](point)[0][0] for point in points])
        engine = programs[name].batch(points.astype(dtype))
        np.testing.assert_allclose(ours, engine, rtol=tolerance, atol=tiny, err_msg=name)


def test_whole_quotients_of_huge_numbers_are_those_of_fractions(tmp_path: Path) -> None:
    x = tg.Graph().inputs(2)
    call = compiled({"quotient": tg.compile(x[0] // x[1])}, tmp_path)["quotient"]
    huge = [(-1e16, 3.0), (2.1824256712948582e22, 5030306.7)]
    for a, b in [(1e16, 3.0), *huge, (3.405892073618387e27, 1.1227185890650788)]:
        assert call(np.array([a, b]))[0][0] == float(Fraction(a) // Fraction(b))


def many(x: Any) -> list[Any]:
    """Operations with any number of operands."""
    soft = tg.softmax(x)
    return [tg.prod(x), tg.max(x), tg.min(x), tg.logsumexp(x), soft[0], soft[-1], tg.sum(x)]


@pytest.mark.parametrize("n", [1, 2, 4, 5, 40])
def test_any_number_of_operands_matches_with_large_and_special_values(
    n: int, tmp_path: Path
) -> None:
    x = tg.Graph().inputs(n)
    program = tg.compile(many(x), wrt=x)
    call = compiled({"many": program}, tmp_path)["many"]
    random = np.random.default_rng(n)
    for scale in (1.0, 100.0, 1e4):
        point = random.normal(size=n) * scale
        for ours, engine in zip(call(point), results(program, point), strict=True):
            np.testing.assert_allclose(ours, engine, rtol=1e-12, atol=1e-15)
    for special in (math.nan, math.inf, -math.inf):
        point = random.normal(size=n)
        point[n // 2] = special
        np.testing.assert_allclose(call(point)[0], results(program, point)[0], rtol=1e-12)


# ---- shapes ------------------------------------------------------------------------------------


def test_long_programs_become_several_functions(tmp_path: Path) -> None:
    x = tg.Graph().inputs(3)
    values = list(x)
    for i in range(c_source.PART * 3):
        values.append(tg.sin(values[-1]) * 0.5 + values[i // 2] * 0.25 - values[i % 3])
    soft = tg.softmax(values[:7])
    program = tg.compile(
        [values[-1], x[1], soft[2] * values[-5], tg.Graph.constant(x[0].graph, 4.0)], wrt=x
    )
    source = program.to_c()
    assert "f_part3" in source
    call = compiled({"long_one": program}, tmp_path)["long_one"]
    for ours, engine in zip(call([0.1, 0.2, 0.3]), results(program, [0.1, 0.2, 0.3]), strict=True):
        np.testing.assert_allclose(ours, engine, rtol=1e-10)


def test_outputs_that_are_inputs_or_numbers(tmp_path: Path) -> None:
    g = tg.Graph()
    x = g.inputs(2)
    numbers = [0.1, -0.0, 1e-310, -1e300, math.inf, -math.inf, math.nan]
    programs = {
        "plain": tg.compile([x[1], *(g.constant(number) for number in numbers)], inputs=x),
        "single": tg.compile([x[1], *(g.constant(number) for number in numbers)], dtype="float32"),
        "unused": tg.compile(g.constant(2.0), wrt=x),
    }
    calls = compiled(programs, tmp_path)
    for name, program in programs.items():
        for ours, engine in zip(calls[name]([3.0, 4.0]), results(program, [3.0, 4.0]), strict=True):
            np.testing.assert_array_equal(ours, engine)
            np.testing.assert_array_equal(np.signbit(ours), np.signbit(engine))


def test_loops_are_loops(tmp_path: Path) -> None:
    body_inputs = tg.Graph().inputs(3)
    a, b, rate = body_inputs
    body = tg.compile([a + rate * b, b - rate * tg.sin(a)])
    x = tg.Graph().inputs(3)
    end = tg._core.record_loop(body, 50, [x[0], x[1]], [x[2]])
    program = tg.compile([end[0] * 2, end[1]])
    source = program.to_c()
    assert source.count("sin(") == 1
    call = compiled({"looped": program}, tmp_path)["looped"]
    p, v = 1.0, 0.5
    for _ in range(50):
        p, v = p + 0.1 * v, v - 0.1 * math.sin(p)
    np.testing.assert_allclose(call([1.0, 0.5, 0.1])[0], [2 * p, v], rtol=1e-12)


def test_scans_of_no_steps_are_no_loops(tmp_path: Path) -> None:
    x = tg.Graph().inputs(3)
    table, _ = tg.scan(lambda c, row: (c * row, c), x[0], np.empty(0))
    stepped, _ = tg.scan(lambda c, row: (c * row * x[2], c), x[1], x[:0])
    program = tg.compile([table * 2, stepped], wrt=x)
    assert "for (" not in program.to_c()
    for ours, engine in zip(
        compiled({"none": program}, tmp_path)["none"]([3.0, 4.0, 5.0]),
        results(program, [3.0, 4.0, 5.0]),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, engine)


def test_the_text_is_written_where_it_is_asked_for(tmp_path: Path) -> None:
    x = tg.Graph().inputs(1)
    program = tg.compile(tg.exp(x[0]), wrt=x)
    text = program.to_c(tmp_path / "f.c", name="growth")
    assert (tmp_path / "f.c").read_text() == text
    assert "void growth(const double *x, double *value, double *gradient) {" in text


@pytest.mark.parametrize("name", ["", "2f", "a b", "int", "main", "exp", "expf", "é", "f;", "f\n"])
def test_names_that_c_does_not_take_are_refused(name: str) -> None:
    x = tg.Graph().inputs(1)
    with pytest.raises(tg.OptionError, match="to_c: expected"):
        tg.compile(x[0] * 2).to_c(name=name)


def declared() -> set[str]:
    """All functions, types and macros of C99's headers that files include, as gcc reads them."""
    headers = "#include <math.h>\n#include <stdlib.h>\n"
    command = ["gcc", "-std=c99", "-E", "-P", "-x", "c", "-"]
    text, macros = (
        subprocess.run([*command, *more], input=headers, text=True, capture_output=True, check=True)
        for more in ([], ["-dM"])
    )
    functions = re.findall(r"\b([A-Za-z]\w*) *\(", text.stdout)
    types = re.findall(r"typedef [^{};]*?(\w+);", text.stdout)
    return {*functions, *types, *re.findall(r"#define (\w+)", macros.stdout)}


def test_names_that_the_headers_declare_are_refused() -> None:
    program = tg.compile(tg.Graph().input() * 2)
    names = declared()
    assert len(names) > 300
    assert {"fmod", "cbrtl", "lround", "abort", "NAN", "double_t", "qsort"} < names
    for name in sorted({*names, "_Bool", "_Complex", "bool", "asm", "random", "y1", "M_PI"}):
        with pytest.raises(tg.OptionError, match="to_c: expected"):
            program.to_c(name=name)


BUILT_IN = (
    "memcpy memset strlen printf puts putchar fopen isdigit toupper cexp creall fesetround ffs"
)


@pytest.mark.parametrize("name", BUILT_IN.split())
def test_names_that_compilers_know_without_a_header_are_refused(name: str) -> None:
    with pytest.raises(tg.OptionError, match="C's own functions leave free"):
        tg.compile(tg.Graph().input() * 2).to_c(name=name)


def test_names_that_c_takes_are_taken(tmp_path: Path) -> None:
    x = tg.Graph().inputs(2)
    program = tg.compile(x[0] * x[1], wrt=x)
    names = ["loss", "f", "x", "value", "W", "u_x", "energy_r", "M", "Random", "_f", "y2", "expo"]
    names += ["strain", "memory", "total", "isotropic", "curl", "cost", "conjugate"]
    found = compiled(dict.fromkeys(names, program), tmp_path)
    for call in found.values():
        assert call([2.0, 3.0])[0] == [6.0]


def test_numbers_and_steps_of_a_scan_are_written_once() -> None:
    x = tg.Graph().inputs(2)
    numbers = np.linspace(0, 1, 5000)
    end, _ = tg.scan(lambda c, t: (tg.sin(c * t) + x[1], None), x[0], numbers)
    program = tg.compile([end, end * 2], wrt=x)
    text = program.to_c(name="f")
    assert text.count(str(numbers[1234])) == 1
    bodies = [part.split("}\n\n")[0] for part in re.split(r"static void f_body\d+", text)[1:]]
    assert len(set(bodies)) == len(bodies)
