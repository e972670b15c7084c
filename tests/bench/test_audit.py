"""The bench must see what is wrong, by the guard that is there for it, and lose nothing else."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tapegrad.bench import answers, audit, guards, probe, process, run
from tapegrad.bench.audit import AuditReport, Outcome
from tapegrad.bench.calibration import CASES, Rate, calibrate
from tapegrad.bench.faults import BREAKDOWNS, CONTROLS, FAULTS, FOLDER, SHORT_PRODUCT, Fault
from tapegrad.bench.frameworks import contenders_in
from tapegrad.bench.guards import GUARDS
from tapegrad.bench.results import TIMED
from tapegrad.bench.suite import Suite
from tapegrad.worker import honest

ALL = (*CONTROLS, *FAULTS, *BREAKDOWNS)
PROCESSORS = len(os.sched_getaffinity(0))


def _id(fault: Fault) -> str:
    return f"{fault.name} {fault.phase} {fault.case.label}"


@pytest.fixture(scope="module")
def report() -> AuditReport:
    return audit.audit()


@pytest.fixture(scope="module")
def outcomes(report: AuditReport) -> dict[str, Outcome]:
    return {_id(fault): each for fault, each in zip(ALL, report.outcomes, strict=True)}


@pytest.mark.parametrize("fault", CONTROLS, ids=_id)
def test_an_honest_adapter_is_checked(fault: Fault, outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes[_id(fault)]
    assert (outcome.verdict, outcome.reason) == ("checked", "")
    assert outcome.blocks == audit.ROUNDS


@pytest.mark.parametrize("fault", (*FAULTS, *BREAKDOWNS), ids=_id)
def test_a_fault_is_flagged_with_a_reason(fault: Fault, outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes[_id(fault)]
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    assert outcome.verdict in fault.verdicts
    assert outcome.reason
    assert outcome.passed


def test_an_audit_passes_if_all_is_as_it_must_be(report: AuditReport) -> None:
    assert report.passed


def test_every_adapter_file_is_part_of_the_audit() -> None:
    files = [file for file in FOLDER.glob("*.py") if file.stem != "__init__"]
    written = {(file.stem, each.name) for file in files for each in contenders_in(file)}
    assert written == {(fault.file, fault.name) for fault in ALL}


def test_every_guard_has_a_fault_of_its_own() -> None:
    assert {fault.guard for fault in FAULTS} - {""} == GUARDS.keys()


@pytest.mark.parametrize("guard", GUARDS)
def test_without_its_guard_a_fault_passes_unnoticed(guard: str) -> None:
    faults = [each for each in FAULTS if each.guard == guard and each.processors <= PROCESSORS]
    if not faults:
        pytest.skip("its fault needs more processors")
    others = {name: each for name, each in GUARDS.items() if name != guard}
    for outcome in audit.audit(faults=faults, guards=others).outcomes:
        assert outcome.verdict in TIMED, outcome
        assert outcome.blocks == audit.ROUNDS
        assert not outcome.passed


def test_without_the_look_back_at_times_late_faults_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "IN_HINDSIGHT", ())
    late = [each for each in FAULTS if each.name in ("lazy later", "remembers later")]
    found = audit.audit(faults=late).outcomes
    assert [outcome.verdict in TIMED for outcome in found] == [True, True], found


def test_an_audit_tells_what_it_cannot_see() -> None:
    said = " ".join(audit.unseen())
    assert "up to 33% less" in said and "5.00 µs" in said and "1.00 ms" in said


def test_a_fault_is_not_recognised_by_its_name(tmp_path: Path) -> None:
    source = (FOLDER / "clocks.py").read_text()
    innocent = tmp_path / "torch.py"
    innocent.write_text(
        source.replace('"unsynchronised": "Unsynchronised"', '"torch": "Torch"').replace(
            "class Unsynchronised(", "class Torch("
        )
    )
    found = run(_suite(), store=":memory:", frameworks=[f"{innocent}:torch"], processes=1, rounds=1)
    assert [(cell.framework, cell.verdict) for cell in found.cells] == [("torch", "mistrusted")]


def test_a_worker_that_breaks_costs_its_own_cell_only() -> None:
    names = [f"{FOLDER / 'honest.py'}", f"{FOLDER / 'breakdowns.py'}:rubbish"]
    found = run(_suite(), store=":memory:", frameworks=names, processes=2, rounds=1)
    assert {cell.framework: cell.verdict for cell in found.cells} == {
        "honest": "checked",
        "rubbish": "failed",
    }
    assert {block.framework for block in found.blocks} == {"honest"}


def test_without_the_check_of_answers_an_empty_one_ends_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answers, "check", lambda do, answer: answer)
    empty = [fault for fault in BREAKDOWNS if fault.name == "empty answer"]
    with pytest.raises(KeyError):
        audit.audit(faults=empty)


@pytest.mark.parametrize("verdict", TIMED)
def test_a_complaint_cannot_claim_a_verdict_with_times(verdict: str) -> None:
    assert answers.complaint({"complaint": verdict}).kind == "failed"


def test_a_worker_that_grows_is_ended_at_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "MEMORY_SHARE", (1 << 28) / psutil.virtual_memory().total)
    greedy = tmp_path / "greedy.py"
    greedy.write_text(GREEDY)
    found = run(_suite(), store=":memory:", frameworks=[str(greedy)], processes=1, rounds=1)
    assert found.cells[0].verdict == "oom"
    assert "are allowed" in found.cells[0].reason


def test_calibration_counts_every_pair() -> None:
    found = calibrate(6, (0.5,), slowed_pairs=6, processes=2, rounds=2, cases=CASES[:3])
    assert found.runs == 3
    assert found.judged == 3 * 9
    within = [rate for rate in found.rates if rate.paired]
    assert [rate.slowdown for rate in within] == [0.0, 0.5]
    assert all(rate.pairs >= 6 - 2 * len(found.mistrusted) for rate in found.rates)
    assert within[1].ratio > 1.25 * within[0].ratio


def test_a_rate_has_a_wilson_interval() -> None:
    rate = Rate(0.0, True, slower=2, faster=1, same=150, undecided=47, ratio=1.0)
    assert (rate.pairs, rate.alarms, rate.share) == (200, 3, 0.015)
    low, high = rate.interval
    assert low == pytest.approx(0.0051, abs=1e-4)
    assert high == pytest.approx(0.0432, abs=1e-4)


def _suite() -> Suite:
    return Suite("audit", "one product", (replace(SHORT_PRODUCT, phases=("forward",)),))


GREEDY = """
import time

import numpy as np

from tapegrad.worker.honest import Honest, Operation

ADAPTERS = {"greedy": "Greedy"}


class Grows(Operation):
    def forward(self):
        taken = []
        while len(taken) < 1000:
            taken.append(np.ones(1 << 20))
            time.sleep(0.01)
        return super().forward()


class Greedy(Honest):
    make = Grows
"""


def test_faults_that_begin_later_know_what_guards_ask_for() -> None:
    assert honest.LOOK_SECONDS == probe.PROBE_SECONDS < audit.BLOCK_SECONDS
