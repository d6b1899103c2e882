"""Making a model's probabilities mean what they say, and choosing where to call: ``leech model calibrate``.

Hides: which reads fit, which reads judge, and what is kept. Belongs here: the command's core and its record; forms are
fitted in ``fit.py``, thresholds chosen in ``thresholds.py``. Invariants: fitted and chosen on the calibration split alone,
judged on the test split; kept only when both the calibration error and the Brier score get better there; weights, network,
recipe and labels stay as they are; the new model stands under its name when it is complete.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from leech.config import to_mapping
from leech.console import Progress, Table, logger
from leech.data.corpus import Corpus
from leech.data.grouping import Groups
from leech.errors import ConfigError, InputError
from leech.evaluation import metrics
from leech.evaluation.config import CalibrateConfig, Target
from leech.evaluation.evaluate import (
    labelled_rows,
    overlap_with_warning,
    require_known_labels,
    require_same_recipe,
    score,
    true_classes,
)
from leech.evaluation.fit import Labelled, cross_validate, fit
from leech.evaluation.intervals import parent_codes
from leech.evaluation.judgement import Judgement
from leech.evaluation.metrics import Bools, Floats
from leech.evaluation.multiclass.calibrate import ClassCalibrationResult, calibrate_classes, require_class_options
from leech.evaluation.multiclass.fit import LabelledClasses
from leech.evaluation.summary import Calibratedness, Calls, bootstrap, measure_calls
from leech.evaluation.thresholds import ScoreCounts, choose
from leech.models.bundle import (
    Achieved,
    CallCounts,
    Figure,
    LoadedModel,
    ModelBundle,
    OperatingPoint,
    copy_bundle,
    load_bundle,
)
from leech.models.calibration import METHODS, Calibration, Method
from leech.models.device import choose_device
from leech.models.inference import positive_probability
from leech.provenance import Stamp, atomic_folder

FILE_NAME = "calibration.json"
FORMAT = "leech-calibration"
SCHEMA_VERSION = 1

CLASSES_FORMAT = "leech-class-calibration"
"""Of models of more than two states; its schema version is 1, too."""

MIN_CLASS_READS = 10
"""Fewer reads of a class than this in the calibration or the test split are refused."""

FEW_CLASS_READS = 100
"""Fewer than this are warned of."""

SPLITS = ("calibration", "test")


@dataclass(frozen=True)
class CalibrationResult:
    """What ``leech model calibrate`` found and made.

    :ivar fitted: the calibration, kept or not.
    :ivar losses: cross-validated log loss by method on the calibration split, ``none`` for the raw probabilities.
    :ivar num_reads: (negative, positive) reads by split.
    :ivar calls: at the operating point, by split, of the probabilities that the model now gives.
    """

    path: Path
    labels: tuple[str, str]
    fitted: Calibration
    losses: dict[str, float]
    num_reads: dict[str, tuple[int, int]]
    judgement: Judgement
    operating_point: OperatingPoint
    calls: dict[str, Calls]

    @property
    def kept(self) -> Calibration | None:
        """The calibration, if the model gets it."""
        return self.fitted if self.judgement.is_better else None

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        return {
            "path": str(self.path),
            "kept": self.kept is not None,
            "calibration": to_mapping(self.fitted),
            "log_loss": self.losses,
            "num_reads": {split: dict(zip(self.labels, count, strict=True)) for split, count in self.num_reads.items()},
            "test": self.judgement.to_mapping(),
            "operating_point": self.operating_point.to_mapping(),
        }

    def tables(self) -> list[Table]:
        """Return the methods, the judgement and the operating point."""
        return [
            Table(
                title="Methods on the calibration split",
                columns=("method", "log loss, cross-validated", ""),
                rows=tuple(
                    (name, f"{loss:.4f}", self.fitted.describe() if name == self.fitted.method else "")
                    for name, loss in self.losses.items()
                ),
            ),
            self.judgement.table(),
            self._operating_point(),
        ]

    def _operating_point(self) -> Table:
        names = ("tpr", "fpr", "precision", "balanced_accuracy", "mcc")
        heads = ("TPR", "FPR", "precision", "balanced accuracy", "MCC")
        rows = tuple(
            (head, *(cell for split in SPLITS for cell in getattr(self.calls[split], name).cells()))
            for head, name in zip(heads, names, strict=True)
        )
        title = f"Positive at cl >= {self.operating_point.threshold_cl} ({self.operating_point.source})"
        interval = "95 % interval"
        return Table(title=title, columns=("", "calibration split", interval, "test split", interval), rows=rows)


def calibrate(
    model: Path,
    data: Path,
    config: CalibrateConfig,
    output: Path | None,
    *,
    force: bool,
    progress: Progress,
    stamp: Stamp,
) -> CalibrationResult | ClassCalibrationResult:
    """Calibrate a model, choose its operating point if it has one, and write it again.

    An operating point chosen earlier for a target is chosen again for that target, where no other is given: its threshold
    was one of other probabilities.

    :param output: folder of the new model; None replaces ``model`` itself, which takes ``force``.
    :raises ConfigError: no ``output`` and no ``force``, or what cannot be asked of a model of so many states.
    :raises InputError: splits that lack reads, scores that run against the labels, or a target out of reach.
    :raises MismatchError: a corpus of another recipe or of other labels than the model's.
    """
    if output is None and not force:
        raise ConfigError(
            f"Where shall the calibrated model go? It would replace '{model}'.",
            hint="Give -o OUT_MODEL, or --force to replace the model itself.",
        )
    loaded, corpus = load_bundle(model), Corpus.open(data)
    bundle = loaded.bundle
    require_class_options(config, len(bundle.labels))
    require_same_recipe(bundle.recipe, corpus, model)
    require_known_labels(bundle, corpus, model)
    target = config.target or _earlier_target(bundle)
    device = choose_device(config.device)
    place, path = (model.resolve(), model) if output is None else (output, output)
    result: CalibrationResult | ClassCalibrationResult
    with atomic_folder(place, force=force) as folder:
        rows = {split: _rows(corpus, split) for split in SPLITS}
        overlap_with_warning(loaded, corpus, np.concatenate(list(rows.values())), SPLITS, model)
        scored = {split: _labelled(loaded, corpus, split, rows[split], config, device, progress) for split in SPLITS}
        if bundle.has_two_states:
            reads = {split: Labelled(part.logits, part.classes == 1, part.parents) for split, part in scored.items()}
            result = _calibrate_two(path, bundle, reads, corpus, target, config)
        else:
            result = calibrate_classes(path, bundle.labels, scored, corpus.manifest.digest, config)
        kept = result.kept
        if kept is None:
            logger.warning("The calibration made ECE or Brier score worse on the test split, so it is not kept.")
        point = result.operating_point if isinstance(result, CalibrationResult) else None
        copy_bundle(model, folder, calibration=kept, operating_point=point)
        _write_record(folder, result, corpus, config, stamp)
    return result


def _calibrate_two(
    path: Path,
    bundle: ModelBundle,
    reads: Mapping[str, Labelled],
    corpus: Corpus,
    target: Target | None,
    config: CalibrateConfig,
) -> CalibrationResult:
    method, losses = _choose_method(reads["calibration"], config)
    fitted = replace(fit(method, reads["calibration"]), corpus_digest=corpus.manifest.digest)
    judgement = _judge(reads["test"], fitted, config)
    kept = fitted if judgement.is_better else None
    point, calls = _operating_point(bundle, reads, _references(corpus), kept, target, config)
    return CalibrationResult(
        path=path,
        labels=bundle.two_labels,
        fitted=fitted,
        losses=losses,
        num_reads={split: _class_counts(part) for split, part in reads.items()},
        judgement=judgement,
        operating_point=point,
        calls=calls,
    )


def _write_record(
    folder: Path,
    result: CalibrationResult | ClassCalibrationResult,
    corpus: Corpus,
    config: CalibrateConfig,
    stamp: Stamp,
) -> None:
    content = {name: value for name, value in result.to_mapping().items() if name != "path"}
    record = {
        "format": FORMAT if isinstance(result, CalibrationResult) else CLASSES_FORMAT,
        "schema_version": SCHEMA_VERSION,
        **content,
        "corpus_digest": corpus.manifest.digest,
        "settings": to_mapping(config),
        "provenance": stamp.to_mapping(),
    }
    (folder / FILE_NAME).write_text(json.dumps(record, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _earlier_target(bundle: ModelBundle) -> Target | None:
    point = bundle.operating_point
    target = None if point is None else point.target
    if target is None:
        if point is not None and point.source != "default":
            logger.warning(
                "The operating point cl >= %d (%s) is kept, though the probabilities may change under it.",
                point.threshold_cl,
                point.source,
            )
        return None
    ((goal, value),) = target.items()
    earlier = Target(goal, value)  # type: ignore[arg-type]
    logger.info("The operating point is chosen anew for the target of the model: %s.", earlier.describe())
    return earlier


def _rows(corpus: Corpus, split: str) -> NDArray[np.int64]:
    """Return the rows of a split that have a label."""
    if not corpus.is_split or not len(corpus.rows(split)):
        raise InputError(
            f"Corpus '{corpus.path}' has no {split} split, and calibrating needs reads that neither training nor the choice "
            "of weights saw.",
            hint="Divide it so, and train on that: 'leech data merge CORPUS... -o OUT --split 0.6 0.15 0.15 0.1'.",
        )
    return labelled_rows(corpus, split)


def _labelled(
    loaded: LoadedModel,
    corpus: Corpus,
    split: str,
    rows: NDArray[np.int64],
    config: CalibrateConfig,
    device: torch.device,
    progress: Progress,
) -> LabelledClasses:
    """Return the raw logits of a split's reads, of two states or more, with truth and parents."""
    bundle = loaded.bundle
    with progress.task(f"score {split}", unit="chunks", total=len(rows)) as task:
        scores = score(
            loaded.network, corpus, rows, bundle.spec.features, config.batch_size, device, on_batch=task.advance
        )
    parents = parent_codes(corpus.gather(rows, ["parent_id"])["parent_id"])
    reads = LabelledClasses(scores.logits, true_classes(bundle, corpus, scores), parents)
    for number, name in enumerate(bundle.labels):
        # Children of one parent read are one draw from the library, however many they are.
        count = len(np.unique(parents[reads.classes == number]))
        if count < MIN_CLASS_READS:
            raise InputError(
                f"Corpus '{corpus.path}' has {count} reads of '{name}' in its {split} split, and at least {MIN_CLASS_READS} "
                "are needed to say anything about probabilities.",
                hint="Add reads of that label, or merge again with other shares in --split.",
            )
        if count < FEW_CLASS_READS:
            logger.warning("Only %d reads of '%s' in the %s split: expect wide intervals.", count, name, split)
    return reads


def _class_counts(reads: Labelled) -> tuple[int, int]:
    num_positive = int(reads.positive.sum())
    return len(reads.positive) - num_positive, num_positive


def _choose_method(reads: Labelled, config: CalibrateConfig) -> tuple[Method, dict[str, float]]:
    """Return the method asked for, or the one of least log loss, and the losses of all."""
    losses = cross_validate(reads, config.folds, config.seed)
    asked = next((method for method in METHODS if method == config.method), None)
    if asked is not None:
        return asked, losses
    usable = [method for method in METHODS if method in losses]
    # Of equally good ones the first, which has the fewest numbers.
    return min(usable, key=lambda method: losses[method], default=METHODS[0]), losses


def _judge(reads: Labelled, fitted: Calibration, config: CalibrateConfig) -> Judgement:
    before, after = positive_probability(reads.logits, None), fitted.apply(reads.logits)

    def figures(weights: Floats) -> tuple[float | None, ...]:
        values = [
            measure(reads.positive, p, weights)
            for measure in (metrics.expected_calibration_error, metrics.brier)
            for p in (before, after)
        ]
        ece_before, ece_after, brier_before, brier_after = (np.nan if value is None else value for value in values)
        return ece_before, brier_before, ece_after, brier_after, ece_after - ece_before, brier_after - brier_before

    found = bootstrap(figures, reads.parents, config.bootstrap, config.seed)
    return Judgement(
        before=Calibratedness(found[0], found[1], metrics.reliability(reads.positive, before)),
        after=Calibratedness(found[2], found[3], metrics.reliability(reads.positive, after)),
        ece_change=found[4],
        brier_change=found[5],
    )


def _operating_point(
    bundle: ModelBundle,
    reads: Mapping[str, Labelled],
    references: Mapping[str, Groups],
    calibration: Calibration | None,
    target: Target | None,
    config: CalibrateConfig,
) -> tuple[OperatingPoint, dict[str, Calls]]:
    """Return the operating point with what it achieves, and the calls there by split.

    :param references: of the reads, by split.
    """
    point = bundle.operating_point or OperatingPoint()
    p = {split: positive_probability(part.logits, calibration) for split, part in reads.items()}
    if target is not None:
        counts = ScoreCounts.of(reads["calibration"].positive, p["calibration"])
        _warn_if_too_few(target, reads["calibration"])
        source = f"{target.describe()} on the calibration split"
        point = OperatingPoint(choose(counts, target), source, {target.goal: target.value})
    calls = {
        split: measure_calls(part.positive, p[split], point.threshold_cl, part.parents, config.bootstrap, config.seed)
        for split, part in reads.items()
    }
    achieved = {
        split: _achieved(found, _by_reference(reads[split].positive, p[split], point.threshold_cl, references[split]))
        for split, found in calls.items()
    }
    return replace(point, achieved=achieved), calls


def _references(corpus: Corpus) -> dict[str, Groups]:
    """Return the references of the labelled reads of every split."""
    found = {}
    for split in SPLITS:
        columns = corpus.gather(corpus.rows(split), ["reference", "label"])
        codes = columns["reference"][columns["label"] >= 0].astype(np.int64)
        found[split] = Groups("reference", codes, corpus.categories["reference"])
    return found


def _by_reference(positive: Bools, p: Floats, threshold_cl: int, references: Groups) -> dict[str, CallCounts]:
    called = metrics.called_positive(p, threshold_cl)
    cells = [positive & called, ~positive & called, ~positive & ~called, positive & ~called]
    tp, fp, tn, fn = (np.bincount(references.codes[cell], minlength=len(references.names)) for cell in cells)
    return {
        references.names[code]: CallCounts(tp=int(tp[code]), fp=int(fp[code]), tn=int(tn[code]), fn=int(fn[code]))
        for code in np.unique(references.codes).tolist()
    }


def _achieved(calls: Calls, references: dict[str, CallCounts]) -> Achieved:
    counts = calls.confusion
    num_positive = int(counts.tp + counts.fn)
    figures = {
        name: Figure(figure.value, None if figure.interval is None else tuple(figure.interval))
        for name in ("tpr", "fpr", "precision", "balanced_accuracy", "mcc", "f1")
        for figure in [getattr(calls, name)]
    }
    return Achieved(
        num_reads=num_positive + int(counts.fp + counts.tn),
        num_positive=num_positive,
        tp=int(counts.tp),
        fp=int(counts.fp),
        tn=int(counts.tn),
        fn=int(counts.fn),
        references=references,
        **figures,
    )


def _warn_if_too_few(target: Target, reads: Labelled) -> None:
    num_negative, num_positive = _class_counts(reads)
    size, allowed = {
        "fpr": (num_negative, target.value),
        "precision": (num_positive, 1 - target.value),
        "recall": (num_positive, 1 - target.value),
    }[target.goal]
    if 0 < allowed * size < 1:
        logger.warning(
            "%s allows less than one error among %d reads of the calibration split: the threshold hangs on single reads.",
            target.describe(),
            size,
        )
