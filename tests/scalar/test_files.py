"""Saved programs: the same bits after loading, old files, damaged and hostile ones."""

from __future__ import annotations

import copy
import json
import math
import os
import pickle
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.scalar import files
from tests.scalar.random_graphs import SHAPES, grow
from tests.scalar.reference import RECORDS

DATA = Path(__file__).parent / "data"
#: Mutated records that are read; 100,000 take a minute.
MUTATIONS = int(os.environ.get("TAPEGRAD_MUTATIONS", "10000"))

each_dtype = pytest.mark.parametrize("dtype", ["float64", "float32"])


def every_operation(x: Any) -> Any:
    """A sum of all operations of the table and of all with any number of operands."""
    inner = [0.5 + 0.25 * tg.tanh(a) for a in x]
    terms = [record.record(inner[: record.arity]) for record in RECORDS]
    soft = tg.softmax([*inner, 0.25])
    terms += [soft[0] * soft[1], tg.logsumexp(x), tg.max(x), tg.min(x), tg.prod(x)]
    terms += [tg.dot(x, inner), tg.where(x[0] > x[1], x[0] * x[2], tg.sin(x[1]))]
    return tg.sum(terms)


def complete_program(dtype: str = "float64") -> tg.Program:
    g = tg.Graph()
    x = np.array([g.input(name) for name in ("a", "b", "")])
    return tg.compile(every_operation(x), wrt=x, dtype=dtype)


def looped_program() -> tg.Program:
    a, b, rate = tg.Graph().inputs(3)
    body = tg.compile([a + rate * b, b - rate * tg.sin(a)])
    x = tg.Graph().inputs(3)
    inner = tg._core.record_loop(body, 5, [x[0], x[1]], [x[2]])
    outer_body = tg.compile([inner[0] * 0.5, inner[1], x[2]])
    y = tg.Graph().inputs(3)
    return tg.compile([v * 2 for v in tg._core.record_loop(outer_body, 3, list(y))])


def scanned_program() -> tg.Program:
    x = tg.Graph().inputs(2)
    end, _ = tg.scan(lambda c, t: (tg.sin(c) * t + x[1], None), x[0], [1.0, 2.0, 3.0])
    return tg.compile(end, wrt=x)


def frozen_program() -> tg.Program:
    x = tg.Graph(branches="freeze").inputs(2, values=[1.0, 2.0])
    return tg.compile(x[0] * x[1] if x[0] < x[1] else x[0], wrt=x)


#: All kinds of programs that are written in formats of their own.
KINDS = {"ordinary": complete_program, "scan": scanned_program, "frozen": frozen_program}


def flat(results: Any) -> bytes:
    """All numbers of a result, bit by bit."""
    parts = results if isinstance(results, tuple) else (results,)
    return b"".join(np.asarray(part).tobytes() for part in parts)


def assert_same(a: tg.Program, b: tg.Program, points: Any) -> None:
    rows = np.asarray(points, dtype=a.dtype)
    assert flat(a.batch(rows)) == flat(b.batch(rows))
    assert flat(a(rows[0])) == flat(b(rows[0]))
    assert repr(a) == repr(b)
    for figure in ("live_nodes", "instructions", "kernels", "runs", "slots", "code_bytes"):
        assert a.stats[figure] == b.stats[figure], figure
    assert a.input_names == b.input_names
    assert a.to_bytes() == b.to_bytes()


# ---- the same program again --------------------------------------------------------------------


@each_dtype
@pytest.mark.parametrize("shape", SHAPES)
def test_a_loaded_program_gives_the_same_bits(shape: str, dtype: str, tmp_path: Path) -> None:
    for seed in range(8):
        grown = grow(shape, 4, 80, seed, functions=True)
        program = tg.compile(grown.vars[-3:], wrt=grown.inputs, dtype=dtype)
        program.save(tmp_path / "program.tg")
        points = np.random.default_rng(seed).normal(size=(9, 4))
        assert_same(tg.Program.load(tmp_path / "program.tg"), program, points)


COPIES: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda program: pickle.loads(pickle.dumps(program)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "twice": lambda program: copy.copy(pickle.loads(pickle.dumps(program))),
}


@pytest.mark.parametrize("way", COPIES)
@each_dtype
def test_copies_go_through_the_same_bytes(way: str, dtype: str) -> None:
    program = complete_program(dtype)
    made = COPIES[way](program)
    assert type(made) is tg.Program
    assert made is not program
    assert_same(made, program, np.random.default_rng(0).normal(size=(5, 3)))
    assert program.to_bytes() in pickle.dumps(program)


def test_subclasses_stay_what_they_are() -> None:
    assert type(pickle.loads(pickle.dumps(Named(complete_program().record())))) is Named


class Named(tg.Program):
    """A program of a class of one's own."""


def test_loops_are_kept() -> None:
    program = looped_program()
    assert_same(copy.copy(program), program, np.random.default_rng(0).normal(size=(5, 3)))


def test_inputs_keep_their_order_and_names_and_those_without_use() -> None:
    g = tg.Graph()
    a, unused, b = g.input("a"), g.input("größe"), g.input("b")
    program = copy.copy(tg.compile(a - b, wrt=[b, a * 1.0], inputs=[b, unused, a]))
    assert program.input_names == ["b", "größe", "a"]
    value, gradient = program([1.0, math.nan, 5.0])
    assert (value, gradient.tolist()) == (4.0, [-1.0, 1.0])
    by_products = copy.copy(tg.compile(a * b, wrt=[a * b, a], inputs=[b, a]))
    assert by_products([2.0, 3.0])[1].tolist() == [1.0, 2.0]


def test_shapes_of_results_are_kept() -> None:
    x = tg.Graph().inputs(2)
    y = x[0] * x[1]
    for outputs, wrt in ((y, None), ([y], None), (y, []), ([y, y], x), ([y, x[0]], [x[1]])):
        program = tg.compile(outputs, wrt=wrt)
        assert_same(copy.copy(program), program, [[2.0, 3.0], [4.0, 5.0]])
    bowl = copy.copy(tg.compile((x[0] - 1) ** 2 + (x[1] + 2) ** 2, wrt=x))
    assert bowl.minimize([0.0, 0.0], "sgd", steps=200, lr=0.1).x.round(6).tolist() == [1.0, -2.0]


def test_a_chain_of_many_nodes_saves_and_loads() -> None:
    x = tg.Graph().inputs(1)
    y = x[0]
    for _ in range(100_000):
        y = tg.sin(y) + x[0]
    program = tg.compile(y, wrt=x)
    assert flat(copy.copy(program)([0.5])) == flat(program([0.5]))


@pytest.mark.parametrize("there", tg.isas())
def test_another_process_with_another_instruction_set_agrees(there: str, tmp_path: Path) -> None:
    program = complete_program()
    program.save(tmp_path / "program.tg")
    script = (
        "import sys, json, tapegrad as tg\n"
        "value, gradient = tg.Program.load(sys.argv[1])([0.3, -0.2, 1.5])\n"
        "print(json.dumps([tg.isa(), value, *gradient]))\n"
    )
    printed = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "program.tg")],
        env={**os.environ, "TAPEGRAD_ISA": there},
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    isa, *numbers = json.loads(printed)
    value, gradient = program([0.3, -0.2, 1.5])
    assert isa == there
    np.testing.assert_allclose(numbers, [value, *gradient], rtol=1e-13)


# ---- files of before ---------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(DATA.glob("*.tg")), ids=lambda path: path.stem)
def test_files_of_every_format_stay_loadable(path: Path) -> None:
    """They hold small programs, of which mpmath computed values and differences.

    Format 1 has `complete_program`; format 2 a scan, frozen branches, and both at once.
    """
    want = json.loads(path.with_suffix(".json").read_text())
    program = tg.Program.load(path)
    tolerance = 1e-12 if program.dtype == "float64" else 1e-5
    assert program.dtype == want["dtype"]
    assert program.input_names == want["input_names"]
    for point, value, gradient in want["results"]:
        got_value, got_gradient = program(point)
        assert got_value == pytest.approx(value, rel=tolerance)
        np.testing.assert_allclose(got_gradient, gradient, rtol=tolerance)
    for point in want.get("other_branches", []):
        with pytest.raises(tg.BranchChanged, match="was"):
            program(point)
    assert_same(copy.copy(program), program, [point for point, *_ in want["results"]])


@pytest.mark.parametrize("kind", KINDS)
def test_formats_that_are_written_today_have_a_file(kind: str) -> None:
    version = files.version_of(KINDS[kind]().record())
    named = "*" if kind == "ordinary" else f"*{kind}*"
    assert list(DATA.glob(f"format-{version}-{named}.tg"))
    assert list(DATA.glob(f"format-{files.VERSION}-*.tg"))


# ---- damage ------------------------------------------------------------------------------------


def test_every_damaged_byte_is_found() -> None:
    data = complete_program().to_bytes()
    for place in range(len(data)):
        for damage in (1, 128):
            damaged = bytearray(data)
            damaged[place] ^= damage
            with pytest.raises(tg.FileError):
                tg.Program.from_bytes(bytes(damaged))


@pytest.mark.parametrize("kind", KINDS)
def test_every_other_header_is_refused(kind: str) -> None:
    data = KINDS[kind]().to_bytes()
    for place in range(28):
        for damage in range(1, 256):
            damaged = bytearray(data)
            damaged[place] ^= damage
            with pytest.raises(tg.FileError):
                tg.Program.from_bytes(bytes(damaged))


def test_every_missing_end_is_found() -> None:
    data = complete_program().to_bytes()
    for length in range(len(data)):
        with pytest.raises(tg.FileError):
            tg.Program.from_bytes(data[:length])
        record = data[:length][28:]
        with pytest.raises(tg.FileError):
            tg.Program.from_bytes(files.framed(record))
    with pytest.raises(tg.FileError, match="follows its end"):
        tg.Program.from_bytes(files.framed(data[28:] + b"\0"))


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other"
    for content in (b"", b"tapegrad", b"tape", b"\x80\x04K\x01.", b"x" * 1000):
        path.write_bytes(content)
        with pytest.raises(tg.FileError):
            tg.Program.load(path)
    with pytest.raises(tg.FileError, match="expected a program saved by tapegrad"):
        tg.Program.load("/dev/zero")
    with pytest.raises(FileNotFoundError):
        tg.Program.load(tmp_path / "missing")


def test_a_newer_format_is_named() -> None:
    data = bytearray(complete_program().to_bytes())
    data[8] = 3
    with pytest.raises(tg.FileError, match="expected format 2 or older, got 3"):
        tg.Program.from_bytes(bytes(data))


# ---- hostile records ---------------------------------------------------------------------------


def number(value: int) -> bytes:
    """A number as records have them."""
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def text(value: str) -> bytes:
    return number(len(value)) + value.encode()


def record(*nodes: bytes, ops: str = "input", inputs: int = 1, end: bytes = b"\1\0\0") -> bytes:
    """A record of one input and some nodes; by default its output is the input."""
    names = ops.split()
    start = b"\2" + number(inputs) + text("") * inputs + number(len(names))
    return (
        start
        + b"".join(map(text, names))
        + b"\0"
        + number(1 + len(nodes))
        + b"\0\0"
        + b"".join(nodes)
        + end
    )


def body(depth: int) -> bytes:
    """Programs with an unused loop body each."""
    program = b"\1\0\1\5input"
    inner = b"\0" if depth == 0 else b"\1" + body(depth - 1)
    return program + inner + b"\1\0\0\1\0\0"


HUGE = number(2**64 - 1)
HOSTILE = {
    "flags": b"\10" + record()[1:],
    "many values for a number": record(end=b"\2\0\0\0"),
    "no values": record(end=b"\0\0"),
    "derivatives without a word": record(end=b"\1\1\0\0\0"),
    "output beyond the nodes": record(end=b"\1\0\1"),
    "2^60 inputs": b"\2" + number(2**60) + record()[2:],
    "2^64 nodes": b"\2\1\0\1\5input\0" + HUGE + b"\0\0\1\0\0",
    "2^64 values": record(end=HUGE + b"\0\0"),
    "values times derivatives": record(end=number(10) + number(10) + b"\0" * 11),
    "values times derivatives overflow": record(end=number(2**33) + number(2**33) + b"\0" * 9),
    "number without end": record(end=b"\xff" * 40),
    "unknown operation": record(ops="input explode"),
    "operation of no text": record(ops="input \x01\x7fé"),
    "projection": record(b"\1\1", ops="input projection"),
    "operation beyond the table": record(b"\7\1"),
    "own operand": record(b"\1\0", ops="input sin"),
    "later operand": record(b"\1\2", ops="input sin"),
    "operand far away": record(b"\1" + HUGE, ops="input sin"),
    "input twice": record(b"\0\0"),
    "input beyond the inputs": record(b"\0\1"),
    "sum of nothing": record(b"\1\0", ops="input sum"),
    "softmax of nothing": record(b"\1\0", ops="input softmax"),
    "2^24 operands": record(b"\1" + number(2**24) + b"\1" * 2**24, ops="input sum"),
    "odd dot": record(b"\1\1\1", ops="input dot"),
    "odd sumdot": record(b"\1\0\1\1", ops="input sumdot"),
    "more plain terms than operands": record(b"\1\2\1\1", ops="input sumdot"),
    "softmax as a value": record(b"\1\1\1", ops="input softmax", end=b"\1\0\1"),
    "softmax as an operand": record(b"\1\1\1", b"\2\2", ops="input softmax sin"),
    "softmax_vjp of an input": record(b"\1\2\1\1", ops="input softmax_vjp"),
    "softmax_vjp in a wrong order": record(
        b"\1\2\1\1", b"\2\4\1\2\1\1", ops="input softmax softmax_vjp"
    ),
    "loop without body": record(b"\1\0\1\1\1", ops="input loop"),
    "loop of two operands": b"\2\1\0\2\5input\4loop\1" + body(0) + b"\2\0\0\1\0\5\2\1\1\1\0\0",
    "loops in loops": b"\2" + body(40),
    "wrt beyond the inputs": b"\6" + record(end=b"\1\1\0\0\5")[1:],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_records_are_refused(name: str) -> None:
    with pytest.raises(tg.FileError, match=r"^load: "):
        tg.Program.from_bytes(files.framed(HOSTILE[name]))


def test_harmless_records_of_the_same_make_are_read() -> None:
    """So that hostile ones are refused for what is wrong with them."""
    harmless = {
        record(): 3.0,
        record(b"\1\1", ops="input sin", end=b"\1\0\1"): math.sin(3.0),
        record(b"\1\1\1", ops="input softmax", end=b"\1\0\2"): 1.0,
        record(b"\1\2\1\1", ops="input sum", end=b"\1\0\1"): 6.0,
        b"\2\1\0\2\5input\4loop\1" + body(0) + b"\2\0\0\1\0\5\1\1\1\0\2": 3.0,
        b"\2" + body(16): 3.0,
    }
    for each, value in harmless.items():
        assert tg.Program.from_bytes(files.framed(each))([3.0]) == pytest.approx(value)


def test_fields_of_python_have_their_type() -> None:
    for wrong in (None, 3, "text", bytearray(b"tapegrad")):
        with pytest.raises(TypeError):
            tg.Program(wrong)  # type: ignore[call-overload]


# ---- mutated records ---------------------------------------------------------------------------


def mutated(data: bytes, random: np.random.Generator) -> bytes:
    """A record with some changes of the kinds that fuzzers make, most of them among its nodes."""
    out = bytearray(data)
    for _ in range(random.geometric(0.6)):
        first = len(out) // 3 if random.random() < 0.8 else 0  # behind the names of operations
        place = int(random.integers(first, len(out)))
        other = int(random.integers(len(out)))
        size = int(random.integers(1, 9))
        match random.integers(6):
            case 0:
                out[place] ^= 1 << int(random.integers(8))
            case 1:
                out[place] = int(random.choice([0, 1, 2, 3, 127, 128, 255]))
            case 2:
                del out[place : min(place + size, len(out) - 1)]
            case 3:
                out[place:place] = out[other : other + size]
            case 4:
                out[place : place + size] = out[other : other + size]
            case _:
                out[place:place] = random.bytes(size)
    return bytes(out)


def run_briefly(program: tg.Program) -> None:
    """Evaluate what a mutated record turned into; its loops may have 2^32 rounds."""
    if program.n_inputs > 1000 or program.listing()["loops"]:
        return
    point = np.linspace(-1, 1, program.n_inputs)
    program(point)
    program.batch([point, -point], threads=1)


def test_mutated_records_never_crash_hang_or_fill_the_memory() -> None:
    random = np.random.default_rng(1)
    x = tg.Graph().inputs(3)
    small = tg.compile([tg.sum(tg.softmax(x)[:2]), x[0] * x[1] + x[2]], wrt=x)
    originals = [p.record() for p in (complete_program(), looped_program(), small)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    loaded = 0
    for i in range(MUTATIONS):
        data = mutated(originals[i % len(originals)], random)
        try:
            program = tg.Program.from_bytes(files.framed(data))
        except tg.FileError as error:
            assert str(error).startswith("load: ")
            continue
        loaded += 1
        run_briefly(program)
    assert MUTATIONS / 20 < loaded < MUTATIONS / 2
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 200_000, "KiB"
