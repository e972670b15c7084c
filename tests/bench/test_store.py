"""The store keeps what it is given, on SQLite and PostgreSQL, whatever happens to it."""

from __future__ import annotations

import math
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

from tapegrad.bench.results import Cell, Framework, Machine, Memory, Run
from tapegrad.bench.store import (
    DuplicateError,
    NotAStoreError,
    Store,
    StoreError,
    StoreNewerError,
    UnknownRunError,
    open_store,
    schema,
)
from tapegrad.bench.store.tables import HEAD, metadata, version
from tests.bench.postgres import Server, running_server
from tests.bench.stored import CASE, MACHINE, block, engine_of, make_version_1, run, version_of


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
    assert (cell.reason, cell.notes) == ("größer\ufffd ?", ["\ufffd"])


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


def test_a_cell_is_found_in_all_runs_that_have_it(store: Store) -> None:
    for id, verdict in (("a", "checked"), ("b", "mistrusted")):
        store.begin(run(id), [], [])
        store.add_cell(id, Cell("c", "numpy", "forward", verdict, notes=["computes in float32"]))
    store.begin(run("d"), [], [])
    found = store.verdicts("c", "numpy", "forward")
    assert {name: (each.verdict, each.precision) for name, each in found.items()} == {
        "a": ("checked", "float32"), "b": ("mistrusted", "float32")
    }  # fmt: skip


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


@pytest.mark.parametrize("newer", ["0003", "abc", "0000x"])
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
