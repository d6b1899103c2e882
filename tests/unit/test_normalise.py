"""Shift and scale of a read."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from leech.data.normalise import MAD_TO_SD, median_mad


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
