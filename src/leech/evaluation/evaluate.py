"""A model against reads whose state is known: ``leech eval test``, and what validation during training calls.

Hides: how rows become probabilities, and which artefacts must agree. Belongs here: scoring rows of a corpus and judging a
model folder by them. The metrics lie in ``summary.py`` and ``metrics.py``. Invariants: probabilities come in the order of
the rows and do not depend on the batch size beyond rounding; rows without a label are never scored.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from leech.config import to_mapping
from leech.console import Progress, Table, logger
from leech.data.batches import iterate_batches
from leech.data.corpus import Corpus
from leech.data.recipe import Recipe
from leech.errors import InputError, MismatchError
from leech.evaluation.config import EvalConfig
from leech.evaluation.intervals import parent_codes
from leech.evaluation.summary import Metrics, measure
from leech.models.bundle import ModelBundle, load_bundle
from leech.models.calibration import Calibration
from leech.models.device import choose_device
from leech.models.inference import Predictor, positive_probability
from leech.provenance import Stamp, atomic_file

FORMAT = "leech-metrics"
SCHEMA_VERSION = 1


class Scores(NamedTuple):
    """Scored rows of a corpus, in the order in which they were asked for.

    :ivar rows: int64 (n,).
    :ivar labels: label codes of the corpus, int64 (n,).
    :ivar p: probability of the positive class, float64 (n,), calibrated where a calibration was given.
    :ivar logits: raw logits of the positive class, float64 (n,).
    """

    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    p: NDArray[np.float64]
    logits: NDArray[np.float64]


@dataclass(frozen=True)
class Evaluation:
    """A model judged by one split of a corpus.

    :ivar path: the JSON file that was written.
    """

    path: Path
    model: Path
    data: Path
    split: str
    metrics: Metrics

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        return {
            "format": FORMAT,
            "schema_version": SCHEMA_VERSION,
            # From where the file lies, so that all of it can be moved together.
            "model": os.path.relpath(self.model, self.path.parent),
            "data": os.path.relpath(self.data, self.path.parent),
            "split": self.split,
            **self.metrics.to_mapping(),
        }

    def tables(self) -> list[Table]:
        """Return the metrics, the calls at the operating point and the rows per reference."""
        return self.metrics.tables()


def score(
    network: nn.Module,
    corpus: Corpus,
    rows: NDArray[np.int64],
    features: Sequence[str],
    batch_size: int,
    device: torch.device,
    on_batch: Callable[[int], None] | None = None,
    calibration: Calibration | None = None,
) -> Scores:
    """Run the network over rows of a corpus.

    :param features: feature channels that the network reads.
    :param calibration: that of the model; None gives raw probabilities, as during training.
    :param on_batch: called with the number of rows of each finished batch.
    """
    predictor = Predictor(network, device)
    logits, labels = np.empty(len(rows), dtype=np.float64), np.empty(len(rows), dtype=np.int64)
    done = 0
    for batch in iterate_batches(corpus, rows, batch_size, features):
        place = slice(done, done + len(batch.rows))
        logits[place] = predictor.logits(batch.inputs)[:, 0]
        labels[place] = batch.labels
        done = place.stop
        if on_batch is not None:
            on_batch(len(batch.rows))
    return Scores(rows, labels, positive_probability(logits, calibration), logits)


def evaluate(
    model: Path, data: Path, config: EvalConfig, output: Path, *, force: bool, progress: Progress, stamp: Stamp
) -> Evaluation:
    """Judge a model folder by one split of a corpus, and write the metrics to ``output`` as JSON.

    :raises MismatchError: the corpus was cut by another recipe than the model's, or has a label that the model does not know.
    :raises InputError: no labelled chunks in the split, or a split that the corpus does not have.
    """
    loaded, corpus = load_bundle(model), Corpus.open(data)
    bundle = loaded.bundle
    require_same_recipe(bundle.recipe, corpus, model)
    _require_same_labels(bundle, corpus, model)
    rows = _labelled_rows(corpus, config.split)
    _warn_if_not_unseen(config.split, corpus)
    device = choose_device(config.device)
    with atomic_file(output, force=force) as partial:
        with progress.task("score", unit="chunks", total=len(rows)) as task:
            scores = score(
                loaded.network,
                corpus,
                rows,
                bundle.spec.features,
                config.batch_size,
                device,
                on_batch=task.advance,
                calibration=bundle.calibration,
            )
        columns = corpus.gather(rows, ["parent_id", "reference"])
        metrics = measure(
            np.array([name == bundle.positive_label for name in corpus.labels])[scores.labels],
            scores.p,
            parents=parent_codes(columns["parent_id"]),
            references=columns["reference"],
            reference_names=corpus.categories["reference"],
            labels=(bundle.labels[0], bundle.labels[1]),
            threshold_cl=bundle.threshold_cl,
            num_resamplings=config.bootstrap,
            seed=config.seed,
        )
        evaluation = Evaluation(output, model, data, config.split, metrics)
        content = {
            **evaluation.to_mapping(),
            "corpus_digest": corpus.manifest.digest,
            "settings": to_mapping(config),
            "provenance": stamp.to_mapping(),
        }
        partial.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    return evaluation


def _warn_if_not_unseen(split: str, corpus: Corpus) -> None:
    seen = {"train": "learnt from these reads", "validation": "was chosen by these reads"}
    if split == "all" and corpus.is_split:
        logger.warning(
            "Split 'all' holds reads that a model trained on this corpus learnt from: the figures flatter it."
        )
    elif split in seen:
        logger.warning("A model trained on this corpus %s: the figures flatter it.", seen[split])


def require_same_recipe(recipe: Recipe, corpus: Corpus, model: Path) -> None:
    """Refuse a corpus whose chunks were not cut as the model expects them.

    :raises MismatchError: naming each field that differs, with both values.
    """
    if recipe.digest() == corpus.recipe.digest():
        return
    differing = ", ".join(
        f"{name} (model {expected!r}, corpus {found!r})" for name, expected, found in recipe.differences(corpus.recipe)
    )
    raise MismatchError(
        f"Corpus '{corpus.path}' was cut by another recipe than model '{model}' was trained with: {differing}. Its scores "
        "would mean nothing.",
        hint="Prepare the reads again with the options that the model's corpus was prepared with.",
    )


def _require_same_labels(bundle: ModelBundle, corpus: Corpus, model: Path) -> None:
    # A control of one state is welcome: it gives the share that is called wrongly, though no AUROC.
    if not corpus.labels or not set(corpus.labels) <= set(bundle.labels):
        raise MismatchError(
            f"Corpus '{corpus.path}' has the labels {_listed(corpus.labels)}, model '{model}' tells {_listed(bundle.labels)} "
            "apart.",
            hint="Score a corpus of the same labels, or of one of them.",
        )


def _listed(labels: Sequence[str]) -> str:
    return " and ".join(f"'{label}'" for label in labels) or "(none)"


def _labelled_rows(corpus: Corpus, split: str) -> NDArray[np.int64]:
    rows = corpus.rows(None if split == "all" else split)
    labelled = rows[corpus.gather(rows, ["label"])["label"] >= 0]
    if not len(labelled):
        raise InputError(
            f"Corpus '{corpus.path}' has no labelled chunks in split '{split}', so there is nothing to compare with.",
            hint="Choose another --split, or prepare the reads with --label.",
        )
    if len(labelled) < len(rows):
        logger.warning("%d chunks of split '%s' have no label and are left out.", len(rows) - len(labelled), split)
    return labelled
