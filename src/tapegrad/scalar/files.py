"""Programs as bytes: the frame around a record that files and pickles share.

    8 bytes   "tapegrad"
    4 bytes   version of the format, little-endian
    16 bytes  BLAKE2b digest of the record, whose first byte tells the version once more
    the rest  the record: nodes, as core/scalar/serial.h describes them

A record is data and nothing else: reading it checks every number, compiles the nodes and runs no
code. The digest finds damage by accident; whoever means harm can compute it, so the checks behind
it do not rely on it.
"""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

from tapegrad.errors import FileError

MAGIC = b"tapegrad"
#: Format 2 adds loops with steps and frozen branches; programs without them are written as 1.
VERSION = 2
FIRST_NEW_FLAG = b"\x08"
_FRAME = struct.Struct("<8sI16s")


def framed(record: bytes) -> bytes:
    """Put the frame around a record."""
    return _FRAME.pack(MAGIC, version_of(record), _digest(record)) + record


def unframed(data: bytes) -> bytes:
    """Return the record of a frame, if all of it is there."""
    if len(data) < _FRAME.size or not data.startswith(MAGIC):
        raise FileError(
            f"load: expected a program saved by tapegrad, got {len(data):,} bytes that start "
            f"with {data[:8]!r}; save one with program.save(path)"
        )
    _, version, digest = _FRAME.unpack_from(data)
    if not 1 <= version <= VERSION:
        raise FileError(
            f"load: expected format {VERSION} or older, got {version}; the program was saved by a "
            "newer tapegrad, install that"
        )
    record = data[_FRAME.size :]
    if digest != _digest(record) or version != version_of(record):
        raise FileError("load: the program is damaged: its checksum is wrong; save it again")
    return record


def version_of(record: bytes) -> int:
    """Return the version of a record, which its flags decide."""
    return VERSION if record[:1] >= FIRST_NEW_FLAG else 1


def read(path: str | Path) -> bytes:
    """Return what a file holds, if it starts like a program: others may have no end."""
    with Path(path).open("rb") as file:
        start = file.read(_FRAME.size)
        return start + file.read() if start.startswith(MAGIC) else start


def _digest(record: bytes) -> bytes:
    return hashlib.blake2b(record, digest_size=16).digest()
