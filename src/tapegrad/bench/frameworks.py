"""Which frameworks there are, where each is installed, and how to install one.

A framework is an adapter file: one that ships in `tapegrad/worker/adapters`, or any path that the
user names. The file is read without being imported, so that no framework enters this process. It
runs under the Python of an environment of its own in the cache folder, if it has one, and else
under this Python, if the framework is installed here. A file may instead name a COMMAND, which
starts a worker in any language.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tapegrad.worker
from tapegrad.bench import machine
from tapegrad.bench.errors import BenchError, InstallError, MalformedFileError, UnknownNameError
from tapegrad.bench.printable import NAME as NAMED
from tapegrad.bench.printable import is_name

ADAPTERS_FOLDER = (Path(tapegrad.worker.__file__).parent / "adapters").resolve()
COMPLETE = "complete.txt"
#: `name` or `file.py` or `file.py:name`, and `@threads` after it.
NAME = re.compile(
    r"(?:(?P<file>.*\.py)(?::(?P<adapter>[^/@]*))?|(?P<name>[^@]*))(?:@(?P<threads>[^/@]*))?"
)
#: What the command line gives a meaning of its own to.
RESERVED = "@,:/"


@dataclass(frozen=True)
class Contender:
    """One adapter as the command line names it: `torch`, `torch@2`, `file.py`, `file.py:name`."""

    name: str
    file: Path
    adapter: str
    requires: tuple[str, ...]
    imports: str
    #: What the command line calls it, without threads: a name that ships, or a path.
    given: str
    #: What starts its worker where that is not Python: a program and arguments, from the file's
    #: folder.
    command: tuple[str, ...] = ()
    #: Set by `name@threads`; otherwise the run's number.
    threads: int | None = None

    @property
    def ships(self) -> bool:
        """Whether it comes with the package."""
        return self.file.parent == ADAPTERS_FOLDER

    @property
    def environment(self) -> Path:
        """Return the folder of the environment that `install` makes for it.

        That of a user's file has the file's path in its name: many files are called `numpy.py`.
        """
        name = self.file.stem
        if not self.ships:
            name += "-" + hashlib.sha256(str(self.file).encode()).hexdigest()[:8]
        return cache_folder() / "environments" / name

    def interpreter(self) -> Path | None:
        """Return the Python or other program that runs it, or None where it is not installed."""
        if self.command:
            return self._program()
        own = self.environment / "bin" / "python"
        if (self.environment / COMPLETE).exists() and own.exists():
            return own
        return Path(sys.executable) if _importable(self.imports) else None

    def arguments(self) -> tuple[str, ...]:
        """Return what makes a worker of the interpreter."""
        return self.command[1:] if self.command else ("-m", "tapegrad.worker")

    def _program(self) -> Path | None:
        """Look the command's program up: on the PATH, or from the file's folder if it is a path."""
        name = self.command[0]
        found = shutil.which(self.file.parent / name if os.sep in name else name)
        return Path(found).absolute() if found else None

    def digest(self) -> str:
        """Identify the text of the adapter's file."""
        return hashlib.sha256(self.file.read_bytes()).hexdigest()[:12]

    def environment_hash(self, details: Any) -> str:
        """Identify interpreter, packages and settings: equal hashes, equal conditions."""
        listed = self.environment / COMPLETE
        here = self.command or sys.version
        packages = listed.read_text() if listed.exists() else here
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
    file, adapter, base, threads = _parts(name)
    if file is not None:
        found = _in_file(Path(file), adapter)
    else:
        known = shipped()
        if base not in known:
            advice = "`tapegrad bench frameworks` lists them; a path to an adapter file works too."
            raise UnknownNameError("framework", str(base), known, advice)
        found = known[base]
    if threads is None:
        return found
    count = _threads(name, threads)
    return replace(found, name=f"{found.name}@{count}", threads=count)


def find_all(names: Iterable[str]) -> list[Contender]:
    """Return the contenders for names and paths; no two may go by one name in the tables."""
    found: dict[str, Contender] = {}
    for each in map(find, names):
        other = found.setdefault(each.name, each)
        if (other.file, other.adapter) != (each.file, each.adapter):
            raise BenchError(
                f"Two contenders are called {each.name!r}: one of {other.file} and one of "
                f"{each.file}. Rename one in ADAPTERS of its file, or leave one out."
            )
    return list(found.values())


def installed(names: Iterable[str]) -> list[str]:
    """Return those of a suite's own contenders that are there; all where none is, to say so."""
    every = list(names)
    return [name for name in every if find(name).interpreter() is not None] or every


def absolute(name: str) -> str:
    """Return what means the same file in any folder; a file that is not there has no other name."""
    file = _parts(name)[0]
    if file is None or not Path(file).is_file():
        return name
    return f"{Path(file).absolute()}{name[len(file) :]}"


def check_threads(number: int) -> None:
    """Refuse more threads than there are processors to use."""
    most = len(machine.usable())
    if not 1 <= number <= most:
        raise BenchError(
            f"threads must be from 1 to {most}, the processors that may be used here, not {number}."
        )


def _parts(name: str) -> tuple[str | None, str | None, str | None, str | None]:
    """Split what the command line says: file, adapter in it, name that ships, threads."""
    match = NAME.fullmatch(name)
    if match is None:
        raise BenchError(
            f"{name!r} names no contender: expected a name, file.py or file.py:name, and at most "
            "one @threads after it, as in torch@2."
        )
    return match["file"], match["adapter"], match["name"], match["threads"]


def _threads(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise BenchError(
            f"{name}: thread count {text!r} is no number from 1 to {len(machine.usable())}. "
            "Write for example torch@2."
        )
    check_threads(int(text))
    return int(text)


def _in_file(file: Path, adapter: str | None) -> Contender:
    """Return the contender of a file that is asked for, or its only one."""
    there = {each.name: each for each in contenders_in(file)}
    if adapter is not None:
        if adapter not in there:
            raise UnknownNameError(f"adapter in {file} named", adapter, there)
        return there[adapter]
    if len(there) > 1:
        choices = ", ".join(f"{file}:{name}" for name in there)
        raise BenchError(f"{file} has several adapters; choose of them: {choices}.")
    return next(iter(there.values()))


def contenders_in(file: Path) -> list[Contender]:
    """Read what an adapter file says about itself, without importing it."""
    said = _literals(file)
    adapters = _adapters(file, said.get("ADAPTERS"))
    requires = said.get("REQUIRES", ())
    if not (
        isinstance(requires, (list, tuple)) and all(isinstance(each, str) for each in requires)
    ):
        raise MalformedFileError(
            f"{file}: REQUIRES must be a list of what pip installs, like "
            f'["torch==2.13.0", "numpy"], not {requires!r}.'
        )
    command = said.get("COMMAND", ())
    if "COMMAND" in said and not (
        isinstance(command, (list, tuple)) and command and _texts(command)
    ):
        raise MalformedFileError(
            f"{file}: COMMAND must be a list of a program and its arguments, like "
            f'["node", "worker.mjs"], not {command!r}.'
        )
    imports = said.get("IMPORTS", "")
    if not isinstance(imports, str):
        raise MalformedFileError(
            f'{file}: IMPORTS must be the name of a module, like "torch", not {imports!r}.'
        )
    resolved = file.resolve()
    return [
        Contender(
            name=name,
            file=resolved,
            adapter=adapter,
            requires=tuple(requires),
            imports=imports,
            given=_given(file, name, len(adapters)),
            command=tuple(command),
        )
        for name, adapter in adapters.items()
    ]


def _adapters(file: Path, said: Any) -> dict[str, str]:
    if not (isinstance(said, dict) and said and _texts(said.keys()) and _texts(said.values())):
        raise MalformedFileError(
            f"{file} does not define ADAPTERS, a literal like "
            '{"name": "ClassName"}; see docs/bench.md, "Adding a framework".'
        )
    for name in said:
        if set(name) & set(RESERVED):
            raise MalformedFileError(
                f"{file}: the name {name!r} in ADAPTERS may hold none of {' '.join(RESERVED)}; "
                "the command line needs them."
            )
        if not is_name(name):
            raise MalformedFileError(f"{file}: a name in ADAPTERS is {NAMED}, not {name!r}.")
    return said


def _texts(values: Iterable[Any]) -> bool:
    return all(isinstance(each, str) and each for each in values)


def _given(file: Path, name: str, count: int) -> str:
    if file.resolve().parent == ADAPTERS_FOLDER:
        return name
    return str(file) if count == 1 else f"{file}:{name}"


def _literals(file: Path) -> dict[str, Any]:
    """Return the literal assignments at the top level of a Python file."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MalformedFileError(f"There is no file {file}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise MalformedFileError(f"{file} cannot be read: {error}") from None
    except (SyntaxError, ValueError) as error:
        raise MalformedFileError(f"{file} is not Python: {error}") from None
    except (RecursionError, MemoryError):
        raise MalformedFileError(f"{file} is nested too deeply to be read.") from None
    found: dict[str, Any] = {}
    for statement in tree.body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.expr() as value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                with suppress(ValueError, TypeError, RecursionError, MemoryError):
                    found[name] = ast.literal_eval(value)
    return found


def _importable(name: str) -> bool:
    if not name:
        return True
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def missing_program(contender: Contender) -> str:
    """Say what a contender with a command of its own lacks: pip cannot install it."""
    return (
        f"{contender.name} needs the program {contender.command[0]}, which is not there: install "
        f"it, or put it on the PATH ({contender.file.name} names it)"
    )


def install(contender: Contender, say: Callable[[str], None]) -> Path:
    """Make the environment of a framework; an incomplete one is made anew."""
    folder = contender.environment
    if (folder / COMPLETE).exists():
        say(f"{contender.name} is installed in {folder}")
        return folder
    if contender.command:
        raise InstallError(missing_program(contender))
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
