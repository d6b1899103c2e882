"""Boundary refinement of one read, against a plain search of the same optimum and against what can be worked out."""

from __future__ import annotations

import escapepod
import numpy as np
import pytest

from banded_viterbi import best_bounds
from leech.data import refine
from leech.data.accounts import refinement_table
from leech.data.refine import MIN_BASES, Refinement, RefinementTally, level_correlation, refine_bounds
from leech.errors import MismatchError

SHIFT, SCALE = 700.0, 90.0


def staircase(seed, num_bases=61, noise=0.0, low=8, high=60):
    """Return ADC samples, true boundaries (from sample 40 on) and levels of a read that has only known bases."""
    generator = np.random.default_rng(seed)
    levels = generator.uniform(-1.6, 2.6, num_bases).astype(np.float32)
    dwell = generator.integers(low, high, num_bases)
    bounds = 40 + np.concatenate([[0], np.cumsum(dwell)])
    clean = np.concatenate([np.zeros(40), np.repeat(levels, dwell), np.zeros(25)])
    current = clean + noise * generator.standard_normal(len(clean))
    return np.round(SHIFT + SCALE * current).astype(np.int16), bounds.astype(np.int64), levels


def displaced(bounds, seed, reach):
    """Move every inner boundary by up to ``reach`` samples and keep them ascending."""
    generator = np.random.default_rng(seed)
    moved = bounds.copy()
    moved[1:-1] += generator.integers(-reach, reach + 1, len(bounds) - 2)
    moved[1:-1] = np.clip(np.maximum.accumulate(moved)[1:-1], bounds[0], bounds[-1])
    room = np.arange(len(bounds))
    moved = np.maximum.accumulate(moved - room) + room
    return np.minimum(moved, bounds[-1] - room[::-1])


def search_by_oracle(signal, bounds, levels):
    """Return the oracle's boundaries under the shift and scale that escapepod fits to the stretch."""
    start, end = bounds[0], bounds[-1]
    normalised = (signal[start:end].astype(np.float32) - np.float32(SHIFT)) / np.float32(SCALE)
    clipped = np.clip(normalised, -5, 5)
    units = np.float32(refine.UNITS)
    _, scale, shift, _ = escapepod.refine_signal_map(
        clipped * units, (bounds - start).tolist(), levels * units, 8, 0, 4.0, 0.5 * refine.UNITS**2
    )
    # In plain units the penalty's weight is 0.5.
    fitted = (clipped.astype(np.float64) - shift / refine.UNITS) / scale
    found, _ = best_bounds(
        fitted, bounds - start, levels.astype(np.float64), half_band=8, dwell_target=4.0, dwell_weight=0.5
    )
    return found + start


@pytest.mark.parametrize("seed", range(6))
def test_the_boundaries_are_those_of_a_plain_banded_viterbi(seed):
    signal, truth, levels = staircase(seed, noise=0.35)
    given = displaced(truth, seed, 40)
    result = refine_bounds(signal, given, levels, 30, (SHIFT, SCALE))
    assert result.outcome == "refined"
    assert not np.array_equal(result.bounds, given)
    assert np.array_equal(result.bounds, search_by_oracle(signal, given, levels))


def test_the_oracle_finds_the_least_cost_of_all_boundaries():
    # Three bases over six samples: all ten ways to place two boundaries, tried one by one.
    signal, levels = np.array([0.1, 0.9, 1.2, 0.8, 2.1, 1.7]), np.array([0.0, 1.0, 2.0])

    def cost(first, second):
        bounds = [0, first, second, 6]
        misfit = sum(
            ((signal[a:b] - level) ** 2).sum() for a, b, level in zip(bounds, bounds[1:], levels, strict=False)
        )
        return misfit + sum(0.05 * (3 - d) ** 2 for d in np.diff(bounds) if d <= 2)

    ways = {(first, second): cost(first, second) for first in range(1, 5) for second in range(first + 1, 6)}
    best = min(ways, key=ways.get)
    found, least = best_bounds(signal, np.array([0, 2, 4, 6]), levels, half_band=2, dwell_target=2.0, dwell_weight=0.05)
    assert tuple(found[1:3]) == best
    assert least == pytest.approx(ways[best])


def test_noise_free_steps_are_found_to_the_sample_whatever_the_reads_shift_and_scale():
    signal, truth, levels = staircase(3)
    # Boundaries rounded to a stride of 6, as moves are.
    given = np.concatenate([truth[:1], truth[1:-1] // 6 * 6, truth[-1:]])
    for shift, scale in ((SHIFT, SCALE), (SHIFT - 30, SCALE * 1.2)):
        result = refine_bounds(signal, given, levels, 30, (shift, scale))
        assert np.array_equal(result.bounds, truth)
        assert result.correlation_before < 0.999
        assert result.correlation_after == pytest.approx(1, abs=1e-4)


def test_in_plain_units_the_search_returns_nonsense_and_the_read_keeps_its_boundaries(monkeypatch):
    # Noise of 0.8 over about 2,000 samples costs 1,300 in plain units; from about 100 on escapepod gives up.
    signal, truth, levels = staircase(0, noise=0.8)
    given = displaced(truth, 0, 12)
    good = refine_bounds(signal, given, levels, 30, (SHIFT, SCALE))
    assert good.outcome == "refined"
    monkeypatch.setattr(refine, "UNITS", 1.0)
    monkeypatch.setattr(refine, "_DWELL_WEIGHT", 0.5)
    bad = refine_bounds(signal, given, levels, 30, (SHIFT, SCALE))
    assert bad.outcome == "kept_moves"
    assert np.array_equal(bad.bounds, given)
    assert bad.correlation_after < 0.5 < bad.correlation_before == good.correlation_before


def test_the_input_is_not_changed():
    signal, truth, levels = staircase(2, noise=0.3)
    given = displaced(truth, 2, 30)
    before = signal.copy(), given.copy(), levels.copy()
    refine_bounds(signal, given, levels, 30, (SHIFT, SCALE))
    for old, new in zip(before, (signal, given, levels), strict=True):
        assert np.array_equal(old, new)


@pytest.mark.parametrize("cut", ["level", "signal"])
def test_the_stretch_ends_at_a_base_without_level_or_signal_and_beyond_it_nothing_moves(cut):
    signal, truth, levels = staircase(4, num_bases=80, noise=0.3)
    given = displaced(truth, 4, 20)
    if cut == "level":
        levels[60] = np.nan
    else:
        given[61] = given[60]  # the base at 60 has no samples; the one behind it has more
    result = refine_bounds(signal, given, levels, 30, (SHIFT, SCALE))
    assert result.outcome == "refined"
    assert np.array_equal(result.bounds[60:], given[60:])
    assert result.bounds[0] == given[0]
    whole = refine_bounds(signal, given[:61], levels[:60], 30, (SHIFT, SCALE))
    assert np.array_equal(result.bounds[:61], whole.bounds)


def test_a_stretch_of_too_few_bases_is_left_alone_and_one_more_base_is_enough():
    signal, truth, levels = staircase(5, num_bases=60, noise=0.3)
    given = displaced(truth, 5, 20)
    for known, outcome in ((MIN_BASES - 1, "unrefinable"), (MIN_BASES, "refined")):
        some = levels.copy()
        some[known:] = np.nan
        result = refine_bounds(signal, given, some, 10, (SHIFT, SCALE))
        assert result.outcome == outcome
        assert (result.correlation_before is None) == (outcome == "unrefinable")
    levels[30] = np.nan
    unknown_focus = refine_bounds(signal, given, levels, 30, (SHIFT, SCALE))
    assert unknown_focus.outcome == "unrefinable"
    assert np.array_equal(unknown_focus.bounds, given)


def test_any_stretch_gives_ascending_boundaries_with_its_ends_in_place():
    for seed in range(150):
        generator = np.random.default_rng(seed)
        num_bases = int(generator.integers(MIN_BASES, 120))
        bounds = 5 + np.concatenate([[0], np.cumsum(generator.geometric(generator.uniform(0.02, 1), num_bases))])
        signal = generator.integers(-3000, 3000, bounds[-1] + 5).astype(np.int16)
        levels = generator.normal(0, 1, num_bases).astype(np.float32)
        result = refine_bounds(signal, bounds, levels, num_bases // 2, (0.0, 500.0))
        assert (np.diff(result.bounds) > 0).all()
        assert (result.bounds[0], result.bounds[-1]) == (bounds[0], bounds[-1])
        assert result.outcome == "kept_moves" or result.correlation_after >= result.correlation_before


def test_a_spike_does_not_decide_the_boundaries(monkeypatch):
    signal, truth, levels = staircase(6)
    signal[(truth[30] + truth[31]) // 2] = 32000
    given = np.concatenate([truth[:1], truth[1:-1] // 6 * 6, truth[-1:]])
    result = refine_bounds(signal, given, levels, 30, (SHIFT, SCALE))
    # The clipped sample still moves the fit a little, so that two boundaries between bases of nearly equal level give way.
    assert result.outcome == "refined"
    assert (result.bounds == truth).mean() > 0.9
    monkeypatch.setattr(refine, "_LARGEST_SIGNAL", np.inf)
    spoilt = refine_bounds(signal, given, levels, 30, (SHIFT, SCALE))
    assert spoilt.outcome == "kept_moves" or (spoilt.bounds == truth).mean() < 0.9


def test_the_correlation_is_pearsons_of_base_means():
    # Means 1.5, 3, 5 (mean 19/6) against 0, 1, 3 (mean 4/3): deviations in sixths -10, -1, 11 and in thirds -4, -1, 5.
    # Products 40 + 1 + 55 = 96; squares 100 + 1 + 121 = 222 and 16 + 1 + 25 = 42.
    signal = np.array([1, 2, 3, 3, 5], dtype=np.float32)
    levels = np.array([0, 1, 3], dtype=np.float32)
    expected = 96 / np.sqrt(222 * 42)
    assert level_correlation(signal, np.array([0, 2, 4, 5]), levels) == pytest.approx(expected)
    assert level_correlation(signal, np.array([0, 2, 2, 5]), levels) == 0  # a base without samples
    assert level_correlation(np.ones(5, np.float32), np.array([0, 2, 4, 5]), levels) == 0


def outcome(name, before=None, after=None):
    return Refinement(np.zeros(2, np.int64), name, before, after)


def test_tallies_add_up_and_tell_the_share_and_the_medians():
    # Before: 0.5, 0.6, 0.7 (lower median of four with 0.9: 0.6); after: 0.8, 0.95, 0.96, 0.97 (0.95).
    parts = [RefinementTally(), RefinementTally()]
    parts[0].add(outcome("refined", 0.5, 0.95))
    parts[0].add(outcome("kept_moves", 0.9, 0.8))
    parts[1].add(outcome("refined", 0.6, 0.96))
    parts[1].add(outcome("refined", 0.7, 0.97))
    parts[1].add(outcome("unrefinable"))
    parts[0].merge(parts[1])
    assert parts[0].to_mapping() == {
        "refined": 3,
        "kept_moves": 1,
        "unrefinable": 1,
        "refined_share": 0.6,
        "correlation_before": 0.6,
        "correlation_after": 0.95,
    }
    (title, columns, rows) = vars(refinement_table({"": parts[0].to_mapping()})).values()
    assert (title, columns) == ("Boundary refinement", ("what", "value"))
    assert [value for _, value in rows] == ["3 (60.0%)", "1 (20.0%)", "1 (20.0%)", "0.600", "0.950"]
    assert not any("_" in words for words, _ in rows)
    two = refinement_table({"a": parts[0].to_mapping(), "b": RefinementTally().to_mapping()})
    assert two.columns == ("what", "a", "b")
    assert [row[2] for row in two.rows] == ["0 (0.0%)", "0 (0.0%)", "0 (0.0%)", "", ""]
    parts[0].refuse_harm()
    assert RefinementTally().to_mapping()["refined_share"] is None


def test_a_run_whose_median_correlation_falls_is_refused_once_there_are_enough_reads():
    tally = RefinementTally()
    for _ in range(refine.MIN_READS_TO_JUDGE - 1):
        tally.add(outcome("kept_moves", 0.8, 0.3))
    tally.refuse_harm()
    tally.add(outcome("kept_moves", 0.8, 0.3))
    with pytest.raises(MismatchError, match=r"from 0\.800 to 0\.300 over 10 reads"):
        tally.refuse_harm()
