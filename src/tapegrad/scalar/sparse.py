"""Sparse derivatives: which entries there are, how few sweeps show them all, and their values.

A sweep differentiates along a whole group of variables (forward) or of outputs (reverse) at once;
a colouring chooses the groups such that no two entries meet. So the Hessian of a sum of terms with
a few variables each takes a handful of sweeps, whatever its size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tapegrad import _core
from tapegrad._core import Graph, Var
from tapegrad.errors import OptionError
from tapegrad.scalar.arrays import ArrayOfVars
from tapegrad.scalar.derivatives import Mode, by_columns, var_array
from tapegrad.scalar.program import Program, compile_entries

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Indices = NDArray[np.int32]


@dataclass(frozen=True)
class SparseVars:
    """A sparse matrix of Vars, by rows: entry k stands at (rows[k], columns[k])."""

    shape: tuple[int, int]
    rows: Indices
    columns: Indices
    values: ArrayOfVars
    #: Forward or reverse sweeps that gave all the values.
    sweeps: int
    graph: Graph

    @property
    def nnz(self) -> int:
        """Entries that may be other than 0."""
        return len(self.values)

    def compile(self, *, inputs: Any = None, dtype: str = "float64") -> SparseProgram:
        """Compile all entries into one program, whose results are sparse matrices."""
        program = compile_entries(self.values, self.graph, inputs=inputs, dtype=dtype)
        return SparseProgram(self, program)


@dataclass(frozen=True)
class SparseProgram:
    """Evaluates a sparse derivative at points."""

    vars: SparseVars
    program: Program

    @property
    def sweeps(self) -> int:
        """Sweeps that gave all the values."""
        return self.vars.sweeps

    def __call__(self, x: ArrayLike) -> csr_array[Any]:
        """Evaluate at one point."""
        return self.matrix(self.program(np.ravel(x)))

    def matrix(self, values: NDArray[Any]) -> csr_array[Any]:
        """Arrange values of the entries, in their order, as a matrix."""
        csr_array = _scipy_csr_array()
        starts = np.searchsorted(self.vars.rows, np.arange(self.vars.shape[0] + 1))
        entries = values[: self.vars.nnz]
        return csr_array((entries, self.vars.columns, starts), shape=self.vars.shape)


def sparse_jacobian(outputs: Any, wrt: Any, mode: Mode = "auto") -> SparseVars:
    """Differentiate outputs by variables, both flat, along groups of either."""
    ends = var_array(outputs, "jacobian: outputs").ravel()
    variables = var_array(wrt, "jacobian: wrt").ravel()
    forward = None if mode == "auto" else by_columns(mode, 0, 0)
    found = _core.sparse_jacobian(ends, variables, forward)
    graph = next((var.graph for var in (*ends, *variables)), None) or Graph()
    return SparseVars((len(ends), len(variables)), *found, graph)


def sparse_hessian(output: Var, wrt: Any) -> SparseVars:
    """Differentiate one Var twice; of (i, j) and (j, i), alike, whichever a sweep shows alone."""
    variables = var_array(wrt, "hessian: wrt").ravel()
    found = _core.sparse_hessian(output, variables)
    return SparseVars((len(variables),) * 2, *found, output.graph)


def _scipy_csr_array() -> Any:
    try:
        from scipy.sparse import csr_array
    except ImportError:
        raise OptionError(
            "sparse matrices need SciPy: pip install 'tapegrad[sparse]'; the entries alone are in "
            "`values` of SparseVars"
        ) from None
    return csr_array
