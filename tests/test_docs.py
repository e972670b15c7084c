"""Pages written by programs are up to date."""

from __future__ import annotations

from pathlib import Path

from tapegrad import _core, opsdoc

PAGE = Path(__file__).parents[1] / "docs" / "ops.md"


def test_the_page_of_operations_is_what_the_table_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == opsdoc.page(), "run `make docs`"


def test_every_operation_has_a_row() -> None:
    page = opsdoc.page()
    assert all(f"| `{op['name']}(" in page for op in _core.op_table())
