"""Tab-separated tables that people write by hand.

Hides: line ends, byte-order marks, comments, and where a line goes wrong. Belongs here: lines and cells; what a column means
is for whoever asks. Invariants: every line has as many cells as the header.
"""

from __future__ import annotations

import re
from pathlib import Path

from leech.data.packed import read_unpacked
from leech.errors import InputError

# Text has other places to break a line, and spreadsheets leave them in cells: a form feed, U+2028.
_LINE_END = re.compile(r"\r\n|\n|\r")


def read_tsv(path: Path, what: str) -> list[tuple[int, list[str]]]:
    """Return the lines of a TSV as (line number, cells), the header first; blank lines and # comments are passed over.

    :raises InputError: unreadable, without a header, or a line of another number of cells.
    """
    try:
        text = read_unpacked(path, what).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"Cannot read {what} '{path}': {error}.") from error
    lines = [
        (number, [cell.strip() for cell in line.split("\t")])
        for number, line in enumerate(_LINE_END.split(text), start=1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not lines:
        raise InputError(f"'{path}' is empty, so it is not {what}.")
    columns = lines[0][1]
    if len(set(columns)) != len(columns):
        raise InputError(f"'{path}' names a column twice: {', '.join(columns)}.")
    for number, cells in lines[1:]:
        if len(cells) != len(columns):
            raise InputError(
                f"'{path}' line {number} has {len(cells)} cells and the header {len(columns)} ({', '.join(columns)}).",
                hint="Cells are separated by single tabs; an empty cell still needs its tab.",
            )
    return lines
