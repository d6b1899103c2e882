"""Per-base measurements and the channels made from them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from leech.config import build
from leech.data.batches import make_inputs
from leech.data.features import FEATURES, base_bounds, feature_channels, measure_levels
from leech.data.moves import DELETED, INSERTED_BEHIND
from leech.data.recipe import Recipe
from leech.errors import ConfigError

RECIPE = build(
    Recipe,
    {
        "motif": "A",
        "motif_offset": 0,
        "samples_before": 4,
        "samples_after": 6,
        "bases_before": 2,
        "bases_after": 2,
        "feature_start": -1,
        "feature_end": 1,
    },
)


def columns():
    """Two chunks: one plain, one whose bases -2 and 1 have no signal and whose window overhangs both ends."""
    return {
        "signal": np.array([range(100, 110), [0, 0, 20, 30, 40, 50, 60, 70, 0, 0]], dtype=np.int16),
        "valid_start": np.array([0, 2], dtype=np.int16),
        "valid_end": np.array([10, 8], dtype=np.int16),
        "shift": np.array([100, 40], dtype=np.float32),
        "scale": np.array([2, 10], dtype=np.float32),
        "focus_base_start": np.array([4, 4], dtype=np.int32),
        "dwell": np.array([[9, 3, 4, 2, 5], [0, 6, 4, 0, 7]], dtype=np.uint16),
        "median_dwell": np.array([4, 6], dtype=np.float32),
        "sequence": np.full((2, 13), 1, dtype=np.uint8),
        "level_mean": np.array([[102, 104, 98], [50, 30, 0]], dtype=np.float32),
        "level_median": np.array([[100, 106, 98], [40, 30, 0]], dtype=np.float32),
        "level_sd": np.array([[2, 4, 6], [10, 5, 0]], dtype=np.float32),
        "level_range": np.array([[8, 6, 4], [20, 10, 0]], dtype=np.float32),
    }


def test_levels_are_measured_per_base_and_zero_without_signal():
    # Bases [1, 4) and [4, 4) and [4, 6) of 5 1 2 6 8 10: 1 2 6 -> mean 3, median 2, range 5, variance 14/3; then none;
    # 8 10 -> mean 9, median 8 (the lower of the two in the middle) or 9 or 10 by convention, range 2, sd 1.
    signal = np.array([5, 1, 2, 6, 8, 10], dtype=np.int16)
    mean, median, sd, value_range = measure_levels([signal], np.array([[1, 4, 4, 6]]))
    assert mean.tolist() == [[3, 0, 9]]
    assert median[0, 0] == 2
    assert 8 <= median[0, 2] <= 10
    assert sd[0].tolist() == pytest.approx([np.sqrt(14 / 3), 0, 1])
    assert value_range.tolist() == [[5, 0, 2]]


def test_no_reads_give_empty_measurements():
    assert [part.shape for part in measure_levels([], np.zeros((0, 4), dtype=np.int64))] == [(0, 3)] * 4


def test_base_boundaries_are_sums_of_dwell_around_the_focus():
    # Focus (base 2 of the window) starts at 4: 4 - 3 = 1, 1 - 9 = -8; then 8, 10, 15.
    assert base_bounds(columns(), RECIPE).tolist() == [[-8, 1, 4, 8, 10, 15], [-2, -2, 4, 8, 8, 15]]


def test_channels_by_hand():
    names = ["log_dwell", "relative_log_dwell", "level_mean", "level_median", "level_sd", "level_range"]
    got = feature_channels(columns(), RECIPE, names)
    assert got.shape == (2, 6, 3)
    assert got[0, 0] == pytest.approx(np.log(np.array([3, 4, 2]) / 36), abs=1e-6)
    assert got[0, 1] == pytest.approx(np.log(np.array([3, 4, 2]) / 4), abs=1e-6)
    assert got[0, 2].tolist() == [1, 2, -1]
    assert got[0, 3].tolist() == [0, 3, -1]
    assert got[0, 4].tolist() == [1, 2, 3]
    assert got[0, 5].tolist() == [4, 3, 2]
    # Base 1 of the second chunk has no signal: 0 in every channel, not (0 - shift) / scale.
    assert got[1, :, 2].tolist() == [0] * 6
    assert got[1, 2].tolist() == [1, -1, 0]


def test_the_local_dwell_looks_at_two_bases_either_side_and_skips_absent_ones():
    got = feature_channels(columns(), RECIPE, ["dwell_local_mean", "dwell_local_sd"])
    # Chunk 0, base -1: neighbours -2 .. 1 with dwell 9 3 4 2; chunk 1, focus: 6, 4, 7 (bases -2 and 1 are absent).
    first, second = np.log([9, 3, 4, 2]), np.log([6, 4, 7])
    assert got[0, :, 0] == pytest.approx([first.mean() - np.log(4), first.std()], abs=1e-6)
    assert got[1, :, 1] == pytest.approx([second.mean() - np.log(6), second.std()], abs=1e-6)


def test_residuals_compare_with_the_expected_level_where_there_is_one():
    table = {**columns(), "expected_level": np.array([[1.5, np.nan, 0], [0, 0, 0]], dtype=np.float32)}
    got = feature_channels(table, RECIPE, ["expected_level", "level_residual", "absolute_level_residual"])
    assert got[0].tolist() == [[1.5, 0, 0], [-0.5, 0, -1], [0.5, 0, 1]]
    with pytest.raises(ConfigError, match="without a k-mer table"):
        feature_channels(columns(), RECIPE, ["level_residual"])


def test_an_unknown_channel_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError) as caught:
        feature_channels(columns(), RECIPE, ["level_meen"])
    assert "level_mean" in caught.value.hint


def test_indels_are_channels_of_their_own_and_an_absent_base_has_none():
    both = DELETED | INSERTED_BEHIND
    found = {**columns(), "indels": np.array([[0, DELETED, INSERTED_BEHIND], [both, 0, both]], dtype=np.uint8)}
    channels = feature_channels(found, RECIPE, ["deleted", "inserted_behind"])
    # Base 1 of the second chunk has no signal.
    assert channels[:, 0].tolist() == [[0, 1, 0], [1, 0, 0]]
    assert channels[:, 1].tolist() == [[0, 0, 1], [1, 0, 0]]


def test_chunks_that_kept_no_indels_do_not_fit_a_network_that_uses_them():
    with pytest.raises(ConfigError, match="did not keep them") as caught:
        feature_channels(columns(), RECIPE, ["deleted"])
    assert "Prepare the corpus again" in caught.value.hint


def test_every_channel_is_finite_for_chunks_without_any_base():
    empty = columns()
    for name in ("dwell", "level_mean", "level_median", "level_sd", "level_range"):
        empty[name] = np.zeros_like(empty[name])
    empty["expected_level"] = np.full((2, 3), np.nan, dtype=np.float32)
    empty["indels"] = np.full((2, 3), DELETED | INSERTED_BEHIND, dtype=np.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not feature_channels(empty, RECIPE, list(FEATURES)).any()


def test_the_signal_is_normalised_and_padding_is_zero():
    inputs = make_inputs(columns(), RECIPE, ["level_mean"])
    assert inputs.signal[0].tolist() == [step / 2 for step in range(10)]
    assert inputs.signal[1].tolist() == [0, 0, -2, -1, 0, 1, 2, 3, 0, 0]
    assert inputs.sequence.dtype.itemsize == 1
    assert inputs.base_bounds.tolist() == base_bounds(columns(), RECIPE).tolist()
