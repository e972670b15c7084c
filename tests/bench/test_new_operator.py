"""The worked example of docs/bench.md, line by line in a copy: a new operator in all frameworks."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import tapegrad
from tests.checkout import ROOT, python

BEFORE = "triu"
LINE = re.compile(r"^((?:bench|worker)/\S+\.py) +(.+)$", re.MULTILINE)


def edit(package: Path) -> list[str]:
    """Put each line of the example behind the one that it names; returns the files."""
    text = (ROOT / "docs" / "bench.md").read_text()
    example = text[text.index("So `tril` would be") :]
    lines = LINE.findall(example[: example.index("each behind the line")])
    for name, line in lines:
        file = package / name
        before, after = file.read_text().split(f'"{BEFORE}"')
        rest, newline, after = after.partition("\n")
        indent = re.findall(r"\n( *)[^\n]*$", before)[-1]
        file.write_text(f'{before}"{BEFORE}"{rest}{newline}{indent}{line}\n{after}')
    return [name for name, _ in lines]


def test_the_worked_example_runs_as_written(tmp_path: Path) -> None:
    package = tmp_path / "tapegrad"
    shutil.copytree(Path(tapegrad.__file__).parent, package)
    assert len(edit(package)) == 7
    store = f"sqlite:///{tmp_path / 'results.sqlite'}"
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = ("-m", "tapegrad.cli", "bench")
    python(
        *(*command, "run", "operators", "--filter", "tril", "--sizes", "small"),
        *("--frameworks", "torch,jax,numpy,tapegrad", "--store", store),
        *("--processes", "1", "--rounds", "1", "--block", "0.001"),
        cwd=tmp_path,
        env=environment,
    )
    report = python(*command, "report", "--format", "json", "--store", store, env=environment)
    results = json.loads(report)["results"]
    found = {(cell["phase"], cell["framework"]): cell["verdict"] for cell in results["cells"]}
    everybody = ["torch", "jax", "numpy", "tapegrad"]
    assert {case["op"] for case in results["cases"]} == {"tril"}
    assert [found["forward", name] for name in everybody] == ["checked"] * 4
    assert [found["backward", name] for name in everybody if name != "numpy"] == ["checked"] * 3
