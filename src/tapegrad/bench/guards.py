"""What must hold before a time is believed. Each guard catches a fault that no other one does.

A guard looks at one phase of one contender through its worker and returns what it found wrong, or
nothing. Guards know nothing about frameworks: they see values, and two clocks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapegrad.bench import comparison, floors, machine, preparation, randomness, units
from tapegrad.bench.errors import WorkerError
from tapegrad.bench.inputs import Arrays
from tapegrad.bench.probe import (
    ATTEMPTS,
    FACTOR,
    PROBE_SECONDS,
    SHORTEST_SECONDS,
    Finding,
    Probe,
    seconds_a_call,
)
from tapegrad.bench.watch import undisturbed
from tapegrad.worker.case import Case

#: The driver's clock may be off by so much in each loop, by messages, and in each call, by how the
#: loop is written; on a GPU by how its queue is filled.
LOOP_SLACK = 2e-5
CALL_SLACK = {"cpu": 5e-8, "cuda": 5e-6}
#: Reading a result may cost this multiple of copying it, plus a slack for the start of each of its
#: transfers; a single call that is read may be off by another.
COPY_FACTOR = 8.0
COPY_SLACK = 5e-6
READ_SLACK = 5e-6
#: A single call takes no less than this share of what calls take in a loop, up to a slack.
SINGLE_FACTOR = 3.0
SINGLE_SLACK = 1e-6
#: A single call on a GPU that is read waits for the queue and for the transfer: seconds, and bytes
#: a second.
GPU_LATENCY = 5e-4
GPU_TRANSFER = 5e8
#: Seconds for which results of a GPU are read.
READ_SECONDS = 0.05
#: Inputs never seen before may cost this multiple (cold caches) plus a slack. Short calls are tried
#: so often.
FRESH_FACTOR = 6.0
FRESH_SLACK = 5e-6
FRESH_TURNS = 25
#: Where a call reads little of inputs that have so many bytes, new ones are in no cache: they may
#: cost this multiple of those it knows when caches were emptied before.
LARGE_BYTES = 1 << 22
COLD_FACTOR = 3.0
#: Taking inputs may cost this multiple of loading them, and of turning images to other layouts,
#: plus a slack for each: frameworks make tensors in their own way, and some hand them to a thread.
FEED_FACTOR = 5.0
TURN_FACTOR = 1.5
FEED_SLACK = 1e-3
#: Processors in use beyond those allowed, as a share and for the interpreter itself.
CORES_FACTOR = 1.15
CORES_SLACK = 0.1
#: Short loops in which processors are counted, and those with the most busy ones, left out: in most
#: loops others want the processors too, and there is none to steal.
CORES_LOOPS = 16
CORES_LEFT_OUT = 2
#: Loops of the driver's clock start shorter than a turn of the scheduler, so that some run
#: undisturbed; longer ones drown what messages cost.
LOOP_SECONDS = (0.0005, 0.002, 0.008)
#: On a GPU loops are so long that its queue's start does not matter; where the first is in doubt,
#: so long that the transfer at their end does not.
GPU_LOOP_SECONDS = (0.004, 0.02, 0.1)
#: Above this, a call is measured once and not in a loop.
SLOW_SECONDS = 0.2
#: Work on scalar graphs that is not one unit a point -> the attribute that tells how many.
UNITS = {"descend": "steps", "churn": "graphs"}
#: Dimensions of an array of images.
IMAGES = 4
#: Calls in which no draw of a random operator may come back.
DRAWS = 12


Guard = Callable[[Probe], Finding | None]


def values(probe: Probe) -> Finding | None:
    """Demand the oracle's outputs and gradients."""
    return probe.compare(probe.first)


def meaning(probe: Probe) -> Finding | None:
    """Refuse results that are all zero or constant: they would show nothing."""
    reason = comparison.degenerate(probe.first)
    return Finding("mistrusted", reason) if reason else None


def dependence(probe: Probe) -> Finding | None:
    """Demand other results for other inputs, and the right ones."""
    # Whether a random draw comes back, in time, is a question of its own: `chance`.
    before = probe.results("before") if probe.case.random else probe.first
    first, second = probe.sets
    second.feed(probe.worker)
    try:
        after = probe.results("after")
    finally:
        if probe.worker.alive:
            first.feed(probe.worker)
    if any(_same(before[name], after[name]) for name in after if name in before):
        return Finding("mistrusted", "the result does not depend on the input")
    # Whether it is right at the first inputs is a question of its own: `values`.
    return None if probe.compare(before) else probe.compare(after, 1)


def chance(probe: Probe) -> Finding | None:
    """Demand of a random operator numbers in no order, and new ones in each call, or the same."""
    if not probe.case.random:
        return None
    results = (probe.results(f"draw{number}") for number in range(DRAWS))
    draws = [randomness.fingerprint(each) for each in results]
    reason = randomness.order(probe.first) or randomness.repetition(draws)
    return Finding("mistrusted", reason) if reason else None


def counting(probe: Probe) -> Finding | None:
    """Demand that a time is divided by as many units of work as came back."""
    counted, found = int(probe.trial["units"]), units_of(probe.case, probe.first)
    if counted == found:
        return None
    return Finding("mistrusted", f"counts one call as {counted:,} units of work, not {found:,}")


def units_of(case: Case, results: Arrays) -> int:
    """Return the units of work in a call: one, but of scalar graphs the points or steps of them."""
    if case.level != "graph":
        return 1
    if case.op in UNITS:
        return int(case.attrs.get(UNITS[case.op], 1))
    return len(next((each for each in results.values() if each.ndim), (0,)))


def timed_result(probe: Probe) -> Finding | None:
    """Demand that the timed loop computes what was checked, also at its end."""
    if not probe.looped:
        return None
    found = probe.results("timed", calls=max(2, probe.calls()))
    finding = probe.compare(found, wanted=probe.first)
    if finding is None:
        return None
    return Finding("mistrusted", f"after the timed loop {finding.reason}", finding.error)


def clock(probe: Probe) -> Finding | None:
    """Demand the same time per call by the driver's own clock, from message to answer.

    Once the times are taken, that a worker claims more than it needs is no reason to doubt: a first
    look has shown that it counts as the driver does, and other work of the machine adds to either.
    """
    if not probe.looped:
        return None
    least = 0.0
    for seconds in _loop_seconds(probe):
        least, most, slack = _per_call_by_driver(probe, seconds, least)
        if probe.stored is None:
            _settle(probe, FACTOR * most + slack)
        reported, believed = probe.reported, probe.believed
        enough = least <= min(FACTOR * reported, probe.factor * believed) + slack
        if enough and (probe.stored is not None or reported <= FACTOR * most + slack):
            return None
        probe.doubt()
    return _mistrust(most, "by the driver's clock", min(reported, believed))


def _settle(probe: Probe, most: float) -> None:
    """Have the phase timed as often as the driver times its loops, until it takes so long at most.

    The fastest of these counts, and a trial in a bad moment would not be comparable with it.
    """
    for _ in range(probe.attempts):
        if probe.reported <= most:
            break
        probe.doubt()


def _loop_seconds(probe: Probe) -> tuple[float, ...]:
    """Return how long the loops of the driver's clock are, one attempt after the other."""
    if probe.device != "cuda":
        return LOOP_SECONDS
    first, *longer = GPU_LOOP_SECONDS
    return first, *(max(seconds, _transfer(probe)) for seconds in longer)


def reading(probe: Probe) -> Finding | None:
    """Demand that reading a result adds nothing to the call: it was finished."""
    if not probe.looped:
        return None
    for attempt in range(len(LOOP_SECONDS)):  # as often as the clock is asked
        count = 1 if probe.reported > SLOW_SECONDS else _reads(probe)
        answer = probe.read(count, keeps=attempt == 0 and _is_kept(probe))
        if answer.get("keeps") is False:
            return Finding("mistrusted", "its result changes with the inputs when it is read later")
        found, believed = answer["read"] - _cost_of_reading(probe, answer), probe.believed
        if found <= probe.factor * believed + READ_SLACK:
            return None
        probe.doubt()
    return _mistrust(found, "when its result is read", believed)


def _is_kept(probe: Probe) -> bool:
    """Tell whether a result must stay when the inputs change: it is no view, and no buffer."""
    plain = probe.case.level == "operator" and probe.phase == "forward" and probe.device == "cpu"
    return plain and not probe.case.random and probe.stored is None and probe.written > 0


def _reads(probe: Probe) -> int:
    """Return how many results are read: many where that costs little."""
    most = int(READ_SECONDS / _transfer(probe)) if probe.device == "cuda" else 200
    return max(probe.attempts, min(most, probe.calls()))


def _transfer(probe: Probe) -> float:
    """Return the seconds in which a GPU surely hands over the results."""
    return GPU_LATENCY + sum(array.nbytes for array in probe.first.values()) / GPU_TRANSFER


def _cost_of_reading(probe: Probe, answer: Mapping[str, float]) -> float:
    """Return what reading a result that is there may take."""
    if probe.device == "cuda":
        return _transfer(probe)
    copying = COPY_FACTOR * answer["copying"] + COPY_SLACK * len(probe.first)
    return min(2 * answer["reading"], copying)


def single(probe: Probe) -> Finding | None:
    """Demand of every single call what calls take in a loop: none skips the work.

    That is what they take now: a time that was stored may be of a busier moment. Of lengthy calls
    each is a sample, and their median what a table shows.
    """
    if not probe.looped or probe.reported > SLOW_SECONDS:
        return None
    answer = probe.last_read
    for _ in range(ATTEMPTS):
        if answer.get("alone") is None:
            return None  # a worker in another language may leave it out
        found, reported = float(answer["alone"]), min(probe.reported, probe.believed)
        if reported <= SINGLE_FACTOR * found + SINGLE_SLACK:
            return None
        probe.doubt()
        answer = probe.read(probe.attempts)
    return Finding(
        "mistrusted",
        f"does not work in each call: some take {units.seconds(found)}, and "
        f"{units.seconds(reported)} is reported",
    )


def fresh(probe: Probe) -> Finding | None:
    """Demand the same time for inputs never seen before: no answer is remembered."""
    if not probe.looped or max(probe.reported, probe.believed) > SLOW_SECONDS:
        return None
    count = min(FRESH_TURNS, _reads(probe))
    read = probe.last_read
    for _ in range(ATTEMPTS):
        answer = probe.worker.ask("fresh", phase=probe.phase, count=count)
        new = float(answer["fresh"])
        known = min(answer["again"], probe.believed + _cost_of_reading(probe, read))
        if new <= FRESH_FACTOR * known + FRESH_SLACK:
            return None
        probe.doubt()
    if probe.device == "cpu" and probe.taken > LARGE_BYTES and new <= COLD_FACTOR * _cold(probe):
        return None
    return Finding(
        "mistrusted",
        f"takes {units.seconds(new)} on new inputs, {units.seconds(known)} on those it knows",
    )


def _cold(probe: Probe) -> float:
    """Return the seconds of a call on known inputs that no cache holds."""
    answer = probe.worker.ask("time", phase=probe.phase, seconds=PROBE_SECONDS, cold=True)
    return seconds_a_call(answer) + _cost_of_reading(probe, probe.last_read)


def feeding(probe: Probe) -> Finding | None:
    """Demand that taking inputs costs no more than that, and the forward pass that it may run."""
    first, _ = probe.sets
    loading = min(undisturbed(probe.worker, first.load)[1] for _ in range(probe.attempts))
    count = len(first.arrays) + len(first.cotangents)
    allowed = FEED_FACTOR * loading + FEED_SLACK * count + TURN_FACTOR * _turning(first.load())
    allowed += FACTOR * _forward_pass(probe) + _upload(probe)
    times = []
    for _ in range(ATTEMPTS):
        net, elapsed = undisturbed(probe.worker, lambda: first.feed(probe.worker))
        if elapsed <= allowed:
            return None
        times.append(net)
    found = float(np.median(times))  # what was waited is not known to the millisecond
    if found <= allowed:
        return None
    return Finding(
        "mistrusted",
        "does its work before the clock starts: it takes its inputs for "
        f"{units.seconds(found)}, and loading them takes {units.seconds(loading)}",
    )


def _turning(arrays: Arrays) -> float:
    """Return the seconds in which images get their channels last."""
    start = time.perf_counter()
    for array in arrays.values():
        if array.ndim == IMAGES:
            np.ascontiguousarray(np.moveaxis(array, 1, -1))
    return time.perf_counter() - start


def _forward_pass(probe: Probe) -> float:
    """Return what a forward pass takes, which backward passes are fed residuals of.

    That is this phase, where it is one or a backward pass without one beside it. A step does its
    own: where nothing else is offered, no pass belongs to taking its inputs.
    """
    if probe.phase not in ("backward", "step"):
        return probe.reported
    if not probe.has_forward:
        return 0.0 if probe.phase == "step" else probe.reported
    if probe.forward is None:
        answer = probe.worker.ask("time", phase="forward", seconds=PROBE_SECONDS)
        probe.forward = seconds_a_call(answer)
    return min(probe.forward, probe.reported) if probe.phase == "step" else probe.forward


def _upload(probe: Probe) -> float:
    """Return the seconds in which a GPU surely takes the inputs."""
    return 2 * GPU_LATENCY + probe.case.nbytes / GPU_TRANSFER if probe.device == "cuda" else 0.0


def floor(probe: Probe) -> Finding | None:
    """Demand no less time than the machine needs to write the results, or to multiply."""
    first = probe.sets[0]
    outputs = sum(
        array.size for name, array in first.truth.arrays.items() if name.startswith("output")
    )
    demand = floors.Demand(
        probe.written, floors.operations(probe.case, probe.phase, outputs), probe.dtype
    )
    for _ in LOOP_SECONDS:
        least, reported = demand.floor(probe.threads, probe.device), probe.reported
        if reported >= least.seconds:
            return None
        probe.doubt()
    return Finding("mistrusted", f"takes {units.seconds(reported)} as reported: {least.reason}")


def cores(probe: Probe) -> Finding | None:
    """Demand that no more processors are busy than the run allows."""
    if probe.threads >= len(machine.usable()):
        return None  # there are none to steal
    reason = too_many(_cores(probe), probe.threads)
    return Finding("mistrusted", reason) if reason else None


def too_many(busy: float, threads: int) -> str | None:
    """Say that more processors were busy than so many threads need, if that is so."""
    if busy <= CORES_FACTOR * threads + CORES_SLACK:
        return None
    return f"kept {busy:.1f} processors busy, {threads} allowed"


def preparing(probe: Probe) -> Finding | None:
    """Demand that building and compiling a new graph takes no more than is told."""
    if probe.prepared is None or not preparation.has_others(probe.case):
        return None
    told = probe.prepared + probe.believed

    def first_results(other: Case) -> None:
        probe.worker.ask("prepare", case=other.as_dict(), arrays=probe.sets[0].arrays)
        probe.sets[0].feed(probe.worker)
        probe.results("other")

    reason = preparation.doubt(probe.worker, probe.case, told, first_results)
    return Finding("mistrusted", reason) if reason else None


#: Guards that look once more when the times are taken.
IN_HINDSIGHT = ("clock", "reading", "single", "fresh")

#: In the order in which they look. `dependence` follows `fresh`: inputs that come after so many
#: others are none that answers could be kept for.
GUARDS: Mapping[str, Guard] = {
    "values": values,
    "meaning": meaning,
    "chance": chance,
    "counting": counting,
    "timed result": timed_result,
    "clock": clock,
    "reading": reading,
    "single": single,
    "fresh": fresh,
    "dependence": dependence,
    "feeding": feeding,
    "floor": floor,
    "cores": cores,
    "preparing": preparing,
}


def inspect(probe: Probe, guards: Mapping[str, Guard] = GUARDS) -> Finding | None:
    """Let every guard look; returns the first finding."""
    for guard in guards.values():
        finding = guard(probe)
        if finding is not None:
            return finding
    return None


def _mistrust(found: float, how: str, reported: float) -> Finding:
    return Finding(
        "mistrusted", f"takes {units.seconds(found)} {how}, {units.seconds(reported)} as reported"
    )


def _per_call_by_driver(
    probe: Probe, seconds: float, expected: float
) -> tuple[float, float, float]:
    """Divide the difference of a longer and a shorter loop by the calls between them.

    The fastest of several loops counts: what else runs on the machine only ever adds time. Of a GPU
    the results are fetched at the end of a loop, which may take longer than all its calls: that is
    why it is asked for differences however slow a call is, and why what a call is expected to take
    is without it. Returns
    that without what was waited for a processor; what a call of the longer loop took with it, since
    its own threads may have caused that, or others; and by how much the first may be off.
    """
    longest = max(probe.reported, expected, SHORTEST_SECONDS)
    extra = CALL_SLACK[probe.device]
    if longest > SLOW_SECONDS and probe.device == "cpu":
        least, most = _loop(probe, 1)
        return least, most, LOOP_SLACK + extra
    calls = max(1, min(probe.calls(seconds), int(seconds / longest)))
    short = [_loop(probe, calls) for _ in range(probe.attempts)]
    long = [_loop(probe, 3 * calls) for _ in range(probe.attempts)]
    (net, elapsed), (net_of_short, elapsed_of_short) = (
        [min(times) for times in zip(*loops, strict=True)] for loops in (long, short)
    )
    least = min(net - net_of_short, elapsed - elapsed_of_short)
    return least / (2 * calls), elapsed / (3 * calls), LOOP_SLACK / (2 * calls) + extra


def _cores(probe: Probe) -> float:
    """Count processors in a good moment: a process that keeps to its own never has more.

    What processes do that it has started counts too.
    """
    if not probe.looped or probe.reported > SLOW_SECONDS:
        return float(probe.trial["cores"])
    calls = probe.calls(LOOP_SECONDS[0])
    with probe.watched() as busy:
        answer = probe.worker.ask("cores", phase=probe.phase, calls=calls, count=CORES_LOOPS)
    told = answer["cores"]
    if len(told) != CORES_LOOPS:
        numbers = units.counted(len(told), "number")
        raise WorkerError("failed", f"answered `cores` with {numbers} for {CORES_LOOPS} loops")
    return busy.processors(float(np.sort(told)[-1 - CORES_LEFT_OUT]))


def _loop(probe: Probe, calls: int) -> tuple[float, float]:
    """Time a loop from outside, without and with what was waited for a processor."""
    return undisturbed(
        probe.worker,
        lambda: probe.worker.ask("repeat", phase=probe.phase, calls=calls, folder=None),
    )


def _same(left: NDArray[Any], right: NDArray[Any]) -> bool:
    alike = left.shape == right.shape and bool(left.size)
    return alike and np.array_equal(left, right, equal_nan=True)
