"""Shift and scale of a read."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from leech.data.moves import ReadBounds
from leech.data.normalise import MAD_TO_SD, UsedSignals, median_mad, normalise
from leech.data.pod5 import Calibration


def test_median_and_mad_by_hand():
    # 1 2 4 8 100: median 4, deviations 3 2 0 4 96, their median 3.
    shift, scale = median_mad(np.array([100, 1, 4, 2, 8], dtype=np.int16))
    assert (shift, scale) == (4.0, 3 * MAD_TO_SD)


def test_an_even_number_of_samples_takes_the_mean_of_the_two_in_the_middle():
    # 1 2 5 9: median 3.5, deviations 2.5 1.5 1.5 5.5, their median 2.0.
    assert median_mad(np.array([9, 1, 5, 2], dtype=np.int16)) == (3.5, 2.0 * MAD_TO_SD)


def test_constant_signal_has_no_scale():
    assert median_mad(np.full(50, 7, dtype=np.int16)) is None


def test_signal_that_is_constant_for_more_than_half_has_no_scale():
    assert median_mad(np.array([3, 3, 3, 3, 900], dtype=np.int16)) is None


@given(arrays(np.int16, st.integers(1, 60)))
def test_the_histogram_gives_exactly_what_sorting_gives(signal):
    wide = signal.astype(np.float64)
    median = np.median(wide)
    mad = np.median(np.abs(wide - median))
    assert median_mad(signal) == (None if mad == 0 else (median, MAD_TO_SD * mad))


USUAL = Calibration(offset=10.0, scale=0.25)


def shift_and_scale(name, signal, calibration, bounds=None):
    bounds = np.arange(len(signal) + 1) if bounds is None else bounds
    (found,) = normalise(name, UsedSignals([signal], ReadBounds(bounds, np.array([0, len(bounds)])), [calibration]))
    return found


def test_the_means_of_bases_count_once_each_by_hand():
    # Bases of 4, 1 and 2 samples with means 2, 9 and 5: median 5, deviations 3 4 0, their median 3. The samples 7 and 7
    # in front of the first base and behind the last one belong to none.
    signal = np.array([7, 1, 3, 1, 3, 9, 4, 6, 7], dtype=np.int16)
    found = shift_and_scale("base_mad", signal, USUAL, np.array([1, 5, 6, 8]))
    assert found == (5.0, 3 * MAD_TO_SD)
    # An even number: the mean of the two in the middle. Means 2, 9: median 5.5, both deviations 3.5.
    assert shift_and_scale("base_mad", signal, USUAL, np.array([1, 5, 6])) == (5.5, 3.5 * MAD_TO_SD)


def test_the_sum_of_a_base_of_many_samples_does_not_overflow():
    # Bases of 70,000 samples at the ends of the range, whose sums need more than 32 bits, and one in between.
    signal = np.repeat(np.array([32767, -32768, 100], dtype=np.int16), 70_000)
    found = shift_and_scale("base_mad", signal, USUAL, np.array([0, 70_000, 140_000, 210_000]))
    # Median 100; deviations 32667, 32868 and 0.
    assert found == (100.0, 32667 * MAD_TO_SD)


def test_a_base_that_is_held_three_times_as_long_changes_the_median_of_samples_but_not_that_of_bases():
    short = np.repeat([10, 20, 30, 40, 50], 6).astype(np.int16)
    long = np.repeat([10, 20, 30, 40, 50], [6, 6, 6, 6, 20]).astype(np.int16)
    short_bounds, long_bounds = np.arange(0, 31, 6), np.array([0, 6, 12, 18, 24, 44])
    assert shift_and_scale("base_mad", short, USUAL, short_bounds) == shift_and_scale(
        "base_mad", long, USUAL, long_bounds
    )
    assert shift_and_scale("mad", short, USUAL)[0] == 30
    # Of 44 samples, those in places 22 and 23 are of the fourth base.
    assert shift_and_scale("mad", long, USUAL)[0] == 40


def test_mean_and_standard_deviation_by_hand():
    # 2 4 4 6: mean 4, variance (4 + 0 + 0 + 4) / 4 = 2.
    found = shift_and_scale("zscore", np.array([4, 2, 6, 4], dtype=np.int16), USUAL)
    assert found == (4.0, pytest.approx(2**0.5))


def test_the_standard_deviation_of_values_far_from_zero_keeps_its_digits():
    assert shift_and_scale("zscore", np.array([32766, 32767] * 1000, dtype=np.int16), USUAL) == (32766.5, 0.5)


def test_quantiles_by_hand():
    # Of 11 samples 0..10 sorted, places floor(0.1 * 10) = 1 and floor(0.9 * 10) = 9 hold 10 and 90 of 0, 10 .. 100.
    shift, scale = shift_and_scale("quantile", np.arange(100, -1, -10).astype(np.int16), USUAL)
    # The quantiles of a standard normal distribution lie 2 x 1.28155 apart.
    assert (shift, scale) == (50.0, pytest.approx(80 / 2.5631031))


def test_picoamperes_by_hand():
    # pA = (adc + 10) * 0.25, so ADC 30 is 10 pA: (30 - -10) / 4.
    found = shift_and_scale("picoamp", np.array([30, 31], dtype=np.int16), USUAL)
    assert found == (-10.0, 4.0)
    assert (30 - found.shift) / found.scale == 10


@pytest.mark.parametrize(
    ("offset", "scale"), [(0, 0), (0, -1), (0, float("nan")), (float("inf"), 1), (0, float("inf")), (0, 1e-60)]
)
def test_a_calibration_that_gives_no_current_is_a_reason(offset, scale):
    assert shift_and_scale("picoamp", np.array([1, 2], dtype=np.int16), Calibration(offset, scale)) == "bad_calibration"
    assert not isinstance(shift_and_scale("zscore", np.array([1, 2], dtype=np.int16), Calibration(offset, scale)), str)
