"""Move tables and alignments: from reference positions to signal samples.

Hides: the move table's layout, the RNA frame and the CIGAR. Belongs here: coordinate arithmetic of one read; which
records are used at all is decided in ``reads.py``, where the window lies in ``chunks.py``. Invariants: boundaries are
int64 and half-open, n bases have n + 1 of them; "time" counts trimmed samples in the order they were measured,
"sequence" counts them in the direction of SEQ, 5'->3' (for RNA the reverse of time); reference positions are 0-based.

Frame: ``mv`` runs in time and its stride blocks start at raw sample ``ts``. RNA passes the pore 3' end first, so base i
of SEQ belongs to the (n-1-i)-th ``1`` of ``mv``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Cigar = Sequence[tuple[int, int]]
"""Operations as (code, length), codes as in the BAM specification: M I D N S H P = X are 0 1 2 3 4 5 6 7 8."""

_MATCH = frozenset((0, 7, 8))
_QUERY_ONLY = frozenset((1, 4))
_REFERENCE_GAP = frozenset((2, 3))
_REFERENCE_SKIP = 3
_INSERTION = 1

INDEL_NONE, INDEL_PRESENT, INDEL_PARTIAL = 0, 1, 2
"""States of the motif in an alignment: covered without indel, with one, or not wholly covered."""


def bounds_in_time(moves: NDArray[np.int8], stride: int, num_samples: int) -> NDArray[np.int64]:
    """Return base boundaries in time order from a move table.

    :param moves: 0/1 per stride block, without the leading stride; shape (num_blocks,).
    :param stride: samples per block.
    :param num_samples: trimmed samples, ``ns - ts``; the last base ends there.
    :returns: int64, shape (num_bases + 1,).
    """
    starts = np.flatnonzero(moves) * stride
    return np.append(starts, num_samples)


def bounds_in_sequence(moves: NDArray[np.int8], stride: int, num_samples: int, reverse: bool) -> NDArray[np.int64]:
    """Return base boundaries in sequence order; with ``reverse``, into the trimmed signal read backwards.

    Sample s in time is sample ``num_samples - 1 - s`` backwards, so the half-open span [a, b) becomes
    [num_samples - b, num_samples - a) and the order of the bases turns round.
    """
    bounds = bounds_in_time(moves, stride, num_samples)
    return num_samples - bounds[::-1] if reverse else bounds


def moves_agree(num_blocks: int, num_moves: int, stride: int, num_samples: int, num_bases: int) -> bool:
    """Whether a move table belongs to this sequence and this signal.

    One move per base of SEQ, and blocks that cover the trimmed samples up to less than one stride.
    """
    return num_moves == num_bases and 0 <= num_samples - stride * num_blocks < stride


class Alignment(NamedTuple):
    """A CIGAR as straight pieces.

    :ivar reference_knots: reference positions of base starts where the mapping bends, ascending, then the end.
    :ivar query_knots: the query positions there.
    :ivar skips: reference intervals skipped by N operations, which the molecule does not contain.
    """

    reference_knots: list[int]
    query_knots: list[int]
    skips: list[tuple[int, int]]

    def covers(self, position: int) -> bool:
        """Whether a base at this reference position takes part: between first and last match, in no skip."""
        if not self.reference_knots or not self.reference_knots[0] <= position < self.reference_knots[-1]:
            return False
        return not any(start <= position < end for start, end in self.skips)


def trace_alignment(cigar: Cigar, reference_start: int) -> Alignment:
    """Turn a CIGAR into knots between which reference and query run straight.

    Knots are the starts of the first and the last base of every match block, and the end of the last block. So the bases
    of a deletion share the signal of the base before it, and inserted bases are added to theirs; clipped ends and
    indels outside the match blocks take no part. N opens a gap of bases without signal.
    """
    reference_knots: list[int] = []
    query_knots: list[int] = []
    skips: list[tuple[int, int]] = []
    reference, query = reference_start, 0
    match_end: tuple[int, int] | None = None
    for operation, length in cigar:
        if operation in _MATCH:
            for step in (0, length - 1) if length > 1 else (0,):
                reference_knots.append(reference + step)
                query_knots.append(query + step)
            reference += length
            query += length
            match_end = (reference, query)
        elif operation in _QUERY_ONLY:
            query += length
        elif operation in _REFERENCE_GAP:
            if operation == _REFERENCE_SKIP:
                skips.append((reference, reference + length))
                reference_knots.extend((reference, reference + length))
                query_knots.extend((query, query))
            reference += length
    if match_end is not None:
        # Gaps after the last match block describe nothing that was read.
        while reference_knots[-1] >= match_end[0]:
            reference_knots.pop()
            query_knots.pop()
        reference_knots.append(match_end[0])
        query_knots.append(match_end[1])
    return Alignment(reference_knots, query_knots, skips)


def reference_bounds(
    alignment: Alignment, base_bounds: NDArray[np.int64], first: int, num_bases: int
) -> NDArray[np.int64]:
    """Return the signal boundaries of consecutive reference bases.

    :param base_bounds: boundaries of the query's bases, shape (len(SEQ) + 1,).
    :param first: reference position of the first base.
    :param num_bases: number of bases wanted.
    :returns: int64, shape (num_bases + 1,), in the frame of ``base_bounds``; bases outside the alignment have no signal
        (start equals end). Fractional query positions fall inside a base's samples and are rounded down.
    """
    reference = np.asarray(alignment.reference_knots)
    query = np.asarray(alignment.query_knots)
    positions = np.clip(np.arange(first, first + num_bases + 1), reference[0], reference[-1])
    piece = np.clip(np.searchsorted(reference, positions, side="right") - 1, 0, len(reference) - 2)
    # In whole numbers: a third of six samples is two, which floating point would round down to one.
    span = reference[piece + 1] - reference[piece]
    steps = (positions - reference[piece]) * (query[piece + 1] - query[piece])
    whole = query[piece] + steps // span
    starts = base_bounds[whole]
    ends = base_bounds[np.minimum(whole + 1, len(base_bounds) - 1)]
    bounds: NDArray[np.int64] = starts + (steps % span) * (ends - starts) // span
    return bounds


def motif_indel(cigar: Cigar, reference_start: int, start: int, end: int) -> int:
    """Classify the alignment over the reference interval [start, end).

    :returns: INDEL_PRESENT when bases are inserted between two of its bases or one of its bases is deleted, otherwise
        INDEL_PARTIAL when the match blocks do not reach from its first to its last base, otherwise INDEL_NONE.
    """
    reference = reference_start
    matched = 0
    first_match: int | None = None
    last_match = reference_start
    gaps: list[tuple[int, int]] = []
    for operation, length in cigar:
        if operation in _MATCH:
            first_match = reference if first_match is None else first_match
            matched += max(0, min(reference + length, end) - max(reference, start))
            reference += length
            last_match = reference
        elif operation == _INSERTION:
            gaps.append((reference, reference))
        elif operation in _REFERENCE_GAP:
            gaps.append((reference, reference + length))
            reference += length
    if first_match is not None:
        for gap_start, gap_end in gaps:
            between_matches = first_match < gap_start and gap_end < last_match
            if between_matches and gap_start < end and gap_end > start:
                return INDEL_PRESENT
    return INDEL_NONE if matched == end - start else INDEL_PARTIAL


def in_query(cigar: Cigar) -> Cigar:
    """Return the alignment seen from the query: what is inserted for the reference is missing in it, and the reverse.

    With it, :func:`motif_indel` classifies an interval of SEQ (alignment from position 0).
    """
    turned = {1: 2, 4: 2, 2: 1, 3: 1}
    return [(turned.get(operation, operation), length) for operation, length in cigar if operation not in (5, 6)]
