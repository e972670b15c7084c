"""Which frameworks there are, where each is installed, and how to install one.

A framework is an adapter file: one that ships in `tapegrad/worker/adapters`, or any path that the
user names. The file is read without being imported, so that no framework enters this process. It
runs under the Python of an environment of its own in the cache folder, if it has one, and else
under this Python, if the framework is installed here.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tapegrad.worker
from tapegrad.bench.errors import InstallError, MalformedFileError, UnknownNameError

ADAPTERS_FOLDER = Path(tapegrad.worker.__file__).parent / "adapters"
COMPLETE = "complete.txt"


@dataclass(frozen=True)
class Contender:
    """One adapter as the command line names it: `torch`, `torch@2`, `path/to/file.py`."""

    name: str
    file: Path
    adapter: str
    requires: tuple[str, ...]
    imports: str
    #: Set by `name@threads`; otherwise the run's number.
    threads: int | None = None

    @property
    def environment(self) -> Path:
        """Return the folder of the environment that `install` makes for it."""
        return cache_folder() / "environments" / self.file.stem

    def interpreter(self) -> Path | None:
        """Return the Python that can run it, or None where it is not installed."""
        own = self.environment / "bin" / "python"
        if (self.environment / COMPLETE).exists() and own.exists():
            return own
        return Path(sys.executable) if _importable(self.imports) else None

    def environment_hash(self, details: Any) -> str:
        """Identify interpreter, packages and settings: equal hashes, equal conditions."""
        listed = self.environment / COMPLETE
        packages = listed.read_text() if listed.exists() else sys.version
        return hashlib.sha256(f"{packages}{details}".encode()).hexdigest()[:12]


def cache_folder() -> Path:
    """Return the folder for environments and compiled contenders."""
    if own := os.environ.get("TAPEGRAD_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tapegrad"


def shipped() -> dict[str, Contender]:
    """Return all adapters that come with the package, by name."""
    files = sorted(file for file in ADAPTERS_FOLDER.glob("*.py") if file.stem != "__init__")
    return {each.name: each for file in files for each in contenders_in(file)}


def find(name: str) -> Contender:
    """Return the contender for a name or a path, with `@threads` if it has that."""
    base, _, threads = name.partition("@")
    if threads and not (threads.isdecimal() and int(threads) > 0):
        raise UnknownNameError("thread count", threads, [], "Write for example torch@2.")
    if base.endswith(".py"):
        found = contenders_in(Path(base))[0]
    else:
        known = shipped()
        if base not in known:
            raise UnknownNameError("framework", base, known, "A path to an adapter file works too.")
        found = known[base]
    return (
        replace(found, name=f"{found.name}@{threads}", threads=int(threads)) if threads else found
    )


def contenders_in(file: Path) -> list[Contender]:
    """Read what an adapter file says about itself, without importing it."""
    said = _literals(file)
    adapters = said.get("ADAPTERS")
    if not isinstance(adapters, dict) or not adapters:
        raise MalformedFileError(
            f"{file} does not define ADAPTERS, a literal like "
            '{"name": "ClassName"}; see docs/bench.md, "Adding a framework".'
        )
    return [
        Contender(
            name=str(name),
            file=file.resolve(),
            adapter=str(adapter),
            requires=tuple(said.get("REQUIRES", ())),
            imports=str(said.get("IMPORTS", "")),
        )
        for name, adapter in adapters.items()
    ]


def _literals(file: Path) -> dict[str, Any]:
    """Return the literal assignments at the top level of a Python file."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MalformedFileError(f"There is no file {file}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise MalformedFileError(f"{file} cannot be read: {error}") from None
    except SyntaxError as error:
        raise MalformedFileError(f"{file} is not Python: {error}") from None
    found: dict[str, Any] = {}
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                try:
                    found[name] = ast.literal_eval(value)
                except ValueError:
                    continue
    return found


def _importable(name: str) -> bool:
    if not name:
        return True
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def install(contender: Contender, say: Callable[[str], None]) -> Path:
    """Make the environment of a framework; an incomplete one is made anew."""
    folder = contender.environment
    if (folder / COMPLETE).exists():
        say(f"{contender.name} is installed in {folder}")
        return folder
    if not contender.requires:
        raise InstallError(f"{contender.name} needs nothing that pip could install.")
    shutil.rmtree(folder, ignore_errors=True)
    say(f"installing {' '.join(contender.requires)} in {folder}")
    try:
        venv.create(folder, with_pip=True, symlinks=True)
        python = folder / "bin" / "python"
        _pip(python, "install", *contender.requires)
        (folder / COMPLETE).write_text(_pip(python, "freeze"))
    except OSError as error:
        raise InstallError(f"{folder} cannot be written: {error}") from None
    return folder


def _pip(python: Path, *arguments: str) -> str:
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InstallError(
            f"pip {' '.join(arguments)} failed; is there a network? It said:\n"
            + "\n".join(done.stderr.strip().splitlines()[-6:])
        )
    return done.stdout
