"""Intervals: closed forms by hand, coverage by simulation, resampling by parent."""

from __future__ import annotations

import numpy as np
import pytest

from leech.evaluation import metrics
from leech.evaluation.intervals import (
    Interval,
    auroc_influences,
    auroc_interval,
    bootstrap_intervals,
    parent_codes,
    wilson,
)


def test_wilson_interval_of_eight_in_ten() -> None:
    # z = 1.96: centre (0.8 + 3.8415 / 20) / 1.38415 = 0.71671, half 1.96 / 1.38415 * sqrt(0.016 + 0.00960) = 0.22662.
    interval = wilson(8, 10)
    assert interval is not None
    assert interval.low == pytest.approx(0.4902, abs=1e-4)
    assert interval.high == pytest.approx(0.9433, abs=1e-4)


def test_wilson_reaches_the_ends_and_has_no_interval_without_trials() -> None:
    none, all_of_five = wilson(0, 5), wilson(5, 5)
    assert none is not None
    assert all_of_five is not None
    assert none.low == 0.0
    assert all_of_five.high == 1.0
    # 1 / (1 + z^2 / n) = 5 / 8.8415
    assert all_of_five.low == pytest.approx(0.5655, abs=1e-4)
    assert wilson(0, 0) is None


def test_delong_variance_on_the_logit_scale_by_hand() -> None:
    # Positives 0.8, 0.4; negatives 0.6, 0.2. Positive 0.8 beats both (1), 0.4 beats one (1/2): AUROC 3/4, variance of
    # (1, 1/2) is 1/8, over 2 reads 1/16; negatives are beaten by 1/2 and 1 of the positives: 1/16 too. Variance 1/8.
    # Logit of 3/4 is ln 3 = 1.0986; half width 1.95996 * sqrt(1/8) / (3/16) = 3.6957.
    interval = auroc_interval(np.array([True, True, False, False]), np.array([0.8, 0.4, 0.6, 0.2]))
    assert interval is not None
    assert interval.low == pytest.approx(1 / (1 + np.exp(3.6957 - 1.0986)), abs=1e-4)
    assert interval.high == pytest.approx(1 / (1 + np.exp(-3.6957 - 1.0986)), abs=1e-4)


def test_perfect_separation_still_has_a_width() -> None:
    # Three disjoint pairs, all ordered rightly: Wilson of 3 of 3, low end 3 / (3 + 3.8415) = 0.4385.
    interval = auroc_interval(np.array([True] * 3 + [False] * 5), np.linspace(1, 0, 8))
    assert interval is not None
    assert interval.low == pytest.approx(0.4385, abs=1e-4)
    assert interval.high == 1.0


def test_one_class_has_no_auroc_interval() -> None:
    assert auroc_interval(np.array([True, True]), np.array([0.1, 0.9])) is None


def test_auroc_intervals_cover_the_truth_about_95_times_in_100() -> None:
    # Two unit normals 1 apart: AUROC = Phi(1 / sqrt 2) = 0.7602.
    generator = np.random.default_rng(7)
    covered = 0
    for _ in range(400):
        positive = np.arange(80) < 30
        interval = auroc_interval(positive, generator.normal(positive * 1.0, 1.0))
        assert interval is not None
        covered += interval.low <= 0.7602 <= interval.high
    assert 0.92 <= covered / 400 <= 0.98


def test_parents_are_numbered_by_their_whole_id() -> None:
    ids = np.zeros((4, 16), dtype=np.uint8)
    ids[1, 15], ids[2, 0], ids[3, 15] = 1, 1, 1
    codes = parent_codes(ids)
    assert codes[1] == codes[3]
    assert len(set(codes.tolist())) == 3
    assert codes.dtype == np.int64


def test_children_of_one_parent_are_resampled_together() -> None:
    parents = np.array([0, 0, 1, 1, 1, 2])
    seen = []

    def measure(weights: np.ndarray) -> tuple[float | None, ...]:
        seen.append(weights)
        return (float(weights.sum()),)

    bootstrap_intervals(measure, parents, 50, seed=3)
    assert len(seen) == 50
    for weights in seen:
        assert weights[0] == weights[1]
        assert weights[2] == weights[3] == weights[4]
        # Three parents are drawn each time.
        assert weights[0] + weights[2] + weights[5] == 3
    assert len({tuple(weights) for weights in seen}) > 5


def test_resampling_depends_on_the_seed_alone() -> None:
    generator = np.random.default_rng(0)
    positive = generator.random(60) < 0.5
    ranking = metrics.Ranking(positive, generator.random(60))

    def measure(weights: np.ndarray) -> tuple[float | None, ...]:
        return (metrics.auroc(ranking.curve(weights)),)

    first = bootstrap_intervals(measure, np.arange(60), 200, seed=1)
    assert first == bootstrap_intervals(measure, np.arange(60), 200, seed=1)
    assert first != bootstrap_intervals(measure, np.arange(60), 200, seed=2)
    assert first[0] is not None
    value = measure(np.ones(60))[0]
    assert value is not None
    assert first[0].low < value < first[0].high


def test_a_metric_that_most_resamplings_leave_undefined_has_no_interval() -> None:
    assert bootstrap_intervals(lambda _: (None, 1.0), np.arange(4), 10, seed=0) == (None, Interval(1.0, 1.0))
    assert bootstrap_intervals(lambda _: (None, 1.0), np.arange(4), 0, seed=0) == (None, None)


def test_influences_of_reads_on_the_auroc_by_hand() -> None:
    # Positives at 1, 3 and negatives at 0, 2: placements of the positives 1/2 and 1 (mean 3/4), of the negatives 1 and 1/2.
    # Each deviates by 1/4, over the root of 2 * 1.
    positive = np.array([True, False, True, False])
    influences = auroc_influences(positive, np.array([1.0, 0.0, 3.0, 2.0]))
    assert influences.tolist() == pytest.approx([-0.25 / 2**0.5, 0.25 / 2**0.5, 0.25 / 2**0.5, -0.25 / 2**0.5])


def test_squares_of_influences_sum_up_to_the_variance_of_areas_and_of_their_differences() -> None:
    generator = np.random.default_rng(3)
    positive = np.arange(200) < 80
    areas, differences, errors, errors_of_differences = [], [], [], []
    for _ in range(400):
        first = generator.normal(positive * 1.5, 1)
        second = first + generator.normal(0, 0.3, 200)
        both = [metrics.auroc(metrics.Ranking(positive, p).curve()) or 0 for p in (first, second)]
        one, other = (auroc_influences(positive, p) for p in (first, second))
        areas.append(both[0])
        differences.append(both[1] - both[0])
        errors.append(np.sqrt((one**2).sum()))
        errors_of_differences.append(np.sqrt(((other - one) ** 2).sum()))
    assert np.mean(errors) == pytest.approx(np.std(areas), rel=0.15)
    assert np.mean(errors_of_differences) == pytest.approx(np.std(differences), rel=0.15)
    # Far smaller than that of two areas of different reads.
    assert np.mean(errors_of_differences) < 0.5 * np.mean(errors)


def test_the_only_read_of_a_class_moves_nothing() -> None:
    assert auroc_influences(np.array([True, False, False]), np.array([1.0, 2.0, 0.0]))[0] == 0
