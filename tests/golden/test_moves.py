"""Move tables and alignments against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from leech.data.moves import (
    DELETED,
    INDEL_NONE,
    INDEL_PARTIAL,
    INDEL_PRESENT,
    INSERTED_BEHIND,
    Alignments,
    Cigars,
    ReadBounds,
    bounds_in_time,
    moves_agree,
)

M, I, D, N, S, H = range(6)  # noqa: E741 - the BAM specification's letters

# Four bases, stride 6, blocks 1 0 1 1 0 1 -> bases start at blocks 0, 2, 3, 5, that is at samples 0, 12, 18, 30.
# 38 trimmed samples: 6 blocks cover 36, so 2 samples (less than one stride) hang over and belong to the last base.
MOVES = np.array([1, 0, 1, 1, 0, 1], dtype=np.int8)


def in_time(moves, stride, samples):
    return bounds_in_time([moves.tobytes()], np.array([stride]), np.array([samples]))


def test_in_time_order_each_move_starts_a_base_and_the_last_one_ends_with_the_signal():
    assert in_time(MOVES, 6, 38).bounds.tolist() == [0, 12, 18, 30, 38]


def test_backwards_the_first_base_is_the_last_move():
    # Read backwards, sample s becomes 37 - s. Base 0 is the last move: time [30, 38) -> [0, 8).
    # Base 1: time [18, 30) -> [8, 20). Base 2: [12, 18) -> [20, 26). Base 3: [0, 12) -> [26, 38).
    assert in_time(MOVES, 6, 38).backwards(np.array([38])).bounds.tolist() == [0, 8, 20, 26, 38]


@pytest.mark.parametrize(
    ("num_samples", "num_bases", "agrees"),
    [
        (36, 4, True),  # remainder 0
        (41, 4, True),  # remainder 5, one less than the stride
        (42, 4, False),  # remainder 6: a whole block is missing
        (35, 4, False),  # the blocks reach beyond the signal
        (38, 3, False),  # SEQ was trimmed after basecalling
    ],
)
def test_a_move_table_agrees_only_with_its_own_sequence_and_signal(num_samples, num_bases, agrees):
    numbers = (len(MOVES), int(MOVES.sum()), 6, num_samples, num_bases)
    assert moves_agree(*(np.array([number]) for number in numbers)).tolist() == [agrees]


# Ten query bases of ten samples each, so that query position q lies at sample 10 * q.
TENS = np.arange(0, 110, 10)


def trace(cigar, start):
    return Alignments.trace(Cigars.of([cigar]), np.array([start]))


def bounds(cigar, start, first, count, base_bounds=TENS):
    query = ReadBounds(base_bounds, np.array([0, len(base_bounds)]))
    (found,) = trace(cigar, start).bounds(query, np.array([0]), np.array([first]), count).tolist()
    return found


def covers(cigar, start, *positions):
    alignment = trace(cigar, start)
    return [bool(alignment.covers(np.array([position]))[0]) for position in positions]


def indel(cigar, reference_start, start, end):
    return trace(cigar, reference_start).indels(np.array([start]), np.array([end]))[0]


def test_a_plain_match_maps_base_by_base():
    # Query base 0 lies on reference 100; reference 102..104 are query 2..4.
    assert bounds([(M, 10)], 100, 102, 3) == [20, 30, 40, 50]


def test_soft_clipped_bases_shift_the_query_and_have_no_reference():
    # 3S7M at 100: reference 100 is query 3 (sample 30); reference 99 lies outside and gets no samples.
    assert bounds([(S, 3), (M, 7)], 100, 99, 3) == [30, 30, 40, 50]


def test_hard_clipped_bases_are_no_part_of_the_query():
    assert bounds([(H, 50), (M, 10)], 100, 100, 2) == [0, 10, 20]


def test_inserted_bases_belong_to_the_base_before_them():
    # 4M2I4M at 100: reference 103 is query 3, and query 4, 5 are inserted; reference 104 is query 6.
    # So reference 103 owns samples 30..60.
    assert bounds([(M, 4), (I, 2), (M, 4)], 100, 102, 3) == [20, 30, 60, 70]


def test_deleted_bases_share_the_signal_of_the_base_before_them():
    # 4M2D4M at 100: reference 103 is query 3 (sample 30), 104 and 105 are deleted, 106 is query 4 (sample 40).
    # Three bases share the 10 samples: starts at 30, 30 + 10/3 = 33.3, 30 + 20/3 = 36.7, rounded down.
    assert bounds([(M, 4), (D, 2), (M, 4)], 100, 103, 4) == [30, 33, 36, 40, 50]


def test_bases_of_a_reference_skip_have_no_signal_and_are_not_covered():
    # 4M3N4M at 100: reference 104..106 are skipped, 103 keeps its own 10 samples, 107 is query 4.
    cigar = [(M, 4), (N, 3), (M, 4)]
    assert bounds(cigar, 100, 103, 5) == [30, 40, 40, 40, 40, 50]
    assert covers(cigar, 100, 103, 104, 106, 107) == [True, False, False, True]


def test_all_operations_together():
    # 1H 2S 3M 1I 2M 2D 2M 2N 1M at 50, query of 11 bases (2S + 3M + 1I + 2M + 2M + 1M), ten samples each.
    # reference 50 51 52 -> query 2 3 4; query 5 inserted after 52; 53 54 -> 6 7; 55 56 deleted; 57 58 -> 8 9;
    # 59 60 skipped; 61 -> 10.
    cigar = [(H, 1), (S, 2), (M, 3), (I, 1), (M, 2), (D, 2), (M, 2), (N, 2), (M, 1)]
    elevens = np.arange(0, 120, 10)
    # starts: 50:20 51:30 52:40 53:60 54:70 55:73 56:76 57:80 58:90 59:100 60:100 61:100, end 110.
    expected = [20, 30, 40, 60, 70, 73, 76, 80, 90, 100, 100, 100, 110]
    assert bounds(cigar, 50, 50, 12, elevens) == expected


def test_a_deletion_at_the_end_of_an_alignment_is_no_part_of_it():
    alignment = trace([(M, 4), (D, 3), (S, 2)], 100)
    assert (alignment.reference_knots[-1], alignment.query_knots[-1]) == (104, 4)
    assert (alignment.end.tolist(), alignment.query_end.tolist()) == ([104], [4])
    assert covers([(M, 4), (D, 3), (S, 2)], 100, 103, 104) == [True, False]


def test_an_alignment_without_match_covers_nothing():
    assert covers([(S, 10)], 100, 99, 100) == [False, False]
    assert covers([], 0, 0) == [False]


@pytest.mark.parametrize(
    ("cigar", "state"),
    [
        ([(M, 20)], INDEL_NONE),
        ([(M, 8), (I, 1), (M, 12)], INDEL_PRESENT),  # between reference 107 and 108, inside the motif 105..110
        ([(M, 5), (I, 1), (M, 15)], INDEL_NONE),  # right before the motif's first base
        ([(M, 11), (I, 1), (M, 9)], INDEL_NONE),  # right behind its last base
        ([(M, 6), (I, 1), (M, 14)], INDEL_PRESENT),  # between its first and second base
        ([(M, 10), (D, 1), (M, 9)], INDEL_PRESENT),  # its last base deleted
        ([(M, 3), (D, 2), (M, 15)], INDEL_NONE),  # ends where it begins
        ([(M, 3), (D, 3), (M, 14)], INDEL_PRESENT),  # reaches into its first base
        ([(M, 8)], INDEL_PARTIAL),  # ends in its middle
        ([(M, 4)], INDEL_PARTIAL),  # ends before it
        ([(M, 8), (D, 3), (S, 5)], INDEL_PARTIAL),  # a deletion that nothing follows
    ],
)
def test_an_indel_counts_when_it_lies_between_two_bases_of_the_motif_or_removes_one(cigar, state):
    # Motif on reference [105, 111), alignment from 100.
    assert indel(cigar, 100, 105, 111) == state


@pytest.mark.parametrize(
    ("cigar", "state"),
    [
        ([(S, 2), (M, 8)], INDEL_NONE),  # SEQ 3..7 is matched
        ([(S, 2), (M, 3), (I, 1), (M, 4)], INDEL_PRESENT),  # SEQ 5 is inserted
        ([(S, 2), (M, 2), (D, 1), (M, 6)], INDEL_PRESENT),  # reference bases are missing between SEQ 3 and 4
        ([(S, 2), (M, 1), (D, 1), (M, 7)], INDEL_NONE),  # between SEQ 2 and 3, right before the interval
        ([(H, 5), (S, 4), (M, 6)], INDEL_PARTIAL),  # SEQ 3 is clipped; hard-clipped bases are not in SEQ
    ],
)
def test_seen_from_the_query_insertions_and_deletions_change_places(cigar, state):
    # The interval is SEQ [3, 7).
    alignment = Alignments.trace(Cigars.of([cigar]).in_query(), np.array([0]))
    assert alignment.indels(np.array([3]), np.array([7])).tolist() == [state]


def test_what_is_computed_for_a_read_does_not_depend_on_the_others():
    generator = np.random.default_rng(0)
    cigars, starts, moves, samples = [], [], [], []
    for _ in range(200):
        number = int(generator.integers(1, 8))
        cigar = [(int(op), int(generator.integers(1, 9))) for op in generator.choice([M, I, D, N], number)]
        cigar = [(S, int(generator.integers(0, 4))), *cigar, (M, 2), (D, int(generator.integers(0, 3)))]
        cigars.append([part for part in cigar if part[1]])
        starts.append(int(generator.integers(0, 50)))
        num_bases = sum(length for op, length in cigars[-1] if op in (M, I, S))
        blocks = np.ones(num_bases + int(generator.integers(0, 40)), dtype=np.int8)
        blocks[1 + generator.permutation(len(blocks) - 1)[: len(blocks) - num_bases]] = 0
        moves.append(blocks.tobytes())
        samples.append(5 * len(blocks) + int(generator.integers(0, 5)))
    strides, samples, starts = np.full(len(moves), 5), np.array(samples), np.array(starts)
    first, width, every = starts - 3, 60, np.arange(len(moves))
    for backwards in (False, True):

        def in_frame(which, backwards=backwards):
            found = bounds_in_time(moves[which], strides[which], samples[which])
            return found.backwards(samples[which]) if backwards else found

        together = in_frame(slice(None))
        traced = Alignments.trace(Cigars.of(cigars), starts)
        found = traced.bounds(together, every, first, width)
        medians, states = together.median_dwell(), traced.indels(first + 5, first + 12)
        covered, plain = traced.covers(first + 7), together.at(first, width)
        assert set(states.tolist()) == {0, 1, 2}
        # The boundaries of some of them are those that they have among all.
        some = every[1::3]
        assert np.array_equal(traced.bounds(together.take(some), some, first[some], width), found[some])
        for row in range(len(moves)):
            one = slice(row, row + 1)
            alone = in_frame(one)
            alignment = Alignments.trace(Cigars.of(cigars[one]), starts[one])
            own = np.diff(alone.bounds)
            assert alone.bounds.tolist() == together.bounds[slice(*together.offsets[row : row + 2])].tolist()
            assert own.sum() == samples[row]
            assert medians[row] == np.median(own)
            assert alignment.bounds(alone, every[:1], first[one], width).tolist() == found[one].tolist()
            assert alone.at(first[one], width).tolist() == plain[one].tolist()
            assert alignment.indels(first[one] + 5, first[one] + 12)[0] == states[row]
            assert alignment.covers(first[one] + 7)[0] == covered[row]


def test_boundaries_of_some_reads_are_those_that_they_have_among_all():
    # Three reads of 1, 3 and 2 bases; the last and the first are taken.
    every = ReadBounds(np.array([0, 9, 0, 2, 5, 7, 1, 4, 6]), np.array([0, 2, 6, 9]))
    some = every.take(np.array([2, 0]))
    assert some.bounds.tolist() == [1, 4, 6, 0, 9]
    assert some.offsets.tolist() == [0, 3, 5]
    assert every.take(np.array([], dtype=int)).offsets.tolist() == [0]


def base_indels(cigar, reference_start, first, number):
    return trace(cigar, reference_start).base_indels(np.array([0]), np.array([first]), number)[0].tolist()


def test_a_base_is_deleted_or_followed_by_inserted_bases():
    # 3M2D2M1I3M from 10: matches 10-12, deleted 13 and 14, matches 15 and 16, one base inserted behind 16, matches 17-19.
    cigar = [(0, 3), (2, 2), (0, 2), (1, 1), (0, 3)]
    assert base_indels(cigar, 10, 9, 11) == [0, 0, 0, 0, DELETED, DELETED, 0, INSERTED_BEHIND, 0, 0, 0]
    # Of an indel at the window's edge only what lies in the window is told: the second deleted base; the base before the
    # insertion, but not the insertion behind a base outside.
    assert base_indels(cigar, 10, 14, 3) == [DELETED, 0, INSERTED_BEHIND]
    assert base_indels(cigar, 10, 17, 3) == [0, 0, 0]
    # 2M1I1D2M: inserted behind 11, deleted 12.
    assert base_indels([(0, 2), (1, 1), (2, 1), (0, 2)], 10, 10, 5) == [0, INSERTED_BEHIND, DELETED, 0, 0]


def test_indels_outside_the_match_blocks_and_clips_say_nothing_of_a_base():
    assert base_indels([(4, 5), (1, 2), (0, 3), (2, 1), (4, 4)], 10, 8, 8) == [0] * 8


def test_indels_of_a_read_do_not_depend_on_the_others():
    cigars = [[(0, 3), (2, 2), (0, 5)], [(0, 10)], [(0, 4), (1, 1), (0, 5)]]
    together = Alignments.trace(Cigars.of(cigars), np.array([0, 5, 2]))
    found = [[0, 0, 0, 1, 1, 0, 0, 0], [0] * 8, [0, 0, 2, 0, 0, 0, 0, 0]]
    assert together.base_indels(np.arange(3), np.array([0, 6, 3]), 8).tolist() == found
    assert together.base_indels(np.array([0, 2]), np.array([0, 3]), 8).tolist() == [found[0], found[2]]
    for cigar, start, first, indels in zip(cigars, (0, 5, 2), (0, 6, 3), found, strict=True):
        assert base_indels(cigar, start, first, 8) == indels
