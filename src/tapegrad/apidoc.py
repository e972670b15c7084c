"""Prints docs/api.md, the reference of all public names: `python -m tapegrad.apidoc`."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from textwrap import dedent
from types import ModuleType
from typing import Any

import tapegrad
from tapegrad import _core, scalar, tensors
from tapegrad.tensors import compare, creation, ops, random

HEADER = """# Reference

Written by `python -m tapegrad.apidoc` from docstrings. Names of the first two parts are those of
`tapegrad`, which the examples import as `tg`."""

#: What comes first, as everything else speaks of it; the others follow by name.
FIRST = ("Graph", "Var", "compile", "Program")
#: What users call of the native program; its other members serve the library.
NATIVE = (
    *("__call__", "batch", "dtype", "input_names", "n_derivatives", "n_inputs", "n_outputs"),
    *("stats", "wrt_inputs"),
)
#: The operations on tensors, by file.
GROUPS = (creation, random, compare, *ops.FILES)
OPERATIONS = {*_core.functions.__all__, *(name for group in GROUPS for name in group.__all__)}
#: Modules whose names have one line each.
MODULES = (
    *("nn", "nn.functional", "nn.init", "nn.utils", "optim", "data", "models", "io"),
    *("distributed", "errors"),
)
BAR = r"\|"
SECTION = re.compile(r"^(Args|Example):\n((?: {4}.*\n|\n)+)", re.MULTILINE)
CLASS = re.compile(r"<class '(?:\w+\.)*(\w+)'>")
ARGUMENT = re.compile(r"^(\*{0,2}\w+): (.*\n?(?: +.*\n?)*)", re.MULTILINE)


# ---- one name ----------------------------------------------------------------------------------


def call(name: str, value: Any) -> str:
    """Return how a function or class is called: names and defaults; alone where nobody calls it."""
    function = _constructor(value) if isinstance(value, type) else value
    if isinstance(function, classmethod):
        function = function.__func__
    if hasattr(function, "__nb_signature__"):
        return f"{name}({_native_arguments(function)})"
    if not callable(function):
        return name
    signature = inspect.signature(function)
    kept = [
        each.replace(annotation=inspect.Parameter.empty)
        for each in signature.parameters.values()
        if each.name not in ("self", "cls")
    ]
    bare = signature.replace(parameters=kept, return_annotation=inspect.Signature.empty)
    return name + CLASS.sub(r"\1", str(bare))


def _constructor(owner: type) -> Any:
    """Return what makes an object, if that is for users: records are made by the library."""
    if dataclasses.is_dataclass(owner) or issubclass(owner, (BaseException, _core.Program)):
        return None
    found = inspect.getattr_static(owner, "__init__")
    return found if inspect.isfunction(found) or hasattr(found, "__nb_signature__") else None


def _native_arguments(function: Any) -> str:
    """Return the arguments of a native function's first form; the others hand on to tensors."""
    definition = ast.parse(f"{function.__nb_signature__[0][0]}: ...").body[0]
    assert isinstance(definition, ast.FunctionDef)
    arguments = definition.args
    arguments.args = [each for each in arguments.args if each.arg != "self"]
    for each in (*arguments.args, *arguments.kwonlyargs):
        each.annotation = None
    return ast.unparse(arguments)


def documentation(value: Any) -> str:
    """Return a docstring; native ones are behind signatures, also of what makes an object."""
    if hasattr(value, "__nb_signature__"):
        return inspect.cleandoc(value.__nb_signature__[0][1] or "")
    own = inspect.getdoc(value) or ""
    made = _constructor(value) if isinstance(value, type) else None
    return f"{own}\n\n{documentation(made)}" if hasattr(made, "__nb_signature__") else own


def summary(value: Any) -> str:
    """Return the first paragraph of a docstring, as one line."""
    return documentation(value).partition("\n\n")[0].replace("\n", " ")


def markdown(text: str) -> str:
    """Turn a docstring into Markdown: arguments become a list, examples blocks of code."""
    return SECTION.sub(_section, f"{text}\n").strip()


def _section(match: re.Match[str]) -> str:
    body = dedent(match[2]).strip()
    if match[1] == "Example":
        return f"```pycon\n{body}\n```\n\n"
    items = (f"- `{name}`: {' '.join(said.split())}" for name, said in ARGUMENT.findall(body))
    return "\n".join(items) + "\n\n"


# ---- several -----------------------------------------------------------------------------------


def table(entries: Iterable[tuple[str, Any]]) -> str:
    """Return names with one line each."""
    texts = [(call(name, value), summary(value)) for name, value in entries]
    rows = [f"| `{called}` | {said.replace('|', BAR)} |" for called, said in texts]
    return "\n".join(["| name | |", "|---|---|", *rows])


def entry(name: str, value: Any, level: str = "###") -> Iterator[str]:
    """Yield a heading, how the name is called, its docstring and, of a class, its members."""
    yield f"{level} {name}"
    if call(name, value) != name:
        yield f"`{call(name, value)}`"
    yield markdown(documentation(value))
    if isinstance(value, type):
        yield from members(name, value, f"{level}#")


def members(name: str, owner: type, level: str) -> Iterator[str]:
    """Yield what a class has: operations by name, short ones in a table, others with all text."""
    fields = [*getattr(owner, "__dataclass_fields__", ())]
    if fields:
        yield f"Fields: {_listed(fields)}."
    own = {each: value for each, value in _own(owner) if each not in fields}
    operations = [
        each for each, value in own.items() if getattr(value, "__name__", each) in OPERATIONS
    ]
    if operations:
        yield f"Functions that are methods, too: {_listed(operations)}."
    others = {each: value for each, value in own.items() if each not in operations}
    short = [(each, value) for each, value in others.items() if "\n\n" not in documentation(value)]
    if short:
        yield table(short)
    for each, value in others.items():
        if (each, value) not in short:
            yield from entry(f"{name}.{each}", value, level)


def _own(owner: type) -> Iterator[tuple[str, Any]]:
    """Yield public members that tapegrad defines, by name."""
    for name in dir(owner):
        home = next(each for each in owner.__mro__ if name in vars(each))
        hidden = name.startswith("_") and name != "__call__"
        internal = home is _core.Program and name not in NATIVE
        if home.__module__.startswith("tapegrad") and not hidden and not internal:
            yield name, inspect.getattr_static(owner, name)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


# ---- the page ----------------------------------------------------------------------------------


def scalars() -> Iterator[str]:
    """Yield the part of graphs and programs."""
    yield "## Scalars"
    functions = _core.functions.__all__
    others = [name for name in sorted(scalar.__all__) if name not in (*FIRST, *functions)]
    for name in (*FIRST, *others):
        yield from entry(name, getattr(tapegrad, name))
    yield "### Functions"
    yield "Of Vars, numbers and arrays of both. [ops.md](ops.md) has derivatives and error bounds."
    yield table((name, getattr(_core.functions, name)) for name in functions)


def arrays() -> Iterator[str]:
    """Yield the part of tensors, by the files of the operations."""
    yield "## Tensors"
    yield from entry("Tensor", tensors.Tensor)
    rest = {name: getattr(tapegrad, name) for name in tensors.__all__ if name not in OPERATIONS}
    types = [name for name, value in rest.items() if isinstance(value, tensors.DType)]
    yield "### Gradients, devices, types"
    yield f"Types: {_listed(types)}."
    yield table((name, rest[name]) for name in rest if name not in (*types, "Tensor"))
    for group in GROUPS:
        yield f"### {group.__name__.rpartition('.')[2].capitalize()}"
        yield table((name, getattr(group, name)) for name in sorted(group.__all__))


def modules() -> Iterator[str]:
    """Yield the parts of the other modules."""
    for name in MODULES:
        module = _module(name)
        yield f"## tapegrad.{name}"
        yield summary(module)
        yield table((each, getattr(module, each)) for each in public(module))


def _module(name: str) -> ModuleType:
    import_module(f"tapegrad.{name.partition('.')[0]}")  # makes PyTorch's names, as nn.utils
    return import_module(f"tapegrad.{name}")


def public(module: ModuleType) -> list[str]:
    """Return names that a module offers: those of `__all__`, or what it and its files define."""
    if hasattr(module, "__all__"):
        return sorted(
            name for name in module.__all__ if not inspect.ismodule(getattr(module, name))
        )
    home = module.__name__
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isfunction(value) or inspect.isclass(value))
        and f"{value.__module__}.".startswith(f"{home}.")
        and not getattr(value, "_is_protocol", False)
    )


def page() -> str:
    """Return the whole page as Markdown."""
    return "\n\n".join([HEADER, *scalars(), *arrays(), *modules()]) + "\n"


if __name__ == "__main__":
    print(page(), end="")
