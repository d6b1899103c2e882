"""What is put together of the metrics: values by hand, groups, the worst of them, empty cells."""

from __future__ import annotations

import json

import numpy as np
import pytest

from leech.evaluation.summary import Metrics, measure

LABELS = ("uncharged", "charged")


def measured(positive: object, p: object, references: object = None, **overrides: object) -> Metrics:
    truth = np.asarray(positive, dtype=bool)
    values: dict[str, object] = {
        "parents": np.arange(len(truth)),
        "references": np.zeros(len(truth), int) if references is None else np.asarray(references),
        "reference_names": ["b", "a", "c"],
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
    assert point["mcc"] == 0.0
    # (0.01 + 0.36 + 0.36 + 0.01) / 4
    assert content["brier"] == pytest.approx(0.185)
    # At precision 0.95 only the highest and the lowest read can be called: 2 of 4.
    assert content["callable_share"] == {"0.95": 0.5, "0.99": 0.5}
    assert json.loads(json.dumps(content, allow_nan=False)) == content


def test_groups_are_named_sorted_and_measured_alone() -> None:
    metrics = measured([1, 0, 1, 0, 1], [0.9, 0.1, 0.2, 0.8, 0.7], [0, 0, 1, 1, 2])
    assert [group.name for group in metrics.references] == ["a", "b", "c"]
    a, b, c = metrics.references
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
    assert metrics.worst_reference is None


def test_the_worst_group_needs_enough_reads_of_either_class() -> None:
    generator = np.random.default_rng(0)
    positive = np.tile([True, False], 60)
    references = np.repeat([0, 1, 2], [60, 40, 20])
    # Group 0 is fair, group 1 poor with 20 of each class, group 2 wrong throughout with 10 of each class.
    separation = np.select([references == 0, references == 1], [0.5, 0.2], -0.5)
    p = np.clip(0.5 + np.where(positive, 1, -1) * separation / 2 + generator.normal(0, 0.2, 120), 0, 1)
    metrics = measured(positive, p, references)
    assert {group.name: group.num_reads for group in metrics.references} == {"a": 40, "b": 60, "c": 20}
    by_name = {group.name: group.auroc.value or 0 for group in metrics.references}
    assert by_name["c"] < by_name["a"] < by_name["b"]
    assert metrics.worst_reference == "a"
    rows = metrics.tables()[2].rows
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
