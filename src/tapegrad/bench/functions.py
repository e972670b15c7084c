"""`measure`: a user's own functions, checked against each other and timed in this process."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tapegrad.bench import machine, scratch, statistics
from tapegrad.bench.errors import BenchError, UnknownNameError
from tapegrad.bench.frameworks import shipped
from tapegrad.bench.given import Settings
from tapegrad.bench.measurement import ABSENT, Measurement
from tapegrad.bench.printable import printable
from tapegrad.bench.process import LocalWorker, Worker
from tapegrad.bench.results import Block, Cell, CellKey, Framework, Memory, Results, Run
from tapegrad.bench.statistics import Ratio
from tapegrad.worker.adapter import (
    Adapter,
    AnyArray,
    Phase,
    Work,
    named_gradients,
    named_outputs,
)
from tapegrad.worker.case import DTYPES, Array, Case
from tapegrad.worker.session import Session, load_adapter

Inputs = Mapping[str, Any] | Sequence[Any] | Any

#: Module of an input's type -> the adapter whose functions take such inputs.
FRAMEWORK_OF_MODULE = {"torch": "torch", "jax": "jax", "jaxlib": "jax", "tensorflow": "tensorflow"}

#: The name of a contender that begins with the word for such an adapter.
NAMED_AFTER = re.compile(rf"({'|'.join(sorted(set(FRAMEWORK_OF_MODULE.values())))})(?![^\W\d_])")
#: Frameworks whose tensors a function can change, as NumPy's arrays.
CHANGEABLE = ("torch",)
#: Kinds of NumPy types that hold numbers or flags.
NUMBERS = "biufc"


@dataclass(frozen=True)
class Function:
    """A contender that says which framework it is written in: `torch`, `jax`, … or `numpy`."""

    call: Callable[..., Any]
    framework: str = "numpy"


@dataclass
class Result:
    """What `measure` found. Prints as a table."""

    results: Results

    def ratio(self, theirs: str, ours: str, phase: str | None = None) -> Ratio:
        """Compare two contenders: above one, `theirs` takes longer."""
        chosen = phase or self._common_phase(theirs, ours)
        return statistics.ratio(self._blocks(theirs, chosen), self._blocks(ours, chosen))

    def time(self, name: str, phase: str | None = None) -> float:
        """Return the seconds of one call."""
        return statistics.estimate(self._blocks(name, phase or self._common_phase(name))).time

    def verdict(self, name: str, phase: str | None = None) -> str:
        """Say whether the contender did the same work as the others: in all phases, or in one."""
        if phase is not None:
            return self._cell(name, phase).verdict
        cells = [self._cell(name, each) for each in self.results.phases()]
        offered = [cell for cell in cells if cell.verdict not in ABSENT]
        return next((each for each in offered if not each.timed), (offered or cells)[0]).verdict

    def save(self, path: str | Path) -> None:
        """Write everything, raw samples included, as JSON."""
        Path(path).write_bytes(msgspec.json.format(msgspec.json.encode(self.results)))

    def __str__(self) -> str:
        from tapegrad.bench.report import table_text

        return table_text(self.results)

    def _common_phase(self, *names: str) -> str:
        """Return the first phase in which all of these have times, or the first of all."""
        phases = list(self.results.phases())
        timed = (p for p in phases if all(self._cell(name, p).timed for name in names))
        return next(timed, phases[0])

    def _blocks(self, name: str, phase: str) -> list[Block]:
        cell = self._cell(name, phase)
        if not cell.timed:
            raise BenchError(f"{name} has no time for {phase}: {cell.verdict}, {cell.reason}")
        return self.results.blocks_of(cell.key)

    def _cell(self, name: str, phase: str) -> Cell:
        found = {(cell.framework, cell.phase): cell for cell in self.results.cells}
        if name not in (names := sorted({each for each, _ in found})):
            raise UnknownNameError("contender", name, names)
        if (name, phase) not in found:
            raise UnknownNameError("phase", phase, [which for each, which in found if each == name])
        return found[name, phase]


def measure(
    contenders: Mapping[str, Callable[..., Any] | Function],
    inputs: Inputs,
    *,
    backward: bool = False,
    rounds: int = 10,
    block: float = 0.02,
) -> Result:
    """Check functions against each other, then time them in interleaved blocks.

    `inputs` is one array, a sequence of them, or a mapping by name; each contender is called with
    all of them in order. A contender whose name begins with a framework's (`torch_mine`,
    `jax: mine`), given as a `Function`, or called with that framework's tensors gets them as its
    tensors; others get NumPy arrays. With `backward` the gradients with respect to all
    floating-point inputs are taken, at a random cotangent: by the framework, or, for functions of
    NumPy arrays, by the function itself, which then returns its value, a scalar beside functions
    of frameworks, and its gradients (for one input an array, for several a tuple).
    """
    _check(contenders, rounds, block)
    named = _named(inputs)
    arrays = {name: _as_numpy(value) for name, value in named.items()}
    case = _case(contenders, arrays, backward)
    written_in = {name: _framework(name, each, named) for name, each in contenders.items()}
    alone = set(written_in.values()) == {"numpy"}
    teams = {
        name: _LocalTeam(
            _NumpyFunction(_call(contenders[name]), backward, alone)
            if framework == "numpy"
            else _adapter(name, _call(contenders[name]), framework)
        )
        for name, framework in written_in.items()
    }
    settings = Settings(processes=1, rounds=rounds, seconds=block)
    collected = _Collected(case)
    witnesses = {name: LocalWorker(Session(team.adapter)) for name, team in teams.items()}
    try:
        with scratch.folder() as folder:
            Measurement(case, case.phases, teams, witnesses, settings, folder, collected).run(
                arrays
            )
    finally:
        for team in teams.values():
            team.adapter.close()
    return Result(collected.results({name: team.adapter for name, team in teams.items()}))


def _check(contenders: Mapping[str, Any], rounds: Any, block: Any) -> None:
    """Refuse what cannot be measured."""
    if not isinstance(contenders, Mapping) or not contenders:
        raise BenchError("measure needs at least one function: {'name': function}.")
    for name, contender in contenders.items():
        if not isinstance(name, str) or not callable(getattr(contender, "call", contender)):
            raise BenchError(f"a contender is a name and a function, not {name!r}: {contender!r}.")
        if name != printable(name) or not name.strip() or set(name) & {"\n", "\t"}:
            raise BenchError(
                f"a contender's name is text that can be printed in a line, not {name!r}."
            )
    if isinstance(rounds, bool) or not isinstance(rounds, (int, np.integer)) or rounds < 1:
        raise BenchError(f"rounds must be a whole number of 1 or more, not {rounds!r}.")
    numbers = int, float, np.integer, np.floating
    if isinstance(block, bool) or not isinstance(block, numbers) or not 0 < block <= 60:
        raise BenchError(f"block must be a number of seconds above 0, at most 60, not {block!r}.")


def _named(inputs: Inputs) -> dict[str, Any]:
    if isinstance(inputs, Mapping):
        if odd := [name for name in inputs if not str(name).isidentifier()]:
            raise BenchError(f"inputs have names like variables, not {odd[0]!r}.")
        return dict(inputs)
    if isinstance(inputs, (list, tuple)):
        return {f"x{index}": value for index, value in enumerate(inputs)}
    return {"x0": inputs}


def _as_numpy(value: Any) -> AnyArray:
    """Turn any framework's tensor into an array."""
    detached = value.detach().cpu() if hasattr(value, "detach") else value
    try:
        return np.asarray(detached)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BenchError(f"{type(value).__name__} is no array of numbers: {error}") from error


def _case(contenders: Mapping[str, Any], arrays: Mapping[str, AnyArray], backward: bool) -> Case:
    floating = [a.dtype for a in arrays.values() if np.issubdtype(a.dtype, np.floating)]
    if not floating or {str(dtype) for dtype in floating} - set(DTYPES):
        given = ", ".join(f"{name} of {array.dtype}" for name, array in arrays.items())
        raise BenchError(
            f"measure needs at least one input of float32 or float64 and none of another floating "
            f"type, and got {given or 'none'}; convert with `astype`."
        )
    dtype = np.result_type(*floating)
    described = tuple(
        Array(
            name,
            array.shape,
            grad=backward and bool(np.issubdtype(array.dtype, np.floating)),
            kind=_kind(name, array, dtype),
        )
        for name, array in arrays.items()
    )
    call = _call(next(iter(contenders.values())))
    name = getattr(call, "__name__", "function").strip("<>")
    phases = ("forward", "backward", "step") if backward else ("forward",)
    return Case("operator", name, described, dtype=str(dtype), phases=phases, reduction=0)


def _kind(name: str, array: AnyArray, dtype: np.dtype[Any]) -> str:
    """Name what an input is, so that every function is given the type that it has."""
    if array.dtype.kind not in NUMBERS:
        raise BenchError(f"{name} is no array of numbers: it is of {array.dtype}.")
    known = {dtype: "normal", np.dtype(np.int64): "integers", np.dtype(np.bool_): "flags"}
    return known.get(array.dtype) or str(array.dtype)


def _call(contender: Callable[..., Any] | Function) -> Callable[..., Any]:
    return contender.call if isinstance(contender, Function) else contender


def _framework(
    name: str, contender: Callable[..., Any] | Function, named: Mapping[str, Any]
) -> str:
    """Find the framework a contender is written in."""
    return contender.framework if isinstance(contender, Function) else _guess(name, named)


def _adapter(name: str, call: Callable[..., Any], framework: str) -> Adapter:
    """Have a framework's adapter run a function."""
    known = shipped()
    if framework not in known:
        raise UnknownNameError("framework", framework, known)
    try:
        adapter = load_adapter(known[framework].file, known[framework].adapter)("cpu", 0)
    except ImportError as error:
        raise BenchError(
            f"{name} is written in {framework}, which this Python cannot import: {error}"
        ) from error
    adapter.operator = lambda name: call  # type: ignore[method-assign]
    if framework in CHANGEABLE:
        _have_tried(adapter, call)
    return adapter


def _have_tried(adapter: Adapter, call: Callable[..., Any]) -> None:
    """Have an adapter make a function ready only when one call of it has left its inputs alone."""
    prepare = adapter.prepare

    def tried(case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        adapter.operator = lambda name: _watched(case, call)  # type: ignore[method-assign]
        prepare(case, arrays).phases["forward"].call()
        adapter.operator = lambda name: call  # type: ignore[method-assign]
        return prepare(case, arrays)

    adapter.prepare = tried  # type: ignore[method-assign]


def _watched(case: Case, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that complains where its inputs are not the same afterwards."""

    def watched(*inputs: Any) -> Any:
        before = [np.array(_as_numpy(each)) for each in inputs]
        result = call(*inputs)
        for array, old, new in zip(case.inputs, before, inputs, strict=True):
            if not np.array_equal(old, _as_numpy(new), equal_nan=old.dtype.kind in "fc"):
                raise BenchError(
                    f"it changes its input {array.name}, so that the next call has other work to "
                    "do; let it change a copy"
                )
        return result

    return watched


def _guess(name: str, named: Mapping[str, Any]) -> str:
    if found := NAMED_AFTER.match(name):
        return found[1]
    for value in named.values():
        module = type(value).__module__.partition(".")[0]
        if module in FRAMEWORK_OF_MODULE:
            return FRAMEWORK_OF_MODULE[module]
    return "numpy"


class _NumpyFunction(Adapter):
    """A function of NumPy arrays; with gradients it returns them itself, so the phase is joint."""

    def __init__(self, call: Callable[..., Any], backward: bool, alone: bool) -> None:
        super().__init__("cpu", 0)
        self._call = call
        self._backward = backward
        #: Whether no framework takes gradients beside it, at a cotangent that it does not see.
        self._alone = alone

    def version(self) -> str:
        """Return NumPy's version."""
        return np.__version__

    def prepare(self, case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        """Make the function ready."""
        inputs: list[AnyArray] = []
        call = self._call

        def feed(given: Mapping[str, AnyArray], cotangents: Sequence[AnyArray]) -> None:
            inputs[:] = [np.array(given[array.name]) for array in case.inputs]

        def run() -> Any:
            return call(*inputs)

        feed(arrays, [])
        _watched(case, call)(*inputs)
        if not self._backward:
            phases = {"forward": Phase(run)}
            return Work(phases, feed, lambda _, result: _outputs(result))

        def read(phase: str, result: Any) -> dict[str, AnyArray]:
            found = _both(case, result)
            if not self._alone:
                _demand_a_scalar(found)
            return found

        return Work({"step": Phase(run)}, feed, read, joint=True)


def _demand_a_scalar(results: Mapping[str, AnyArray]) -> None:
    """Refuse gradients of anything else beside those that a framework takes."""
    outputs = {name: array for name, array in results.items() if name.startswith("output")}
    if [array.shape for array in outputs.values()] != [()]:
        shapes = ", ".join(str(array.shape) for array in outputs.values())
        raise BenchError(
            "beside a function that a framework differentiates, at a cotangent that NumPy's "
            "functions are not given, a function of NumPy arrays returns a scalar with its "
            f"gradients, not a result of shape {shapes}"
        )


def _outputs(result: Any) -> dict[str, AnyArray]:
    """Read what a function returned: an array or a number, or several in a tuple or list."""
    several = result if isinstance(result, (tuple, list)) else [result]
    return named_outputs([_array(each) for each in several])


def _array(value: Any) -> AnyArray:
    """Read one array or number that a function returned."""
    array = _as_numpy(value)
    if array.dtype == object:
        raise BenchError(
            "a function returns an array or a number, or several in a tuple, not "
            f"{type(value).__name__}"
        )
    return array


def _both(case: Case, result: Any) -> dict[str, AnyArray]:
    """Read a value and its gradients from what a function returned."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise BenchError(
            "with backward=True a function of NumPy arrays returns (value, gradients), not "
            f"{type(result).__name__}"
        )
    value, gradients = result
    several = gradients if isinstance(gradients, (list, tuple)) else [gradients]
    if len(several) != len(case.wrt):
        raise BenchError(
            f"with backward=True a function returns a gradient for each of {', '.join(case.wrt)}, "
            f"not {len(several)}"
        )
    return _outputs(value) | named_gradients(case.wrt, [_array(each) for each in several])


@dataclass
class _LocalTeam:
    """The one worker of a contender: this process."""

    adapter: Adapter
    threads: int = field(default_factory=lambda: os.cpu_count() or 1)
    at_once: int = 1
    _worker: LocalWorker | None = None

    def worker(self, process: int) -> Worker:
        if self._worker is None:
            self._worker = LocalWorker(Session(self.adapter))
        return self._worker

    @contextmanager
    def fresh(self) -> Iterator[Worker]:
        yield LocalWorker(Session(self.adapter))


@dataclass
class _Collected:
    """Keeps what a measurement finds."""

    case: Case
    cells: dict[CellKey, Cell] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)

    def cell(self, cell: Cell) -> None:
        self.cells[cell.key] = cell

    def block(self, block: Block) -> None:
        self.blocks.append(block)

    def memory(self, memory: Memory) -> None:
        """Nothing: `measure` does not ask for it."""

    def results(self, adapters: Mapping[str, Adapter]) -> Results:
        now = time.time()
        return Results(
            run=Run("measure", "measure", now, machine.describe(), status="finished", finished=now),
            frameworks=[Framework(n, a.version(), "", a.details()) for n, a in adapters.items()],
            cases=[self.case.as_dict()],
            cells=list(self.cells.values()),
            blocks=self.blocks,
        )
