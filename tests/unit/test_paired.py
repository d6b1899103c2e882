"""Paired differences: DeLong against pairs counted one by one and against draws, McNemar by hand."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from leech.evaluation.paired import auroc_difference, discordance


def correlated(count: int, seed: int, gap: float = 0.4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    positive = np.arange(count) % 3 == 0
    shared = generator.normal(size=count)
    first = positive * 1.0 + shared + generator.normal(size=count)
    second = positive * (1.0 + gap) + shared + generator.normal(size=count)
    return positive, np.round(first, 1), np.round(second, 1)


def variance_by_pairs(positive: np.ndarray, first: np.ndarray, second: np.ndarray) -> float:
    """Return DeLong's variance of the difference from the matrix of all pairs."""

    def wins(p: np.ndarray) -> np.ndarray:
        gap = p[positive][:, None] - p[~positive][None, :]
        return (gap > 0) + 0.5 * (gap == 0)

    change = wins(second) - wins(first)
    return float(
        np.var(change.mean(axis=1), ddof=1) / positive.sum() + np.var(change.mean(axis=0), ddof=1) / (~positive).sum()
    )


def test_the_difference_is_that_of_scikit_learn_and_the_interval_delongs() -> None:
    positive, first, second = correlated(90, 0)
    found = auroc_difference(positive, first, second)
    difference = roc_auc_score(positive, second) - roc_auc_score(positive, first)
    assert found.estimate.value == pytest.approx(difference)
    error = variance_by_pairs(positive, first, second) ** 0.5
    assert found.estimate.interval == pytest.approx((difference - 1.96 * error, difference + 1.96 * error), abs=1e-5)
    # Two-sided normal probability.
    draws = np.random.default_rng(1).normal(size=200000)
    assert found.p_value == pytest.approx(np.mean(np.abs(draws) > abs(difference) / error), abs=0.005)


def test_equal_models_differ_significantly_as_often_as_they_may() -> None:
    # 300 draws at 5 %: 15 expected, standard error 3.8.
    p_values = [auroc_difference(*correlated(120, seed, gap=0.0)).p_value for seed in range(300)]
    assert 4 <= sum(value is not None and value < 0.05 for value in p_values) <= 28


def test_pairing_makes_the_interval_narrower_than_two_independent_ones() -> None:
    positive, first, second = correlated(300, 3)
    paired = auroc_difference(positive, first, second).estimate.interval
    shuffled = second.copy()
    generator = np.random.default_rng(0)
    for side in (positive, ~positive):
        shuffled[side] = generator.permutation(second[side])
    apart = auroc_difference(positive, first, shuffled).estimate.interval
    assert paired is not None
    assert apart is not None
    assert paired.high - paired.low < 0.9 * (apart.high - apart.low)


def test_what_cannot_be_told_is_none() -> None:
    positive = np.array([True, True, False, False])
    p = np.array([0.9, 0.4, 0.6, 0.1])
    same = auroc_difference(positive, p, p / 2)
    assert (same.estimate.value, same.estimate.interval, same.p_value) == (0.0, None, None)
    one_class = auroc_difference(np.ones(4, bool), p, p)
    assert (one_class.estimate.value, one_class.p_value) == (None, None)
    single = auroc_difference(np.array([True, False, False, False]), p, p[::-1])
    assert (single.estimate.value, single.estimate.interval) == (-1.0, None)


def test_mcnemar_is_the_exact_sign_test_of_reads_that_one_alone_calls_rightly() -> None:
    first = np.array([True, False, False, False, False, False, True, False])
    second = np.array([False, True, True, True, True, True, True, False])
    # One against five: 2 (1 + 6) / 64.
    assert discordance(first, second) == (1, 5, pytest.approx(14 / 64))
    assert discordance(first, first) == (0, 0, 1.0)
