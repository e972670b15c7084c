"""How people name runs: an id, the beginning of one, `latest`, `latest~1`, `quick:latest`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import NamedTuple, Self

from tapegrad.bench.store.errors import UnknownRunError

_LATEST = re.compile(r"(?:(?P<suite>.+):)?latest(?:~(?P<back>\d{1,9}))?")
_LISTING = "`tapegrad bench runs` lists them"


class Latest(NamedTuple):
    """The newest run (of a suite), or one some runs before it."""

    suite: str | None
    back: int

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Read `latest` and its relatives; None for anything else."""
        match = _LATEST.fullmatch(text)
        return match and cls(match["suite"], int(match["back"] or 0))


def matching(text: str, ids: Sequence[str], place: str) -> list[str]:
    """Return the one id that a text is or begins, or none; refuse a text that begins several."""
    if text in ids:
        return [text]
    found = [id for id in ids if text and id.startswith(text)]
    if len(found) > 1:
        raise UnknownRunError(
            f"store {place}: expected the id of one run, but {text!r} begins {len(found)}: "
            f"{_few(sorted(found))}; give more of it"
        )
    return found


def unknown(text: str, ids: Sequence[str], place: str) -> UnknownRunError:
    """Say that there is no such run, which come near and how to list them."""
    if not ids:
        hint = "the store is empty; `tapegrad bench run` fills it"
    elif near := _near(text, ids):
        hint = f"near it are {_few(near)}; {_LISTING}"
    else:
        hint = f"it has {len(ids)} other{'s' if len(ids) > 1 else ''}; {_LISTING}"
    return UnknownRunError(f"store {place}: expected a run of the store, got {text!r}; {hint}")


def _near(text: str, ids: Sequence[str]) -> list[str]:
    """Return ids whose beginnings look like the text, since people type beginnings."""
    if not text:
        return []
    beginnings = {id[: len(text)]: id for id in ids}
    return [beginnings[b] for b in difflib.get_close_matches(text, beginnings, n=3, cutoff=0.5)]


def _few(ids: Sequence[str]) -> str:
    return ", ".join(ids[:5]) + (", …" if len(ids) > 5 else "")
