"""Which reads can be cut, decided on signal and alignment together.

Hides: the order in which reads are refused, and how signal is trimmed. Belongs here: everything between the record, which
``reads.py`` has judged, and the window, which ``chunks.py`` places. Invariants: every read gets one outcome, "used" or the
first reason that applies; what is decided of a read does not depend on the others, though many are looked at at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from leech.data.anchors import Site, Sites
from leech.data.moves import INDEL_NONE, Alignments, Integers, ReadBounds, bounds_in_time, moves_agree
from leech.data.normalise import Normalisation, UsedSignals, normalise
from leech.data.pod5 import RawRead
from leech.data.reads import TO_THE_END, AlignedReads
from leech.data.reasons import USED
from leech.data.recipe import Recipe

Key = TypeVar("Key", bound=Hashable)


class Trimmed(NamedTuple):
    """Where the used samples of reads lie.

    :ivar outcomes: one per read, "used" or the reason why it has none.
    :ivar raws: its decoded signal, None where there is none.
    :ivar start: first used sample in it, (num_reads,).
    :ivar end: behind the last one.
    :ivar bounds: of the bases in the used samples, in time order; without meaning for a read that has none.
    """

    outcomes: NDArray[np.str_]
    raws: list[RawRead | None]
    start: Integers
    end: Integers
    bounds: ReadBounds

    def used(self) -> tuple[Integers, list[RawRead], list[NDArray[np.int16]], ReadBounds]:
        """Return which reads are used, their signal, their used samples in time order and the bases' boundaries there."""
        places = np.flatnonzero(self.outcomes == USED)
        raws = [raw for raw in map(self.raws.__getitem__, places.tolist()) if raw is not None]
        spans = zip(raws, self.start[places].tolist(), self.end[places].tolist(), strict=True)
        used = [raw.signal[start:end] for raw, start, end in spans]
        return places, raws, used, self.bounds if len(places) == len(self.raws) else self.bounds.take(places)


class ReadSites(NamedTuple):
    """The sites of reads: the distinct ones, and which of them is whose."""

    distinct: Sequence[Site]
    which: Integers

    @classmethod
    def of(cls, reads: AlignedReads, sites: Sites) -> ReadSites:
        """Look up the sites of reads, which each have one.

        :param sites: by reference number.
        """
        if reads.sites is not None:
            return cls(reads.sites, np.arange(len(reads)))
        references, which = numbered(reads.reference.tolist())
        return cls([_known(sites[reference]) for reference in references], which)

    def position(self, name: str) -> Integers:
        """Return one of the positions that a site has, of each read's, (num_reads,)."""
        return np.array([getattr(site, name) for site in self.distinct], dtype=np.int64)[self.which]

    def take(self, reads: Integers) -> ReadSites:
        """Return the sites of some of the reads."""
        return self._replace(which=self.which[reads])


class Selection(NamedTuple):
    """Reads from which chunks are cut.

    :ivar outcomes: one per read that was looked at; the other fields are of the used ones, in order.
    :ivar places: which of the reads looked at they are, (num_used,).
    :ivar raws: their decoded signal.
    :ivar used: used samples of each, int16, in time order.
    :ivar bounds: of the bases of SEQ in ``used``, in time order.
    :ivar junction_state: of the motif in the alignment, (num_used,).
    :ivar junction: reads that could be cut, by (label, state of the motif), whether or not ``require_clean_junction`` then
        took them out; a missing label is the empty text.
    """

    outcomes: list[str]
    places: Integers
    raws: list[RawRead]
    used: list[NDArray[np.int16]]
    bounds: ReadBounds
    sites: ReadSites
    normalisations: list[Normalisation]
    junction_state: NDArray[np.uint8]
    junction: Counter[tuple[str, int]]


def numbered(keys: Sequence[Key]) -> tuple[list[Key], Integers]:
    """Return the distinct keys in order of first appearance, and which of them each is."""
    numbers: dict[Key, int] = {}
    which = [numbers.setdefault(key, len(numbers)) for key in keys]
    return list(numbers), np.array(which, dtype=np.int64)


def trim(reads: AlignedReads, signals: Mapping[bytes, RawRead | None]) -> Trimmed:
    """Find the used samples of reads, which the move table must fit, and the sequence too.

    :param signals: decoded reads by parent id, None where decoding failed; a missing id is not in the POD5.
    """
    raws = [signals.get(parent) for parent in reads.parent_ids]
    length = np.array([-1 if raw is None else len(raw.signal) for raw in raws], dtype=np.int64)
    start, end = reads.signal_start, np.where(reads.signal_end == TO_THE_END, length, reads.signal_end)
    bounds = bounds_in_time(reads.moves, reads.stride, end - start)
    num_blocks = np.array([len(moves) for moves in reads.moves], dtype=np.int64)
    agree = moves_agree(num_blocks, bounds.num_bases, reads.stride, end - start, reads.num_bases)
    outcomes = first_reason(
        not_in_pod5=np.array([parent not in signals for parent in reads.parent_ids], dtype=bool),
        signal_unreadable=length < 0,
        ns_beyond_signal=end > length,
        no_signal=(start < 0) | (start >= end),
        mv_mismatch=~agree,
    )
    return Trimmed(outcomes, raws, start, end, bounds)


def first_reason(**applies: NDArray[np.bool_]) -> NDArray[np.str_]:
    """Return, per read, the first reason that applies, or "used"."""
    return np.select(list(applies.values()), list(applies), USED)


def select(
    reads: AlignedReads,
    signals: Mapping[bytes, RawRead | None],
    sites: ReadSites,
    alignments: Alignments,
    recipe: Recipe,
    label: str | None,
) -> Selection:
    """Decide which reads can be cut.

    :param signals: decoded reads by parent id, None where decoding failed; a missing id is not in the POD5.
    :param alignments: of the reads, in the frame in which sites have their positions.
    :param label: state of all reads whose site does not say it.
    """
    trimmed = trim(reads, signals)
    if recipe.anchor == "reference":
        aligned = first_reason(
            mv_mismatch=alignments.query_end > reads.num_bases,
            focus_not_aligned=~alignments.covers(sites.position("focus")),
        )
        trimmed = trimmed._replace(outcomes=np.where(trimmed.outcomes == USED, aligned, trimmed.outcomes))
    outcomes: list[str] = trimmed.outcomes.tolist()
    places, raws, used, bounds = trimmed.used()
    answers = normalise(recipe.normalisation, UsedSignals(used, bounds, [raw.calibration for raw in raws]))
    state = alignments.indels(sites.position("motif_start"), sites.position("motif_end"))[places]
    labels = [site.label or label or "" for site in sites.distinct]
    junction: Counter[tuple[str, int]] = Counter()
    kept: list[int] = []
    normalisations: list[Normalisation] = []
    each = zip(places.tolist(), answers, state.tolist(), sites.which[places].tolist(), strict=True)
    for number, (place, answer, code, site) in enumerate(each):
        if isinstance(answer, str):
            outcomes[place] = answer
            continue
        junction[labels[site], code] += 1
        if recipe.require_clean_junction and code != INDEL_NONE:
            outcomes[place] = "junction_indel"
            continue
        kept.append(number)
        normalisations.append(answer)
    if len(kept) < len(places):
        raws, used = [raws[number] for number in kept], [used[number] for number in kept]
        which = np.array(kept, dtype=np.int64)
        places, state, bounds = places[which], state[which], bounds.take(which)
    return Selection(outcomes, places, raws, used, bounds, sites.take(places), normalisations, state, junction)


def _known(site: Site | str | None) -> Site:
    assert isinstance(site, Site), "a read without a site was not left out by its record"
    return site
