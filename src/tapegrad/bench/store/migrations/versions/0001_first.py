"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "runs",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("suite", sa.Text, nullable=False),
        sa.Column("started", sa.Double, nullable=False),
        sa.Column("machine", sa.Text, nullable=False),
        sa.Column("machine_name", sa.Text, nullable=False),
        sa.Column("machine_details", sa.Text, nullable=False),
        sa.Column("options", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("finished", sa.Double),
    )
    op.create_index("ix_runs_started", "runs", ["started"])
    op.create_table(
        "frameworks",
        sa.Column("id", sa.Integer, primary_key=True),
        _run_id(),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("environment", sa.Text, nullable=False),
        sa.Column("details", sa.Text, nullable=False),
        sa.UniqueConstraint("run_id", "name", name="uq_frameworks"),
    )
    op.create_table(
        "cases",
        _run_id(),
        sa.Column("position", sa.Integer, autoincrement=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "position"),
    )
    op.create_table(
        "cells",
        sa.Column("id", sa.Integer, primary_key=True),
        _run_id(),
        *_cell_columns(),
        sa.Column("verdict", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("error", sa.Double),
        sa.Column("notes", sa.Text, nullable=False),
        sa.UniqueConstraint("run_id", "case", "framework", "phase", name="uq_cells"),
    )
    op.create_table(
        "blocks",
        sa.Column("id", sa.Integer, primary_key=True),
        _run_id(),
        *_cell_columns(),
        sa.Column("process", sa.Integer, nullable=False),
        sa.Column("round", sa.Integer, nullable=False),
        sa.Column("samples", sa.LargeBinary, nullable=False),
        sa.Column("inner", sa.BigInteger, nullable=False),
        sa.Column("units", sa.BigInteger, nullable=False),
        sa.Column("controls", sa.Text, nullable=False),
        sa.Column("warmup_calls", sa.BigInteger, nullable=False),
        sa.Column("ended", sa.Double, nullable=False),
        sa.UniqueConstraint(
            "run_id", "case", "framework", "phase", "process", "round", name="uq_blocks"
        ),
    )
    op.create_index("ix_blocks_history", "blocks", ["case", "framework", "phase"])
    op.create_table(
        "memory",
        sa.Column("id", sa.Integer, primary_key=True),
        _run_id(),
        *_cell_columns(),
        sa.Column("allocator", sa.BigInteger),
        sa.Column("resident", sa.BigInteger),
        sa.Column("needed", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("run_id", "case", "framework", "phase", name="uq_memory"),
    )


def _run_id() -> sa.Column[str]:
    run = sa.ForeignKey("runs.id", ondelete="CASCADE")
    return sa.Column("run_id", sa.Text, run, nullable=False)


def _cell_columns() -> tuple[sa.Column[str], ...]:
    return tuple(sa.Column(n, sa.Text, nullable=False) for n in ("case", "framework", "phase"))
