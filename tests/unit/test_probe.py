"""The quick model: folds, what a table says, and that one that says nothing gets 0.5."""

from __future__ import annotations

import numpy as np
import pytest

from leech.evaluation.metrics import Ranking
from leech.evaluation.probe import Predictors, _label_shares, _within_folds, deal_folds, readability


def numbers(values):
    values = np.asarray(values, dtype=np.float64).reshape(len(values), -1)
    return Predictors(values, np.zeros((len(values), 0), dtype=np.int64))


def names(codes):
    return Predictors(np.zeros((len(codes), 0)), np.asarray(codes, dtype=np.int64).reshape(-1, 1))


def read(predictors, labels, *, parents=None, resamplings=50, seed=0):
    parents = np.arange(len(labels)) if parents is None else parents
    folds = deal_folds(labels, parents, 5, seed)
    return readability(predictors, labels, folds, parents, num_resamplings=resamplings, seed=seed)


def test_pairs_of_reads_are_compared_within_a_fold_only():
    # Fold one: the positive stands above the one negative, 1 of 1 pairs. Fold two: below both, 0 of 2. Pooled, the first
    # positive would stand above all three negatives: 3 of 6 pairs.
    positive = np.array([True, False, True, False, False])
    p = np.array([0.9, 0.1, 0.2, 0.3, 0.25])
    ranked = [(rows, Ranking(positive[rows], p[rows])) for rows in (np.array([0, 1]), np.array([2, 3, 4]))]
    assert _within_folds(ranked, np.ones(5)) == pytest.approx(1 / 3)
    # The second negative counts no more, the first pair twice: 2 of 3 pairs.
    assert _within_folds(ranked, np.array([2.0, 1, 1, 1, 0])) == pytest.approx(2 / 3)
    assert _within_folds(ranked[:1], np.array([1.0, 0, 1, 1, 1])) is None


def test_a_group_is_never_on_two_sides_and_folds_have_the_same_shares():
    generator = np.random.default_rng(0)
    groups = np.repeat(np.arange(150), 2)
    labels = np.repeat(generator.permutation(np.repeat([0, 1], [100, 50])), 2)
    folds = deal_folds(labels, groups, 5, 0)
    assert all(len(np.unique(folds[groups == group])) == 1 for group in range(150))
    assert [np.bincount(labels[folds == fold]).tolist() for fold in range(5)] == [[40, 20]] * 5


def test_a_label_in_three_groups_gets_three_folds_and_one_in_a_single_group_none():
    labels = np.repeat([0, 1], 30)
    assert set(deal_folds(labels, np.concatenate([np.arange(30), np.repeat([30, 31, 32], 10)]), 5, 0)) == {0, 1, 2}
    assert set(deal_folds(labels, np.repeat([0, 1], 30), 5, 0)) == {0}


@pytest.mark.parametrize("seed", range(3))
def test_what_says_nothing_gets_about_a_half(seed):
    # 300 reads a class: the standard error of an AUROC of 0.5 is 0.024.
    generator = np.random.default_rng(seed)
    labels = np.repeat([0, 1], 300)
    for predictors in (numbers(generator.normal(size=(600, 20))), names(generator.integers(0, 40, 600))):
        estimate = read(predictors, labels)
        assert estimate.value == pytest.approx(0.5, abs=0.08)
        assert estimate.interval.low < estimate.value < estimate.interval.high


def test_names_that_occur_once_say_nothing_even_beside_a_column_that_does():
    labels = np.repeat([0, 1], 200)
    value = np.random.default_rng(0).normal(size=400) + 2 * labels
    alone = read(numbers(value), labels)
    beside = read(Predictors(value[:, None], np.arange(400)[:, None]), labels)
    assert read(names(np.arange(400)), labels).value == pytest.approx(0.5, abs=0.02)
    assert beside.value == pytest.approx(alone.value, abs=0.03)


def test_constant_columns_get_exactly_a_half():
    assert read(numbers(np.full(100, 7)), np.repeat([0, 1], 50)) == (0.5, (0.5, 0.5))


def test_a_column_that_is_the_label_gets_one_and_one_that_is_noisy_its_own_area():
    labels = np.repeat([0, 1], 400)
    assert read(names(labels + 5), labels).value == 1
    # Names agree with the label in 80 %: area 0.8 x 0.8 + ties 2 x 0.8 x 0.2 / 2 = 0.8.
    codes = np.where(np.arange(800) % 5 == 0, 1 - labels, labels)
    assert read(names(codes), labels).value == pytest.approx(0.8, abs=1e-9)


def test_of_three_labels_the_mean_over_one_against_the_rest_is_taken():
    # One label stands out by its name, the other two cannot be told apart: areas 1, 0.75, 0.75.
    labels = np.repeat([0, 1, 2], 200)
    estimate = read(names((labels == 0).astype(int)), labels)
    assert estimate.value == pytest.approx((1 + 0.75 + 0.75) / 3, abs=1e-9)


def test_a_name_is_worth_its_reads_in_the_other_parts_and_an_unseen_one_the_share_among_all():
    codes, labels = np.array([0] * 50 + [1] * 50), np.array([0] * 50 + [1] * 50)
    known, others = _label_shares(codes, labels, np.array([0, 1, 2]), 2, 0)
    # 50 reads of name 0, all of label 0, and 5 x 0.5 by smoothing: (0 + 2.5) / 55 of label 1.
    assert others[:, 1].tolist() == pytest.approx([2.5 / 55, 52.5 / 55, 0.5])
    assert np.abs(known[:50, 1]).max() < 0.1
    # A name of one read gets nothing from its own label, whichever part it is in.
    single, _ = _label_shares(np.array([0, *[1] * 99]), np.repeat([1, 0], 50), np.array([0]), 2, 0)
    assert single[0, 1] == pytest.approx(0.5, abs=0.05)


def test_same_seed_same_numbers():
    labels = np.repeat([0, 1], 100)
    predictors = numbers(np.random.default_rng(1).normal(size=(200, 5)))
    assert read(predictors, labels) == read(predictors, labels)
    assert read(predictors, labels) != read(predictors, labels, seed=1)


def test_children_of_one_parent_widen_the_interval():
    labels = np.repeat([0, 1], 200)
    value = np.random.default_rng(2).normal(size=100).repeat(4) + labels
    parents = np.arange(100).repeat(4)
    folds = deal_folds(labels, parents, 5, 0)

    def width(of):
        estimate = readability(numbers(value), labels, folds, of, num_resamplings=200, seed=0)
        return estimate.interval.high - estimate.interval.low

    assert width(parents) > 1.4 * width(np.arange(400))
