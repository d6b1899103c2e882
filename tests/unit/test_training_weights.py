"""Weights of corpora in the training loss."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from leech.config import build
from leech.data.batches import Inputs, iterate_batches
from leech.data.compose import merge
from leech.data.config import MergeConfig
from leech.data.corpus import Corpus
from leech.models.noise import Draw
from leech.training.checks import examine
from leech.training.config import TrainConfig
from leech.training.task import ClassificationTask, make_task
from leech.training.world import World
from planted import STAMP, planted_chunks, write_chunks


class Certain(nn.Module):
    """Gives every chunk the same logit."""

    def __init__(self) -> None:
        super().__init__()
        self.output = nn.Linear(1, 1, bias=False)
        nn.init.ones_(self.output.weight)

    def summarise(self, inputs: Inputs, draw: Draw | None) -> torch.Tensor:
        return torch.ones(len(inputs.signal), 1)

    def forward(self, inputs: Inputs) -> torch.Tensor:
        return self.output(self.summarise(inputs, None))


def task(folder: Path, weights: list[str], **values: object) -> ClassificationTask:
    """Return the task over 20 uncharged, 20 charged and 10 more charged chunks."""
    sources = [
        write_chunks(folder / name, planted_chunks(count, label=label, strength=1, seed=seed))
        for seed, (name, label, count) in enumerate(
            [("low", "uncharged", 20), ("high", "charged", 20), ("more", "charged", 10)]
        )
    ]
    given = [f"{folder / weight}" for weight in weights]
    config = build(MergeConfig, {"positive_label": "charged", "split": [0.5, 0.5, 0.0], "weight": given})
    merge(sources, config, folder / "merged", force=False, stamp=STAMP)
    corpus = Corpus.open(folder / "merged")
    return make_task(corpus, examine(corpus, None), Certain(), (), build(TrainConfig, values))


def sums(work: ClassificationTask) -> tuple[float, float]:
    """Return the loss of the whole training split as a sum, and its weight."""
    (batch,) = iterate_batches(work.corpus, work.epoch_rows(0), 1000, ())
    draw = Draw(torch.from_numpy(batch.rows), 0)
    (total,) = work.losses(work.module, batch.inputs, batch, draw, 0.0).tolist()
    (weight,) = work.weights(batch).tolist()
    return total, weight


def test_a_chunk_counts_as_often_as_its_corpus_weighs(tmp_path: Path) -> None:
    work = task(tmp_path, ["more=3"], class_weights="none")
    rows = work.epoch_rows(0)
    columns = work.corpus.gather(rows, ["label"])
    charged = columns["label"] == work.corpus.labels.index("charged")
    heavy = work.corpus.weights(rows) == 3
    assert 0 < heavy.sum() < charged.sum() == 15
    assert not (heavy & ~charged).any()
    # A logit of 1 costs log(1 + 1/e) = 0.3133 where it is right and 1.3133 where it is wrong.
    right, wrong = np.log1p(np.exp(-1)), np.log1p(np.exp(1))
    weight = 10 + (charged & ~heavy).sum() + 3 * heavy.sum()
    assert sums(work) == pytest.approx((10 * wrong + (weight - 10) * right, weight), rel=1e-5)


def test_classes_are_balanced_by_what_they_weigh(tmp_path: Path) -> None:
    work = task(tmp_path, ["more=3", "high=0.5"])
    rows = work.epoch_rows(0)
    charged = work.corpus.gather(rows, ["label"])["label"] == work.corpus.labels.index("charged")
    total = work.corpus.weights(rows).sum()
    right, wrong = np.log1p(np.exp(-1)), np.log1p(np.exp(1))
    # Half of all weight is for either class, so the mean loss is the mean of both.
    loss, weight = sums(work)
    assert weight == pytest.approx(total, rel=1e-5)
    assert loss / weight == pytest.approx((right + wrong) / 2, rel=1e-5)
    assert charged.sum() == 15
    # Validation is weighted alike; its shares of weight need not be those of training.
    ours = work.validate(work.network, World()).metrics["loss"]
    assert ours is not None
    validation = examine(work.corpus, None).validation
    positive = work.corpus.gather(validation, ["label"])["label"] == work.corpus.labels.index("charged")
    per_class = np.where(positive, total / 2 / work.corpus.weights(rows)[charged].sum(), total / 2 / 10)
    weights = per_class * work.corpus.weights(validation)
    assert ours == pytest.approx(np.sum(np.where(positive, right, wrong) * weights) / weights.sum(), rel=1e-5)


def test_equal_weights_change_nothing(tmp_path: Path) -> None:
    plain = sums(task(tmp_path / "a", []))
    assert sums(task(tmp_path / "b", ["low=1", "high=1", "more=1"])) == plain


def test_a_group_of_one_class_is_named_where_both_are_to_be_drawn_equally_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sources = []
    for number, label in enumerate(("uncharged", "charged")):
        chunks = planted_chunks(20, label=label, strength=1, seed=number)
        # Uncharged chunks are of one tRNA, charged ones of both.
        chunks.columns["reference"][:] = np.arange(20) % 2 * number
        sources.append(write_chunks(tmp_path / label, chunks))
    merge(
        sources,
        build(MergeConfig, {"positive_label": "charged", "split": [0.5, 0.5, 0.0]}),
        tmp_path / "merged",
        force=False,
        stamp=STAMP,
    )
    corpus = Corpus.open(tmp_path / "merged")
    states = examine(corpus, None)
    monkeypatch.setattr("leech.console.logger.propagate", True)

    def said(**values: object) -> str:
        caplog.clear()
        with caplog.at_level("WARNING", logger="leech"):
            make_task(corpus, states, Certain(), (), build(TrainConfig, values))
        return caplog.text

    assert "reference have one class only" in (found := said(oversample_minority=True, balance_by="reference"))
    assert found.rstrip().endswith("'tRNA-B'.")
    assert said(oversample_minority=True, balance_by="run") == ""
    assert said(balance_by="reference") == ""


class First(Certain):
    """Gives each chunk the logits 1, 0 and 0."""

    def __init__(self) -> None:
        super().__init__()
        self.output = nn.Linear(1, 3, bias=False)
        with torch.no_grad():
            self.output.weight.copy_(torch.tensor([[1.0], [0.0], [0.0]]))


def three(folder: Path, **values: object) -> ClassificationTask:
    """Return the task over 20 a, 10 b and 6 c, half of them for training; c is of one tRNA only."""
    sources = []
    for seed, (label, count) in enumerate({"a": 20, "b": 10, "c": 6}.items()):
        chunks = planted_chunks(count, label=label, strength=1, seed=seed)
        if label == "c":
            chunks.columns["reference"][:] = 0
        sources.append(write_chunks(folder / label, chunks))
    config = build(MergeConfig, {"split": [0.5, 0.5, 0.0], "weight": [f"{folder / 'b'}=2"]})
    merge(sources, config, folder / "merged", force=False, stamp=STAMP)
    corpus = Corpus.open(folder / "merged")
    return make_task(corpus, examine(corpus, None), First(), (), build(TrainConfig, values))


RIGHT, WRONG = np.log(np.e + 2) - 1, np.log(np.e + 2)
"""What the logits 1, 0 and 0 cost where the truth is the first class, and where it is another."""


def test_three_classes_are_balanced_by_what_they_weigh_too(tmp_path: Path) -> None:
    # 10 of a, 5 of b that count twice, 3 of c: a third of 23 for each.
    work = three(tmp_path)
    loss, weight = sums(work)
    assert weight == pytest.approx(23)
    assert loss / weight == pytest.approx((RIGHT + 2 * WRONG) / 3, rel=1e-5)
    found = work.validate(work.network, World())
    assert found is not None
    metrics = found.metrics
    assert metrics["loss"] == pytest.approx((RIGHT + 2 * WRONG) / 3, rel=1e-5)
    # All chunks score alike, and all are called a.
    assert (metrics["auroc"], metrics["balanced_accuracy"]) == (0.5, pytest.approx(1 / 3))
    # Every read lies amid the others, so none moves the AUROC.
    assert found.judgement.value == 0.5
    assert found.judgement.influences.tolist() == [0] * 18


def test_unbalanced_classes_weigh_what_their_sources_do(tmp_path: Path) -> None:
    loss, weight = sums(three(tmp_path, class_weights="none"))
    assert weight == pytest.approx(10 + 2 * 5 + 3)
    assert loss == pytest.approx(10 * RIGHT + 13 * WRONG, rel=1e-5)


def test_three_classes_are_drawn_equally_often_and_what_lacks_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("leech.console.logger.propagate", True)
    with caplog.at_level("WARNING", logger="leech"):
        work = three(tmp_path, oversample_minority=True, balance_by="reference")
    assert "reference have some of the classes only" in caplog.text
    assert caplog.text.rstrip().endswith("'tRNA-B'.")
    rows = three(tmp_path / "plain", oversample_minority=True).epoch_rows(0)
    assert len(rows) == 18
    drawn = work.corpus.gather(rows, ["label"])["label"]
    assert np.bincount(drawn).tolist() == [6, 6, 6]
