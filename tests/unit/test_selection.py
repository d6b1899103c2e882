"""Which reads can be cut, worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leech.config import build
from leech.data.anchors import Site
from leech.data.medians import medians
from leech.data.moves import Alignments
from leech.data.pod5 import Calibration, RawRead, RunInfo
from leech.data.reads import TO_THE_END, AlignedReads, Description
from leech.data.recipe import Recipe
from leech.data.selection import ReadSites, numbered, select, trim

RUN = RunInfo("FC", "run", "sample", 4000)
GOOD = Description(
    read_id=b"good" * 4,
    parent_id=b"good" * 4,
    reference=0,
    reference_start=100,
    cigar=[(0, 4)],
    mapq=60,
    num_bases=4,
    stride=6,
    # Four bases from samples 0, 12, 18 and 30 on; 6 blocks cover 36 samples.
    moves=bytes([1, 0, 1, 1, 0, 1]),
    signal_start=2,
    signal_end=40,
)


def decoded(length: int) -> RawRead:
    return RawRead((np.arange(length) ** 2 % 101).astype(np.int16), RUN, Calibration(0.0, 1.0))


def together(*reads: Description) -> AlignedReads:
    return AlignedReads.of(reads, np.zeros(len(reads), dtype=np.int64))


def outcome(signals: Mapping[bytes, RawRead | None], **changed: object) -> str:
    (found,) = trim(together(GOOD._replace(**changed)), signals).outcomes.tolist()
    return found


SIGNAL = {GOOD.parent_id: decoded(45)}


@pytest.mark.parametrize(
    ("signals", "changed", "reason"),
    [
        (SIGNAL, {}, "used"),
        (SIGNAL, {"signal_end": TO_THE_END}, "mv_mismatch"),  # 43 samples: a block more than there are
        ({GOOD.parent_id: decoded(40)}, {"signal_end": TO_THE_END}, "used"),
        ({}, {}, "not_in_pod5"),
        ({GOOD.parent_id: None}, {}, "signal_unreadable"),
        (SIGNAL, {"signal_end": 46}, "ns_beyond_signal"),
        (SIGNAL, {"signal_end": 46, "signal_start": -1}, "ns_beyond_signal"),  # the first that applies
        (SIGNAL, {"signal_start": -1}, "no_signal"),
        (SIGNAL, {"signal_start": 40}, "no_signal"),
        (SIGNAL, {"signal_end": -5}, "no_signal"),
        (SIGNAL, {"num_bases": 3}, "mv_mismatch"),
        (SIGNAL, {"moves": b""}, "mv_mismatch"),
    ],
)
def test_a_read_is_trimmed_or_gets_the_first_reason_that_applies(signals, changed, reason):
    assert outcome(signals, **changed) == reason


def test_the_used_samples_and_the_bases_in_them_are_in_time_order():
    places, raws, used, bounds = trim(together(GOOD), SIGNAL).used()
    assert (places.tolist(), raws) == ([0], [SIGNAL[GOOD.parent_id]])
    assert np.array_equal(used[0], raws[0].signal[2:40])
    assert bounds.bounds.tolist() == [0, 12, 18, 30, 38]


def site(label: str | None = None) -> Site:
    return Site(102, 101, 103, np.zeros(9, dtype=np.uint8), None, label)


def selected(reads: AlignedReads, signals: Mapping[bytes, RawRead | None], sites=None, **recipe: object):
    where = ReadSites.of(reads, [site()] if sites is None else sites)
    alignments = Alignments.trace(reads.cigars, reads.reference_start)
    made = build(Recipe, {"motif": "CCA", "motif_offset": 0, **recipe})
    return select(reads, signals, where, alignments, made, "x")


def named(name: str, **changed: object) -> Description:
    return GOOD._replace(read_id=name.encode() * 4, parent_id=name.encode() * 4, **changed)


def test_reads_that_fail_do_not_touch_the_others():
    # An insertion of two bases makes six of SEQ; the fourth read ends in front of the focus.
    described = [
        named("bad1", num_bases=9),
        named("fine"),
        named("indl", cigar=[(0, 3), (1, 2), (0, 1)], num_bases=6, moves=bytes([1, 1, 1, 1, 1, 1])),
        named("ends", cigar=[(0, 2), (4, 2)]),
        named("flat"),
        named("long", cigar=[(0, 9)]),
    ]
    reads = together(*described)
    signals = {parent: decoded(45) for parent in reads.parent_ids}
    flat = np.full(45, 7, dtype=np.int16)
    signals[reads.parent_ids[4]] = RawRead(flat, RUN, Calibration(0.0, 1.0))
    found = selected(reads, signals)
    # Reference 101 and 102 are SEQ 1 and 2; the insertion lies behind SEQ 2, that is behind the interval.
    assert found.outcomes == ["mv_mismatch", "used", "used", "focus_not_aligned", "constant_signal", "mv_mismatch"]
    assert found.places.tolist() == [1, 2]
    assert [len(used) for used in found.used] == [38, 38]
    assert found.bounds.num_bases.tolist() == [4, 6]
    assert found.junction == {("x", 0): 2}
    alone = [selected(together(described[place]), signals).normalisations for place in found.places.tolist()]
    assert alone == [[normalisation] for normalisation in found.normalisations]


def test_a_clean_junction_is_counted_before_it_is_required():
    # A base of the motif, reference 101, is deleted in the second read.
    reads = together(named("fine"), named("dele", cigar=[(0, 1), (2, 1), (0, 3)]))
    signals = {parent: decoded(45) for parent in reads.parent_ids}
    found = selected(reads, signals, require_clean_junction=True)
    assert found.outcomes == ["used", "junction_indel"]
    assert found.junction == {("x", 0): 1, ("x", 1): 1}
    assert (found.places.tolist(), len(found.raws), found.junction_state.tolist()) == ([0], 1, [0])


def test_the_label_of_a_site_goes_before_that_of_all_reads():
    reads = together(named("fine"), named("othe", reference=1))
    signals = {parent: decoded(45) for parent in reads.parent_ids}
    assert selected(reads, signals, [site("a"), site()]).junction == {("a", 0): 1, ("x", 0): 1}


def test_distinct_keys_are_numbered_as_they_come():
    distinct, which = numbered(["b", "a", "b", "c"])
    assert (distinct, which.tolist()) == (["b", "a", "c"], [0, 1, 0, 2])


@given(st.lists(st.lists(st.integers(-99, 99), min_size=1, max_size=9), min_size=1, max_size=9))
def test_the_medians_of_many_groups_are_those_of_each(groups):
    flat, lengths = np.concatenate([np.array(group) for group in groups]), np.array([len(group) for group in groups])
    assert medians(flat.astype(np.float64), lengths).tolist() == [float(np.median(group)) for group in groups]
    assert medians(flat, lengths).tolist() == [float(np.median(group)) for group in groups]
