"""Making the probabilities of more than two states mean what they say.

Hides: which reads fit and which judge. Belongs here: what ``leech model calibrate`` finds of such a model; reading the reads
and writing the model again are ``evaluation/calibrate.py``'s, for any number of states. Invariants: fitted on the calibration
split alone, judged on the test split; there is no operating point, since the most probable state is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from leech.config import to_mapping
from leech.console import Table
from leech.errors import ConfigError
from leech.evaluation.config import CalibrateConfig
from leech.evaluation.intervals import Estimate
from leech.evaluation.judgement import Judgement
from leech.evaluation.metrics import Floats
from leech.evaluation.multiclass import metrics
from leech.evaluation.multiclass.fit import LabelledClasses, cross_validate, fit
from leech.evaluation.multiclass.summary import ClassCalibratedness, calibration_error, reliability
from leech.evaluation.summary import bootstrap
from leech.models.calibration import CLASS_METHODS, ClassCalibration, calibrated


@dataclass(frozen=True)
class ClassCalibrationResult:
    """What ``leech model calibrate`` found of a model of more than two states.

    :ivar fitted: the calibration, kept or not.
    :ivar losses: cross-validated log loss by method on the calibration split, ``none`` for the raw probabilities.
    :ivar num_reads: by split and label.
    :ivar accuracy: on the test split, before and after: a vector may change calls.
    """

    path: Path
    fitted: ClassCalibration
    losses: dict[str, float]
    num_reads: dict[str, dict[str, int]]
    judgement: Judgement
    accuracy: tuple[float | None, float | None]

    @property
    def kept(self) -> ClassCalibration | None:
        """The calibration, if the model gets it."""
        return self.fitted if self.judgement.is_better else None

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        return {
            "path": str(self.path),
            "kept": self.kept is not None,
            "calibration": to_mapping(self.fitted),
            "log_loss": self.losses,
            "num_reads": self.num_reads,
            "test": {
                **self.judgement.to_mapping(),
                "accuracy": dict(zip(("before", "after"), self.accuracy, strict=True)),
            },
            "operating_point": None,
        }

    def tables(self) -> list[Table]:
        """Return the methods and the judgement."""
        rows = tuple(
            (name, f"{loss:.4f}", self.fitted.describe() if name == self.fitted.method else "")
            for name, loss in self.losses.items()
        )
        left_out = (name for name in CLASS_METHODS if name not in self.losses)
        rows += tuple((name, "", "left out: some of the reads do not suffice to fit it") for name in left_out)
        columns = ("method", "log loss, cross-validated", "")
        judged = self.judgement.table()
        before, after = (Estimate(value).cells()[0] for value in self.accuracy)
        accuracy = ("accuracy", before, "", after, "", "", "")
        return [
            Table(title="Methods on the calibration split", columns=columns, rows=rows),
            Table(title=judged.title, columns=judged.columns, rows=(*judged.rows, accuracy)),
        ]


def calibrate_classes(
    path: Path,
    labels: tuple[str, ...],
    reads: Mapping[str, LabelledClasses],
    corpus_digest: str,
    config: CalibrateConfig,
) -> ClassCalibrationResult:
    """Fit a calibration and judge it.

    :param path: where the calibrated model goes.
    :param reads: of the splits ``calibration`` and ``test``.
    :raises InputError: scores that run against the labels.
    """
    losses = cross_validate(reads["calibration"], config.folds, config.seed)
    asked = [name for name in CLASS_METHODS if name == config.method]
    usable = asked or [name for name in CLASS_METHODS if name in losses] or [CLASS_METHODS[0]]
    # Of equally good ones the first, which has the fewest numbers.
    method = min(usable, key=lambda name: losses.get(name, 0.0))
    fitted = replace(fit(method, reads["calibration"]), corpus_digest=corpus_digest)
    return ClassCalibrationResult(
        path=path,
        fitted=fitted,
        losses=losses,
        num_reads={split: dict(zip(labels, part.counts.tolist(), strict=True)) for split, part in reads.items()},
        judgement=_judge(reads["test"], fitted, config),
        accuracy=_accuracy(reads["test"], fitted),
    )


def require_class_options(config: CalibrateConfig, num_labels: int) -> None:
    """Refuse what cannot be asked of a model of so many states.

    :raises ConfigError: a method for another number of states, or an operating point where there can be none.
    """
    if num_labels == 2:
        if config.method == "vector":
            raise ConfigError(
                "--method vector is for models of more than two states: it scales the logit of each, and two states have one "
                "logit.",
                hint="Use --method platt, which is the same for two states, or auto.",
            )
        return
    if config.method in ("platt", "isotonic"):
        raise ConfigError(
            f"--method {config.method} is for two states, and this model tells {num_labels} apart.",
            hint="Use --method temperature, vector or auto.",
        )
    if config.target is not None:
        raise ConfigError(
            f"--target-{config.target.goal}: a model of {num_labels} states has no operating point, because none of its states "
            "is positive; it calls the most probable one.",
            hint="Leave the target out; 'leech predict --min-confidence' leaves out calls that are not sure enough.",
        )


def _accuracy(reads: LabelledClasses, fitted: ClassCalibration) -> tuple[float | None, float | None]:
    before, after = (
        metrics.share(calibrated(reads.logits, one).argmax(axis=1) == reads.classes) for one in (None, fitted)
    )
    return before, after


def _judge(reads: LabelledClasses, fitted: ClassCalibration, config: CalibrateConfig) -> Judgement:
    truth, both = reads.classes, [calibrated(reads.logits, None), fitted.apply(reads.logits)]

    def figures(weights: Floats) -> tuple[float | None, ...]:
        values = [
            measured(truth, p, weights)
            for p in both
            for measured in (calibration_error, metrics.brier, metrics.log_loss)
        ]
        changes = [
            None if before is None or after is None else after - before
            for before, after in zip(values[:2], values[3:5], strict=True)
        ]
        return (*values, *changes)

    found = bootstrap(figures, reads.parents, config.bootstrap, config.seed)
    before, after = (
        ClassCalibratedness(found[first], found[first + 1], found[first + 2], reliability(truth, p))
        for first, p in zip((0, 3), both, strict=True)
    )
    return Judgement(before, after, found[6], found[7])
