"""``evaluate``: what it writes, what must agree, and that batches change nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from leech.config import build
from leech.console import SilentProgress
from leech.data import sketch
from leech.data.corpus import Corpus
from leech.errors import ConfigError, InputError, MismatchError
from leech.evaluation.config import EvalConfig
from leech.evaluation.evaluate import Evaluation, evaluate, score
from leech.evaluation.scores import load_scores
from leech.models.bundle import LoadedModel, ModelBundle, OperatingPoint, copy_bundle, load_bundle, save_bundle
from leech.models.calibration import Calibration
from leech.models.learnt import Learnt
from leech.models.spec import build_network, load_architecture
from planted import RECIPE, STAMP, planted_chunks, write_chunks, write_planted

CPU = torch.device("cpu")


def untrained(folder: Path, labels: tuple[str, str] = ("uncharged", "charged"), threshold_cl: int = 128) -> Path:
    """Write a model that knows nothing: metrics do not care."""
    spec = load_architecture("tcn")
    bundle = ModelBundle(
        spec=spec,
        recipe=RECIPE,
        labels=labels,
        training={},
        stamp={},
        operating_point=OperatingPoint(threshold_cl=threshold_cl, source="test"),
    )
    folder.mkdir()
    save_bundle(bundle, build_network(spec, RECIPE, seed=3), folder)
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_planted(tmp_path_factory.mktemp("planted"), (60, 60))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained(tmp_path_factory.mktemp("model") / "model")


def run(model: Path, data: Path, output: Path, **values: object) -> Evaluation:
    config = build(EvalConfig, {"device": "cpu", "bootstrap": 20, **values})
    return evaluate(model, data, config, output, force=False, progress=SilentProgress(), stamp=STAMP)


def test_the_file_holds_the_metrics_of_the_split_and_where_they_come_from(
    model: Path, corpus: Path, tmp_path: Path
) -> None:
    result = run(model, corpus, tmp_path / "metrics.json")
    content = json.loads((tmp_path / "metrics.json").read_text())
    opened, (bundle, network, _) = Corpus.open(corpus), load_bundle(model)
    rows = opened.rows("test")
    scores = score(network, opened, rows, bundle.spec.features, 512, CPU)
    positive = scores.labels == opened.labels.index("charged")
    assert content["num_reads"] == len(rows) == 24
    assert content["num_positive"] == positive.sum() == 12
    assert content["auroc"]["value"] == pytest.approx(roc_auc_score(positive, scores.p))
    point = content["operating_point"]
    called = np.rint(255 * scores.p) >= 128
    assert point["threshold_cl"] == 128
    assert (point["tp"], point["fp"]) == ((called & positive).sum(), (called & ~positive).sum())
    assert {group["name"]: group["num_reads"] for group in content["groups"]["reference"]} == {
        name: int((opened.gather(rows, ["reference"])["reference"] == opened.categories["reference"].index(name)).sum())
        for name in ("tRNA-A", "tRNA-B")
    }
    assert content["provenance"] == STAMP.to_mapping()
    assert content["corpus_digest"] == opened.manifest.digest
    assert content["format"] == "leech-metrics"
    assert (tmp_path / content["model"]).resolve() == model.resolve()
    assert (tmp_path / content["data"]).resolve() == corpus.resolve()
    assert {key: content[key] for key in result.to_mapping()} == json.loads(json.dumps(result.to_mapping()))


def test_scores_come_in_the_order_of_the_rows_at_any_batch_size(model: Path, corpus: Path) -> None:
    opened, (bundle, network, _) = Corpus.open(corpus), load_bundle(model)
    rows = np.random.default_rng(0).permutation(opened.rows())[:50]
    whole = score(network, opened, rows, bundle.spec.features, 512, CPU)
    assert whole.p.dtype == np.float64
    for size in (1, 7, 50):
        done: list[int] = []
        part = score(network, opened, rows, bundle.spec.features, size, CPU, on_batch=done.append)
        assert sum(done) == 50
        assert (part.labels == whole.labels).all()
        np.testing.assert_allclose(part.p, whole.p, rtol=1e-5)
    single = score(network, opened, rows[9:10], bundle.spec.features, 1, CPU)
    assert single.p[0] == pytest.approx(whole.p[9])
    assert single.labels[0] == opened.column("label")[rows[9]]


def test_every_split_can_be_scored_but_not_without_a_word_those_that_training_saw(
    model: Path, corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sizes, flattered = {}, {}
    for split in ("train", "validation", "test", "all"):
        caplog.clear()
        sizes[split] = run(model, corpus, tmp_path / f"{split}.json", split=split).metrics.num_reads
        flattered[split] = "flatter" in caplog.text
    assert sizes == {"train": 72, "validation": 24, "test": 24, "all": 120}
    assert flattered == {"train": True, "validation": True, "test": False, "all": True}


def test_figures_say_whether_the_model_learnt_from_their_reads(
    corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of the 96 reads of both splits 40 are kept, as of a corpus with more of them than are kept.
    monkeypatch.setattr(sketch, "MOST_KEPT", 40)
    opened = Corpus.open(corpus)
    rows = np.concatenate([opened.rows("train"), opened.rows("validation")])
    learnt = Learnt.of(opened.gather(rows, ["parent_id"])["parent_id"], opened.categories["run"])
    folders = {}
    for name, digest in (("own", opened.manifest.digest), ("other", "sha256:0")):
        bundle = load_bundle(untrained(tmp_path / f"{name}-bare")).bundle
        training = {"corpus_digest": digest, **learnt.to_mapping()}
        folders[name] = tmp_path / name
        folders[name].mkdir()
        save_bundle(replace(bundle, training=training), build_network(bundle.spec, RECIPE, seed=3), folders[name])
        learnt.save(folders[name])
    told = {}
    for name, split in (("own", "train"), ("own", "all"), ("own", "test"), ("other", "validation"), ("other", "test")):
        caplog.clear()
        output = tmp_path / f"{name}-{split}.json"
        run(folders[name], corpus, output, split=split)
        content = json.loads(output.read_text())["learnt_from"]
        told[name, split] = content["state"], "flatter" in caplog.text, "learnt from none of these" in caplog.text
        assert (content["num_found"] > 0) == (content["state"] == "yes")
        assert content["num_found"] <= content["num_compared"]
    assert told == {
        ("own", "train"): ("yes", True, False),
        ("own", "all"): ("yes", True, False),
        ("own", "test"): ("no", False, False),
        ("other", "validation"): ("yes", True, False),
        # The reads are of the run that the model learnt from, and most of what it learnt from is not kept.
        ("other", "test"): ("unknown", False, True),
    }


def test_the_model_says_which_label_is_positive_whatever_the_order_in_the_corpus(corpus: Path, tmp_path: Path) -> None:
    straight = run(untrained(tmp_path / "a"), corpus, tmp_path / "a.json")
    turned = run(untrained(tmp_path / "b", ("charged", "uncharged")), corpus, tmp_path / "b.json")
    first, second = straight.metrics.auroc.value, turned.metrics.auroc.value
    assert first is not None
    assert second == pytest.approx(1 - first)
    assert turned.metrics.positive_label == "uncharged"


def test_another_recipe_is_refused_and_its_fields_are_named(model: Path, tmp_path: Path) -> None:
    other = replace(RECIPE, samples_before=90, motif_offset=3)
    data = write_planted(tmp_path / "other", (20, 20), recipe=other)
    with pytest.raises(MismatchError) as caught:
        run(model, data, tmp_path / "metrics.json")
    assert "samples_before (model 100, corpus 90)" in caught.value.message
    assert "motif_offset (model 2, corpus 3)" in caught.value.message
    assert "samples_after" not in caught.value.message
    assert not (tmp_path / "metrics.json").exists()


def test_other_labels_are_refused(model: Path, tmp_path: Path) -> None:
    data = write_planted(tmp_path / "other", (20, 20), labels=("wt", "mutant"), positive_label="wt")
    with pytest.raises(MismatchError, match="'mutant' and 'wt'"):
        run(model, data, tmp_path / "metrics.json")


@pytest.mark.parametrize(("label", "known", "unknown"), [("charged", "tpr", "fpr"), ("uncharged", "fpr", "tpr")])
def test_a_control_of_one_label_gives_what_one_state_can_tell(
    model: Path, tmp_path: Path, label: str, known: str, unknown: str
) -> None:
    data = write_chunks(tmp_path / "one", planted_chunks(10, label=label, strength=1, seed=0))
    metrics = run(model, data, tmp_path / "metrics.json", split="all").metrics
    assert (metrics.num_reads, metrics.num_positive) == (10, 10 if label == "charged" else 0)
    assert metrics.auroc.value is None
    assert getattr(metrics.calls, known).value is not None
    assert getattr(metrics.calls, unknown).value is None


def test_an_empty_split_and_a_missing_split_are_refused(model: Path, corpus: Path, tmp_path: Path) -> None:
    data = write_planted(tmp_path / "no-test", (20, 20), split=(0.5, 0.5, 0.0))
    with pytest.raises(InputError, match="no labelled chunks in split 'test'"):
        run(model, data, tmp_path / "metrics.json")
    assert list(tmp_path.glob("metrics.json*")) == []


def test_an_existing_file_is_kept(model: Path, corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "metrics.json").write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        run(model, corpus, tmp_path / "metrics.json")
    assert (tmp_path / "metrics.json").read_text() == "mine"


def test_a_loaded_model_is_what_is_scored(model: Path, corpus: Path, tmp_path: Path) -> None:
    loaded = load_bundle(model)
    assert isinstance(loaded, LoadedModel)
    result = run(model, corpus, tmp_path / "metrics.json", batch_size=5)
    again = run(model, corpus, tmp_path / "again.json", batch_size=512)
    assert result.metrics.auroc == again.metrics.auroc
    assert [len(table.rows) for table in result.tables()][1:3] == [2, 4]


def calibrated(model: Path, folder: Path, calibration: Calibration) -> Path:
    folder.mkdir()
    point = OperatingPoint(threshold_cl=100, source="test")
    copy_bundle(model, folder, calibration=calibration, operating_point=point)
    return folder


def test_a_calibrated_model_is_judged_by_its_calibrated_probabilities(
    model: Path, corpus: Path, tmp_path: Path
) -> None:
    calibration = Calibration(method="platt", scale=3.0, offset=0.5)
    raw = run(model, corpus, tmp_path / "raw.json").metrics
    other = calibrated(model, tmp_path / "calibrated", calibration)
    result = run(other, corpus, tmp_path / "metrics.json", scores=tmp_path / "scores.tsv")
    opened, network = Corpus.open(corpus), load_bundle(model).network
    rows = opened.rows("test")
    plain = score(network, opened, rows, load_bundle(model).bundle.spec.features, 512, CPU)
    positive = plain.labels == opened.labels.index("charged")
    p = 1 / (1 + np.exp(-(3 * plain.logits + 0.5)))
    np.testing.assert_allclose(1 / (1 + np.exp(-plain.logits)), plain.p)
    metrics = result.metrics
    assert metrics.calibratedness.brier.value == pytest.approx(np.mean((p - positive) ** 2))
    assert metrics.uncalibrated is not None
    assert metrics.uncalibrated.brier.value == pytest.approx(raw.calibratedness.brier.value)
    assert metrics.calls.confusion.tp == (np.rint(255 * p) >= 100)[positive].sum()
    assert (raw.uncalibrated, metrics.auroc.value) == (None, raw.auroc.value)
    content = json.loads((tmp_path / "metrics.json").read_text())
    assert (content["calibration"], content["threshold_source"]) == ("platt", "test")
    scores = load_scores(tmp_path / "scores.tsv")
    np.testing.assert_allclose(scores.p, p, rtol=1e-12)
    assert scores.labels == [opened.labels[code] for code in plain.labels]
    text = (tmp_path / "scores.tsv").read_text().splitlines()
    np.testing.assert_allclose([float(line.split("\t")[10]) for line in text[1:]], plain.p, rtol=1e-12)


def test_scores_of_a_format_that_is_not_written_or_in_place_of_the_metrics_are_refused_at_once(
    model: Path, corpus: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="Parquet"):
        run(model, corpus, tmp_path / "metrics.json", scores=tmp_path / "s.parquet")
    with pytest.raises(ConfigError, match="cannot both"):
        run(model, corpus, tmp_path / "m.tsv", scores=tmp_path / "m.tsv")
    assert list(tmp_path.iterdir()) == []
