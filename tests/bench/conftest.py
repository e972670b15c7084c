"""What the tests of the bench share. Frameworks are real and run in environments of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tapegrad.bench.frameworks import find
from tapegrad.bench.process import WorkerProcess

Start = Callable[..., WorkerProcess]


@pytest.fixture
def start(tmp_path: Path, request: pytest.FixtureRequest) -> Start:
    """Start a worker by name or adapter file; it ends with the test."""

    def begin(name: str, *, threads: int = 1, timeout: float = 60.0) -> WorkerProcess:
        folder = tmp_path / f"worker{len(list(tmp_path.glob('worker*')))}"
        contender = find(name)
        assert contender.interpreter() is not None, f"{name} is missing: `make test` installs it"
        worker = WorkerProcess(contender, folder, threads=threads, device="cpu", timeout=timeout)
        request.addfinalizer(worker.close)
        return worker

    return begin


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Write arrays as files and return their paths."""

    def write(**arrays: object) -> dict[str, str]:
        paths = {name: tmp_path / f"{name}.npy" for name in arrays}
        for name, array in arrays.items():
            np.save(paths[name], np.asarray(array))
        return {name: str(path) for name, path in paths.items()}

    return write
