"""Metrics of more than two states: scikit-learn's numbers, numbers worked out by hand, and empty cells."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from leech.data.grouping import Groups
from leech.evaluation.multiclass import metrics
from leech.evaluation.multiclass.summary import ClassMetrics, calibration_error, measure

LABELS = ("ala", "gly", "thr", "val")

MANY = (*LABELS, "leu", "ile", "ser", "pro")


def draw(num_reads: int, seed: int, num_classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Return truth and probabilities that know something of it; every class occurs."""
    generator = np.random.default_rng(seed)
    truth = generator.integers(0, num_classes, num_reads)
    truth[:num_classes] = np.arange(num_classes)
    logits = generator.normal(size=(num_reads, num_classes)) + 1.5 * np.eye(num_classes)[truth]
    p = np.exp(logits)
    return truth, p / p.sum(axis=1, keepdims=True)


def measured(truth: np.ndarray, p: np.ndarray, *, groups: np.ndarray | None = None, bootstrap: int = 0) -> ClassMetrics:
    codes = np.zeros(len(truth), np.int64) if groups is None else groups
    return measure(
        truth,
        p,
        parents=np.arange(len(truth)),
        groups=[Groups("reference", codes, ["first", "second", "third"])],
        labels=MANY[: p.shape[1]],
        uncalibrated=None,
        num_resamplings=bootstrap,
        seed=0,
    )


@pytest.mark.parametrize("seed", range(5))
def test_all_that_scikit_learn_defines_is_as_it_defines_it(seed: int) -> None:
    truth, p = draw(30 + 50 * seed, seed)
    called = p.argmax(axis=1)
    found = measured(truth, p)
    expected = {
        "accuracy": sklearn_metrics.accuracy_score(truth, called),
        "balanced_accuracy": sklearn_metrics.balanced_accuracy_score(truth, called),
        "macro_f1": sklearn_metrics.f1_score(truth, called, average="macro"),
        "mcc": sklearn_metrics.matthews_corrcoef(truth, called),
        "macro_auroc": sklearn_metrics.roc_auc_score(truth, p, multi_class="ovr", average="macro"),
        "macro_auprc": np.mean([sklearn_metrics.average_precision_score(truth == k, p[:, k]) for k in range(4)]),
    }
    assert {name: estimate.value for name, estimate in found.overall.items()} == pytest.approx(expected, rel=1e-12)
    for k in (2, 3):
        assert found.top_k[k].value == pytest.approx(sklearn_metrics.top_k_accuracy_score(truth, p, k=k), rel=1e-12)
    assert found.calibratedness.log_loss.value == pytest.approx(sklearn_metrics.log_loss(truth, p), rel=1e-12)
    # Of more than two classes the sum over classes, which scikit-learn has from version 1.7 on.
    by_class = sum(sklearn_metrics.brier_score_loss(truth == k, p[:, k]) for k in range(4))
    assert found.calibratedness.brier.value == pytest.approx(by_class, rel=1e-12)
    assert np.array_equal(found.confusion, sklearn_metrics.confusion_matrix(truth, called))
    report = sklearn_metrics.classification_report(truth, called, target_names=LABELS, output_dict=True)
    for k, one in enumerate(found.classes):
        row = report[one.label]
        assert (one.recall.value, one.precision.value, one.f1.value) == pytest.approx(
            (row["recall"], row["precision"], row["f1-score"]), rel=1e-12
        )
        assert one.num_reads == row["support"]
        assert one.auroc.value == pytest.approx(sklearn_metrics.roc_auc_score(truth == k, p[:, k]), rel=1e-12)
        assert one.auprc.value == pytest.approx(sklearn_metrics.average_precision_score(truth == k, p[:, k]))


def test_numbers_worked_out_by_hand() -> None:
    truth = np.array([0, 0, 1, 2])
    p = np.array([[0.8, 0.1, 0.1], [0.3, 0.5, 0.2], [0.2, 0.7, 0.1], [0.4, 0.35, 0.25]])
    found = measured(truth, p)
    # Called 0, 1, 1, 0: right, wrong, right, wrong.
    assert found.confusion == ((1, 1, 0), (0, 1, 0), (1, 0, 0))
    # Recalls 1/2, 1, 0; the truth of the wrong ones comes second (0.3 behind 0.5) and third (0.25).
    assert found.overall["balanced_accuracy"].value == pytest.approx(0.5)
    assert found.top_k[2].value == 0.75
    # F1: 2/(2 + 2), 2/(1 + 2), 0.
    assert found.overall["macro_f1"].value == pytest.approx((1 / 2 + 2 / 3 + 0) / 3)
    # Gorodkin: (2 x 4 - (2 x 2 + 1 x 2 + 1 x 0)) / sqrt((16 - 6)(16 - 8)).
    assert found.overall["mcc"].value == pytest.approx(2 / 80**0.5)
    # Against the rest: 0.8, 0.3 over 0.2, 0.4: 3 of 4 pairs; 0.7 above all; 0.25 above all.
    assert [one.auroc.value for one in found.classes] == [0.75, 1.0, 1.0]
    # Nothing is called 2, so its precision is not known, and its F1 is 0.
    assert (found.classes[2].precision.value, found.classes[2].f1.value) == (None, 0.0)
    # Squares: 0.04 + 0.01 + 0.01; 0.49 + 0.25 + 0.04; 0.04 + 0.09 + 0.01; 0.16 + 0.1225 + 0.5625.
    assert found.calibratedness.brier.value == pytest.approx((0.06 + 0.78 + 0.14 + 0.845) / 4)
    # Probabilities of the calls 0.8 right, 0.5 wrong, 0.7 right, 0.4 wrong, each in a bin of its own.
    assert calibration_error(truth, p) == pytest.approx((0.2 + 0.5 + 0.3 + 0.4) / 4)
    assert found.calibratedness.log_loss.value == pytest.approx(-np.log([0.8, 0.3, 0.7, 0.25]).mean())


def test_equally_probable_classes_are_called_by_their_order() -> None:
    p = np.full((3, 3), 1 / 3)
    assert metrics.ranks_of_truth(np.array([0, 1, 2]), p).tolist() == [0, 1, 2]
    assert measured(np.array([0, 1, 2]), p).confusion == ((1, 0, 0), (1, 0, 0), (1, 0, 0))


def test_what_a_missing_class_leaves_undefined_is_empty_and_the_rest_is_there() -> None:
    truth, p = draw(60, 3)
    kept = truth != 2
    found = measured(truth[kept], p[kept], bootstrap=10)
    for name in ("balanced_accuracy", "macro_f1", "macro_auroc", "macro_auprc"):
        assert found.overall[name].value is None
        assert found.overall[name].interval is None
    assert found.overall["accuracy"].value == pytest.approx((p[kept].argmax(axis=1) == truth[kept]).mean())
    assert found.overall["mcc"].value == pytest.approx(
        sklearn_metrics.matthews_corrcoef(truth[kept], p[kept].argmax(axis=1))
    )
    missing = found.classes[2]
    assert (missing.num_reads, missing.auroc.value, missing.auprc.value, missing.recall.value) == (0, None, None, None)
    # Calls of it are all wrong.
    assert missing.precision.value == 0
    assert found.classes[0].auroc.value is not None
    texts = [row for table in found.tables() for row in table.rows]
    assert ("macro AUROC", "", "", "0.5 by chance") in texts


def test_reads_of_one_class_have_shares_alone() -> None:
    truth, p = draw(60, 3)
    found = measured(truth[truth == 1], p[truth == 1])
    assert found.overall["mcc"].value is None
    assert found.overall["accuracy"].value == found.classes[1].recall.value
    assert all(one.auroc.value is None for one in found.classes)


def test_groups_have_their_own_rows_and_the_worst_is_named() -> None:
    truth, p = draw(400, 1)
    # The second group is guessed at; the third lacks a class.
    codes = np.arange(400) % 3
    codes[(codes == 2) & (truth == 0)] = -1
    p[codes == 1] = draw(400, 9)[1][codes == 1]
    found = measured(truth, p, groups=codes)
    kind = found.grouping("reference")
    first, second, third = kind.groups
    for code, group in enumerate((first, second)):
        inside = codes == code
        assert group.accuracy.value == pytest.approx((p[inside].argmax(axis=1) == truth[inside]).mean())
        assert group.auroc == pytest.approx(
            sklearn_metrics.roc_auc_score(truth[inside], p[inside], multi_class="ovr", average="macro")
        )
    assert (third.auroc, third.balanced_accuracy, third.num_by_label["ala"]) == (None, None, 0)
    assert third.accuracy.value is not None
    assert kind.num_ungrouped == (codes == -1).sum()
    assert found.worst_group == ("reference", "second")
    assert kind.table().rows[1][-1] == "worst"
    content = found.to_mapping()
    assert content["worst_groups"] == {"reference": "second"}
    assert content["groups"]["reference"][2]["macro_auroc"] is None


def test_intervals_hold_the_values_and_children_of_a_parent_go_together() -> None:
    truth, p = draw(200, 4)
    found = measured(truth, p, bootstrap=200)
    for estimate in (*found.overall.values(), *found.top_k.values(), found.calibratedness.brier):
        assert estimate.value is not None
        assert estimate.interval is not None
        assert estimate.interval.low < estimate.value < estimate.interval.high
    # All reads of one parent: every resampling is the same.
    alone = measure(
        truth,
        p,
        parents=np.zeros(200, np.int64),
        groups=[],
        labels=LABELS,
        uncalibrated=p,
        num_resamplings=5,
        seed=0,
    )
    value = alone.overall["mcc"].value
    assert alone.overall["mcc"].interval == (value, value)
    assert alone.uncalibrated is not None
    assert alone.uncalibrated.brier.value == alone.calibratedness.brier.value


def test_of_many_labels_the_terminal_shows_no_more_than_fits_and_the_file_all() -> None:
    found = measured(*draw(60, 3, num_classes=8))
    summary, _, calls, *_ = found.tables()
    assert [row[0] for row in summary.rows if row[0].startswith("top-")] == [f"top-{k} accuracy" for k in range(2, 6)]
    assert list(found.to_mapping()["top_k_accuracy"]) == ["2", "3", "4", "5", "6", "7"]
    assert calls.columns == ("", *MANY)
    assert [row[0] for row in calls.rows] == list(MANY)
    few = measured(*draw(60, 3)).tables()[2]
    assert few.columns[1] == "called ala"
