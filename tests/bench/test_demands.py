"""Shapes that are refused are those that nobody computes; NumPy and PyTorch are the judges."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tapegrad
from tapegrad.bench.demands import RULES, flaw
from tapegrad.bench.frameworks import find
from tapegrad.bench.shapes import templates
from tapegrad.bench.suites.operators import SUITE

#: Attributes that are sizes: others are not a question of shapes.
COUNTS = {"dim", "stride", "padding", "dilation", "groups", "kernel", "parts", "k", "heads"}
#: Both judges compute these beyond what the name says: biases broadcast, or on other dimensions.
STRICTER = {
    *("linear", "multi_head_attention", "gru_cell", "lstm_cell"),
    *("einsum", "global_avg_pool2d", "transpose"),
    *("conv2d_pointwise", "conv2d_strided", "conv2d_dilated", "conv2d_grouped", "conv2d_depthwise"),
}
#: Proposals for each variant of an operator.
TRIALS = 40
#: Runs in each judge's own interpreter: the shapes of what it computes, null where it cannot.
JUDGE = """
import importlib, json, sys, warnings
import numpy as np
from tapegrad.worker.operators import outputs_of
warnings.simplefilter("ignore")
name = sys.argv[1]
library = importlib.import_module(name)
table = importlib.import_module(f"tapegrad.worker.operators.{name}").OPERATORS

def computes(op, inputs, attrs):
    arrays = [np.zeros(s, np.int64) if whole else np.full(s, 0.5) for s, whole in inputs]
    if name == "torch":
        arrays = [library.from_numpy(array) for array in arrays]
    attrs = {key: tuple(v) if isinstance(v, list) else v for key, v in attrs.items()}
    try:
        shapes = [list(each.shape) for each in outputs_of(table[op](*arrays, **attrs))]
    except Exception:
        return None
    return None if any(0 in shape for shape in shapes) else shapes

print(json.dumps([computes(*each) for each in json.load(sys.stdin)]))
"""

Proposal = tuple[str, dict[str, tuple[int, ...]], dict[str, Any], list[bool]]


def proposals() -> list[Proposal]:
    """Change shapes and attributes of small cases at random."""
    rng = random.Random(0)
    found = []
    for template in templates():
        case = template.examples[0]
        whole = [array.kind == "integers" for array in case.inputs]
        sizes = sorted({side for array in case.inputs for side in array.shape} | {1, 2, 3})
        for _ in range(TRIALS):
            shapes = {array.name: list(array.shape) for array in case.inputs}
            for _ in range(rng.choice((0, 1, 1, 2))):
                change(rng, shapes[rng.choice([*shapes])], sizes)
            attrs = {
                name: rng.randint(-2, 4) if name in COUNTS and rng.random() < 0.3 else value
                for name, value in case.attrs.items()
            }
            found.append((case.op, {n: tuple(s) for n, s in shapes.items()}, attrs, whole))
    return found


def change(rng: random.Random, shape: list[int], sizes: list[int]) -> None:
    """Replace a side, add one or take one away."""
    place = rng.randrange(len(shape) + 1)
    match rng.choice(("replace", "replace", "add", "remove")):
        case "add":
            shape.insert(place, rng.choice(sizes))
        case "remove" if shape:
            del shape[place % len(shape)]
        case _ if shape:
            shape[place % len(shape)] = rng.choice(sizes)


def judged(name: str, asked: list[Proposal]) -> list[Any]:
    content = [
        (op, [*zip(shapes.values(), whole, strict=True)], attrs)
        for op, shapes, attrs, whole in asked
    ]
    program = str(find("torch").interpreter()) if name == "torch" else sys.executable
    source = str(Path(tapegrad.__file__).parents[1])
    done = subprocess.run(
        [program, "-c", JUDGE, name],
        input=json.dumps(content),
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers: list[Any] = json.loads(done.stdout)
    return answers


def test_what_is_taken_somebody_computes_and_what_is_refused_not_both_in_the_same_way() -> None:
    asked = proposals()
    reasons = [flaw(op, shapes, attrs) for op, shapes, attrs, _ in asked]
    wrong = []
    judges = judged("numpy", asked), judged("torch", asked)
    for (op, shapes, attrs, _), reason, *found in zip(asked, reasons, *judges, strict=True):
        nobody = found == [None, None]
        alike = (
            not nobody and found[0] == found[1] and op not in STRICTER and () not in shapes.values()
        )
        apart = None not in found and found[0] != found[1]
        if nobody or apart if reason is None else alike:
            wrong.append(f"{op} {shapes} {attrs}: {reason}, {found}")
    assert not wrong, "\n".join(wrong[:20])
    assert 0.2 < reasons.count(None) / len(reasons) < 0.8  # both are put to the test


@pytest.mark.parametrize(
    ("op", "other", "reason"),
    [
        ("conv2d_pointwise", {"weight": (8, 8, 3, 3)}, "the last sides of weight must be 1x1"),
        ("conv2d_strided", {"stride": 1}, "stride must be 2 or more"),
        ("conv2d_dilated", {"dilation": 1}, "dilation must be 2 or more"),
        ("conv2d_grouped", {"groups": 1, "weight": (8, 8, 3, 3)}, "groups must be 2 or more"),
        ("conv2d_depthwise", {"groups": 2, "weight": (8, 4, 3, 3)}, "as many as x has channels"),
    ],
)
def test_a_convolution_is_what_its_name_says(op: str, other: dict[str, Any], reason: str) -> None:
    shapes = {"x": (2, 8, 6, 6), "weight": (8, 8, 3, 3), "bias": (8,)}
    attrs = {"stride": 1, "padding": 1}
    shapes |= {name: value for name, value in other.items() if name in shapes}
    attrs |= {name: value for name, value in other.items() if name not in shapes}
    found = flaw(op, shapes, attrs)
    assert found is not None and reason in found and flaw("conv2d", shapes, attrs) is None


def test_the_suite_keeps_its_own_rules() -> None:
    for case in SUITE.cases:
        shapes = {array.name: array.shape for array in case.inputs}
        assert flaw(case.op, shapes, case.attrs) is None, case.label
    assert RULES.keys() <= {case.op for case in SUITE.cases}


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "reason"),
    [
        ("linear", {"x": (8, 9), "weight": (7, 8), "bias": (7,)}, {}, "that of weight, 8"),
        ("add", {"x": (8, 9), "y": (8,)}, {}, "x and y do not broadcast"),
        ("softmax", {"x": (4, 4)}, {"dim": 2}, "dim must be from -2 to 1"),
        ("topk", {"x": (4, 4)}, {"k": 5}, "k must be at most the last side of x, 4"),
        ("clip", {"x": (4,)}, {"min": 1.0, "max": 0.0}, "min must be at most max"),
        ("dropout", {"x": (4,)}, {"p": 1.5}, "p must be from 0 to 1"),
        ("pad", {"x": (1, 1, 4, 4)}, {"width": 1, "mode": "foo"}, "mode must be constant or"),
    ],
)
def test_a_reason_says_what_was_expected(
    op: str, shapes: dict[str, tuple[int, ...]], attrs: dict[str, Any], reason: str
) -> None:
    found = flaw(op, shapes, attrs)
    assert found is not None and reason in found
