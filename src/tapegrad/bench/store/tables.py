"""The tables of the store, and the types that SQLite and PostgreSQL do not share.

Columns are named as the fields of the result model, so that rows need no table of names.
A change here needs a migration: tests compare the two.
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import sqlalchemy as sa

#: The revision in migrations/versions that these tables are.
HEAD = "0002"


class Number(sa.Double[float]):
    """A float64 that may be NaN, which SQLite would keep as NULL: there it becomes text."""

    def bind_processor(self, dialect: sa.Dialect) -> Any:
        """Return what makes a parameter of a value."""
        return _spell_nan if dialect.name == "sqlite" else None

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> Any:
        """Return what makes a value of what the database gave."""
        return _read_nan if dialect.name == "sqlite" else None


def _spell_nan(value: float | None) -> float | str | None:
    return "NaN" if value is not None and math.isnan(value) else value


def _read_nan(value: float | str | None) -> float | None:
    return None if value is None else float(value)


class Json(sa.TypeDecorator[Any]):
    """Plain values as JSON text; PostgreSQL's own JSON type refuses NaN and Infinity."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str:
        """Write JSON."""
        return json.dumps(value)

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> Any:
        """Read JSON."""
        return json.loads(value)


class Words(sa.TypeDecorator[str]):
    """Text from outside, as a crashed worker's last words: what no database takes is replaced."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        """Replace NUL, which PostgreSQL refuses, and halves of surrogate pairs."""
        if value is None or (value.isascii() and "\0" not in value):
            return value
        return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


class Samples(sa.TypeDecorator[list[float]]):
    """A list of float64 as little-endian bytes: exact, NaN included, at 8 bytes a sample.

    JSON text takes 24 bytes a sample and 67 times as long to write (1000 samples, json.dumps).
    """

    impl = sa.LargeBinary
    cache_ok = True

    def process_bind_param(self, value: list[float] | None, dialect: sa.Dialect) -> bytes:
        """Pack the samples."""
        samples = value or []
        return struct.pack(f"<{len(samples)}d", *samples)

    def process_result_value(self, value: bytes | None, dialect: sa.Dialect) -> list[float]:
        """Unpack the samples."""
        packed = value or b""
        return list(struct.unpack(f"<{len(packed) // 8}d", packed))


metadata = sa.MetaData()


def _serial() -> sa.Column[int]:
    """Return the column that keeps rows in the order in which they came."""
    return sa.Column("id", sa.Integer, primary_key=True)


def _run_id(**options: Any) -> sa.Column[str]:
    """Return the column that ties a row to its run and lets it go with the run."""
    run = sa.ForeignKey("runs.id", ondelete="CASCADE")
    return sa.Column("run_id", sa.Text, run, nullable=False, **options)


def _cell_columns() -> tuple[sa.Column[str], ...]:
    return tuple(sa.Column(n, sa.Text, nullable=False) for n in ("case", "framework", "phase"))


runs = sa.Table(
    "runs",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("suite", sa.Text, nullable=False),
    sa.Column("started", Number, nullable=False, index=True),
    sa.Column("machine", sa.Text, nullable=False),
    sa.Column("machine_name", sa.Text, nullable=False),
    sa.Column("machine_details", Json, nullable=False),
    sa.Column("options", Json, nullable=False),
    sa.Column("commit", sa.Text, nullable=False, server_default=sa.text("''")),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("finished", Number),
)

frameworks = sa.Table(
    "frameworks",
    metadata,
    _serial(),
    _run_id(),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("environment", sa.Text, nullable=False),
    sa.Column("details", Json, nullable=False),
    sa.UniqueConstraint("run_id", "name", name="uq_frameworks"),
)

cases = sa.Table(
    "cases",
    metadata,
    _run_id(primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("content", Json, nullable=False),
)

cells = sa.Table(
    "cells",
    metadata,
    _serial(),
    _run_id(),
    *_cell_columns(),
    sa.Column("verdict", sa.Text, nullable=False),
    sa.Column("reason", Words, nullable=False),
    sa.Column("error", Number),
    sa.Column("notes", Json, nullable=False),
    sa.UniqueConstraint("run_id", "case", "framework", "phase", name="uq_cells"),
)

blocks = sa.Table(
    "blocks",
    metadata,
    _serial(),
    _run_id(),
    *_cell_columns(),
    sa.Column("process", sa.Integer, nullable=False),
    sa.Column("round", sa.Integer, nullable=False),
    sa.Column("samples", Samples, nullable=False),
    sa.Column("inner", sa.BigInteger, nullable=False),
    sa.Column("units", sa.BigInteger, nullable=False),
    sa.Column("controls", Json, nullable=False),
    sa.Column("warmup_calls", sa.BigInteger, nullable=False),
    sa.Column("stationary", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Column("cores", Number, nullable=False, server_default=sa.text("0")),
    sa.Column("ended", Number, nullable=False),
    sa.UniqueConstraint(
        "run_id", "case", "framework", "phase", "process", "round", name="uq_blocks"
    ),
    sa.Index("ix_blocks_history", "case", "framework", "phase"),
)

memory = sa.Table(
    "memory",
    metadata,
    _serial(),
    _run_id(),
    *_cell_columns(),
    sa.Column("allocator", sa.BigInteger),
    sa.Column("resident", sa.BigInteger),
    sa.Column("needed", sa.BigInteger, nullable=False),
    sa.UniqueConstraint("run_id", "case", "framework", "phase", name="uq_memory"),
)

#: Alembic's table under a name of our own: it also tells a store from any other database.
version = sa.Table(
    "tapegrad_version",
    sa.MetaData(),
    sa.Column("version_num", sa.String(32), nullable=False),
    sa.PrimaryKeyConstraint("version_num", name="tapegrad_version_pkc"),
)
