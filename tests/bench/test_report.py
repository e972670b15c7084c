"""Reports on results that are made up: what each cell may say, and that every format says it."""

from __future__ import annotations

import csv
import io
import json
import math
import shlex
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from tapegrad.bench.driver import Options, select
from tapegrad.bench.errors import BenchError, MalformedFileError
from tapegrad.bench.joining import joined, shared
from tapegrad.bench.report import (
    csv_text,
    json_text,
    load,
    markdown,
    render,
    report_on,
    report_text,
    save,
    table_text,
)
from tapegrad.bench.report.chart import draw, spread_out
from tapegrad.bench.report.command import DEFAULTS, command_for
from tapegrad.bench.report.figures import EVALUATIONS, Figure
from tapegrad.bench.report.figures.found import Found
from tapegrad.bench.report.page import page_of
from tapegrad.bench.report.table import Column, Entry, Line, Page, Table
from tapegrad.bench.report.term import print_page
from tapegrad.bench.report.text import spread
from tapegrad.bench.results import (
    TIMED,
    UNFINISHED,
    UNTIMED,
    Block,
    Cell,
    CellKey,
    Framework,
    Machine,
    Memory,
    Results,
    Run,
)
from tapegrad.bench.suite import Suite
from tapegrad.bench.units import number, seconds, size
from tapegrad.worker.case import Array, Case

ADD = Case("operator", "add", (Array("x", (4, 4)), Array("y", (4, 4))))
EXP = Case("operator", "exp", (Array("x", (4, 4)),), {"mode": "a,b [c]"})


Findings = list[tuple[Case, str, str, str | float]]


def graph(ops: int, family: str = "chain") -> Case:
    return Case(
        "graph",
        "graph",
        (Array("x", (8, 100)),),
        {"family": family, "ops": ops, "target": "sum"},
        dtype="float64",
        phases=("build", "compile", "step"),
    )


def blocks(case: Case, framework: str, phase: str, time: float, units: int = 1) -> list[Block]:
    """Two processes, three rounds, a little noise."""
    return [
        Block(case.key, framework, phase, p, r, [time * (1 + 0.01 * ((p + r) % 3))] * 5, 10, units)
        for p in range(2)
        for r in range(3)
    ]


def results_of(cases: list[Case], found: Findings, **fields: object) -> Results:
    """Make results: a time gives a checked cell with blocks, a word a cell without."""
    cells, times = [], []
    for case, framework, phase, what in found:
        if isinstance(what, str):
            cells.append(Cell(case.key, framework, phase, what, f"because of {framework}"))
        else:
            cells.append(Cell(case.key, framework, phase, "checked"))
            times += blocks(case, framework, phase, what)
    names = dict.fromkeys(cell.framework for cell in cells)
    options = msgspec.to_builtins(Options("operators", frameworks=list(names)))
    run = Run("operators-1", "operators", 1.7e9, Machine("f", "laptop"), options, status="finished")
    made = Results(
        run,
        [Framework(name, "1.0", "e") for name in names],
        [case.as_dict() for case in cases],
        cells,
        times,
    )
    return msgspec.structs.replace(made, **fields)


@pytest.fixture
def plain() -> Results:
    return results_of(
        [ADD, EXP],
        [
            (ADD, "torch", "forward", 1e-6),
            (ADD, "jax", "forward", 2e-6),
            (ADD, "numpy", "forward", 0.5e-6),
            (ADD, "torch", "backward", 3e-6),
            (ADD, "jax", "backward", "wrong"),
            (ADD, "numpy", "backward", "unsupported"),
            (EXP, "torch", "forward", 1e-6),
            (EXP, "jax", "forward", 8e-6),
            (EXP, "numpy", "forward", "oom"),
        ],
    )


@pytest.fixture
def graphs() -> Results:
    found: Findings = []
    for ops in (1_000, 10_000):
        case = graph(ops)
        for phase, time in (("build", 1e-3), ("compile", 1e-2), ("step", 1e-6)):
            found.append((case, "c", phase, time))
            found.append((case, "torch", phase, 100 * time if phase == "step" else "unsupported"))
            found.append((case, "numba", phase, "crashed"))
    return results_of([graph(1_000), graph(10_000)], found)


@pytest.mark.parametrize(("restless", "noted"), [(3, False), (4, True), (6, True)])
def test_times_that_had_not_come_to_rest_are_noted(
    plain: Results, restless: int, noted: bool
) -> None:
    first = [block for block in plain.blocks if block.key == plain.blocks[0].key]
    for index, block in enumerate(first[:restless]):
        plain.blocks[index] = msgspec.structs.replace(block, stationary=False)
    note = f"had not come to rest when {restless} of 6 blocks began"
    assert (note in report_text(plain).replace("\n  ", " ")) == noted
    assert figure(plain, ADD, "jax", "forward").notes == []


@pytest.mark.parametrize(("far", "noted"), [(1, False), (2, True)])
def test_blocks_that_are_pulled_in_are_noted(plain: Results, far: int, noted: bool) -> None:
    first = [block for block in plain.blocks if block.key == plain.blocks[0].key]
    for index, block in enumerate(first):
        factor = 10.0 if index % 3 == 0 and index < 3 * far else 1 + 0.01 * index
        samples = [factor * 1e-6] * len(block.samples)
        plain.blocks[index] = msgspec.structs.replace(block, samples=samples)
    note = f"{far} of 6 blocks lie far from the others"
    assert (note in report_text(plain).replace("\n  ", " ")) == noted


def figure(results: Results, case: Case, framework: str, phase: str) -> Figure:
    found = {
        (row.case, each.framework, row.phase): each
        for section in report_on(results).sections
        for row in section.rows
        for each in row.figures
    }
    return found[case.key, framework, phase]


def test_every_cell_has_a_time_or_a_word_and_never_both(plain: Results) -> None:
    for _, _, each in report_on(plain).figures():
        assert (each.time is not None) == (each.verdict in TIMED)
    for table in page_of(report_on(plain)).tables:
        assert all(entry.text.strip() for line in table.lines for entry in line.entries)


@pytest.mark.parametrize("word", sorted({*UNTIMED} - {"unsupported"}))
def test_a_cell_without_times_shows_its_word_and_no_ratio_even_if_blocks_exist(word: str) -> None:
    results = results_of([ADD], [(ADD, "torch", "forward", 1e-6), (ADD, "jax", "forward", word)])
    results.blocks += blocks(ADD, "jax", "forward", 2e-6)
    found = figure(results, ADD, "jax", "forward")
    assert (found.time, found.ratio, found.verdict) == (None, None, word)
    assert word in table_text(results)
    assert "slower" not in table_text(results)


@pytest.mark.parametrize(
    ("status", "reason"),
    [("finished", "the run did not ask for it"), ("interrupted", "the run ended before")],
)
def test_a_cell_that_is_not_there_says_why(status: str, reason: str) -> None:
    results = results_of(
        [ADD, EXP], [(ADD, "jax", "forward", 1e-6), (EXP, "torch", "forward", 1e-6)]
    )
    results.run = msgspec.structs.replace(results.run, status=status)
    found = figure(results, EXP, "jax", "forward")
    assert (found.verdict, found.reason) == ("not measured", reason)


def test_no_ratio_where_the_reference_has_no_time() -> None:
    results = results_of([ADD], [(ADD, "torch", "forward", "wrong"), (ADD, "jax", "forward", 1e-6)])
    assert figure(results, ADD, "jax", "forward").ratio is None
    assert "no ratio" in table_text(results)


def in_float32(results: Results, framework: str) -> Results:
    """Have one contender say that it computes in float32."""
    cells = [
        msgspec.structs.replace(cell, notes=["computes in float32"])
        if cell.framework == framework
        else cell
        for cell in results.cells
    ]
    return msgspec.structs.replace(results, cells=cells)


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_no_ratio_between_different_types(plain: Results, framework: str) -> None:
    """Whichever of both it is that computes in another type; its time is shown, with the note."""
    results = in_float32(plain, framework)
    found = figure(results, ADD, "jax", "forward")
    assert found.time is not None and found.ratio is None
    assert "2.00× slower" not in table_text(results)
    assert "computes in float32" in table_text(results)
    both = in_float32(in_float32(plain, "torch"), "jax")
    assert figure(both, ADD, "jax", "forward").ratio is not None


def test_no_winner_and_no_loser_between_different_types(plain: Results) -> None:
    found = Found(in_float32(plain, "numpy"))
    assert found.against(ADD.key, "forward", "torch", "numpy") is None
    assert found.winner(ADD.key, "forward", {"torch": 1e-6, "numpy": 5e-7}) == ""
    assert found.winner(ADD.key, "forward", {"torch": 1e-6, "jax": 2e-6}) == "torch"


def test_no_ratio_of_totals_between_different_types(graphs: Results) -> None:
    rows = {row.framework: row for row in report_on(in_float32(graphs, "torch")).graphs[0].rows}
    assert rows["torch"].total.time is not None and rows["torch"].total.ratio is None
    assert rows["torch"].run.ratio is None


def test_ratios_are_against_the_first_framework(plain: Results) -> None:
    ratio = figure(plain, ADD, "jax", "forward").ratio
    assert ratio is not None
    assert ratio.value == pytest.approx(2.0)
    assert ratio.verdict == "slower"
    text = table_text(plain)
    assert "2.00× slower" in text
    assert "2.00× faster" in text
    assert "jax against torch" in text


def test_unconfirmed_times_are_marked(plain: Results) -> None:
    cells = [
        msgspec.structs.replace(c, verdict="unconfirmed") if c.timed else c for c in plain.cells
    ]
    text = report_text(msgspec.structs.replace(plain, cells=cells))
    assert text.count("†") > 4
    assert "only one witness" in text


def test_the_geometric_mean_is_of_the_cases_that_both_have(plain: Results) -> None:
    (section,) = report_on(plain).sections
    means = {(mean.framework, mean.phase): mean for mean in section.means}
    assert means["jax", "forward"].value == pytest.approx(4.0)
    assert means["jax", "forward"].cases == 2
    assert means["numpy", "forward"].cases == 1
    assert ("jax", "backward") not in means


def test_reasons_are_below_the_table(plain: Results) -> None:
    text = report_text(plain)
    assert "jax wrong (backward of add 4x4 4x4): because of jax" in text
    assert "numpy oom (forward of exp" in text


def test_a_framework_that_supports_nothing_is_named_and_has_no_column(plain: Results) -> None:
    plain.cells += [
        Cell(ADD.key, "rust", phase, "unsupported") for phase in ("forward", "backward")
    ]
    (section,) = report_on(plain).sections
    assert section.contenders == ["torch", "jax", "numpy"]
    assert "none of these cases is supported by rust" in report_text(plain)


def test_what_an_interrupted_run_has_not_reached_says_so(plain: Results) -> None:
    plain.cells = [c for c in plain.cells if (c.case, c.framework) != (EXP.key, "numpy")]
    plain.blocks = [b for b in plain.blocks if (b.case, b.framework) != (EXP.key, "jax")]
    assert figure(plain, EXP, "numpy", "forward").verdict == "not measured"
    assert figure(plain, EXP, "jax", "forward").verdict == "not measured"


def test_memory_has_a_table_with_not_available_where_nothing_is_known(plain: Results) -> None:
    plain.memory = [
        Memory(ADD.key, "torch", "forward", None, 3 << 20, 1536),
        Memory(ADD.key, "jax", "forward", 2 << 10, None, 1536),
    ]
    text = table_text(plain)
    assert "Memory" in text
    for words in ("1.50 KiB", "3.00 MiB", "2.00 KiB", "n/a"):
        assert words in text


def test_totals_of_graphs_are_build_and_compile_and_all_evaluations(graphs: Results) -> None:
    first = report_on(graphs).graphs[0]
    rows = {row.framework: row for row in first.rows}
    total = rows["c"].total.time
    run = rows["c"].run.time
    assert total is not None
    assert run is not None
    assert total.time == pytest.approx(0.011 + EVALUATIONS * run.time, rel=0.02)
    assert rows["c"].evaluations == 6 * 5 * 10
    assert rows["torch"].build.verdict == "none"
    assert rows["torch"].total.ratio is not None
    assert rows["torch"].total.ratio.value > 40
    assert rows["numba"].total.verdict == "crashed"


def test_who_has_no_graph_is_named(graphs: Results) -> None:
    others = [
        msgspec.structs.replace(cell, framework="other", verdict="unsupported")
        for cell in graphs.cells
        if cell.framework == "c"
    ]
    named = "None of these graphs is supported by other."
    assert named not in report_text(graphs)
    assert named in report_text(msgspec.structs.replace(graphs, cells=[*graphs.cells, *others]))


def test_a_long_compilation_measured_once_counts_in_every_total(graphs: Results) -> None:
    once = [b for b in graphs.blocks if b.phase != "compile" or (b.process, b.round) == (0, 0)]
    total = report_on(msgspec.structs.replace(graphs, blocks=once)).graphs[0].rows[0].total
    assert total.time is not None
    assert total.time.blocks == 6
    assert total.time.time == pytest.approx(0.0211, rel=0.03)


def test_published_figures_are_beside_the_article_s_graph_only(graphs: Results) -> None:
    small, large = page_of(report_on(graphs)).tables
    assert all("published" not in column.title for column in small.columns)
    assert large.columns[-1].title == "published (M1, 2023)"
    assert [line.entries[-1].text for line in large.lines] == ["990 ms", "1,130 s est.", "41.0 s"]
    assert "computed" in report_text(graphs)


def test_the_command_of_a_row_selects_exactly_that_case() -> None:
    suite = Suite("operators", "", (ADD, EXP, replace(EXP, attrs={"mode": "a,b c"})))
    options = msgspec.to_builtins(Options("operators", rounds=5, memory=True))
    run = Run("r", "operators", 0.0, Machine("f", "laptop"), options)
    words = shlex.split(command_for(run, EXP.label, "forward"))
    assert words[:4] == ["tapegrad", "bench", "run", "operators"]
    pattern = words[words.index("--filter") + 1]
    assert "," not in pattern
    assert select(suite, Options("operators", filter=[pattern])) == [EXP]
    assert words[words.index("--rounds") + 1] == "5"
    assert words[-1] == "--memory"


def test_commands_leave_out_what_is_the_default() -> None:
    defaults = msgspec.to_builtins(Options("operators"))
    assert {name: defaults[name] for name in DEFAULTS} == DEFAULTS


def test_a_command_mentions_what_differs_from_its_suite_s_own_defaults() -> None:
    options = {"suite": "cnn-models", "threads": 1, "timeout": 60.0}
    run = Run("r", "cnn-models", 0.0, Machine("f", "laptop"), options)
    words = command_for(run, "vgg16")
    assert "--threads 1" in words and "--timeout 60.0" in words


def test_markdown_has_a_cell_for_every_column_and_a_command_for_every_row(plain: Results) -> None:
    tables = [line for line in markdown(plain, verbose=True).splitlines() if line.startswith("|")]
    widths = {line.replace("\\|", "").count("|") for line in tables}
    assert len(widths) == 1
    assert sum("`tapegrad bench run operators" in line for line in tables) == 3
    assert not any(cell.strip() == "" for line in tables for cell in line.strip("|").split("|"))


def test_json_holds_figures_and_everything_raw(plain: Results, tmp_path: Path) -> None:
    document = json.loads(json_text(plain))
    rows = document["report"]["sections"][0]["rows"]
    jax = rows[0]["figures"][1]
    assert jax["time"]["samples"] == 30
    assert jax["ratio"]["verdict"] == "slower"
    assert rows[0]["command"].startswith("tapegrad bench run")
    assert len(document["results"]["blocks"]) == len(plain.blocks)
    save(plain, tmp_path / "x.json")
    assert msgspec.json.encode(load(tmp_path / "x.json")) == msgspec.json.encode(plain)


def test_load_reads_bare_results_and_refuses_the_rest(plain: Results, tmp_path: Path) -> None:
    (tmp_path / "bare.json").write_bytes(msgspec.json.encode(plain))
    assert load(tmp_path / "bare.json").blocks == plain.blocks
    (tmp_path / "other.json").write_text("{}")
    for name, words in (("other.json", "does not hold results"), ("none.json", "cannot be read")):
        with pytest.raises(MalformedFileError, match=words):
            load(tmp_path / name)


def test_csv_has_a_line_for_every_figure(plain: Results, graphs: Results) -> None:
    found = list(csv.DictReader(io.StringIO(csv_text(plain))))
    lines = [line for line in found if line["case"]]
    assert len(lines) == 9
    assert [line["notes"] for line in found if not line["case"]] == ["geometric mean of 2 ratios"]
    timed = [line for line in lines if line["time"]]
    assert {line["verdict"] for line in timed} == {"checked"}
    assert all(line["ratio_value"] for line in timed if line["framework"] != "torch")
    assert all(line["command"] for line in lines)
    totals = [
        line for line in csv.DictReader(io.StringIO(csv_text(graphs))) if "total" in line["phase"]
    ]
    assert len(totals) == 6


def test_functions_of_a_user_have_a_table_without_commands(plain: Results) -> None:
    run = msgspec.structs.replace(plain.run, suite="measure", options={})
    own = msgspec.structs.replace(plain, run=run)
    assert "tapegrad bench" not in report_text(own)
    assert "command" not in markdown(own, verbose=True)
    assert len(table_text(own).splitlines()) > 5


def test_render_writes_no_colours_into_a_file(
    plain: Results, capsys: pytest.CaptureFixture[str]
) -> None:
    render(plain)
    out = capsys.readouterr().out
    assert out == report_text(plain)
    assert "\x1b" not in out


def test_a_narrow_terminal_shows_contenders_in_rows(plain: Results) -> None:
    file = io.StringIO()
    console = Console(file=file, width=80, force_terminal=True, color_system=None)
    render(plain, console)
    text = file.getvalue()
    assert "contender" in text
    assert "against torch" in text
    assert "jax against torch" not in text
    assert "…" not in text
    assert all(len(line) <= 80 for line in text.splitlines())
    for words in ("2.00× slower", "wrong", "unsupported", "oom", "reference"):
        assert words in text


def test_an_empty_run_has_a_report_and_no_chart(tmp_path: Path) -> None:
    empty = results_of([ADD], [])
    assert "Nothing was timed" in report_text(empty)
    assert json.loads(json_text(empty))["report"]["sections"] == []
    with pytest.raises(BenchError, match="no times"):
        draw(empty, tmp_path / "x.png")


@pytest.mark.parametrize("kind", ["plain", "graphs", "one size"])
def test_charts_are_pictures(kind: str, plain: Results, graphs: Results, tmp_path: Path) -> None:
    results = plain if kind == "plain" else graphs
    if kind == "one size":
        keep = graph(1_000).key
        results.cells = [cell for cell in results.cells if cell.case == keep]
    draw(results, tmp_path / "x.png")
    content = (tmp_path / "x.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert len(content) > 10_000


def test_labels_keep_their_order_and_their_distance() -> None:
    places = spread_out([0.0, 0.0, 0.0, 0.05, 0.9], 0.1)
    assert all(b - a >= 0.1 - 1e-12 for a, b in pairwise(places))
    assert places[-1] == 0.9
    assert math.isclose(sum(places[:4]) / 4, 0.0125)


def test_an_interval_that_says_nothing_is_not_spelled_out() -> None:
    assert spread(1.0, 1 / 11, 11.0) == "±1000%"
    assert spread(1.0, 1e-9, 1e9) == "±>1000%"


def test_one_process_and_one_round_are_singular() -> None:
    single = results_of([ADD], [(ADD, "torch", "forward", 1e-6)])
    options = single.run.options | {"processes": 1, "rounds": 1}
    run = msgspec.structs.replace(single.run, options=options)
    one = [block for block in single.blocks if (block.process, block.round) == (0, 0)]
    text = report_text(msgspec.structs.replace(single, run=run, blocks=one))
    assert "1 process × 1 round, blocks" in text
    assert "1 process, 1 block, 5 samples" in text


def test_the_method_says_what_becomes_of_outliers(plain: Results) -> None:
    method = dict(page_of(report_on(plain)).remarks)["Method"]
    assert "2.5 robust standard deviations" in " ".join(method)


@pytest.mark.parametrize(
    ("processes", "words"), [(1, "assume 2%"), (2, "their distance shows it"), (3, "")]
)
def test_the_method_says_what_few_processes_assume(processes: int, words: str) -> None:
    """Without enough of them the scatter between processes is taken for granted."""
    results = results_of([ADD], [(ADD, "torch", "forward", 1e-6)])
    one = [block for block in results.blocks if block.process == 0]
    blocks = [
        msgspec.structs.replace(block, process=process)
        for block in one
        for process in range(processes)
    ]
    found = page_of(report_on(msgspec.structs.replace(results, blocks=blocks)))
    method = " ".join(dict(found.remarks)["Method"])
    assert words in method
    assert ("3 processes or more" in method) == bool(words)


def test_a_command_names_a_contender_once() -> None:
    options = {"suite": "operators", "frameworks": ["numpy", "c", "numpy"]}
    run = Run("r", "operators", 0.0, Machine("f", "laptop"), options)
    assert " --frameworks numpy,c --filter " in command_for(run, "exp 4")


def test_cells_and_blocks_are_found_also_after_lists_changed(plain: Results) -> None:
    key = CellKey(ADD.key, "jax", "forward")
    cell, blocks_before = plain.cell(key), plain.blocks_of(key)
    assert cell is not None
    assert cell.key == key
    order = [(round, process) for round in range(3) for process in range(2)]
    assert [(block.round, block.process) for block in blocks_before] == order
    late = msgspec.structs.replace(blocks_before[-1], round=9)
    plain.blocks.append(late)
    assert plain.blocks_of(key) == [*blocks_before, late]
    plain.cells = [each for each in plain.cells if each.key != key]
    assert plain.cell(key) is None
    assert b"_kept" not in msgspec.json.encode(plain)


def test_numbers_have_three_digits() -> None:
    assert [number(v) for v in (0.0, 0.999, 9.999, 123.4, 12345.0)] == [
        "0",
        "0.999",
        "10.0",
        "123",
        "12,345",
    ]
    assert [seconds(v) for v in (3e-10, 9.9999e-7, 0.5, 61.0)] == [
        "0.300 ns",
        "1.00 µs",
        "500 ms",
        "61.0 s",
    ]
    assert [size(v) for v in (None, 12, 1 << 30)] == ["n/a", "12 B", "1.00 GiB"]
    assert [spread(1.0, None, None), spread(2.0, 1.0, 4.0), spread(1.0, 0.998, 1.002)] == [
        "±?",
        "±100%",
        "±0.2%",
    ]


def part(results: Results, name: str, **options: object) -> Results:
    """Return results as another run has them."""
    run = msgspec.structs.replace(results.run, id=name, options=results.run.options | options)
    return msgspec.structs.replace(results, run=run)


def test_several_runs_are_one_and_a_case_is_never_mixed() -> None:
    first = results_of(
        [ADD, EXP],
        [
            (ADD, "torch", "forward", 1e-6),
            (ADD, "jax", "forward", 2e-6),
            (EXP, "torch", "forward", 1e-6),
            (EXP, "jax", "forward", UNFINISHED),
        ],
    )
    second = results_of([EXP], [(EXP, "torch", "forward", 3e-6), (EXP, "jax", "forward", 6e-6)])
    both = joined([part(first, "a"), part(second, "b", filter=["exp"])])
    assert both.run.id == "a, b"
    assert list(both.case_by_key()) == [ADD.key, EXP.key]
    assert both.blocks_of(CellKey(EXP.key, "torch", "forward")) == second.blocks_of(
        CellKey(EXP.key, "torch", "forward")
    )
    cell = both.cell(CellKey(EXP.key, "jax", "forward"))
    assert cell is not None and cell.verdict == "checked"
    assert "exp" in markdown(both) and "add" in markdown(both)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"device": "cuda"}, "device cpu and cuda"),
        ({"threads": 2}, "threads 1 and 2"),
        ({"rounds": 9}, "rounds 3 and 9"),
    ],
)
def test_runs_of_another_design_are_not_one(
    plain: Results, change: dict[str, object], words: str
) -> None:
    with pytest.raises(BenchError, match=words):
        joined([part(plain, "a"), part(plain, "b", **change)])


def test_of_several_runs_the_one_with_times_is_shown() -> None:
    timed = results_of([ADD], [(ADD, "torch", "forward", 1e-6)])
    failed = results_of([ADD], [(ADD, "torch", "forward", "timeout")])
    both = joined([part(timed, "a"), part(failed, "b")])
    cell = both.cell(CellKey(ADD.key, "torch", "forward"))
    assert cell is not None and cell.verdict == "checked"
    assert shared([timed, failed]) == 1


def test_joined_runs_name_no_command_and_are_finished_if_all_are(plain: Results) -> None:
    stopped = msgspec.structs.replace(plain.run, id="b", status="interrupted", started=1.0)
    both = joined([plain, msgspec.structs.replace(plain, run=stopped)])
    assert (both.run.status, both.run.started) == ("interrupted", 1.0)
    assert "tapegrad bench run" not in markdown(both)


def test_runs_of_other_environments_are_not_one(plain: Results) -> None:
    other = msgspec.structs.replace(plain, frameworks=[Framework("torch", "1.0", "f")])
    with pytest.raises(BenchError, match="environment of torch e and f"):
        joined([part(plain, "a"), part(other, "b")])


def test_runs_of_other_versions_are_not_one(plain: Results) -> None:
    newer = msgspec.structs.replace(plain, frameworks=[Framework("torch", "2.0", "e")])
    with pytest.raises(BenchError, match=r"version of torch 1\.0 and 2\.0"):
        joined([part(plain, "a"), part(newer, "b")])


def test_columns_that_can_be_spared_make_room_for_the_others() -> None:
    columns = Column("run", whole=True), Column("who"), Column("m", spare=True)
    table = Table("Runs", columns, (Line((Entry("r" * 20), Entry("a, b"), Entry("x" * 40))),))
    file = io.StringIO()
    console = Console(file=file, width=40, color_system=None)
    print_page(Page("", (), (table,)), console)
    assert "r" * 20 in file.getvalue() and "a, b" in file.getvalue() and "x" not in file.getvalue()
    print_page(Page("", (), (table,)), Console(file=file, width=100, color_system=None))
    assert "x" * 40 in file.getvalue()
