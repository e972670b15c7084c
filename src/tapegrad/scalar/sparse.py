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
from tapegrad._core import Pattern, Var
from tapegrad.errors import OptionError
from tapegrad.scalar.arrays import ArrayOfVars
from tapegrad.scalar.derivatives import Mode, by_columns, gradient, push, var_array
from tapegrad.scalar.program import Program, compile

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

    @property
    def nnz(self) -> int:
        """Entries that may be other than 0."""
        return len(self.values)

    def compile(self, *, inputs: Any = None, dtype: str = "float64") -> SparseProgram:
        """Compile all entries into one program, whose results are sparse matrices."""
        return SparseProgram(self, compile(self.values, inputs=inputs, dtype=dtype))


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
        return csr_array((values, self.vars.columns, starts), shape=self.vars.shape)


def sparse_jacobian(outputs: Any, wrt: Any, mode: Mode = "auto") -> SparseVars:
    """Differentiate outputs by variables, both flat, along groups of either."""
    ends = var_array(outputs, "jacobian: outputs").ravel()
    variables = var_array(wrt, "jacobian: wrt").ravel()
    pattern = _core.dependence(ends.tolist(), variables.tolist())
    rows, columns = _places(pattern)
    of_columns, of_rows = pattern.colour_columns(), pattern.transposed().colour_columns()
    if by_columns(mode, _count(of_rows), _count(of_columns)):
        sweeps = [push(ends, variables, group) for group in _groups(of_columns)]
        values = _chosen(sweeps, of_columns[columns], rows)
    else:
        sums = [_core.functions.sum(ends[group].tolist()) for group in _groups(of_rows)]
        sweeps = [gradient(each, variables) for each in sums]
        values = _chosen(sweeps, of_rows[rows], columns)
    return SparseVars((len(ends), len(variables)), rows, columns, values, len(sweeps))


def sparse_hessian(output: Var, wrt: Any) -> SparseVars:
    """Differentiate one Var twice; of (i, j) and (j, i), alike, whichever a sweep shows alone."""
    variables = var_array(wrt, "hessian: wrt").ravel()
    first = gradient(output, variables)
    pattern = _core.dependence(first.tolist(), variables.tolist()).symmetric()
    rows, columns = _places(pattern)
    colours = pattern.colour_symmetric()
    sweeps = [push(first, variables, group) for group in _groups(colours)]
    alone = _alone(rows, colours[columns], len(sweeps))
    values = _chosen(
        sweeps,
        np.where(alone, colours[columns], colours[rows]),
        np.where(alone, rows, columns),
    )
    return SparseVars((len(variables),) * 2, rows, columns, values, len(sweeps))


def _scipy_csr_array() -> Any:
    try:
        from scipy.sparse import csr_array
    except ImportError:
        raise OptionError(
            "sparse matrices need SciPy: pip install 'tapegrad[sparse]'; the entries alone are in "
            "`values` of SparseVars"
        ) from None
    return csr_array


def _places(pattern: Pattern) -> tuple[Indices, Indices]:
    """Return rows and columns of all entries, by rows."""
    starts = pattern.starts
    rows = np.repeat(np.arange(len(starts) - 1, dtype=np.int32), np.diff(starts))
    return rows, pattern.columns


def _count(colours: Indices) -> int:
    return int(colours.max(initial=-1)) + 1


def _groups(colours: Indices) -> list[NDArray[np.bool_]]:
    """Return who belongs to each colour, as a mask."""
    return [colours == colour for colour in range(_count(colours))]


def _alone(rows: Indices, colours: Indices, count: int) -> NDArray[np.bool_]:
    """Tell of each entry whether its row has no other one of its column's colour."""
    cells = rows.astype(np.int64) * count + colours
    _, place, times = np.unique(cells, return_inverse=True, return_counts=True)
    return np.asarray(times[place] == 1)


def _chosen(sweeps: list[ArrayOfVars], which: Indices, where: Indices) -> ArrayOfVars:
    """Read each entry from the sweep that shows it."""
    return np.stack(sweeps)[which, where] if sweeps else np.empty(0, dtype=object)
