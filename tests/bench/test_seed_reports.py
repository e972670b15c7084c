"""Reports in the shapes of published documents, their figures beside ours, and devices."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.text import Text

from tapegrad.bench.report import csv_text, json_text, markdown, report_on, report_text
from tapegrad.bench.report.chart import draw, sizes
from tapegrad.bench.report.chart.variants import variants
from tapegrad.bench.report.hardware import roofline_share, side_by_side
from tapegrad.bench.report.page import page_of
from tapegrad.bench.report.published import modules as tensorgrad
from tapegrad.bench.report.published import networks as flux
from tapegrad.bench.report.table import Line, Table
from tapegrad.bench.results import Cell, Machine, Memory, Results
from tapegrad.bench.store import open_store
from tapegrad.bench.suites import cnn_layers, cnn_models, fused, modules, operators
from tapegrad.cli import main
from tapegrad.worker.case import Case
from tests.bench.test_report import Findings, blocks, results_of

LINEAR = [module.case for module in modules.MODULES if module.name == "nn.Linear"]
EXP = [case for case in operators.SUITE.cases if case.op == "exp"]
PHASES = ("forward", "backward")


def on(device: str, results: Results) -> Results:
    options = results.run.options | {"device": device}
    return msgspec.structs.replace(
        results, run=msgspec.structs.replace(results.run, options=options)
    )


def tables(results: Results) -> dict[str, Table]:
    return {table.title: table for table in page_of(report_on(results)).tables}


def texts(line: Line) -> list[str]:
    return [entry.text for entry in line.entries]


def timed(cases: Iterable[Case], times: dict[str, float]) -> Results:
    """Make results in which every phase of a case takes a framework so long."""
    found: Findings = []
    listed = list(cases)
    for case in listed:
        found += [(case, name, phase, t) for phase in case.phases for name, t in times.items()]
    return results_of(listed, found)


# Modules


def test_modules_have_a_table_for_each_pass_with_slower_by_and_overall() -> None:
    found: Findings = []
    for number, case in enumerate(LINEAR):
        for phase in PHASES:
            found += [
                (case, "torch", phase, 1e-3),
                (case, "jax", phase, 1e-3 * 4 ** (number - 0.5)),
            ]
    shown = tables(results_of(LINEAR, found))
    assert list(shown) == ["nn.Linear on cpu, forward", "nn.Linear on cpu, backward"]
    table = shown["nn.Linear on cpu, forward"]
    titles = [column.title for column in table.columns[:4]]
    assert titles == ["inputs", "torch", "jax", "jax is slower by"]
    assert [line.entries[0].text for line in table.lines] == [
        "input=32x64, features=128",
        "input=64x1024, features=2048",
        "input=128x2048, features=4096",
        "overall",
    ]
    slower_by = [line.entries[3].text for line in table.lines]
    assert [text.split()[0] for text in slower_by] == ["0.500", "2.00", "8.00", "2.00"]
    assert [text.split(", ")[1] for text in slower_by] == ["faster", "slower", "slower", "slower"]
    assert all("±" in text for text in slower_by)
    assert slower_by[-1].endswith("n=3")


def test_published_modules_are_beside_ours_as_they_were_printed() -> None:
    results = timed(LINEAR, {"torch": 1e-3, "jax": 2e-3})
    table = tables(results)["nn.Linear on cpu, backward"]
    assert [column.title for column in table.columns[-3:]] == [
        "torch cpu, published",
        "tensorgrad cpu, published",
        "tensorgrad cpu is slower by, published",
    ]
    assert texts(table.lines[1])[-3:] == ["0.00297 s", "0.02247 s", "7.56456"]
    assert texts(table.lines[-1])[-3:] == [
        "0.00297 s (median)",
        "0.02247 s (median)",
        "7.56456 (median)",
    ]
    assert "only tensorgrad computes the gradient of the input" in " ".join(table.notes)
    assert "hardware that it does not name" in report_text(results).replace("\n  ", " ")


def test_published_figures_follow_the_device() -> None:
    results = timed(LINEAR, {"torch": 1e-3, "jax": 2e-3})
    table = tables(on("cuda", results))["nn.Linear on cuda, forward"]
    assert texts(table.lines[2])[-3:] == ["0.00679 s", "0.00026 s", "0.03803"]
    assert "nothing waited for its end" in " ".join(table.notes)


def test_other_types_and_shapes_have_no_published_figures() -> None:
    doubles = [replace(case, dtype="float64") for case in LINEAR]
    (table, _) = tables(timed(doubles, {"torch": 1e-3, "jax": 2e-3})).values()
    assert table.lines[0].entries[0].text == "input=32x64, features=128 float64"
    assert not any("published" in column.title for column in table.columns)


def test_a_published_overall_is_not_beside_fewer_rows() -> None:
    table = tables(timed(LINEAR[:2], {"torch": 1e-3, "jax": 2e-3}))["nn.Linear on cpu, forward"]
    assert texts(table.lines[1])[-3:] == ["0.00094 s", "0.00333 s", "3.53146"]
    assert texts(table.lines[-1])[0] == "overall"
    assert texts(table.lines[-1])[-3:] == ["not published"] * 3


@pytest.mark.parametrize("title", sorted({module.name for module in modules.MODULES}))
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_row_of_a_module_is_published(title: str, device: str) -> None:
    names = {module.label for module in modules.MODULES if module.name == title}
    found = list(tensorgrad.quoted(title, device, names))
    assert {each.name for each in found} == names | {"overall"}
    assert len(found) == len(PHASES) * 2 * 4


def test_some_published_figures_of_modules() -> None:
    softmax_rows = {module.label for module in modules.MODULES if module.name == "nn.Softmax"}
    softmax = {
        (each.name, each.phase, each.framework): (each.printed, each.slower_by)
        for each in tensorgrad.quoted("nn.Softmax", "cpu", softmax_rows)
    }
    row = "input=1024x512 dim=-1", "backward"
    assert softmax[*row, "torch cpu"] == ("0.00015 s", "")
    assert softmax[*row, "tensorgrad cpu"] == ("0.66259 s", "4488.73")
    assert softmax["overall", "forward", "torch cpu"] == ("2e-05 s", "")


# Layers and models


def model(name: str) -> tuple[Case, Case]:
    training, inference = (case for case in cnn_models.SUITE.cases if case.op == name)
    return training, inference


def networks(*names: str) -> Results:
    """Make results in which jax wins all passes of the first model, and nobody those of others."""
    found: Findings = []
    cases = [case for name in names for case in model(name)]
    for case in cases:
        factor = 0.5 if case.op == names[0] else 1.001
        for phase in case.phases:
            found += [(case, "torch", phase, 1e-1), (case, "jax", phase, factor * 1e-1)]
    return results_of(cases, found)


def test_models_have_a_row_for_each_framework_with_its_version() -> None:
    table = tables(networks("vgg16", "resnet18"))["CNN models on cpu"]
    assert [column.title for column in table.columns] == [
        "Model",
        "Framework",
        "Forward",
        "Backward",
        "Total",
        "Inference",
        "Total against torch",
    ]
    assert [texts(line)[:2] for line in table.lines] == [
        ["VGG16", "torch 1.0"],
        ["VGG16", "jax 1.0"],
        ["VGG16", "Pytorch 0.4.1, published (Intel Xeon Silver 4114 at 2.20 GHz, 2018)"],
        ["VGG16", "Flux 0.6.8+, published (Intel Xeon Silver 4114 at 2.20 GHz, 2018)"],
        ["ResNet-18", "torch 1.0"],
        ["ResNet-18", "jax 1.0"],
        ["overall", "jax against torch"],
    ]
    assert texts(table.lines[1])[-1].startswith("2.00× faster")
    assert "n=2" in texts(table.lines[-1])[2]
    assert "n=2" in texts(table.lines[-1])[4]
    assert texts(table.lines[-1])[-1] == "as in Total"  # and not once more


def test_only_a_decided_winner_is_bold() -> None:
    results = networks("vgg16", "resnet18")
    table = tables(results)["CNN models on cpu"]
    bold = {tuple(texts(line)[:2]) for line in table.lines if any(e.bold for e in line.entries)}
    assert bold == {("VGG16", "jax 1.0")}
    (winner,) = (line for line in table.lines if texts(line)[:2] == ["VGG16", "jax 1.0"])
    assert [entry.bold for entry in winner.entries] == [False, False, *[True] * 4, False]
    assert re.search(r"\| \*\*50\.\d ms ±[\d.]+%\*\* \|", markdown(results))
    rows = [row for section in report_on(results).sections for row in section.rows]
    assert {row.winner for row in rows if row.op == "resnet18"} == {""}


def test_without_a_rival_nobody_wins() -> None:
    results = timed(model("vgg16"), {"torch": 0.1})
    assert "**" not in markdown(results)


def test_published_inference_that_was_never_measured_is_marked() -> None:
    table = tables(networks("vgg16"))["CNN models on cpu"]
    published = {texts(line)[1].split(",")[0]: texts(line)[2:6] for line in table.lines}
    assert published["Pytorch 0.4.1"] == ["6.6024 s", "9.4336 s", "16.036 s", "6.4216 s ‡"]
    assert published["Flux 0.6.8+"] == ["10.458 s", "10.245 s", "20.703 s", "10.111 s"]
    assert "inference was never measured" in " ".join(table.notes)
    stale = [each for each in flux.quoted("models", "cpu", {"VGG16"}) if "‡" in each.printed]
    assert [each.seconds for each in stale] == [None]


def test_some_published_figures_of_networks() -> None:
    names = {"ResNet-50", "ResNet-152", "VGG19 BN", "Conv5x5/2", "BatchNorm"}
    found = {
        (kind, each.name, each.framework[:4], each.phase): each.printed
        for kind in ("models", "layers")
        for each in flux.quoted(kind, "cuda", names)
    }
    assert len(found) == 3 * 2 * 4 + 2 * 2 * 3
    assert found["models", "ResNet-50", "Flux", "inference"] == "-"
    assert found["models", "ResNet-152", "Pyto", "backward"] == "0.05337 s"
    assert found["models", "VGG19 BN", "Flux", "total"] == "0.1342 s"
    assert found["layers", "Conv5x5/2", "Flux", "forward"] == "0.0941 ms"
    assert found["layers", "BatchNorm", "Pyto", "total"] == "0.3095 ms"


def test_models_at_other_sizes_say_so_and_have_no_published_figures() -> None:
    small = cnn_models.model("vgg16", batch=1, image=32, training=True)
    table = tables(timed([small], {"torch": 0.1, "jax": 0.2}))["CNN models on cpu"]
    assert [texts(line)[0] for line in table.lines] == ["VGG16, batch 1, 32x32"] * 2


def test_the_command_of_a_model_covers_training_and_inference() -> None:
    table = tables(networks("vgg16"))["CNN models on cpu"]
    command = table.lines[0].command
    assert "training=True,vgg16" in command
    assert "training=False" in command


def test_memory_of_models_is_the_most_of_all_phases() -> None:
    results = networks("vgg16")
    training, inference = model("vgg16")
    results.memory = [
        Memory(training.key, "torch", "step", None, 3 << 30, 1),
        Memory(inference.key, "torch", "inference", None, 1 << 30, 1),
    ]
    table = tables(results)["CNN models on cpu"]
    assert [column.title for column in table.columns[-2:]] == ["Allocator", "Resident"]
    assert texts(table.lines[0])[-2:] == ["n/a", "3.00 GiB"]
    assert texts(table.lines[2])[-2:] == ["not published", "not published"]


def test_the_tables_that_were_left_empty_are_filled() -> None:
    table = tables(timed(cnn_layers.SUITE.cases, {"torch": 1e-3, "jax": 2e-3}))["CNN layers on cpu"]
    assert [column.title for column in table.columns[:5]] == [
        "Layer",
        "Framework",
        "Forward",
        "Backward",
        "Total",
    ]
    assert all("published" not in texts(line)[1] for line in table.lines)
    assert "their table of layers on the CPU is empty" in " ".join(table.notes)
    results = timed(cnn_layers.SUITE.cases, {"torch": 1e-3, "jax": 2e-3})
    cuda = tables(on("cuda", results))["CNN layers on cuda"]
    published = [line for line in cuda.lines if "published" in texts(line)[1]]
    assert {texts(line)[0] for line in published} == {
        "Conv3x3/1",
        "Conv5x5/1",
        "Conv3x3/2",
        "Conv5x5/2",
        "Dense",
        "BatchNorm",
    }


# Fused operators


@pytest.fixture
def composed() -> Results:
    """A fused operator that takes 3 ms where its parts take 2 + 2, in torch; jax lacks a part."""
    case = next(case for case in fused.SUITE.cases if case.op == "add_relu")
    first, second = fused.parts(case)
    found: Findings = [
        (case, "torch", "forward", 3e-3),
        (first, "torch", "forward", 2e-3),
        (second, "torch", "forward", 2e-3),
        (case, "jax", "forward", 1e-3),
        (first, "jax", "forward", 1e-3),
        (second, "jax", "forward", "unsupported"),
    ]
    results = results_of([case, first, second], found)
    results.cells = [
        msgspec.structs.replace(cell, notes=["compiled by XLA"])
        if (cell.case, cell.framework) == (case.key, "jax")
        else cell
        for cell in results.cells
    ]
    return results


def test_fused_operators_are_set_against_the_sum_of_their_parts(composed: Results) -> None:
    table = tables(composed)["Fused operators against their parts"]
    torch, jax = table.lines
    assert texts(torch)[2:4] == ["torch", "3.03 ms ±0.9%"]
    assert texts(torch)[4].startswith("4.04 ms")
    assert texts(torch)[5].startswith("1.33× faster")
    assert texts(jax)[3:] == [texts(jax)[3], "unsupported", "no ratio", "compiled by XLA"]
    row = report_on(composed).fused[1]
    assert "relu" in row.parts.reason
    assert "'add_relu 32x64 32x64,add 32x64 32x64,relu 32x64'" in row.command


def test_other_suites_have_no_table_of_fused_operators() -> None:
    assert not any("parts" in title for title in tables(timed(LINEAR, {"torch": 1e-3})))


# Losses first


def test_rows_where_tapegrad_loses_come_first() -> None:
    cases = [case for case in operators.SUITE.cases if case.size == "small"][:3]
    found: Findings = [
        *((case, "torch", "forward", 1e-3) for case in cases),
        *zip(cases, ["tapegrad"] * 3, ["forward"] * 3, [0.5e-3, 2e-3, 5e-3], strict=True),
    ]
    results = results_of(cases, found)
    (table,) = tables(results).values()
    shown = [texts(line)[0] for line in table.lines[:3]]
    assert shown == [cases[2].label, cases[1].label, cases[0].label]
    assert "tapegrad loses" in table.notes[0]
    lost = {row.label: row.lost_by for row in report_on(results).sections[0].rows}
    assert lost[cases[0].label] is None
    assert lost[cases[2].label] == pytest.approx(5, rel=0.05)


def test_without_tapegrad_rows_keep_their_order(composed: Results) -> None:
    cases = [case for case in operators.SUITE.cases if case.size == "small"][:3]
    (table,) = tables(timed(cases, {"torch": 1e-3, "jax": 2e-3})).values()
    assert list(dict.fromkeys(texts(line)[0] for line in table.lines[:-2])) == [
        case.label for case in cases
    ]
    assert not table.notes


# Other formats hold the same


def test_csv_holds_means_winners_published_figures_and_parts(composed: Results) -> None:
    def lines(results: Results) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(csv_text(results))))

    found = lines(networks("vgg16", "resnet18"))
    assert {line["framework"] for line in found if line["wins"]} == {"jax"}
    means = {
        line["phase"]: float(line["ratio_value"]) for line in found if line["label"] == "overall"
    }
    assert means["step"] == pytest.approx(math.sqrt(0.5), rel=0.01)
    published = [line for line in found if line["verdict"] == "published"]
    assert {line["framework"] for line in published} == {"Pytorch 0.4.1", "Flux 0.6.8+"}
    assert {line["time"] for line in published if line["phase"] == "forward"} == {
        "6.6024",
        "10.458",
    }
    assert all("Xeon" in line["source"] for line in published)
    parts = {line["phase"]: line for line in lines(composed) if line["framework"] == "torch"}
    assert float(parts["forward of the parts"]["time"]) == pytest.approx(4.04e-3, rel=0.01)
    assert float(parts["forward against its parts"]["ratio_value"]) == pytest.approx(0.75, rel=0.01)
    assert parts["forward against its parts"]["reference"] == "parts"


def test_json_holds_winners_published_figures_and_parts(composed: Results) -> None:
    section = json.loads(json_text(networks("vgg16")))["report"]["sections"][0]
    assert {row["winner"] for row in section["rows"]} == {"jax"}
    assert section["published"][0]["printed"] == "6.6024 s"
    row = json.loads(json_text(composed))["report"]["fused"][0]
    assert row["parts"]["ratio"]["value"] == pytest.approx(0.75, rel=0.01)


# Charts


def test_time_is_drawn_against_size_with_skewed_shapes_apart() -> None:
    cases = [case for case in operators.SUITE.cases if case.op == "softmax"]
    rows = report_on(timed(cases, {"torch": 1e-3, "numpy": 2e-3})).sections[0].rows
    (panel,) = sizes.panels({"softmax": rows}, own_shapes=False)
    assert panel.sizes == {2048.0, 262144.0, 4194304.0}
    assert set(panel.lines) == {(n, p) for n in ("torch", "numpy") for p in PHASES}
    assert panel.skewed["torch", "forward"][0] == 10_000
    (own,) = sizes.panels({"softmax": rows}, own_shapes=True)
    assert own.sizes == panel.sizes | {10_000}


@pytest.mark.parametrize("own_shapes", [False, True])
@pytest.mark.parametrize(
    ("op", "titles"),
    [
        ("index_select", ["index_select dim=0", "index_select dim=1"]),
        ("topk", ["topk k=1", "topk k=10"]),
        ("conv2d_depthwise", ["conv2d_depthwise"]),
        ("exp", ["exp"]),
    ],
)
def test_every_variant_of_an_operator_has_a_panel(
    op: str, titles: list[str], own_shapes: bool
) -> None:
    """Own shapes are all of one size class; the groups of a convolution follow from them."""
    cases = [case for case in operators.SUITE.cases if case.op == op]
    if own_shapes:
        cases = [replace(case, size="medium") for case in cases]
    results = timed(cases, {"torch": 1e-3})
    (section,) = report_on(results).sections
    apart = variants(section.rows, results.case_by_key(), own_shapes=own_shapes)
    assert list(apart) == titles
    for panel in sizes.panels(apart, own_shapes=own_shapes):
        assert len(panel.sizes) == (4 if own_shapes else 3)
        assert all(len(points) == len(panel.sizes) for points in panel.lines.values())


@pytest.mark.parametrize(
    ("op", "titles"),
    [("sub", ["sub", "sub 32x64 64"]), ("reshape", ["reshape", "reshape 32x64 shape=2048"])],
)
def test_variants_that_differ_in_shapes_are_told_by_their_first(op: str, titles: list[str]) -> None:
    cases = [case for case in operators.SUITE.cases if case.op == op]
    results = timed(cases, {"torch": 1e-3})
    (section,) = report_on(results).sections
    apart = variants(section.rows, results.case_by_key(), own_shapes=False)
    assert list(apart) == titles
    assert all(len({row.case for row in rows}) == 4 for rows in apart.values())


@pytest.mark.parametrize("suite", ["modules", "models", "operators", "many"])
def test_charts_of_suites_are_pictures(suite: str, tmp_path: Path) -> None:
    many = [case for case in operators.SUITE.cases if case.size == "small"][:30]
    operator_cases = [case for case in operators.SUITE.cases if case.op in ("exp", "sort")]
    cases = {"modules": LINEAR, "models": model("vgg16"), "operators": operator_cases}.get(
        suite, many
    )
    draw(timed(cases, {"torch": 1e-3, "jax": 2e-3}), tmp_path / "x.png")
    content = (tmp_path / "x.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert len(content) > 10_000


def drawn(results: Results, monkeypatch: pytest.MonkeyPatch) -> Canvas:
    """Return a chart before it becomes a picture."""
    kept: list[Canvas] = []
    monkeypatch.setattr(Canvas, "savefig", lambda canvas, *_, **__: kept.append(canvas))
    draw(results, "x.png")
    kept[0].draw_without_rendering()
    return kept[0]


@pytest.mark.parametrize("cases", [LINEAR, EXP], ids=["module", "operator"])
def test_names_in_a_chart_of_one_panel_are_whole(
    cases: list[Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("torch", "torch-without-onednn", "a-wwwwwwww-mmmmmmmm")
    canvas = drawn(timed(cases, dict.fromkeys(names, 0.001)), monkeypatch)
    written = [text for text in canvas.findobj(Text) if "backward" in text.get_text()]
    assert len(written) == len(names)
    for text in written:
        box = text.get_window_extent()
        assert canvas.bbox.x0 <= box.x0 and box.x1 <= canvas.bbox.x1


@pytest.mark.parametrize("suite", ["layers", "models"])
def test_times_on_a_logarithmic_axis_have_no_bars(
    suite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = cnn_layers.SUITE.cases[:3] if suite == "layers" else model("vgg16")
    canvas = drawn(timed(cases, {"torch": 1e-3, "jax": 2e-3}), monkeypatch)
    axes = canvas.findobj(Axes)
    assert axes and all(axis.get_xscale() == "log" and not axis.patches for axis in axes)


def test_a_chart_of_fused_operators_shows_them_against_their_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = [case for case in fused.SUITE.cases if case.size == "small"]
    canvas = drawn(timed(small, {"torch": 1e-3, "jax": 2e-3}), monkeypatch)
    titles = [text.get_text() for text in canvas.findobj(Text)]
    assert any("as its parts" in title for title in titles)
    (forward, *_) = (axis for axis in canvas.findobj(Axes) if axis.get_title("left") == "forward")
    drawn_dots = [line for line in forward.lines if line.get_linestyle() == "None"]
    dots = [float(np.ravel(line.get_xdata())[0]) for line in drawn_dots]
    assert len(dots) == 2 * len([case for case in small if case.level == "fused"])
    # Each part takes as long as all of them together here.
    assert {round(dot, 2) for dot in dots} == {0.5, 0.33}


# Devices


def stored(folder: Path, **runs: dict[str, str]) -> str:
    """Enter runs of one case with an operator that takes as long in each."""
    url = str(folder / "runs.sqlite")
    case = LINEAR[0]
    with open_store(url) as store:
        for name, where in runs.items():
            results = on(where.get("device", "cpu"), timed([case], {"torch": 1e-3}))
            machine = Machine(where.get("machine", "f"), where.get("machine", "laptop"))
            run = msgspec.structs.replace(results.run, id=name, machine=machine)
            store.begin(run, results.frameworks, [case])
            for phase in PHASES:
                store.add_cell(name, Cell(case.key, "torch", phase, "checked"))
                for block in blocks(case, "torch", phase, 1e-3):
                    store.add_block(name, block)
            store.finish(name, "finished", 1.0)
    return url


def compare(capsys: pytest.CaptureFixture[str], url: str, *options: str) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(("bench", "compare", "a", "b", "--all", "--store", url, *options))
    return int(end.value.code or 0), *capsys.readouterr()


def test_a_ratio_across_devices_is_refused_unless_asked_for_and_then_labelled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = stored(tmp_path, a={"device": "cpu"}, b={"device": "cuda"})
    code, out, error = compare(capsys, url)
    assert (code, out) == (2, "")
    assert "one ran on cpu, the other on cuda" in error
    assert "--across-devices" in error
    code, out, _ = compare(capsys, url, "--across-devices")
    assert code == 0
    assert out.splitlines()[0] == "Hardware side by side, across devices: cpu / cuda"
    assert "Changes across devices: cpu / cuda" in out.splitlines()
    assert "linear" in out


def test_machines_and_devices_are_asked_for_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = {"device": "cuda", "machine": "server"}
    url = stored(tmp_path, a={"machine": "laptop"}, b=there)
    code, _, error = compare(capsys, url, "--across-devices")
    assert code == 2
    assert "--across-machines" in error
    code, out, _ = compare(capsys, url, "--across-devices", "--across-machines")
    assert code == 0
    title = "Changes across machines: laptop / server; across devices: cpu / cuda"
    assert title in out.splitlines()


def test_runs_on_one_device_are_compared_without_a_label(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = compare(capsys, stored(tmp_path, a={}, b={}))
    assert code == 0
    assert "across" not in out


def test_hardware_is_compared_by_how_near_it_comes_to_its_roofline() -> None:
    case = LINEAR[0]
    rates = {"copy bandwidth": 1e10, "matmul float32": 1e12}
    slow = timed([case], {"torch": 1e-3})
    machine = Machine("g", "server", rates)
    fast = msgspec.structs.replace(
        timed([case], {"torch": 1e-4}), run=msgspec.structs.replace(slow.run, machine=machine)
    )
    forward, backward = (texts(line) for line in side_by_side([slow, fast]).lines)
    assert forward[:3] == [case.label, "forward", "torch"]
    assert forward[3].startswith("1.01 ms")
    assert forward[4] == "n/a"
    assert forward[5].startswith("101 µs")
    assert float(forward[6].split()[0]) == pytest.approx(
        100 * case.nbytes / 1e10 / 1.01e-4, rel=0.01
    )
    assert backward[6] == "n/a"
    counted = replace(case, flops=5e7)
    assert roofline_share(counted, "forward", fast.run, 1e-4) == pytest.approx(0.5)
    cuda = on("cuda", fast).run
    assert roofline_share(counted, "forward", cuda, 1e-4) is None


@pytest.mark.parametrize(
    ("name", "threads", "known"), [("torch@2", 1, False), ("torch@1", 2, True)]
)
def test_rates_of_one_core_say_nothing_of_several_threads(
    name: str, threads: int, known: bool
) -> None:
    results = timed([LINEAR[0]], {name: 1e-3})
    machine = Machine("g", "server", {"copy bandwidth": 1e10, "matmul float32": 1e12})
    run = msgspec.structs.replace(results.run, machine=machine, options={"threads": threads})
    there = msgspec.structs.replace(results, run=run)
    forward = texts(next(iter(side_by_side([there, there]).lines)))
    assert (forward[4] != "n/a") == known


# The real thing


def test_a_module_really_measured_is_shown_in_the_published_shape(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = str(tmp_path / "runs.sqlite")
    work = ("--filter", "softmax*", "--sizes", "small", "--phases", "forward")
    chosen = ("--frameworks", "torch,numpy", *work)
    quick = ("--processes", "1", "--rounds", "1", "--block", "0.001", "--store", url)
    with pytest.raises(SystemExit) as end:
        main(("bench", "run", "modules", *chosen, *quick))
    assert not end.value.code, capsys.readouterr()
    file, chart = tmp_path / "report.md", tmp_path / "report.png"
    with pytest.raises(SystemExit):
        main(("bench", "report", "--store", url, "--output", str(file), "--chart", str(chart)))
    text = file.read_text()
    assert "## nn.Softmax on cpu, forward" in text
    assert text.count("| input=128x64 dim=-1 |") == 1
    assert "| 9.71885 |" in text
    assert chart.stat().st_size > 10_000
