"""Figures that others have published, shown beside ours and labelled as theirs."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tapegrad.bench.report.published import modules, networks
from tapegrad.bench.report.published.graphs import Published, published_for
from tapegrad.bench.report.published.quoted import Quoted

__all__ = ["Published", "Quoted", "notes_for", "published_for", "quoted_for", "sources_for"]


def quoted_for(kind: str, title: str, device: str, names: Collection[str]) -> Iterator[Quoted]:
    """Yield what is published of a table's cases; only of a device of that sort."""
    match kind:
        case "modules":
            yield from modules.quoted(title, device, names)
        case "layers" | "models":
            yield from networks.quoted(kind, device, names)


def notes_for(kind: str, title: str, device: str, phase: str = "") -> tuple[str, ...]:
    """Return what must be said of the published figures of one table."""
    if kind == "modules":
        return modules.notes(title, device, phase)
    return networks.notes(kind, device)


def sources_for(kinds: Collection[str]) -> Iterator[str]:
    """Say where the published figures of tables of these kinds come from."""
    if "modules" in kinds:
        yield modules.NOTE
    if {"layers", "models"} & set(kinds):
        yield networks.NOTE
