"""What the bench says of itself: its cost, and its agreement with others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tapegrad.bench import agreement, cost
from tapegrad.bench.cost import Cost, bars, measure_cost
from tapegrad.bench.given import Settings
from tapegrad.bench.suites.operators import CATEGORIES
from tapegrad.cli import main

FOUND = Cost("exp 32x64", 1e-5, 1.5, 1.0, 0.001, 36, {"time": 0.9})


def test_the_cost_is_that_of_real_visits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "OPERATORS", ("exp", "tanh"))
    monkeypatch.setattr(cost, "WITNESSES", ("numpy",))
    (found,) = measure_cost(("numpy",), Settings(processes=2, rounds=2, seconds=0.005))
    assert found.operator.startswith("tanh")
    assert found.blocks == 2 * 2
    assert 4 * 0.005 < found.visits < found.seconds
    assert 0 < found.driver < found.visits
    assert found.messages["time"] + found.messages["check"] < found.seconds


@pytest.mark.parametrize(
    ("changes", "met"),
    [({}, [True, True]), ({"seconds": 2.1}, [False, True]), ({"driver": 0.05}, [True, False])],
)
def test_a_bar_that_is_missed_ends_with_1(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, float],
    met: list[bool],
) -> None:
    found = [replace(FOUND, **changes)] * 5  # type: ignore[arg-type]
    assert [bar.met for bar in bars(found)] == met
    monkeypatch.setattr(cost, "measure_cost", lambda: iter(found))
    with pytest.raises(SystemExit) as ending:
        main(["bench", "audit", "--cost"])
    assert ending.value.code == (0 if all(met) else 1)
    out = capsys.readouterr().out
    assert "(n = 5)" in out and "(n = 180)" in out
    assert out.count("missed") == met.count(False)


def test_agreement_is_tried_on_twenty_operators_of_all_kinds() -> None:
    cases = agreement.chosen()
    kinds = [{case.op for case in made()} for made in CATEGORIES.values()]
    assert len({case.op for case in cases}) == 20
    assert sum(any(case.op in kind for case in cases) for kind in kinds) >= 15
    assert all({"forward", "backward"} <= set(case.phases) for case in cases)


def test_both_methods_time_forward_and_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "TURNS", 1)
    found = list(agreement.compare_methods(agreement.chosen()[:1]))
    assert {each.phase for each in found} == {"forward", "backward"}
    assert all(min(each.ours + each.theirs) > 0 for each in found)


def test_what_is_apart_is_measured_again_with_all_its_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agreement, "TURNS", 1)
    monkeypatch.setattr(agreement, "MARGIN", -1.0)
    found = list(agreement.compare_methods(agreement.chosen()[:1]))
    assert [each.phase for each in found] == ["forward", "backward"]
    assert [len(each.ours) for each in found] == [len(each.theirs) for each in found] == [3, 3]


def test_a_slow_moment_that_both_share_is_no_disagreement() -> None:
    found = agreement.Agreement("exp", "forward", (1.0, 3.0, 1.0), (1.0, 3.0, 3.0))
    assert found.ratio == 1 and found.holds
    assert not agreement.Agreement("exp", "forward", (1.0, 3.0, 1.0), (1.2, 3.6, 3.0)).holds
