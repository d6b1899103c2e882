"""``train`` as a whole: the folder it makes, what it refuses, and that a seed decides everything."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from leech.config import build, load_toml
from leech.console import SilentProgress
from leech.data.corpus import Corpus
from leech.data.sites import BedSites, stored_bed
from leech.errors import ConfigError, InputError, LeechError
from leech.evaluation.evaluate import compare_with_learnt, score
from leech.models.bundle import load_bundle
from leech.training.config import TrainConfig
from leech.training.train import TrainResult, train
from planted import RECIPE, STAMP, write_planted

SHORT = {"epochs": 1, "device": "cpu"}


def run(data: Path, output: Path, *, force: bool = False, **values: object) -> TrainResult:
    config = build(TrainConfig, {**SHORT, **values})
    result = train(config, data, output, force=force, progress=SilentProgress(), stamp=STAMP)
    assert result is not None
    return result


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_planted(tmp_path_factory.mktemp("planted"), (60, 90))


@pytest.fixture(scope="module")
def trained(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TrainResult]:
    folder = tmp_path_factory.mktemp("trained") / "model"
    return folder, run(corpus, folder, seed=5)


def test_the_folder_holds_the_model_its_history_and_its_configuration(
    trained: tuple[Path, TrainResult], corpus: Path
) -> None:
    folder, result = trained
    assert sorted(path.name for path in folder.iterdir()) == [
        "history.jsonl",
        "learnt_reads.npy",
        "model.json",
        "model.safetensors",
        "train.toml",
    ]
    settings = load_toml(folder / "train.toml")
    assert (settings["seed"], settings["positive_label"], settings["model"]) == (5, "charged", "tcn")
    assert build(TrainConfig, settings).epochs == 1
    bundle, _, _ = load_bundle(folder)
    assert bundle.labels == ("uncharged", "charged")
    assert bundle.recipe == RECIPE
    assert bundle.stamp == STAMP.to_mapping()
    assert bundle.training["num_train"] == {"uncharged": 36, "charged": 54}
    assert bundle.training["corpus_digest"] == Corpus.open(corpus).manifest.digest
    assert bundle.training["validation"] == result.metrics
    # What predicting compares new runs with; the planted corpora tell of no basecaller.
    assert bundle.training["sample_rates"] == [4000]
    assert bundle.training["basecall_models"] == []
    ladders = {part.labels[0]: part.manifest.counts for part in Corpus.open(corpus).parts}
    assert bundle.training["counts_by_label"] == ladders
    assert set(ladders) == {"uncharged", "charged"}


def test_a_model_knows_the_reads_that_it_learnt_from_and_those_that_it_was_chosen_by(
    trained: tuple[Path, TrainResult], corpus: Path
) -> None:
    loaded, opened = load_bundle(trained[0]), Corpus.open(corpus)
    assert loaded.learnt.runs == frozenset(opened.categories["run"])
    sizes = {split: len(opened.rows(split)) for split in ("train", "validation", "test")}
    for split, number in sizes.items():
        found = compare_with_learnt(loaded, opened, opened.rows(split), ["all"])
        assert (found.num_compared, found.num_found) == (number, 0 if split == "test" else number)
        assert found.state == ("no" if split == "test" else "yes")
    assert loaded.learnt.sketch is not None
    assert loaded.learnt.sketch.num_reads == sizes["train"] + sizes["validation"]


def test_a_run_that_stops_early_says_so_and_a_full_one_does_not(
    corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="leech")
    # 90 chunks in batches of 3 are 30 steps an epoch. With the least learning rate no evaluation is better than the first, so
    # with a patience of one the second is the last.
    result = run(corpus, tmp_path / "early", epochs=9, batch_size=3, patience=1, learning_rate=1e-8)
    last = json.loads((tmp_path / "early" / "history.jsonl").read_text().splitlines()[-1])
    assert last["step"] < 270
    words = f"Stopped early at step {last['step']} of 270, 1 evaluations after the best one; kept the weights of epoch"
    assert f"{words} {result.epoch} of {last['epoch']}." in caplog.text
    caplog.clear()
    run(corpus, tmp_path / "full", epochs=2, batch_size=30, patience=9)
    assert "Stopped early" not in caplog.text


def test_a_bed_of_sites_travels_from_the_corpora_into_the_model(tmp_path: Path) -> None:
    bed = BedSites.parse(b"tRNA-A\t3\t4\ntRNA-B\t5\t6\n")
    by_bed = {"motif": None, "motif_offset": None, "site_source": "sites", "sites_sha256": bed.sha256}
    data = write_planted(tmp_path / "data", (40, 40), recipe=replace(RECIPE, **by_bed))  # type: ignore[arg-type]
    for label in ("uncharged", "charged"):
        bed.save(tmp_path / "data" / label)
    run(data, tmp_path / "model")
    bundle, _, _ = load_bundle(tmp_path / "model")
    assert stored_bed(tmp_path / "model", bundle.recipe) == bed


def test_history_has_a_line_per_evaluation_with_what_a_curve_needs(trained: tuple[Path, TrainResult]) -> None:
    folder, result = trained
    lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    assert lines
    for line in lines:
        assert {
            "epoch",
            "step",
            "train_loss",
            "validation_loss",
            "validation_auroc",
            "validation_auprc_positive",
            "learning_rate",
            "chunks_per_second",
            "seconds",
        } <= set(line)
    kept = next(line for line in lines if line["epoch"] == result.epoch)
    assert kept["validation_auroc"] == result.metrics["auroc"] == max(line["validation_auroc"] for line in lines)


def test_the_kept_weights_are_those_that_were_judged_best(trained: tuple[Path, TrainResult], corpus: Path) -> None:
    folder, result = trained
    bundle, network, _ = load_bundle(folder)
    opened = Corpus.open(corpus)
    rows = opened.rows("validation")
    scores = score(network, opened, rows, bundle.spec.features, 7, torch.device("cpu"))
    positive = opened.labels.index("charged")
    from sklearn.metrics import log_loss, roc_auc_score

    assert roc_auc_score(scores.labels == positive, scores.p) == pytest.approx(result.metrics["auroc"])
    # 36 negative and 54 positive chunks of 90 weigh 90/72 and 90/108.
    weight = np.where(scores.labels == positive, 90 / 108, 90 / 72)
    expected = log_loss(scores.labels == positive, scores.p, sample_weight=weight)
    assert result.metrics["loss"] == pytest.approx(expected, rel=1e-4)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(corpus: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        run(corpus, tmp_path / name, seed=seed)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in "abc"]
    assert weights[0] == weights[1] != weights[2]
    assert (tmp_path / "a" / "model.json").read_bytes() == (tmp_path / "b" / "model.json").read_bytes()
    histories = [
        [
            {key: value for key, value in json.loads(line).items() if key not in ("seconds", "chunks_per_second")}
            for line in (tmp_path / name / "history.jsonl").read_text().splitlines()
        ]
        for name in "ab"
    ]
    assert histories[0] == histories[1]


def test_the_result_is_plain_types_and_text(trained: tuple[Path, TrainResult]) -> None:
    folder, result = trained
    content = json.loads(json.dumps(result.to_mapping(), allow_nan=False))
    assert content["path"] == str(folder)
    assert content["num_parameters"] > 1000
    assert content["validation"]["auroc"] == result.metrics["auroc"]
    assert all(isinstance(cell, str) for table in result.tables() for row in table.rows for cell in row)


def test_a_corpus_from_before_indels_were_kept_is_refused_before_training_begins(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = write_planted(tmp_path, (60, 90), recipe=replace(RECIPE, indels=False))
    with caplog.at_level(logging.INFO, logger="leech"), pytest.raises(ConfigError, match="did not keep them"):
        run(data, tmp_path / "model")
    assert "Training:" not in caplog.text
    assert "Weight in the loss" not in caplog.text


def test_counts_weights_and_seed_are_logged(corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="leech"):
        run(corpus, tmp_path / "model", seed=42)
    assert "train: 36 uncharged, 54 charged" in caplog.text
    assert "1.250 per chunk of 'uncharged', 0.833 per chunk of 'charged'" in caplog.text
    assert "seed 42" in caplog.text


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_without_a_gpu_is_refused_and_auto_says_what_it_uses(
    corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigError, match="no usable GPU"):
        run(corpus, tmp_path / "model", device="cuda")
    with caplog.at_level(logging.INFO, logger="leech"):
        run(corpus, tmp_path / "model", device="auto")
    assert "Device: CPU" in caplog.text


def test_an_existing_model_is_kept_unless_forced(corpus: Path, tmp_path: Path) -> None:
    target = tmp_path / "model"
    run(corpus, target)
    before = (target / "model.safetensors").read_bytes()
    with pytest.raises(InputError, match="exists already"):
        run(corpus, target, seed=1)
    assert (target / "model.safetensors").read_bytes() == before
    run(corpus, target, seed=1, force=True)
    assert (target / "model.safetensors").read_bytes() != before


def test_a_failed_run_leaves_nothing_behind(corpus: Path, tmp_path: Path) -> None:
    # So large a rate that the weights overflow.
    with pytest.raises(LeechError, match=r"not changed|not finite"):
        run(corpus, tmp_path / "model", learning_rate=1.0, clip_norm=1e30, epochs=90, weight_decay=10.0, warmup=0.0)
    assert list(tmp_path.iterdir()) == []


def test_a_network_by_file_and_one_that_wants_another_window(corpus: Path, tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(
        'name = "small"\nbase_start = -2\nbase_end = 2\nfeatures = ["level_mean"]\n[[branches]]\nname = "bases"\n'
        'inputs = ["features"]\nlayers = [{ layer = "convolution", channels = 4, kernel = 3 }, { layer = "summary" }]\n'
    )
    result = run(corpus, tmp_path / "model", model=str(file))
    assert load_bundle(result.path).bundle.spec.name == "small"
    with pytest.raises(ConfigError, match="Unknown architecture 'tcm'"):
        run(corpus, tmp_path / "other", model="tcm")
