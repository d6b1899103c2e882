"""Tables as leech writes them: TSV, gzip or not.

Hides: gzip, line ends, and that nothing is quoted, so that a quotation mark in a name is one. Belongs here: rows and cells;
what a column means is for whoever asks. Tables that people write by hand are ``prediction/tsv.py``'s. Invariants: every row is
as wide as the header; what is written reads back as it was, but for tabs and line ends, which become blanks.
"""

from __future__ import annotations

import csv
import io
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

from leech.data.packed import open_to_read, packed_writer
from leech.errors import InputError

_SEPARATORS = re.compile(r"[\t\n\r]")


def table_rows(
    path: Path, columns: Sequence[str], what: str = "table", hint: str = "Give the table as leech wrote it."
) -> Iterator[dict[str, str]]:
    """Yield the rows of a table by column.

    :param columns: that it must have.
    :param what: the table is, for messages.
    :param hint: where one with these columns comes from.
    :raises InputError: unreadable, one of the columns missing, or a row of another width.
    """
    try:
        with open_to_read(path) as file:
            table = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE, strict=True)
            missing = [name for name in columns if name not in (table.fieldnames or [])]
            if missing:
                raise InputError(f"The {what} '{path}' has no column '{missing[0]}'.", hint=hint)
            for row in table:
                if None in row or None in row.values():
                    raise InputError(
                        f"The {what} '{path}' has a row that is not as wide as the header: line {table.line_num}.",
                        hint="The file was edited or cut off: copy it again, or have leech write it again.",
                    )
                yield row
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"Cannot read {what} '{path}': {error}.", hint="Copy the file again, or have leech write it again."
        ) from error


def write_table(path: Path, name: Path, columns: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
    """Write a table; its bytes depend on the rows alone.

    :param path: where to write; gzip where ``name``, the final one, ends in ``.gz``.
    """
    with ExitStack() as stack:
        raw = stack.enter_context(path.open("wb"))
        file = packed_writer(raw) if name.suffix == ".gz" else io.TextIOWrapper(raw, encoding="utf-8", newline="")
        stack.enter_context(file)
        for row in chain([columns], rows):
            file.write("\t".join(_SEPARATORS.sub(" ", str(cell)) for cell in row) + "\n")
