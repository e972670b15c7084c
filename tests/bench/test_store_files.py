"""Stores in files: where they lie, who may write them, and what a damaged one says."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tapegrad.bench.results import Cell
from tapegrad.bench.store import (
    NotAStoreError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreReadOnlyError,
    StoreUnreachableError,
    StoreUrlError,
    open_store,
)
from tapegrad.bench.store.failures import explained
from tapegrad.bench.store.location import data_folder
from tests.bench.stored import CASE, block, make_version_1, run, version_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.sqlite"


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


def test_a_disk_that_refuses_is_told() -> None:
    """As one without room for the index that SQLite puts beside a store: nothing can be read."""
    refused = sqlite3.OperationalError("disk I/O error")
    refused.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
    with pytest.raises(StoreError, match="make room and try again"), explained("results.sqlite"):
        raise refused


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
