"""Whole runs: real frameworks, the store, interruption and resumption."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tapegrad import bench
from tapegrad.bench import suites
from tapegrad.bench.driver import Listener, Options, select
from tapegrad.bench.errors import BenchError, MalformedFileError, UnknownNameError
from tapegrad.bench.faults import FOLDER, PRODUCT
from tapegrad.bench.report import report_text
from tapegrad.bench.results import TIMED, UNTIMED, Block, CellKey, Results, Run
from tapegrad.bench.store import StoreError, open_store
from tapegrad.worker.case import Case

from .test_worker import adapter

#: Enough to run through everything.
QUICK: dict[str, Any] = {"processes": 2, "rounds": 2, "block": 0.005}
#: One operator of each kind: results that are tuples, integers, random and scalars among them.
REPRESENTATIVE = [
    "exp", "add", "softmax", "argmax", "matmul", "conv2d", "max_pool2d", "layer_norm",
    "cross_entropy", "embedding", "split", "dropout", "adam",
]  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "results.sqlite"


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide PyTorch and JAX, which take long to start and have no part in the test."""
    monkeypatch.setenv("TAPEGRAD_CACHE", str(tmp_path / "cache"))


def verdicts(results: Results) -> dict[tuple[str, str, str], str]:
    labels = {key: case.op for key, case in results.case_by_key().items()}
    return {(labels[c.case], c.framework, c.phase): c.verdict for c in results.cells}


def test_operators_are_checked_in_every_framework(store: Path) -> None:
    """One operator of each kind, small, forward and backward, in three frameworks."""
    results = bench.run(
        "operators",
        frameworks=["torch", "jax", "numpy"],
        filter=REPRESENTATIVE,
        sizes=["small"],
        store=store,
        processes=1,
        rounds=1,
        block=0.002,
    )
    found = verdicts(results)
    wrong = {key: verdict for key, verdict in found.items() if verdict not in TIMED}
    assert set(wrong.values()) <= {"unsupported"}, [c for c in results.cells if not c.timed]
    assert all(framework == "numpy" and phase == "backward" for _, framework, phase in wrong)
    assert {op for op, _, _ in found} == set(REPRESENTATIVE)
    assert all(verdict == "checked" for key, verdict in found.items() if key not in wrong)
    for cell in results.cells:
        assert bool(results.blocks_of(cell.key)) == cell.timed
    versions = {framework.name: framework.version for framework in results.frameworks}
    assert versions["torch"].startswith("2.13") and versions["numpy"] == np.__version__


def test_neither_engine_nor_framework_enters_the_driver(store: Path) -> None:
    code = f"""
        import sys
        from tapegrad import bench
        r = bench.run("operators", frameworks=["torch", "jax"], filter=["exp"], sizes=["small"],
                      store={str(store)!r}, processes=1, rounds=1, block=0.002)
        print([c.verdict for c in r.cells])
        print([name for name in sys.modules if name in ("torch", "jax", "tapegrad._core")])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[:2] == [str(["checked"] * 4), "[]"]


def test_blocks_are_nested_and_interleaved(store: Path) -> None:
    results = bench.run(
        "operators", frameworks=["torch", "numpy"], filter=["tanh"], sizes=["small"],
        store=store, processes=3, rounds=3, block=0.002, phases=["forward"],
    )  # fmt: skip
    by_end = sorted(results.blocks, key=lambda block: block.ended)
    visits = [(block.round, block.process) for block in by_end]
    assert visits == sorted(visits) and len(set(visits)) == 9
    orders = {tuple(b.framework for b in by_end if (b.round, b.process) == v) for v in visits}
    assert orders == {("torch", "numpy"), ("numpy", "torch")}  # in random order
    assert all(len(block.samples) >= 5 and min(block.samples) > 0 for block in results.blocks)


def test_cold_caches_make_large_copies_slower(store: Path) -> None:
    """Half a megabyte comes from memory and not from a cache."""
    suite = bench.Suite("own", "", (bench.Case("operator", "add", (
        bench.Array("x", (256, 256)), bench.Array("y", (256, 256))), phases=("forward",)),),
    )  # fmt: skip
    times = {}
    for cache in ("warm", "cold"):
        results = bench.run(suite, frameworks=["numpy"], store=store, cache=cache, **QUICK)
        times[cache] = min(min(block.samples) for block in results.blocks)
        assert results.run.options["cache"] == cache
    assert times["cold"] > 1.3 * times["warm"]


def test_a_failing_cell_costs_nothing_else(store: Path, tmp_path: Path) -> None:
    own = adapter(
        tmp_path,
        """
        class Own(Numpy):
            def operation(self, case, function, arrays):
                if case.op == "exp": os._exit(1)
                if case.op == "mul": time.sleep(60)
                return super().operation(case, function, arrays)
        """,
    )
    results = bench.run(
        "operators", frameworks=["numpy", own], filter=["add", "exp", "mul", "tanh"],
        sizes=["small"], phases=["forward"], store=store, timeout=3.0, **QUICK,
    )  # fmt: skip
    found = verdicts(results)
    assert {op: found[op, "own", "forward"] for op in ("add", "mul", "exp", "tanh")} == {
        "add": "checked", "mul": "timeout", "exp": "crashed", "tanh": "checked",
    }  # fmt: skip
    assert all(found[op, "numpy", "forward"] == "checked" for op in ("add", "mul", "exp", "tanh"))
    assert all(cell.verdict in (*TIMED, *UNTIMED) for cell in results.cells)


def test_a_missing_framework_says_how_to_install_it(store: Path, tmp_path: Path) -> None:
    own = tmp_path / "missing.py"
    own.write_text('ADAPTERS = {"missing": "M"}\nREQUIRES = ["x"]\nIMPORTS = "no_such_module"\n')
    results = bench.run(
        "operators", frameworks=["numpy", str(own)], filter=["exp"], sizes=["small"],
        phases=["forward"], store=store, **QUICK,
    )  # fmt: skip
    cell = next(cell for cell in results.cells if cell.framework == "missing")
    assert cell.verdict == "not installed" and f"frameworks install {own}" in cell.reason


RUN = """
    import sys
    from tapegrad import bench
    class Printer(bench.Listener):
        def block(self, block):
            print(block.case, block.framework, block.phase, block.process, block.round, flush=True)
    options = dict(frameworks=["numpy", "numpy@2"], filter=["add", "exp", "tanh", "sum"],
                   sizes=["small"], processes=2, rounds=3, block=0.01, memory=True)
    resume = sys.argv[2] if len(sys.argv) > 2 else None
    results = bench.run("operators", store=sys.argv[1], listener=Printer(), resume=resume,
                        **({} if resume else options))
    print("done", results.run.status)
"""


def blocks_in(store: Path) -> dict[tuple[CellKey, int, int], tuple[float, ...]]:
    with open_store(store) as opened:
        results = opened.load(opened.resolve("latest").id)
    found = [((b.key, b.process, b.round), tuple(b.samples)) for b in results.blocks]
    assert len(found) == len(dict(found))
    return dict(found)


def test_killed_at_random_moments_and_resumed(store: Path) -> None:
    """Nothing that was stored is lost or measured again, and in the end all is there."""
    rng = random.Random()
    command = [sys.executable, "-c", textwrap.dedent(RUN), str(store)]
    known: dict[tuple[CellKey, int, int], tuple[float, ...]] = {}
    for attempt in range(4):
        process = subprocess.Popen(
            command + (["latest"] if attempt else []), stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        for _ in range(rng.randrange(1, 12)):  # some blocks, then the end without warning
            line = process.stdout.readline()
        time.sleep(rng.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        printed = [line, *process.stdout.readlines()]
        process.wait()
        process.stdout.close()
        found = blocks_in(store)
        assert known.items() <= found.items()
        if line and not line.startswith("done"):
            case, framework, phase, number, turn = line.split()
            assert (CellKey(case, framework, phase), int(number), int(turn)) in found, printed
        known = found
    done = subprocess.run([*command, "latest"], capture_output=True, text=True, check=True)
    assert "done finished" in done.stdout
    final = blocks_in(store)
    assert known.items() <= final.items()
    assert len(final) == 4 * 2 * 2 * 3  # cases x contenders x processes x rounds
    with open_store(store) as opened:
        results = opened.load(opened.resolve("latest").id)
    assert len(results.memory) == 4 * 2 and results.run.status == "finished"


class _EndsAt(bench.Listener):
    """Ends a run when so many blocks are stored."""

    def __init__(self, count: int) -> None:
        self._left = count

    def block(self, block: Block) -> None:
        self._left -= 1
        if not self._left:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("file", "verdict"),
    [("honest.py", "checked"), ("results.py:another shape later", "mistrusted")],
)
def test_what_was_not_looked_back_on_does_not_count(store: Path, file: str, verdict: str) -> None:
    """A run that ends between its last block and the look back has times that nobody believes."""
    suite = bench.Suite("one", "for tests", (PRODUCT,))
    options: dict[str, Any] = {"phases": ["forward"], "processes": 1, "rounds": 3, "block": 0.05}
    bench.run(suite, store=store, frameworks=[f"{FOLDER / file}"], listener=_EndsAt(3), **options)
    with open_store(store) as opened:
        results = opened.load(opened.resolve("latest").id)
    assert len(results.blocks) == 3
    assert [(cell.verdict, cell.timed) for cell in results.cells] == [("unfinished", False)]
    assert "unfinished" in report_text(results)
    done = bench.run(suite, store=store, resume="latest")
    assert [cell.verdict for cell in done.cells] == [verdict]
    assert done.blocks == results.blocks


@pytest.mark.usefixtures("ctrl_c_is_heard")
def test_an_interrupt_keeps_what_is_measured(store: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(RUN), str(store)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    first = [process.stdout.readline() for _ in range(3)]
    os.kill(process.pid, signal.SIGINT)
    rest, _ = process.communicate(timeout=30)
    assert rest.strip().endswith("done interrupted")
    assert len(blocks_in(store)) == len(first) + len(rest.splitlines()) - 1


HANGS = """
    import time
    from pathlib import Path
    from tapegrad.worker.honest import Honest, Operation

    ADAPTERS = {"hangs": "Hangs"}
    REQUIRES = ["numpy"]
    IMPORTS = "numpy"

    class Second(Operation):
        calls = 0
        def forward(self):
            self.calls += 1
            if self.calls == 2:
                Path(__file__).with_suffix(".asleep").touch()
                time.sleep(600)
            return super().forward()

    class Hangs(Honest):
        make = Second
"""


@pytest.mark.usefixtures("ctrl_c_is_heard")
def test_an_interrupt_reaches_a_guard_that_waits(store: Path, tmp_path: Path) -> None:
    """What clears up after a guard asks the worker that has not answered yet."""
    file = tmp_path / "hangs.py"
    file.write_text(textwrap.dedent(HANGS))
    choice = ("operators", "--sizes", "small", "--filter", "tanh", "--phases", "forward")
    process = subprocess.Popen(
        [sys.executable, "-m", "tapegrad.cli", "bench", "run", *choice, "--processes", "1",
         "--frameworks", f"numpy,{file}", "--timeout", "300", "--store", str(store)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip
    until = time.monotonic() + 60
    while not file.with_suffix(".asleep").exists() and time.monotonic() < until:
        time.sleep(0.05)
    workers = psutil.Process(process.pid).children()
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=30)
    assert process.returncode == 130, text
    assert "Interrupted." in text and workers
    assert not any(each.is_running() for each in workers)


def ended(moment: str, *words: str) -> tuple[str, list[psutil.Process]]:
    """Send SIGTERM to a command when it says this; return all that it says, and its workers."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tapegrad.cli", "bench", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(moment):
            break
    workers = psutil.Process(process.pid).children()
    process.terminate()
    out, rest = process.communicate(timeout=60)
    assert process.returncode == 130, rest
    return out + rest, workers


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("command", ["run", "nightly"])
def test_sigterm_is_taken_for_ctrl_c(store: Path, command: str) -> None:
    """What a time limit sends keeps what is measured, says how to go on, and ends the workers."""
    choice = ("--frameworks", "numpy", "--sizes", "small", "--processes", "3")
    text, workers = ended("[2/", command, "operators", *choice, "--store", str(store))
    assert "nterrupted" in text and "tapegrad bench run --resume operators-" in text
    assert workers and not psutil.wait_procs(workers, timeout=5)[1]
    assert blocks_in(store)


def test_sigterm_ends_a_profile(tmp_path: Path) -> None:
    net = tmp_path / "net.py"
    net.write_text(
        "import torch\ndef make_model(): return torch.nn.Linear(8, 8), torch.zeros(4, 8)\n"
    )
    text, workers = ended("in place", "profile", str(net), "--processes", "1", "--rounds", "500")
    assert "Interrupted" in text
    assert workers and not psutil.wait_procs(workers, timeout=5)[1]


def test_a_resumed_run_keeps_its_options(store: Path) -> None:
    first = bench.run(
        "operators", frameworks=["numpy"], filter=["exp"], sizes=["small"], store=store, **QUICK
    )
    again = bench.run("operators", store=store, resume="latest")
    assert again.run.id == first.run.id and len(again.blocks) == len(first.blocks)


class Intruder(Listener):
    """Stores a block of the run before the run has it, as another process would."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def started(self, run: Run, cases: list[Case], contenders: list[str]) -> None:
        with open_store(self._place) as store:
            store.add_block(run.id, Block(cases[0].key, "numpy", "forward", 0, 0, [1.0]))

    def earlier(self, results: Results) -> None:
        results.blocks.clear()


@pytest.mark.usefixtures("alone")
def test_a_run_needs_no_git_and_goes_on_with_its_own_suite_only(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = bench.run(
        "operators", frameworks=["numpy"], filter=["exp"], sizes=["small"],
        phases=["forward"], store=store, **QUICK,
    )  # fmt: skip
    assert found.run.status == "finished" and not found.run.commit
    with pytest.raises(BenchError, match="is of operators, not of graphs"):
        bench.run("graphs", store=store, resume="latest")


@pytest.mark.usefixtures("alone")
def test_a_run_that_another_process_measures_is_left_to_it(store: Path) -> None:
    with pytest.raises(BenchError, match="is measured by another process, too") as caught:
        bench.run(
            "operators", frameworks=["numpy"], filter=["exp"], sizes=["small"],
            phases=["forward"], store=store, listener=Intruder(store), **QUICK,
        )  # fmt: skip
    assert caught.value.exit_code == 3
    with open_store(store) as opened:
        assert opened.runs()[0].status == "running"


VERSIONED = """
    class Own(Numpy):
        def version(self): return "{}"
        def details(self): return {{**super().details(), "library": "{}"}}
"""


@pytest.mark.usefixtures("alone")
def test_a_run_does_not_go_on_with_another_version_of_a_framework(
    store: Path, tmp_path: Path
) -> None:
    own = adapter(tmp_path, VERSIONED.format("1.0", "OpenBLAS"))
    first = bench.run(
        "operators", frameworks=["numpy", own], filter=["exp"], sizes=["small"],
        phases=["forward"], store=store, **QUICK,
    )  # fmt: skip
    for version, library, difference in (
        ("2.0", "OpenBLAS", r"\(version 1\.0, .* then; version 2\.0, .* now\)"),
        ("1.0", "MKL", "library: OpenBLAS then, MKL now"),
    ):
        adapter(tmp_path, VERSIONED.format(version, library))
        with pytest.raises(BenchError, match=f"own has changed since it began.*{difference}"):
            bench.run("operators", store=store, resume="latest")
        with open_store(store) as opened:
            kept = opened.load(first.run.id)
        assert kept.frameworks == first.frameworks and kept.blocks == first.blocks
        assert kept.run.status == "finished"
    adapter(tmp_path, VERSIONED.format("1.0", "OpenBLAS"))
    assert bench.run("operators", store=store, resume="latest").run.id == first.run.id


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"frameworks": ["troch"]}, "Did you mean torch"),
        ({"frameworks": ["torch@0"]}, "thread count '0'"),
        ({"sizes": ["smal"]}, "Did you mean small"),
        ({"phases": ["backwards"]}, "Did you mean backward"),
        ({"dtype": "float23"}, "Did you mean float32"),
        ({"device": "cuda0"}, "Did you mean cuda"),
        ({"device": "cuda", "cache": "cold"}, "would not empty the caches of cuda"),
        ({"filter": ["sofmax"]}, "Did you mean softmax"),
        ({"threads": 0}, "threads must be"),
        ({"processes": 0}, "processes must be"),
        ({"rounds": -1}, "rounds must be"),
        ({"block": 0.0}, "block"),
        ({"resume": "nothing"}, "nothing"),
        ({"resume": "latest"}, "latest"),
    ],
)
def test_wrong_options_are_refused(store: Path, options: dict[str, object], message: str) -> None:
    open_store(store).close()
    with pytest.raises((BenchError, StoreError), match=message):
        bench.run("operators", store=store, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SUITE = 3", "does not define SUITE"),
        ("1 +", "SyntaxError"),
        ("import no_such_module", "no_such_module"),
    ],
)
def test_malformed_suites_are_refused(store: Path, tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(MalformedFileError, match=message):
        bench.run(str(file), store=store)
    with pytest.raises(MalformedFileError, match="no suite file"):
        bench.run(str(tmp_path / "none.py"), store=store)
    with pytest.raises(UnknownNameError, match="Did you mean operators"):
        bench.run("operator", store=store)


def test_what_a_suite_file_prints_stays_out_of_reports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.py"
    file.write_text("print('hello')\nfrom tapegrad.bench.suites.operators import SUITE\n")
    suites.find(str(file))
    assert capsys.readouterr() == ("", "hello\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "ADAPTERS"),
        ("1 +", "not Python"),
        ("ADAPTERS = {}", "ADAPTERS"),
        ("ADAPTERS = " + "-" * 50_000 + "1", "nested too deeply"),
    ],
    ids=["no adapters", "no Python", "none", "nested"],
)
def test_malformed_adapters_are_refused(
    store: Path, tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(MalformedFileError, match=message):
        bench.run("operators", frameworks=[str(file)], store=store)


def test_errors_are_errors_of_the_bench() -> None:
    assert issubclass(UnknownNameError, BenchError) and issubclass(MalformedFileError, BenchError)


def test_a_case_is_found_by_its_label_though_that_has_commas() -> None:
    einsum = "einsum 4x8x16 4x8x16 equation=bmk,bnk->bmn"
    names = f"tanh,{einsum},s[iou]n"
    asked = Options.read({"suite": "operators", "filter": names, "sizes": "small"})
    cases = select(suites.find("operators"), asked)
    found = {case.op if case.op != "einsum" else case.label for case in cases}
    assert found == {"tanh", einsum, "sin"}
    unknown = Options.read({"suite": "operators", "filter": "einsum 4x8 equation=bmk"})
    with pytest.raises(BenchError, match="equation=bmk"):
        select(suites.find("operators"), unknown)


def test_phases_are_asked_of_the_cases_that_have_them() -> None:
    def asked(*phases: str) -> list[tuple[bool, tuple[str, ...]]]:
        options = Options(suite="cnn-models", filter=["resnet18 *"], phases=list(phases))
        cases = select(suites.find("cnn-models"), options)
        return [(case.attrs["training"], case.phases) for case in cases]

    assert asked("forward", "inference", "forward") == [
        (True, ("forward",)),
        (False, ("inference",)),
    ]
    assert asked("step") == [(True, ("step",))]
    assert asked("build") == [(True, ("build",)), (False, ("build",))]
    assert asked("inference", "build") == [(True, ("build",)), (False, ("inference", "build"))]
