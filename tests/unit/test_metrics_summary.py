"""What is put together of the metrics: values by hand, groups, the worst of them, empty cells."""

from __future__ import annotations

import json

import numpy as np
import pytest

from leech.data.grouping import Groups
from leech.evaluation.summary import Metrics, measure

LABELS = ("uncharged", "charged")


def measured(
    positive: object, p: object, references: object = None, samples: object = None, **overrides: object
) -> Metrics:
    truth = np.asarray(positive, dtype=bool)
    values: dict[str, object] = {
        "parents": np.arange(len(truth)),
        "groups": [
            Groups(
                "reference",
                np.zeros(len(truth), int) if references is None else np.asarray(references),
                ["b", "a", "c"],
            ),
            Groups(
                "sample",
                np.zeros(len(truth), int) if samples is None else np.asarray(samples),
                ["mixed", "0 %", "100 %"],
            ),
        ],
        "target_fpr": 0.05,
        "uncalibrated": None,
        "labels": LABELS,
        "threshold_cl": 128,
        "num_resamplings": 50,
        "seed": 0,
        **overrides,
    }
    return measure(truth, np.asarray(p, dtype=float), **values)  # type: ignore[arg-type]


def test_the_summary_holds_the_metrics_by_hand() -> None:
    # Truth + + - - with 0.9 0.4 0.6 0.1: AUROC 3/4; at 0.5 one hit, one miss, one false alarm, one right rejection.
    metrics = measured([1, 1, 0, 0], [0.9, 0.4, 0.6, 0.1])
    content = metrics.to_mapping()
    assert content["prevalence"] == 0.5
    assert content["auroc"]["value"] == 0.75
    point = content["operating_point"]
    assert [point[name] for name in ("tp", "fn", "fp", "tn")] == [1, 1, 1, 1]
    assert point["balanced_accuracy"]["value"] == 0.5
    assert point["mcc"]["value"] == 0.0
    # (0.01 + 0.36 + 0.36 + 0.01) / 4
    assert content["brier"]["value"] == pytest.approx(0.185)
    # At precision 0.95 only the highest and the lowest read can be called: 2 of 4.
    assert [share["value"] for share in content["callable_share"].values()] == [0.5, 0.5]
    assert json.loads(json.dumps(content, allow_nan=False)) == content


def test_groups_are_named_sorted_and_measured_alone() -> None:
    metrics = measured([1, 0, 1, 0, 1], [0.9, 0.1, 0.2, 0.8, 0.7], [0, 0, 1, 1, 2])
    assert [group.name for group in metrics.grouping("reference").groups] == ["a", "b", "c"]
    a, b, c = metrics.grouping("reference").groups
    assert (a.auroc.value, b.auroc.value) == (0.0, 1.0)
    assert (a.accuracy.value, b.accuracy.value) == (0.0, 1.0)
    assert (c.num_reads, c.num_positive, c.auroc.value, c.balanced_accuracy, c.accuracy.value) == (
        1,
        1,
        None,
        None,
        1.0,
    )
    # Too few reads for anyone to be named.
    assert metrics.worst_group is None


def test_the_worst_group_needs_enough_reads_of_either_class() -> None:
    generator = np.random.default_rng(0)
    positive = np.tile([True, False], 60)
    references = np.repeat([0, 1, 2], [60, 40, 20])
    # Group 0 is fair, group 1 poor with 20 of each class, group 2 wrong throughout with 10 of each class.
    separation = np.select([references == 0, references == 1], [0.5, 0.2], -0.5)
    p = np.clip(0.5 + np.where(positive, 1, -1) * separation / 2 + generator.normal(0, 0.2, 120), 0, 1)
    metrics = measured(positive, p, references)
    assert {group.name: group.num_reads for group in metrics.grouping("reference").groups} == {
        "a": 40,
        "b": 60,
        "c": 20,
    }
    by_name = {group.name: group.auroc.value or 0 for group in metrics.grouping("reference").groups}
    assert by_name["c"] < by_name["a"] < by_name["b"]
    assert metrics.worst_group == ("reference", "a")
    rows = metrics.tables()[3].rows
    assert [row[-1] for row in rows] == ["worst", "", ""]


def test_one_class_leaves_empty_cells_and_null_and_no_warning() -> None:
    metrics = measured([1, 1, 1], [0.9, 0.4, 0.6])
    content = metrics.to_mapping()
    assert content["auroc"] == {"value": None, "interval": None}
    assert content["operating_point"]["fpr"] == {"value": None, "interval": None}
    assert content["operating_point"]["tpr"]["value"] == pytest.approx(2 / 3)
    summary = {row[0]: row[1:3] for row in metrics.tables()[0].rows}
    assert summary["AUROC"] == ("", "")
    assert summary["FPR"] == ("", "")
    assert summary["TPR"][0] == "0.667"


def test_tables_are_text_of_equal_width() -> None:
    metrics = measured([1, 1, 0, 0], [0.9, 0.4, 0.6, 0.1])
    for table in metrics.tables():
        for row in table.rows:
            assert len(row) == len(table.columns)
            assert all(isinstance(cell, str) for cell in row)


def test_intervals_are_by_parent_and_left_out_on_request() -> None:
    generator = np.random.default_rng(1)
    positive = np.tile([True, False], 50)
    p = np.clip(0.5 + np.where(positive, 0.1, -0.1) + generator.normal(0, 0.2, 100), 0, 1)
    alone = measured(positive, p, num_resamplings=300).auroc.interval
    # Ten children of each parent that say the same carry no more information than the parent.
    copies = np.repeat(np.arange(100), 10)
    family = measured(positive[copies], p[copies], parents=copies, num_resamplings=300).auroc.interval
    naive = measured(positive[copies], p[copies], num_resamplings=300).auroc.interval
    assert alone is not None
    assert family is not None
    assert naive is not None
    assert family.high - family.low == pytest.approx(alone.high - alone.low, rel=0.3)
    assert naive.high - naive.low < 0.5 * (family.high - family.low)
    assert measured(positive, p, num_resamplings=0).auroc.interval is None


def test_a_kind_of_one_group_has_a_worst_but_is_not_the_worst_of_all() -> None:
    positive = np.tile([True, False], 30)
    metrics = measured(positive, np.where(positive, 0.9, 0.2))
    assert metrics.to_mapping()["worst_groups"] == {"reference": "b", "sample": "mixed"}
    assert [row[-1] for kind in metrics.groupings for row in kind.table("charged").rows if "worst" in row] == []
    assert metrics.worst_group is None
    rows = dict(row[:2] for row in metrics.tables()[0].rows)
    assert "worst group" not in rows


def test_samples_of_one_label_are_controls() -> None:
    # Calls at 128: of the three reads of the 0 % control one is called, of the two of the 100 % control one.
    metrics = measured([1, 0, 0, 0, 0, 1, 1], [0.9, 0.1, 0.9, 0.2, 0.3, 0.4, 0.6], samples=[0, 0, 1, 1, 1, 2, 2])
    controls = metrics.to_mapping()["controls"]
    assert (controls["0"]["samples"], controls["0"]["num_reads"]) == (["0 %"], 3)
    assert controls["0"]["called_positive"]["value"] == pytest.approx(1 / 3)
    assert controls["100"]["called_positive"]["value"] == 0.5
    rows = {row[0]: row for row in metrics.tables()[0].rows}
    assert rows["FPR, 0 % control"][1] == "0.333"
    assert rows["TPR, 100 % control"][3] == "2 reads of 100 %"
    assert measured([1, 0], [0.9, 0.1]).to_mapping()["controls"] == {"0": None, "100": None}


def test_calibration_is_shown_before_and_after() -> None:
    # Before: (0.04 + 0.36) / 2; after: (0.01 + 0.04) / 2.
    metrics = measured([1, 0], [0.9, 0.2], uncalibrated=np.array([0.8, 0.6]))
    assert metrics.calibratedness.brier.value == pytest.approx(0.025)
    assert metrics.uncalibrated is not None
    assert metrics.uncalibrated.brier.value == pytest.approx(0.2)
    # One read in each bin: ECE (0.2 + 0.6) / 2 before.
    assert metrics.uncalibrated.ece.value == pytest.approx(0.4)
    assert metrics.to_mapping()["uncalibrated"]["brier"]["value"] == pytest.approx(0.2)
    rows = dict(row[:2] for row in metrics.tables()[0].rows)
    assert (rows["ECE before calibration"], rows["Brier before calibration"], rows["Brier"]) == (
        "0.400",
        "0.200",
        "0.025",
    )
    assert measured([1, 0], [0.9, 0.2]).to_mapping()["uncalibrated"] is None


def test_every_figure_of_all_reads_has_an_interval_from_resampled_parents() -> None:
    generator = np.random.default_rng(2)
    positive = np.tile([True, False], 60)
    p = np.clip(0.5 + np.where(positive, 0.15, -0.15) + generator.normal(0, 0.2, 120), 0, 1)
    content = measured(positive, p, num_resamplings=200).to_mapping()
    point = content["operating_point"]
    estimates = [content[name] for name in ("auroc", "auprc_positive", "auprc_negative", "ece", "brier")]
    estimates += [point[name] for name in ("balanced_accuracy", "mcc", "f1", "tpr", "fpr", "precision")]
    for estimate in (*estimates, content["callable_share"]["0.95"]):
        low, high = estimate["interval"]
        assert low < high
    for estimate in (content["auroc"], point["tpr"], point["fpr"], point["mcc"], content["brier"]):
        assert estimate["interval"][0] < estimate["value"] < estimate["interval"][1]


def test_a_rate_of_0_is_not_known_for_certain() -> None:
    # Wilson's upper limit of 0 in 20 is 0.161.
    positive = np.repeat([True, False], 20)
    fpr = measured(positive, np.where(positive, 0.9, 0.1)).calls.fpr
    assert fpr.value == 0
    assert fpr.interval == pytest.approx((0, 0.161), abs=5e-4)


def test_reads_that_belong_to_no_group_are_counted_but_not_shown() -> None:
    groups = [Groups("amino_acid", np.array([-1, 0, 0, -1]), ["Ala"]), Groups("sample", np.zeros(4, int), ["s"])]
    metrics = measured([1, 1, 0, 0], [0.9, 0.4, 0.6, 0.1], groups=groups)
    assert [group.num_reads for group in metrics.grouping("amino_acid").groups] == [2]
    assert metrics.to_mapping()["ungrouped"] == {"amino_acid": 2, "sample": 0}


def test_a_kind_that_divides_the_reads_like_another_is_not_shown_twice() -> None:
    positive, p = [1, 0, 1, 0, 1], [0.9, 0.1, 0.2, 0.8, 0.7]
    codes = np.array([0, 0, 1, 1, 1])
    groups = [
        Groups("reference", codes, ["r", "s"]),
        Groups("isoacceptor", codes, ["Ala-GGC", "Gly-GCC"]),
        Groups("flow_cell", np.array([0, 1, 1, 1, 1]), ["F", "G"]),
        Groups("sample", np.zeros(5, int), ["s"]),
    ]
    metrics = measured(positive, p, groups=groups)
    assert [table.title for table in metrics.tables()[3:]] == ["By reference", "By flow cell"]
    assert list(metrics.to_mapping()["groups"]) == ["reference", "isoacceptor", "flow_cell", "sample"]
