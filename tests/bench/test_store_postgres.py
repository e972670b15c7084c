"""What only a server can do: be away, refuse, go away and come back. The rest is in test_store."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import psycopg
import pytest

from tapegrad.bench.results import Block, Machine, Run
from tapegrad.bench.store import (
    StoreLockedError,
    StoreReadOnlyError,
    StoreUnreachableError,
    StoreUrlError,
    open_store,
)
from tests.bench.postgres import Server, running_server

RUN = Run("r1", "quick", 1.0, Machine("f0", "laptop"))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


def block(round: int) -> Block:
    return Block("c", "numpy", "forward", 0, round, [1.0])


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_every_spelling_of_the_url_uses_psycopg_3(server: Server, scheme: str) -> None:
    url = server.new_database().replace("postgresql", scheme, 1)
    with open_store(url) as store:
        assert store.engine.driver == "psycopg"
        assert store.runs() == []


def test_a_server_that_is_not_there_is_unreachable() -> None:
    with pytest.raises(StoreUnreachableError, match=r"check that the server runs") as caught:
        open_store("postgresql://me:secret@127.0.0.1:1/results")
    assert "secret" not in str(caught.value)


def test_a_database_that_is_not_there_is_unreachable(server: Server) -> None:
    with pytest.raises(StoreUnreachableError, match='"nowhere" does not exist'):
        open_store(server.url("nowhere"))


def test_a_server_that_does_not_know_the_user_refuses(server: Server) -> None:
    with pytest.raises(StoreUnreachableError, match='role "stranger" does not exist'):
        open_store(server.url("postgres", user="stranger"))


def test_an_option_that_nobody_knows_is_an_error_of_the_url(server: Server) -> None:
    with pytest.raises(StoreUrlError, match="colour"):
        open_store(server.new_database() + "?colour=blue")


def test_a_missing_driver_is_named_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreUnreachableError, match="pip install"):
        open_store("postgresql://me@127.0.0.1:1/results")


def test_a_user_who_may_only_read_reads_and_is_told_so(server: Server) -> None:
    url = server.new_database()
    with open_store(url) as store:
        store.begin(RUN, [], [])
    database = url.rpartition("/")[2]
    role = f"reader_{database}"
    server.execute(database, f"CREATE ROLE {role} LOGIN")
    server.execute(database, f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
    with open_store(server.url(database, user=role)) as store:
        assert store.load("r1").run == RUN
        with pytest.raises(StoreReadOnlyError, match="read-only for this user"):
            store.add_block("r1", block(0))


def test_a_database_set_read_only_is_told_so(server: Server) -> None:
    url = server.new_database()
    with open_store(url) as store:
        store.begin(RUN, [], [])
    database = url.rpartition("/")[2]
    server.execute("postgres", f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    with open_store(url) as store:
        with pytest.raises(StoreReadOnlyError):
            store.add_block("r1", block(0))
        assert store.load("r1").blocks == []


def test_a_locked_table_is_waited_for_and_then_told(server: Server) -> None:
    url = server.new_database()
    with open_store(url, patience=0.1) as store, psycopg.connect(url) as other:
        store.begin(RUN, [], [])
        other.execute("LOCK TABLE blocks")
        with pytest.raises(StoreLockedError, match="another process keeps it locked"):
            store.add_block("r1", block(0))
        other.rollback()
        store.add_block("r1", block(0))
        assert store.load("r1").blocks == [block(0)]


def test_a_server_that_was_restarted_is_found_again(server: Server) -> None:
    with open_store(server.new_database()) as store:
        store.begin(RUN, [], [])
        store.add_block("r1", block(0))
        server.stop()
        try:
            with pytest.raises(StoreUnreachableError):
                store.add_block("r1", block(1))
        finally:
            server.start()
        store.add_block("r1", block(1))
        assert store.load("r1").blocks == [block(0), block(1)]


def test_a_store_lives_beside_tables_of_others(server: Server) -> None:
    url = server.new_database()
    database = url.rpartition("/")[2]
    server.execute(database, "CREATE TABLE alembic_version (version_num text)")
    server.execute(database, "INSERT INTO alembic_version VALUES ('abc')")
    with open_store(url) as store:
        store.begin(RUN, [], [])
    with open_store(url) as store:
        assert store.runs() == [RUN]
