"""The store keeps what it is given, on SQLite and PostgreSQL, whatever happens to it."""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import signal
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from tapegrad.bench.results import Block, Cell, Framework, Machine, Memory, Run
from tapegrad.bench.store import (
    DuplicateError,
    NotAStoreError,
    Store,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreNewerError,
    StoreReadOnlyError,
    StoreUnreachableError,
    StoreUrlError,
    UnknownRunError,
    open_store,
    schema,
)
from tapegrad.bench.store.location import data_folder, locate
from tapegrad.bench.store.tables import HEAD, metadata, version
from tapegrad.worker.case import Array, Case
from tests.bench.postgres import Server, running_server

MACHINE = Machine("f0", "laptop", {"cpu": "x", "cores": 2})
CASE = Case("operator", "add", (Array("a", (2, 3)), Array("b", ())), {"dim": 1, "pads": [1, 2]})


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty place for a store, on either database."""
    if request.param == "sqlite":
        return str(tmp_path / "results.sqlite")
    server: Server = request.getfixturevalue("server")
    return server.new_database()


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url) as store:
        yield store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.sqlite"


def run(id: str, suite: str = "quick", started: float = 1.0, machine: Machine = MACHINE) -> Run:
    return Run(id, suite, started, machine)


def block(round: int = 0, process: int = 0, **others: Any) -> Block:
    content = {"case": "c", "framework": "numpy", "phase": "forward", "samples": [1e-3, 2e-3]}
    return Block(**content | others, process=process, round=round)


# What goes in comes out.


def test_all_that_is_stored_is_loaded(store: Store) -> None:
    whole = Run("r1", "nightly", 1.5, MACHINE, {"rounds": 3, "only": ["add"]}, commit="abc")
    known, late = Framework("numpy", "2.0", "e1"), Framework("torch", "2.9", "e2", {"tf32": False})
    cells = [
        Cell(CASE.key, "torch", "forward", "checked", error=0.25, notes=["a", "b"]),
        Cell(CASE.key, "numpy", "backward", "unsupported", "has no gradients"),
    ]
    blocks = [
        block(1, controls={"copy": 1e-3}, inner=10, units=1 << 40, warmup_calls=7, ended=9.5),
        block(0, process=2, samples=[], stationary=False, cores=1.75),
    ]
    memory = [Memory(CASE.key, "torch", "forward", 1 << 40, None, 12)]
    store.begin(whole, [known], [CASE])
    store.add_framework("r1", late)
    for cell in cells:
        store.add_cell("r1", cell)
    for each in blocks:
        store.add_block("r1", each)
    store.add_memory("r1", memory[0])
    found = store.load("r1")
    assert found.run == whole
    assert found.frameworks == [known, late]
    assert found.cells == cells
    assert found.blocks == blocks
    assert found.memory == memory
    assert found.case_by_key() == {CASE.key: CASE}


def test_numbers_come_back_bit_by_bit(store: Store) -> None:
    samples = [math.inf, -0.0, 5e-324, 0.1, math.nan]
    store.begin(run("r1"), [], [])
    store.add_block("r1", block(samples=samples, controls={"copy": math.nan}, cores=math.inf))
    store.add_cell("r1", Cell("c", "numpy", "forward", "wrong", error=math.nan))
    store.add_cell("r1", Cell("c", "numpy", "backward", "wrong", error=math.inf))
    found = store.load("r1")
    assert struct.pack("5d", *found.blocks[0].samples) == struct.pack("5d", *samples)
    assert math.isnan(found.blocks[0].controls["copy"])
    assert found.blocks[0].cores == math.inf
    assert [repr(cell.error) for cell in found.cells] == ["nan", "inf"]


def test_last_words_that_are_no_text_are_kept_as_far_as_possible(store: Store) -> None:
    store.begin(run("r1"), [], [])
    store.add_cell("r1", Cell("c", "numpy", "forward", "crashed", "größer\0 \udcff", notes=["\0"]))
    [cell] = store.load("r1").cells
    assert (cell.reason, cell.notes) == ("größer\ufffd ?", ["\0"])


def test_values_that_are_not_plain_are_refused_and_nothing_is_kept(store: Store) -> None:
    with pytest.raises(StoreError, match="expected plain values"):
        store.begin(Run("r1", "quick", 1.0, MACHINE, {"path": Path()}), [], [])
    assert store.runs() == []


@pytest.mark.parametrize("odd", [{"inner": 1 << 70}, {"case": "\udcff"}])
def test_values_that_no_database_holds_are_refused(store: Store, odd: dict[str, Any]) -> None:
    store.begin(run("r1"), [], [])
    with pytest.raises(StoreError):
        store.add_block("r1", block(**odd))
    store.add_block("r1", block())
    assert store.load("r1").blocks == [block()]


def test_a_framework_cell_or_memory_added_again_takes_the_place_of_the_first(store: Store) -> None:
    store.begin(run("r1"), [Framework("numpy", "?", "")], [])
    store.add_framework("r1", Framework("torch", "2.9", "e2"))
    store.add_framework("r1", Framework("numpy", "2.0", "e1", {"threads": 1}))
    for verdict in ("timeout", "checked"):
        store.add_cell("r1", Cell("c", "numpy", "forward", verdict))
        store.add_cell("r1", Cell("d", "numpy", "forward", verdict))
    for peak in (1, 2):
        store.add_memory("r1", Memory("c", "numpy", "forward", peak))
    found = store.load("r1")
    assert [each.version for each in found.frameworks] == ["2.0", "2.9"]
    assert [(each.case, each.verdict) for each in found.cells] == [
        ("c", "checked"),
        ("d", "checked"),
    ]
    assert [each.allocator for each in found.memory] == [2]


def test_a_block_is_never_overwritten(store: Store) -> None:
    store.begin(run("r1"), [], [])
    store.add_block("r1", block())
    with pytest.raises(DuplicateError, match=r"r1 has block c numpy forward, process 0, round 0"):
        store.add_block("r1", block(samples=[9.0]))
    store.add_block("r1", block(process=1))
    assert store.load("r1").blocks == [block(), block(process=1)]


def test_a_run_is_begun_once(store: Store) -> None:
    store.begin(run("r1"), [], [])
    with pytest.raises(DuplicateError, match="run r1 already"):
        store.begin(run("r1", suite="other"), [], [CASE])
    assert store.load("r1").run.suite == "quick"
    assert store.load("r1").cases == []


def test_a_run_ends_and_goes_on(store: Store) -> None:
    store.begin(run("r1"), [], [])
    store.finish("r1", "interrupted", 5.0)
    assert (store.load("r1").run.status, store.load("r1").run.finished) == ("interrupted", 5.0)
    store.finish("r1", "running", None)
    assert store.load("r1").run == run("r1")


def test_a_deleted_run_takes_all_it_found_along(store: Store) -> None:
    for id in ("r1", "r2"):
        store.begin(run(id), [Framework("numpy", "2.0", "e1")], [CASE])
        store.add_block(id, block())
        store.add_cell(id, Cell("c", "numpy", "forward", "checked"))
        store.add_memory(id, Memory("c", "numpy", "forward"))
    store.delete("r1")
    with store.engine.connect() as connection:
        counts = {
            connection.scalar(sa.select(sa.func.count()).select_from(table))
            for table in metadata.tables.values()
        }
    assert counts == {1}
    assert store.load("r2").blocks == [block()]


# Which runs there are.


def test_runs_are_listed_newest_first(store: Store) -> None:
    other = Machine("f1", "server")
    store.begin(run("b", "quick", 2.0), [], [])
    store.begin(run("a", "quick", 1.0, other), [], [])
    store.begin(run("c", "nightly", 3.0), [], [])
    assert [each.id for each in store.runs()] == ["c", "b", "a"]
    assert [each.id for each in store.runs(suite="quick")] == ["b", "a"]
    assert [each.id for each in store.runs(machine="f1")] == ["a"]
    assert [each.id for each in store.runs(suite="quick", machine="f0")] == ["b"]
    assert [each.id for each in store.runs(limit=2)] == ["c", "b"]


@pytest.mark.parametrize(
    ("text", "id"),
    [
        ("2026-a1", "2026-a1"),
        ("2026-b", "2026-b2"),
        ("2026-a", "2026-a"),
        ("latest", "2027"),
        ("latest~1", "2026-b2"),
        ("latest~3", "2026-a"),
        ("quick:latest", "2026-b2"),
        ("quick:latest~1", "2026-a1"),
        ("a:b:latest", "2026-a"),
    ],
)
def test_a_run_is_found_by_what_people_type(store: Store, text: str, id: str) -> None:
    for number, (each, suite) in enumerate(
        [("2026-a", "a:b"), ("2026-a1", "quick"), ("2026-b2", "quick"), ("2027", "nightly")]
    ):
        store.begin(run(each, suite, float(number)), [], [])
    assert store.resolve(text).id == id


def test_the_latest_is_no_confirmation_unless_asked_for(store: Store) -> None:
    for number, suite in enumerate(["quick", "quick-again", "quick", "quick-again"]):
        store.begin(run(f"r{number}", suite, float(number)), [], [])
    found = {
        text: store.resolve(text).id
        for text in ("latest", "latest~1", "quick:latest~1", "quick-again:latest", "r1")
    }
    assert list(found.values()) == ["r2", "r0", "r0", "r3", "r1"]
    with pytest.raises(UnknownRunError):
        store.resolve("latest~2")


def test_summaries_say_how_much_each_run_holds(store: Store) -> None:
    store.begin(run("a", "quick", 1.0), [], [])
    store.begin(run("b", "nightly", 2.0), [], [])
    for name in ("torch", "numpy"):
        store.add_cell("a", Cell(CASE.key, name, "forward", "checked"))
    store.add_block("a", block())
    assert [(each.run.id, *each[1:]) for each in store.summaries()] == [
        ("b", [], 0, 0),
        ("a", ["torch", "numpy"], 2, 1),
    ]
    assert [each.run.id for each in store.summaries("quick")] == ["a"]
    assert [each.run.id for each in store.summaries(limit=1)] == ["b"]


@pytest.mark.parametrize("text", ["latest~2", "nightly:latest", "r3", "", "R1", "%", "latest~-1"])
def test_a_run_that_is_not_there_is_named_with_the_nearest(store: Store, text: str) -> None:
    store.begin(run("r1x"), [], [])
    store.begin(run("r2x"), [], [])
    with pytest.raises(UnknownRunError, match="`tapegrad bench runs` lists them") as caught:
        store.resolve(text)
    assert repr(text) in str(caught.value)
    assert ("near it are r" in str(caught.value)) == (text in ("r3", "R1"))


def test_a_beginning_of_several_ids_is_refused(store: Store) -> None:
    for number in range(7):
        store.begin(run(f"r{number}"), [], [])
    with pytest.raises(UnknownRunError, match=r"'r' begins 7: r0, r1, r2, r3, r4, …; give more"):
        store.resolve("r")


def test_an_empty_store_says_so(store: Store) -> None:
    with pytest.raises(UnknownRunError, match="the store is empty"):
        store.resolve("latest")


def test_nothing_is_added_to_a_run_that_is_not_there(store: Store) -> None:
    store.begin(run("r1"), [], [])
    with pytest.raises(UnknownRunError, match="near it are r1"):
        store.add_block("r11", block())
    with pytest.raises(UnknownRunError):
        store.add_cell("r11", Cell("c", "numpy", "forward", "checked"))
    with pytest.raises(UnknownRunError):
        store.add_framework("r11", Framework("numpy", "2.0", "e1"))
    with pytest.raises(UnknownRunError):
        store.add_memory("r11", Memory("c", "numpy", "forward"))
    with pytest.raises(UnknownRunError):
        store.finish("r11", "finished", 1.0)
    with pytest.raises(UnknownRunError):
        store.delete("r11")
    with pytest.raises(UnknownRunError):
        store.load("r11")


def test_the_history_of_a_cell_goes_from_the_oldest_run_to_the_newest(store: Store) -> None:
    other = Machine("f1", "server")
    for id, started, machine in (("b", 2.0, MACHINE), ("a", 3.0, MACHINE), ("c", 1.0, other)):
        store.begin(run(id, started=started, machine=machine), [], [])
        store.add_block(id, block(1, ended=started))
        store.add_block(id, block(0, ended=started))
        store.add_block(id, block(phase="backward"))
    store.begin(run("d", started=4.0), [], [])
    found = store.history("c", "numpy", "forward")
    assert [each.id for each, _ in found] == ["c", "b", "a"]
    assert found[0] == (run("c", started=1.0, machine=other), [block(1, ended=1.0), block(ended=1)])
    mine = store.history("c", "numpy", "forward", machine="f0")
    assert [each.id for each, _ in mine] == ["b", "a"]
    assert store.history("c", "torch", "forward") == []


# Processes.

WRITER = """
import sys
from tapegrad.bench.results import Block, Machine, Run
from tapegrad.bench.store import open_store
url, run_id, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with open_store(url) as store:
    if run_id not in [run.id for run in store.runs()]:
        store.begin(Run(run_id, "quick", 1.0, Machine("f0", "laptop")), [], [])
    first = len(store.load(run_id).blocks)
    for round in range(first, first + count):
        samples = [float(round)] * 100
        store.add_block(run_id, Block("c", "numpy", "forward", 0, round, samples))
        print(round, flush=True)
"""


def writer(url: str, run_id: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, url, run_id, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_processes_create_one_store_and_write_to_it_at_the_same_time(url: str) -> None:
    children = [writer(url, f"r{number}", 100) for number in range(4)]
    for child in children:
        said, _ = child.communicate()
        assert child.returncode == 0, said
    with open_store(url) as store:
        for number in range(4):
            assert [each.round for each in store.load(f"r{number}").blocks] == list(range(100))


def test_a_killed_process_loses_nothing_that_was_added(url: str) -> None:
    chance = random.Random(7)
    told = -1
    for _ in range(4):
        child = writer(url, "r1", 10**6)
        assert child.stdout is not None
        for _ in range(chance.randrange(1, 150)):
            told = int(child.stdout.readline())
        child.kill()
        whole_lines, _, _ = child.stdout.read().rpartition("\n")
        told = max([told, *map(int, whole_lines.split())])
        assert child.wait() == -signal.SIGKILL
        child.stdout.close()
        with open_store(url) as store:
            found = store.load("r1").blocks
        # The last block may have been committed and the process killed before it said so.
        assert len(found) in (told + 1, told + 2)
        assert [each.round for each in found] == list(range(len(found)))
        assert all(each.samples == [float(each.round)] * 100 for each in found)


# Versions.


def engine_of(url: str) -> sa.Engine:
    return sa.create_engine(locate(url))


def make_version_1(url: str) -> None:
    """Make a store as the first version did, with rows."""
    engine = engine_of(url)
    with engine.begin() as connection:
        schema.upgrade(connection, "0001")
        samples = struct.pack("<2d", 1e-3, 2e-3)
        cell = {"run_id": "r1", "case": "c", "framework": "numpy", "phase": "forward"}
        insert(connection, "runs", id="r1", suite="quick", started=1.0, machine="f0",
               machine_name="laptop", machine_details=json.dumps(MACHINE.details), options="{}",
               status="finished", finished=2.0)  # fmt: skip
        insert(connection, "cases", run_id="r1", position=0, key=CASE.key,
               content=json.dumps(CASE.as_dict()))  # fmt: skip
        insert(connection, "frameworks", run_id="r1", name="numpy", version="2.0",
               environment="e1", details="{}")  # fmt: skip
        insert(connection, "cells", **cell, verdict="checked", reason="", error=0.5, notes="[]")
        insert(connection, "blocks", **cell, process=0, round=0, samples=samples, inner=1,
               units=1, controls='{"copy": 0.5}', warmup_calls=3, ended=9.0)  # fmt: skip
        insert(connection, "memory", **cell, needed=12)
    engine.dispose()


def insert(connection: sa.Connection, table: str, **values: Any) -> None:
    columns = ", ".join(f'"{name}"' for name in values)
    places = ", ".join(f":{name}" for name in values)
    connection.execute(sa.text(f"INSERT INTO {table} ({columns}) VALUES ({places})"), values)


def version_of(url: str) -> str | None:
    engine = engine_of(url)
    with engine.connect() as connection:
        found = schema.stored_version(connection)
    engine.dispose()
    return found


def test_a_store_of_version_1_is_brought_up_to_date(url: str) -> None:
    make_version_1(url)
    assert version_of(url) == "0001"
    with open_store(url) as store:
        found = store.load("r1")
        store.add_block("r1", block(1, stationary=False, cores=2.0))
        assert store.load("r1").blocks[1] == block(1, stationary=False, cores=2.0)
    assert version_of(url) == HEAD
    assert found.run == Run("r1", "quick", 1.0, MACHINE, status="finished", finished=2.0)
    assert found.frameworks == [Framework("numpy", "2.0", "e1")]
    assert found.case_by_key() == {CASE.key: CASE}
    assert found.cells == [Cell("c", "numpy", "forward", "checked", error=0.5)]
    assert found.blocks == [block(controls={"copy": 0.5}, warmup_calls=3, ended=9.0)]
    assert found.memory == [Memory("c", "numpy", "forward", needed=12)]


@pytest.mark.parametrize("made_by", ["migrations", "open_store"])
def test_migrations_and_creation_give_the_same_tables(url: str, made_by: str) -> None:
    if made_by == "migrations":
        make_version_1(url)
    open_store(url).close()
    engine = engine_of(url)
    with engine.connect() as connection:
        options = {"compare_server_default": True, "version_table": version.name}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, metadata) == []
        keys = [
            (table, sa.inspect(connection).get_pk_constraint(table)["constrained_columns"])
            for table in metadata.tables
        ]
        assert keys == [(name, list(t.primary_key.columns.keys())) for name, t in metadata.tables.items()]  # noqa: E501  # fmt: skip
    engine.dispose()


def test_the_last_revision_is_the_head() -> None:
    config = Config()
    config.set_main_option("script_location", "tapegrad.bench.store:migrations")
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]


def test_processes_that_upgrade_at_the_same_time_do_it_once(url: str) -> None:
    make_version_1(url)
    children = [writer(url, f"w{number}", 10) for number in range(3)]
    for child in children:
        said, _ = child.communicate()
        assert child.returncode == 0, said
    with open_store(url) as store:
        assert sorted(each.id for each in store.runs()) == ["r1", "w0", "w1", "w2"]


@pytest.mark.parametrize("newer", ["0003", "abc"])
def test_a_store_of_a_newer_version_is_refused_and_left_alone(url: str, newer: str) -> None:
    open_store(url).close()
    engine = engine_of(url)
    with engine.begin() as connection:
        connection.execute(version.update().values(version_num=newer))
    engine.dispose()
    before = Path(url).read_bytes() if "://" not in url else b""
    with pytest.raises(StoreNewerError, match=f"version {HEAD} or older, got version {newer}"):
        open_store(url)
    assert version_of(url) == newer
    if "://" not in url:
        assert Path(url).read_bytes() == before


def test_a_migration_that_fails_changes_nothing(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_version_1(url)
    whole = schema.upgrade

    def fail(connection: sa.Connection) -> None:
        whole(connection)
        raise sqlite3.OperationalError("no luck")

    monkeypatch.setattr(schema, "upgrade", fail)
    with pytest.raises(StoreError, match="no luck"):
        open_store(url)
    assert version_of(url) == "0001"
    assert not list(tmp_path.glob("*.bak*"))
    monkeypatch.undo()
    with open_store(url) as store:
        assert len(store.load("r1").blocks) == 1


def test_tables_of_something_else_are_refused_and_left_alone(url: str) -> None:
    engine = engine_of(url)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE runs (x INTEGER)"))
    with pytest.raises(NotAStoreError, match="tables of something else: runs"):
        open_store(url)
    assert sa.inspect(engine).get_table_names() == ["runs"]
    engine.dispose()


# SQLite files.


def test_the_old_file_is_copied_before_it_is_brought_up_to_date(path: Path) -> None:
    make_version_1(str(path))
    copy = path.with_name("results.sqlite.v1.bak")
    copy.write_bytes(b"a copy from before")
    open_store(path).close()
    second = path.with_name("results.sqlite.v1.bak.2")
    assert copy.read_bytes() == b"a copy from before"
    assert version_of(str(second)) == "0001"
    with open_store(second) as store:
        assert len(store.load("r1").blocks) == 1
    assert not list(path.parent.glob("*.part"))


def test_the_file_is_written_ahead(path: Path) -> None:
    with open_store(path) as store, store.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 1


def test_the_default_file_is_in_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.delenv("TAPEGRAD_DATA", raising=False)
    assert data_folder() == tmp_path / ".local/share/tapegrad"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    assert data_folder() == tmp_path / "xdg/tapegrad"
    monkeypatch.setenv("TAPEGRAD_DATA", str(tmp_path / "own"))
    open_store().close()
    assert (tmp_path / "own/results.sqlite").exists()


@pytest.mark.parametrize("name", ["a b/c?d#e.sqlite", "50%/x%20y.db", "file:x", "ü/ö", "~x"])
def test_paths_may_have_odd_names_and_folders_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for place in (name, tmp_path / "whole" / name):
        with open_store(place) as store:
            store.begin(run("r1"), [], [])
        assert Path(place).exists()
        with open_store(place) as store:
            assert store.runs() == [run("r1")]


def test_a_url_of_sqlite_is_a_path(path: Path) -> None:
    open_store(f"sqlite:///{path}").close()
    assert path.exists()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "mysql://host/db",
        "postgresql+asyncpg://host/db",
        "postgresql://me:secret@host:port/db",
        "://",
        "sqlite://results.sqlite",
        "sqlite://me:secret@results.sqlite",
    ],
)
def test_a_text_that_names_no_store_is_refused(text: str) -> None:
    with pytest.raises(StoreUrlError, match="expected") as caught:
        open_store(text)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("content", [b"x", b"hello", b"%PDF" * 2000])
def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(NotAStoreError, match="got a file that begins with"):
        open_store(path)
    assert path.read_bytes() == content


def test_a_damaged_database_is_told_from_a_store(path: Path) -> None:
    with open_store(path) as store:
        store.begin(run("r1"), [], [])
    content = path.read_bytes()
    path.write_bytes(content[:100] + b"\xff" * (len(content) - 100))
    with pytest.raises(StoreError, match="damaged"):
        open_store(path)


@pytest.mark.parametrize(
    "damage",
    [
        "update runs set options='{bad'",
        "update blocks set samples=x'0102'",
        "update blocks set samples='hello'",
        "update blocks set ended='x'",
        "update blocks set \"inner\"='x'",
        "update cells set notes='7'",
        "update cells set error='x'",
        "update cases set content='{}'",
        "update cases set content='[1]'",
        "update runs set options='[]'",
        "update runs set machine_details='3'",
        "update runs set started='noon'",
        "update runs set started=9e999",
    ],
)
def test_a_damaged_value_is_told_from_a_defect_of_ours(path: Path, damage: str) -> None:
    with open_store(path) as store:
        store.begin(run("r1"), [], [CASE])
        store.add_cell("r1", Cell(CASE.key, "numpy", "forward", "checked"))
        store.add_block("r1", block(case=CASE.key))
    with sqlite3.connect(path) as connection:
        connection.execute(damage)
    connection.close()
    with (
        open_store(path) as store,
        pytest.raises(StoreError, match=r"a value in it is damaged.*restore a copy"),
    ):
        store.load("r1")


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    with open_store(path) as store:
        assert store.runs() == []


def test_a_folder_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError, match="got a folder"):
        open_store(tmp_path)


def test_a_file_in_the_place_of_a_folder_is_told(path: Path) -> None:
    path.touch()
    with pytest.raises(NotAStoreError, match="name another place"):
        open_store(path / "results.sqlite")


def test_a_file_where_none_can_be_is_told_as_a_file() -> None:
    with pytest.raises(StoreError, match=r"folder|name another place") as caught:
        open_store("/proc/results.sqlite")
    assert "server" not in str(caught.value)


def test_a_database_of_something_else_is_refused(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE places (url)")
    before = path.read_bytes()
    with pytest.raises(NotAStoreError, match="something else: places"):
        open_store(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_locked_store_is_waited_for_and_then_told(path: Path) -> None:
    with open_store(path, patience=0.1) as store:
        store.begin(run("r1"), [], [])
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreLockedError, match="another process keeps it locked"):
                store.add_block("r1", block())
            assert store.load("r1").blocks == []
            other.execute("ROLLBACK")
        store.add_block("r1", block())
        assert store.load("r1").blocks == [block()]


def test_a_full_disk_loses_nothing_that_was_added(path: Path) -> None:
    with open_store(path) as store:
        store.begin(run("r1"), [], [])
        with store.engine.connect() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar() or 0
            connection.exec_driver_sql(f"PRAGMA max_page_count={pages + 10}")
        added = 0
        with pytest.raises(StoreFullError, match="make room and try again"):
            for added in range(1000):
                store.add_block("r1", block(added, samples=[1.0] * 500))
        assert added > 0
        assert len(store.load("r1").blocks) == added
        with store.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count=1000000")
        store.add_block("r1", block(added))
    with open_store(path) as store:
        assert len(store.load("r1").blocks) == added + 1


@contextlib.contextmanager
def without_rights() -> Iterator[None]:
    """Be nobody for a while: nothing is read-only for root."""
    if os.getuid() != 0:
        yield
        return
    os.setresuid(65534, 65534, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


@pytest.fixture
def shown(path: Path) -> Path:
    """A store that others may reach, but not write."""
    with open_store(path) as store:
        store.begin(run("r1"), [], [])
        store.add_block("r1", block())
    for folder in (*path.parents[:3], path):
        with contextlib.suppress(PermissionError):
            folder.chmod(0o755)
    path.chmod(0o444)
    return path


def test_a_read_only_file_is_read_and_not_written(shown: Path) -> None:
    shown.parent.chmod(0o777)
    with without_rights(), open_store(shown) as store:
        assert store.load("r1").blocks == [block()]
        with pytest.raises(StoreReadOnlyError, match="read-only for this user"):
            store.add_block("r1", block(1))


def test_a_store_in_a_read_only_folder_is_read_and_not_written(shown: Path) -> None:
    shown.parent.chmod(0o555)
    try:
        with without_rights(), open_store(shown) as store:
            assert store.load("r1").blocks == [block()]
            with pytest.raises(StoreReadOnlyError):
                store.add_block("r1", block(1))
        assert list(shown.parent.iterdir()) == [shown]
    finally:
        shown.parent.chmod(0o755)


def test_a_store_cannot_be_made_in_a_read_only_folder(shown: Path) -> None:
    shown.parent.chmod(0o555)
    try:
        with without_rights():
            for name in ("new.sqlite", "folder/new.sqlite"):
                with pytest.raises(StoreReadOnlyError, match="name another place"):
                    open_store(shown.parent / name)
    finally:
        shown.parent.chmod(0o755)


@pytest.mark.parametrize(("of_file", "of_folder"), [(0o444, 0o777), (0o666, 0o555)])
def test_an_old_store_that_is_read_only_is_left_alone(
    shown: Path, of_file: int, of_folder: int
) -> None:
    old = shown.with_name("old.sqlite")
    make_version_1(str(old))
    shown.unlink()
    old.chmod(of_file)
    shown.parent.chmod(of_folder)
    try:
        with without_rights(), pytest.raises(StoreReadOnlyError, match="from version 0001 to"):
            open_store(old)
        assert version_of(str(old)) == "0001"
        assert list(shown.parent.iterdir()) == [old]
    finally:
        shown.parent.chmod(0o755)


def test_a_file_that_may_not_be_read_is_told(shown: Path) -> None:
    shown.chmod(0o000)
    with without_rights(), pytest.raises(StoreUnreachableError, match="change its rights"):
        open_store(shown)


def test_a_store_in_memory_is_one_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with open_store(":memory:") as store:
        store.begin(run("r1"), [], [])
        store.add_block("r1", block())
        assert store.load("r1").blocks == [block()]
    assert list(tmp_path.iterdir()) == []
