"""Reports in JSON: all figures, and the raw results that they come from."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tapegrad.bench.errors import MalformedFileError
from tapegrad.bench.printable import printable
from tapegrad.bench.report.figures import Report, report_on
from tapegrad.bench.results import Results


class Document(msgspec.Struct, frozen=True):
    """What a file holds."""

    #: Of this layout.
    version: int
    report: Report
    #: Everything, raw samples included.
    results: Results


def json_text(results: Results) -> str:
    """Return figures and raw results."""
    return msgspec.json.encode(Document(1, report_on(results), results)).decode() + "\n"


def save(results: Results, path: str | Path) -> None:
    """Write figures and raw results to a file, which `load` and `tapegrad bench report` read."""
    Path(path).write_text(json_text(results), encoding="utf-8")


def load(path: str | Path) -> Results:
    """Read the results from a file that `save`, or the `save` of a `bench.Result`, has written."""
    file = Path(path)
    try:
        content = file.read_bytes()
    except OSError as error:
        raise MalformedFileError(f"{file} cannot be read: {error.strerror}.") from None
    try:
        read = printable(msgspec.json.decode(content))
        whole = isinstance(read, dict) and "results" in read
        return msgspec.convert(read["results"] if whole else read, Results, str_keys=True)
    except msgspec.MsgspecError as error:
        raise MalformedFileError(
            f"{file} does not hold results as `report --format json` writes them: {error}"
        ) from None
