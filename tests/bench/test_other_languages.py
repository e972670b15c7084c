"""Workers that are not Python: one in JavaScript, ones that fail, and what the docs say of all."""

from __future__ import annotations

import inspect
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tapegrad.bench import answers
from tapegrad.bench.errors import MalformedFileError, WorkerError
from tapegrad.bench.frameworks import find
from tapegrad.bench.process import install_hint
from tapegrad.bench.results import Cell
from tapegrad.bench.store import open_store
from tapegrad.cli import main
from tapegrad.worker.case import Array, Case
from tapegrad.worker.session import Session

from .conftest import Start
from .test_cli import environment
from .test_worker import Save

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
DOCS = (ROOT / "docs" / "workers.md").read_text()
NODE = pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
#: Every kind of array and gradient that the worker in JavaScript knows, and what it lacks.
SUITE = """
from tapegrad.bench import Array, Case, Suite

def case(op, *inputs, dtype="float32", reduction=1, phases=("forward", "backward"), **attrs):
    return Case("operator", op, inputs, attrs, "small", dtype, phases, reduction)

X = Array("x", (6, 10))
SUITE = Suite("tiny", "for tests", (
    case("softmax", X, dim=0, reduction=10, phases=("forward", "backward", "step", "inference")),
    case("matmul", Array("a", (6, 10)), Array("b", (10, 4)), dtype="float64", reduction=10),
    case("embedding", Array("index", (9,), grad=False, kind="integers", high=5),
         Array("weight", (5, 3))),
    case("flip", X, dim=0),
    case("where", Array("mask", (6, 10), grad=False, kind="flags"), X, Array("y", (6, 10))),
))
"""
GREETING = '{"version": "1", "python": "", "details": {}, "devices": ["cpu"]}'
#: Name -> command of a worker that fails in a way of its own.
FAILURES = {
    "missing": ["no-such-program"],
    "rubbish": ["sh", "-c", "while read line; do echo rubbish; done"],
    "silent": ["sh", "-c", "read line; exit 3"],
    "dying": ["sh", "-c", f"read line; echo '{GREETING}'; read line; kill -SEGV $$"],
    "headless": ["./headless"],
}


def write(folder: Path, name: str, command: object) -> str:
    """Write an adapter file that names a command, and return its path."""
    file = folder / f"{name}.py"
    file.write_text(f'ADAPTERS = {{"{name}": "{name}"}}\nCOMMAND = {command!r}\n')
    return str(file)


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str, str], Cell]:
    """Run the suite over JavaScript and all failures at once, by framework, operator and phase."""
    home = tmp_path_factory.mktemp("home")
    (home / "tiny.py").write_text(SUITE)
    (home / "headless").write_bytes(b"\0")
    (home / "headless").chmod(0o755)
    own = [write(home, name, command) for name, command in FAILURES.items()]
    names = ",".join(["numpy", str(EXAMPLES / "javascript.py"), *own])
    quick = ["--processes", "1", "--rounds", "1", "--block", "0.002"]
    words = ["bench", "run", "tiny.py", "--frameworks", names, "--store", "found.sqlite", *quick]
    subprocess.run(
        [sys.executable, "-m", "tapegrad.cli", *words],
        env=environment(home),
        cwd=home,
        capture_output=True,
        timeout=300,
        check=False,
    )
    with open_store(home / "found.sqlite") as store:
        results = store.load(store.resolve("latest").id)
    ops = {key: case.op for key, case in results.case_by_key().items()}
    return {(each.framework, ops[each.case], each.phase): each for each in results.cells}


@NODE
@pytest.mark.parametrize(
    ("op", "phases"),
    [
        ("softmax", ("forward", "backward", "step", "inference")),
        ("matmul", ("forward", "backward")),
        ("embedding", ("forward", "backward")),
    ],
)
def test_a_worker_in_javascript_is_checked(
    cells: dict[tuple[str, str, str], Cell], op: str, phases: tuple[str, ...]
) -> None:
    found = {phase: cells["javascript", op, phase] for phase in phases}
    assert {phase: (each.verdict, each.reason) for phase, each in found.items()} == dict.fromkeys(
        phases, ("checked", "")
    )


@NODE
@pytest.mark.parametrize("op", ["flip", "where"])
def test_what_the_worker_in_javascript_lacks_is_named(
    cells: dict[tuple[str, str, str], Cell], op: str
) -> None:
    """Also where it could not read the inputs, such as flags."""
    cell = cells["javascript", op, "forward"]
    assert (cell.verdict, cell.reason) == ("unsupported", f"no {op} in this worker's table")


@pytest.mark.parametrize(
    ("name", "verdict", "reason"),
    [
        (
            "missing",
            "not installed",
            "needs the program no-such-program, which is not there: install it",
        ),
        ("rubbish", "failed", "answered `hello` with rubbish: b'rubbish'"),
        ("silent", "crashed", "ended with exit code 3"),
        ("dying", "crashed", "died of SIGSEGV"),
        ("headless", "crashed", "does not start: [Errno 8] Exec format error"),
    ],
)
def test_a_worker_that_fails_takes_only_its_own_cells(
    cells: dict[tuple[str, str, str], Cell], name: str, verdict: str, reason: str
) -> None:
    own = [cell for (framework, _, _), cell in cells.items() if framework == name]
    assert {cell.verdict for cell in own} == {verdict}
    assert all(reason in cell.reason for cell in own), own
    assert cells["numpy", "softmax", "forward"].timed


@pytest.mark.parametrize("command", ["node", [], ["node", 1], [""], None])
def test_flawed_commands_are_refused(tmp_path: Path, command: object) -> None:
    with pytest.raises(MalformedFileError, match="COMMAND must be a list of a program and its arg"):
        find(write(tmp_path, "own", command))


def test_a_program_is_looked_up_from_the_files_folder(tmp_path: Path) -> None:
    program = tmp_path / "worker"
    contender = find(write(tmp_path, "own", ["./worker", "--fast"]))
    assert contender.interpreter() is None
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert contender.interpreter() == program
    assert contender.arguments() == ("--fast",)


def test_what_pip_cannot_install_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = write(tmp_path, "own", ["no-such-program"])
    with pytest.raises(SystemExit) as end:
        main(["bench", "frameworks", "install", own])
    assert end.value.code
    assert "own needs the program no-such-program" in " ".join(capsys.readouterr().err.split())


@NODE
def test_a_worker_in_javascript_says_what_it_does_not_know(start: Start) -> None:
    worker = start(str(EXAMPLES / "javascript.py"))
    assert worker.hello["python"].startswith("Node ")
    with pytest.raises(WorkerError, match="no message profile") as caught:
        worker.ask("profile", seconds=1)
    assert caught.value.kind == "unsupported"
    assert worker.alive


@NODE
def test_a_worker_in_javascript_tells_memory_and_cold_times(start: Start, save: Save) -> None:
    worker = start(str(EXAMPLES / "javascript.py"))
    x = np.ones((1000, 1000))
    case = Case("operator", "exp", (Array("x", x.shape),), dtype="float64")
    worker.ask("prepare", case=case.as_dict(), arrays=save(x=x))
    peak = worker.ask("memory", phase="forward")["resident"]
    assert peak >= 2 * x.nbytes
    cold = worker.ask("time", phase="forward", seconds=0.02, cold=True)
    assert (cold["inner"], cold["warmup_calls"]) == (1, 0)
    assert len(cold["samples"]) <= 10


# What the docs say


def sections(text: str = DOCS) -> dict[str, str]:
    """Return the part of the docs about each message."""
    parts = re.split(r"^### `(\w+)`\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def fields(section: str, kind: str) -> set[str]:
    """Return the fields that a table of the docs lists, of a message (`asks`) or an answer."""
    return set(re.findall(rf"^\| {kind} \| `(\w+)` \|", section, flags=re.MULTILINE))


def test_every_message_is_documented_and_no_other() -> None:
    handled = {name.removeprefix("do_") for name in dir(Session) if name.startswith("do_")}
    assert handled == answers.ANSWERS.keys()
    assert sections().keys() == handled | {"bye"}


@pytest.mark.parametrize("message", answers.ANSWERS)
def test_documented_fields_are_those_of_the_protocol(message: str) -> None:
    section = sections()[message]
    asked = set(inspect.signature(getattr(Session, f"do_{message}")).parameters) - {"self"}
    assert fields(section, "asks") == asked
    answered = {field.name for field in msgspec.structs.fields(answers.ANSWERS[message])}
    assert fields(section, "answers") == answered


def conversation() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the questions and answers of the docs' example."""
    block = re.search(r"```json\n(.*?)```", DOCS, flags=re.DOTALL)
    assert block is not None
    lines = [json.loads(line) for line in block[1].splitlines()]
    return list(zip(lines[:-1:2], lines[1::2], strict=True))


def test_the_example_conversation_follows_the_protocol() -> None:
    asked = [question["do"] for question, _ in conversation()]
    assert asked == ["hello", "prepare", "feed", "check", "time", "prepare"]
    for question, answer in conversation():
        do = question.pop("do")
        inspect.signature(getattr(Session, f"do_{do}")).bind(None, **question)
        if "complaint" not in answer:
            answers.check(do, answer)


def test_the_worker_in_julia_knows_every_message() -> None:
    contender = find(str(EXAMPLES / "flux.py"))
    assert contender.command[0] == "julia"
    text = (EXAMPLES / contender.command[-1]).read_text()
    table = text[text.index("const MESSAGES") :]
    known = set(re.findall(r'^    "(\w+)" => ', table, flags=re.MULTILINE))
    assert known | {"bye"} == sections(DOCS.partition("## Messages of other commands")[0]).keys()
    if contender.interpreter() is None:
        assert "flux needs the program julia" in install_hint(contender)


def test_the_adapter_of_tensorgrad_is_read_without_tensorgrad() -> None:
    contender = find(str(EXAMPLES / "tensorgrad_adapter.py"))
    assert (contender.name, contender.imports) == ("tensorgrad", "tensorgrad")
