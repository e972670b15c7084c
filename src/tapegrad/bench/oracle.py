"""What is right: results in float64 by one framework, confirmed by another.

A witness runs the case in float64 in a process of its own. The first witness that has an answer
gives the truth; a second from another framework must agree with it. A framework that has no
backward pass, such as NumPy, confirms gradients all the same: the change of its outputs along
random directions, by central differences, must be what the gradients say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapegrad.bench import inputs
from tapegrad.bench.comparison import Difference, compare
from tapegrad.bench.errors import WorkerError
from tapegrad.bench.inputs import Arrays
from tapegrad.bench.process import Worker
from tapegrad.worker.case import Case

AnyArray = NDArray[Any]

#: Two float64 witnesses may differ by this many times the rounding that float64 explains.
WITNESS_TERMS = 64
#: Central differences: the step, and the relative error of the derivative along a direction.
STEP = 1e-6
DIRECTIONS = 3
DIRECTION_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Truth:
    """The right results at one set of inputs."""

    arrays: Arrays
    cotangents: list[AnyArray]
    #: Who gave the outputs and who the gradients.
    sources: tuple[str, str]
    #: Whether a second framework agrees with all of it.
    confirmed: bool = False

    def of_phase(self, phase: str) -> Arrays:
        """Return the results that one phase must give."""
        kinds = {"forward": ("output",), "inference": ("output",), "backward": ("grad:",)}
        wanted = kinds.get(phase, ("output", "grad:"))
        return {name: array for name, array in self.arrays.items() if name.startswith(wanted)}


class NoTruthError(Exception):
    """No witness can do the case."""


class DisagreementError(NoTruthError):
    """Two witnesses give different results, so at least one is wrong."""

    def __init__(self, message: str, names: tuple[str, str]) -> None:
        super().__init__(message)
        self.names = names


def find_truth(
    case: Case, sets: Sequence[Arrays], witnesses: Mapping[str, Worker], folder: Path, seed: int
) -> list[Truth]:
    """Ask witnesses for the right results at several sets of inputs."""
    exact = replace(case, dtype="float64")
    willing = dict(witnesses)
    while ready := _prepare(exact, sets[0], willing, folder):
        try:
            return [
                _Hearing(exact, arrays, ready, folder / str(index)).truth(case, seed + index)
                for index, arrays in enumerate(sets)
            ]
        except _WitnessFailedError as failure:
            del willing[failure.name]
    raise NoTruthError("no witness can do this case in float64")


class _WitnessFailedError(Exception):
    """A witness that had agreed to testify could not."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@dataclass
class _Witness:
    """A worker that holds the case in float64."""

    name: str
    worker: Worker
    phases: Sequence[str]

    @property
    def differentiates(self) -> bool:
        return bool({"backward", "step"} & set(self.phases))

    def outputs(self, paths: dict[str, str], folder: Path) -> Arrays:
        phase = next(each for each in ("inference", "forward", "step") if each in self.phases)
        return self._ask(phase, paths, [], "output", folder)

    def gradients(self, paths: dict[str, str], cotangents: list[str], folder: Path) -> Arrays:
        phase = "backward" if "backward" in self.phases else "step"
        return self._ask(phase, paths, cotangents, "grad:", folder)

    def _ask(
        self, phase: str, paths: dict[str, str], cotangents: list[str], kind: str, folder: Path
    ) -> Arrays:
        try:
            self.worker.ask("feed", arrays=paths, cotangents=cotangents)
            answer = self.worker.ask("check", phase=phase, folder=str(folder / self.name))
        except WorkerError:
            raise _WitnessFailedError(self.name) from None
        found = {name: path for name, path in answer["arrays"].items() if name.startswith(kind)}
        return {name: np.load(path).astype(np.float64) for name, path in found.items()}


def _prepare(
    case: Case, arrays: Arrays, witnesses: Mapping[str, Worker], folder: Path
) -> list[_Witness]:
    """Find those that can do the case; two are enough if one of them has gradients."""
    paths = inputs.save(_doubled(arrays), folder / "witness")
    ready: list[_Witness] = []
    for name, worker in witnesses.items():
        try:
            answer = worker.ask("prepare", case=case.as_dict(), arrays=paths)
        except WorkerError:
            continue
        ready.append(_Witness(name, worker, answer["phases"]))
        if len(ready) >= 2 and any(witness.differentiates for witness in ready):
            break
    return ready


class _Hearing:
    """All witnesses on one set of inputs."""

    def __init__(self, case: Case, arrays: Arrays, ready: list[_Witness], folder: Path) -> None:
        self._case = case
        self._arrays = _doubled(arrays)
        self._ready = ready
        self._folder = folder
        self._paths = inputs.save(self._arrays, folder / "inputs")

    def truth(self, case: Case, seed: int) -> Truth:
        """Hear the first witness on outputs, the first that can on gradients, then the others."""
        first = self._ready[0]
        outputs = first.outputs(self._paths, self._folder)
        source = next((witness for witness in self._ready if witness.differentiates), None)
        cotangents: list[AnyArray] = []
        gradients: Arrays = {}
        if case.wrt and source is not None:
            cotangents = inputs.make_cotangents(case, list(outputs.values()), seed)
            gradients = self._gradients(source, cotangents)
        names = first.name, source.name if source else ""
        truth = Truth(outputs | gradients, cotangents, names)
        confirmed = self._confirm_outputs(truth) and (
            not case.wrt or self._confirm_gradients(truth)
        )
        return replace(truth, confirmed=confirmed)

    def _confirm_outputs(self, truth: Truth) -> bool:
        """Compare the outputs of other witnesses; raises where they differ."""
        others = [witness for witness in self._ready if witness.name != truth.sources[0]]
        for witness in others:
            self._agree(witness, witness.outputs(self._paths, self._folder), truth, 0)
        return bool(others)

    def _confirm_gradients(self, truth: Truth) -> bool:
        """Compare with other witnesses' gradients, or with differences of their outputs."""
        if not truth.sources[1]:
            return False
        others = [witness for witness in self._ready if witness.name != truth.sources[1]]
        for witness in others:
            if witness.differentiates:
                self._agree(witness, self._gradients(witness, truth.cotangents), truth, 1)
            else:
                self._agree_along_directions(witness, truth)
        return bool(others)

    def _gradients(self, witness: _Witness, cotangents: list[AnyArray]) -> Arrays:
        named = {f"cotangent{index}": value for index, value in enumerate(cotangents)}
        files = inputs.save(_doubled(named), self._folder / "inputs")
        return witness.gradients(self._paths, list(files.values()), self._folder)

    def _agree(self, witness: _Witness, found: Arrays, truth: Truth, part: int) -> None:
        if self._case.random:
            return
        result = compare(
            found,
            truth.arrays,
            dtype="float64",
            terms=WITNESS_TERMS * max(self._case.reduction, 1),
            prefix=self._case.level == "graph",
        )
        if isinstance(result, Difference):
            names = witness.name, truth.sources[part]
            raise DisagreementError(f"{' and '.join(names)} disagree: {result.reason}", names)

    def _agree_along_directions(self, witness: _Witness, truth: Truth) -> None:
        """Compare gradients with central differences of the witness's outputs."""
        rng = np.random.default_rng(0)
        for _ in range(DIRECTIONS):
            shapes = {name: self._arrays[name].shape for name in self._case.wrt}
            direction = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
            ahead, behind = (self._moved(witness, direction, step) for step in (STEP, -STEP))
            pairs = zip(truth.cotangents, ahead, behind, strict=True)
            found = sum(float(np.sum(c * (a - b))) for c, a, b in pairs) / (2 * STEP)
            products = [truth.arrays[f"grad:{name}"] * v for name, v in direction.items()]
            wanted = sum(float(np.sum(product)) for product in products)
            scale = float(np.sqrt(sum(float(np.sum(np.square(each))) for each in products)))
            if abs(found - wanted) > DIRECTION_TOLERANCE * (scale + abs(wanted)):
                names = witness.name, truth.sources[1]
                message = (
                    f"gradients of {names[1]} disagree with differences of {names[0]}: "
                    f"{wanted:.6g} and {found:.6g} along one direction"
                )
                raise DisagreementError(message, names)

    def _moved(self, witness: _Witness, direction: Arrays, step: float) -> list[AnyArray]:
        """Return the outputs a small step away."""
        moved = {name: self._arrays[name] + step * v for name, v in direction.items()}
        paths = inputs.save({**self._arrays, **moved}, self._folder / "direction")
        return list(witness.outputs(paths, self._folder).values())


def _doubled(arrays: Mapping[str, AnyArray]) -> Arrays:
    return {
        name: array.astype(np.float64) if np.issubdtype(array.dtype, np.floating) else array
        for name, array in arrays.items()
    }
