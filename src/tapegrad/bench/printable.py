"""Texts of others, fit for a store and a terminal.

Workers, files and stores that others wrote may hold anything, and a terminal obeys what it is sent.
"""

from __future__ import annotations

import re
from typing import Any

#: Colours of a terminal, which go without a trace.
COLOURS = re.compile(r"\x1b\[[0-9;:?]*[A-Za-z]")
#: What neither a store nor a terminal takes: characters that control, but for ends of lines and
#: tabs, and halves of surrogate pairs.
UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")

#: How long names are that become part of others: of runs, of folders, of columns.
LONGEST_NAME = 60
NAME = f"text that can be printed, of at most {LONGEST_NAME} characters"


def is_name(text: str) -> bool:
    """Tell whether a text can be the name of something."""
    return text == printable(text) and len(text) <= LONGEST_NAME


def printable(value: Any) -> Any:
    """Replace what is unfit in all texts of a value, which is as JSON has them."""
    match value:
        case str():
            return UNFIT.sub("\ufffd", COLOURS.sub("", value.replace("\r\n", "\n")))
        case list():
            return [printable(each) for each in value]
        case dict():
            return {printable(name): printable(each) for name, each in value.items()}
        case _:
            return value
