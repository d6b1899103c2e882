"""Thresholds: counts by hand, the best ones against scikit-learn, and targets that are reached or refused."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import f1_score, matthews_corrcoef, precision_score, recall_score, roc_curve

from leech.errors import InputError
from leech.evaluation.config import Target
from leech.evaluation.metrics import called_positive, confusion
from leech.evaluation.thresholds import ScoreCounts, choose, sweep


def scored(count: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    positive = generator.random(count) < 0.4
    return positive, 1 / (1 + np.exp(-generator.normal(np.where(positive, 1.2, -1.0), 1.5)))


def test_calls_at_every_threshold_are_those_of_one_threshold_at_a_time() -> None:
    positive, p = scored()
    every = ScoreCounts.of(positive, p).confusions()
    assert len(every) == 255
    for threshold_cl in (1, 77, 128, 255):
        assert every[threshold_cl - 1] == confusion(positive, called_positive(p, threshold_cl))


def test_the_best_thresholds_are_those_of_scikit_learn() -> None:
    positive, p = scored()
    levels = np.rint(255 * p)
    best = {item.name: item for item in sweep(ScoreCounts.of(positive, p), 0.1)}
    fpr, tpr, _ = roc_curve(positive, levels)
    calls = best["Youden"].calls
    assert calls.tpr is not None
    assert calls.fpr is not None
    assert calls.tpr - calls.fpr == pytest.approx((tpr - fpr).max())
    for name, measure in (("MCC", matthews_corrcoef), ("F1", f1_score)):
        values = [measure(positive, levels >= threshold) for threshold in range(1, 256)]
        assert values[best[name].threshold_cl - 1] == pytest.approx(max(values))
        assert getattr(best[name].calls, name.lower()) == pytest.approx(max(values))
    assert best["FPR <= 0.1"].calls.tpr == pytest.approx(tpr[fpr <= 0.1].max())


def test_a_target_is_reached_at_the_least_cost() -> None:
    positive, p = scored()
    levels = np.rint(255 * p)
    counts = ScoreCounts.of(positive, p)
    thresholds = np.arange(1, 256)
    fpr = np.array([(levels[~positive] >= threshold).mean() for threshold in thresholds])
    precision = np.array([precision_score(positive, levels >= t, zero_division=0) for t in thresholds])
    recall = np.array([recall_score(positive, levels >= threshold) for threshold in thresholds])
    for goal, reached in (("fpr", fpr <= 0.05), ("precision", precision >= 0.9)):
        found = choose(counts, Target(goal, {"fpr": 0.05, "precision": 0.9}[goal])) - 1
        assert reached[found]
        assert recall[found] == recall[reached].max()
        assert fpr[found] == fpr[reached & (recall == recall[found])].min()
    found = choose(counts, Target("recall", 0.9)) - 1
    assert recall[found] >= 0.9
    assert fpr[found] == fpr[recall >= 0.9].min()


def test_a_target_that_is_met_exactly_is_met_in_the_middle_of_where_nothing_changes() -> None:
    # cl 51: nineteen negatives, 153: one negative, 204: nineteen positives. Between 154 and 204 all is right.
    positive = np.array([True] * 19 + [False] * 20)
    p = np.array([0.8] * 19 + [0.6] + [0.2] * 19)
    counts = ScoreCounts.of(positive, p)
    for target in (Target("fpr", 0.05), Target("fpr", 0.0), Target("precision", 0.95), Target("recall", 1.0)):
        assert choose(counts, target) == 179
    # Without the two classes apart: positives at 51 and 204, negatives at 102. One of two negatives may be called.
    counts = ScoreCounts.of(np.array([True, True, False, False]), np.array([0.2, 0.8, 0.4, 0.0]))
    # 1 to 51 calls three reads, 52 to 102 two, 103 to 204 one.
    assert choose(counts, Target("fpr", 0.5)) == 26
    assert choose(counts, Target("fpr", 0.0)) == 154
    assert choose(counts, Target("recall", 0.5)) == 154
    assert choose(counts, Target("recall", 0.6)) == 26


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (Target("fpr", 0.01), "FPR <= 0.01 on 2 positive and 2 negative reads; the lowest FPR is 0.5"),
        (Target("precision", 0.9), "the highest precision is 0.667"),
        (Target("recall", 0.9), "the highest recall is 0.5"),
    ],
)
def test_a_target_out_of_reach_is_refused_with_what_is_in_reach(target: Target, words: str) -> None:
    # cl 255 and 0 of either class; one positive more at 255 or not.
    p = np.array([1.0, 0.0, 1.0, 0.0])
    positive = np.array([True, True, False, False])
    if target.goal == "precision":
        p, positive = np.array([1.0, 1.0, 1.0, 0.0]), np.array([True, True, False, False])
    with pytest.raises(InputError) as caught:
        choose(ScoreCounts.of(positive, p), target)
    assert words in caught.value.message


def test_one_class_leaves_only_what_it_defines() -> None:
    counts = ScoreCounts.of(np.zeros(3, bool), np.array([0.1, 0.5, 0.2]))
    # cl 26, 128, 51: none is called from 129 to 255.
    assert [(item.name, item.threshold_cl) for item in sweep(counts, 0.0)] == [("FPR <= 0", 192)]
    assert sweep(ScoreCounts.of(np.ones(2, bool), np.array([0.1, 0.5])), 0.05) == ()
