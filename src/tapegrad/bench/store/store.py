"""The store: every block is committed at once, so that a killed run loses none that was added."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Self

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from tapegrad.bench.results import Block, Cell, Framework, Memory, Results, Run
from tapegrad.bench.store import tables
from tapegrad.bench.store.errors import DuplicateError, UnknownRunError
from tapegrad.bench.store.failures import explained, is_duplicate, is_orphan, undamaged
from tapegrad.bench.store.names import Latest, matching, unknown
from tapegrad.bench.store.rows import (
    columns_of,
    newest,
    read,
    read_runs,
    records,
    row_of,
    row_of_run,
    without_confirmations,
)
from tapegrad.worker.case import Case

_ADD_BLOCK = tables.blocks.insert().inline()


class Summary(NamedTuple):
    """A run and how much it holds."""

    run: Run
    #: Those that have a verdict.
    contenders: list[str]
    cells: int
    blocks: int


class Store:
    """Runs and what they found. Made by `open_store`; a context manager.

    Any number of processes may write to one store at once, each to a run of its own.
    """

    def __init__(self, reader: sa.Engine, writer: sa.Engine, place: str) -> None:
        self.place = place
        """Where the store is, in words, without passwords."""
        self.engine = reader
        """For queries of one's own."""
        self._writer = writer
        self._put_framework = self._upsert(tables.frameworks, ("run_id", "name"))
        self._put_cell = self._upsert(tables.cells, ("run_id", "case", "framework", "phase"))
        self._put_memory = self._upsert(tables.memory, ("run_id", "case", "framework", "phase"))

    def begin(self, run: Run, frameworks: Sequence[Framework], cases: Sequence[Case]) -> None:
        """Enter a new run with the cases it is going to measure, and frameworks as far as known."""
        content = [
            {"run_id": run.id, "position": position, "key": case.key, "content": case.as_dict()}
            for position, case in enumerate(cases)
        ]
        with self._writing(run.id, f"run {run.id}") as connection:
            connection.execute(tables.runs.insert(), row_of_run(run))
            if content:
                connection.execute(tables.cases.insert(), content)
            for framework in frameworks:
                connection.execute(self._put_framework, row_of(run.id, framework))

    def add_framework(self, run_id: str, framework: Framework) -> None:
        """Enter a framework of the run, or what is now known about it."""
        with self._writing(run_id, f"framework {framework.name}") as connection:
            connection.execute(self._put_framework, row_of(run_id, framework))

    def add_cell(self, run_id: str, cell: Cell) -> None:
        """Enter a verdict, in place of an earlier one on the same cell."""
        with self._writing(run_id, f"cell {_name(cell)}") as connection:
            connection.execute(self._put_cell, row_of(run_id, cell))

    def add_block(self, run_id: str, block: Block) -> None:
        """Enter a block; when this returns it survives the death of the process.

        Raises:
            DuplicateError: The run has a block of that cell, process and round.

        """
        what = f"block {_name(block)}, process {block.process}, round {block.round}"
        with self._writing(run_id, what) as connection:
            connection.execute(_ADD_BLOCK, row_of(run_id, block))

    def add_memory(self, run_id: str, memory: Memory) -> None:
        """Enter the bytes that a case took, in place of an earlier finding."""
        with self._writing(run_id, f"memory {_name(memory)}") as connection:
            connection.execute(self._put_memory, row_of(run_id, memory))

    def finish(self, run_id: str, status: str, at: float | None) -> None:
        """Set how and when a run ended; `running` and None when it goes on."""
        change = tables.runs.update().where(tables.runs.c.id == run_id)
        with self._writing(run_id, f"run {run_id}") as connection:
            done = connection.execute(change.values(status=status, finished=at))
        self._expect_one(run_id, done.rowcount)

    def delete(self, run_id: str) -> None:
        """Remove a run and all it found."""
        with self._writing(run_id, f"run {run_id}") as connection:
            done = connection.execute(tables.runs.delete().where(tables.runs.c.id == run_id))
        self._expect_one(run_id, done.rowcount)

    def load(self, run_id: str) -> Results:
        """Return all that a run found, in the order in which it was added."""
        in_run = tables.cases.c.run_id == run_id
        cases = sa.select(tables.cases.c.content).where(in_run).order_by(tables.cases.c.position)
        with self._reading() as connection:
            found = read_runs(connection, newest().where(tables.runs.c.id == run_id))
            if not found:
                raise self._unknown(connection, run_id)
            results = Results(
                run=found[0],
                frameworks=records(connection, Framework, tables.frameworks, run_id),
                cases=list(connection.scalars(cases)),
                cells=records(connection, Cell, tables.cells, run_id),
                blocks=records(connection, Block, tables.blocks, run_id),
                memory=records(connection, Memory, tables.memory, run_id),
            )
            results.case_by_key()  # which reads what the cases hold
            return results

    def runs(
        self, suite: str | None = None, machine: str | None = None, limit: int | None = None
    ) -> list[Run]:
        """List runs, newest first: those of a suite, of a machine (its fingerprint), or all."""
        with self._reading() as connection:
            return read_runs(connection, newest(suite, machine).limit(limit))

    def summaries(self, suite: str | None = None, limit: int | None = None) -> list[Summary]:
        """List runs, newest first, with what each holds."""
        with self._reading() as connection:
            runs = read_runs(connection, newest(suite).limit(limit))
            ids = [run.id for run in runs]
            contenders = _contenders(connection, ids)
            cells = _counts(connection, tables.cells, ids)
            blocks = _counts(connection, tables.blocks, ids)
        return [
            Summary(run, contenders[run.id], cells.get(run.id, 0), blocks.get(run.id, 0))
            for run in runs
        ]

    def resolve(self, text: str) -> Run:
        """Find the run that a text means.

        Args:
            text: An id or the beginning of one; `latest`, `latest~2` (two before it), or either
                of one suite, as `quick:latest`. Runs in which a night measured its alarms again
                are found by their id or suite (`quick-again:latest`), never by a bare `latest`.

        Raises:
            UnknownRunError: There is no such run, or several begin so; names the nearest ids.

        """
        latest = Latest.read(text)
        with self._reading() as connection:
            if latest is not None:
                every = newest(latest.suite)
                counted = every if latest.suite else without_confirmations(every)
                query = counted.limit(1).offset(latest.back)
            else:
                chosen = matching(text, _ids(connection), self.place)
                query = newest().where(tables.runs.c.id.in_(chosen))
            found = read_runs(connection, query)
            if not found:
                raise self._unknown(connection, text)
            return found[0]

    def history(
        self, case_key: str, framework: str, phase: str, machine: str | None = None
    ) -> list[tuple[Run, list[Block]]]:
        """Return the blocks of one cell over all runs (of a machine, by fingerprint), oldest first.

        Runs without a block of the cell are left out.
        """
        runs, blocks = tables.runs.c, tables.blocks.c
        here = sa.and_(
            blocks.case == case_key, blocks.framework == framework, blocks.phase == phase
        )
        having = newest(machine=machine).where(runs.id.in_(sa.select(blocks.run_id).where(here)))
        query = sa.select(blocks.run_id, *columns_of(tables.blocks, Block)).where(here)
        by_run: defaultdict[str, list[Block]] = defaultdict(list)
        with self._reading() as connection:
            found = read_runs(connection, having)
            for run_id, *fields in connection.execute(query.order_by(blocks.id)):
                by_run[run_id].append(Block(*fields))
        return [(run, by_run[run.id]) for run in reversed(found)]

    def verdicts(self, case_key: str, framework: str, phase: str) -> dict[str, Cell]:
        """Return one cell of all runs that have it, by the run's id.

        Naming the runs lets SQLite use the index of cells, which begins with them.
        """
        cells = tables.cells.c
        here = sa.and_(
            cells.run_id.in_(sa.select(tables.runs.c.id)),
            cells.case == case_key,
            cells.framework == framework,
            cells.phase == phase,
        )
        query = sa.select(cells.run_id, *columns_of(tables.cells, Cell)).where(here)
        with self._reading() as connection:
            return {run_id: read(Cell, fields) for run_id, *fields in connection.execute(query)}

    def close(self) -> None:
        """Let go of the database. What was added is there already."""
        with explained(self.place):
            self.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _upsert(self, table: sa.Table, key: tuple[str, ...]) -> sa.Insert:
        """Return an insert that replaces the row with the same key, which keeps its place."""
        make = sqlite.insert if self.engine.dialect.name == "sqlite" else postgresql.insert
        insert = make(table).inline()
        rest = [column.name for column in table.c if column.name not in ("id", *key)]
        return insert.on_conflict_do_update(
            index_elements=list(key), set_={name: insert.excluded[name] for name in rest}
        )

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        """Give a view of the store that does not change while others write."""
        with (
            explained(self.place),
            undamaged(self.place),
            self.engine.begin() as connection,
        ):
            yield connection

    @contextmanager
    def _writing(self, run_id: str, what: str) -> Iterator[sa.Connection]:
        """Give a transaction, committed at the end or not done at all."""
        try:
            with explained(self.place), self._writer.begin() as connection:
                yield connection
        except sa.exc.IntegrityError as error:
            if is_orphan(error):
                with self._reading() as connection:
                    raise self._unknown(connection, run_id) from error
            if is_duplicate(error):
                raise DuplicateError(
                    f"store {self.place}: expected something new, but run {run_id} has "
                    f"{what} already; give it another key, or delete the run"
                ) from error
            raise

    def _expect_one(self, run_id: str, count: int) -> None:
        if count == 0:
            with self._reading() as connection:
                raise self._unknown(connection, run_id)

    def _unknown(self, connection: sa.Connection, text: str) -> UnknownRunError:
        return unknown(text, _ids(connection), self.place)


def _contenders(connection: sa.Connection, ids: Sequence[str]) -> defaultdict[str, list[str]]:
    """Return the contenders of runs, in the order in which verdicts on them came."""
    cells = tables.cells.c
    first = sa.func.min(cells.id)
    query = sa.select(cells.run_id, cells.framework).where(cells.run_id.in_(ids))
    found: defaultdict[str, list[str]] = defaultdict(list)
    grouped = query.group_by(cells.run_id, cells.framework).order_by(first)
    for run_id, framework in connection.execute(grouped):
        found[run_id].append(framework)
    return found


def _counts(connection: sa.Connection, table: sa.Table, ids: Sequence[str]) -> dict[str, int]:
    """Count the rows of runs."""
    query = sa.select(table.c.run_id, sa.func.count()).where(table.c.run_id.in_(ids))
    return {row[0]: row[1] for row in connection.execute(query.group_by(table.c.run_id))}


def _ids(connection: sa.Connection) -> list[str]:
    return list(connection.scalars(sa.select(tables.runs.c.id)))


def _name(record: Cell | Block | Memory) -> str:
    return f"{record.case} {record.framework} {record.phase}"
