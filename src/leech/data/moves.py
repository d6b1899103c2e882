"""Move tables and alignments: from reference positions to signal samples.

Hides: the move table's layout, the RNA frame and the CIGAR. Belongs here: coordinate arithmetic of reads, of many at once
because a read alone costs more in calls than in numbers; which records are used at all is decided in ``reads.py``, where
the window lies in ``chunks.py``. Invariants: boundaries are int64 and half-open, n bases have n + 1 of them; "time"
counts trimmed samples in the order they were measured, "sequence" counts them in the direction of SEQ, 5'->3' (for RNA
the reverse of time); reference positions are 0-based; what is computed for a read does not depend on the others.

Frame: ``mv`` runs in time and its stride blocks start at raw sample ``ts``. RNA passes the pore 3' end first, so base i
of SEQ belongs to the (n-1-i)-th ``1`` of ``mv``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from leech.data.medians import medians

Integers = NDArray[np.int64]

Cigar = Sequence[tuple[int, int]]
"""Operations as (code, length), codes as in the BAM specification: M I D N S H P = X are 0 1 2 3 4 5 6 7 8."""

_INSERTION, _REFERENCE_SKIP = 1, 3
_AS_QUERY_SEES_IT = np.array([0, 2, 1, 1, 2, 5, 6, 7, 8, 9], dtype=np.int64)
_IS_MATCH = np.array([1, 0, 0, 0, 0, 0, 0, 1, 1, 0], dtype=bool)
_IS_GAP = np.array([0, 1, 1, 1, 0, 0, 0, 0, 0, 0], dtype=bool)
_TAKES_REFERENCE = np.array([1, 0, 1, 1, 0, 0, 0, 1, 1, 0], dtype=np.int64)
_TAKES_QUERY = np.array([1, 1, 0, 0, 1, 0, 0, 1, 1, 0], dtype=np.int64)

DELETED, INSERTED_BEHIND = 1, 2
"""Bits of what an alignment says of a base: it is deleted; bases are inserted between it and the next."""

INDEL_NONE, INDEL_PRESENT, INDEL_PARTIAL = 0, 1, 2
"""States of the motif in an alignment: covered without indel, with one, or not wholly covered."""


class ReadBounds(NamedTuple):
    """Base boundaries of many reads, one read after the other.

    :ivar bounds: int64, those of read r are ``bounds[offsets[r]:offsets[r + 1]]``, in sequence order.
    :ivar offsets: int64, shape (num_reads + 1,).
    """

    bounds: Integers
    offsets: Integers

    @property
    def num_bases(self) -> Integers:
        """Number of bases per read, shape (num_reads,)."""
        return np.diff(self.offsets) - 1

    def each(self) -> Iterator[Integers]:
        """Yield the boundaries of read after read."""
        return (self.bounds[start:end] for start, end in pairwise(self.offsets.tolist()))

    def take(self, reads: Integers) -> ReadBounds:
        """Return the boundaries of some of the reads."""
        lengths = np.diff(self.offsets)[reads]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        index = np.arange(offsets[-1]) + np.repeat(self.offsets[:-1][reads] - offsets[:-1], lengths)
        return ReadBounds(self.bounds[index], offsets)

    def at(self, first: Integers, num_bases: int) -> Integers:
        """Return the boundaries of consecutive bases of SEQ from ``first`` (num_reads,) on, (num_reads, num_bases + 1).

        Bases beyond either end of SEQ have no signal (start equals end).
        """
        positions = first[:, None] + np.arange(num_bases + 1)
        bounds: Integers = self.bounds[self.offsets[:-1, None] + np.clip(positions, 0, self.num_bases[:, None])]
        return bounds

    def backwards(self, num_samples: Integers) -> ReadBounds:
        """Return the boundaries in the signal read backwards, of ``num_samples`` per read (num_reads,).

        Sample s in time is sample ``num_samples - 1 - s`` backwards, so the half-open span [a, b) becomes
        [num_samples - b, num_samples - a) and the order of the bases turns round.
        """
        lengths = np.diff(self.offsets)
        mirror = np.repeat(self.offsets[:-1] + self.offsets[1:] - 1, lengths) - np.arange(len(self.bounds))
        return ReadBounds(np.repeat(num_samples, lengths) - self.bounds[mirror], self.offsets)

    def dwell(self) -> Integers:
        """Return the samples per base, of all reads one after the other."""
        inside = np.ones(len(self.bounds), dtype=bool)
        inside[self.offsets[1:] - 1] = False
        dwell: Integers = np.diff(self.bounds, append=0)[inside]
        return dwell

    def median_dwell(self) -> NDArray[np.float64]:
        """Return the median samples per base of each read, shape (num_reads,); every read has a base."""
        return medians(self.dwell(), self.num_bases)


def bounds_in_time(moves: Sequence[bytes], stride: Integers, num_samples: Integers) -> ReadBounds:
    """Return base boundaries in time order from move tables.

    :param moves: per read one byte, 0 or 1, per stride block, without the leading stride.
    :param stride: samples per block, (num_reads,).
    :param num_samples: trimmed samples, ``ns - ts``, (num_reads,); the last base of each read ends there.
    """
    blocks = np.cumsum([0, *map(len, moves)])
    ones = np.flatnonzero(np.frombuffer(b"".join(moves), dtype=bool))
    edges = np.searchsorted(ones, blocks)
    number = np.diff(edges)
    owner = np.repeat(np.arange(len(moves)), number)
    offsets = np.concatenate([[0], np.cumsum(number + 1)])
    bounds = np.empty(int(offsets[-1]), dtype=np.int64)
    # The boundaries of the reads before it hold one more each than there are moves.
    bounds[np.arange(len(ones)) + owner] = (ones - blocks[owner]) * stride[owner]
    bounds[offsets[1:] - 1] = num_samples
    return ReadBounds(bounds, offsets)


def moves_agree(
    num_blocks: Integers, num_moves: Integers, stride: Integers, num_samples: Integers, num_bases: Integers
) -> NDArray[np.bool_]:
    """Whether move tables belong to these sequences and these signals, all (num_reads,).

    One move per base of SEQ, and blocks that cover the trimmed samples up to less than one stride.
    """
    remainder = num_samples - stride * num_blocks
    agree: NDArray[np.bool_] = (num_moves == num_bases) & (remainder >= 0) & (remainder < stride)
    return agree


class Cigars(NamedTuple):
    """Operations of many reads, one read after the other.

    :ivar operation: codes as in :data:`Cigar`.
    :ivar length: of each operation.
    :ivar number: operations per read, (num_reads,).
    """

    operation: Integers
    length: Integers
    number: Integers

    @classmethod
    def of(cls, cigars: Sequence[Cigar]) -> Cigars:
        """Take CIGARs of single reads together."""
        flat = np.fromiter(chain.from_iterable(chain.from_iterable(cigars)), dtype=np.int64)
        return cls(flat[0::2], flat[1::2], np.fromiter(map(len, cigars), dtype=np.int64, count=len(cigars)))

    def in_query(self) -> Cigars:
        """Return the alignments seen from the query: what is inserted for the reference is missing in it, and the reverse.

        Traced from position 0, :meth:`Alignments.indels` then classifies an interval of SEQ. Hard clips and padding are on
        neither and have no effect.
        """
        return self._replace(operation=_AS_QUERY_SEES_IT[self.operation])


@dataclass(frozen=True)
class Alignments:
    """CIGARs of many reads, as operations and as straight pieces.

    The knots of a read are the points between which reference and query run straight: the starts of the first and the
    last base of every match block, both ends of every N, and the end of the last block. So the bases of a deletion share
    the signal of the base before it, and inserted bases are added to theirs; clipped ends and indels outside the match
    blocks take no part. N opens a gap of bases without signal; only bases inserted right behind it go to its last one.

    :ivar owner: read number of each operation, ascending.
    :ivar operation: its code.
    :ivar length: its length.
    :ivar reference: reference position where it begins.
    :ivar first_match: per read, reference position of its first matched base; a read without match has 0.
    :ivar end: per read, reference position behind its last matched base; a read without match has 0.
    :ivar query_end: the same position on SEQ.
    :ivar reference_knots: of all reads, one after the other, ascending within a read.
    :ivar query_knots: the query positions there.
    :ivar offsets: the knots of read r are ``[offsets[r]:offsets[r + 1]]``; a read without match has none.
    """

    owner: Integers
    operation: Integers
    length: Integers
    reference: Integers
    first_match: Integers
    end: Integers
    query_end: Integers
    reference_knots: Integers
    query_knots: Integers
    offsets: Integers

    @classmethod
    def trace(cls, cigars: Cigars, reference_starts: Integers) -> Alignments:
        """Trace the alignments of reads that begin at ``reference_starts`` (num_reads,)."""
        operation, length, number = cigars
        num_reads = len(number)
        owner = np.repeat(np.arange(num_reads), number)
        first_operation = np.cumsum(number) - number
        reference = _running(length * _TAKES_REFERENCE[operation], first_operation, owner)
        reference += reference_starts[owner]
        query = _running(length * _TAKES_QUERY[operation], first_operation, owner)
        matches = np.flatnonzero(_IS_MATCH[operation])
        reads = np.arange(num_reads)
        left, right = (np.searchsorted(owner[matches], reads, side=side) for side in ("left", "right"))
        first_match, end, query_end = (np.zeros(num_reads, dtype=np.int64) for _ in range(3))
        matched = np.flatnonzero(left < right)
        first, last = matches[left[matched]], matches[right[matched] - 1]
        first_match[matched] = reference[first]
        end[matched] = reference[last] + length[last]
        query_end[matched] = query[last] + length[last]
        knots = _knots(owner, operation, length, reference, query)
        # Gaps after the last match block describe nothing that was read.
        knots = knots[:, knots[1] < end[knots[0]]]
        ends = np.stack([matched, end[matched], query_end[matched]])
        place = np.searchsorted(knots[0], matched, side="right")
        knots = np.insert(knots, place, ends, axis=1)
        offsets = np.searchsorted(knots[0], np.arange(num_reads + 1))
        return cls(owner, operation, length, reference, first_match, end, query_end, knots[1], knots[2], offsets)

    def covers(self, positions: Integers) -> NDArray[np.bool_]:
        """Whether the base at each read's position (num_reads,) takes part: between first and last match, in no skip."""
        covered = np.zeros(len(positions), dtype=bool)
        traced = np.flatnonzero(np.diff(self.offsets))
        start = self.reference_knots[self.offsets[traced]]
        covered[traced] = (start <= positions[traced]) & (positions[traced] < self.end[traced])
        skips = np.flatnonzero(self.operation == _REFERENCE_SKIP)
        position = positions[self.owner[skips]]
        inside = (self.reference[skips] <= position) & (position < self.reference[skips] + self.length[skips])
        covered[self.owner[skips[inside]]] = False
        return covered

    def bounds(self, base_bounds: ReadBounds, reads: Integers, first: Integers, num_bases: int) -> Integers:
        """Return the signal boundaries of consecutive reference bases of some of the reads, which each have a match.

        :param base_bounds: boundaries of those queries' bases.
        :param reads: which of the reads they are, (num_wanted,).
        :param first: reference position of the first base, per read.
        :param num_bases: number of bases wanted.
        :returns: int64, shape (num_wanted, num_bases + 1), in the frame of ``base_bounds``; bases outside the alignment
            have no signal (start equals end). Fractional query positions fall inside a base's samples and are rounded
            down.
        """
        reference, query = self.reference_knots, self.query_knots
        start, last = self.offsets[reads, None], self.offsets[reads + 1, None] - 1
        positions = np.clip(first[:, None] + np.arange(num_bases + 1), reference[start], reference[last])
        # All reads are searched at once, by making the read the more significant part of one number.
        step = int(reference.max(initial=0)) + 1
        keys = np.repeat(np.arange(len(self.end)), np.diff(self.offsets)) * step + reference
        found = np.searchsorted(keys, (reads[:, None] * step + positions).ravel(), side="right") - 1
        piece = np.clip(found.reshape(positions.shape), start, last - 1)
        # In whole numbers: a third of six samples is two, which floating point would round down to one.
        span = reference[piece + 1] - reference[piece]
        steps = (positions - reference[piece]) * (query[piece + 1] - query[piece])
        whole, part = np.divmod(steps, span)
        whole += query[piece]
        begin = base_bounds.offsets[:-1, None]
        starts = base_bounds.bounds[begin + whole]
        ends = base_bounds.bounds[begin + np.minimum(whole + 1, base_bounds.num_bases[:, None])]
        bounds: Integers = starts + part * (ends - starts) // span
        return bounds

    def indels(self, start: Integers, end: Integers) -> NDArray[np.uint8]:
        """Classify each read's alignment over its reference interval [start, end), both (num_reads,).

        :returns: uint8 (num_reads,): INDEL_PRESENT when bases are inserted between two of its bases or one of its bases
            is deleted, otherwise INDEL_PARTIAL when the match blocks do not reach from its first to its last base,
            otherwise INDEL_NONE.
        """
        stop = self.reference + self.length
        overlap = np.minimum(stop, end[self.owner]) - np.maximum(self.reference, start[self.owner])
        overlap = np.where(_IS_MATCH[self.operation], np.maximum(overlap, 0), 0)
        matched = np.bincount(self.owner, weights=overlap, minlength=len(start)).astype(np.int64)
        owner, gap_start, gap_end = self._gaps()
        inside = (gap_start < end[owner]) & (gap_end > start[owner])
        states = np.where(matched == end - start, INDEL_NONE, INDEL_PARTIAL).astype(np.uint8)
        states[owner[inside]] = INDEL_PRESENT
        return states

    def base_indels(self, reads: Integers, first: Integers, num_bases: int) -> NDArray[np.uint8]:
        """Return what the alignments of some reads say of consecutive bases.

        :param reads: which reads, in ascending order.
        :param first: reference position of the first base, of each of them.
        :returns: uint8 (len(reads), num_bases), the bits DELETED and INSERTED_BEHIND; 0 outside the match blocks.
        """
        bits = np.zeros((len(reads), num_bases), dtype=np.uint8)
        owner, gap_start, gap_end = self._gaps()
        asked_for = np.isin(owner, reads)
        owner = np.searchsorted(reads, owner[asked_for])
        start, end = gap_start[asked_for] - first[owner], gap_end[asked_for] - first[owner]
        inserted = np.flatnonzero((start == end) & (start > 0) & (start <= num_bases))
        bits[owner[inserted], start[inserted] - 1] = INSERTED_BEHIND
        deleted = np.flatnonzero((start < num_bases) & (end > 0) & (start < end))
        start, end = np.maximum(start[deleted], 0), np.minimum(end[deleted], num_bases)
        number = end - start
        within = np.arange(number.sum()) - np.repeat(np.cumsum(number) - number, number)
        bits[np.repeat(owner[deleted], number), np.repeat(start, number) + within] |= DELETED
        return bits

    def _gaps(self) -> tuple[Integers, Integers, Integers]:
        """Return read, start and end of the indels between matches; an insertion ends where it starts."""
        gaps = np.flatnonzero(_IS_GAP[self.operation])
        owner, start = self.owner[gaps], self.reference[gaps]
        end = np.where(self.operation[gaps] == _INSERTION, start, start + self.length[gaps])
        inside = (self.first_match[owner] < start) & (end < self.end[owner])
        return owner[inside], start[inside], end[inside]


def _running(steps: Integers, first: Integers, owner: Integers) -> Integers:
    """Return the sum of the steps of each owner before each of them; ``first`` is where each owner's begin."""
    before = np.cumsum(steps) - steps
    if not len(steps):
        return before
    # An owner without steps may have its beginning behind the end; nobody asks for it.
    return before - before[np.minimum(first, len(steps) - 1)][owner]


def _knots(owner: Integers, operation: Integers, length: Integers, reference: Integers, query: Integers) -> Integers:
    """Return owner, reference and query of the knots that operations make, int64 (3, num_knots)."""
    match, skip = _IS_MATCH[operation], operation == _REFERENCE_SKIP
    number = np.where(match, np.where(length > 1, 2, 1), np.where(skip, 2, 0))
    source = np.repeat(np.arange(len(operation)), number)
    second = np.arange(len(source)) > np.repeat(np.cumsum(number) - number, number)
    step = np.where(match, length - 1, length)[source] * second
    return np.stack([owner[source], reference[source] + step, query[source] + np.where(match[source], step, 0)])
