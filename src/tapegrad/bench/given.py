"""What a measurement is given: how thorough to be, workers, where results go, what is done."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from tapegrad.bench.guards import GUARDS, Guard
from tapegrad.bench.process import Worker
from tapegrad.bench.results import Block, Cell, CellKey, Memory


@dataclass(frozen=True)
class Settings:
    """How thoroughly to measure."""

    processes: int = 3
    rounds: int = 3
    #: Length of a block.
    seconds: float = 0.02
    #: Whether caches are emptied before each call.
    cold: bool = False
    seed: int = 0
    #: Of the inputs at which results are looked at a second time; none: nobody can foresee it.
    second_seed: int | None = None
    #: Whether to measure memory, in a process of its own.
    memory: bool = False
    device: str = "cpu"
    guards: Mapping[str, Guard] = field(default_factory=lambda: GUARDS)


class Team(Protocol):
    """The workers of one contender."""

    @property
    def threads(self) -> int:
        """Processors that each worker may use."""

    @property
    def at_once(self) -> int:
        """Workers, of all contenders, that may be given a case at the same time."""

    def worker(self, process: int) -> Worker:
        """Return a live worker, starting it if need be; raises `WorkerError`."""

    def fresh(self) -> AbstractContextManager[Worker]:
        """Start a worker that nobody has used, for as long as the context lasts."""


class Sink(Protocol):
    """Where results go the moment they exist."""

    def cell(self, cell: Cell) -> None:
        """Take a verdict; a later one on the same cell replaces it."""

    def block(self, block: Block) -> None:
        """Take a block."""

    def memory(self, memory: Memory) -> None:
        """Take a measurement of memory."""


@dataclass(frozen=True)
class Done:
    """What an earlier, interrupted run has left to start from."""

    cells: Mapping[CellKey, Cell] = field(default_factory=dict)
    blocks: frozenset[tuple[CellKey, int, int]] = frozenset()
    memory: frozenset[CellKey] = frozenset()
    #: Seconds of the longest block of each cell.
    costs: Mapping[CellKey, float] = field(default_factory=dict)


@dataclass
class Kept:
    """Keeps verdicts for whoever asked for them."""

    cells: dict[CellKey, Cell] = field(default_factory=dict)

    def cell(self, cell: Cell) -> None:
        """Keep the last one."""
        self.cells[cell.key] = cell

    def block(self, block: Block) -> None:
        """Let it go: nothing is timed."""

    def memory(self, memory: Memory) -> None:
        """Let it go: nothing is measured."""
