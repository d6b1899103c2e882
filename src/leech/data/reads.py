"""Alignment records: which are used, and what of them a chunk needs.

Hides: tags and flags. Belongs here: deciding from a record alone (and from which POD5 file holds its signal) whether it
can be used; decisions that need the signal are made in ``chunks.py``, files are opened in ``alignments.py``. Invariants:
every record gets exactly one answer, a place in :class:`AlignedReads` or a reason of ``reasons.py``; records keep their
order; nothing of pysam leaves the process that opened the file, so that reads travel to workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pysam
from numpy.typing import NDArray

from leech.data.anchors import ReadAnchor, Site, Sites
from leech.data.moves import Cigar, Cigars
from leech.data.pod5 import Pod5Index, pack_read_id, unpack_read_id

_ID = np.dtype([("high", ">u8"), ("low", ">u8")])
"""A read id as numpy sorts it; its own bytes type would drop trailing zeros."""

TO_THE_END = int(np.iinfo(np.int64).min)
"""Stands for the end of the raw signal, whatever its length."""

_UNMAPPED = 4
_REFUSED_FLAGS = {256: "secondary", 2048: "supplementary", 1024: "duplicate", 16: "reverse_strand"}
"""Reason by bit of a mapped record's flag, the first that applies."""


class MoveTable(NamedTuple):
    """The ``mv`` tag taken apart: stride in samples and one byte, 0 or 1, per block in time order."""

    stride: int
    moves: bytes


class Description(NamedTuple):
    """What a chunk needs of one record; see :class:`AlignedReads`."""

    read_id: bytes
    parent_id: bytes
    reference: int
    reference_start: int
    cigar: Cigar
    mapq: int
    num_bases: int
    stride: int
    moves: bytes
    signal_start: int
    signal_end: int


@dataclass(frozen=True)
class AlignedReads:
    """Usable records, one value per record in every field, in the order of the records; made to travel in few pieces.

    :ivar read_ids: 16 bytes, the record's own id.
    :ivar parent_ids: 16 bytes, the id under which the signal lies in POD5; differs for split reads.
    :ivar file_number: which POD5 file of the index.
    :ivar reference: number of the reference in the BAM header.
    :ivar num_bases: length of SEQ.
    :ivar stride: samples per block of the move table.
    :ivar moves: one byte, 0 or 1, per block in time order.
    :ivar signal_start: first used sample of the parent's raw signal, ``sp + ts``.
    :ivar signal_end: end of the used samples, ``sp + ns``, or :data:`TO_THE_END`.
    :ivar sites: each read's own site; None where it is its reference's.
    """

    read_ids: tuple[bytes, ...]
    parent_ids: tuple[bytes, ...]
    file_number: NDArray[np.int64]
    reference: NDArray[np.int64]
    reference_start: NDArray[np.int64]
    cigars: Cigars
    mapq: NDArray[np.int64]
    num_bases: NDArray[np.int64]
    stride: NDArray[np.int64]
    moves: tuple[bytes, ...]
    signal_start: NDArray[np.int64]
    signal_end: NDArray[np.int64]
    sites: tuple[Site, ...] | None = None

    @classmethod
    def of(
        cls, described: Sequence[Description], file_number: NDArray[np.int64], sites: Sequence[Site] | None = None
    ) -> AlignedReads:
        """Take single records together."""
        columns = dict(zip(Description._fields, zip(*described, strict=True), strict=True)) if described else {}

        def numbers(name: str) -> NDArray[np.int64]:
            return np.array(columns.get(name, ()), dtype=np.int64)

        return cls(
            read_ids=columns.get("read_id", ()),
            parent_ids=columns.get("parent_id", ()),
            file_number=file_number,
            reference=numbers("reference"),
            reference_start=numbers("reference_start"),
            cigars=Cigars.of(columns.get("cigar", ())),
            mapq=numbers("mapq"),
            num_bases=numbers("num_bases"),
            stride=numbers("stride"),
            moves=columns.get("moves", ()),
            signal_start=numbers("signal_start"),
            signal_end=numbers("signal_end"),
            sites=None if sites is None else tuple(sites),
        )

    def __len__(self) -> int:
        return len(self.read_ids)


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
    if values.typecode in "fd":
        return "bad_moves"
    stride = int(values[0])
    if values.itemsize == 1:
        raw = values.tobytes()[1:]
    else:
        # Taken as bytes, 256 would be no move and 257 one; 2 stands for all that is neither 0 nor 1.
        raw = np.minimum(np.asarray(values[1:]).astype(np.uint32), 2).astype(np.uint8).tobytes()
    if raw.translate(None, delete=b"\x00\x01"):
        return "bad_moves"
    return MoveTable(stride, raw)


def describe_record(record: pysam.AlignedSegment, min_mapq: int = 0) -> Description | str:
    """Return what a chunk needs of a record, or the reason why it cannot be used anywhere."""
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
    return Description(
        read_id,
        parent_id,
        record.reference_id,
        record.reference_start,
        record.cigartuples or (),
        record.mapping_quality,
        record.query_length,
        table.stride,
        table.moves,
        offset + (integer_tag(record, "ts") or 0),
        TO_THE_END if end is None else offset + end,
    )


def _flag_reason(record: pysam.AlignedSegment, min_mapq: int) -> str | None:
    flag = record.flag
    if flag & _UNMAPPED or record.reference_id < 0:
        return "unmapped"
    if flag:
        for bit, reason in _REFUSED_FLAGS.items():
            if flag & bit:
                return reason
    if record.mapping_quality < min_mapq:
        return "low_mapq"
    return None


class Overlap(NamedTuple):
    """How the ids of the records and those of the POD5 files meet.

    :ivar num_looked_up: records that were usable by themselves, so that their signal was looked for.
    :ivar num_found: those among them whose signal lies in the files.
    :ivar num_in_pod5: ids in the files.
    :ivar example_in_bam: an id that was looked for in vain; None where all were found.
    :ivar example_in_pod5: an id of the files; None where they hold none.
    """

    num_looked_up: int
    num_found: int
    num_in_pod5: int
    example_in_bam: str | None
    example_in_pod5: str | None


class Examined(NamedTuple):
    """What became of some records.

    :ivar reasons: one per record: why it is not used, None where it is among the reads.
    :ivar reads: the others, in their order.
    """

    reasons: list[str | None]
    reads: AlignedReads


class Examiner:
    """Decides record by record; remembers which read ids were used, in a byte per POD5 read and 16 per child.

    :param sites: per reference number of the BAM header, its site or the reason why it has none.
    :param anchor: finds the sites of reads on references that have none of their own.
    :param index: where signal lies.
    :param min_mapq: smallest mapping quality used.
    """

    def __init__(self, sites: Sites, index: Pod5Index, min_mapq: int, anchor: ReadAnchor | None = None) -> None:
        self._sites, self._index, self._min_mapq, self._anchor = sites, index, min_mapq, anchor
        # One byte per read of the POD5 files; a set of ids would cost a hundred.
        self._used = bytearray(len(index))
        self._used_children = IdSet()
        self._num_looked_up = self._num_found = 0
        self._missing: bytes | None = None

    @property
    def overlap(self) -> Overlap:
        """What was found so far of what was looked for."""
        missing, present = self._missing, self._index.example()
        return Overlap(
            self._num_looked_up,
            self._num_found,
            len(self._index),
            None if missing is None else unpack_read_id(missing),
            None if present is None else unpack_read_id(present),
        )

    def examine(self, records: Sequence[pysam.AlignedSegment]) -> Examined:
        """Return, for each record, what a chunk needs of it or the reason why it is not used."""
        reasons: list[str | None] = [None] * len(records)
        places: list[int] = []
        described: list[Description] = []
        for place, record in enumerate(records):
            answer = describe_record(record, self._min_mapq)
            if isinstance(answer, str):
                reasons[place] = answer
            else:
                places.append(place)
                described.append(answer)
        positions = self._index.positions([read.parent_id for read in described])
        usable: list[int] = []
        sites: list[Site] = []
        for number, (place, read, position) in enumerate(zip(places, described, positions.tolist(), strict=True)):
            site = self._site(read, position, records[place])
            if isinstance(site, str):
                reasons[place] = site
            else:
                usable.append(number)
                sites.append(site)
        self._num_looked_up += len(described)
        self._num_found += int((positions >= 0).sum())
        reads = AlignedReads.of(
            [described[number] for number in usable],
            self._index.file_numbers[positions[usable]].astype(np.int64),
            None if self._anchor is None else sites,
        )
        return Examined(reasons, reads)

    def _site(self, read: Description, position: int, record: pysam.AlignedSegment) -> Site | str:
        """Return the site of a read that lies at a position of the index (-1 for none), or why it is not used."""
        site = self._sites[read.reference]
        if position < 0 and self._missing is None:
            self._missing = read.parent_id
        if isinstance(site, str):
            return site
        if position < 0:
            return "not_in_pod5"
        if self._is_repeated(read, position):
            return "duplicate"
        if site is not None:
            return site
        assert self._anchor is not None
        return self._anchor.locate(read.read_id, read.reference, record.query_sequence or "")

    def _is_repeated(self, read: Description, position: int) -> bool:
        if read.read_id != read.parent_id:
            return not self._used_children.add(read.read_id)
        repeated = bool(self._used[position])
        self._used[position] = 1
        return repeated


class IdSet:
    """A growing set of 16-byte ids in about 16 bytes each, where Python's own takes a hundred."""

    def __init__(self, fresh_limit: int = 50_000) -> None:
        self._fresh: set[bytes] = set()
        self._sorted = np.zeros(0, dtype=_ID)
        self._fresh_limit = fresh_limit

    def __len__(self) -> int:
        return len(self._sorted) + len(self._fresh)

    def add(self, read_id: bytes) -> bool:
        """Add an id; return whether it was new."""
        if read_id in self._fresh:
            return False
        wanted = np.frombuffer(read_id, dtype=_ID)
        place = int(np.searchsorted(self._sorted, wanted)[0])
        if place < len(self._sorted) and self._sorted[place] == wanted[0]:
            return False
        self._fresh.add(read_id)
        if len(self._fresh) >= self._fresh_limit:
            self._sorted = np.sort(np.concatenate([self._sorted, np.frombuffer(b"".join(self._fresh), dtype=_ID)]))
            self._fresh.clear()
        return True
