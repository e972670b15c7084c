"""What others wrote does not command a terminal."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from tapegrad.bench.printable import printable
from tapegrad.bench.report import json
from tapegrad.bench.results import Cell
from tapegrad.bench.store import open_store
from tests.bench.stored import CASE, run

#: Rings, clears the screen, and what must be left of it.
ODD, LEFT = "a\x07\x1b[2Jb\x9bc", "a\ufffdb\ufffdc"


def test_what_controls_a_terminal_is_replaced_and_colours_are_left_out() -> None:
    found = printable({"a": "\x1b[1;31mred\x1b[0m\r\n\tb", "c": ["\x07\x9b31m", "d\x7f"], "e": 1.5})
    assert found == {"a": "red\n\tb", "c": ["\ufffd\ufffd31m", "d\ufffd"], "e": 1.5}


def test_a_store_and_a_file_that_others_wrote_are_read_as_plain_text(tmp_path: Path) -> None:
    path = tmp_path / "results.sqlite"
    with open_store(path) as store:
        store.begin(run("r1"), [], [CASE])
        store.add_cell("r1", Cell(CASE.key, "numpy", "forward", "wrong", "known"))
        plain = store.load("r1")
    with sqlite3.connect(path) as connection:
        connection.execute("update cells set reason=?", (ODD,))
        connection.execute("update runs set machine_name=?", (ODD,))
    connection.close()
    with open_store(path) as store:
        found = store.load("r1")
    assert (found.cells[0].reason, found.run.machine.name) == (LEFT, LEFT)
    file = tmp_path / "results.json"
    text = json.json_text(plain).replace('"known"', '"a\\u0007\\u001b[2Jb\\u009bc"')
    file.write_text(text, encoding="utf-8")
    assert json.load(file).cells[0].reason == LEFT
