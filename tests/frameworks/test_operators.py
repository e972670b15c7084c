"""Every operator in TensorFlow and MXNet: checked, or the call that is missing is named."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tapegrad.bench.results import Results
from tapegrad.bench.shapes import customised
from tapegrad.bench.suites import operators
from tests.frameworks.conftest import Check

SMALL = tuple(case for case in operators.SUITE.cases if case.size == "small")
#: The first case of each operator, in the suite's order.
FIRSTS = tuple(reversed({case.op: case for case in reversed(SMALL)}.values()))
FRAMEWORKS = ("tensorflow", "tensorflow-eager", "mxnet")
#: TensorFlow has one table of calls, traced or not.
DOUBLES = ("tensorflow", "mxnet")
#: At least so many operators must be checked, and so a missing call is written.
WANTED = {"tensorflow": (70, "tf."), "tensorflow-eager": (70, "tf."), "mxnet": (60, "nd.")}
#: In float64, MXNet's gradient of the error function has a constant in float32.
WRONG = {"mxnet": {("erf", "backward"), ("gelu", "backward")}}


@pytest.fixture(scope="module")
def singles(check: Check) -> Results:
    return check(SMALL, FRAMEWORKS)


@pytest.fixture(scope="module")
def doubles(check: Check) -> Results:
    return check(FIRSTS, DOUBLES, "float64")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_operator_is_checked_or_names_the_missing_call(
    framework: str, singles: Results
) -> None:
    ops = {key: case.op for key, case in singles.case_by_key().items()}
    verdicts: dict[str, set[str]] = defaultdict(set)
    for cell in singles.cells:
        if cell.framework == framework:
            assert cell.verdict in ("checked", "unsupported"), (ops[cell.case], cell)
            verdicts[ops[cell.case]].add(cell.verdict)
            named = WANTED[framework][1] in cell.reason
            assert named == (cell.verdict == "unsupported"), (ops[cell.case], cell.reason)
    assert verdicts.keys() == {case.op for case in SMALL}
    checked = [op for op, found in verdicts.items() if found == {"checked"}]
    assert len(checked) >= WANTED[framework][0]


@pytest.mark.parametrize("framework", DOUBLES)
def test_doubles_are_doubles(framework: str, doubles: Results) -> None:
    ops = {key: case.op for key, case in doubles.case_by_key().items()}
    wrong = set()
    for cell in doubles.cells:
        if cell.framework == framework:
            assert cell.verdict in ("checked", "unsupported", "wrong"), (ops[cell.case], cell)
            if cell.verdict == "wrong":
                wrong.add((ops[cell.case], cell.phase))
    assert wrong == WRONG.get(framework, set())


def test_other_shapes_and_attributes_are_checked(check: Check) -> None:
    """Kernels that are not square, dimensions from the end."""
    kernel = "x=2x4x8x7,weight=4x4x3x5,bias=4"
    asked = {"conv2d": (kernel, "padding=1"), "conv_transpose2d": (kernel, "stride=2")}
    asked["flip"] = ("x=8x3", "dim=-1")
    cases = [
        case
        for op, (shape, attr) in asked.items()
        for case in customised(operators.SUITE, (shape,), (attr,), "", (op,)).cases
    ]
    found = check(cases, ("tensorflow", "mxnet"))
    assert {cell.verdict for cell in found.cells} == {"checked"}


def test_tensorflow_lacks_only_what_it_lacks(singles: Results, doubles: Results) -> None:
    """Gradients with dilation and in groups exist in float32, and only there."""

    def lacking(results: Results) -> set[str]:
        ops = {key: case.op for key, case in results.case_by_key().items()}
        return {
            ops[cell.case]
            for cell in results.cells
            if cell.framework == "tensorflow" and cell.verdict == "unsupported"
        }

    always = {"adaptive_avg_pool2d", "random_exponential"}
    assert lacking(singles) == always
    assert lacking(doubles) == always | {"conv2d_dilated", "conv2d_grouped"}
