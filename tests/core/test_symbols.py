"""Object files of the instruction sets share no code: a weak symbol could be linked from the wrong
one and be an illegal instruction on an older CPU."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

BUILD = Path(__file__).parents[2] / "build"
OBJECTS = sorted(
    path
    for kind in ("execute", "moves", "kernels")
    for path in BUILD.glob(f"cp*/CMakeFiles/tapegrad_{kind}_*.dir/**/*.o")
)
NM = shutil.which("nm")

pytestmark = [
    pytest.mark.skipif(NM is None, reason="nm is not installed"),
    pytest.mark.skipif(not OBJECTS, reason="there is no build folder with the object files"),
]


def variant(path: Path) -> str:
    """The instruction set and number type of an object file."""
    found = re.search(r"tapegrad_(?:execute|moves|kernels)_(\w+)\.dir", str(path))
    assert found
    return found[1]


def symbols(path: Path) -> list[tuple[str, str]]:
    """Type and name of every symbol of an object file."""
    assert NM
    listed = subprocess.run([NM, "--demangle", path], capture_output=True, text=True, check=True)
    lines = [line.split(None, 2) for line in listed.stdout.splitlines()]
    return [(line[-2], line[-1]) if len(line) == 3 else (line[0], line[1]) for line in lines]


each_object = pytest.mark.parametrize("path", OBJECTS, ids=variant)


@each_object
def test_no_symbol_is_weak(path: Path) -> None:
    weak = [name for kind, name in symbols(path) if kind in ("W", "w", "V", "v", "u")]
    assert not weak


@each_object
def test_every_exported_symbol_names_its_instruction_set(path: Path) -> None:
    isa = variant(path).rsplit("_", 1)[0]
    exported = [name for kind, name in symbols(path) if kind in ("T", "D", "R", "B")]
    assert exported
    assert all(f"::{isa}::" in name for name in exported)


def test_every_instruction_set_has_both_number_types() -> None:
    variants = {variant(path) for path in OBJECTS}
    isas = {name.rsplit("_", 1)[0] for name in variants}
    assert variants == {f"{isa}_{real}" for isa in isas for real in ("double", "float")}
