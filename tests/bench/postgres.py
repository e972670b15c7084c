"""A PostgreSQL server of the tests' own: started from the installed binaries, stopped after."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

_numbers = itertools.count()


class Server:
    """A server that trusts everybody on a port of 127.0.0.1. Postgres refuses to run as root."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self.binaries = binaries
        self.folder = folder
        self.port = _free_port()
        self._user: dict[str, Any] = {}
        if os.getuid() == 0:
            account = _unprivileged()
            os.chown(folder, account.pw_uid, account.pw_gid)
            self._user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        self._call("initdb", "-D", self._data, "-A", "trust", "-U", "tapegrad", "-N")

    def start(self) -> None:
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        log = str(self.folder / "log")
        self._call("pg_ctl", "start", "-w", "-D", self._data, "-l", log, "-o", options)

    def stop(self) -> None:
        self._call("pg_ctl", "stop", "-w", "-m", "fast", "-D", self._data)

    def url(self, database: str, user: str = "tapegrad") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """Create an empty database and return its URL."""
        name = f"store{next(_numbers)}"
        self.execute("postgres", f"CREATE DATABASE {name}")
        return self.url(name)

    def execute(self, database: str, statement: str) -> None:
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement.encode())

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    def _call(self, name: str, *arguments: str) -> None:
        command = [str(self.binaries / name), *arguments]
        done = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, check=False, **self._user
        )
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"


@contextmanager
def running_server() -> Iterator[Server]:
    """Run a server; skip the test only where PostgreSQL is not installed."""
    binaries = _binaries()
    if binaries is None:
        pytest.skip("needs PostgreSQL's server: apt-get install postgresql, or put initdb on PATH")
    with tempfile.TemporaryDirectory(prefix="tapegrad-pg-") as folder:
        server = Server(binaries, Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()


def _binaries() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    initdb = shutil.which("initdb")
    return Path(initdb).resolve().parent if initdb else None


def _unprivileged() -> pwd.struct_passwd:
    names = {account.pw_name for account in pwd.getpwall()}
    return pwd.getpwnam("postgres" if "postgres" in names else "nobody")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
