"""Tables as data: what the terminal and Markdown draw."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Entry:
    """One cell: what it says, and what kind of thing that is."""

    text: str
    #: `text`, `time`, `faster`, `slower`, `same`, `undecided`, `word`, `muted`, `met`, `missed`.
    kind: str = "text"


@dataclass(frozen=True)
class Column:
    """One column; numbers stand at the right."""

    title: str
    number: bool = False
    #: The same in consecutive rows is said once, where the format has room to show that.
    group: bool = False
    #: Not broken into lines.
    whole: bool = False


@dataclass(frozen=True)
class Line:
    """One row, with the command that measures it again."""

    entries: tuple[Entry, ...]
    command: str = ""
    #: Whether a space follows.
    ends: bool = False


@dataclass(frozen=True)
class Table:
    """One table with what must be said below it."""

    title: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Page:
    """A whole report."""

    title: str
    #: Name and value of what holds for all tables.
    facts: tuple[tuple[str, str], ...]
    tables: tuple[Table, ...]
    #: Heading and lines of what is said at the end.
    remarks: tuple[tuple[str, tuple[str, ...]], ...] = field(default=())
