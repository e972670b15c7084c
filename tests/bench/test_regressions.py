"""An operator that got slower is named, also when the network did not; and nothing else is."""

from __future__ import annotations

import glob
import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tapegrad.bench import given
from tapegrad.bench.driver import Listener
from tapegrad.bench.errors import BenchError
from tapegrad.bench.guards import GUARDS
from tapegrad.bench.regressions import Nightly, compare, nightly
from tapegrad.bench.regressions.changes import changes
from tapegrad.bench.regressions.nights import (
    _again,
    _choices,
    _crept,
    _earlier,
    _gone,
    _History,
    _since_steps,
)
from tapegrad.bench.results import Block, Cell, Framework, Machine, Run
from tapegrad.bench.statistics import FEWEST
from tapegrad.bench.store import Store, open_store
from tapegrad.bench.suite import Suite
from tapegrad.cli.bench.changes import table
from tapegrad.worker.case import Array, Case

from .simulation import Noise, simulate

HERE = Machine("f0", "laptop", {"governor": "performance", "load": 1.0})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "results.sqlite") as opened:
        yield opened


# Scenario 1 of the seed, literally: convolution takes 10 % less, softmax 30 % more, and the network
# as long as before. How long things take does not depend on the machine, however busy it is:
# - operators, and the control kernels beside them, spin until their thread has had the processor
#   for as long as their version says, and the adapter's clock is that of the thread, too;
# - guards that look at the driver's clock, in which waiting counts, are left to their own tests.

#: A framework whose operators take as long as its version says.
PACED = """
import json
import time
from pathlib import Path

from tapegrad.worker import controls
from tapegrad.worker.adapters.numpy import Numpy

ADAPTERS = {"paced": "Paced"}
SECONDS = json.loads(Path(__file__).with_suffix(".json").read_text())


def spin(seconds, work):
    until = time.thread_time() + seconds
    result = work()
    while time.thread_time() < until:
        pass
    return result


def timed(work):
    start = time.thread_time()
    work()
    return time.thread_time() - start


def paced(op):
    function = Numpy.operators[op]
    return lambda *inputs, **attrs: spin(SECONDS[op], lambda: function(*inputs, **attrs))


conv2d, softmax = paced("conv2d"), paced("softmax")
controls._seconds = lambda kernel: timed(lambda: spin(1e-4, int))


def network(x, weight, bias):
    return softmax(conv2d(x, weight, bias, stride=1, padding=1), dim=1)


class Paced(Numpy):
    operators = {"conv2d": conv2d, "softmax": softmax, "network": network}

    def elapsed(self, call, calls):
        return timed(lambda: [call() for _ in range(calls)])
"""
OLD = {"conv2d": 1.8e-3, "softmax": 0.6e-3}
NEW = {"conv2d": 0.9 * 1.8e-3, "softmax": 1.3 * 0.6e-3}
TIMELESS = {name: GUARDS[name] for name in ("values", "meaning", "dependence", "timed result")}


def _array(name: str, *shape: int) -> Array:
    return Array(name, shape, grad=False)


IMAGE = _array("x", 1, 3, 8, 8), _array("weight", 4, 3, 3, 3), _array("bias", 4)
FORWARD: Any = {"phases": ("forward",), "reduction": 27}
NETWORK = Suite(
    "network",
    "a network and its operators",
    (
        Case("operator", "conv2d", IMAGE, {"stride": 1, "padding": 1}, **FORWARD),
        Case("operator", "softmax", (_array("x", 16, 64),), {"dim": -1}, **FORWARD),
        Case("operator", "network", IMAGE, **FORWARD),
    ),
)
#: Those that others have, too.
OPERATORS = replace(NETWORK, cases=NETWORK.cases[:2])


def _night(
    store: Store, folder: Path, version: dict[str, float], network: Suite = NETWORK
) -> Nightly:
    file = folder / "paced.py"
    file.write_text(PACED)
    file.with_suffix(".json").write_text(json.dumps(version))
    suite = replace(network, defaults={"block": 0.002, "timeout": 50.0})
    return nightly(store, suite, frameworks=str(file), rounds=4)


def test_a_night_of_nothing_but_new_cases_names_those_that_are_gone(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPEGRAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(given, "GUARDS", TIMELESS)
    _night(store, tmp_path, OLD, replace(NETWORK, cases=NETWORK.cases[:1]))
    renamed = _night(store, tmp_path, OLD, replace(NETWORK, cases=NETWORK.cases[1:2]))
    assert renamed.first
    assert [name.split()[0] for name in renamed.gone] == ["conv2d"]
    assert "Not measured any more: conv2d" in str(renamed)


def test_an_operator_that_got_slower_is_named_though_the_network_did_not(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPEGRAD_CACHE", str(tmp_path / "cache"))  # no slow frameworks as witnesses
    monkeypatch.setattr(given, "GUARDS", TIMELESS)
    first = _night(store, tmp_path, OLD)
    assert first.first
    assert "baseline" in str(first)
    assert first.exit_code == 0

    unchanged = _night(store, tmp_path, OLD)
    assert not unchanged.regressions
    assert unchanged.exit_code == 0

    changed = _night(store, tmp_path, NEW)
    assert [series.op for series in changed.regressions] == ["softmax"]
    assert [series.op for series in changed.improvements] == ["conv2d"]
    assert changed.comparison is not None
    ratios = {each.op: each.ratio.value for each in changed.comparison.series if each.ratio}
    assert ratios == pytest.approx({"conv2d": 0.9, "softmax": 1.3, "network": 1.0}, rel=0.03)
    assert changed.exit_code == 1
    assert "softmax" in str(changed)

    again = store.runs(suite="network-again")
    assert {case["op"] for run in again for case in store.load(run.id).cases} == set(NEW)
    for run in again:  # under the conditions of the night, its suite's own among them
        assert {"block": 0.002, "timeout": 50.0, "rounds": 4}.items() <= run.options.items()
    found = compare(store, first.run, changed.run)
    assert [series.op for series in found.regressions] == ["softmax"]


def _recorded(store: Store, name: str, seconds: dict[str, float], seed: int) -> None:
    """Enter a run of the network's suite whose times vary by 2 %, as on a quiet machine."""
    random = np.random.default_rng(seed)
    store.begin(Run(name, "network", 0.0, HERE), [], list(NETWORK.cases))
    for case in NETWORK.cases:
        store.add_cell(name, Cell(case.key, "numpy", "forward", "checked"))
        for n in range(16):
            samples = list(seconds[case.op] * np.exp(0.02 * random.normal(size=5)))
            store.add_block(name, Block(case.key, "numpy", "forward", n % 4, n // 4, samples))


@pytest.mark.parametrize("seed", range(20))
def test_ten_and_thirty_percent_are_told_from_recorded_times(store: Store, seed: int) -> None:
    old = {"conv2d": 0.9e-3, "softmax": 0.3e-3, "network": 1.2e-3}
    new = {"conv2d": 0.9 * 0.9e-3, "softmax": 1.3 * 0.3e-3, "network": 1.2e-3}
    _recorded(store, "monday", old, 2 * seed)
    _recorded(store, "tuesday", new, 2 * seed + 1)
    found = compare(store, "monday", "tuesday")
    verdicts = {series.op: series.verdict for series in found.series}
    assert verdicts["softmax"] == "regressed"
    assert verdicts["conv2d"] == "improved"
    assert verdicts["network"] in {"same", "undecided"}


def test_a_confirmation_leaves_out_what_chose_the_cases_of_the_night(store: Store) -> None:
    _recorded(store, "monday", OLD | {"network": 1e-3}, 0)
    _recorded(store, "tuesday", NEW | {"network": 1e-3}, 1)
    tonight = store.load("tuesday")
    chose = {"suite": "operators", "shape": ["x=16x64"], "attr": ["dim=0"]}
    tonight.run.options.update(chose, frameworks=["numpy"], rounds=4)
    found = compare(store, "monday", "tuesday")
    [(suite, chosen)] = _choices(NETWORK, found.regressions, tonight)
    assert [case.op for case in suite.cases] == ["softmax"]
    label = f"softmax 16x64 dim={glob.escape('-1')}"
    assert chosen == {
        "rounds": 4, "frameworks": ["numpy"], "phases": ["forward"], "filter": [label]
    }  # fmt: skip


class _CtrlC(Listener):
    """Interrupts at the first case."""

    def case(self, index: int, case: Case) -> None:
        raise KeyboardInterrupt


def test_an_interrupted_night_says_so_and_how_to_go_on(store: Store) -> None:
    found = nightly(store, OPERATORS, frameworks=["numpy"], listener=_CtrlC())
    assert found.exit_code == 130
    assert f"{found.run} was interrupted" in str(found)
    assert f"tapegrad bench run --resume {found.run}" in str(found)


def test_a_confirmation_that_is_interrupted_is_the_last(store: Store) -> None:
    options = {"frameworks": ["numpy"], "processes": 1, "rounds": 1, "block": 0.001}
    found = list(_again(store, _CtrlC(), [(OPERATORS, options), (OPERATORS, options)]))
    assert [each.run.status for each in found] == ["interrupted"]


@pytest.mark.parametrize(
    "wrong", [{"margin": -1.0}, {"rate": 2.0}, {"nights": 0}, {"processes": 2}, {"processes": 1}]
)
def test_options_that_decide_nothing_are_refused_before_anything_is_measured(
    store: Store, wrong: dict[str, Any]
) -> None:
    with pytest.raises(BenchError, match=f"{next(iter(wrong))} must be"):
        nightly(store, NETWORK, frameworks=["numpy"], **wrong)
    assert store.runs() == []


#: A machine on which other programs run: processes are apart by 60 %, blocks by half.
BUSY = Noise(sample=0.1, block=0.5, process=0.6, drift=0.3, outlier=1.0, outliers=0.2)


def test_a_night_has_as_many_processes_as_it_takes_to_see_what_is_plain() -> None:
    """One less hides a change of 47 times, two less give false alarms."""
    night = partial(simulate, noise=BUSY, paired=False, controls=True, trials=300)
    fewer, enough = night(FEWEST - 1, slowdown=46.0), night(FEWEST, slowdown=46.0)
    assert fewer.slower < 0.75
    assert enough.slower > 0.95
    alarms = {n: (rates := night(n)).slower + rates.faster for n in (1, FEWEST, FEWEST + 2)}
    assert alarms[1] > 0.1
    assert max(alarms[FEWEST], alarms[FEWEST + 2]) < 0.07


def test_a_comparison_of_few_processes_says_so(store: Store) -> None:
    for name, time in (("monday", 1.0), ("tuesday", 1.5)):
        run = Run(name, "suite", 0.0, HERE)
        store.begin(run, [], CASES[:1])
        store.add_cell(name, Cell(CASES[0].key, "numpy", "forward", "checked"))
        for process in range(2):
            samples = [time * (1 + process)]
            block = Block(CASES[0].key, "numpy", "forward", process, 0, samples)
            store.add_block(name, block)
    found = compare(store, "monday", "tuesday")
    assert [series.verdict for series in found.thin] == ["undecided"]


@pytest.mark.parametrize(("before", "after"), [(2, 2), (1, 1), (1, 3), (3, 1), (3, 3)])
def test_nothing_is_decided_by_few_processes(store: Store, before: int, after: int) -> None:
    """Blocks do not make up for them, on neither side."""
    for name, time, processes in (("monday", 1.0, before), ("tuesday", 1.5, after)):
        store.begin(Run(name, "suite", 0.0, HERE), [], CASES[:1])
        store.add_cell(name, Cell(CASES[0].key, "numpy", "forward", "checked"))
        for n in range(12):
            samples = [time * (1 + 0.001 * n)]
            block = Block(CASES[0].key, "numpy", "forward", n % processes, n // processes, samples)
            store.add_block(name, block)
    (found,) = compare(store, "monday", "tuesday").series
    assert found.verdict == ("regressed" if min(before, after) >= FEWEST else "undecided")


def test_what_never_had_a_time_is_not_counted(store: Store) -> None:
    verdicts = {"op1": "unsupported", "op2": "failed"}
    _enter(store, "a", verdicts=verdicts)
    _enter(store, "b", verdicts=verdicts | {"op2": "wrong"})
    found = compare(store, "a", "b")
    assert {"op1", "op2"}.isdisjoint(series.op for series in found.series)
    assert len(found.series) == len(CASES) - 2
    assert not found.of("undecided")


# What is decided on given numbers

CASES = [Case("operator", f"op{number}", (_array("x", 4),)) for number in range(20)]


def _enter(
    store: Store,
    name: str,
    factors: dict[str, float] | None = None,
    *,
    machine: Machine = HERE,
    status: str = "finished",
    version: str = "1",
    verdicts: dict[str, str] | None = None,
    started: float = 0.0,
    slowness: float = 1.0,
    cases: Sequence[Case] = CASES,
    notes: dict[str, str] | None = None,
    **options: Any,
) -> None:
    """Enter a run in which each operator takes a factor of a millisecond."""
    run = Run(name, "suite", started, machine, {"device": "cpu", "threads": 1, **options})
    store.begin(run, [Framework("numpy", version, version)], cases)
    rng = np.random.default_rng(list(name.encode()))
    for case in cases:
        verdict = (verdicts or {}).get(case.op, "checked")
        said = [note] if (note := (notes or {}).get(case.op)) else []
        store.add_cell(name, Cell(case.key, "numpy", "forward", verdict, notes=said))
        if verdict == "checked":
            centre = 1e-3 * (factors or {}).get(case.op, 1.0)
            for block in _blocks(case, centre, slowness, rng):
                store.add_block(name, block)
    store.finish(name, status, started + 1)


def _blocks(
    case: Case, centre: float, slowness: float, rng: np.random.Generator
) -> Iterator[Block]:
    for process in range(4):
        for number in range(4):
            samples = (slowness * centre * np.exp(rng.normal(0, 0.01, 5))).tolist()
            controls = {"copy": slowness * 1e-4 * float(np.exp(rng.normal(0, 0.005)))}
            yield Block(case.key, "numpy", "forward", process, number, samples, controls=controls)


def test_of_many_series_those_that_changed_are_called(store: Store) -> None:
    _enter(store, "a")
    _enter(store, "b", {"op3": 1.2, "op7": 0.8})
    found = compare(store, "a", "b")
    assert [series.op for series in found.of("regressed")] == ["op3"]
    assert [series.op for series in found.of("improved")] == ["op7"]
    assert len(found.of("same")) >= 15
    regressed = found.regressions[0]
    assert regressed.ratio is not None
    assert regressed.ratio.value == pytest.approx(1.2, rel=0.03)
    assert "op3" in str(found)


def test_times_in_another_type_are_not_compared(store: Store) -> None:
    _enter(store, "a")
    _enter(store, "b", {"op3": 0.5}, notes={"op3": "computes in float64"})
    found = compare(store, "a", "b")
    assert not found.of("improved")
    series = next(each for each in found.of("undecided") if each.op == "op3")
    assert series.ratio is None
    assert series.reason == "computes in float64, and in float32 before"


def test_a_slow_machine_is_no_regression(store: Store) -> None:
    _enter(store, "a")
    _enter(store, "b", slowness=1.1)
    found = compare(store, "a", "b")
    assert not found.regressions
    machine = [series.ratio.machine for series in found.series if series.ratio]
    assert machine == pytest.approx([1.1] * len(CASES), rel=0.02)


def test_a_cell_that_lost_its_time_is_broken_and_one_that_gained_it_repaired(store: Store) -> None:
    _enter(store, "a", verdicts={"op1": "failed"})
    _enter(store, "b", verdicts={"op2": "wrong"})
    found = compare(store, "a", "b")
    assert [series.op for series in found.of("broken")] == ["op2"]
    assert [series.op for series in found.of("repaired")] == ["op1"]
    assert [series.op for series in found.regressions] == ["op2"]
    told = [line.entries[-1].text for line in table(found.of("broken", "repaired")).lines]
    assert told == ["checked, then wrong", "failed, then checked"]


def test_runs_of_two_machines_are_compared_on_purpose_only(store: Store) -> None:
    _enter(store, "a")
    _enter(store, "b", machine=Machine("f1", "server"))
    with pytest.raises(BenchError, match="laptop, the other on server"):
        compare(store, "a", "b")
    found = compare(store, "a", "b", across=True)
    assert found.across
    assert "across machines" in str(found)


def test_runs_on_two_devices_are_compared_on_purpose_only(store: Store) -> None:
    _enter(store, "a")
    _enter(store, "b", device="cuda")
    with pytest.raises(BenchError, match="cpu, the other on cuda"):
        compare(store, "a", "b")


def test_what_else_differed_is_told(store: Store) -> None:
    powersave = Machine("f0", "laptop", {"governor": "powersave", "load": 7.0})
    _enter(store, "a")
    _enter(store, "b", machine=powersave, version="2", threads=2)
    told = {each.what: (each.before, each.after) for each in compare(store, "a", "b").differences}
    assert told == {
        "machine: governor": ("performance", "powersave"),
        "option threads": (1, 2),
        "numpy: version": ("1", "2"),
        "numpy: environment": ("1", "2"),
    }


def test_only_finished_nights_under_the_same_conditions_are_a_baseline(store: Store) -> None:
    _enter(store, "good1", started=1)
    _enter(store, "broken off", started=2, status="interrupted")
    _enter(store, "more threads", started=3, threads=2)
    _enter(store, "elsewhere", started=4, machine=Machine("f1", "server"))
    _enter(store, "good2", started=5)
    _enter(store, "tonight", started=6)
    tonight = store.load("tonight")
    assert [each.run.id for each in _earlier(store, tonight, 5)] == ["good1", "good2"]
    assert [each.run.id for each in _earlier(store, tonight, 1)] == ["good2"]


def test_runs_of_a_few_cases_hide_no_earlier_night_of_the_others(store: Store) -> None:
    _enter(store, "night1", started=1)
    _enter(store, "night2", started=2)
    for number in range(5):  # by hand, during the day
        _enter(store, f"some{number}", started=3 + number, cases=CASES[:2])
    _enter(store, "tonight", {"op7": 1.3}, started=9)
    tonight = store.load("tonight")
    before = _earlier(store, tonight, 5)
    assert [each.run.id for each in before] == ["night1", "night2"] + [f"some{n}" for n in range(5)]
    assert [len(each.cells) for each in before] == [18, 18] + 5 * [2]
    verdicts = {each.op: each.verdict for each in changes(before, tonight)}
    assert verdicts == {case.op: "regressed" if case.op == "op7" else "same" for case in CASES}


def test_what_is_not_measured_any_more_is_named(store: Store) -> None:
    _enter(store, "night", started=1)
    _enter(store, "by hand", started=2, cases=CASES[:1], filter=["op0"])
    _enter(store, "tonight", started=3, cases=CASES[:18], verdicts={"op1": "crashed"})
    assert _gone(store, store.load("tonight")) == [
        "op18 4 forward in numpy",
        "op19 4 forward in numpy",
    ]
    assert _gone(store, store.load("by hand")) == []
    told = compare(store, "tonight", "by hand").missing
    assert told == (
        "Not measured any more: op2 4 forward in numpy, op3 4 forward in numpy, "
        "op4 4 forward in numpy and 13 more"
    )
    assert told in str(compare(store, "tonight", "by hand"))
    assert compare(store, "by hand", "night").missing == ""


def test_a_step_in_the_history_alarms_in_the_night_in_which_it_shows(store: Store) -> None:
    told = []
    for night in range(22):
        name = f"night{night:02}"
        _enter(store, name, {"op0": 1.0 if night < 15 else 1.1}, started=night, cases=CASES[:1])
        results = store.load(name)
        series = next(changes([results], results))
        told.append(_History(store, results.run).step(series, 0.03))
    steps = [step for step in told if step is not None]
    assert [step.change.label for step in steps] == ["night15"]
    assert steps[0].change.ratio == pytest.approx(1.1, rel=0.02)
    assert told.index(steps[0]) in range(17, 22)


def test_what_crept_up_is_confirmed_against_the_nights_before_its_step(store: Store) -> None:
    for night in range(30):
        factors = {"op0": 1.0 + 0.01 * max(0, night - 11)}
        _enter(store, f"night{night:02}", factors, started=night, cases=CASES[:1])
        tonight = store.load(f"night{night:02}")
        before = _earlier(store, tonight, 5)
        history = _History(store, tonight.run)
        series = list(changes(before, tonight)) if before else []
        steps = [step for each in series if (step := history.step(each, 0.03)) is not None]
        if steps:
            break
    (step,) = _crept([], steps)
    first, *others = history.before(step)
    assert len(others) == 2
    assert int(step.change.label[5:]) == int(first[5:]) + 3
    _enter(store, "again", factors, started=40, cases=CASES[:1])
    results = store.load("again")
    assert [each.verdict for each in changes(before, results)] != ["regressed"]
    (again,) = _since_steps(store, history, [step], results, margin=0.03, rate=0.05)
    assert (again.key, again.verdict) == (step.series.key, "regressed")
    alarmed = msgspec.structs.replace(step.series, verdict="regressed")
    assert _crept([alarmed], [step]) == []


@pytest.mark.parametrize("odd", ["mistrusted", "another type"])
def test_nights_without_comparable_times_make_no_step(store: Store, odd: str) -> None:
    for night in range(22):
        name = f"night{night:02}"
        other = night in range(8, 15)
        factors = {"op0": 1.1 if other else 1.0}
        notes = {"op0": "computes in float64"} if other and odd == "another type" else None
        _enter(store, name, factors, started=night, cases=CASES[:1], notes=notes)
        if other and odd == "mistrusted":  # when its times were taken
            store.add_cell(name, Cell(CASES[0].key, "numpy", "forward", odd))
    history = _History(store, store.resolve("night21"))
    key = store.load("night21").cells[0].key
    assert [each.label for each in history._of(key)] == [
        f"night{night:02}" for night in range(22) if night not in range(8, 15)
    ]
    assert history._known(key, 0.03) is None


def test_the_baseline_of_a_series_begins_at_its_last_step(store: Store) -> None:
    for night in range(20):
        name = f"night{night:02}"
        _enter(store, name, {"op0": 1.0 if night < 16 else 1.1}, started=night, cases=CASES[:2])
    tonight = store.load("night19")
    before = _earlier(store, tonight, 5)
    starts = _History(store, tonight.run).starts(before, tonight, 0.03)
    assert starts == {tonight.cells[0].key: 2}
    since_step = list(changes(before, tonight, since=starts))
    assert [series.verdict for series in since_step] == ["same", "same"]


@pytest.mark.parametrize(
    ("code", "subject"),
    [
        (0, ""),
        (1, "operators got slower"),
        (3, "operators were not compared"),
        (130, "not compared"),
    ],
)
def test_the_cron_line_says_slower_only_where_something_is(
    tmp_path: Path, code: int, subject: str
) -> None:
    docs = (Path(__file__).parents[2] / "docs" / "nightly.md").read_text()
    (line,) = (each for each in docs.splitlines() if each.startswith("30 2 * * * "))
    for name, body in {
        "project/.venv/bin/tapegrad": f"echo told; exit {code}",
        "bin/mail": 'echo "$2" > $HOME/sent; cat >> $HOME/sent',
    }.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True)
        file.write_text(f"#!/bin/sh\n{body}\n")
        file.chmod(0o755)
    (tmp_path / "bench").mkdir()
    path = {"HOME": str(tmp_path), "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    subprocess.run(["sh", "-c", line.removeprefix("30 2 * * * ")], env=path, check=True)
    sent = tmp_path / "sent"
    assert sent.exists() == bool(subject)
    if subject:
        assert subject in sent.read_text() and "told" in sent.read_text()
