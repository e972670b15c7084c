"""Tables as data: what the terminal and Markdown draw."""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Entry:
    """One cell: what it says, and what kind of thing that is."""

    text: str
    #: `text`, `time`, `faster`, `slower`, `same`, `undecided`, `word`, `muted`, `met`, `missed`.
    kind: str = "text"
    #: Whether it stands out, as the best of its column.
    bold: bool = False


#: In place of a comparison with itself.
REFERENCE = Entry("reference", "muted")


@dataclass(frozen=True)
class Column:
    """One column; numbers stand at the right."""

    title: str
    number: bool = False
    #: The same in consecutive rows is said once, where the format has room to show that.
    group: bool = False
    #: Not broken into lines.
    whole: bool = False
    #: Left out where there is no room; of several, the last first.
    spare: bool = False
    #: Whose column it is, and what it holds of that; for `tall`.
    of: str = ""
    what: str = ""


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


def tall(table: Table) -> Table:
    """Give every contender a row of its own, for places that are too narrow for its columns."""
    owners = list(dict.fromkeys(column.of for column in table.columns if column.of))
    if not owners:
        return table
    fixed = [index for index, column in enumerate(table.columns) if not column.of]
    kinds = list(dict.fromkeys(column.what for column in table.columns if column.of))
    columns = [replace(table.columns[index], group=True) for index in fixed]
    columns += [Column("contender", whole=True), *(Column(kind, number=True) for kind in kinds)]
    places = {(column.of, column.what): index for index, column in enumerate(table.columns)}
    lines = [
        Line(
            (
                *(line.entries[index] for index in fixed),
                Entry(owner),
                *(
                    line.entries[places[owner, kind]] if (owner, kind) in places else REFERENCE
                    for kind in kinds
                ),
            ),
            line.command,
            line.ends and owner == owners[-1],
        )
        for line in table.lines
        for owner in owners
    ]
    return Table(table.title, tuple(columns), tuple(lines), table.notes)


def without_last_spare(table: Table) -> Table | None:
    """Leave out the last column that can be spared; None where there is none."""
    spare = [index for index, column in enumerate(table.columns) if column.spare]
    if not spare:
        return None
    out = spare[-1]
    lines = (
        replace(line, entries=line.entries[:out] + line.entries[out + 1 :]) for line in table.lines
    )
    columns = table.columns[:out] + table.columns[out + 1 :]
    return replace(table, columns=columns, lines=tuple(lines))


@dataclass(frozen=True)
class Page:
    """A whole report."""

    title: str
    #: Name and value of what holds for all tables.
    facts: tuple[tuple[str, str], ...]
    tables: tuple[Table, ...]
    #: Heading and lines of what is said at the end.
    remarks: tuple[tuple[str, tuple[str, ...]], ...] = field(default=())
