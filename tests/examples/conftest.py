"""Examples as tests see them."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.checkout import ROOT

Drawn = Callable[..., str]


def example(name: str) -> dict[str, Any]:
    """Return the names that an example defines."""
    return runpy.run_path(str(ROOT / "examples" / f"{name}.py"))


@pytest.fixture
def drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Drawn:
    """Run an example with options, look that it drew something, and return what it printed."""

    def run(names: dict[str, Any], *options: str) -> str:
        picture = tmp_path / "new folder" / "picture.png"
        monkeypatch.delenv("LD_PRELOAD", raising=False)  # no sanitizers in other processes
        monkeypatch.setattr(sys, "argv", ["example", *options, "--plot", str(picture)])
        names["main"]()
        assert picture.read_bytes().startswith(b"\x89PNG")
        return capsys.readouterr().out

    return run
