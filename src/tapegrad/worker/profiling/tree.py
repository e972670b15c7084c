"""Leaves within what functions take and return: in lists, tuples, dicts and dataclasses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import torch


def mapped(tree: Any, change: Callable[[Any], Any], of: type = torch.Tensor) -> Any:
    """Return the same structure with every leaf of a type replaced."""
    if isinstance(tree, of):
        return change(tree)
    if isinstance(tree, dict):
        return {name: mapped(part, change, of) for name, part in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(mapped(part, change, of) for part in tree))
    if isinstance(tree, (list, tuple)):
        parts = [mapped(part, change, of) for part in tree]
        return parts if isinstance(tree, list) else tuple(parts)
    return tree


def leaves(tree: Any, of: type = torch.Tensor) -> Iterator[Any]:
    """Yield the leaves of a type, in order."""
    if isinstance(tree, of):
        yield tree
    elif isinstance(tree, dict):
        for part in tree.values():
            yield from leaves(part, of)
    elif isinstance(tree, (list, tuple)):
        for part in tree:
            yield from leaves(part, of)
    elif is_dataclass(tree) and not isinstance(tree, type):
        for field in fields(tree):
            yield from leaves(getattr(tree, field.name), of)
