"""The C contenders: compiled at run time, each graph in a process of its own."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from benchmarks.scalar.graphs import Floats, OpList

SOURCES = ("main.c", "interpreter.c", "by_pointer.c", "lanes.c")
FLAGS = ("-O3", "-ffast-math", "-march=native", "-fopenmp-simd", "-std=gnu11")
#: On x86 the lanes are one 512-bit register; in halves the chain took 1.5 times as long.
X86_FLAGS = ("-mprefer-vector-width=512",)
#: int32 fields of one operation in a graph file: opcode, count, eight operands, first output.
RECORD_FIELDS = 11


class MissingCompilerError(RuntimeError):
    """There is no C compiler to build the baseline with."""


def flags() -> tuple[str, ...]:
    """Return the compiler's flags on this machine."""
    return FLAGS + (X86_FLAGS if platform.machine() in ("x86_64", "AMD64") else ())


def build(directory: Path) -> Path:
    """Compile the interpreters into `directory` and return the binary."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise MissingCompilerError("the baseline needs gcc")
    here = Path(__file__).parent
    binary = directory / "interpreter"
    sources = [str(here / name) for name in SOURCES]
    subprocess.run([compiler, *flags(), "-o", str(binary), *sources, "-lm"], check=True)
    return binary


class CProcess:
    """One running interpreter that holds a graph and its points."""

    def __init__(self, binary: Path, graph: OpList, points: Floats, directory: Path) -> None:
        self._dump = directory / "results.bin"
        self._n_inputs = graph.n_inputs
        graph_file, points_file = directory / "graph.bin", directory / "points.bin"
        graph_file.write_bytes(_encode(graph))
        points_file.write_bytes(np.ascontiguousarray(points, dtype=np.float64).tobytes())
        self._process = subprocess.Popen(
            [str(binary), str(graph_file), str(points_file), str(len(points))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the parent
        )
        #: Whether denormals are flushed, as the process reports it once its data are read.
        self.denormals = self._answer()

    def run_rows(self, contender: str, rows: int) -> float:
        """Seconds for `rows` evaluations by the `scalar`, `pointer` or `lanes` interpreter."""
        return float(self._ask(f"{contender} {rows}"))

    def run_steps(self, steps: int, rate: float) -> float:
        """Seconds for `steps` dependent gradient steps from the first point."""
        return float(self._ask(f"steps {steps} {rate!r}"))

    def results(self) -> tuple[Floats, Floats]:
        """Targets and gradients of the last run; after `run_steps` one target and the point."""
        self._ask(f"dump {self._dump}")
        flat = np.fromfile(self._dump)
        rows = len(flat) // (self._n_inputs + 1)
        return flat[:rows], flat[rows:].reshape(rows, self._n_inputs)

    def close(self) -> None:
        """End the process by closing its input."""
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _ask(self, command: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise RuntimeError("the C interpreter ended unexpectedly")
        return line


def _encode(graph: OpList) -> bytes:
    """Write the graph as main.c reads it."""
    records = np.zeros((len(graph.ops), RECORD_FIELDS), dtype=np.int32)
    records[:, 0] = [op.kind for op in graph.ops]
    records[:, 1] = counts = np.array([len(op.ins) for op in graph.ops], dtype=np.int32)
    for count in np.unique(counts):
        rows = np.flatnonzero(counts == count)
        records[rows, 2 : 2 + count] = [graph.ops[row].ins for row in rows]
    n_outputs = np.array([op.n_outputs for op in graph.ops])
    records[:, -1] = graph.n_inputs + np.cumsum(n_outputs) - n_outputs
    head = np.array([graph.n_inputs, len(graph.ops), graph.n_nodes], dtype=np.int32)
    return head.tobytes() + records.tobytes()
