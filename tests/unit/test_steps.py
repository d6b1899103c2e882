"""Boundaries moved to where the current steps."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leech.data.steps import MARGIN_BASES, PASSES, REACH_BLOCKS, find_steps

STRIDE = np.array([6])


def found(signal, bounds, *, is_reversed=True, stride=STRIDE):
    return find_steps([np.array(signal, np.int16)], np.array([bounds]), stride, is_reversed=is_reversed)[0].tolist()


def test_a_boundary_goes_to_the_step_before_it_in_the_sequence_which_is_later_in_time():
    # Three bases at 100, 160 and 40; the move table puts both boundaries late in the sequence, by 4 and by 6 samples.
    signal = [100] * 14 + [160] * 18 + [40] * 20
    assert found(signal, [0, 18, 38, 52]) == [0, 14, 32, 52]


def test_forward_in_time_the_step_is_looked_for_behind_the_boundary():
    signal = [100] * 14 + [160] * 18 + [40] * 20
    assert found(signal, [0, 10, 26, 52], is_reversed=False) == [0, 14, 32, 52]
    # Against time it would lie on the other side of what was given, where nothing is better than staying.
    assert found(signal, [0, 14, 32, 52], is_reversed=False) == [0, 14, 32, 52]


def test_the_criterion_is_the_variance_left_within_both_bases():
    generator = np.random.default_rng(0)
    for _ in range(50):
        signal = generator.integers(0, 200, 60)
        given_bound = int(generator.integers(20, 50))
        candidates = range(max(2, given_bound - REACH_BLOCKS * 6), given_bound + 1)

        def left_over(place, signal=signal):
            return sum(float(((part - part.mean()) ** 2).sum()) for part in (signal[:place], signal[place:]))

        first = min(reversed(candidates), key=left_over)
        candidates = range(max(2, first - REACH_BLOCKS * 6), first + 1)
        assert found(signal, [0, given_bound, 60]) == [0, min(reversed(candidates), key=left_over), 60]


def test_a_boundary_moves_two_blocks_a_pass_and_no_further():
    # The step lies 40 samples before the boundary: beyond two passes of twelve.
    signal = np.arange(100)
    moved = found([0] * 10 + [500] * 90, [0, 50, 100])[1]
    assert 50 - PASSES * REACH_BLOCKS * 6 <= moved <= 50
    assert found(signal * 0, [0, 50, 100]) == [0, 50, 100]


def test_a_base_without_signal_gets_none_and_its_boundaries_stay():
    signal = [100] * 14 + [160] * 18 + [40] * 20
    assert found(signal, [0, 18, 18, 38, 52]) == [0, 18, 18, 32, 52]


def test_no_reads_and_strides_of_each_read_are_their_own():
    assert find_steps([], np.zeros((0, 4), np.int64), np.zeros(0, np.int64), is_reversed=True).shape == (0, 4)
    signal = np.array([100] * 10 + [160] * 30, np.int16)
    both = find_steps([signal, signal], np.array([[0, 20, 40]] * 2), np.array([2, 6]), is_reversed=True)
    # Two passes of two blocks of two samples reach 8 back; of six, the step is in reach.
    assert both.tolist() == [[0, 12, 40], [0, 10, 40]]


def moved_one_by_one(signal, bounds, stride, is_reversed):
    """Move boundaries as the module says, one at a time and in fractions."""
    for _ in range(PASSES):
        moved = list(bounds)
        for number in range(1, len(bounds) - 1):
            before, given_bound, behind = bounds[number - 1 : number + 2]
            if given_bound in (before, behind):
                continue
            room = given_bound - before if is_reversed else behind - given_bound
            greatest = Fraction(0)
            for distance in range(min(REACH_BLOCKS * stride, room - 2) + 1):
                place = given_bound - distance if is_reversed else given_bound + distance
                left, right = signal[before:place], signal[place:behind]
                apart = Fraction(sum(left), len(left)) - Fraction(sum(right), len(right))
                step = len(left) * len(right) * apart**2
                if step > greatest:
                    greatest, moved[number] = step, place
        bounds = moved
    return bounds


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), is_reversed=st.booleans(), num_values=st.sampled_from([2, 3, 1000]))
def test_many_boundaries_at_once_are_moved_as_one_by_one_in_fractions(seed, is_reversed, num_values):
    # Few values make equally good places, of which the nearest has to be taken.
    generator = np.random.default_rng(seed)
    dwell = generator.choice([0, 1, 2, 3, 6, 12, 30], generator.integers(2, 8))
    bounds, stride = [0, *np.cumsum(dwell).tolist()], int(generator.choice([1, 5, 6]))
    signal = generator.integers(0, num_values, bounds[-1]).tolist()
    expected = moved_one_by_one(signal, bounds, stride, is_reversed)
    assert found(signal, bounds, is_reversed=is_reversed, stride=np.array([stride])) == expected


@settings(max_examples=100, deadline=None)
@given(data=st.data(), is_reversed=st.booleans())
def test_boundaries_never_cross_and_depend_on_no_other_read_and_on_no_base_beyond_the_margin(data, is_reversed):
    seed = data.draw(st.integers(0, 2**32 - 1))
    generator = np.random.default_rng(seed)
    num_reads, num_bases = 3, 12
    dwell = generator.choice([0, 1, 2, 6, 12, 30], (num_reads, num_bases), p=[0.1, 0.1, 0.1, 0.3, 0.2, 0.2])
    starts = generator.integers(0, 50, num_reads)
    bounds = np.cumsum(np.column_stack([starts, dwell]), axis=1)
    signals = [generator.integers(-32768, 32767, end + 9).astype(np.int16) for end in bounds[:, -1]]
    strides = generator.integers(1, 7, num_reads)
    together = find_steps(signals, bounds, strides, is_reversed=is_reversed)
    assert (np.diff(together) >= 0).all()
    assert np.array_equal(together[:, [0, -1]], bounds[:, [0, -1]])
    assert ((np.diff(together) == 0) == (dwell == 0)).all()
    later = bounds - together if is_reversed else together - bounds
    assert (later >= 0).all()
    assert (later <= PASSES * REACH_BLOCKS * strides[:, None]).all()
    for row in range(num_reads):
        alone = find_steps(
            signals[row : row + 1], bounds[row : row + 1], strides[row : row + 1], is_reversed=is_reversed
        )
        assert np.array_equal(alone[0], together[row])
    narrow = find_steps(signals, bounds[:, 2:-2], strides, is_reversed=is_reversed)
    inner = slice(MARGIN_BASES, -MARGIN_BASES)
    assert np.array_equal(narrow[:, inner], together[:, 2:-2][:, inner])


@pytest.mark.parametrize("level", [-32768, 32767])
def test_sums_of_the_largest_samples_are_exact(level):
    # 60,000 samples a base, of which the last 7 of the first belong to the second.
    signal = np.full(120_000, level, np.int16)
    signal[59_993:] = level - 1 if level > 0 else level + 1
    assert found(signal, [0, 60_000, 120_000]) == [0, 59_993, 120_000]
