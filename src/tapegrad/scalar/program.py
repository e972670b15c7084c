"""Compiled scalar graphs: `compile` and the Program it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from tapegrad import _core
from tapegrad._core import Graph, Var
from tapegrad.errors import DTypeError, OptionError
from tapegrad.scalar import c_source, descent, files
from tapegrad.scalar.arrays import ArrayOfVars
from tapegrad.scalar.branches import Branch, branches
from tapegrad.scalar.descent import Callback, Method, Minimum
from tapegrad.scalar.nodes import as_vars
from tapegrad.scalar.options import dtype_name, whole
from tapegrad.scalar.profile import Profile, profile
from tapegrad.scalar.scipy_interface import Product, arguments


class Program(_core.Program):
    """A compiled graph: call it with a point, `batch` it over rows, `minimize` it.

    Immutable; any number of threads may use one program at a time. Made by `tapegrad.compile`.
    """

    def minimize(
        self,
        x0: ArrayLike,
        method: Method = "adam",
        *,
        steps: int = 1000,
        rows: ArrayLike | None = None,
        reduce: Literal["sum", "mean"] = "mean",
        bounds: tuple[ArrayLike | None, ArrayLike | None] | None = None,
        gtol: float | None = None,
        ftol: float | None = None,
        target: float | None = None,
        patience: int | None = None,
        lr: float | None = None,
        momentum: float | None = None,
        betas: tuple[float, float] = descent.BETAS,
        eps: float = descent.EPS,
        memory: int | None = None,
        history: int = 0,
        callback: Callback | None = None,
        every: int = 100,
        threads: int | None = None,
    ) -> Minimum:
        """Descend in one native loop and return the best point seen.

        Args:
            x0: A start (n,), or several starts (m, n), which run in lanes side by side.
            method: "sgd" (x -= lr * gradient), "momentum" (x -= lr * velocity), "adam", "lbfgs", or
                "lm" (Levenberg-Marquardt: half the sum of squares of the program's outputs).
            steps: How many steps to take; each is one evaluation of value and gradient.
            rows: Data that the program gives a part of the value for, row by row: x0 are then the
                program's first inputs, and each row has the others.
            reduce: Whether the value is the "mean" or the "sum" of these parts.
            bounds: (low, high): the lowest and highest values, as numbers or arrays (n,); None is
                no bound.
            gtol: End when no entry of the gradient, projected on the bounds, is larger.
            ftol: End when a step changes the value by no more than this part of it. By default
                lbfgs and lm end at gtol=1e-8 and ftol=1e-12 (float32: 1e-4, 1e-6), others do not.
            target: End at a value of at most this.
            patience: End after so many steps without a better value.
            lr: The step size of sgd, momentum and adam; 0.01 by default.
            momentum: The part of the velocity that a step of "momentum" keeps; 0.9 by default.
            betas: Adam's decay rates of the moments.
            eps: Adam's guard against division by zero.
            memory: Steps that lbfgs guesses the Hessian from; 10 by default.
            history: Keep the value every so many steps; 0 keeps none.
            callback: Called as callback(step, x, value) every `every` steps; true ends the run. A
                step of lbfgs and lm is an evaluation: x is the best point of so many of them.
            every: Steps between calls of the callback.
            threads: Threads for several starts or many rows, at most; None takes all cores. Fewer
                where the work is little; none is waited for while others have the cores.

        Ctrl-C ends the run early and returns the best point so far.

        Example:
            >>> import tapegrad as tg
            >>> g = tg.Graph()
            >>> x = g.inputs(2)
            >>> bowl = tg.compile((x[0] - 1) ** 2 + (x[1] + 2) ** 2, wrt=x)
            >>> bowl.minimize([0.0, 0.0], "sgd", steps=200, lr=0.1).x.round(6).tolist()
            [1.0, -2.0]
            >>> found = bowl.minimize([0.0, 0.0], "lbfgs", bounds=(-1.0, 3.0))
            >>> found.x.round(6).tolist(), found.reason
            ([1.0, -1.0], 'gradient')

        """
        starts = x0 if isinstance(x0, np.ndarray) else np.asarray(x0)
        if reduce not in ("sum", "mean"):
            raise OptionError(f"minimize: expected reduce 'sum' or 'mean', got {reduce!r}")
        given = descent.options(
            method,
            starts.shape[-1] if starts.ndim else 0,
            self.dtype,
            lr=lr,
            betas=betas,
            eps=eps,
            momentum=momentum,
            memory=memory,
            bounds=bounds,
            gtol=gtol,
            ftol=ftol,
            target=target,
            patience=patience,
        )
        if callback is not None and not callable(callback):
            raise DTypeError(
                f"minimize: expected callback to be a function, got {type(callback).__name__}"
            )
        every = whole("minimize: expected every", every, 1)
        given |= {
            "rows": rows,
            "mean": reduce == "mean",
            "history": whole("minimize: expected history", history, 0),
            "callback": callback,
            "every": 0 if callback is None else every,
            "threads": threads,
        }
        steps = whole("minimize: expected steps", steps, 0)
        x, value, last_x, last_value, kept, taken, stopped, reasons = self.descend(
            starts, method, steps, given
        )
        reason = reasons[0] if starts.ndim == 1 else np.array(reasons)
        return Minimum(x, value, last_x, last_value, kept, taken, stopped, reason)

    def save(self, path: str | Path) -> None:
        """Write the program into a file that `Program.load` reads, on any machine.

        The file holds nodes and numbers, no code: it is safe to load from anywhere, and does not
        depend on the instruction set. Pickles and copies of a program are the same bytes.

        Example:
            >>> import tapegrad as tg, tempfile, pathlib
            >>> x = tg.Graph().inputs(2)
            >>> program = tg.compile(x[0] * x[1], wrt=x)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = pathlib.Path(folder) / "product.tg"
            ...     program.save(path)
            ...     again = tg.Program.load(path)
            >>> again([2.0, 3.0])[0]
            6.0

        """
        Path(path).write_bytes(self.to_bytes())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a program that `save` wrote; a damaged file raises FileError."""
        return cls.from_bytes(files.read(path))

    def to_bytes(self) -> bytes:
        """Return what `save` writes."""
        return files.framed(self.record())

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> Self:
        """Make a program of what `to_bytes` returned; damaged bytes raise FileError."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise DTypeError(f"from_bytes: expected bytes, got {type(data).__name__}")
        return cls(files.unframed(bytes(data)))

    def __reduce__(self) -> tuple[Callable[[bytes], Program], tuple[bytes]]:
        return type(self).from_bytes, (self.to_bytes(),)

    def to_c(self, path: str | Path | None = None, name: str = "f") -> str:
        """Write the program as C99 that needs nothing but <math.h>; returns the text.

        Args:
            path: The file to write, or None to write none.
            name: Of the function: `void name(const double *x, double *value)`, or with
                derivatives `void name(const double *x, double *value, double *gradient)`. Several
                values have a Jacobian, row by row. float32 programs have `float`.

        Sums and products are rounded as the program rounds them, if the compiler does not contract
        them (`gcc -std=c99` or `-ffp-contract=off`); functions are those of the C library, and
        differ in the last places.

        Example:
            >>> import tapegrad as tg
            >>> x = tg.Graph().inputs(2)
            >>> print(tg.compile(x[0] * x[1]).to_c(name="product")[75:].strip())
            void product(const double *x, double *value) {
                const double v2 = x[0] * x[1];
                value[0] = v2;
            }

        """
        text = c_source.source(self, name)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def scipy(self, hessp: Product | None = None) -> dict[str, Any]:
        """Give the arguments `fun` and `jac` of scipy.optimize.minimize, in float64 always.

        Args:
            hessp: For methods that ask for products of the Hessian with vectors: `tg.hvp` of a
                function, or a program of a point followed by a vector. A program cannot make it
                itself, as it does not keep its graph.

        Points have all inputs of the program. Those that `wrt` does not name have a gradient of
        zero, so methods that use it leave them where `x0` puts them.

        Example:
            >>> import tapegrad as tg
            >>> from scipy.optimize import minimize
            >>> g = tg.Graph()
            >>> x = g.inputs(2)
            >>> loss = (x[0] - 1) ** 4 + (x[1] + x[0]) ** 2
            >>> bowl = tg.compile(loss, wrt=x)
            >>> minimize(**bowl.scipy(), x0=[0.0, 0.0], method="BFGS").x.round(1).tolist()
            [1.0, -1.0]
            >>> v = g.inputs(2)
            >>> product = tg.compile(tg.hvp(loss, x, v), inputs=[*x, *v])
            >>> found = minimize(**bowl.scipy(product), x0=[0.0, 0.0], method="Newton-CG")
            >>> found.x.round(1).tolist()
            [1.0, -1.0]

        """
        return arguments(self, hessp)

    @property
    def branches(self) -> tuple[Branch, ...]:
        """The branches that were frozen when the graph was recorded, with file and line."""
        return branches(self)

    def profile(self, x: ArrayLike) -> Profile:
        """Time every kind of instruction at a point (n,), or at rows (m, n) evaluated at once.

        The program runs a few to a few hundred times, run by run; the least times count.

        Example:
            >>> import tapegrad as tg
            >>> x = tg.Graph().inputs(2)
            >>> found = tg.compile(tg.exp(x[0]) * x[1], wrt=x).profile([1.0, 2.0])
            >>> sorted(kernel.name for kernel in found.kernels)
            ['exp', 'mul']

        """
        return profile(self, x)

    def prepare(self, *, points: int = 0, rows: int = 0) -> None:
        """Make machine code at once, where so many evaluations to come are worth it.

        Otherwise it is made by and by: after 200 single points, or 1,000 rows of batches. Nothing
        but time depends on it. Programs that are not mostly plain arithmetic have none.

        Args:
            points: Calls of the program that will come.
            rows: Rows of batches that will come.

        Example:
            >>> import tapegrad as tg
            >>> g = tg.Graph()
            >>> x = g.inputs(2)
            >>> program = tg.compile(x[0] * x[1], wrt=x)
            >>> program.prepare(rows=10_000)

        """
        self.make_machine_code(
            whole("prepare: expected points", points, 0),
            whole("prepare: expected rows", rows, 0),
        )

    def explain(self) -> str:
        """Describe what was compiled: nodes, instructions, runs, slots, bytes, time of each pass.

        Example:
            >>> import tapegrad as tg
            >>> g = tg.Graph()
            >>> x = g.inputs(2)
            >>> print(tg.compile(x[0] * x[1], wrt=x).explain().splitlines()[0])
            Program: 2 inputs, 1 output and its gradient (2), float64

        """
        s = self.stats
        total = sum(s["passes"].values())
        kernels = sorted(s["kernels"].items(), key=lambda item: -item[1])
        more = s["many_lanes"] > s["lanes"]
        many = f"; {s['many_lanes']} lanes for many rows" if more else ""
        lines = [
            self._headline(),
            f"  live nodes    {s['live_nodes']:,}",
            f"  instructions  {s['instructions']:,} in {s['runs']:,} runs of one kernel "
            f"(mean run {s['mean_run']:.1f})",
            f"  packs         {s['packed']:,} instructions share vectors in a single evaluation, "
            f"{s['pack_width']:.1f} a vector",
            f"  slots         {s['slots']:,}; {s['lanes']} lanes, {s['lane_bytes']:,} bytes{many}",
            f"  code          {s['code_bytes']:,} bytes, {s['isa']}",
            f"  machine code  {_machine_code(s)}",
            "  kernels       " + ", ".join(f"{name} {count:,}" for name, count in kernels),
            f"  compiled in   {total * 1e3:.2f} ms: "
            + ", ".join(f"{name} {seconds * 1e3:.2f}" for name, seconds in s["passes"].items()),
        ]
        return "\n".join(lines)

    def _headline(self) -> str:
        outputs = "1 output" if self.n_outputs == 1 else f"{self.n_outputs} outputs"
        derivatives = "its gradient" if self.n_outputs == 1 else "their Jacobian"
        what = f" and {derivatives} ({self.n_derivatives})" if self.n_derivatives else ""
        inputs = "1 input" if self.n_inputs == 1 else f"{self.n_inputs:,} inputs"
        return f"Program: {inputs}, {outputs}{what}, {self.dtype}"

    def __repr__(self) -> str:
        return f"<{self._headline()}, {self.stats['instructions']:,} instructions>"


def compile(
    outputs: Var | Iterable[Var],
    wrt: Var | Iterable[Var] | None = None,
    *,
    inputs: Var | Iterable[Var] | None = None,
    dtype: str | type | np.dtype[Any] = "float64",
) -> Program:
    """Compile Vars into a Program that computes them, with derivatives if `wrt` is given.

    Args:
        outputs: One Var: the program returns a number. Several: an array (k,).
        wrt: The Vars to differentiate by. The program then returns values and derivatives: the
            gradient (n,) of one output, the Jacobian (k, n) of several.
        inputs: The graph's inputs in the order in which the program takes their values; by
            default all of them in the order they were made.
        dtype: "float64" or "float32".

    The graph may grow afterwards; the program stays as it is.

    Example:
        >>> import tapegrad as tg
        >>> g = tg.Graph()
        >>> x, y = g.input("x"), g.input("y")
        >>> f = tg.compile([x * y, x + y], wrt=[x, y])
        >>> values, jacobian = f([2.0, 3.0])
        >>> values.tolist(), jacobian.tolist()
        ([6.0, 5.0], [[3.0, 2.0], [1.0, 1.0]])

    """
    return Program(
        as_vars(outputs, "compile: outputs"),
        None if wrt is None else as_vars(wrt, "compile: wrt"),
        None if inputs is None else as_vars(inputs, "compile: inputs"),
        dtype_name("compile", dtype),
        isinstance(outputs, Var),
    )


def _machine_code(stats: dict[str, Any]) -> str:
    """Tell what explain() says of machine code, which is made after many evaluations."""
    made = [
        f"{stats[key]:,} bytes for {what}"
        for key, what in (("row_code_bytes", "rows"), ("point_code_bytes", "points"))
        if stats[key]
    ]
    return ", ".join(made) or "none so far"


def compile_entries(
    entries: ArrayOfVars, graph: Graph, *, inputs: Any = None, dtype: str = "float64"
) -> Program:
    """Compile any number of Vars of a graph; instead of none, a 0 that is not an entry.

    Derivatives may have no entries, and a program has at least one output.
    """
    return compile(entries if entries.size else [graph.constant(0.0)], inputs=inputs, dtype=dtype)
