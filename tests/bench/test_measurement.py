"""What one bad contender may cost: its own cell, and nothing else."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tapegrad import bench
from tapegrad.bench.driver import Listener
from tapegrad.bench.results import Block, Results

from .test_worker import adapter

#: Enough to run through everything.
QUICK: dict[str, Any] = {"processes": 1, "rounds": 2, "block": 0.005}


def run(tmp_path: Path, body: str, **options: Any) -> Results:
    """Run tanh in NumPy and in an adapter with this body."""
    return bench.run(
        "operators",
        frameworks=["numpy", adapter(tmp_path, body)],
        filter=["tanh"],
        sizes=["small"],
        phases=["forward"],
        store=tmp_path / "results.sqlite",
        **(QUICK | options),
    )


def verdicts(results: Results) -> dict[str, tuple[str, str]]:
    return {cell.framework: (cell.verdict, cell.reason) for cell in results.cells}


OPERATION = """
    class Own(Numpy):
        def operation(self, case, function, arrays):
            work = super().operation(case, function, arrays)
            return {changed}
"""


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ("Work(work.phases, work.feed, work.arrays, precision='banana')", "rubbish"),
        ("Work(work.phases, work.feed, lambda p, r: {'output0': np.array(['a'])})", "real numbers"),
        ("Work(work.phases, work.feed, lambda p, r: {'output0': r * 1j})", "real numbers"),
        ("Work(work.phases, work.feed, lambda p, r: {'output0': np.array(r, object)})", "numbers"),
        ("Work({'fwd': work.phases['forward']}, work.feed, work.arrays)", "rubbish"),
    ],
)
def test_odd_answers_are_failed(tmp_path: Path, changed: str, reason: str) -> None:
    found = verdicts(run(tmp_path, OPERATION.format(changed=changed)))
    assert found["own"][0] == "failed" and reason in found["own"][1]
    assert found["numpy"][0] == "checked"


def test_the_type_that_a_contender_computes_in_is_told_by_what_it_offers_alone(
    tmp_path: Path,
) -> None:
    told = "notes=['computes in float64', 'computes in blocks']"
    changed = f"Work(work.phases, work.feed, work.arrays, {told})"
    results = run(tmp_path, OPERATION.format(changed=changed))
    notes = {cell.framework: (cell.precision, cell.notes) for cell in results.cells}
    assert notes["own"] == ("", ["computes in blocks"])
    assert "no ratio" not in str(results)


def test_phases_that_prepare_tell_the_type_without_the_work_itself(tmp_path: Path) -> None:
    results = bench.run(
        "graphs",
        frameworks=["tapegrad-batch", "tapegrad-batch-float32"],
        filter=["graph*ops=100 *"],
        phases=["build", "compile"],
        store=tmp_path / "results.sqlite",
        **QUICK,
    )
    assert {cell.framework: cell.precision for cell in results.cells} == {
        "tapegrad-batch": "", "tapegrad-batch-float32": "float32"
    }  # fmt: skip


@pytest.mark.parametrize("peak", ["10**30", "-5"])
def test_odd_memory_is_not_stored(tmp_path: Path, peak: str) -> None:
    """Nor is it taken for done: who goes on with the run tries again."""
    body = f"""
        class Own(Numpy):
            def allocator_peak(self): return {peak}
    """
    results = run(tmp_path, body, memory=True)
    assert {memory.framework: memory.allocator for memory in results.memory} == {"numpy": None}
    assert verdicts(results)["own"][0] == "checked"


def test_one_of_several_that_are_prepared_at_once_may_fail(tmp_path: Path) -> None:
    body = """
        class Own(Numpy):
            def operation(self, case, function, arrays):
                raise ValueError("not this one")
    """
    results = run(tmp_path, body, threads=2, processes=2)
    found = verdicts(results)
    assert found["own"][0] == "failed" and "not this one" in found["own"][1]
    assert found["numpy"][0] == "checked"
    assert {(block.process, block.round) for block in results.blocks} == {
        (process, number) for process in range(2) for number in range(2)
    }


class _Heard(Listener):
    """Notes when blocks are stored."""

    def __init__(self) -> None:
        self.stored: list[float] = []

    def block(self, block: Block) -> None:
        self.stored.append(time.time())


def test_no_block_waits_for_a_worker_that_prepares(tmp_path: Path) -> None:
    """A worker may compile for minutes; what was measured before is safe by then."""
    prepared = tmp_path / "prepared"
    body = f"""
        import time
        class Own(Numpy):
            def operation(self, case, function, arrays):
                time.sleep(0.5)
                with open({str(prepared)!r}, "a") as file:
                    print(time.time(), file=file)
                return super().operation(case, function, arrays)
    """
    heard = _Heard()
    run(tmp_path, body, processes=2, rounds=1, listener=heard)
    first, second = map(float, prepared.read_text().split())
    assert first < heard.stored[0] and heard.stored[1] < second


def test_an_operator_without_outputs_has_no_truth(tmp_path: Path) -> None:
    file = adapter(
        tmp_path,
        """
        class Own(Numpy):
            operators = {"odd": lambda x: x}
            def operation(self, case, function, arrays):
                work = super().operation(case, function, arrays)
                return Work({"build": work.phases["forward"]}, work.feed, work.arrays)
        """,
    )
    case = bench.Case("operator", "odd", (bench.Array("x", (4,), grad=False),), phases=("build",))
    suite = bench.Suite("own", "", (case,))
    results = bench.run(suite, frameworks=[file], store=tmp_path / "r.sqlite", **QUICK)
    assert verdicts(results)["own"][0] == "mistrusted"
    assert "no phase with outputs" in verdicts(results)["own"][1]


def test_answers_remembered_from_some_call_on_are_seen(tmp_path: Path) -> None:
    """Honest while the guards look, then always the same: the look back sees it."""
    body = """
        class Own(Numpy):
            def operation(self, case, function, arrays):
                work = super().operation(case, function, arrays)
                state = {"calls": 0, "kept": None}
                honest = work.phases["forward"].call
                def call():
                    state["calls"] += 1
                    if state["calls"] > 9000:
                        if state["kept"] is None: state["kept"] = honest()
                        return state["kept"]
                    return honest()
                return Work({"forward": Phase(call)}, work.feed, work.arrays)
    """
    found = verdicts(run(tmp_path, body, rounds=8, block=0.02))
    assert found["own"][0] == "mistrusted" and "does not depend" in found["own"][1]


def test_kinks_are_no_disagreement(tmp_path: Path) -> None:
    """Four million normal numbers: a step crosses zero somewhere, and relu has a kink there."""
    results = bench.run(
        "operators", frameworks=["torch"], filter=["relu"], sizes=["large"],
        store=tmp_path / "r.sqlite", **QUICK,
    )  # fmt: skip
    assert {cell.phase: cell.verdict for cell in results.cells} == {
        "forward": "checked", "backward": "checked",
    }  # fmt: skip


def test_a_wrong_gradient_leaves_the_forward_pass_alone(tmp_path: Path) -> None:
    """Where the gradients are in dispute, outputs still have their verdict, by one's own alone."""
    file = adapter(
        tmp_path,
        """
        from tapegrad.worker.adapter import named_gradients, named_outputs
        class Own(Numpy):
            operators = {"cube": lambda x: x**3}
            def operation(self, case, function, arrays):
                work = super().operation(case, function, arrays)
                state = {}
                def feed(arrays, cotangents):
                    work.feed(arrays, cotangents)
                    state.update(x=np.array(arrays["x"]), c=[np.array(c) for c in cotangents])
                def read(phase, result):
                    if phase == "backward": return named_gradients(["x"], [result])
                    return work.arrays(phase, result)
                def backward(): return 2 * state["x"] ** 2 * state["c"][0]
                return Work({**work.phases, "backward": Phase(backward)}, feed, read)
        """,
    )
    folder = tmp_path / "plain"
    folder.mkdir()
    plain = adapter(folder, "class Own(Numpy): operators = {'cube': lambda x: x * x * x}")
    Path(plain).write_text(Path(plain).read_text().replace('{"own": "Own"}', '{"plain": "Own"}'))
    case = bench.Case("operator", "cube", (bench.Array("x", (8, 8)),))
    results = bench.run(
        bench.Suite("own", "", (case,)), frameworks=[file, plain], store=tmp_path / "r.sqlite",
        **QUICK,
    )  # fmt: skip
    found = {(cell.framework, cell.phase): cell.verdict for cell in results.cells}
    assert found["own", "forward"] == "unconfirmed"
    assert found["own", "backward"] == "wrong"


def test_a_finished_run_has_nothing_to_resume(tmp_path: Path) -> None:
    """Long calls get fewer blocks, also when a run is resumed."""
    body = """
        class Own(Numpy):
            def operation(self, case, function, arrays):
                work = super().operation(case, function, arrays)
                def call():
                    time.sleep(2.1)
                    return work.phases["forward"].call()
                return Work({"forward": Phase(call)}, work.feed, work.arrays)
    """
    first = run(tmp_path, body)
    for _ in range(2):
        again = bench.run("operators", store=tmp_path / "results.sqlite", resume="latest")
        assert len(again.blocks) == len(first.blocks)
