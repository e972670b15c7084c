"""Who only reads changes nothing: no tables in an empty place, no fuss when a pipe is closed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psycopg
import pytest

from tapegrad import bench
from tapegrad.bench.store import StoreMissingError, open_store
from tapegrad.cli import main
from tapegrad.cli.exit_codes import NO_ROOM, READER_LEFT, STORE
from tests.bench.postgres import Server, running_server

READING = (("runs",), ("report",), ("compare", "a", "b"), ("run", "--resume"))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_a_file_without_content_stays_without(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "empty.sqlite"
    file.touch()
    with pytest.raises(SystemExit) as end:
        main(["bench", *command, "--store", str(file)])
    assert end.value.code == STORE
    said = capsys.readouterr().err
    assert f"there is no run in {file}: it is empty; `tapegrad bench run` fills it" in said
    assert [(each.name, each.stat().st_size) for each in tmp_path.iterdir()] == [(file.name, 0)]


def test_an_empty_database_stays_empty(server: Server) -> None:
    url = server.new_database()
    with pytest.raises(StoreMissingError, match="there is no run in postgresql"):
        open_store(url, create=False)
    with psycopg.connect(url) as connection:
        tables = connection.execute(
            "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace"
        ).fetchone()
    assert tables == (0,)
    open_store(url).close()  # whoever writes makes the tables
    open_store(url, create=False).close()


@pytest.mark.parametrize("arguments", [("list", "operators"), ("list",), ("--help",)], ids=" ".join)
def test_a_reader_who_leaves_ends_a_command_quietly(arguments: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)  # gone before the first word
    words = [sys.executable, "-m", "tapegrad.cli", "bench", *arguments]
    with os.fdopen(writing, "w") as output:
        found = subprocess.run(
            words, stdout=output, stderr=subprocess.PIPE, timeout=60, check=False
        )
    assert (found.returncode, found.stderr) == (READER_LEFT, b"")


@pytest.mark.parametrize(
    ("redirection", "code", "said"),
    [
        (">/dev/full", NO_ROOM, "the output cannot be written: No space left on device"),
        (">&-", 0, ""),
        ("2>&- >/dev/null", 0, ""),
    ],
)
def test_any_output_will_do(redirection: str, code: int, said: str) -> None:
    words = f"{sys.executable} -m tapegrad.cli bench list operators {redirection}"
    found = subprocess.run(
        ["bash", "-c", words], stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    assert found.returncode == code
    assert (said in found.stderr) if said else not found.stderr


def test_characters_that_the_output_has_not_are_replaced(tmp_path: Path) -> None:
    result = bench.measure({"mine[v1]": np.tanh, "mine[/v2]": np.tanh}, np.ones(9) / 3, rounds=2)
    assert "mine[v1]" in str(result) and "mine[/v2]" in str(result)
    result.save(tmp_path / "result.json")
    words = [sys.executable, "-m", "tapegrad.cli", "bench", "report", str(tmp_path / "result.json")]
    ascii_only = os.environ | {"PYTHONIOENCODING": "ascii"}
    found = subprocess.run(words, env=ascii_only, capture_output=True, timeout=60, check=False)
    assert found.returncode == 0 and b"mine[/v2]" in found.stdout
