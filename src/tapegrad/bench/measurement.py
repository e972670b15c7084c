"""One case over all its contenders: the truth, the checks, the interleaved blocks, the memory."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs

from tapegrad.bench import footprint, guards, inputs, machine, scratch
from tapegrad.bench.errors import WorkerError
from tapegrad.bench.given import Done, Kept, Settings, Sink, Team
from tapegrad.bench.inputs import Arrays
from tapegrad.bench.oracle import (
    DisagreementError,
    InputSet,
    NoTruthError,
    Truth,
    find_truth,
)
from tapegrad.bench.preparation import PREPARATION
from tapegrad.bench.probe import Finding, Probe
from tapegrad.bench.process import Worker
from tapegrad.bench.results import COMPUTES_IN, UNFINISHED, Block, Cell, CellKey, type_in
from tapegrad.bench.watch import Watch, disagreement
from tapegrad.worker.case import Case

#: Blocks that take longer than this are measured once per process, or once at all.
LONG_BLOCK = 2.0
VERY_LONG_BLOCK = 20.0
#: What is looked at in a case that a stand-in is checked for: the stand-in showed the rest.
BESIDE_STAND_IN = ("values", "meaning", "timed result", "clock", "single", "floor", "cores")
#: Verdicts on what a framework does not offer: no failures.
ABSENT = ("unsupported", "joint")
#: Said of a phase with a setup.
PREPARES = (
    "does something before the clock starts: it has a setup; let the phase itself do all of it, or "
    "offer only `step` and say that the work is joint"
)
#: Work on scalar graphs that meets a new graph in each call, which is handed over before it.
PREPARED = ("churn",)
#: Said of a cell whose times nobody has looked back on.
NOT_YET = "the run ended before its times were looked back on; --resume does that"
#: Said where inputs near a user's own are none that the functions agree at.
STRUCTURED = (
    "checked at the inputs given and at multiples or mixtures of them: at inputs near them, whose "
    "elements each differ a little, the functions disagree or fail"
)
#: Phases without gradients.
OUTPUT_ONLY = ("forward", "inference")


@dataclass
class Measurement:
    """The measurement of one case."""

    case: Case
    phases: tuple[str, ...]
    teams: Mapping[str, Team]
    witnesses: Mapping[str, Worker]
    settings: Settings
    folder: Path
    sink: Sink
    done: Done = field(default_factory=Done)
    _cells: dict[CellKey, Cell] = field(default_factory=dict, init=False)
    _prepared: set[tuple[str, int]] = field(default_factory=set, init=False)
    #: Why workers could not be given the case, until somebody asks for them.
    _refusals: dict[tuple[str, int], WorkerError] = field(default_factory=dict, init=False)
    _offers: dict[str, dict[str, Any]] = field(default_factory=dict, init=False)
    _verified: set[tuple[CellKey, int]] = field(default_factory=set, init=False)
    _costs: dict[CellKey, float] = field(default_factory=dict, init=False)
    #: Seconds of a call in each block of a cell; how many times as long as it told the block took
    #: by our clock, at least; units of work in a call.
    _claims: dict[CellKey, list[float]] = field(default_factory=dict, init=False)
    _doubts: dict[CellKey, list[float]] = field(default_factory=dict, init=False)
    #: Processors that each block of a cell kept busy.
    _busy: dict[CellKey, list[float]] = field(default_factory=dict, init=False)
    _units: dict[CellKey, int] = field(default_factory=dict, init=False)
    #: Seconds of a forward pass that was found right, of each contender.
    _forward: dict[str, float] = field(default_factory=dict, init=False)
    #: The last visit's answer: it is taken while the next worker is busy.
    _block: Block | None = field(default=None, init=False)
    _watch: Watch | None = field(default=None, init=False)
    #: Whether that block tells all that was done in it.
    _told: bool = field(default=False, init=False)
    #: How the contenders were checked, where that is not as usual.
    _remarks: list[str] = field(default_factory=list, init=False)
    #: Who failed the stand-in, in which phase, and how.
    _out: dict[tuple[str, str], Cell] = field(default_factory=dict, init=False)

    def run(self, given: Arrays | None = None) -> None:
        """Check every contender, then time those that are right; `given` are a user's inputs."""
        cells = [key for name in self.teams for key in self._keys(name)]
        if not self._unfinished(cells):
            return
        self._rehearse()
        try:
            self._sets = self._input_sets(given)
        except NoTruthError as reason:
            for key in cells:
                self._doubt(key, reason)
            return
        self._hand_out()
        for name in self.teams:
            self._judge(name)
        self._time()
        self._settle()
        if self.settings.memory:
            self._measure_memory()

    def _measure_memory(self) -> None:
        """Measure what every timed cell takes; large cases one after the other."""
        wanted = [
            cell.key
            for cell in self._cells.values()
            if cell.timed and cell.phase not in PREPARATION and cell.key not in self.done.memory
        ]
        at_once = 1 if self._large and self.settings.device == "cpu" else len(machine.usable())
        for found in footprint.measure(self.case, wanted, self._sets[0], self.teams, at_once):
            self.sink.memory(found)

    def _keys(self, name: str) -> list[CellKey]:
        return [CellKey(self.case.key, name, phase) for phase in self.phases]

    def _rehearse(self) -> None:
        """Check the stand-in; who fails it is out, who passes it may say what is right here."""
        stand_in = self.case.stand_in
        if stand_in is None:
            return
        found = Kept()
        settings = replace(self.settings, rounds=0, memory=False)
        phases = tuple(phase for phase in self.phases if phase not in PREPARATION)
        folder = self.folder / "stand-in"
        Measurement(stand_in, phases, self.teams, self.witnesses, settings, folder, found).run()
        for cell in found.cells.values():
            if not cell.timed and cell.verdict not in ABSENT:
                reason = f"{stand_in.label}: {cell.reason}"
                self._out[cell.framework, cell.phase] = structs.replace(cell, reason=reason)
        failed = {name for name, _ in self._out}
        self.witnesses = {
            name: worker for name, worker in self.witnesses.items() if name not in failed
        }
        guards = {name: self.settings.guards[name] for name in BESIDE_STAND_IN}
        self.settings = replace(self.settings, guards=guards)

    def _doubt(self, key: CellKey, reason: NoTruthError) -> None:
        """Conclude without a truth: of those who disagree, at least one is wrong."""
        if (failure := reason.failures.get(key.framework)) is not None:
            self._conclude(key, failure.kind, str(failure))
            return
        doubtful = reason.names if isinstance(reason, DisagreementError) else ()
        verdict = "wrong" if key.framework in doubtful else "mistrusted"
        self._conclude(key, verdict, str(reason))

    def _unfinished(self, cells: list[CellKey]) -> bool:
        """Tell whether an earlier run has left anything to do."""
        for key in cells:
            cell = self.done.cells.get(key)
            if cell is None:
                return True
            if cell.timed and any(
                (key, process, number) not in self.done.blocks and self._affordable(key, number)
                for process, number in self._visits(range(self.settings.processes))
            ):
                return True
            if cell.timed and self.settings.memory and key not in self.done.memory:
                return True
        return False

    def _input_sets(self, given: Arrays | None) -> tuple[InputSet, InputSet]:
        """Make two sets of inputs with the right results for both; one, where it is large."""
        if given is None:
            sets = [inputs.make_inputs(self.case, seed) for seed in self._seeds()]
            truths = self._truths(sets, ("float64",))
        else:
            sets, truths = self._around(given)
        saved = [
            self._saved(arrays, truth, index)
            for index, (arrays, truth) in enumerate(zip(sets, truths, strict=True))
        ]
        return saved[0], saved[-1]

    def _seeds(self) -> Iterator[int]:
        """Yield the seeds of the sets of inputs."""
        yield self.settings.seed
        if not self._large:
            known = self.settings.second_seed
            yield secrets.randbits(62) if known is None else known

    def _around(self, given: Arrays) -> tuple[list[Arrays], list[Truth]]:
        """Return a user's inputs with others that give other results, and what is right at both."""
        types = "float64", self.case.dtype
        sets = [given, inputs.nudged(given)]
        try:
            truths = self._truths(sets, types)
        except NoTruthError:
            if found := self._with_structure(given, types):
                return found
            raise
        if not self._agreed(truths):
            return self._with_structure(given, types) or (sets, truths)
        if _share_a_result(*truths):  # such as an index, which a small change does not change
            with suppress(NoTruthError):  # functions that need an order, or a structure
                turned = [given, inputs.turned(sets[1])]
                return turned, self._truths(turned, types)
        return sets, truths

    def _with_structure(
        self, given: Arrays, types: Sequence[str]
    ) -> tuple[list[Arrays], list[Truth]] | None:
        """Take inputs that keep more of what a user's own are than those near them.

        These are not symmetric any more, nor sorted, and do not sum to one.
        """
        for others in (inputs.scaled(given), inputs.mixed(given)):
            with suppress(NoTruthError):
                truths = self._truths([given, others], types)
                if self._agreed(truths) and not _share_a_result(*truths):
                    self._remarks.append(STRUCTURED)
                    return [given, others], truths
        return None

    def _agreed(self, truths: Sequence[Truth]) -> bool:
        """Tell whether all who could differ, or fail, did not."""
        confirmed = len(self.witnesses) == 1 or all(each.outputs_confirmed for each in truths)
        return confirmed and not any(each.dispute for each in truths)

    def _truths(self, sets: list[Arrays], types: Sequence[str]) -> list[Truth]:
        """Ask for what is right, in the first of the types in which anybody can tell.

        It lies where no contender is told of, and is gone before one has the case.
        """
        chosen = [self.case.dtype] if self._large else types
        with scratch.folder() as hidden:
            return find_truth(self.case, sets, self.witnesses, hidden, self.settings.seed, chosen)

    @property
    def _large(self) -> bool:
        """Whether the case is so large that a stand-in is checked for it.

        Then only one process of each contender holds it at a time.
        """
        return self.case.stand_in is not None

    @property
    def _scalar_graph(self) -> bool:
        """Whether a call may evaluate many points, or meet a new graph that is made before it."""
        return self.case.level == "graph"

    def _saved(self, arrays: Arrays, truth: Truth, index: int) -> InputSet:
        folder = self.folder / f"inputs{index}"
        named = {f"cotangent{number}": value for number, value in enumerate(truth.cotangents)}
        return InputSet(
            inputs.save(arrays, folder),
            list(inputs.save(named, folder).values()),
            truth,
        )

    def _judge(self, name: str) -> None:
        """Decide about all phases of one contender in its first process."""
        keys = {key.phase: key for key in self._keys(name)}
        known = {key: self.done.cells[key] for key in keys.values() if key in self.done.cells}
        self._cells |= known
        if len(known) == len(keys):
            return
        for phase, key in keys.items():
            if (out := self._out.get((name, phase))) is not None:
                self._conclude(key, out.verdict, out.reason, out.error)
                known[key] = out
        if len(known) == len(keys):
            return
        try:
            worker = self._prepare(name, 0)
        except WorkerError as error:
            for key in keys.values():
                self._conclude(key, error.kind, str(error))
            return
        order = sorted(self.phases, key=lambda phase: phase in PREPARATION)
        for position, phase in enumerate(order):
            if keys[phase] in known:
                continue
            try:
                self._judge_phase(keys[phase], worker)
            except WorkerError as error:
                self._conclude(keys[phase], error.kind, str(error))
                if not worker.alive:
                    for rest in order[position + 1 :]:
                        self._conclude(keys[rest], error.kind, f"after {phase}: {error}")
                    self._prepared.discard((name, 0))
                    return

    def _judge_phase(self, key: CellKey, worker: Worker) -> None:
        phase, offer = key.phase, self._offers[key.framework]
        if phase not in offer["phases"]:
            self._conclude(key, *self._absence(phase, offer))
            return
        if phase in PREPARATION:
            self._follow_step(key, offer)
            return
        if phase not in offer["looped"] and self.case.op not in PREPARED:
            self._conclude(key, "mistrusted", PREPARES)
            return
        truth = self._sets[0].truth
        if truth.dispute is not None and phase not in OUTPUT_ONLY:
            self._doubt(key, truth.dispute)
            return
        probe = self._probe(key, worker)
        finding = guards.inspect(probe, self.settings.guards)
        if finding is not None:
            self._conclude(key, finding.verdict, finding.reason, finding.error)
            return
        if phase == "forward" and probe.looped:
            self._forward[key.framework] = probe.reported
        if "counting" in self.settings.guards:
            self._units[key] = guards.units_of(self.case, probe.first)
        notes = [*self._notes(phase, offer), *self._remarks]
        if self.case.random:
            notes.append("checked by its distribution")
        if self.case.stand_in is not None:
            notes.append(f"checked in {self.case.stand_in.dtype} as {self.case.stand_in.label}")
        if truth.outvoted:
            notes.append(truth.outvoted)
        verdict = "checked" if truth.confirmed(phase) else "unconfirmed"
        self._conclude(key, verdict, "", probe.error, notes)

    def _absence(self, phase: str, offer: Mapping[str, Any]) -> tuple[str, str]:
        if offer["joint"] and phase in ("forward", "backward"):
            return "joint", "forward and backward cannot be told apart here: see step"
        return "unsupported", f"this framework offers no {phase} for it"

    def _follow_step(self, key: CellKey, offer: Mapping[str, Any]) -> None:
        """Give a phase without results of its own the verdict of the work it prepares."""
        judged = [
            cell
            for cell in self._cells.values()
            if cell.framework == key.framework and cell.phase not in PREPARATION
        ]
        notes = self._notes(key.phase, offer)
        if not judged:
            reason = "measured without the work it prepares"
            self._conclude(key, "unconfirmed", reason, notes=notes)
            return
        worst = next((cell for cell in judged if not cell.timed), judged[0])
        self._conclude(key, worst.verdict, worst.reason, worst.error, notes)

    def _notes(self, phase: str, offer: Mapping[str, Any]) -> list[str]:
        """Return what a contender tells the reader, and the type it computes in if not the case's.

        Only the driver says that: no ratio is made of times in different types.
        """
        told = [*offer["notes"], *offer.get("phase_notes", {}).get(phase, [])]
        notes = [note for note in told if not type_in(note)]
        if offer["precision"] not in (None, self.case.dtype):
            notes.append(f"{COMPUTES_IN}{offer['precision']}")
        return notes

    def _conclude(
        self,
        key: CellKey,
        verdict: str,
        reason: str = "",
        error: float | None = None,
        notes: list[str] | None = None,
    ) -> None:
        cell = Cell(*key, verdict=verdict, reason=reason, error=error, notes=notes or [])
        self._cells[key] = cell
        waiting = structs.replace(cell, verdict=UNFINISHED, reason=NOT_YET)
        self.sink.cell(waiting if cell.timed else cell)

    def _settle(self) -> None:
        """Make verdicts that come with times final: all that is looked at has been looked at."""
        for key, cell in self._cells.items():
            if cell.timed and key not in self.done.cells:
                self.sink.cell(cell)

    def _hand_out(self) -> None:
        """Give the case to several workers at once: some compile for long, with one thread."""
        at_once = min(team.at_once for team in self.teams.values())
        if at_once == 1:
            return
        processes = 1 if self._large or not self.settings.rounds else self.settings.processes
        pool = ThreadPoolExecutor(at_once)
        try:
            given = [
                pool.submit(self._try_to_prepare, name, process)
                for process in range(processes)
                for name in self.teams
                if self._unfinished([key for key in self._keys(name) if not self._is_out(key)])
            ]
            for each in given:
                each.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _is_out(self, key: CellKey) -> bool:
        return (key.framework, key.phase) in self._out

    def _try_to_prepare(self, name: str, process: int) -> None:
        try:
            self._prepare(name, process)
        except WorkerError as error:
            self._refusals[name, process] = error

    def _prepare(self, name: str, process: int) -> Worker:
        """Give a worker the case with the first set of inputs, unless it has it."""
        if (refusal := self._refusals.pop((name, process), None)) is not None:
            raise refusal
        if (name, process) not in self._prepared:
            self._take_block()  # this may take long
        worker = self.teams[name].worker(process)
        if (name, process) not in self._prepared:
            first = self._sets[0]
            offer = worker.ask("prepare", case=self.case.as_dict(), arrays=first.arrays)
            first.feed(worker)
            self._prepared.add((name, process))
            self._offers[name] = offer
        return worker

    def _visits(self, processes: Iterable[int]) -> Iterator[tuple[int, int]]:
        for number in range(self.settings.rounds):
            for process in processes:
                yield process, number

    def _time(self) -> None:
        """Visit all timed cells in random order, once per process and round."""
        rng = np.random.default_rng([self.settings.seed, int(self.case.key, 16)])
        every = range(self.settings.processes)
        for processes in [[each] for each in every] if self._large else [every]:
            try:
                for process, number in self._visits(processes):
                    for key in self._still_wanted(process, number):
                        self._make_ready(key, process)
                    keys = self._still_wanted(process, number)
                    for index in rng.permutation(len(keys)):
                        self._visit(keys[index], process, number)
            finally:
                self._take_block()
            self._go_through_again(processes)
            self._look_back(processes)
            if self._large:
                self._forget(processes)

    def _go_through_again(self, processes: Iterable[int]) -> None:
        """Time what an interrupted run has left without a look back, and record nothing.

        The workers that measured it are gone. What these do after as many blocks is looked at in
        their place.
        """
        for key in [key for key in self._looked_back_on() if key not in self.done.cells]:
            for process, number in self._visits(processes):
                if (key, process, number) in self.done.blocks and self._cells[key].timed:
                    self._visit(key, process, number)
                    self._take_block(store=False)

    def _forget(self, processes: Iterable[int]) -> None:
        """Have workers let go of the case."""
        for name, process in sorted(self._prepared):
            if process in processes:
                with suppress(WorkerError):
                    self.teams[name].worker(process).ask("forget")
                self._prepared.discard((name, process))

    def _still_wanted(self, process: int, number: int) -> list[CellKey]:
        """Return the cells that want a block of this round from this process."""
        return [
            key
            for key, cell in self._cells.items()
            if cell.timed
            and (key, process, number) not in self.done.blocks
            and self._affordable(key, number)
        ]

    def _affordable(self, key: CellKey, number: int) -> bool:
        """Tell whether a cell gets another block, given how long the ones so far took."""
        cost = max(self._costs.get(key, 0.0), self.done.costs.get(key, 0.0))
        if cost > VERY_LONG_BLOCK:
            return False
        return cost <= LONG_BLOCK or number == 0

    def _visit(self, key: CellKey, process: int, number: int) -> None:
        """Measure one block; a worker that fails takes its cell with it."""
        try:
            worker = self._prepare(key.framework, process)
            watch = Watch(worker)
            worker.send(
                "time", phase=key.phase, seconds=self.settings.seconds, cold=self.settings.cold
            )
            with watch.elsewhere():
                self._take_block()  # the last one, while this worker warms up
            answer = worker.receive()
            watch.stop()
        except WorkerError as error:
            self._give_up(key, process, error)
            return
        block = Block(*key, process=process, round=number, ended=time.time(), **answer)
        self._costs[key] = max(self._costs.get(key, 0.0), block.seconds)
        looped = key.phase in self._offers[key.framework]["looped"] and not self.settings.cold
        self._told = looped and worker.counts_calls
        self._block, self._watch = block, watch

    def _take_block(self, *, store: bool = True) -> None:
        """Take a block, unless its time is divided by something else than the first was."""
        block, watch, self._block = self._block, self._watch, None
        if block is None or watch is None or not self._cells[key := block.key].timed:
            return
        if self._told:
            self._doubts.setdefault(key, []).append(watch.doubt(block))
        known = self._units.setdefault(key, block.units if self._scalar_graph else 1)
        if block.units != known:
            reason = f"counts one call as {block.units:,} units of work, not {known:,}"
            self._give_up(key, block.process, WorkerError("mistrusted", reason))
            return
        self._busy.setdefault(key, []).append(watch.cores(block))
        seconds = float(np.median(block.samples)) * block.units
        self._claims.setdefault(key, []).append(seconds)
        if store:
            self.sink.block(block)

    def _look_back(self, processes: Iterable[int]) -> None:
        """Check results once more: what was right before the clock ran must be right after it."""
        for key in self._looked_back_on():
            reason = self._against_our_clock(key) or self._beyond_its_threads(key)
            if reason is not None:
                self._conclude(key, "mistrusted", reason)
                continue
            there = [each for each in processes if (key.framework, each) in self._prepared]
            for process in there:
                if self._cells[key].timed:
                    self._look_again(key, process, last=process == there[-1])
        for name, process in dict(sorted(self._prepared)).items():
            self._have_another_prepared(name, process)

    def _looked_back_on(self) -> list[CellKey]:
        """Return the cells with results that were timed, now or before the run was interrupted."""
        earlier = self.done.costs.keys() - self.done.cells.keys()
        timed = self._costs.keys() | earlier
        return [key for key in self._cells if key in timed and key.phase not in PREPARATION]

    def _against_our_clock(self, key: CellKey) -> str | None:
        """Hold all blocks of a cell against what passed on the driver's clock meanwhile."""
        if "clock" not in self.settings.guards or self.settings.device != "cpu":
            return None
        return disagreement(self._doubts.get(key, []))

    def _beyond_its_threads(self, key: CellKey) -> str | None:
        """Hold the processors that were busy in most blocks against those allowed."""
        threads, busy = self.teams[key.framework].threads, self._busy.get(key, [])
        asked = "cores" in self.settings.guards and self.settings.device == "cpu"
        if not asked or not busy or threads >= len(machine.usable()):
            return None
        return guards.too_many(float(np.median(busy)), threads)

    def _look_again(self, key: CellKey, process: int, *, last: bool) -> None:
        """Look at results of every process, and at more in the last."""
        try:
            probe = self._probe(key, self.teams[key.framework].worker(process))
            asked = {"values", "timed result"} <= self.settings.guards.keys()
            finding = guards.values(probe) if asked else None
            if finding is None and last and self._costs.get(key, 0.0) <= LONG_BLOCK:
                probe.stored = (
                    float(np.median(claims)) if (claims := self._claims.get(key)) else None
                )
                finding = self._still_in_time(probe)
            if finding is None and last:
                finding = self._still_depends(probe)
        except WorkerError as error:
            self._conclude(key, error.kind, f"after its times were taken: {error}")
            self._prepared.discard((key.framework, process))
            return
        if finding is not None:
            reason = f"after its times were taken {finding.reason}"
            self._conclude(key, "mistrusted", reason, finding.error)

    def _have_another_prepared(self, name: str, process: int) -> None:
        """Hold what building and compiling take by their blocks against a graph that is new."""
        told = {
            key: float(np.median(claims))
            for key, claims in self._claims.items()
            if key.framework == name and key.phase in PREPARATION and self._cells[key].timed
        }
        guard = self.settings.guards.get("preparing")
        if guard is None or not told:
            return
        step = CellKey(self.case.key, name, "step")
        try:
            probe = self._probe(step, self.teams[name].worker(process))
            probe.prepared = sum(told.values())
            finding = guard(probe)
        except WorkerError as error:
            finding = Finding(error.kind, f"on a graph never seen before: {error}")
        self._prepared.discard((name, process))  # it holds the other graph
        if finding is not None:
            for key in told:
                self._conclude(key, finding.verdict, finding.reason)

    def _still_in_time(self, probe: Probe) -> Finding | None:
        """Ask whether times are still what they were: once for each cell."""
        chosen = self.settings.guards
        again = {name: chosen[name] for name in guards.IN_HINDSIGHT if name in chosen}
        return guards.inspect(probe, again)

    def _still_depends(self, probe: Probe) -> Finding | None:
        """Look whether answers still follow the inputs, if that is asked at all."""
        guard = self.settings.guards.get("dependence")
        return None if guard is None or self.case.random else guard(probe)

    def _make_ready(self, key: CellKey, process: int) -> None:
        """Have a worker hold the case, and see that its results are right too."""
        try:
            worker = self._prepare(key.framework, process)
            if process and key.phase not in PREPARATION and (key, process) not in self._verified:
                self._take_block()
                finding = guards.values(self._probe(key, worker))
                if finding is not None:
                    raise WorkerError(finding.verdict, f"in process {process}: {finding.reason}")
                self._verified.add((key, process))
        except WorkerError as error:
            self._give_up(key, process, error)

    def _give_up(self, key: CellKey, process: int, error: WorkerError) -> None:
        """Let a worker's failure take the cell with it."""
        self._conclude(key, error.kind, str(error))
        self._prepared.discard((key.framework, process))

    def _probe(self, key: CellKey, worker: Worker) -> Probe:
        offer = self._offers[key.framework]
        return Probe(
            worker=worker,
            case=self.case,
            phase=key.phase,
            dtype=offer["precision"] or self.case.dtype,
            threads=self.teams[key.framework].threads,
            folder=self.folder / f"contender{list(self.teams).index(key.framework)}",
            sets=self._sets,
            looped=key.phase in offer["looped"],
            device=self.settings.device,
            has_forward="forward" in offer["phases"],
            forward=self._forward.get(key.framework),
        )


def _share_a_result(first: Truth, second: Truth) -> bool:
    """Tell whether one of the right results is the same at two sets of inputs."""
    return any(np.array_equal(first.arrays[name], second.arrays[name]) for name in first.arrays)
