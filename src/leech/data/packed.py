"""Text files, plain or gzip.

Hides: how gzip is told from plain text, and what a gzip file would hold beside its content. Belongs here: bytes and
characters; what a line means is for whoever asks. Invariant: what is written depends on the
text alone, no time and no name is stored.
"""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from leech.errors import InputError

GZIP = b"\x1f\x8b"
"""What a gzip file begins with."""


def read_unpacked(path: Path, what: str) -> bytes:
    """Return the content of a small file, unpacked where it is gzip, whatever it is called.

    :param what: what the file is, for the message.
    :raises InputError: unreadable or damaged.
    """
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if raw.startswith(GZIP) else raw
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"Cannot read {what} '{path}': {error}.") from error


def open_to_read(path: Path) -> TextIO:
    """Open a table to read, gzip where its name ends in ``.gz``; line ends stay, a byte order mark is dropped."""
    opener = gzip.open if path.suffix == ".gz" else open
    return cast(TextIO, opener(path, "rt", encoding="utf-8-sig", newline=""))


def packed_writer(raw: BinaryIO) -> TextIO:
    """Return a text file that writes gzip into an open one, which stays open when it is closed."""
    packed = gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0)
    return io.TextIOWrapper(packed, encoding="utf-8", newline="")
