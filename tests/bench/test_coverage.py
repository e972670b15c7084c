"""The coverage report: what frameworks have comes from them, what is measured from running it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tapegrad.bench.coverage import Coverage, categories, coverage_of, smallest
from tapegrad.bench.frameworks import find
from tapegrad.bench.report.coverage import page_of, plain
from tapegrad.bench.report.markdown import page_markdown
from tapegrad.bench.suite import Suite
from tapegrad.bench.suites import operators
from tapegrad.cli import main

OPS = ("linear", "softmax", "relu", "sort", "embedding", "random_exponential")
SMALL = """
from tapegrad.bench import Suite
from tapegrad.bench.suites.operators import SUITE as ALL
SUITE = Suite("some", "for tests", tuple(case for case in ALL.cases if case.op in OPS))
"""


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    try:
        main(["bench", "coverage", *words])
    except SystemExit as end:
        return int(end.code or 0), *capsys.readouterr()
    return 0, *capsys.readouterr()


@pytest.fixture(scope="module")
def suite() -> Suite:
    return Suite("some", "", tuple(case for case in operators.SUITE.cases if case.op in OPS))


@pytest.fixture(scope="module")
def jax(suite: Suite) -> Coverage:
    return coverage_of(find("jax"), smallest(suite))


def test_a_framework_is_asked_and_its_calls_are_traced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "some.py"
    file.write_text(f"OPS = {OPS}\n{SMALL}")
    code, text, _ = call(capsys, "torch", "--suite", str(file), "--format", "json")
    assert code == 0
    (found,) = json.loads(text)["frameworks"]
    measured, unmeasured = found["measured"], found["unmeasured"]
    assert measured["softmax"] == ["softmax"] and measured["sort"] == ["sort"]
    assert measured["linear"] == ["linear"]  # a composite, which dispatch modes do not see
    assert measured["threshold_backward"] == ["relu"]  # in the backward pass only
    assert measured["exponential"] == ["random_exponential"]  # called in place
    assert "relu" not in unmeasured["core"] and "erf" in unmeasured["core"]
    assert "fft_fft" in unmeasured["fft"] and "linalg_svd" in unmeasured["linalg"]
    expect_sound(found)
    names = set(measured).union(*unmeasured.values())
    for name in ("_softmax", "exponential_", "add_", "exp_out", "size", "is_complex"):
        assert name not in names
    assert found["untraced"] == {}


def test_primitives_are_found_inside_of_others(jax: Coverage) -> None:
    assert jax.reached["dot_general"] == ["linear"]
    assert jax.reached["scatter-add"] == ["embedding", "sort"]
    assert "erf" in jax.unmeasured("primitives") and "sort" in jax.measured("primitives")
    expect_sound(jax.as_dict())


def expect_sound(found: dict[str, Any]) -> None:
    counts, unmeasured = found["counts"], found["unmeasured"]
    assert counts["all"]["measured"] == len(found["measured"]) > 10
    for group, names in unmeasured.items():
        assert counts[group]["registered"] == counts[group]["measured"] + len(names)
        assert not set(names) & set(found["measured"])


def test_reports_say_what_is_measured_and_what_is_not(jax: Coverage) -> None:
    silent = Coverage("other", "", {}, {}, {}, reason="unsupported: it does not tell")
    text = page_markdown(page_of("operators", [jax, silent]))
    registered, measured = jax.counts["all"]
    assert f"| jax | all | {registered} | {measured} | {measured / registered:.0%} |" in text
    assert "| primitives | dot\\_general | linear |" in text
    assert "erf, erf\\_inv, erfc, exp2" in text  # of the letter E, in one line
    assert "## other: nothing is known" in text and "it does not tell" in text
    assert "| embedding | 1 | 2 | 1 |" in text
    assert [each["name"] for each in plain("operators", [])["categories"]] == [
        each.name for each in categories()
    ]


def test_a_case_that_cannot_be_traced_costs_only_itself(suite: Suite) -> None:
    cases = [case for case in smallest(suite) if case.op == "relu"]
    found = coverage_of(find("jax-eager"), cases)
    assert found.counts["all"][0] > 100 and found.counts["all"][1] == 0
    assert list(found.untraced) == [case.label for case in cases]


def test_who_does_not_tell_is_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = call(capsys, "numpy")
    assert code == 4
    assert "numpy: nothing is known" in text and "cannot ask this framework" in text
    code, _, error = call(capsys, "numpy", "--format", "xml")
    assert code == 2 and "There is no format 'xml'" in error
    code, _, error = call(capsys, "trch")
    assert code == 2 and "Did you mean torch" in error


def test_smallest_takes_each_operator_in_its_smallest_class() -> None:
    assert {case.size for case in smallest(operators.SUITE)} == {"small"}
    large = tuple(case for case in operators.SUITE.cases if case.size in ("large", "skewed"))
    assert {case.size for case in smallest(Suite("large", "", large))} == {"large"}
