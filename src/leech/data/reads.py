"""BAM records: which are used, and what of them a chunk needs.

Hides: pysam, tags and flags. Belongs here: deciding from a record alone (and from which POD5 file holds its signal)
whether it can be used; decisions that need the signal are made in ``chunks.py``. Invariants: every record gets exactly one
answer, an :class:`AlignedRead` or a reason of ``reasons.py``; records keep their order; nothing of pysam leaves the
process that opened the file, so that reads travel to workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pysam

from leech.data.anchors import ReadAnchor, Site, Sites
from leech.data.moves import Cigar
from leech.data.pod5 import Pod5Index, pack_read_id
from leech.errors import InputError


class MoveTable(NamedTuple):
    """The ``mv`` tag taken apart: stride in samples and one byte, 0 or 1, per block in time order."""

    stride: int
    moves: bytes


class AlignedRead(NamedTuple):
    """One usable record.

    :ivar read_id: 16 bytes, the record's own id.
    :ivar parent_id: 16 bytes, the id under which the signal lies in POD5; differs for split reads.
    :ivar file_number: which POD5 file of the index.
    :ivar reference: number of the reference in the BAM header.
    :ivar num_bases: length of SEQ.
    :ivar signal_start: first used sample of the parent's raw signal, ``sp + ts``.
    :ivar signal_end: end of the used samples, ``sp + ns``; None means the end of the raw signal.
    :ivar site: the read's own site; None where it is its reference's.
    """

    read_id: bytes
    parent_id: bytes
    file_number: int
    reference: int
    reference_start: int
    cigar: Cigar
    mapq: int
    num_bases: int
    move_table: MoveTable
    signal_start: int
    signal_end: int | None
    site: Site | None = None


@contextmanager
def open_alignments(path: Path) -> Iterator[pysam.AlignmentFile]:
    """Open BAM or SAM for reading from start to end; no index is needed, ``-`` is standard input.

    :raises InputError: not there or not an alignment file.
    """
    # htslib would otherwise write its own lines about a missing index between ours.
    verbosity = pysam.set_verbosity(0)
    try:
        if str(path) != "-" and not path.is_file():
            raise InputError(f"BAM '{path}' does not exist.")
        try:
            file = pysam.AlignmentFile(str(path), "r", check_sq=False)
        except (OSError, ValueError) as error:
            raise InputError(f"Cannot read '{path}' as BAM or SAM: {error}.") from error
        with file:
            yield file
    finally:
        pysam.set_verbosity(verbosity)


def iterate_records(file: pysam.AlignmentFile, path: Path) -> Iterator[pysam.AlignedSegment]:
    """Yield all records in file order.

    :raises InputError: the file ends in the middle of a record or is damaged.
    """
    try:
        yield from file.fetch(until_eof=True)
    except (OSError, ValueError) as error:
        raise InputError(
            f"BAM '{path}' cannot be read to its end: {error}.", hint="The file is truncated or damaged; copy it again."
        ) from error


def integer_tag(record: pysam.AlignedSegment, name: str) -> int | None:
    """Return an integer tag; None where it is absent. A tag of the same name and another type is passed over.

    minimap2 adds a second ``ts`` of type A beside the basecaller's ``ts`` of type i.
    """
    try:
        value = record.get_tag(name)
    except KeyError:
        return None
    if isinstance(value, int):
        return value
    return next((value for tag, value in record.get_tags() if tag == name and isinstance(value, int)), None)


def move_table(record: pysam.AlignedSegment) -> MoveTable | str:
    """Return the record's move table, or the reason why it has none that can be used."""
    try:
        values = record.get_tag("mv")
    except KeyError:
        return "no_moves"
    if isinstance(values, (str, int, float)) or len(values) < 2 or values[0] < 1:
        return "bad_moves"
    stride = int(values[0])
    raw = values.tobytes()[1:] if values.itemsize == 1 else np.asarray(values[1:]).astype(np.int8).tobytes()
    if raw.count(b"\x00") + raw.count(b"\x01") != len(raw):
        return "bad_moves"
    return MoveTable(stride, raw)


def describe_record(record: pysam.AlignedSegment, min_mapq: int = 0) -> AlignedRead | str:
    """Return what a chunk needs of a record (file number still -1), or the reason why it cannot be used anywhere."""
    reason = _flag_reason(record, min_mapq)
    if reason is not None:
        return reason
    read_id = pack_read_id(record.query_name or "")
    if read_id is None:
        return "bad_read_id"
    table = move_table(record)
    if isinstance(table, str):
        return table
    parent_id, offset = read_id, 0
    if record.has_tag("pi"):
        split_offset = integer_tag(record, "sp")
        if split_offset is None:
            return "split_without_offset"
        parent = pack_read_id(str(record.get_tag("pi")))
        if parent is None:
            return "bad_read_id"
        parent_id, offset = parent, split_offset
    end = integer_tag(record, "ns")
    return AlignedRead(
        read_id=read_id,
        parent_id=parent_id,
        file_number=-1,
        reference=record.reference_id,
        reference_start=record.reference_start,
        cigar=record.cigartuples or (),
        mapq=record.mapping_quality,
        num_bases=record.query_length,
        move_table=table,
        signal_start=offset + (integer_tag(record, "ts") or 0),
        signal_end=None if end is None else offset + end,
    )


def _flag_reason(record: pysam.AlignedSegment, min_mapq: int) -> str | None:
    if record.is_unmapped or record.reference_id < 0:
        return "unmapped"
    if record.is_secondary:
        return "secondary"
    if record.is_supplementary:
        return "supplementary"
    if record.is_duplicate:
        return "duplicate"
    if record.is_reverse:
        return "reverse_strand"
    if record.mapping_quality < min_mapq:
        return "low_mapq"
    return None


class Examiner:
    """Decides record by record; remembers which read ids were used.

    :param sites: per reference number of the BAM header, its site or the reason why it has none.
    :param anchor: finds the sites of reads on references that have none of their own.
    :param index: where signal lies.
    :param min_mapq: smallest mapping quality used.
    """

    def __init__(self, sites: Sites, index: Pod5Index, min_mapq: int, anchor: ReadAnchor | None = None) -> None:
        self._sites, self._index, self._min_mapq, self._anchor = sites, index, min_mapq, anchor
        # One byte per read of the POD5 files; a set of ids would cost a hundred.
        self._used = np.zeros(len(index), dtype=bool)
        self._used_children: set[bytes] = set()

    def examine(self, records: Sequence[pysam.AlignedSegment]) -> list[AlignedRead | str]:
        """Return, for each record, what a chunk needs of it or the reason why it is not used."""
        answers = [describe_record(record, self._min_mapq) for record in records]
        reads = [(place, answer) for place, answer in enumerate(answers) if not isinstance(answer, str)]
        positions = self._index.positions([read.parent_id for _, read in reads])
        for (place, read), position in zip(reads, positions.tolist(), strict=True):
            site = self._sites[read.reference]
            if isinstance(site, str):
                answers[place] = site
            elif position < 0:
                answers[place] = "not_in_pod5"
            elif self._is_repeated(read, position):
                answers[place] = "duplicate"
            else:
                answers[place] = self._located(read, position, site, records[place])
        return answers

    def _located(
        self, read: AlignedRead, position: int, site: Site | None, record: pysam.AlignedSegment
    ) -> AlignedRead | str:
        located = read._replace(file_number=int(self._index.file_numbers[position]))
        if site is not None:
            return located
        assert self._anchor is not None
        own = self._anchor.locate(read.read_id, read.reference, record.query_sequence or "")
        return own if isinstance(own, str) else located._replace(site=own)

    def _is_repeated(self, read: AlignedRead, position: int) -> bool:
        if read.read_id == read.parent_id:
            repeated = bool(self._used[position])
            self._used[position] = True
        else:
            repeated = read.read_id in self._used_children
            self._used_children.add(read.read_id)
        return repeated
