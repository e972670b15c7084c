"""The wheel installs and runs where there is no compiler."""

from __future__ import annotations

import importlib.util
import os
import venv
import zipfile
from pathlib import Path

import pytest

from tests.checkout import ROOT, run

pytestmark = pytest.mark.slow

SCRIPT = """
import importlib.util
import pathlib
import shutil

import numpy as np
import tapegrad as tg

assert not any(map(shutil.which, ("cc", "gcc", "g++", "c++", "clang", "cmake", "ninja")))
g = tg.Graph()
x = g.inputs(2)
program = tg.compile(tg.exp(x[0]) * x[1] + tg.softmax(x)[0], wrt=x)
value, gradient = program([0.0, 0.0])
assert (value, gradient.tolist()) == (0.5, [0.25, 0.75])
assert program.batch(np.zeros((1000, 2)), threads=2)[0].tolist() == [0.5] * 1000
assert program.minimize([0.0, 0.0], steps=10).steps == 10
if importlib.util.find_spec("tapegrad._onednn"):
    from tapegrad import _onednn
    ones = np.ones((300, 300), np.float32)
    assert _onednn.matmul(ones, ones).tolist() == [[300.0] * 300] * 300
    maps = pathlib.Path("/proc/self/maps").read_text().splitlines()
    assert len({line.split()[-1] for line in maps if "libgomp" in line}) == 1
print(tg.__version__, tg.isa())
"""


@pytest.fixture(scope="module")
def wheel() -> Path:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    run("make", "wheel", cwd=ROOT, env=environment)
    (built,) = (ROOT / "dist").glob("tapegrad-*.whl")
    return built


def test_wheel_brings_the_thread_library_it_needs(wheel: Path) -> None:
    assert "manylinux" in wheel.name
    assert any(
        name.startswith("tapegrad.libs/libgomp") for name in zipfile.ZipFile(wheel).namelist()
    )


@pytest.mark.skipif(
    not importlib.util.find_spec("tapegrad._onednn"), reason="oneDNN is for x86-64 Linux"
)
def test_wheel_brings_onednn_and_its_licence(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert any(name.startswith("tapegrad/_onednn") and name.endswith(".so") for name in names)
    assert [name for name in names if "libdnnl" in name] == ["tapegrad/libdnnl.so.3"]
    assert "tapegrad/licences/onednn/LICENSE" in names


def test_wheel_has_the_package_its_stubs_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert any(name.startswith("tapegrad/_core") and name.endswith(".so") for name in names)
    assert "tapegrad/py.typed" in names
    assert any(name.startswith("tapegrad/_core") and name.endswith(".pyi") for name in names)
    top = {name.split("/")[0] for name in names}
    assert {folder for folder in top if not folder.endswith(".dist-info")} <= {
        "tapegrad",
        "tapegrad.libs",
    }
    assert not [name for name in names if "__pycache__" in name or name.endswith((".cpp", ".o"))]


def test_wheel_runs_in_a_fresh_environment_without_a_compiler(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "fresh", with_pip=True)
    binaries = tmp_path / "fresh" / "bin"
    interpreter = binaries / "python"
    run(interpreter, "-m", "pip", "install", "--quiet", wheel, cwd=tmp_path)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    environment |= {"PATH": str(binaries), "TAPEGRAD_ISA": ""}
    printed = run(interpreter, "-W", "error", "-c", SCRIPT, cwd=tmp_path, env=environment)
    assert printed.split()[0] == "0.1.0"
