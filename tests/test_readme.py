"""Python blocks of the README and of guides, and examples in docstrings, print what they say."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import inspect
import io
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest

import tapegrad as tg

ROOT = Path(__file__).parents[1]
#: Their blocks are parts of files, or need a store of results.
FRAGMENTS = ("bench.md", "nightly.md", "workers.md")
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in FRAGMENTS),
]
BLOCK = re.compile(
    r"^```python[^\n]*\n(?P<code>.*?)^```[ \t]*$"
    r"(?:\s*^```(?:text|console|output)?[ \t]*\n(?P<printed>.*?)^```[ \t]*$)?",
    re.MULTILINE | re.DOTALL,
)


def blocks() -> list[Any]:
    """Every Python block with what it should print, or None; named by its page and line."""
    texts = {page: page.read_text(encoding="utf-8") for page in PAGES}
    return [
        pytest.param(
            page,
            match["code"],
            match["printed"],
            id=f"{page.stem} line {text.count(chr(10), 0, match.start()) + 1}",
        )
        for page, text in texts.items()
        for match in BLOCK.finditer(text)
    ]


def trimmed(text: str) -> list[str]:
    """The lines, without spaces at their ends, which editors remove, and empty ones at the end."""
    return [line.rstrip() for line in text.rstrip().splitlines()]


def test_the_layout_of_what_is_printed_counts() -> None:
    assert trimmed("[1. 2.] \n\n [3.]\n") == trimmed("[1. 2.]\n\n [3.]")
    assert trimmed("[1. 2.]\n") != trimmed("[1.  2.]\n")
    assert trimmed("[1.\n 2.]") != trimmed("[1. 2.]")


@pytest.mark.parametrize(("page", "code", "printed"), blocks())
def test_a_block_runs_and_prints_what_it_says(
    page: Path, code: str, printed: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, str(page), "exec"), {"__name__": "__main__"})
    if printed is not None:
        assert trimmed(out.getvalue()) == trimmed(printed)


def test_a_block_is_paired_with_the_output_right_behind_it() -> None:
    text = "```python\na\n```\n\n```text\n1\n```\n\n```python\nb\n```\nwords\n```text\n2\n```\n"
    found = [(match["code"], match["printed"]) for match in BLOCK.finditer(text)]
    assert found == [("a\n", "1\n"), ("b\n", None)]


#: Generated, or imported only by others: the interpreter, workers, Alembic.
ELSEWHERE = (
    "._core",
    "__main__",
    ".adapters.",
    ".faults.",
    ".migrations.",
    ".profiling.",
    "worker.operators.",
)
MODULES = [
    "tapegrad",
    *(
        module.name
        for module in pkgutil.walk_packages(tg.__path__, "tapegrad.")
        if not any(part in module.name for part in ELSEWHERE)
    ),
]


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_run(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


@pytest.mark.parametrize("name", sorted(set(tg.__all__) - {"errors"}))
def test_everything_public_has_a_docstring(name: str) -> None:
    assert inspect.getdoc(getattr(tg, name))


@pytest.mark.parametrize(
    "name",
    ["compile", "custom", "grad", "locate_nonfinite", "scan", "to_dot", "value_and_grad"],
)
def test_public_python_functions_have_a_runnable_example(name: str) -> None:
    assert ">>>" in (inspect.getdoc(getattr(tg, name)) or "")


@pytest.mark.parametrize("name", ["batch", "minimize", "explain", "profile", "scipy"])
def test_public_methods_have_a_runnable_example(name: str) -> None:
    assert ">>>" in (inspect.getdoc(getattr(tg.Program, name)) or "")
