"""Modules that hold others in a row."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import Any, Self, overload

from tapegrad.errors import DTypeError
from tapegrad.nn.module import Module


class _Row(Module):
    """Modules that are numbered: the names inside are "0", "1", and so on, or the user's."""

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    @overload
    def __getitem__(self, place: int) -> Any: ...
    @overload
    def __getitem__(self, place: slice) -> Self: ...
    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return self._part(dict(list(self._modules.items())[place]))
        return self._modules[self._name(place)]

    def __setitem__(self, place: int, module: Module) -> None:
        self.register_module(self._name(place), module)

    def __delitem__(self, place: int | slice) -> None:
        names = list(self._modules)[place] if isinstance(place, slice) else [self._name(place)]
        for name in names:
            del self._modules[name]
        self._renumber()

    def pop(self, key: int | slice) -> Any:
        """Take a module out, and return it."""
        module = self[key]
        del self[key]
        return module

    def __add__(self, other: Iterable[Module]) -> Self:
        return self[:].extend(other)

    def __iadd__(self, other: Iterable[Module]) -> Self:
        return self.extend(other)

    def append(self, module: Module) -> Self:
        """Add a module at the end."""
        name = next(str(place) for place in count(len(self)) if str(place) not in self._modules)
        self.register_module(name, module)
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Add modules at the end."""
        if not isinstance(modules, Iterable):
            raise DTypeError(
                f"{type(self).__name__}: expected modules in a row, got {type(modules).__name__}; "
                "use append for one"
            )
        for module in list(modules):
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Self:
        """Add a module before the one at `index`, as a list does."""
        place = operator.index(index)
        row = list(self.append(module)._modules.items())
        row.insert(place, row.pop())
        self._modules.clear()
        self._modules.update(row)
        self._renumber()
        return self

    def _part(self, modules: dict[str, Module]) -> Self:
        """Return a row of some of the modules."""
        part = type(self)()
        for name, module in modules.items():
            part.register_module(name, module)
        return part

    def _name(self, place: int) -> str:
        """Return the name of the module at a place; negative ones count from the end."""
        index = operator.index(place)
        if not -len(self) <= index < len(self):
            raise IndexError(f"{type(self).__name__}: no module {index} among {len(self)}")
        names: list[str] = list(self._modules)
        return names[index]

    def _renumber(self) -> None:
        """Close gaps in the numbers that a deletion left; names that users gave stay."""
        if all(name.isdigit() for name in self._modules):
            row = list(self._modules.values())
            self._modules.clear()
            self._modules.update(zip(map(str, range(len(row))), row, strict=True))


class Sequential(_Row):
    """Calls modules one after another, each with the result of the one before.

    Args:
        modules: The modules, or one dict of them with names.

    Example:
        >>> from tapegrad import nn
        >>> nn.Sequential(nn.Linear(2, 3), nn.ReLU())
        Sequential(                                              9 parameters
          (0): Linear(in_features=2, out_features=3, bias=True)  9
          (1): ReLU()
        )

    """

    def __init__(self, *modules: Module | Mapping[str, Module]) -> None:
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            named: Iterable[tuple[str, Any]] = modules[0].items()
        else:
            named = ((str(place), module) for place, module in enumerate(modules))
        for name, module in named:
            self.register_module(name, module)

    def forward(self, input: Any) -> Any:
        """Pass the input through all modules."""
        for module in self._modules.values():
            input = module(input)
        return input


class ModuleList(_Row):
    """A list of modules that are part of the module which has the list.

    Example:
        >>> from tapegrad import nn
        >>> nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
        ModuleList(                                                    18 parameters
          (0-2): 3 x Linear(in_features=2, out_features=2, bias=True)  18
        )

    """

    repeats_are_folded = True

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        self.extend(() if modules is None else modules)

    def _part(self, modules: dict[str, Module]) -> Self:
        return type(self)(modules.values())
