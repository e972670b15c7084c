"""What is right: results in float64 by one framework, confirmed by another.

A witness runs the case in float64 in a process of its own. The first witness that has an answer
gives the truth; a second from another framework must agree with it. Where they disagree a third is
heard: who agrees with it is right, two against one. A framework that has no backward pass, such
as NumPy, confirms gradients all the same: the change of its outputs along random directions, by
central differences, must be what the gradients say.

Not everybody has the same say. Whoever is not authoritative, as an adapter that a user brings, may
agree with one that is and so confirm it. Where it differs it is not heard, however many say the
same; and what only such witnesses say is never confirmed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapegrad.bench import answers, floors, inputs, randomness
from tapegrad.bench.comparison import Difference, compare, kinks_of, terms_of
from tapegrad.bench.errors import WorkerError
from tapegrad.bench.inputs import Arrays
from tapegrad.bench.process import Worker
from tapegrad.worker.case import Case

AnyArray = NDArray[Any]

#: How the names of outputs and of gradients begin.
KINDS = ("output", "grad:")
#: Phases that give outputs, the simplest first.
OUTPUT_PHASES = ("inference", "forward", "step")
#: Two float64 witnesses may differ by this many times the rounding that float64 explains.
WITNESS_TERMS = 64
#: Central differences: the step, so small that kinks are rarely crossed, how many directions are
#: tried, and the relative error of the derivative along one.
STEP = 1e-7
DIRECTIONS = 4
DIRECTION_TOLERANCE = 1e-4


#: Bytes that witnesses need not let go of: to do so takes up to 0.1 s each, since the garbage
#: collector goes through all that a framework consists of.
KEPT = 1 << 23


class NoTruthError(Exception):
    """No witness can do the case; `failures` tells how each failed."""

    def __init__(self, message: str, failures: Mapping[str, WorkerError] | None = None) -> None:
        super().__init__(message)
        self.failures = dict(failures or {})


class DisagreementError(NoTruthError):
    """Two witnesses give different results, so at least one is wrong."""

    def __init__(self, message: str, names: tuple[str, str]) -> None:
        super().__init__(message)
        self.names = names


@dataclass(frozen=True)
class Truth:
    """The right results at one set of inputs."""

    arrays: Arrays
    cotangents: list[AnyArray]
    #: Who gave the outputs and who the gradients.
    sources: tuple[str, str]
    #: Whether a second framework agrees with the outputs, and with the gradients.
    outputs_confirmed: bool = False
    gradients_confirmed: bool = False
    #: Why the gradients are in doubt; then only outputs can be checked.
    dispute: DisagreementError | None = None
    #: Who said something else and was outvoted, in words.
    outvoted: str = ""

    def confirmed(self, phase: str) -> bool:
        """Whether a second framework agrees with what a phase must give."""
        gradients = any(name.startswith("grad:") for name in self.of_phase(phase))
        return self.outputs_confirmed and (self.gradients_confirmed or not gradients)

    @property
    def has_gradients(self) -> bool:
        """Whether anybody had gradients to tell."""
        return any(name.startswith("grad:") for name in self.arrays)

    def of_phase(self, phase: str) -> Arrays:
        """Return the results that one phase must give."""
        kinds = {"forward": ("output",), "inference": ("output",), "backward": ("grad:",)}
        wanted = kinds.get(phase, ("output", "grad:"))
        return {name: array for name, array in self.arrays.items() if name.startswith(wanted)}


@dataclass(frozen=True)
class InputSet:
    """One set of inputs as files, and the right answer for it."""

    arrays: dict[str, str]
    cotangents: list[str]
    truth: Truth
    _computed: dict[str, frozenset[str]] = field(default_factory=dict, compare=False, repr=False)

    def feed(self, worker: Worker) -> None:
        """Hand the set to a worker."""
        worker.ask("feed", arrays=self.arrays, cotangents=self.cotangents)

    def load(self) -> Arrays:
        """Read the set as a worker does."""
        files = {Path(file).stem: file for file in (*self.arrays.values(), *self.cotangents)}
        return {name: np.load(file) for name, file in files.items()}

    def computed(self, phase: str) -> frozenset[str]:
        """Name the results of a phase that are no views of the inputs; found out once for all."""
        if phase not in self._computed:
            truth = self.truth.of_phase(phase)
            self._computed[phase] = floors.computed(truth, self.load().values())
        return self._computed[phase]


def find_truth(  # noqa: PLR0917  the order of the story: what, on which inputs, by whom
    case: Case,
    sets: Sequence[Arrays],
    witnesses: Mapping[str, Worker],
    folder: Path,
    seed: int,
    types: Sequence[str] = ("float64",),
) -> list[Truth]:
    """Ask witnesses for the right results at several sets of inputs.

    `types` are those in which they compute, the best first: the next one is tried where nobody
    can do it in the one before.
    """
    failures: dict[str, WorkerError] = {}
    for dtype in dict.fromkeys(types):
        court = _Court(case, replace(case, dtype=dtype), sets, folder, seed, failures)
        if truths := court.truths(witnesses):
            return [_weighed(truth, witnesses) for truth in truths]
    reasons = "; ".join(f"{name}: {reason}" for name, reason in failures.items())
    raise NoTruthError(f"no witness can do this case ({reasons})", failures)


def _weighed(truth: Truth, witnesses: Mapping[str, Worker]) -> Truth:
    """Take no confirmation from those who have no say; who has one is heard first."""
    if witnesses[truth.sources[0]].authoritative:
        return truth
    return replace(truth, outputs_confirmed=False, gradients_confirmed=False)


@dataclass(frozen=True)
class _Court:
    """Hears witnesses on one case in one type, at all sets of inputs."""

    case: Case
    #: The case in the type in which witnesses compute.
    exact: Case
    sets: Sequence[Arrays]
    folder: Path
    seed: int
    failures: dict[str, WorkerError]

    def truths(self, witnesses: Mapping[str, Worker]) -> list[Truth]:
        """Return what the first witnesses say, or a third where they disagree; none: nothing."""
        truths: list[Truth] = []
        try:
            truths = self._heard(witnesses)
            dispute = next((each.dispute for each in truths if each.dispute), None)
        except DisagreementError as difference:
            dispute = difference
        if dispute is None:
            return truths
        without_say = [name for name in dispute.names if not witnesses[name].authoritative]
        if len(without_say) == 1:
            return self._unheard(without_say[0], dispute, truths, witnesses)
        if upheld := self._upheld(dispute, witnesses):
            return upheld
        if not truths:
            raise dispute
        return truths  # with the dispute, about gradients

    def _unheard(
        self,
        absent: str,
        dispute: DisagreementError,
        truths: list[Truth],
        witnesses: Mapping[str, Worker],
    ) -> list[Truth]:
        """Decide without the one that has no say; gradients that only it has stay in dispute."""
        rest = self.truths({name: each for name, each in witnesses.items() if name != absent})
        if all(truth.has_gradients for truth in rest) or not self.case.wrt:
            return rest
        return [replace(truth, dispute=dispute) for truth in truths or rest]

    def _heard(self, witnesses: Mapping[str, Worker]) -> list[Truth]:
        """Hear the first witnesses that can do the case; who fails is replaced by the next."""
        willing = dict(witnesses)
        while ready := _prepare(self.exact, self.sets[0], willing, self.folder, self.failures):
            truths: list[Truth] = []
            try:
                truths += (
                    _Hearing(self.exact, arrays, ready, self.folder / str(index)).truth(
                        self.case, self.seed + index
                    )
                    for index, arrays in enumerate(self.sets)
                )
            except _WitnessFailedError as failure:
                del willing[failure.name]
                self.failures[failure.name] = WorkerError("failed", str(failure))
            else:
                return truths
            finally:
                if not self._is_small(truths):
                    _dismiss(ready)
        return []

    def _is_small(self, truths: list[Truth]) -> bool:
        """Whether witnesses may keep the case until the next one takes its place."""
        arrays = [array for truth in truths for array in truth.arrays.values()]
        arrays += [array for arrays in self.sets for array in arrays.values()]
        return bool(truths) and sum(array.nbytes for array in arrays) <= KEPT

    def _upheld(
        self, dispute: DisagreementError, witnesses: Mapping[str, Worker]
    ) -> list[Truth] | None:
        """Hear each side without the other; right is who a third confirms, if it is only one.

        The third has as much say as they have.
        """
        equals = {
            name: worker
            for name, worker in witnesses.items()
            if worker.authoritative or not witnesses[dispute.names[0]].authoritative
        }
        found = []
        for absent in dispute.names:
            others = {name: worker for name, worker in equals.items() if name != absent}
            with suppress(DisagreementError):
                truths = self._heard(others)
                if truths and all(map(self._undisputed, truths)):
                    outvoted = f"{absent} is outvoted, two against one: {dispute}"
                    found.append([replace(truth, outvoted=outvoted) for truth in truths])
        return found[0] if len(found) == 1 else None

    def _undisputed(self, truth: Truth) -> bool:
        """Whether two agree on everything that the case asks for."""
        gradients = truth.gradients_confirmed or not self.case.wrt
        return truth.outputs_confirmed and gradients and truth.dispute is None


class _WitnessFailedError(Exception):
    """A witness that had agreed to testify could not."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name


@dataclass
class _Witness:
    """A worker that holds the case in float64, or in its own type."""

    name: str
    worker: Worker
    phases: Sequence[str]
    dtype: str
    #: The name of its folder: its own may be none that files can have.
    place: str

    @property
    def differentiates(self) -> bool:
        return bool({"backward", "step"} & set(self.phases))

    def outputs(self, paths: dict[str, str], folder: Path) -> Arrays:
        phase = next(each for each in OUTPUT_PHASES if each in self.phases)
        return self._ask(phase, paths, [], "output", folder)

    def gradients(self, paths: dict[str, str], cotangents: list[str], folder: Path) -> Arrays:
        phase = "backward" if "backward" in self.phases else "step"
        return self._ask(phase, paths, cotangents, "grad:", folder)

    def _ask(
        self, phase: str, paths: dict[str, str], cotangents: list[str], kind: str, folder: Path
    ) -> Arrays:
        try:
            self.worker.ask("feed", arrays=paths, cotangents=cotangents)
            answer = self.worker.ask("check", phase=phase, folder=str(folder / self.place))
            found = answers.load(answer)
        except WorkerError as error:
            raise _WitnessFailedError(self.name, str(error)) from None
        chosen = {name: array for name, array in found.items() if name.startswith(kind)}
        for name, array in chosen.items():
            if array.dtype.kind == "f" and array.dtype.itemsize < np.dtype(self.dtype).itemsize:
                reason = f"{name} is {array.dtype} though the inputs are {self.dtype}"
                raise _WitnessFailedError(self.name, reason)
        wide = np.dtype(self.dtype)
        return {
            name: array.astype(np.result_type(array.dtype, wide)) for name, array in chosen.items()
        }


def _prepare(
    case: Case,
    arrays: Arrays,
    witnesses: Mapping[str, Worker],
    folder: Path,
    failures: dict[str, WorkerError],
) -> list[_Witness]:
    """Find those that can do the case; two are enough if one has the gradients asked for."""
    paths = inputs.save(_typed(arrays, case.dtype), folder / "witness")
    ready: list[_Witness] = []
    for name, worker in witnesses.items():
        try:
            answer = worker.ask("prepare", case=case.as_dict(), arrays=paths)
        except WorkerError as error:
            failures[name] = error
            continue
        if not set(OUTPUT_PHASES) & set(answer["phases"]):
            failures[name] = WorkerError("mistrusted", "it offers no phase with outputs")
            continue
        place = f"witness{len(ready)}"
        ready.append(_Witness(name, worker, answer["phases"], case.dtype, place))
        if len(ready) >= 2 and (not case.wrt or any(each.differentiates for each in ready)):
            break
    return ready


def _dismiss(ready: Sequence[_Witness]) -> None:
    """Have witnesses let go of the case."""
    for witness in ready:
        with suppress(WorkerError):
            witness.worker.ask("forget")


class _Hearing:
    """All witnesses on one set of inputs."""

    def __init__(self, case: Case, arrays: Arrays, ready: list[_Witness], folder: Path) -> None:
        self._case = case
        self._arrays = _typed(arrays, case.dtype)
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
        truth = replace(truth, outputs_confirmed=self._confirm_outputs(truth))
        if not gradients:
            return truth
        try:
            return replace(truth, gradients_confirmed=self._confirm_gradients(truth))
        except DisagreementError as dispute:
            return replace(truth, dispute=dispute)

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
        confirmed = False
        for witness in self._ready:
            if witness.name == truth.sources[1]:
                continue
            if witness.differentiates:
                self._agree(witness, self._gradients(witness, truth.cotangents), truth, 1)
            elif self._case.dtype == "float64":  # differences of anything less show nothing
                self._agree_along_directions(witness, truth)
            else:
                continue
            confirmed = True
        return confirmed

    def _gradients(self, witness: _Witness, cotangents: list[AnyArray]) -> Arrays:
        named = {f"cotangent{index}": value for index, value in enumerate(cotangents)}
        files = inputs.save(_typed(named, self._case.dtype), self._folder / "inputs")
        return witness.gradients(self._paths, list(files.values()), self._folder)

    def _agree(self, witness: _Witness, found: Arrays, truth: Truth, part: int) -> None:
        names = witness.name, truth.sources[part]
        known = {name for name in truth.arrays if name.startswith(KINDS[part])}
        if missing := sorted(known - found.keys()):
            lack = f"{', '.join(missing)} is missing"
            raise DisagreementError(f"{' and '.join(names)} disagree: {lack}", names)
        if self._case.random:
            wanted = {name: array for name, array in truth.arrays.items() if name in found}
            if reason := randomness.difference(found, wanted):
                raise DisagreementError(f"{' and '.join(names)} disagree: {reason}", names)
            return
        result = compare(
            found,
            truth.arrays,
            dtype=self._case.dtype,
            terms=WITNESS_TERMS * terms_of(self._case, truth.arrays),
            prefix=self._case.level == "graph",
            network=self._case.level == "model",
            kinks=kinks_of(self._case),
        )
        if isinstance(result, Difference):
            raise DisagreementError(f"{' and '.join(names)} disagree: {result.reason}", names)

    def _agree_along_directions(self, witness: _Witness, truth: Truth) -> None:
        """Compare gradients with central differences of the witness's outputs.

        One direction of several is enough: right gradients fail where a step crosses a kink, wrong
        ones agree along none.
        """
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
            if abs(found - wanted) <= DIRECTION_TOLERANCE * (scale + abs(wanted)):
                return
        names = witness.name, truth.sources[1]
        message = (
            f"gradients of {names[1]} disagree with differences of {names[0]}: "
            f"{wanted:.6g} and {found:.6g} along a direction"
        )
        raise DisagreementError(message, names)

    def _moved(self, witness: _Witness, direction: Arrays, step: float) -> list[AnyArray]:
        """Return the outputs a small step away."""
        moved = {name: self._arrays[name] + step * v for name, v in direction.items()}
        paths = inputs.save({**self._arrays, **moved}, self._folder / "direction")
        return list(witness.outputs(paths, self._folder).values())


def _typed(arrays: Mapping[str, AnyArray], dtype: str) -> Arrays:
    """Turn numbers into the type of a hearing; integers stay what they are."""
    return {
        name: array.astype(dtype) if np.issubdtype(array.dtype, np.floating) else array
        for name, array in arrays.items()
    }
