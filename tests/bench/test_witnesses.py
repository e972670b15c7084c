"""Who says what is right: frameworks that ship; adapters of the user's may only agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tapegrad import bench
from tapegrad.bench import driver, given, inputs
from tapegrad.bench.guards import GUARDS
from tapegrad.bench.oracle import DisagreementError, Truth, find_truth
from tapegrad.bench.process import LocalWorker, Worker
from tapegrad.bench.results import Cell
from tapegrad.worker.session import Session, load_adapter

from .test_worker import adapter

#: Enough to run through everything.
QUICK: dict[str, Any] = {"processes": 1, "rounds": 1, "block": 0.001}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Hide PyTorch and JAX, which take long to start, and ask what is right, not how fast it is."""
    monkeypatch.setenv("TAPEGRAD_CACHE", str(tmp_path / "cache"))
    timeless = ("values", "meaning", "dependence", "timed result")
    monkeypatch.setattr(given, "GUARDS", {name: GUARDS[name] for name in timeless})
    return tmp_path / "results.sqlite"


def test_one_witness_is_unconfirmed(store: Path, tmp_path: Path) -> None:
    """An operator that one framework alone can do has nobody to confirm it."""
    own = adapter(
        tmp_path,
        """
        class Own(Numpy):
            operators = {"cube": lambda x: x**3}
        """,
    )
    suite = bench.Suite(
        "own", "", (bench.Case("operator", "cube", (bench.Array("x", (8,), grad=False),),
                               phases=("forward",)),),
    )  # fmt: skip
    results = bench.run(suite, frameworks=[own], store=store, **QUICK)
    assert [cell.verdict for cell in results.cells] == ["unconfirmed"]


#: Operator -> what each of three contenders says it is.
ANSWERS = {
    "first_lies": ("x**3 * 1.001", "x**3", "x * x * x"),
    "second_lies": ("x**3", "x**3 * 1.001", "x * x * x"),
    "third_lies": ("x**3", "x * x * x", "x**3 * 1.001"),
    "all_differ": ("x**3 * 1.001", "x**3", "x**3 + 0.1"),
    "third_is_near_both": ("x**3", "x**3 * (1 + 1e-13)", "x**3 * (1 + 5e-14)"),
    "first_lies_on_gradients": ("x**3", "x**3", "x * x * x"),
    "first_alone_has_gradients": ("x**3", "x**3", "x * x * x"),
}
#: Gradients are these numbers times the square; None: it has no gradients.
SLOPES: dict[str, tuple[int | None, ...]] = {
    "first_lies_on_gradients": (2, 3, 3),
    "first_alone_has_gradients": (2, None, None),
}
CUBES = """
    from tapegrad.worker.adapter import named_gradients
    ADAPTERS = {adapters}
    class Cubes(Numpy):
        def operation(self, case, function, arrays):
            work = super().operation(case, function, arrays)
            state = {{}}
            def feed(arrays, cotangents):
                work.feed(arrays, cotangents)
                state.update(x=arrays["x"], c=list(cotangents))
            def read(phase, result):
                if phase == "backward": return named_gradients(["x"], [result])
                return work.arrays(phase, result)
            def backward(): return self.slopes[case.op] * state["x"] ** 2 * state["c"][0]
            if self.slopes.get(case.op) is None: return work
            return Work({{**work.phases, "backward": Phase(backward)}}, feed, read)
"""


def contradicting(tmp_path: Path, *files: str) -> list[str]:
    """Write adapters with these answers; those whose numbers are in one file share a framework."""
    found = []
    for numbers in files:
        text = CUBES.format(adapters={f"own{number}": f"Own{number}" for number in numbers})
        for number in numbers:
            answers = {op: f"lambda x: {said[int(number)]}" for op, said in ANSWERS.items()}
            table = ", ".join(f"{op!r}: {answer}" for op, answer in answers.items())
            slopes = {op: said[int(number)] for op, said in SLOPES.items()}
            text += f"""
    class Own{number}(Cubes):
        operators = {{{table}}}
        slopes = {slopes}
"""
        file = Path(adapter(tmp_path, text)).rename(tmp_path / f"own{numbers}.py")
        found += [f"{file}:own{number}" for number in numbers]
    return found


def case_of(op: str) -> bench.Case:
    return bench.Case(
        "operator",
        op,
        (bench.Array("x", (8,), grad=op in SLOPES),),
        phases=("forward", "backward") if op in SLOPES else ("forward",),
    )


def judged(store: Path, contenders: list[str], *ops: str) -> dict[str, dict[str, Cell]]:
    """Run these operators and return the cells by operator (and phase) and contender."""
    suite = bench.Suite("own", "", tuple(map(case_of, ops)))
    results = bench.run(suite, frameworks=contenders, store=store, **QUICK)
    labels = {key: case.op for key, case in results.case_by_key().items()}
    found: dict[str, dict[str, Cell]] = {}
    for cell in results.cells:
        name = f"{labels[cell.case]} {cell.phase}"
        found.setdefault(name, {})[cell.framework] = cell
    return found


def test_adapters_of_the_user_confirm_nothing_among_themselves(store: Path, tmp_path: Path) -> None:
    """Where no framework that ships can do the case, the many are believed but not confirmed."""
    cells = judged(store, contradicting(tmp_path, "0", "1", "2"), *ANSWERS)
    found = {op: [cell.verdict for cell in each.values()] for op, each in cells.items()}
    assert found == {
        "first_lies forward": ["wrong", "unconfirmed", "unconfirmed"],
        "second_lies forward": ["unconfirmed", "wrong", "unconfirmed"],
        "third_lies forward": ["unconfirmed", "unconfirmed", "wrong"],  # it was not asked
        "all_differ forward": ["wrong", "wrong", "mistrusted"],
        "third_is_near_both forward": ["wrong", "wrong", "mistrusted"],
        "first_lies_on_gradients forward": ["unconfirmed", "unconfirmed", "unconfirmed"],
        "first_lies_on_gradients backward": ["wrong", "unconfirmed", "unconfirmed"],
        "first_alone_has_gradients forward": ["unconfirmed", "unconfirmed", "unconfirmed"],
        "first_alone_has_gradients backward": ["wrong", "unsupported", "unsupported"],
    }
    (note,) = cells["first_lies forward"]["own2"].notes
    assert note.startswith("own0 is outvoted, two against one: own1 and own0 disagree")
    assert cells["third_lies forward"]["own1"].notes == []
    for op in ("all_differ forward", "third_is_near_both forward"):
        assert all("disagree" in cell.reason for cell in cells[op].values())
    assert "disagree" in cells["first_alone_has_gradients backward"]["own0"].reason


def test_variants_of_one_framework_have_one_voice(store: Path, tmp_path: Path) -> None:
    """Two that share a file may agree with each other whatever they say."""
    cells = judged(store, contradicting(tmp_path, "0", "12"), "first_lies")
    verdicts = {name: cell.verdict for name, cell in cells["first_lies forward"].items()}
    assert verdicts == {"own0": "wrong", "own1": "wrong", "own2": "mistrusted"}


def off_by(tmp_path: Path, name: str, factor: float) -> str:
    """Write an adapter whose hyperbolic tangent is off by a factor."""
    body = f"""
        ADAPTERS = {{{name!r}: "Own"}}
        class Own(Numpy):
            operators = {{**Numpy.operators, "tanh": lambda x: np.tanh(x) * {factor}}}
    """
    return str(Path(adapter(tmp_path, body)).rename(tmp_path / f"{name}.py"))


@pytest.mark.parametrize(
    ("factors", "verdicts"),
    [
        ((1.1,), ["unconfirmed", "wrong"]),
        ((1.1, 1.1), ["unconfirmed", "wrong", "wrong"]),  # two do not outvote one that ships
        ((1.1, 1.0), ["checked", "wrong", "checked"]),
        ((1.0, 1.1), ["checked", "checked", "wrong"]),
    ],
)
def test_adapters_of_the_user_agree_with_what_ships_or_are_wrong(
    store: Path, monkeypatch: pytest.MonkeyPatch, factors: tuple[float, ...], verdicts: list[str]
) -> None:
    monkeypatch.setattr(driver, "WITNESSES", ("numpy",))
    names = [off_by(store.parent, f"mine{index}", factor) for index, factor in enumerate(factors)]
    tanh = bench.Case("operator", "tanh", (bench.Array("x", (8,)),), phases=("forward",))
    suite = bench.Suite("own", "", (tanh,))
    cells = bench.run(suite, frameworks=["numpy", *names], store=store, **QUICK).cells
    assert [cell.verdict for cell in cells] == verdicts
    assert all(cell.error is not None and cell.error > 1 for cell in cells if not cell.timed)


def heard(tmp_path: Path, op: str, ships: str) -> Truth:
    """Hear the three of `ANSWERS` on an operator; the digits are those that ship."""
    witnesses: dict[str, Worker] = {}
    for number in "012":
        (name,) = contradicting(tmp_path, number)
        file, _, own = name.partition(":")
        made = load_adapter(Path(file), own.capitalize())("cpu", 1)
        witnesses[own] = LocalWorker(Session(made))
        witnesses[own].authoritative = number in ships
    case = case_of(op)
    arrays = inputs.make_inputs(case, 0)
    first = dict(sorted(witnesses.items(), key=lambda each: not each[1].authoritative))
    (truth,) = find_truth(case, [arrays], first, tmp_path / "truth", 0)
    np.testing.assert_allclose(truth.arrays["output0"], arrays["x"] ** 3, rtol=1e-6)
    return truth


@pytest.mark.parametrize("op", ["first_lies", "second_lies", "third_lies"])
def test_a_third_decides_where_two_that_ship_disagree(tmp_path: Path, op: str) -> None:
    truth = heard(tmp_path, op, "012")
    assert truth.outputs_confirmed
    assert ("outvoted, two against one" in truth.outvoted) == (op != "third_lies")


@pytest.mark.parametrize(
    ("op", "ships"),
    [("third_lies", "02"), ("first_lies", "01"), ("all_differ", "012"), ("all_differ", "01")],
)
def test_a_user_does_not_decide_between_two_that_ship(tmp_path: Path, op: str, ships: str) -> None:
    with pytest.raises(DisagreementError, match="disagree"):
        heard(tmp_path, op, ships)


@pytest.mark.parametrize(
    ("op", "ships", "confirmed"),
    [("first_lies", "1", True), ("second_lies", "0", True), ("third_lies", "01", True)],
)
def test_one_that_ships_is_confirmed_by_whoever_agrees(
    tmp_path: Path, op: str, ships: str, confirmed: bool
) -> None:
    truth = heard(tmp_path, op, ships)
    assert truth.outputs_confirmed == confirmed and truth.sources[0] == f"own{ships[0]}"


def test_gradients_of_one_that_ships_stand_against_all_others(tmp_path: Path) -> None:
    """It is wrong here, and who differs has no say: nobody confirms it."""
    truth = heard(tmp_path, "first_lies_on_gradients", "0")
    assert truth.dispute is None and truth.sources[1] == "own0"
    assert not truth.gradients_confirmed


def test_gradients_that_only_a_user_has_are_held_against_what_ships(tmp_path: Path) -> None:
    """It has the outputs that ship, but not their differences."""
    truth = heard(tmp_path, "first_alone_has_gradients", "12")
    assert truth.outputs_confirmed
    assert truth.dispute is not None and "own0" in truth.dispute.names
