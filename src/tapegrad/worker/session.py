"""What a worker answers: one method per message.

A message is a JSON object with `do` and arguments; the answer is a JSON object. Arrays are files
in the run's folder (.npy), messages carry their paths.

    hello    adapter file, class, device, threads        -> version and settings
    prepare  case, arrays                                -> phases, notes
    feed     arrays, cotangents                          -> nothing
    check    phase, folder                               -> results as files
    time     phase, seconds, cold                        -> samples
    repeat   phase, calls, folder                        -> results of the last call as files
    read     phase, count, keeps                         -> cost of a call that is read, of reading
    fresh    phase, count                                -> cost of calls on inputs never seen
    cores    phase, calls, count                         -> processors busy, loop by loop
    memory   phase                                       -> peaks
    own_tool phase                                       -> the framework's own opinion
    registry                                             -> operators that the framework has
    calls    phase                                       -> operators that a call runs
    forget                                               -> nothing; lets the case go
    model    file, function, phase                       -> operators of a user's model
    profile  seconds                                     -> steps with and without a profiler
    replay   row, seconds                                -> one of its operators alone
    bye                                                  -> ends the process
"""

from __future__ import annotations

import gc
import importlib.util
import platform
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tapegrad.worker import memory, timing
from tapegrad.worker.adapter import Adapter, AnyArray, Phase, Work
from tapegrad.worker.case import Case
from tapegrad.worker.controls import Controls

if TYPE_CHECKING:
    from tapegrad.worker.profiling.profiler import Profiler

#: Calls that `read` times one by one, at most.
SINGLE_CALLS = 40
#: By so many factors, over and over, inputs are changed: a prime, so that no two rows are alike.
FACTORS = 4093
#: Calls by which `memory` reaches a steady state.
MEMORY_CALLS = 3


class Session:
    """The state of one worker: its adapter, and the case that is prepared."""

    def __init__(self, adapter: Adapter | None = None) -> None:
        self._adapter = adapter
        self._case: Case | None = None
        self._work: Work | None = None
        self._inputs: dict[str, AnyArray] = {}
        self._cotangents: list[AnyArray] = []
        #: Sets of inputs made by `fresh`: no two are alike. How they are made (`WAYS`).
        self._changes = 0
        self._way = 0
        self._controls = Controls()
        self._idle: dict[str, int] | None = None
        self._idle_children = 0
        self._profiler: Profiler | None = None

    def answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Do what a message asks."""
        arguments = dict(message)
        method: Callable[..., dict[str, Any]] = getattr(self, f"do_{arguments.pop('do')}")
        return method(**arguments)

    def do_hello(self, file: str, name: str, device: str, threads: int) -> dict[str, Any]:
        """Load the adapter."""
        self._adapter = load_adapter(Path(file), name)(device, threads)
        self._adapter.configure()
        with timing.quiet():
            pass  # what a framework has allocated is not looked at in the first block
        memory.give_back()
        memory.reset_peak()
        self._idle = memory.resident()
        self._idle_children = memory.peak_of_children()
        return {
            "version": self._adapter.version(),
            "python": platform.python_version(),
            "details": self._adapter.details(),
            "devices": list(self._adapter.devices),
        }

    def do_prepare(self, case: dict[str, Any], arrays: dict[str, str]) -> dict[str, Any]:
        """Make a case ready."""
        self._work, self._way = None, 0
        self._case = Case.from_dict(case)
        self._inputs = {name: np.load(path) for name, path in arrays.items()}
        self._cotangents = []
        work = self.adapter.prepare(self._case, self._inputs)
        self._work = work
        return {
            "phases": list(work.phases),
            "looped": [name for name, phase in work.phases.items() if phase.setup is None],
            "joint": work.joint,
            "precision": work.precision,
            "notes": work.notes,
            "phase_notes": dict(work.phase_notes),
        }

    def do_feed(self, arrays: dict[str, str], cotangents: list[str]) -> dict[str, Any]:
        """Replace the inputs."""
        self._inputs = {name: np.load(path) for name, path in arrays.items()}
        self._cotangents = [np.load(path) for path in cotangents]
        self._feed(self._inputs)
        return {}

    def do_check(self, phase: str, folder: str) -> dict[str, Any]:
        """Run a phase once and leave its results as files."""
        part = self._phase(phase)
        if part.setup is not None:
            part.setup()
        return {"arrays": self._save(phase, part.call(), Path(folder))}

    def do_time(self, phase: str, seconds: float, cold: bool = False) -> dict[str, Any]:
        """Measure one block."""
        controls = self._controls.run()
        part = self._phase(phase)
        found = timing.block(self.adapter, part, seconds, cold)
        return asdict(found) | {"controls": controls, "units": part.units}

    def do_repeat(self, phase: str, calls: int, folder: str | None) -> dict[str, Any]:
        """Call a phase as the timed loop does and read what the last call returned."""
        part = self._phase(phase)
        with timing.quiet():
            for _ in range(calls - 1):
                part.call()  # its result is dropped at once, as in the timed loop
            read = self.work.arrays(phase, part.call())
        return {"arrays": _save(read, Path(folder)) if folder else {}}

    def do_read(self, phase: str, count: int, keeps: bool = False) -> dict[str, Any]:
        """Time calls whose results are read, reading itself, and calls one by one.

        With `keeps`, tell also whether a result stays what it is when the inputs change.
        """
        call, arrays = self._phase(phase).call, self.work.arrays
        both, reading, copying = [], [], []
        alone: list[float] = []
        with timing.quiet():
            for _ in range(count):
                self.adapter.settle()
                start = time.perf_counter()
                result = call()
                arrays(phase, result)
                both.append(time.perf_counter() - start)
                start = time.perf_counter()
                read = arrays(phase, result)
                reading.append(time.perf_counter() - start)
                start = time.perf_counter()
                for array in read.values():
                    np.array(array)
                copying.append(time.perf_counter() - start)
                del result, read
                if len(alone) < SINGLE_CALLS:  # two in a row: whoever skips one in two skips one
                    alone += (self.adapter.elapsed(call, 1) for _ in range(2))
        return {
            "read": min(both),
            "reading": min(reading),
            "copying": min(copying),
            "alone": min(alone),
            "keeps": self._keeps(phase) if keeps else None,
        }

    def _keeps(self, phase: str) -> bool:
        """Tell whether a result is the same before and after other inputs are taken."""
        result = self._phase(phase).call()
        before = {name: np.array(array) for name, array in self.work.arrays(phase, result).items()}
        after = self._on_others(lambda: self.work.arrays(phase, result))
        kept = all(
            np.array_equal(array, after[name], equal_nan=array.dtype.kind == "f")
            for name, array in before.items()
        )
        self._feed(self._inputs)
        return kept

    def _feed(self, arrays: Mapping[str, AnyArray]) -> None:
        """Replace the inputs, and wait: what is put off until then is part of taking them."""
        self.work.feed(arrays, self._cotangents)
        self.adapter.settle()

    def _on_others(self, action: Callable[[], Any]) -> Any:
        """Take inputs that nobody has seen before, and do something with them.

        Where that fails, those lack an order or a structure: then take some that have more of it.
        """
        while True:
            self._changes += 1
            try:
                self._feed(WAYS[self._way](self._inputs, self._changes))
                return action()
            except Exception:
                if self._way == len(WAYS) - 1:
                    raise
                self._way += 1

    def do_fresh(self, phase: str, count: int) -> dict[str, Any]:
        """Time single calls on inputs never seen before, and the same call again."""
        call, arrays = self._phase(phase).call, self.work.arrays

        def seconds() -> float:
            start = time.perf_counter()
            arrays(phase, call())
            return time.perf_counter() - start

        with timing.quiet():
            turns = [self._on_others(lambda: (seconds(), seconds())) for _ in range(count)]
        self._feed(self._inputs)
        fresh, again = map(min, zip(*turns, strict=True))
        return {"fresh": fresh, "again": again}

    def do_cores(self, phase: str, calls: int, count: int) -> dict[str, Any]:
        """Tell how many processors were busy in each of several loops."""
        call = self._phase(phase).call
        found = []
        with timing.quiet():
            for _ in range(count):
                busy, start = time.process_time(), time.perf_counter()
                self.adapter.elapsed(call, calls)
                found.append((time.process_time() - busy) / (time.perf_counter() - start))
        return {"cores": found}

    def do_own_tool(self, phase: str) -> dict[str, Any]:
        """Time a phase with the framework's own benchmark tool."""
        part = self._phase(phase)
        seconds = self.adapter.own_tool(part.call)
        return {"seconds": None if seconds is None else seconds / part.units}

    def do_registry(self) -> dict[str, Any]:
        """List the framework's operators by group."""
        groups = sorted(self.adapter.registry().items())
        return {"operators": {group: sorted(names) for group, names in groups}}

    def do_calls(self, phase: str) -> dict[str, Any]:
        """List the operators that one call runs."""
        return {"calls": sorted(self.adapter.calls(self._phase(phase).call))}

    def do_memory(self, phase: str) -> dict[str, Any]:
        """Run a phase and report its peaks above what the worker had when it was idle.

        The session's own copies of inputs and cotangents go first, and what making the case ready
        took for a moment: a worker that is asked this is asked nothing after it.
        """
        part = self._phase(phase)
        self._inputs, self._cotangents = {}, []
        memory.give_back()
        memory.reset_peak()
        start = memory.resident()
        for index in range(MEMORY_CALLS):
            if index == 1:  # the first call may compile, and try algorithms in memory of their own
                self.adapter.reset_peak()
            if part.setup is not None:
                part.setup()
            part.call()
            self.adapter.settle()
        peak = memory.peak_resident()
        above = None
        if peak is not None and self._idle is not None and start is not None:
            held, taken = memory.growth(self._idle, start), peak - sum(start.values())
            children = memory.peak_of_children() - self._idle_children
            above = held + max(0, taken) + max(0, children)
        return {"allocator": self.adapter.allocator_peak(), "resident": above}

    def do_forget(self) -> dict[str, Any]:
        """Let go of the case and its arrays."""
        self._case = self._work = None
        self._inputs, self._cotangents = {}, []
        gc.collect()
        return {}

    def do_model(self, file: str, function: str, phase: str) -> dict[str, Any]:
        """Load a user's model and tell what operators a step of it consists of."""
        from tapegrad.worker.profiling.profiler import Profiler

        self._profiler = Profiler(self.adapter, Path(file), function, phase)
        return {"rows": self._profiler.rows()}

    def do_profile(self, seconds: float) -> dict[str, Any]:
        """Run steps of the model, and tell the time of each of its operators in place."""
        return self.profiler.visit(seconds)

    def do_replay(self, row: int, seconds: float) -> dict[str, Any]:
        """Run one operator of the model alone."""
        return self.profiler.replay(row, seconds)

    @property
    def profiler(self) -> Profiler:
        """Return the model that `model` loaded."""
        if self._profiler is None:
            raise RuntimeError("no model is loaded")
        return self._profiler

    @property
    def adapter(self) -> Adapter:
        """Return the adapter that `hello` loaded."""
        if self._adapter is None:
            raise RuntimeError("a worker must be greeted with `hello` first")
        return self._adapter

    @property
    def work(self) -> Work:
        """Return the case that `prepare` made ready."""
        if self._work is None:
            raise RuntimeError("no case is prepared")
        return self._work

    def _phase(self, name: str) -> Phase:
        return self.work.phases[name]

    def _save(self, phase: str, result: Any, folder: Path) -> dict[str, str]:
        return _save(self.work.arrays(phase, result), folder)


def load_adapter(file: Path, name: str) -> type[Adapter]:
    """Import an adapter's file, wherever it lies, and return one of its classes."""
    module_name = f"tapegrad_adapter_{file.stem}"
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)
    adapter: type[Adapter] = getattr(module, name)
    return adapter


def _save(arrays: Mapping[str, AnyArray], folder: Path) -> dict[str, str]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    for name, array in arrays.items():
        path = folder / f"{name.replace(':', '-')}.npy"
        np.save(path, np.asarray(array))
        paths[name] = str(path)
    return paths


def _changed(inputs: Mapping[str, AnyArray], index: int) -> dict[str, AnyArray]:
    """Make inputs like those given: elsewhere along the longest side, each off by its own part."""
    return _varied({name: _rolled(array, index) for name, array in inputs.items()}, index)


def _rolled(array: AnyArray, index: int) -> AnyArray:
    return np.roll(array, index, int(np.argmax(array.shape)) if array.ndim else None)


def _varied(inputs: Mapping[str, AnyArray], index: int) -> dict[str, AnyArray]:
    """Make inputs in the same places, each element off by its own part.

    By which is drawn anew in each process, so that nobody can prepare answers.
    """
    factors = np.random.default_rng().uniform(0.99, 1.01, FACTORS)
    return {
        name: np.asarray(array * np.resize(factors.astype(array.dtype), array.shape))
        if np.issubdtype(array.dtype, np.floating)
        else array
        for name, array in inputs.items()
    }


def _scaled(inputs: Mapping[str, AnyArray], index: int) -> dict[str, AnyArray]:
    """Make multiples of inputs: their order stays, and their structure."""
    factor = np.random.default_rng().uniform(0.99, 1.01)
    return {
        name: np.asarray(array * array.dtype.type(factor))
        if np.issubdtype(array.dtype, np.floating)
        else array
        for name, array in inputs.items()
    }


def _mixed(inputs: Mapping[str, AnyArray], index: int) -> dict[str, AnyArray]:
    """Make inputs whose elements have a little of their neighbours: sums of rows stay."""
    part = np.random.default_rng().uniform(0.001, 0.01)
    return {
        name: np.asarray(array + array.dtype.type(part) * (np.roll(array, 1, -1) - array))
        if array.ndim and np.issubdtype(array.dtype, np.floating)
        else array
        for name, array in inputs.items()
    }


#: How inputs never seen before are made. Where a call fails on some, as of a matrix that is no
#: longer positive definite, the next way is tried, which leaves more as it was.
WAYS = (_changed, _varied, _scaled, _mixed)
