"""One body over all normalisations."""

from __future__ import annotations

from typing import get_args, get_type_hints

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from leech.data.moves import ReadBounds
from leech.data.normalise import NORMALISATIONS, Normalisation, UsedSignals, normalise
from leech.data.pod5 import Calibration
from leech.data.reasons import REASONS
from leech.data.recipe import Recipe

USUAL = Calibration(offset=-12.0, scale=0.1462)


def all_shifts_and_scales(name: str, signals: list[np.ndarray]) -> list[Normalisation | str]:
    """Every sample is a base of its own, so that statistics of bases are those of samples."""
    bounds = [np.arange(len(signal) + 1) for signal in signals]
    offsets = np.cumsum([0, *map(len, bounds)])
    return normalise(name, UsedSignals(signals, ReadBounds(np.concatenate(bounds), offsets), [USUAL] * len(signals)))


def shift_and_scale(name: str, signal: np.ndarray) -> Normalisation | str:
    return all_shifts_and_scales(name, [signal])[0]


every = pytest.mark.parametrize("name", list(NORMALISATIONS))


def test_the_recipe_offers_exactly_what_is_registered():
    assert set(get_args(get_type_hints(Recipe)["normalisation"])) == set(NORMALISATIONS)


@every
@given(signal=arrays(np.int16, st.integers(1, 80)))
def test_a_read_has_a_finite_shift_and_a_positive_scale_in_float32_or_a_reason(name, signal):
    before = signal.copy()
    found = shift_and_scale(name, signal)
    assert np.array_equal(signal, before)
    if isinstance(found, str):
        assert found in REASONS
    else:
        shift, scale = np.float32(found.shift), np.float32(found.scale)
        assert scale > 0
        assert np.isfinite((signal - shift) / scale).all()


@every
@given(signal=arrays(np.int16, st.integers(1, 80)), seed=st.integers(0, 9))
def test_the_order_of_samples_does_not_matter(name, signal, seed):
    shuffled = np.random.default_rng(seed).permutation(signal)
    assert shift_and_scale(name, signal) == shift_and_scale(name, shuffled)
    assert shift_and_scale(name, signal) == shift_and_scale(name, signal[::-1])


@every
@pytest.mark.parametrize("length", [1, 2, 1000])
@pytest.mark.parametrize("value", [-32768, 0, 7, 32767])
def test_constant_signal_has_a_reason_and_no_scale(name, value, length):
    assert shift_and_scale(name, np.full(length, value, dtype=np.int16)) == "constant_signal"


@every
def test_the_whole_range_of_int16_does_not_overflow(name):
    found = shift_and_scale(name, np.array([-32768, -32768, 32767, 32767] * 500, dtype=np.int16))
    assert not isinstance(found, str)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("name", [name for name in NORMALISATIONS if name != "picoamp"])
@given(signal=arrays(np.int16, st.integers(1, 80), elements=st.integers(-3000, 3000)), by=st.integers(-900, 900))
def test_what_is_measured_on_the_read_follows_a_shift_and_a_stretch_of_it(name, signal, by):
    found, moved = shift_and_scale(name, signal), shift_and_scale(name, (3 * signal + by).astype(np.int16))
    assert isinstance(found, str) == isinstance(moved, str)
    if not isinstance(found, str) and not isinstance(moved, str):
        assert moved.shift == pytest.approx(3 * found.shift + by, abs=1e-9)
        assert moved.scale == pytest.approx(3 * found.scale, rel=1e-12)


@pytest.mark.parametrize("name", [name for name in NORMALISATIONS if name != "picoamp"])
def test_normal_noise_gets_its_mean_and_standard_deviation(name):
    signal = np.random.default_rng(0).normal(500, 80, 200_000).astype(np.int16)
    found = shift_and_scale(name, signal)
    assert found.shift == pytest.approx(500, abs=1)
    assert found.scale == pytest.approx(80, rel=0.01)


@every
@given(signals=st.lists(arrays(np.int16, st.integers(1, 40)), min_size=1, max_size=8))
def test_what_a_read_gets_does_not_depend_on_the_others(name, signals):
    assert all_shifts_and_scales(name, signals) == [shift_and_scale(name, signal) for signal in signals]
