"""The files that single calls are written to: BAM with ``cl`` tags, and the lab's three tables.

Hides: tags, header lines, column orders and gzip. Belongs here: one writer per file; what a call is, is decided in
``calls.py``, and summaries of calls are ``summary.py``'s. Invariants: a record that is written has every tag it was read with,
in its order, but for an earlier ``cl``; file names and columns are a stable interface that downstream tools read as they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import ClassVar, Generic, Protocol, TypeVar

import pysam

from leech.console import logger
from leech.data.packed import packed_writer
from leech.errors import InputError
from leech.prediction.calls import Call

CALL_TAG = "cl"
"""Scalar uint8 tag, ``round(255 * P(positive))``; absent where no call is made."""

_COMPRESSING_THREADS = 2


def header_with_program(
    header: pysam.AlignmentHeader, version: str, command: str, comment: Callable[[str], str] | None = None
) -> pysam.AlignmentHeader:
    """Return the header with one @PG line more, chained to the last program; all other lines stay as they are.

    :param comment: text of a @CO line to add, by the ID of the program; None for none.
    :raises InputError: a header that is not UTF-8.
    """
    try:
        # A blank line, as pysam leaves where it adds references that the text lacks, would end the header for other readers.
        lines = [line for line in str(header).rstrip("\0").split("\n") if line.strip()]
    except UnicodeDecodeError as error:
        raise InputError(
            f"The BAM's header is not UTF-8, as its format asks for: {error}.",
            hint="Write it anew: samtools view -H, iconv, samtools reheader.",
        ) from error
    programs = [
        field[3:]
        for line in lines
        if line.startswith("@PG\t")
        for field in line.split("\t")[1:]
        if field.startswith("ID:")
    ]
    number = 0
    name = "leech"
    while name in programs:
        number += 1
        name = f"leech.{number}"
    previous = f"\tPP:{programs[-1]}" if programs else ""
    command = " ".join(command.split())
    lines.append(f"@PG\tID:{name}\tPN:leech{previous}\tVN:{version}\tCL:{command}")
    if comment is not None:
        lines.append(f"@CO\t{comment(name)}")
    return pysam.AlignmentHeader.from_text("\n".join(lines) + "\n")


def tag_record(record: pysam.AlignedSegment, likelihood: int | None) -> bool:
    """Set the call on a record, or take an earlier one away; return whether there was an earlier one."""
    earlier = bool(record.has_tag(CALL_TAG))
    if likelihood is not None:
        record.set_tag(CALL_TAG, likelihood, value_type="C")
    elif earlier:
        record.set_tag(CALL_TAG, None)
    return earlier


C = TypeVar("C", contravariant=True)


class TaggedBam(ABC, Generic[C]):
    """The BAM of a run, written in a few threads; what is written of a call is left to the classes below.

    :cvar TAGS: what they are called, for messages.
    :ivar num_replaced: records that carried such tags before.
    :param path: where to write.
    :param name: the final name, for messages.
    :param must_be_sorted: refuse records that are not sorted by position, which an index needs.
    """

    TAGS: ClassVar[str]

    def __init__(self, path: Path, name: Path, header: pysam.AlignmentHeader, *, must_be_sorted: bool = False) -> None:
        self.num_replaced = 0
        self._name = name
        self._path, self._must_be_sorted = path, must_be_sorted
        self._file = pysam.AlignmentFile(str(path), "wb", header=header, threads=_COMPRESSING_THREADS)
        self._num_written = 0
        self._last = (-1, -1)

    @abstractmethod
    def write(self, record: pysam.AlignedSegment, call: C) -> None:
        """Write a record with its call; earlier tags are replaced or taken away, and counted.

        :raises InputError: it comes before the last one, and an index was asked for.
        """

    def put(self, record: pysam.AlignedSegment, *, was_tagged: bool) -> None:
        """Write a record that has its tags.

        :param was_tagged: whether it carried such tags before.
        :raises InputError: it comes before the last one, and an index was asked for.
        """
        if self._must_be_sorted:
            # Records without a reference come last.
            place = (record.reference_id % 2**31, record.reference_start)
            if place < self._last:
                raise InputError(
                    f"Record {self._num_written + 1} of the alignments ('{record.query_name}') lies before the one in front of "
                    "it, and --index takes records that are sorted by position.",
                    hint="Sort the BAM first (samtools sort), or leave out --index.",
                )
            self._last = place
        self.num_replaced += was_tagged
        try:
            self._file.write(record)
        except OSError as error:
            raise self._not_written() from error
        self._num_written += 1

    def close(self) -> None:
        """Finish the file; closing it again does nothing.

        :raises InputError: what htslib's threads still held could not be written.
        """
        try:
            self._file.close()
        except OSError as error:
            raise self._not_written() from error

    def abandon(self) -> None:
        """Let go of the file as it is; nothing is left to do after :meth:`close`."""
        # Whatever made the run fail has been told, and closing would tell of it again.
        with suppress(OSError):
            self._file.close()

    def _not_written(self) -> InputError:
        # htslib's threads do not keep the cause of a failed write, so the error's number is that of something else.
        return InputError(
            f"Cannot write '{self._name}': a write failed, most often because the disk is full.",
            hint="Free some space, or write elsewhere.",
        )

    def index(self, path: Path) -> None:
        """Write the index of the finished file to ``path``."""
        try:
            pysam.index("-b", "-o", str(path), str(self._path))
        except pysam.utils.SamtoolsError as error:
            raise InputError(f"The BAM cannot be indexed: {error}.") from error


class CallBam(TaggedBam[Call]):
    """The BAM of a run, with ``cl`` tags."""

    TAGS = CALL_TAG

    def write(self, record: pysam.AlignedSegment, call: Call) -> None:
        """Write a record with its call."""
        self.put(record, was_tagged=tag_record(record, call.likelihood))


class GzipTable:
    """A gzip TSV with a header line; the bytes depend on the rows alone (no time is stored)."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self._raw = path.open("wb")
        self._text = packed_writer(self._raw)
        self.write(*columns)

    def write(self, *cells: object) -> None:
        """Write one row; None becomes an empty cell."""
        self._text.write("\t".join("" if cell is None else str(cell) for cell in cells) + "\n")

    def close(self) -> None:
        """Finish the file; closing it again does nothing."""
        try:
            self._text.close()
        finally:
            self._raw.close()


class CallTables:
    """Writes the three tables of a sample; per-read rows as they come, per-reference rows on closing.

    :param paths: where to write, by name in ``names.TABLES``.
    """

    def __init__(self, paths: dict[str, Path]) -> None:
        self._likelihoods = GzipTable(paths["charging_prob"], ("read_id", "tRNA", "charging_likelihood"))
        self._calls = GzipTable(paths["charging_calls"], ("read_id", "reference", "p", "cl", "reason"))
        self._totals = GzipTable(
            paths["charging.cpm"], ("tRNA", "counts_charged", "counts_uncharged", "cpm_charged", "cpm_uncharged")
        )
        self._counts: Counter[tuple[str, bool]] = Counter()

    def write(self, call: Call) -> None:
        """Write one record's row."""
        probability = None if call.probability is None else f"{call.probability:.6g}"
        self._calls.write(call.read_id, call.reference, probability, call.likelihood, call.reason)
        if call.positive is not None:
            self._likelihoods.write(call.read_id, call.reference, call.likelihood)
            self._counts[call.reference, call.positive] += 1

    def close(self) -> None:
        """Write the per-reference table and finish all files.

        cpm is counts per million called reads of the sample.
        """
        per_million = 1e6 / max(sum(self._counts.values()), 1)
        for reference in sorted({name for name, _ in self._counts}):
            charged, uncharged = self._counts[reference, True], self._counts[reference, False]
            cells = (f"{charged * per_million:.6g}", f"{uncharged * per_million:.6g}")
            self._totals.write(reference, charged, uncharged, *cells)
        self.abandon()

    def abandon(self) -> None:
        """Let go of the files as they are; nothing is left to do after :meth:`close`."""
        for table in (self._likelihoods, self._calls, self._totals):
            table.close()


class TablesOf(Protocol[C]):
    """Tables of single calls, as they are being written."""

    def write(self, call: C) -> None:
        """Write one record's row."""

    def close(self) -> None:
        """Finish the files."""

    def abandon(self) -> None:
        """Let go of the files as they are; nothing is left to do after :meth:`close`."""


class CallFiles(Generic[C]):
    """What is written of single calls as they come: a BAM, tables, or both.

    :param index: where the BAM's index goes; None for none.
    :param stack: on which both are let go of when the run fails, before its partial files are removed.
    """

    def __init__(
        self, bam: TaggedBam[C] | None, tables: TablesOf[C] | None, index: Path | None, stack: ExitStack
    ) -> None:
        self._bam, self._tables, self._index = bam, tables, index
        for file in (bam, tables):
            if file is not None:
                stack.callback(file.abandon)

    def write(self, record: pysam.AlignedSegment, call: C) -> None:
        """Write a record and its call."""
        if self._bam is not None:
            self._bam.write(record, call)
        if self._tables is not None:
            self._tables.write(call)

    def finish(self) -> None:
        """Close all files, and write the index where one is asked for."""
        if self._tables is not None:
            self._tables.close()
        if self._bam is None:
            return
        self._bam.close()
        if self._bam.num_replaced:
            logger.warning(
                "%d records carried %s tags already; they were replaced, or removed where no call is made.",
                self._bam.num_replaced,
                self._bam.TAGS,
            )
        if self._index is not None:
            self._bam.index(self._index)
