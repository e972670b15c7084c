"""PyTorch as an oracle.

A function that takes a library as its first argument (`lib.nn`, `lib.F`, `lib.optim`, `lib.data`,
and tensors in `lib.tt`) runs twice: here with tapegrad, and in a process of PyTorch's environment.
One process serves all tests. The function's file may import NumPy and nothing else.
"""

from __future__ import annotations

import inspect
import os
import pickle
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

SERVER = Path(__file__).with_name("torch_process.py")


class Torch:
    """A process with PyTorch."""

    def __init__(self) -> None:
        from tapegrad.bench.frameworks import find

        interpreter = find("torch").interpreter()
        assert interpreter is not None, "PyTorch is missing: `make test` installs it"
        # Its own Python, without this one's path and without sanitizers.
        environment = {name: text for name, text in os.environ.items() if name != "LD_PRELOAD"}
        self._process = subprocess.Popen(
            [interpreter, "-I", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function with PyTorch as its library."""
        assert self._process.stdin is not None and self._process.stdout is not None
        file = inspect.getsourcefile(function)
        pickle.dump((file, function.__name__, arguments), self._process.stdin)
        self._process.stdin.flush()
        error, result = pickle.load(self._process.stdout)
        assert error is None, f"in PyTorch:\n{error}"
        return result

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


@pytest.fixture(scope="session")
def torch() -> Iterator[Torch]:
    """Start PyTorch's process when a test first asks for it."""
    process = Torch()
    yield process
    process.close()


def tapegrad() -> SimpleNamespace:
    """Return tapegrad as a library."""
    import tapegrad.tensors as tt
    from tapegrad import data, nn, optim

    return SimpleNamespace(nn=nn, F=nn.functional, optim=optim, data=data, tt=tt)


def assert_equal(ours: Any, theirs: Any, rtol: float, path: str = "result") -> None:
    """Compare trees of arrays and numbers; floats up to rtol of the largest of their array.

    Numbers of tests are about 1: what is much smaller is the rounding of a sum that is zero.
    """
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs), path
        for key in theirs:
            assert_equal(ours[key], theirs[key], rtol, f"{path}.{key}")
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs), path
        for place, (our, their) in enumerate(zip(ours, theirs, strict=True)):
            assert_equal(our, their, rtol, f"{path}.{place}")
    elif isinstance(theirs, (float, np.ndarray)):
        our, their = np.asarray(ours), np.asarray(theirs)
        assert our.shape == their.shape, f"{path}: {our.shape} is not {their.shape}"
        assert our.dtype == their.dtype, f"{path}: {our.dtype} is not {their.dtype}"
        scale = float(np.max(np.abs(their), initial=0, where=np.isfinite(their)))
        np.testing.assert_allclose(our, their, rtol, rtol * max(scale, 1e-3), err_msg=path)
    else:
        assert ours == theirs, path
