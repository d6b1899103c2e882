"""The guard against a wrong signal frame, and the choice of the k-mer's centre.

Hides: the evidence. A wrong frame never raises an error: every base gets some other base's current, and a network trained
on it learns noise or the basecaller's habits. In the right frame, the per-base medians of a read follow the levels that
its sequence predicts; in the other they do not. Belongs here: looking at the first reads of a run before anything is cut.
Invariants: votes are taken from whole reads; levels come from the k-mer table where one is given, else from additive base
effects.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import escapepod
import numpy as np
from numpy.typing import NDArray

from leech.data.levels import KmerTable, additive_levels, encode_bases
from leech.data.medians import medians
from leech.data.pod5 import RawRead
from leech.data.reads import AlignedReads
from leech.data.selection import trim
from leech.errors import MismatchError

MIN_VOTES = 3
"""Votes needed before a frame is believed or refused."""

MIN_CORRELATION = 0.3
"""A read's correlation with expected levels below which it says nothing."""

_MIN_LEAD = 0.2
_MIN_BASES = 20


class Evidence(NamedTuple):
    """One read: base codes 5'->3', and the median current of each move in time order; both (num_bases,)."""

    codes: NDArray[np.uint8]
    medians_in_time: NDArray[np.float32]


@dataclass(frozen=True)
class FrameVerdict:
    """What the first reads say about the frame.

    :ivar votes_for: reads whose levels clearly prefer the recipe's frame.
    :ivar votes_against: reads that clearly prefer the other.
    :ivar num_reads: reads looked at.
    :ivar correlation: median over reads of the correlation with expected levels, in the recipe's frame.
    :ivar other_correlation: the same in the other frame.
    :ivar kmer_centre: position within the k-mer that fits best in the recipe's frame; None without a table.
    """

    votes_for: int
    votes_against: int
    num_reads: int
    correlation: float | None
    other_correlation: float | None
    kmer_centre: int | None

    def to_mapping(self) -> dict[str, int | float | None]:
        """Return plain types, ready for JSON."""
        return dataclasses.asdict(self)

    @property
    def is_decided(self) -> bool:
        """Whether enough reads voted to tell."""
        return self.votes_for >= MIN_VOTES


def gather_evidence(
    reads: AlignedReads, sequences: Sequence[str], signals: Mapping[bytes, RawRead | None]
) -> list[Evidence]:
    """Measure the per-move medians of reads; unusable ones are passed over.

    :param sequences: as basecalled, one per read.
    """
    evidence: list[Evidence] = []
    places, _, samples, bounds = trim(reads, signals).used()
    for place, used, edges in zip(places.tolist(), samples, bounds.each(), strict=True):
        if len(sequences[place]) < _MIN_BASES:
            continue
        spans = np.stack([edges[:-1], edges[1:]], axis=1)
        _, _, _, levels = escapepod.span_statistics(used.astype(np.float32), spans, median=True, fill=0.0)
        if levels.std() > 0:
            evidence.append(Evidence(encode_bases(sequences[place]), levels))
    return evidence


def judge_frame(
    evidence: Sequence[Evidence], reverse_signal: bool, table: KmerTable | None, kmer_centre: int | None
) -> FrameVerdict:
    """Let every read vote for one of the two frames.

    A read votes when the better correlation reaches 0.3 and leads the other by 0.2. With a table and no centre given,
    the centre is the one with the highest mean correlation in the recipe's frame.

    :raises MismatchError: at least three votes, and most of them for the other frame.
    """
    centres: list[int | None] = [kmer_centre] if table is None or kmer_centre is not None else list(range(table.size))
    tables = _correlations(evidence, reverse_signal, table, centres)
    # The other frame is given its own best centre, so that the comparison favours neither.
    right = max((pair[0] for pair in tables), key=_mean)
    wrong = max((pair[1] for pair in tables), key=_mean)
    best = max(range(len(centres)), key=lambda index: _mean(tables[index][0]))
    decisive = np.maximum(right, wrong) >= MIN_CORRELATION
    votes_for = int((decisive & (right - wrong >= _MIN_LEAD)).sum())
    votes_against = int((decisive & (wrong - right >= _MIN_LEAD)).sum())
    if votes_against >= MIN_VOTES and votes_against > votes_for:
        expected, other = ("3'->5'", "5'->3'") if reverse_signal else ("5'->3'", "3'->5'")
        raise MismatchError(
            f"The signal seems to run {other} in time, not {expected}: of {len(evidence)} reads, {votes_against} fit the "
            f"expected levels better that way and {votes_for} do not. Every chunk would hold another base's current.",
            hint=_frame_hint(reverse_signal, None if table is None else kmer_centre),
        )
    return FrameVerdict(
        votes_for=votes_for,
        votes_against=votes_against,
        num_reads=len(evidence),
        correlation=_median(right),
        other_correlation=_median(wrong),
        kmer_centre=None if table is None else (centres[best] if len(evidence) or kmer_centre is not None else None),
    )


def _frame_hint(reverse_signal: bool, given_centre: int | None) -> str:
    if given_centre is not None:
        return f"Leave out --kmer-centre {given_centre}, which may be what does not fit; then the data choose it."
    if reverse_signal:
        return "For DNA give --no-reverse-signal; for RNA check that the BAM's moves are as the basecaller wrote them."
    return "--no-reverse-signal is for DNA: leave it out for direct RNA."


def _correlations(
    evidence: Sequence[Evidence], reverse_signal: bool, table: KmerTable | None, centres: Sequence[int | None]
) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Return, for each centre, the reads' correlations with the levels in the recipe's frame and in the other."""
    fits = np.zeros((len(centres), 2, len(evidence)))
    for index, (codes, measured) in enumerate(evidence):
        by_centre = {} if table is None else dict(enumerate(table.expected_by_centre(codes)))
        for place, centre in enumerate(centres):
            levels = by_centre[centre] if by_centre and centre is not None else additive_levels(codes)
            backwards, in_time = _correlation(levels, measured[::-1]), _correlation(levels, measured)
            fits[place, :, index] = (backwards, in_time) if reverse_signal else (in_time, backwards)
    return [(right, wrong) for right, wrong in fits]


def _correlation(levels: NDArray[np.float32], measured: NDArray[np.float32]) -> float:
    """Return Pearson's correlation over the bases with a known level; 0 where it is undefined or they are too few."""
    known = np.isfinite(levels)
    if np.count_nonzero(known) < _MIN_BASES:
        return 0.0
    expected, found = levels[known].astype(np.float64), measured[known].astype(np.float64)
    if expected.min() == expected.max() or found.min() == found.max():
        return 0.0
    expected -= expected.mean()
    found -= found.mean()
    return float(expected @ found) / math.sqrt(float((expected @ expected) * (found @ found)))


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else 0.0


def _median(values: NDArray[np.float64]) -> float | None:
    # numpy's own would load its masked arrays first, which takes longer than all else here.
    return float(medians(values.copy(), np.array([len(values)]))[0]) if len(values) else None
