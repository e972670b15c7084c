"""The checkout as tests that build it again see it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCES = (
    "CMakeLists.txt",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "cmake",
    "core",
    "bindings",
    "src",
    "tests",
)


def copy_sources(to: Path) -> None:
    """Copies what a build and the tests need."""
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc", "*.so")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, to / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, to / name)


def run(*command: str | Path, **options: Any) -> str:
    """Runs a command and returns what it printed; its errors are shown if it fails."""
    ran = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options
    )
    assert ran.returncode == 0, f"{' '.join(map(str, command))}\n{ran.stdout[-6000:]}"
    return str(ran.stdout)


def python(*arguments: str | Path, **options: Any) -> str:
    """Runs this interpreter."""
    return run(sys.executable, *arguments, **options)
