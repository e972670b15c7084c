"""The real command line over real workers, as a user would try it."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tapegrad import __version__
from tapegrad.bench.faults import FOLDER
from tapegrad.bench.results import TIMED, Machine, Run
from tapegrad.bench.store import StoreError, open_store
from tapegrad.cli import main

COMMANDS = (
    "run",
    "list",
    "frameworks",
    "runs",
    "report",
    "compare",
    "nightly",
    "audit",
    "machine",
    "coverage",
    "profile",
)
#: Contenders that are always there.
FRAMEWORKS = "numpy,c"
#: The least that a run can be.
QUICK = ("--processes", "1", "--rounds", "2", "--block", "0.001")
SUITE = """
from tapegrad.bench import Array, Bar, Case, Suite

def graph(ops):
    return Case("graph", "graph", (Array("x", (16, 100), kind="uniform"),),
                {"family": "chain", "ops": ops, "seed": 0, "target": "sum"},
                "small", "float64", ("build", "compile", "step"), reduction=2 * ops)

def add(side):
    return Case("operator", "add", (Array("x", (side, 4)), Array("y", (side, 4))), size="small")

SUITE = Suite("tiny", "for tests", (graph(100), *(add(side) for side in range(4, 4 + COUNT))),
              frameworks=("numpy", "c"), bars=(Bar("reachable", BOUND, lambda results: 1.0),))
"""


def environment(home: Path) -> dict[str, str]:
    """Return an environment with a data and a cache folder of its own."""
    own = {"TAPEGRAD_DATA": str(home / "data"), "TAPEGRAD_CACHE": str(home / "cache")}
    return {**os.environ, **own, "COLUMNS": "200"}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tapegrad.cli", *arguments]


def call(home: Path, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        env=environment(home) | extra,
        cwd=home,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


class Answer(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


Here = Callable[..., Answer]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    """Give the command line in this process: a second faster where nothing is measured."""

    def call(home: Path, *arguments: str) -> Answer:
        for name, value in environment(home).items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(home)
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main(arguments)
        return Answer(int(end.value.code or 0), *capsys.readouterr())

    return call


def write_suite(folder: Path, count: int = 1, bound: float = 1.0) -> str:
    file = folder / "tiny.py"
    file.write_text(SUITE.replace("COUNT", str(count)).replace("BOUND", str(bound)))
    return str(file)


def make_store(home: Path) -> None:
    """Make the store that is there by default, without runs."""
    open_store(home / "data" / "results.sqlite").close()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def measured(home: Path) -> subprocess.CompletedProcess[str]:
    """Run a suite once; several tests look at what came out."""
    file = write_suite(home)
    arguments = ("--frameworks", FRAMEWORKS, "--chart", "chart.png")
    return call(home, "bench", "run", file, *QUICK, *arguments)


def document(here: Here, home: Path) -> Any:
    found = here(home, "bench", "report", "--format", "json")
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


# Explaining itself


@pytest.mark.parametrize("words", [(), ("bench",)])
def test_without_arguments_it_explains_itself(words: Sequence[str], tmp_path: Path) -> None:
    found = call(tmp_path, *words)
    assert found.returncode == 0
    for text in ("Examples:", "Commands:", "Exit codes:", "130"):
        assert text in found.stdout
    assert found.stdout.count("  tapegrad bench ") >= 3


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, here: Here, tmp_path: Path) -> None:
    found = here(tmp_path, "bench", name, "--help")
    assert found.returncode == 0
    assert found.stdout.startswith(f"Usage: tapegrad bench {name}")
    assert len(found.stdout.splitlines()) > 5


def test_help_needs_neither_engine_nor_numpy_nor_rich(tmp_path: Path) -> None:
    code = (
        "import sys; from tapegrad.cli import main\n"
        "try: main(['bench', 'run', '--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'tapegrad._core', 'tapegrad.bench', 'numpy', 'torch', 'rich'}\n"
        "print(heavy & set(sys.modules), file=sys.stderr)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert found.stderr.strip() == "set()"


def test_a_run_does_not_import_the_engine(tmp_path: Path) -> None:
    arguments = ["bench", "run", write_suite(tmp_path), "--frameworks", "numpy", *QUICK]
    code = (
        "import sys; from tapegrad.cli import main\n"
        f"try: main({arguments!r})\n"
        "except SystemExit as end: code = end.code\n"
        "assert code == 0, code\n"
        "assert not {'tapegrad._core', 'tapegrad.scalar', 'torch'} & set(sys.modules)"
    )
    subprocess.run(
        [sys.executable, "-c", code],
        env=environment(tmp_path),
        capture_output=True,
        check=True,
        cwd=tmp_path,
    )


def test_version(tmp_path: Path) -> None:
    assert call(tmp_path, "--version").stdout == f"tapegrad {__version__}\n"


def test_list_shows_suites_and_cases(here: Here, tmp_path: Path) -> None:
    suites = here(tmp_path, "bench", "list").stdout
    assert "operators" in suites
    cases = here(tmp_path, "bench", "list", write_suite(tmp_path, count=2)).stdout
    assert "add 4x4 4x4" in cases
    assert "add 5x4 5x4" in cases
    models = here(tmp_path, "bench", "list", "cnn-models").stdout
    assert re.search(r"resnet18 .* x, conv1_weight, bn1_weight, … and \d+ more ", models)


def test_frameworks_says_what_is_there_and_how_to_get_the_rest(here: Here, tmp_path: Path) -> None:
    found = here(tmp_path, "bench", "frameworks").stdout
    assert "numpy " in found
    assert "tapegrad bench frameworks install torch" in found


def test_machine_describes_and_measures(here: Here, tmp_path: Path) -> None:
    found = here(tmp_path, "bench", "machine", "--measure").stdout
    assert "fingerprint" in found
    assert re.search(r"load +\d+\.\d\d\b(?!\d)", found)
    assert "Gflop/s" in found


# A run and its reports


def test_a_run_prints_tables_on_stdout_and_a_line_a_case_on_stderr(
    home: Path, measured: subprocess.CompletedProcess[str]
) -> None:
    assert measured.returncode == 0, measured.stderr
    assert "Graph chain, 100 operations" in measured.stdout
    assert "add 4x4 4x4" in measured.stdout
    assert "[1/2] graph" in measured.stderr
    assert "[2/2] add" in measured.stderr
    assert "\x1b" not in measured.stdout + measured.stderr
    assert "tapegrad bench report tiny-" in measured.stderr
    assert (home / "chart.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("measured")
def test_reports_parse_in_every_format(here: Here, home: Path) -> None:
    results = document(here, home)["results"]
    assert {block["framework"] for block in results["blocks"]} <= set(FRAMEWORKS.split(","))
    lines = list(
        csv.DictReader(io.StringIO(here(home, "bench", "report", "--format", "csv").stdout))
    )
    assert all((line["verdict"] in TIMED) == bool(line["time"]) for line in lines)
    markdown = here(home, "bench", "report", "--format", "md", "--verbose").stdout
    assert markdown.startswith("# Run tiny-")
    assert "--filter 'add 4x4 4x4'" in markdown
    verbose = here(home, "bench", "report", "--verbose").stdout
    assert "--filter 'add 4x4 4x4' --phases forward" in verbose


@pytest.mark.usefixtures("measured")
def test_a_report_goes_to_a_file_and_is_read_back(here: Here, home: Path) -> None:
    assert here(home, "bench", "report", "--output", "run.json").returncode == 0
    again = here(home, "bench", "report", "run.json")
    assert again.stdout == here(home, "bench", "report").stdout


@pytest.mark.usefixtures("measured")
def test_runs_are_listed(here: Here, home: Path) -> None:
    found = here(home, "bench", "runs", "--suite", "tiny")
    assert found.returncode == 0, found.stderr
    for words in (document(here, home)["results"]["run"]["id"], "finished", "numpy, c"):
        assert words in found.stdout
    unknown = here(home, "bench", "runs", "--suite", "tin")
    assert unknown.returncode == 2
    assert "Did you mean tiny" in unknown.stderr


def test_an_empty_store_lists_no_runs_and_says_so(here: Here, tmp_path: Path) -> None:
    make_store(tmp_path)
    found = here(tmp_path, "bench", "runs")
    assert (found.returncode, found.stdout) == (0, "")
    assert "is empty" in found.stderr


def test_long_lists_of_runs_are_cut_and_say_so(here: Here, tmp_path: Path) -> None:
    with open_store(tmp_path / "r.sqlite") as store:
        for number in range(3):
            store.begin(Run(f"r{number}", "s", float(number), Machine("f", "here")), [], [])
    found = here(tmp_path, "bench", "runs", "--limit", "2", "--store", "r.sqlite")
    shown = [word for word in found.stdout.split() if word in ("r0", "r1", "r2")]
    assert shown == ["r2", "r1"]
    assert "--limit 4" in found.stderr


@pytest.mark.usefixtures("measured")
def test_a_run_compared_with_itself_has_not_changed(here: Here, home: Path) -> None:
    found = here(home, "bench", "compare", "latest", "tiny:latest", "--all")
    assert found.returncode == 0, found.stderr
    assert "regressed" not in found.stdout


def test_runs_without_anything_in_common_are_not_the_same(here: Here, tmp_path: Path) -> None:
    with open_store(tmp_path / "data" / "results.sqlite") as store:
        for number, suite in enumerate(("one", "other")):
            store.begin(Run(suite, suite, float(number), Machine("f", "here")), [], [])
    found = here(tmp_path, "bench", "compare", "one", "other")
    assert found.returncode == 4, found.stderr
    assert "Nothing could be compared" in found.stderr


def test_the_first_night_is_the_baseline(tmp_path: Path) -> None:
    file = write_suite(tmp_path)
    words = ("bench", "nightly", file, *QUICK, "--filter", "add", "--frameworks", "numpy")
    found = call(tmp_path, *words, "--processes", "3")
    assert found.returncode == 0, found.stderr
    assert "baseline" in found.stdout


def test_a_missed_bar_ends_with_1(tmp_path: Path) -> None:
    chosen = ("--filter", "add", "--phases", "forward", "--frameworks", "numpy", "--memory")
    found = call(tmp_path, "bench", "run", write_suite(tmp_path, bound=2.0), *QUICK, *chosen)
    assert found.returncode == 1, found.stderr
    assert "Bars" in found.stdout
    assert "A bar was missed" in found.stderr


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--frameworks", "casadi"), "not installed"),
        (("--device", "cuda", "--frameworks", "numpy"), "unsupported"),
    ],
)
def test_nothing_measured_ends_with_4_and_says_why(
    arguments: Sequence[str], word: str, tmp_path: Path
) -> None:
    found = call(tmp_path, "bench", "run", write_suite(tmp_path), *QUICK, *arguments)
    assert found.returncode == 4, found.stderr
    assert word in found.stdout
    assert "Why there is no time" in found.stdout


def test_on_a_terminal_progress_is_live_and_leaves_no_trace_in_the_table(tmp_path: Path) -> None:
    driver, terminal = pty.openpty()
    chosen = ("--filter", "add", "--phases", "forward", "--frameworks", "numpy")
    with subprocess.Popen(
        command("bench", "run", write_suite(tmp_path), *QUICK, *chosen, "--rounds", "30"),
        env=environment(tmp_path) | {"TERM": "xterm-256color"},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=terminal,
        text=True,
    ) as process:
        os.close(terminal)
        shown = b""
        with suppress(OSError):  # the end of a terminal is an error
            while part := os.read(driver, 4096):
                shown += part
        out = process.communicate(timeout=60)[0]
    os.close(driver)
    assert process.returncode == 0, shown
    for words in (b"case 1 of 1", b"so far", b"add 4x4 4x4", b" left"):
        assert words in shown
    assert "\x1b" not in out
    assert "Time of one call" in out


# Interruption


@pytest.mark.usefixtures("ctrl_c_is_heard")
def test_ctrl_c_within_the_first_case_tells_how_to_go_on(tmp_path: Path) -> None:
    """There are blocks, but no time to draw."""
    arguments = ("--processes", "1", "--rounds", "1000", "--frameworks", "numpy", "--filter", "add")
    suite, place = write_suite(tmp_path, 1), tmp_path / "results.sqlite"
    with subprocess.Popen(
        command("bench", "run", suite, *arguments, "--store", str(place), "--chart", "x.png"),
        env=environment(tmp_path),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        deadline = time.monotonic() + 60
        while not blocks_in(place) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert blocks_in(place)
    assert process.returncode == 130, said
    assert "Go on with:" in said
    assert not (tmp_path / "x.png").exists()


def blocks_in(place: Path) -> int:
    """Count the blocks of all runs in a store that may not be there yet."""
    with suppress(StoreError), open_store(place, create=False) as store:
        return sum(each.blocks for each in store.summaries())
    return 0


def test_a_run_whose_times_are_all_mistrusted_has_measured_nothing(tmp_path: Path) -> None:
    late = FOLDER / "clocks.py"
    done = call(
        tmp_path, "bench", "run", write_suite(tmp_path, 1), *QUICK, "--filter", "add",
        "--phases", "forward", "--block", "0.02", "--frameworks", f"{late}:stale later",
    )  # fmt: skip
    assert "mistrusted" in done.stdout and "its blocks take" in done.stdout
    assert done.returncode == 4, done.stderr


@pytest.mark.usefixtures("ctrl_c_is_heard")
def test_ctrl_c_keeps_what_was_measured_and_resume_completes_it(here: Here, tmp_path: Path) -> None:
    count = 8
    arguments = ("bench", "run", write_suite(tmp_path, count), *QUICK, "--frameworks", "numpy")
    with subprocess.Popen(
        command(*arguments),
        env=environment(tmp_path),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("[2/"):
                process.send_signal(signal.SIGINT)
                break
        out, rest = process.communicate(timeout=60)
    assert process.returncode == 130, rest
    assert "(interrupted)" in out
    assert "Time of one call" in out
    run = next(word for word in rest.split("--resume ")[1].split())
    before = document(here, tmp_path)["results"]
    assert before["run"]["status"] == "interrupted"
    assert before["blocks"]

    resumed = call(tmp_path, "bench", "run", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    after = document(here, tmp_path)["results"]
    assert after["run"]["status"] == "finished"
    assert after["run"]["id"] == run
    assert {cell["case"] for cell in after["cells"]} == {
        block["case"] for block in after["blocks"]
    } | {cell["case"] for cell in after["cells"] if cell["verdict"] not in TIMED}
    assert len({cell["case"] for cell in after["cells"]}) == count + 1
    assert after["blocks"][: len(before["blocks"])] == before["blocks"]


# Wrong input


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("bnech",), "bench"),
        (("bench", "rnu"), "run"),
        (("bench", "run"), "Which suite? There are: "),
        (("bench", "run", "operatorz"), "Did you mean operators"),
        (("bench", "run", "none.py"), "There is no suite file "),
        (("bench", "run", "operators", "--framworks", "torch"), "--frameworks"),
        (("bench", "run", "operators", "--frameworks", "trch"), "Did you mean torch"),
        (("bench", "run", "operators", "--frameworks", "torch@x"), "torch@2"),
        (("bench", "run", "operators", "--frameworks", "my.py"), "There is no file "),
        (("bench", "run", "operators", "--frameworks", ","), "--frameworks names nothing"),
        (("bench", "run", "operators", "--filter", "sotfmax"), "softmax"),
        (("bench", "run", "operators", "--sizes", "smal"), "Did you mean small"),
        (("bench", "run", "operators", "--phases", "foward"), "Did you mean forward"),
        (("bench", "run", "operators", "--dtype", "float23"), "Did you mean float32"),
        (("bench", "run", "operators", "--device", "cdua"), "Did you mean cuda"),
        (("bench", "run", "operators", "--device", "gpu"), "Did you mean cuda?"),
        (("bench", "run", "operators", "--threads", "0"), "threads must be from 1"),
        (("bench", "run", "operators", "--threads", "two"), "valid integer"),
        (("bench", "run", "operators", "--processes", "0"), "processes must be from 1"),
        (("bench", "run", "operators", "--rounds", "-1"), "rounds must be from 1"),
        (("bench", "run", "operators", "--block", "0"), "seconds above 0"),
        (("bench", "run", "operators", "--cache", "could"), "Did you mean cold"),
        (("bench", "run", "operators", "--timeout", "0"), "seconds above 0"),
        (("bench", "run", "operators", "--chart", "x.pdf"), "ends in .png"),
        (("bench", "run", "operators", "--chart", "no/x.png"), "no folder"),
        (("bench", "run", "operators", "--store", "mysql://x/y"), "postgresql://"),
        *(
            (("bench", "run", "operators", "--store", place), "outlives the command")
            for place in (":memory:", "sqlite://", "sqlite:///", "sqlite:///:memory:")
        ),
        (("bench", "nightly", "operators", "--store", "sqlite:///"), "outlives the command"),
        (("bench", "run", "--resume"), "the store is empty"),
        (("bench", "run", "--resume", "r", "--rounds", "2"), "leave out --rounds"),
        (("bench", "profile", "net.py", "--json", "no/x.json"), "--json: there is no folder"),
        (("bench", "profile", "net.py", "--json", "."), "--json: . is a folder"),
        (("bench", "list", "operator"), "Did you mean operators"),
        (("bench", "frameworks", "install", "pytorch"), "Did you mean torch"),
        (("bench", "frameworks", "install", "nosuch"), "bench frameworks` lists them"),
        (("bench", "report", "--format", "mdd"), "Did you mean md"),
        (("bench", "report", "--output", "x.html"), "There are: term, md, json, csv"),
        (("bench", "report", "none"), "the store is empty"),
        (("bench", "report", "none.json"), "cannot be read"),
        (("bench", "report", "--output", "no/x.md"), "the store is empty"),
        (("bench", "compare", "a"), "RUN_B"),
        (("bench", "compare", "a", "b"), "the store is empty"),
        (("bench", "compare", "a", "b", "--margin", "-1"), "margin must be a share"),
        (("bench", "compare", "a", "b", "--rate", "2"), "rate must be a share"),
        (("bench", "nightly", "operatos"), "Did you mean operators"),
        (("bench", "nightly", "operators", "--margin", "-1"), "margin must be a share"),
        (("bench", "nightly", "operators", "--margin", "nan"), "margin must be a share"),
        (("bench", "nightly", "operators", "--rate", "0"), "rate must be a share"),
        (("bench", "nightly", "operators", "--rate", "2"), "rate must be a share"),
        (("bench", "nightly", "operators", "--nights", "0"), "--nights"),
        (("bench", "runs", "--limit", "0"), "--limit"),
        (("bench", "machine", "--mesure"), "--measure"),
    ],
)
def test_wrong_input_ends_with_2_and_says_what_is_right(
    arguments: Sequence[str], words: str, here: Here, tmp_path: Path
) -> None:
    make_store(tmp_path)
    found = here(tmp_path, *arguments)
    assert found.returncode == 2, found.stderr
    assert words in found.stderr
    assert "Traceback" not in found.stderr
    assert found.stdout == ""


@pytest.mark.parametrize("place", [(), ("--store", "none/r.sqlite")])
@pytest.mark.parametrize(
    "words", [("report",), ("compare", "a", "b"), ("runs",), ("run", "--resume")]
)
def test_who_only_reads_makes_no_store(
    words: Sequence[str], place: Sequence[str], here: Here, tmp_path: Path
) -> None:
    found = here(tmp_path, "bench", *words, *place)
    assert found.returncode == 3, found.stderr
    assert "there is no store" in found.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["ZeroDivisionError", "EOFError"])
def test_a_defect_ends_with_70_and_a_traceback(kind: str, tmp_path: Path) -> None:
    """A traceback with 1 would read as a regression."""
    code = (
        "from tapegrad.bench import machine; from tapegrad.cli import main\n"
        f"def describe(): raise {kind}('oh')\n"
        "machine.describe = describe\n"
        "main(['bench', 'machine'])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert found.returncode == 70
    assert f"{kind}: oh" in found.stderr and "Traceback" in found.stderr
    assert "please report it" in found.stderr and "Aborted" not in found.stderr


def test_a_file_that_is_no_store_ends_with_3(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("these are my notes, not a database")
    found = call(tmp_path, "bench", "report", "--store", "notes.txt")
    assert found.returncode == 3
    assert "expected a SQLite database" in found.stderr
    assert (tmp_path / "notes.txt").read_text().startswith("these are my notes")


@pytest.mark.usefixtures("measured")
def test_a_report_that_cannot_be_written_ends_with_2(here: Here, home: Path) -> None:
    found = here(home, "bench", "report", "--output", "none/x.md")
    assert found.returncode == 2
    assert "cannot be written" in found.stderr


@pytest.mark.usefixtures("measured")
def test_a_report_for_which_there_is_no_room_ends_with_6(here: Here, home: Path) -> None:
    found = here(home, "bench", "report", "--format", "md", "--output", "/dev/full")
    assert found.returncode == 6
    assert "/dev/full cannot be written: No space left on device" in found.stderr


def test_an_installation_without_network_ends_with_5(tmp_path: Path) -> None:
    nowhere = {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": "http://127.0.0.1:9/",
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_FIND_LINKS": "",
        "PIP_RETRIES": "0",
    }
    found = call(tmp_path, "bench", "frameworks", "install", "casadi", **nowhere)
    assert found.returncode == 5, found.stderr
    assert "is there a network?" in found.stderr
    assert "not installed" in call(tmp_path, "bench", "frameworks").stdout


def test_a_suite_runs_without_the_frameworks_that_are_not_installed(tmp_path: Path) -> None:
    found = call(
        tmp_path, "bench", "run", "operators", "--filter", "exp", "--sizes", "small",
        "--phases", "forward", "--processes", "1", "--rounds", "1",
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    missing = "torch, jax, tensorflow, mxnet, which are not installed"
    assert f"Without {missing}: tapegrad bench frameworks install torch jax" in found.stderr
    assert "tapegrad" in found.stdout and "numpy" in found.stdout
    assert "not measured" not in found.stdout
