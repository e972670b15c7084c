"""Records for stores, and a store as the first version made it."""

from __future__ import annotations

import json
import struct
from typing import Any

import sqlalchemy as sa

from tapegrad.bench.results import Block, Machine, Run
from tapegrad.bench.store import schema
from tapegrad.bench.store.location import locate
from tapegrad.worker.case import Array, Case

MACHINE = Machine("f0", "laptop", {"cpu": "x", "cores": 2})
CASE = Case("operator", "add", (Array("a", (2, 3)), Array("b", ())), {"dim": 1, "pads": [1, 2]})


def run(id: str, suite: str = "quick", started: float = 1.0, machine: Machine = MACHINE) -> Run:
    return Run(id, suite, started, machine)


def block(round: int = 0, process: int = 0, **others: Any) -> Block:
    content = {"case": "c", "framework": "numpy", "phase": "forward", "samples": [1e-3, 2e-3]}
    return Block(**content | others, process=process, round=round)


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
