"""Contenders in compiled languages, built by the compilers that the machine has.

A library is built once: its name in the cache folder is a hash of its sources, of the command and
of the compiler's version.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tapegrad.worker.adapter import Unsupported

HERE = Path(__file__).parent
#: On x86 the lanes are one 512-bit register; in halves the chain took 1.5 times as long.
X86_FLAGS = ("-mprefer-vector-width=512",) if platform.machine() in ("x86_64", "AMD64") else ()
C_FLAGS = ("-O3", "-ffast-math", "-march=native", "-fopenmp-simd", "-std=gnu11", *X86_FLAGS)
C_SOURCES = ("interpreter.c", "by_pointer.c", "lanes.c")
RUST_FLAGS = ("-O", "-C", "target-cpu=native", "-C", "panic=abort", "--crate-type", "cdylib")


@cache
def c_library() -> ctypes.CDLL:
    """Load the interpreters in C.

    Compiling and linking are two commands: linked with -ffast-math, a library would make its
    process flush denormals from the moment it is loaded.
    """
    gcc = compiler("gcc")
    sources = [HERE / name for name in C_SOURCES]
    commands = (
        (gcc, *C_FLAGS, "-fPIC", "-c", *map(str, sources)),
        (gcc, "-shared", "-o", "library.so", *(f"{each.stem}.o" for each in sources), "-lm"),
    )
    return _library((*sources, HERE / "interpreter.h"), commands)


@cache
def rust_library() -> ctypes.CDLL:
    """Load the interpreter in Rust."""
    source = HERE / "interpreter.rs"
    return _library((source,), ((compiler("rustc"), *RUST_FLAGS, "-o", "library.so", str(source)),))


@cache
def compiler(name: str) -> str:
    """Find a compiler; raises `Unsupported` with its name if there is none."""
    path = shutil.which(name)
    if path is None:
        raise Unsupported(f"needs {name}, which is not on the PATH")
    return path


@cache
def compiler_version(name: str) -> str:
    """Return the first line in which a compiler tells its version."""
    said = subprocess.run([compiler(name), "--version"], capture_output=True, text=True, check=True)
    return said.stdout.splitlines()[0]


def _library(sources: Sequence[Path], commands: Sequence[Sequence[str]]) -> ctypes.CDLL:
    text = b"".join(source.read_bytes() for source in sources)
    told = repr((commands, compiler_version(Path(commands[0][0]).name)))
    key = hashlib.sha256(text + told.encode() + _processor().encode()).hexdigest()[:16]
    library = cache_folder() / f"{sources[0].stem}-{key}.so"
    if not library.exists():
        _build(commands, library)
    return ctypes.CDLL(str(library))


def _build(commands: Sequence[Sequence[str]], library: Path) -> None:
    """Run the commands in a folder of their own; the result appears at once or not at all."""
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        for command in commands:
            run(command, folder)
        (Path(folder) / "library.so").replace(library)


def run(command: Sequence[str], folder: str | Path) -> None:
    """Run a compiler; what it complains about becomes the error."""
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise RuntimeError(f"{command[0]} failed: {ran.stderr[-1500:]}")


def cache_folder() -> Path:
    """Return where libraries are kept."""
    root = os.environ.get("TAPEGRAD_CACHE")
    return (Path(root) if root else Path.home() / ".cache" / "tapegrad") / "native"


def _processor() -> str:
    """Tell processors apart: a library for another one may not run on this."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
