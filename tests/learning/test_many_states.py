"""A model of three states, from the corpus to its calibrated folder: trained once, looked at from all sides."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from leech.config import build
from leech.console import SilentProgress
from leech.data.corpus import Corpus
from leech.errors import ConfigError, InputError
from leech.evaluation.calibrate import calibrate
from leech.evaluation.compare import compare
from leech.evaluation.config import CalibrateConfig, CompareConfig, EvalConfig, ReportConfig
from leech.evaluation.evaluate import Evaluation, evaluate
from leech.evaluation.multiclass.calibrate import ClassCalibrationResult
from leech.evaluation.multiclass.summary import ClassMetrics
from leech.evaluation.report.write import report
from leech.models.bundle import load_bundle, read_bundle
from leech.models.description import describe
from leech.training.config import TrainConfig
from leech.training.train import train
from planted import STAMP, planted_chunks, write_chunks, write_states

STATES = {"none": 0.0, "weak": 1.0, "strong": 2.2}
LABELS = ("none", "strong", "weak")


def trained(data: Path, output: Path, **values: object) -> Path:
    config = build(TrainConfig, {"device": "cpu", "epochs": 12, **values})
    train(config, data, output, force=False, progress=SilentProgress(), stamp=STAMP)
    return output


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_states(tmp_path_factory.mktemp("states"), STATES, 250, split=(0.4, 0.15, 0.25, 0.2))


@pytest.fixture(scope="module")
def model(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(corpus, tmp_path_factory.mktemp("model") / "model")


def judged(model: Path, data: Path, output: Path, **values: object) -> tuple[Evaluation, ClassMetrics]:
    config = build(EvalConfig, {"device": "cpu", "bootstrap": 50, **values})
    found = evaluate(model, data, config, output, force=False, progress=SilentProgress(), stamp=STAMP)
    assert isinstance(found.metrics, ClassMetrics)
    return found, found.metrics


def test_three_states_are_told_apart(model: Path, corpus: Path, tmp_path: Path) -> None:
    _, found = judged(model, corpus, tmp_path / "metrics.json")
    # About 63 held-out reads a state: the standard error of each AUROC is 0.03 at most.
    area = found.overall["macro_auroc"].value
    assert area is not None
    assert area > 0.85
    assert found.labels == LABELS
    # States at either end are hardly mistaken for one another.
    rows = dict(zip(LABELS, found.confusion, strict=True))
    assert rows["none"][1] + rows["strong"][0] < rows["none"][2] + rows["strong"][2] + rows["weak"][0] + rows["weak"][1]


def test_labels_that_mean_nothing_are_not_learnt(tmp_path: Path) -> None:
    data = write_states(tmp_path, dict.fromkeys(STATES, 0.0), 200, split=(0.35, 0.15, 0.5))
    _, found = judged(trained(data, tmp_path / "model"), data, tmp_path / "metrics.json")
    area = found.overall["macro_auroc"].value
    assert area is not None
    assert 0.38 < area < 0.62


def test_the_folder_says_what_it_is(model: Path, corpus: Path) -> None:
    content = json.loads((model / "model.json").read_text())
    assert (content["schema_version"], content["labels"]) == (2, list(LABELS))
    assert (content["positive_label"], content["operating_point"], content["calibration"]) == (None, None, None)
    assert content["training"]["num_train"] == dict.fromkeys(LABELS, 100)
    assert set(content["training"]["validation"]) == {
        "loss", "auroc", "auprc", "balanced_accuracy", *(f"auroc_{label}" for label in LABELS)
    }  # fmt: skip
    loaded = load_bundle(model)
    assert loaded.network.output.out_features == 3
    assert not loaded.bundle.has_two_states
    rows = dict(row for row in describe(model).tables()[0].rows)
    assert (rows["labels"], rows["called"]) == ("none, strong, weak", "the most probable label")
    history = [json.loads(line) for line in (model / "history.jsonl").read_text().splitlines()]
    assert history[-1]["validation_auroc"] > history[0]["validation_auroc"] - 0.1
    assert "positive_label" not in (model / "train.toml").read_text()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"labels": ["a", "b"]}, "three or more"),
        ({"labels": ["a", "b", "b"]}, "three or more different"),
        ({"positive_label": "strong"}, "'positive_label'"),
        ({"operating_point": {"threshold_cl": 3}}, "'operating_point'"),
        ({"calibration": {"method": "vector", "scales": [1] * 4, "offsets": [0] * 4}}, "4 classes is none of 3"),
        ({"schema_version": 1}, "'labels"),
    ],
)
def test_a_description_that_was_edited_is_refused(
    model: Path, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    shutil.copytree(model, tmp_path / "copy")
    path = tmp_path / "copy" / "model.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(InputError) as caught:
        read_bundle(tmp_path / "copy")
    assert words in caught.value.message


def test_metrics_and_scores_are_those_of_scikit_learn(model: Path, corpus: Path, tmp_path: Path) -> None:
    _, found = judged(model, corpus, tmp_path / "metrics.json", scores=tmp_path / "scores.tsv.gz")
    content = json.loads((tmp_path / "metrics.json").read_text())
    assert (content["format"], content["schema_version"], content["calibration"]) == ("leech-class-metrics", 1, None)
    assert "threshold_source" not in content
    import gzip

    with gzip.open(tmp_path / "scores.tsv.gz", "rt", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert list(rows[0]) == [
        *("read_id", "parent_id", "reference", "flow_cell", "run", "sample", "junction", "label", "call"),
        *("p_none", "p_strong", "p_weak"),
    ]
    p = np.array([[float(row[f"p_{label}"]) for label in LABELS] for row in rows])
    truth = np.array([LABELS.index(row["label"]) for row in rows])
    assert len(rows) == content["num_reads"] == len(Corpus.open(corpus).rows("test"))
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert [row["call"] for row in rows] == [LABELS[k] for k in p.argmax(axis=1)]
    assert content["macro_auroc"]["value"] == pytest.approx(roc_auc_score(truth, p, multi_class="ovr"))
    assert content["confusion"]["weak"]["none"] == ((truth == 2) & (p.argmax(axis=1) == 0)).sum()
    assert {group["name"] for group in content["groups"]["reference"]} == {"tRNA-A", "tRNA-B"}
    assert content["groups"]["sample"][0]["accuracy"] is not None
    titles = [table.title for table in found.tables()]
    assert titles[:3] == [
        f"{len(rows)} reads of 3 labels",
        "By label, each against the rest",
        "Calls of the most probable label",
    ]


def test_a_control_of_one_state_gives_shares_and_empty_cells(model: Path, tmp_path: Path) -> None:
    control = write_chunks(tmp_path / "control", planted_chunks(40, label="weak", strength=1.0, seed=7))
    _, found = judged(model, control, tmp_path / "metrics.json", split="all")
    assert found.overall["macro_auroc"].value is None
    assert found.classes[2].recall.value == found.overall["accuracy"].value
    assert found.worst_group is None


def calibrated(model: Path, data: Path, output: Path, **values: object) -> ClassCalibrationResult:
    config = build(CalibrateConfig, {"device": "cpu", "bootstrap": 50, **values})
    found = calibrate(model, data, config, output, force=False, progress=SilentProgress(), stamp=STAMP)
    assert isinstance(found, ClassCalibrationResult)
    return found


def overconfident(model: Path, folder: Path) -> Path:
    """Write the model again with four times its logits; it calls as before, and says more than it knows."""
    from leech.models.bundle import save_bundle

    loaded = load_bundle(model)
    loaded.network.output.weight.data *= 4
    loaded.network.output.bias.data *= 4
    shutil.copytree(model, folder)
    save_bundle(loaded.bundle, loaded.network, folder)
    return folder


def test_an_overconfident_model_is_cured_and_says_so(model: Path, corpus: Path, tmp_path: Path) -> None:
    sure = overconfident(model, tmp_path / "sure")
    found = calibrated(sure, corpus, tmp_path / "cured", method="temperature")
    assert found.kept == read_bundle(tmp_path / "cured").calibration == found.fitted
    # One scale for all: no call changes.
    assert found.accuracy[0] == found.accuracy[1]
    assert found.fitted.num_reads == (50, 50, 50)
    assert found.judgement.is_better
    assert found.losses["temperature"] < found.losses["none"]
    record = json.loads((tmp_path / "cured" / "calibration.json").read_text())
    assert (record["kept"], record["calibration"]["method"], record["operating_point"]) == (True, "temperature", None)
    assert record["test"]["accuracy"]["before"] == found.accuracy[0]
    _, before = judged(sure, corpus, tmp_path / "before.json")
    _, after = judged(tmp_path / "cured", corpus, tmp_path / "after.json")
    assert after.uncalibrated == before.calibratedness
    assert after.overall["accuracy"].value == before.overall["accuracy"].value
    assert after.calibratedness.brier.value == pytest.approx(found.judgement.after.brier.value)
    assert after.calibratedness.brier.value < before.calibratedness.brier.value  # type: ignore[operator]
    titles = [table.title for table in found.tables()]
    assert titles == ["Methods on the calibration split", "Calibration kept"]
    vector = calibrated(sure, corpus, tmp_path / "vector", method="vector")
    assert vector.fitted.method == "vector"
    assert calibrated(sure, corpus, tmp_path / "auto").fitted.method in ("temperature", "vector")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"method": "platt"}, "--method platt is for two states"),
        ({"method": "isotonic"}, "--method isotonic is for two states"),
        ({"target_fpr": 0.05}, "--target-fpr: a model of 3 states has no operating point"),
    ],
)
def test_what_only_two_states_have_is_refused(
    model: Path, corpus: Path, tmp_path: Path, values: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        calibrated(model, corpus, tmp_path / "out", **values)
    assert words in caught.value.message
    assert not (tmp_path / "out").exists()


def test_comparing_and_reporting_refuse_it_in_words(model: Path, corpus: Path, tmp_path: Path) -> None:
    def compared(*models: Path) -> None:
        config = build(CompareConfig, {"device": "cpu", "data": [corpus] if models[0].is_dir() else []})
        compare(models, config, tmp_path / "out.json", force=False, progress=SilentProgress(), stamp=STAMP)

    with pytest.raises(ConfigError, match="tells 3 states apart"):
        compared(model, model)
    judged(model, corpus, tmp_path / "metrics.json", scores=tmp_path / "scores.tsv")
    with pytest.raises(InputError, match="of more than two states"):
        compared(tmp_path / "scores.tsv", tmp_path / "scores.tsv")
    for name in ("metrics", "scores"):
        path = tmp_path / ("metrics.json" if name == "metrics" else "scores.tsv")
        config = build(ReportConfig, {name: [path]})
        with pytest.raises(InputError, match="more than two states"):
            report(config, tmp_path / "page.html", force=False, stamp=STAMP)
    # Of the model itself, the training is shown.
    report(build(ReportConfig, {"model": model}), tmp_path / "page.html", force=False, stamp=STAMP)
    assert "validation auprc" in (tmp_path / "page.html").read_text()


def test_steps_can_be_timed(corpus: Path) -> None:
    from leech.training.benchmark import benchmark
    from leech.training.config import BenchmarkConfig

    config = build(BenchmarkConfig, {"device": "cpu", "steps": 1, "batch_size": 16})
    assert benchmark(config, corpus, progress=SilentProgress()).timings[0].chunks_per_second > 0


def test_what_suits_more_states_only_is_refused_of_two(tmp_path: Path) -> None:
    from planted import write_planted

    data = write_planted(tmp_path, (80, 80), split=(0.4, 0.2, 0.2, 0.2))  # type: ignore[arg-type]
    model = trained(data, tmp_path / "model", epochs=1)
    config = build(CalibrateConfig, {"device": "cpu", "method": "vector"})
    with pytest.raises(ConfigError, match="--method vector is for models of more than two states"):
        calibrate(model, data, config, tmp_path / "out", force=False, progress=SilentProgress(), stamp=STAMP)
