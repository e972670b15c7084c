"""One more line in ops.def is an op everywhere: function, method, derivatives, stub, docs, test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.checkout import copy_sources, python

pytestmark = pytest.mark.slow

LINE = 'OP1(cube, scalar, real, 2, "a * a * a", "a ** 3", a * a * a, 3.0 * square(a))'

SCRIPT = """
import numpy as np
import tapegrad as tg

assert "cube" in tg.__all__ and tg.cube(2) == 8.0
assert tg.cube(np.array([1.0, 2.0])).tolist() == [1.0, 8.0]
x = tg.Graph().input("x")
y = tg.cube(x)
assert y.op == "cube" and x.cube().index == y.index
assert repr(y) == "Var(%1 = cube(x))"
first = tg.grad(y, x)
second = tg.grad(first, x)
for isa in tg.isas():
    tg.set_isa(isa)
    for dtype in ("float64", "float32"):
        program = tg.compile([y, first, second], dtype=dtype)
        assert program([2.0]).tolist() == [8.0, 12.0, 12.0]
        assert program.batch([[2.0], [1.0]])[1].tolist() == [1.0, 3.0, 6.0]
assert tg.compile(y).stats["kernels"] == {"cube": 1}
assert [record["name"] for record in tg._core.op_table()][-1] == "cube"
print("all right")
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A checkout with the line, the package built from it, and the environment to find it in."""
    root = tmp_path_factory.mktemp("checkout")
    copy_sources(root)
    table = root / "core" / "scalar" / "ops.def"
    text = table.read_text()
    end = text.index("// clang-format on")
    table.write_text(f"{text[:end]}{LINE}\n{text[end:]}")
    target = root / "installed"
    python(
        *("-m", "pip", "install", "--no-build-isolation", "--no-deps", "--target", target),
        *("-Ccmake.define.TAPEGRAD_ISAS=baseline", root),
        cwd=root,
    )
    # The folder goes before an editable or installed tapegrad of the same interpreter.
    return root, {**os.environ, "PYTHONPATH": str(target), "TAPEGRAD_ISA": ""}


def test_it_is_a_function_a_method_and_has_derivatives(built: tuple[Path, dict[str, str]]) -> None:
    root, environment = built
    printed = python("-W", "error", "-c", SCRIPT, cwd=root, env=environment)
    assert printed.split() == ["all", "right"]


def test_it_has_a_stub(built: tuple[Path, dict[str, str]]) -> None:
    root, _ = built
    stubs = "".join(path.read_text() for path in (root / "installed").rglob("*.pyi"))
    assert stubs.count("def cube(") >= 2  # the function and the method


def test_it_has_a_row_in_the_docs(built: tuple[Path, dict[str, str]]) -> None:
    root, environment = built
    printed = python("-m", "tapegrad.opsdoc", cwd=root, env=environment)
    rows = [line for line in printed.splitlines() if line.startswith("|") and "cube" in line]
    assert len(rows) == 1
    assert "a * a * a" in rows[0].replace("\\", "")


def test_it_has_its_tests(built: tuple[Path, dict[str, str]]) -> None:
    root, environment = built
    printed = python(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "cube", "tests/scalar/test_ops.py"),
        cwd=root,
        env=environment,
    )
    assert " passed" in printed
    assert "failed" not in printed
