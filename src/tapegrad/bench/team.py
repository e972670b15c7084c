"""The worker processes of one contender, or of one witness."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tapegrad.bench.errors import WorkerError
from tapegrad.bench.frameworks import Contender
from tapegrad.bench.process import Worker, WorkerProcess

#: Numbers of the workers that only one question is asked of.
_FRESH = itertools.count()


@dataclass
class ProcessTeam:
    """The worker processes of one contender; each is started when it is first needed."""

    contender: Contender
    folder: Path
    threads: int
    device: str
    timeout: float
    _workers: dict[int, WorkerProcess] = field(default_factory=dict)
    _fresh: list[WorkerProcess] = field(default_factory=list)
    _starting: list[WorkerProcess] = field(default_factory=list)
    _failure: WorkerError | None = None

    @property
    def at_once(self) -> int:
        """Workers that may be given a case at the same time: all have the same processors."""
        return self.threads

    def worker(self, process: int) -> Worker:
        """Return a live worker; one that cannot even start is not tried again."""
        worker = self._workers.get(process)
        if worker is None or not (worker.alive or worker.interrupted):
            if self._failure is not None:
                raise self._failure
            try:
                worker = self._start(f"{process}")
            except WorkerError as error:
                self._failure = error
                raise
            self._workers[process] = worker
        return worker

    @contextmanager
    def fresh(self) -> Iterator[Worker]:
        """Start a worker that nobody has used, on other processors than the one before it.

        Nothing is timed in it, and several may run at once.
        """
        number = next(_FRESH)
        worker = self._start(f"fresh{number}", turn=number)
        self._fresh.append(worker)
        try:
            yield worker
        finally:
            self._fresh.remove(worker)
            worker.close()

    def greeting(self) -> dict[str, Any]:
        """Return what the first worker says about itself."""
        self.worker(0)
        return self._workers[0].hello

    def close(self) -> None:
        """End all workers."""
        for worker in (*self._workers.values(), *self._fresh):
            worker.close()
        for worker in tuple(self._starting):
            worker.kill()  # it would answer only when it has loaded its framework
        self._workers.clear()

    def _start(self, name: str, turn: int = 0) -> WorkerProcess:
        worker = WorkerProcess(
            self.contender,
            self.folder / f"{self.contender.name}-{name}",
            threads=self.threads,
            device=self.device,
            timeout=self.timeout,
            turn=turn,
            starting=self._starting,
        )
        devices = worker.hello["devices"]
        if self.device not in devices:
            worker.close()
            raise WorkerError(
                "unsupported",
                f"{self.contender.name} does not run on {self.device} here: leave it out, or give "
                f"a device that it does run on ({', '.join(devices) or 'there is none here'})",
            )
        return worker


class LazyWorker(Worker):
    """A witness whose process starts with the first question."""

    def __init__(self, team: ProcessTeam) -> None:
        self._team = team
        self.authoritative = team.contender.ships

    def send(self, do: str, **arguments: Any) -> None:
        """Start it if need be, and pass the message on."""
        self._team.worker(0).send(do, **arguments)

    def receive(self, timeout: float | None = None) -> dict[str, Any]:
        """Wait for its answer."""
        return self._team.worker(0).receive(timeout)
