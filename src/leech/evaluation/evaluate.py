"""A model against reads whose state is known: ``leech eval test``, and what validation during training calls.

Hides: how rows become probabilities, and which artefacts must agree. Belongs here: scoring rows of a corpus and judging a
model folder by them. The metrics lie in ``summary.py`` and ``metrics.py``. Invariants: probabilities come in the order of
the rows and do not depend on the batch size beyond rounding; rows without a label are never scored.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
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
from leech.errors import ConfigError, InputError, MismatchError
from leech.evaluation.config import EvalConfig
from leech.evaluation.groups import corpus_groups
from leech.evaluation.intervals import parent_codes
from leech.evaluation.multiclass.scores import write_class_scores
from leech.evaluation.multiclass.summary import ClassMetrics
from leech.evaluation.multiclass.summary import measure as measure_classes
from leech.evaluation.scores import read_scores, require_tsv, write_scores
from leech.evaluation.summary import Metrics, measure
from leech.models.bundle import LoadedModel, ModelBundle, load_bundle
from leech.models.calibration import AnyCalibration, calibrated
from leech.models.device import choose_device
from leech.models.inference import Predictor
from leech.models.learnt import Comparison, Overlap, warn_if_learnt
from leech.provenance import Stamp, atomic_file, refuse_input_as_output

FORMAT = "leech-metrics"
SCHEMA_VERSION = 2

CLASSES_FORMAT = "leech-class-metrics"
"""Of models of more than two states, whose metrics are others."""

CLASSES_VERSION = 1


class Scores(NamedTuple):
    """Scored rows of a corpus, in the order in which they were asked for.

    :ivar rows: int64 (n,).
    :ivar labels: label codes of the corpus, int64 (n,).
    :ivar p: probability of the positive class, float64 (n,), or of each of K > 2 classes, (n, K); calibrated where a
        calibration was given.
    :ivar logits: raw logits of the positive class, float64 (n,), or of each of K > 2 classes, (n, K).
    """

    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    p: NDArray[np.float64]
    logits: NDArray[np.float64]


@dataclass(frozen=True)
class Evaluation:
    """A model judged by one split of a corpus.

    :ivar path: the JSON file that was written.
    :ivar calibration: method of the model's calibration; None where it is not calibrated.
    :ivar threshold_source: who chose the operating point; None where more than two states have none.
    """

    path: Path
    model: Path
    data: Path
    split: str
    calibration: str | None
    threshold_source: str | None
    metrics: Metrics | ClassMetrics

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        of_two = isinstance(self.metrics, Metrics)
        return {
            "format": FORMAT if of_two else CLASSES_FORMAT,
            "schema_version": SCHEMA_VERSION if of_two else CLASSES_VERSION,
            # From where the file lies, so that all of it can be moved together.
            "model": os.path.relpath(self.model, self.path.parent),
            "data": os.path.relpath(self.data, self.path.parent),
            "split": self.split,
            "calibration": self.calibration,
            **({"threshold_source": self.threshold_source} if of_two else {}),
            **self.metrics.to_mapping(),
        }

    def tables(self) -> list[Table]:
        """Return the metrics, the calls at the operating point, the best thresholds and the rows per group."""
        return self.metrics.tables()


def score(
    network: nn.Module,
    corpus: Corpus,
    rows: NDArray[np.int64],
    features: Sequence[str],
    batch_size: int,
    device: torch.device,
    on_batch: Callable[[int], None] | None = None,
    calibration: AnyCalibration | None = None,
) -> Scores:
    """Run the network over rows of a corpus.

    :param features: feature channels that the network reads.
    :param calibration: that of the model; None gives raw probabilities, as during training.
    :param on_batch: called with the number of rows of each finished batch.
    """
    predictor = Predictor(network, device)
    blocks, labels = [np.empty((0, 1))], [np.empty(0, dtype=np.int64)]
    for batch in iterate_batches(corpus, rows, batch_size, features):
        blocks.append(predictor.logits(batch.inputs))
        labels.append(batch.labels)
        if on_batch is not None:
            on_batch(len(batch.rows))
    logits = np.concatenate(blocks[1:] or blocks)
    logits = logits[:, 0] if logits.shape[1] == 1 else logits
    return Scores(rows, np.concatenate(labels), calibrated(logits, calibration), logits)


def evaluate(
    model: Path, data: Path, config: EvalConfig, output: Path, *, force: bool, progress: Progress, stamp: Stamp
) -> Evaluation:
    """Judge a model folder by one split of a corpus, and write the metrics to ``output`` as JSON.

    :raises MismatchError: the corpus was cut by another recipe than the model's, or has a label that the model does not know.
    :raises InputError: no labelled chunks in the split, or a split that the corpus does not have.
    :raises ConfigError: scores asked for in a format that is not written.
    """
    if config.scores is not None:
        require_tsv(config.scores)
        if config.scores.resolve() == output.resolve():
            raise ConfigError(f"Scores and metrics cannot both be written to '{output}'.")
        refuse_input_as_output(config.scores, [model, data])
    loaded, corpus = load_bundle(model), Corpus.open(data)
    bundle = loaded.bundle
    require_same_recipe(bundle.recipe, corpus, model)
    require_known_labels(bundle, corpus, model)
    rows = labelled_rows(corpus, config.split)
    overlap = overlap_with_warning(loaded, corpus, rows, [config.split], model)
    if overlap.state == "unknown":
        _warn_if_not_unseen(config.split, corpus)
    device = choose_device(config.device)
    with ExitStack() as stack:
        partial = stack.enter_context(atomic_file(output, force=force))
        table = None if config.scores is None else stack.enter_context(atomic_file(config.scores, force=force))
        with progress.task("score", unit="chunks", total=len(rows)) as task:
            scores = score_model(loaded, corpus, rows, config.batch_size, device, task.advance)
        metrics = _measure(bundle, corpus, rows, scores, config)
        if table is not None and config.scores is not None:
            _write_table(table, config.scores, bundle, corpus, rows, scores)
        method = None if bundle.calibration is None else bundle.calibration.method
        source = None if bundle.operating_point is None else bundle.operating_point.source
        evaluation = Evaluation(output, model, data, config.split, method, source, metrics)
        content = {
            **evaluation.to_mapping(),
            "corpus_digest": corpus.manifest.digest,
            "learnt_from": overlap.to_mapping(),
            "settings": to_mapping(config),
            "provenance": stamp.to_mapping(),
        }
        partial.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    return evaluation


def _measure(
    bundle: ModelBundle, corpus: Corpus, rows: NDArray[np.int64], scores: Scores, config: EvalConfig
) -> Metrics | ClassMetrics:
    parents = parent_codes(corpus.gather(rows, ["parent_id"])["parent_id"])
    uncalibrated = _uncalibrated(bundle, scores)
    if not bundle.has_two_states:
        return measure_classes(
            true_classes(bundle, corpus, scores),
            scores.p,
            parents=parents,
            groups=corpus_groups(corpus, rows),
            labels=bundle.labels,
            uncalibrated=uncalibrated,
            num_resamplings=config.bootstrap,
            seed=config.seed,
        )
    return measure(
        is_labelled_positive(bundle, corpus, scores),
        scores.p,
        parents=parents,
        groups=corpus_groups(corpus, rows),
        labels=bundle.two_labels,
        threshold_cl=bundle.threshold_cl,
        target_fpr=config.target_fpr,
        uncalibrated=uncalibrated,
        num_resamplings=config.bootstrap,
        seed=config.seed,
    )


def _uncalibrated(bundle: ModelBundle, scores: Scores) -> NDArray[np.float64] | None:
    return None if bundle.calibration is None else calibrated(scores.logits, None)


def _write_table(
    path: Path, name: Path, bundle: ModelBundle, corpus: Corpus, rows: NDArray[np.int64], scores: Scores
) -> None:
    if not bundle.has_two_states:
        write_class_scores(path, name, corpus, rows, scores.p, bundle.labels)
        return
    named = read_scores(corpus, rows, scores.p, bundle.two_labels, bundle.threshold_cl)
    write_scores(path, name, named, corpus, rows, _uncalibrated(bundle, scores))


def score_model(
    loaded: LoadedModel,
    corpus: Corpus,
    rows: NDArray[np.int64],
    batch_size: int,
    device: torch.device,
    on_batch: Callable[[int], None],
) -> Scores:
    """Score rows of a corpus as the model folder says, calibration included; parameters as of :func:`score`."""
    bundle = loaded.bundle
    return score(
        loaded.network,
        corpus,
        rows,
        bundle.spec.features,
        batch_size,
        device,
        on_batch=on_batch,
        calibration=bundle.calibration,
    )


def is_labelled_positive(bundle: ModelBundle, corpus: Corpus, scores: Scores) -> NDArray[np.bool_]:
    """Return which scored rows have the model's positive label, bool (n,)."""
    return np.array([name == bundle.positive_label for name in corpus.labels])[scores.labels]


def true_classes(bundle: ModelBundle, corpus: Corpus, scores: Scores) -> NDArray[np.int64]:
    """Return the class of each scored row, int64 (n,), as a position in the model's labels."""
    return np.array([bundle.labels.index(name) for name in corpus.labels], dtype=np.int64)[scores.labels]


def compare_with_learnt(loaded: LoadedModel, corpus: Corpus, rows: NDArray[np.int64], splits: Sequence[str]) -> Overlap:
    """Return whether the model learnt from these rows; of its own corpus the splits tell that it did not.

    :param splits: in which the rows lie; ``all`` where they may lie in any.
    """
    comparison = Comparison(loaded.learnt)
    found = corpus.gather(rows, ["parent_id", "run"])
    comparison.see(found["parent_id"], (corpus.categories["run"][code] for code in np.unique(found["run"])))
    is_its_own = loaded.bundle.training.get("corpus_digest") == corpus.manifest.digest
    return comparison.result(kept_apart=is_its_own and {*splits} <= {"calibration", "test"})


def overlap_with_warning(
    loaded: LoadedModel, corpus: Corpus, rows: NDArray[np.int64], splits: Sequence[str], model: Path
) -> Overlap:
    """Do what :func:`compare_with_learnt` does, and warn unless the model is known not to have learnt from these rows."""
    overlap = compare_with_learnt(loaded, corpus, rows, splits)
    warn_if_learnt(overlap, model)
    if overlap.state == "unknown":
        _warn_if_not_its_own(loaded.bundle, corpus, model)
    return overlap


def _warn_if_not_unseen(split: str, corpus: Corpus) -> None:
    seen = {"train": "learnt from these reads", "validation": "was chosen by these reads"}
    if split == "all" and corpus.is_split:
        logger.warning(
            "Split 'all' holds reads that a model trained on this corpus learnt from: the figures flatter it."
        )
    elif split in seen:
        logger.warning("A model trained on this corpus %s: the figures flatter it.", seen[split])


def _warn_if_not_its_own(bundle: ModelBundle, corpus: Corpus, model: Path) -> None:
    """Say when a corpus is not the one that a model was trained on, whose splits are known to be apart."""
    trained_on = bundle.training.get("corpus_digest")
    if trained_on is not None and trained_on != corpus.manifest.digest:
        logger.warning(
            "Corpus '%s' is not the one that model '%s' was trained on: make sure that it learnt from none of these reads.",
            corpus.path,
            model,
        )


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
        hint="Prepare the reads again with the options that the model's corpus was prepared with; what went without saying "
        "before leech placed boundaries and kept indels is --refinement none --no-indels.",
    )


def require_known_labels(bundle: ModelBundle, corpus: Corpus, model: Path) -> None:
    """Refuse a corpus with a label that the model does not know.

    :raises MismatchError: naming the labels of both.
    """
    # A control of one state is welcome: it gives the share that is called wrongly, though no AUROC.
    if not corpus.labels or not set(corpus.labels) <= set(bundle.labels):
        raise MismatchError(
            f"Corpus '{corpus.path}' has the labels {_listed(corpus.labels)}, model '{model}' tells {_listed(bundle.labels)} "
            "apart.",
            hint="Score a corpus of the same labels, or of some of them.",
        )


def _listed(labels: Sequence[str]) -> str:
    return " and ".join(f"'{label}'" for label in labels) or "(none)"


def labelled_rows(corpus: Corpus, split: str) -> NDArray[np.int64]:
    """Return the rows of a split that have a label, ascending; those without are told of.

    :param split: ``all`` for every row of the corpus.
    :raises InputError: there are none.
    """
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
