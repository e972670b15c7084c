"""Operators at shapes of the user's own: what follows from them, what is refused, what runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tapegrad.bench.driver import Options, select
from tapegrad.bench.errors import BenchError, MalformedFileError
from tapegrad.bench.report.command import command_for
from tapegrad.bench.results import Results
from tapegrad.bench.shapes import Request, customised, fit, templates
from tapegrad.bench.store import open_store
from tapegrad.bench.suites import graphs, operators
from tapegrad.cli import main
from tapegrad.worker.case import Case

QUICK = ("--frameworks", "numpy", "--processes", "1", "--rounds", "1", "--block", "0.001")
#: Attributes that no shape explains: what a reshaped array looks like, how many heads there are.
UNEXPLAINED = {"reshape", "broadcast_to", "multi_head_attention"}


class Answer(NamedTuple):
    """What the command line ended with and said."""

    code: int
    stdout: str
    stderr: str


Bench = Callable[..., Answer]


def custom(*shapes: str, ops: str = "*", attrs: tuple[str, ...] = ()) -> dict[str, Case]:
    """Return cases by label."""
    suite = customised(operators.SUITE, shapes, attrs, "", ops.split(","))
    return {case.label: case for case in suite.cases}


def from_file(file: Path) -> tuple[Case, ...]:
    return customised(operators.SUITE, (), (), str(file), ()).cases


@pytest.fixture
def bench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Bench:
    """Give the command line with a store of its own and NumPy alone."""
    monkeypatch.setenv("TAPEGRAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> Answer:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main(["bench", *words, "--store", str(tmp_path / "r.sqlite")])
        return Answer(int(end.value.code or 0), *capsys.readouterr())

    return call


def latest(tmp_path: Path) -> Results:
    with open_store(tmp_path / "r.sqlite") as store:
        return store.load(store.resolve("latest").id)


def labels(results: Results) -> list[str]:
    return [case.label for case in results.case_by_key().values()]


@pytest.mark.parametrize("size", range(4))
def test_every_case_of_the_suite_is_found_again_from_its_shapes(size: int) -> None:
    """Tolerance, bounds of integers and attributes follow from shapes alone, in all classes."""
    for template in templates():
        case = template.examples[size]
        if template.op in UNEXPLAINED:
            continue
        attrs = case.attrs if template.op == "conv2d" else {}  # the skewed one has another stride
        shapes = {array.name: array.shape for array in case.inputs}
        assert fit(template, Request(shapes, attrs)).key == case.key


@pytest.mark.parametrize(
    ("ops", "shape", "labels"),
    [
        ("softmax", "x=4x50257", ["softmax 4x50257 dim=-1"]),
        ("sub", "x=8x9", ["sub 8x9 8x9", "sub 8x9 9"]),
        ("sub", "x=8x9,y=9", ["sub 8x9 9"]),
        ("add", "x=8x9,y=()", ["add 8x9 ()"]),
        ("layer_norm", "x=8x500", ["layer_norm 8x500 500 500 eps=1e-05"]),
        ("linear", "x=8x9,weight=7x9", ["linear 8x9 7x9 7"]),
        ("adam", "p=3x5", ["adam 3x5 3x5 3x5 3x5 " + "lr=0.001 beta1=0.9 beta2=0.999 eps=1e-08 "
                           f"decay={decay}" for decay in ("0.0", "0.1")]),
        ("conv2d_depthwise", "x=1x6x5x5",
         ["conv2d_depthwise 1x6x5x5 6x1x3x3 6 stride=1 padding=1 groups=6"]),
        ("random_uniform", "like=6x7", ["random_uniform 2 6x7"]),
        ("conv2d_grouped", "x=1x32x8x8,weight=64x16x3x3",
         ["conv2d_grouped 1x32x8x8 64x16x3x3 64 stride=1 padding=1 groups=2"]),
    ],
)  # fmt: skip
def test_what_is_left_out_follows(ops: str, shape: str, labels: list[str]) -> None:
    assert list(custom(shape, ops=ops)) == labels


def test_terms_and_bounds_follow_the_shapes() -> None:
    (loss,) = custom("x=8x50000", ops="cross_entropy").values()
    assert loss.inputs[1].high == 50000 and loss.reduction == 50000
    (lookup, *_) = custom("index=5,weight=700x3", ops="embedding").values()
    assert lookup.inputs[0].high == 700
    assert custom("x=8x6,weight=7x6", ops="linear")["linear 8x6 7x6 7"].reduction == 6
    for shape, dim in (("100x3", -1), ("3x100", 0), ("5x100x3", 2)):
        (pick,) = custom(f"x={shape},index=5", ops="index_select", attrs=(f"dim={dim}",)).values()
        assert pick.inputs[1].high == 3
    (spread,) = custom("x=6,target=8x6", ops="mse_loss").values()
    assert spread.reduction == 48
    turned = custom("x=8x6", ops="sum", attrs=("dim=0",))
    assert turned["sum 8x6 dim=0"].reduction == 8


def test_variants_that_an_attribute_makes_the_same_are_one_case() -> None:
    suite = customised(operators.SUITE, ("x=4x5",), ("order=3",), "", ["norm"])
    assert [case.label for case in suite.cases] == ["norm 4x5 dim=-1 order=3"]


def test_attributes_change_cases_at_their_own_shapes() -> None:
    cases = custom(ops="log_softmax", attrs=("dim=1",)).values()
    assert {case.size for case in cases} == {"small", "medium", "large", "skewed"}
    assert all(case.attrs == {"dim": 1} for case in cases)
    (norm,) = custom("x=8x6", ops="norm", attrs=("order=1",)).values()
    assert norm.inputs[0].kind == "distinct"  # as the suite draws it for this order
    assert custom("x=6x6", ops="reshape", attrs=("shape=4x9",))["reshape 6x6 shape=4x9"]


@pytest.mark.parametrize(
    ("ops", "shape", "attrs", "message"),
    [
        ("softmx", "x=3", (), "no operator 'softmx'. Did you mean softmax"),
        ("softmax", "y=3", (), "no input of softmax 'y'. There are: x"),
        ("softmax", "x=0x4", (), "--shape x=0x4: sides of x must be 1 or more, not 0x4"),
        ("softmax", "x=ax4", (), "'ax4' is no shape of x; write it like 64x1024"),
        ("softmax", "x=-3x4", (), "'-3x4' is no shape of x"),
        ("softmax", "x=3.5x4", (), "is no shape of x"),
        ("softmax", "x", (), "'x' is not NAME=VALUE"),
        ("softmax", "x=", (), "'x=' is not NAME=VALUE"),
        ("softmax", "x=4,x=5", (), "gives x twice"),
        ("softmax", f"x={9**40}", (), "more elements than any machine holds"),
        ("softmax", f"x={'9' * 5000}", (), "more elements than any machine holds"),
        ("softmax", "x=4x4", ("dim=7",), "softmax: x=4x4 dim=7 do not go together"),
        ("softmax", "x=4x4", ("dim=zero",), "dim must be something like -1, not 'zero'"),
        ("softmax", "x=4x4", ("axis=0",), "no attribute of softmax 'axis'. There are: dim"),
        ("softmax", "x=4x4", ("dim=0", "dim=1"), "--attr gives dim twice"),
        ("sort", "x=4x4", ("descending=maybe",), "descending must be something like false"),
        ("elu", "x=4x4", ("alpha=nan",), "alpha must be something like"),
        ("linear", "x=4x4", (), "linear: the shape of weight and bias does not follow"),
        ("softmax,linear", "x=4x4", (), "linear: the shape of weight"),
        ("reshape", "x=4x4", (), "reshape: its attribute shape does not follow"),
        ("cross_entropy", "x=4x4x4,target=4x4", (), "do not go together: x must have 2 dimensions"),
        ("gather", "x=4x4x4,index=4x2x4", (), "how far the integers of index reach"),
    ],
)  # fmt: skip
def test_what_makes_no_case_is_refused(
    ops: str, shape: str, attrs: tuple[str, ...], message: str
) -> None:
    with pytest.raises(BenchError) as caught:
        custom(shape, ops=ops, attrs=attrs)
    assert message in str(caught.value)


def test_a_shape_that_nobody_takes_is_refused_except_beside_a_label() -> None:
    with pytest.raises(BenchError, match="no input of softmax 'weight'"):
        custom("x=4x4", "x=4x4,weight=3x4", ops="softmax")
    assert custom("x=4x4", "x=4x4,weight=3x4", ops="softmax 4x4*")


def test_other_suites_have_no_shapes() -> None:
    with pytest.raises(BenchError, match="go with the suite operators, not with graphs"):
        customised(graphs.SUITE, ["x=3"], [], "", [])


TABLES: list[dict[str, Any]] = [
    {"op": "linear", "inputs": {"x": [8, 9], "weight": "7x9"}, "dtype": "float64"},
    {"op": "log_softmax", "inputs": {"x": [5, 6]}, "attrs": {"dim": 0}},
]
TOML = """
[[case]]
op = "linear"
inputs = { x = [8, 9], weight = "7x9" }
dtype = "float64"
[[case]]
op = "log_softmax"
inputs.x = [5, 6]
attrs.dim = 0
"""


def test_toml_and_json_say_the_same(tmp_path: Path) -> None:
    toml, text = tmp_path / "mine.toml", tmp_path / "mine.json"
    toml.write_text(TOML)
    text.write_text(json.dumps({"case": TABLES}))
    cases = from_file(toml)
    assert [case.label for case in cases] == ["linear 8x9 7x9 7", "log_softmax 5x6 dim=0"]
    assert [case.dtype for case in cases] == ["float64", "float32"]
    assert [case.reduction for case in cases] == [9, 5]
    assert [case.key for case in from_file(text)] == [case.key for case in cases]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[case]\n", "is no TOML: "),
        ("a = " + "[" * 20_000, "is nested too deeply"),
        ("", "must hold tables named [[case]] and nothing else"),
        ("cases = []", "must hold tables named [[case]] and nothing else"),
        (TOML + "size = 3\n", "case 2 (log_softmax): Object contains unknown field `size`"),
        (TOML.replace('"7x9"', '"7by9"'), "case 1 (linear): inputs: '7by9' is no shape of weight"),
        (TOML.replace("[5, 6]", "[5, 0]"), "case 2 (log_softmax): inputs: sides of x must be 1"),
        (TOML.replace("[5, 6]", "[5, 6.5]"), "case 2 (log_softmax): Expected `int`, got `float`"),
        (TOML.replace("linear", "linar"), "case 1 (linar): There is no operator 'linar'. Did you"),
        (TOML.replace("float64", "float23"), "case 1 (linear): There is no dtype 'float23'"),
        (TOML.replace("dim = 0", "dim = 0.5"), "dim must be something like -1, not 0.5"),
        (TOML.replace("attrs.dim", "attrs.axis"), "no attribute of log_softmax 'axis'"),
        (TOML.replace('op = "linear"', "op = 3"), "case 1 (3): Expected `str`, got `int`"),
        (TOML + TOML, "cases 1 and 3 are the same work, linear 8x9 7x9 7"),
    ],
)  # fmt: skip
def test_flawed_files_are_refused_by_case(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(MalformedFileError) as caught:
        from_file(file)
    assert str(caught.value).startswith(str(file)) and message in str(caught.value)


def test_custom_shapes_run_and_each_row_has_its_command(bench: Bench, tmp_path: Path) -> None:
    shapes = ("--shape", "x=6x9", "--shape", "x=3x7", "--attr", "dim=0")
    done = bench("run", "operators", "--filter", "softmax", *shapes, *QUICK)
    assert done.code == 0, done.stderr
    results = latest(tmp_path)
    assert labels(results) == ["softmax 6x9 dim=0", "softmax 3x7 dim=0"]
    words = command_for(results.run, "softmax 3x7 dim=0", "forward")
    assert "--shape x=6x9 --shape x=3x7 --attr dim=0" in words
    again = Options("operators", filter=["softmax 3x7 dim=0"], shape=["x=6x9", "x=3x7"])
    suite = customised(operators.SUITE, again.shape, ["dim=0"], "", again.filter)
    assert [case.label for case in select(suite, again)] == ["softmax 3x7 dim=0"]


def test_a_run_of_a_file_of_cases_goes_on_with_the_file(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(TOML)
    done = bench("run", "operators", "--cases", "mine.toml", "--phases", "inference", *QUICK)
    assert done.code == 0, done.stderr
    results = latest(tmp_path)
    assert results.run.options["cases"] == str(tmp_path / "mine.toml")
    assert {cell.verdict for cell in results.cells} == {"checked"}  # tapegrad confirms NumPy
    assert bench("run", "operators", "--resume", "latest").code == 0
    assert len(latest(tmp_path).blocks) == len(results.blocks)
    (tmp_path / "mine.toml").write_text(TOML.replace("[5, 6]", "[5, 7]"))
    changed = bench("run", "--resume", "latest")
    assert changed.code == 2 and "log_softmax 5x7 dim=0 is new" in changed.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--shape", "x=3x4", "--sizes", "small"), "sizes choose among the suite's own cases"),
        (("--cases", "no.toml"), "no.toml cannot be read: No such file"),
        (("--cases", "no.toml", "--attr", "dim=0"), "leave out --shape and --attr"),
        (
            ("--filter", "matmul", "--shape", "a=8x16,b=17x8"),
            "16 elements and columns of b 17",
        ),
        (("--filter", "softmax", "--shape", "x=99999999x9999999"), "this machine has"),
    ],
)
def test_wrong_usage_ends_before_anything_is_stored(
    bench: Bench, words: tuple[str, ...], message: str
) -> None:
    done = bench("run", "operators", *words, *QUICK)
    assert done.code == 2 and message in done.stderr
    assert bench("runs").stdout == ""


FILE = """
from tapegrad.bench import Array, Case, Suite
case = Case("operator", "exp", (Array("x", (4, SIDE)),), phases=("forward",))
SUITE = Suite("mine", "for tests", (case,), frameworks=("numpy",))
"""


def test_a_suite_file_resumes_its_own_latest_run(bench: Bench, tmp_path: Path) -> None:
    for name, side in (("one.py", "5"), ("two.py", "6")):
        (tmp_path / name).write_text(FILE.replace("SIDE", side))
    assert bench("run", "one.py", *QUICK).code == 0
    first = latest(tmp_path).run.id
    assert bench("run", "operators", "--filter", "exp", "--sizes", "small", *QUICK).code == 0
    again = bench("run", "one.py", "--resume", "latest")
    assert again.code == 0, again.stderr
    assert first in again.stderr
    other = bench("run", "two.py", "--resume", "latest")
    assert other.code == 2 and f"Run {first} is of {tmp_path / 'one.py'}" in other.stderr
