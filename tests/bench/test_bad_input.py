"""What users get wrong is refused before anything is stored, in words that help."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tapegrad import bench
from tapegrad.bench import Array, Bar, Case, Suite, frameworks, shapes, suites
from tapegrad.bench.driver import Options, select
from tapegrad.bench.errors import BenchError, MalformedFileError, UnknownNameError
from tapegrad.bench.process import install_hint
from tapegrad.bench.report.figures import NOT_MEASURED, bars_of
from tapegrad.bench.results import Machine, Results, Run
from tapegrad.bench.store import StoreMissingError, open_store

X = Array("x", (2, 3))
ADD = Case("operator", "add", (X, Array("y", (2, 3))), size="small", phases=("forward",))
EXP = Case("operator", "exp", (X,), phases=("forward",))
TINY = Suite("tiny", "for tests", (ADD, EXP), frameworks=("numpy",))
QUICK: dict[str, Any] = {"processes": 1, "rounds": 1, "block": 0.001}
FILE = """
from tapegrad.bench import Array, Case, Suite
cases = [
    Case("operator", op, (Array("x", (2, 3)),), size="small", phases=("forward",))
    for op in OPS
]
SUITE = Suite("mine", "for tests", tuple(cases), frameworks=("numpy",))
"""
PROCESSORS = len(os.sched_getaffinity(0))
TOO_MANY = f"threads must be from 1 to {PROCESSORS}, the processors .*, not 9999"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TAPEGRAD_CACHE", str(tmp_path / "cache"))  # no slow frameworks as witnesses
    return tmp_path / "results.sqlite"


def anything(value: object) -> Any:
    """Return a value that a type checker would not let pass."""
    return value


def with_input(**changes: object) -> Case:
    return replace(EXP, inputs=(replace(X, **anything(changes)),))


def with_case(**changes: object) -> Case:
    return replace(EXP, **anything(changes))


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("exp", r"Case, not one with 'exp' \(str\)"),
        (with_input(shape=(-1, 3)), "shape of input x must be .*, not .-1, 3"),
        (with_input(shape=(2.0,)), "shape of input x must be a tuple of whole numbers"),
        (with_input(shape=(np.int64(2),)), "shape of input x"),
        (with_input(shape=4), r"shape of input x must be .* not 4 \(int\)"),
        (with_input(kind="integers"), "input x: integers are drawn from 0 up to `high`"),
        (with_input(kind="integers", high=2.5), "whole number of 1 or more, not 2.5"),
        (with_input(kind="norml"), "no kind of input x 'norml'. Did you mean normal"),
        (with_input(name="my x"), "identifier like 'x', not 'my x'"),
        (with_input(name="../x"), "identifier like 'x'"),
        (with_input(grad="no"), "grad of input x must be True or False"),
        (with_case(inputs=(X, X)), "two inputs are named 'x'"),
        (with_case(inputs=X), "inputs must be a tuple of Array"),
        (with_case(inputs=("x",)), "inputs must be a tuple of Array"),
        (with_case(op=""), "op must be the name"),
        (with_case(dtype="float23"), "no dtype 'float23'. Did you mean float32"),
        (with_case(dtype=np.float32), "no dtype"),
        (with_case(attrs={"dim": np.int64(1)}), r"attribute 'dim' must be .* JSON .*\(int64\)"),
        (with_case(attrs={"by": float("nan")}), "attribute 'by' must be of what JSON"),
        (with_case(attrs={1: 2}), "attrs must be a dictionary from names"),
        (with_case(reduction=0), r"reduction must be a whole number from 1 to 2\*\*53, not 0"),
        (with_case(reduction=10**40), "reduction must be a whole number from 1"),
        (with_case(reduction=1.5), "reduction must be"),
        (with_case(flops=-1.0), "flops must be"),
        (with_case(level="operators"), "no level 'operators'. Did you mean operator"),
        (with_case(size="smal"), "no size 'smal'. Did you mean small"),
        (with_case(phases=("fwd",)), "no phase 'fwd'. Did you mean forward"),
        (with_case(phases="forward"), r"phases must be a tuple .* not 'forward' \(str\)"),
        (with_case(phases=()), "phases must be a tuple"),
        (with_case(phases=("forward", "forward")), "phase 'forward' is there twice"),
    ],
)
def test_flawed_cases_are_refused(store: Path, case: Any, message: str) -> None:
    with pytest.raises(MalformedFileError, match=message) as caught:
        bench.run(replace(TINY, cases=(ADD, case)), store=store, **QUICK)
    assert "suite tiny: " in str(caught.value)
    with open_store(store) as opened:
        assert opened.runs() == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cases": ()}, "at least one Case, not an empty one"),
        ({"cases": ADD}, "cases must be a tuple"),
        ({"cases": (ADD, EXP, replace(ADD, size="large"))}, "cases 1 and 3 are the same work, add"),
        ({"name": ""}, "name must be a text"),
        ({"name": "tiny-again"}, "-again ends the names of runs"),
        ({"name": "my/suite"}, "neither spaces nor slashes: 'my/suite'"),
        ({"name": "my suite"}, "neither spaces nor slashes"),
        ({"name": "my\nsuite"}, "neither spaces nor slashes"),
        ({"name": "my\x1b[31msuite"}, "a suite's name is text that can be printed"),
        ({"name": 61 * "a"}, "a suite's name is .* of at most 60 characters"),
        ({"defaults": 2}, "defaults must be a dictionary"),
        ({"at_level": ("numpy",)}, "at_level must be a dictionary"),
        ({"frameworks": "numpy"}, r"frameworks must be a tuple .* not 'numpy' \(str\)"),
        ({"at_level": {"operators": ("numpy",)}}, "no level 'operators'"),
        ({"memory_at": ("operators",)}, "no level 'operators'"),
        ({"memory_at": "operator"}, "memory_at must be a tuple of names"),
        ({"at_level": {"operator": "numpy"}}, "at_level.* must be a tuple of names"),
        ({"at_size": {"huge": ("numpy",)}}, "at_size: there is no size 'huge'"),
        ({"bars": (1.0,)}, "bars must be a tuple of Bar"),
    ],
)
def test_flawed_suites_are_refused(store: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(MalformedFileError, match=message):
        bench.run(replace(TINY, **changes), store=store, **QUICK)


def test_a_suite_without_frameworks_wants_some(store: Path) -> None:
    nobody = replace(TINY, frameworks=())
    with pytest.raises(BenchError, match="tiny has no frameworks of its own: name some"):
        bench.run(nobody, store=store, **QUICK)
    assert bench.run(nobody, store=store, frameworks=["numpy"], **QUICK).blocks


def test_a_suite_file_is_checked_by_name(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(FILE.replace("OPS", '["exp", "exp"]'))
    with pytest.raises(MalformedFileError, match=r"mine\.py: cases 1 and 2 are the same work"):
        suites.find(str(file))


def test_a_suite_file_that_exits_is_refused(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("import sys\nsys.exit(0)")
    with pytest.raises(MalformedFileError, match=r"mine.py ends the program by sys.exit\(0\)"):
        bench.run(str(file), store=store)


@pytest.mark.parametrize("name", suites.names())
def test_the_suites_that_ship_have_no_flaws(name: str) -> None:
    suites.find(name).check()


def test_inputs_beyond_the_memory_are_refused_unless_left_out() -> None:
    huge = replace(EXP, inputs=(Array("x", (10**6, 10**7)),), size="large")
    suite = replace(TINY, cases=(ADD, huge))
    with pytest.raises(MalformedFileError, match=r"exp 1000000x10000000 would take 40,000.0 GB"):
        select(suite, Options("tiny"))
    assert select(suite, Options("tiny", sizes=["small"])) == [ADD]


def test_cases_that_differ_in_dtype_alone_are_one_under_a_dtype() -> None:
    suite = replace(TINY, cases=(EXP, replace(EXP, dtype="float64")))
    suite.check()
    assert len(select(suite, Options("tiny"))) == 2
    assert len(select(suite, Options("tiny", dtype="float64"))) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"framework": ["numpy"]}, "no option 'framework'. Did you mean frameworks"),
        ({"round": 3}, "Did you mean rounds"),
        ({"frameworks": 3}, "option frameworks: expected a list, got int"),
        ({"frameworks": " , "}, "option frameworks names nothing; separate names by commas"),
        ({"filter": "exp,nothing*"}, r"no case in suite tiny for 'nothing\*'"),
        ({"frameworks": ["numpy", 3]}, r"option frameworks\[.*: expected str, got int"),
        ({"rounds": "3"}, "option rounds: expected int, got str"),
        ({"block": "fast"}, "option block: expected float, got str"),
        ({"memory": 1}, "option memory: expected bool, got int"),
        ({"seed": -1}, "seed must be from 0 to"),
        ({"timeout": float("inf")}, "timeout"),
        ({"threads": 9999}, TOO_MANY),
        ({"frameworks": ["numpy@9999"]}, TOO_MANY),
        ({"frameworks": ["numpy@0"]}, "numpy@0: thread count '0' is no number from 1"),
        ({"frameworks": ["numpy@"]}, "thread count ''"),
        ({"frameworks": ["numpy@1@2"]}, "at most one @threads"),
        ({"filter": ["exp", "nothing*"]}, r"no case in suite tiny for 'nothing\*'"),
        ({"filter": ["ad"]}, "Did you mean add"),
        ({"sizes": ["large"]}, "no case in suite tiny of size 'large'. .*small, medium"),
        (
            {"sizes": ["small"], "filter": ["exp"]},
            "no case in suite tiny that matches exp of size 'small'. .*medium",
        ),
        ({"resume": "latest", "rounds": 5}, "run's own options; leave out rounds"),
    ],
)  # fmt: skip
def test_wrong_options_are_refused(store: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BenchError, match=message):
        bench.run(TINY, store=store, **options)


@pytest.mark.parametrize(
    ("option", "text", "listed"),
    [
        ("frameworks", "numpy, numpy@2", ["numpy", "numpy@2"]),
        ("filter", "conv*", ["conv*"]),
        ("filter", "exp,,add ", ["exp", "add"]),
        ("sizes", "small,medium", ["small", "medium"]),
        ("phases", "forward", ["forward"]),
        ("shape", "x=64x1024,weight=2048x1024", ["x=64x1024,weight=2048x1024"]),
        ("attr", "dim=0", ["dim=0"]),
    ],
)
def test_text_is_read_as_on_the_command_line(option: str, text: str, listed: list[str]) -> None:
    read = Options.read({"suite": "operators", option: text})
    assert read == Options.read({"suite": "operators", option: listed})
    assert getattr(read, option) == listed


def test_text_chooses_cases_as_a_list_does(store: Path) -> None:
    results = bench.run(
        TINY, store=store, frameworks="numpy", filter="exp,ad*", sizes="small", phases="forward",
        processes=1, rounds=1, block=1e-3,
    )  # fmt: skip
    assert {case.op for case in results.case_by_key().values()} == {"add"}
    assert {(block.key.framework, block.key.phase) for block in results.blocks} == {
        ("numpy", "forward")
    }


def test_a_list_of_nothing_is_not_shown() -> None:
    with pytest.raises(BenchError) as caught:
        shapes.customised(suites.find("operators"), [], ["foo=1"], "", ["tanh"])
    assert str(caught.value) == "There is no attribute of tanh 'foo'. There is none at all."
    many = [f"name{number}" for number in range(30)]
    error = UnknownNameError("suite", "x", many, "A path to a suite file works too.")
    assert str(error) == "There is no suite 'x'. A path to a suite file works too."


def test_a_store_to_resume_from_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreMissingError, match=r"there is no store .*none\.sqlite"):
        bench.run(TINY, store=tmp_path / "none.sqlite", resume="latest")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suite", [Path("mine.py"), None, [ADD]])
def test_what_is_no_suite_is_refused(store: Path, suite: Any) -> None:
    with pytest.raises(BenchError, match="suite must be a name, a path as text or"):
        bench.run(suite, store=store)


class Interrupts(bench.Listener):
    """Stops a run before a case."""

    def __init__(self, before: int) -> None:
        self._before = before

    def case(self, index: int, case: Case) -> None:
        if index == self._before:
            raise KeyboardInterrupt


def test_a_run_of_a_suite_object_goes_on_with_the_object(store: Path) -> None:
    first = bench.run(TINY, store=store, listener=Interrupts(1), **QUICK)
    assert first.run.status == "interrupted" and len(first.cells) == 1
    again = bench.run(TINY, store=store, resume="latest")
    assert again.run.id == first.run.id and again.run.status == "finished"
    assert len(again.cells) == 2


def test_a_run_whose_suite_changed_does_not_go_on(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(FILE.replace("OPS", '["exp", "tanh"]'))
    bench.run(str(file), store=store, listener=Interrupts(0), **QUICK)
    file.write_text(FILE.replace("OPS", '["exp", "sin"]'))
    message = r"its suite has changed since it began \(sin 2x3 is new, tanh 2x3 is gone\)"
    with pytest.raises(BenchError, match=message):
        bench.run(str(file), store=store, resume="latest")


def test_a_run_of_files_goes_on_from_another_folder(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(FILE.replace("OPS", '["exp", "tanh"]'))
    write_adapters(tmp_path / "own.py", '{"own": "Own"}')
    monkeypatch.chdir(tmp_path)
    options = {"frameworks": ["own.py", "own.py:own@1"], **QUICK}
    first = bench.run("mine.py", store=store, listener=Interrupts(0), **options)
    assert first.run.options["suite"] == str(tmp_path / "mine.py")
    assert first.run.options["frameworks"] == [
        str(tmp_path / "own.py"),
        str(tmp_path / "own.py:own@1"),
    ]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    again = bench.run("", store=store, resume="latest")
    assert again.run.status == "finished" and len(again.cells) == 4
    assert all(cell.timed for cell in again.cells)


def write_adapters(file: Path, adapters: str, more: str = "") -> str:
    """Write an adapter file that is NumPy's under other names, and return its path."""
    file.write_text(
        f"from tapegrad.worker.adapters.numpy import Numpy as Own\nADAPTERS = {adapters}\n{more}\n"
    )
    return str(file)


def test_two_contenders_of_one_name_are_refused(store: Path, tmp_path: Path) -> None:
    own = write_adapters(tmp_path / "n2.py", '{"numpy": "Own"}')
    message = r"Two contenders are called 'numpy': one of .*adapters/numpy.py and one of .*n2.py"
    with pytest.raises(BenchError, match=message):
        bench.run(TINY, frameworks=["numpy", own], store=store)
    assert [each.name for each in frameworks.find_all([own, own, f"{own}:numpy"])] == ["numpy"]


def test_a_file_of_several_adapters_wants_a_choice(tmp_path: Path) -> None:
    own = write_adapters(tmp_path / "n2.py", '{"first": "Own", "second": "Own"}')
    with pytest.raises(BenchError, match=r"choose of them: .*n2.py:first, .*n2.py:second"):
        frameworks.find(own)
    with pytest.raises(UnknownNameError, match="Did you mean second"):
        frameworks.find(f"{own}:secnd")
    found = frameworks.find(f"{own}:second@1")
    assert (found.name, found.threads) == ("second@1", 1)
    assert frameworks.find(f"{own}:second").name == "second"


def test_environments_of_files_do_not_collide(tmp_path: Path) -> None:
    names = [frameworks.find("numpy").environment.name]
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        own = write_adapters(folder / "numpy.py", '{"own": "Own"}')
        names.append(frameworks.find(own).environment.name)
    assert names[0] == "numpy" and len(set(names)) == 3
    assert all(name.startswith("numpy-") for name in names[1:])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("REQUIRES = 5", r"REQUIRES must be a list .* not 5"),
        ('REQUIRES = "torch"', r"REQUIRES must be a list .* not 'torch'"),
        ("REQUIRES = [1]", "REQUIRES must be a list"),
        ("IMPORTS = ['torch']", "IMPORTS must be the name of a module"),
        ('ADAPTERS = {"a@b": "Own"}', "'a@b' in ADAPTERS may hold none of"),
        (r'ADAPTERS = {"a\0b": "Own"}', "a name in ADAPTERS is text that can be printed"),
        (f'ADAPTERS = {{"{61 * "a"}": "Own"}}', "a name in ADAPTERS is .* of at most 60"),
        ("ADAPTERS = {1: 2}", "does not define ADAPTERS"),
    ],
)
def test_flawed_adapter_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    own = write_adapters(tmp_path / "own.py", '{"own": "Own"}', text)
    with pytest.raises(MalformedFileError, match=message):
        frameworks.find(own)


def test_annotated_assignments_are_read(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(
        'ADAPTERS: dict[str, str] = {"own": "Own"}\nREQUIRES: list[str] = ["x"]\nIMPORTS: str\n'
    )
    found = frameworks.find(str(file))
    assert (found.name, found.adapter, found.requires) == ("own", "Own", ("x",))


def test_the_install_hint_shows_what_was_given(tmp_path: Path) -> None:
    one = write_adapters(tmp_path / "one.py", '{"own": "Own"}')
    two = write_adapters(tmp_path / "my two.py", '{"a": "Own", "b": "Own"}')
    hints = {name: install_hint(frameworks.find(name)) for name in (one, f"{two}:b", "jax-eager@1")}
    command = "run: tapegrad bench frameworks install "
    assert list(hints.values()) == [f"{command}{one}", f"{command}'{two}:b'", f"{command}jax-eager"]
    assert frameworks.find("jax-eager").environment == frameworks.find("jax").environment


def broken(results: Results) -> float | None:
    raise ZeroDivisionError


@pytest.mark.parametrize("found", [broken, lambda results: "text"])
def test_a_bar_that_fails_is_not_measured(
    found: Callable[[Results], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = replace(TINY, bars=(Bar("broken", 1.0, found), Bar("fine", 1.0, lambda results: 2.0)))
    monkeypatch.setattr(suites, "find", lambda name: suite)
    results = Results(Run("r", "tiny", 0.0, Machine("f", "laptop")))
    assert [bar.verdict for bar in bars_of(results)] == [NOT_MEASURED, "met"]


def test_an_operator_that_nobody_has_is_refused_before_workers_start(
    store: Path, tmp_path: Path
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(FILE.replace("OPS", '("exp", "sofmax")'))
    with pytest.raises(UnknownNameError, match=r"no operator 'sofmax'\. Did you mean softmax"):
        bench.run(str(file), store=store, **QUICK)
    with open_store(store) as opened:
        assert opened.runs() == []


def test_an_adapter_of_the_users_may_have_operators_of_its_own(store: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "from tapegrad.worker.adapters.numpy import Numpy\n"
        'ADAPTERS = {"own": "Own"}\n'
        "class Own(Numpy):\n"
        '    operators = {"cube": lambda x: x**3}\n'
    )
    file = tmp_path / "mine.py"
    file.write_text(FILE.replace("OPS", '("cube",)'))
    results = bench.run(str(file), store=store, frameworks=[str(own)], **QUICK)
    assert [cell.verdict for cell in results.cells] == ["unconfirmed"]
