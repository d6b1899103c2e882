"""Metrics against answers worked out by hand and against scikit-learn's definitions."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics as reference

from leech.evaluation import metrics
from leech.evaluation.metrics import Ranking

# Six reads: scores 0.9+ 0.8- 0.7+ 0.7- 0.3+ 0.1-
POSITIVE = np.array([True, False, True, False, True, False])
P = np.array([0.9, 0.8, 0.7, 0.7, 0.3, 0.1])


def random_reads(seed: int, n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    positive = generator.random(n) < 0.3
    # Rounded, so that ties occur.
    p = np.round(np.clip(0.3 * positive + 0.7 * generator.random(n), 0, 1), 2)
    return positive, p


def test_auroc_counts_pairs_and_ties_as_half() -> None:
    # Positive 0.9 beats 3 negatives, 0.7 beats 1 and ties 1, 0.3 beats 1: 3 + 1.5 + 1 = 5.5 of 9 pairs.
    assert metrics.auroc(Ranking(POSITIVE, P).curve()) == pytest.approx(5.5 / 9)


def test_average_precision_is_the_sum_of_steps() -> None:
    # Thresholds 0.9: P 1/1, R 1/3. 0.7 (two reads at once): P 2/4, R 2/3. 0.3: P 3/5, R 1.
    assert metrics.average_precision(Ranking(POSITIVE, P).curve()) == pytest.approx((1 + 0.5 + 0.6) / 3)


def test_average_precision_of_the_negative_class_ranks_from_below() -> None:
    # From below: 0.1 negative P 1/1; 0.3 no step; 0.7: P 2/4, 0.8: P 3/5, each a third of the negatives.
    curve = metrics.mirrored(Ranking(POSITIVE, P).curve())
    assert metrics.average_precision(curve) == pytest.approx((1 + 0.5 + 0.6) / 3)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_ranking_metrics_agree_with_scikit_learn_with_and_without_weights(seed: int) -> None:
    positive, p = random_reads(seed)
    weights = np.random.default_rng(seed).integers(0, 4, len(p)).astype(float)
    ranking = Ranking(positive, p)
    for weight in (None, weights):
        curve = ranking.curve(weight)
        assert metrics.auroc(curve) == pytest.approx(reference.roc_auc_score(positive, p, sample_weight=weight))
        expected = reference.average_precision_score(positive, p, sample_weight=weight)
        assert metrics.average_precision(curve) == pytest.approx(expected)
        negative = reference.average_precision_score(~positive, -p, sample_weight=weight)
        assert metrics.average_precision(metrics.mirrored(curve)) == pytest.approx(negative)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_metrics_of_calls_agree_with_scikit_learn(seed: int) -> None:
    positive, p = random_reads(seed)
    called = metrics.called_positive(p, 128)
    counts = metrics.confusion(positive, called)
    assert counts.balanced_accuracy == pytest.approx(reference.balanced_accuracy_score(positive, called))
    assert counts.mcc == pytest.approx(reference.matthews_corrcoef(positive, called))
    assert counts.precision == pytest.approx(reference.precision_score(positive, called))
    assert metrics.brier(positive, p) == pytest.approx(reference.brier_score_loss(positive, p))


def test_a_confusion_counts_calls_against_truth() -> None:
    # Truth + + - - -, called + - + - -: one hit, one miss, one false alarm, two right rejections.
    truth = np.array([True, True, False, False, False])
    counts = metrics.confusion(truth, np.array([True, False, True, False, False]))
    assert (counts.tp, counts.fn, counts.fp, counts.tn) == (1, 1, 1, 2)
    # TPR 1/2, FPR 1/3, balanced accuracy (1/2 + 2/3) / 2 = 7/12, MCC (1*2 - 1*1) / sqrt(2*2*3*3) = 1/6.
    assert counts.tpr == 0.5
    assert counts.fpr == pytest.approx(1 / 3)
    assert counts.balanced_accuracy == pytest.approx(7 / 12)
    assert counts.mcc == pytest.approx(1 / 6)
    assert counts.accuracy == pytest.approx(3 / 5)


def test_the_operating_point_is_the_rounded_likelihood() -> None:
    # 255 p: 199.4 rounds to 199, 199.6 to 200.
    p = np.array([199.4, 199.6, 200.0, 255.0, 0.0]) / 255
    assert metrics.called_positive(p, 200).tolist() == [False, True, True, True, False]


def test_callable_share_adds_what_either_class_may_be_called_at_the_precision() -> None:
    # From above: + + + - ..., from below: - - + ...; at precision 1 three positives and two negatives of 8 are callable.
    positive = np.array([True, True, True, False, True, True, False, False])
    p = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.2, 0.1])
    curve = Ranking(positive, p).curve()
    assert metrics.callable_share(curve, 1.0) == pytest.approx(5 / 8)
    # At 0.75 the positives reach down to 0.4 (5 of 6 right), the negatives still end at 0.2 (2 of 2; then 2 of 3, 2 of 4).
    assert metrics.callable_share(curve, 0.75) == pytest.approx(1.0)
    # At 0.84 five of six is too few: three positives and two negatives again.
    assert metrics.callable_share(curve, 0.84) == pytest.approx(5 / 8)


def test_callable_share_is_at_most_one_and_zero_where_nothing_is_sure() -> None:
    positive = np.array([True, True, False, False])
    perfect = Ranking(positive, np.array([0.9, 0.8, 0.2, 0.1])).curve()
    assert metrics.callable_share(perfect, 0.5) == 1.0
    tied = Ranking(positive, np.full(4, 0.5)).curve()
    assert metrics.callable_share(tied, 0.95) == 0.0


def test_nineteen_of_twenty_is_a_precision_of_95_percent() -> None:
    positive = np.array([True] * 19 + [False] + [False, True] * 20)
    p = np.concatenate([np.linspace(0.99, 0.9, 20), np.full(40, 0.5)])
    assert metrics.callable_share(Ranking(positive, p).curve(), 0.95) == pytest.approx(20 / 60)


def test_calibration_error_is_the_weighted_gap_over_equal_width_bins() -> None:
    # Bin 0.2-0.3: p 0.2 and 0.28, mean 0.24, half positive: gap 0.26. Bin 0.9-1.0: 0.9 and 1.0, mean 0.95, all
    # positive: gap 0.05. Weighted alike: 0.155.
    positive = np.array([True, False, True, True])
    p = np.array([0.2, 0.28, 0.9, 1.0])
    bins = metrics.reliability(positive, p)
    assert [item.num_reads for item in bins] == [0, 0, 2, 0, 0, 0, 0, 0, 0, 2]
    assert metrics.expected_calibration_error(positive, p) == pytest.approx(0.155)
    assert bins[0].mean_p is None
    assert bins[0].share_positive is None


@pytest.mark.parametrize("truth", [True, False])
def test_one_class_alone_leaves_metrics_of_two_undefined(truth: bool) -> None:
    positive, p = np.full(4, truth), np.array([0.1, 0.4, 0.8, 0.9])
    curve = Ranking(positive, p).curve()
    assert metrics.auroc(curve) is None
    assert metrics.average_precision(curve) is None
    assert metrics.average_precision(metrics.mirrored(curve)) is None
    assert metrics.callable_share(curve, 0.95) is None
    counts = metrics.confusion(positive, metrics.called_positive(p, 128))
    assert counts.balanced_accuracy is None
    assert counts.mcc is None
    assert (counts.tpr is None) == (not truth)
    assert (counts.fpr is None) == truth
    assert counts.accuracy == 0.5


def test_no_reads_leave_everything_undefined() -> None:
    positive, p = np.zeros(0, dtype=bool), np.zeros(0)
    curve = Ranking(positive, p).curve()
    assert metrics.auroc(curve) is None
    assert metrics.callable_share(curve, 0.95) is None
    assert metrics.brier(positive, p) is None
    assert metrics.expected_calibration_error(positive, p) is None
    counts = metrics.confusion(positive, metrics.called_positive(p, 128))
    assert counts.accuracy is None
    assert counts.precision is None


def test_calling_all_reads_alike_has_no_correlation_with_two_classes() -> None:
    counts = metrics.confusion(np.array([True, False]), np.array([True, True]))
    assert counts.mcc == 0.0
    assert counts.precision == 0.5
