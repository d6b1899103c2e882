"""All metrics of one set of scored reads of more than two states, as a value that people and programs read.

Hides: which metrics there are and how they are laid out. Belongs here: putting the metrics of ``metrics.py`` together, as
plain types and as tables; groups of reads are in ``groups.py``, two states in ``evaluation/summary.py``. Invariants: the call
of a read is its most probable class, of equally probable ones the first; the value depends on the reads, the number of
resamplings and the seed alone; what the reads do not define is None.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leech.console import Table
from leech.data.grouping import Groups
from leech.evaluation import metrics as of_two
from leech.evaluation.intervals import Estimate, cell, share_interval
from leech.evaluation.metrics import Floats, ReliabilityBin
from leech.evaluation.multiclass import metrics
from leech.evaluation.multiclass.groups import ClassGrouping, measure_groups
from leech.evaluation.multiclass.metrics import Classes, OneVersusRest
from leech.evaluation.summary import bootstrap


@dataclass(frozen=True)
class ClassCalibratedness:
    """How far probabilities are from what is true.

    :ivar ece: expected calibration error of the probability of the call, over the bins of ``reliability``.
    :ivar brier: summed over classes, 0 to 2.
    :ivar reliability: by the probability of the call; ``share_positive`` is the share of right calls.
    """

    ece: Estimate
    brier: Estimate
    log_loss: Estimate
    reliability: tuple[ReliabilityBin, ...]

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        return {
            "ece": self.ece.to_mapping(),
            "brier": self.brier.to_mapping(),
            "log_loss": self.log_loss.to_mapping(),
            "reliability": [
                {"low": low, "high": high, "num_reads": number, "mean_p": mean, "share_right": right}
                for low, high, number, mean, right in self.reliability
            ],
        }


@dataclass(frozen=True)
class ClassFigures:
    """One class against the rest.

    :ivar prevalence: its share of the reads, which is its AUPRC by chance.
    :ivar recall: share of its reads that are called so; ``precision`` is that of its calls that are right.
    """

    label: str
    num_reads: int
    prevalence: float | None
    auroc: Estimate
    auprc: Estimate
    recall: Estimate
    precision: Estimate
    f1: Estimate

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        figures = ("auroc", "auprc", "recall", "precision", "f1")
        return {
            "num_reads": self.num_reads,
            "prevalence": self.prevalence,
            **{name: getattr(self, name).to_mapping() for name in figures},
        }


_OVERALL = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "macro_f1": "macro F1",
    "mcc": "MCC",
    "macro_auroc": "macro AUROC",
    "macro_auprc": "macro AUPRC",
}
"""Figures over all classes, and how they are called."""

_MOST_TOP = 5
"""Largest k of which a terminal shows the top-k accuracy; the file has all."""

_MOST_WORDS = 6
"""Labels up to which a terminal has room for words beside each name in the table of calls."""


@dataclass(frozen=True)
class ClassMetrics:
    """Metrics of a set of reads; intervals are 95 %, from resampled parent reads unless a field says otherwise.

    :ivar overall: by the names of ``_OVERALL``; macro is the mean over classes, of each against the rest.
    :ivar top_k: share of reads whose class is among the k most probable, by k from 2 to K - 1.
    :ivar confusion: reads by truth (rows) and call (columns).
    :ivar calibratedness: of the probabilities that everything else is measured on.
    :ivar uncalibrated: of those before calibration; None where there is none.
    """

    labels: tuple[str, ...]
    num_reads: int
    num_parents: int
    overall: dict[str, Estimate]
    top_k: dict[int, Estimate]
    classes: tuple[ClassFigures, ...]
    confusion: tuple[tuple[int, ...], ...]
    calibratedness: ClassCalibratedness
    uncalibrated: ClassCalibratedness | None
    groupings: tuple[ClassGrouping, ...]

    @property
    def worst_group(self) -> tuple[str, str] | None:
        """Kind and name of the group of lowest macro AUROC, of all kinds with several groups that have enough reads."""
        kinds = [kind for kind in self.groupings if sum(group.can_be_worst for group in kind.groups) > 1]
        worst = [(group.auroc, kind.name, group.name) for kind in kinds if (group := kind.worst)]
        return min(worst, key=lambda entry: entry[0] or 0.0)[1:] if worst else None

    def grouping(self, name: str) -> ClassGrouping:
        """Return the groups of one kind."""
        return next(kind for kind in self.groupings if kind.name == name)

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON; what the reads do not define is null."""
        worst = self.worst_group
        return {
            "labels": list(self.labels),
            "num_reads": self.num_reads,
            "num_parents": self.num_parents,
            **{name: estimate.to_mapping() for name, estimate in self.overall.items()},
            "top_k_accuracy": {str(k): estimate.to_mapping() for k, estimate in self.top_k.items()},
            "classes": {one.label: one.to_mapping() for one in self.classes},
            "confusion": {
                truth: dict(zip(self.labels, row, strict=True))
                for truth, row in zip(self.labels, self.confusion, strict=True)
            },
            **self.calibratedness.to_mapping(),
            "uncalibrated": None if self.uncalibrated is None else self.uncalibrated.to_mapping(),
            "groups": {kind.name: [group.to_mapping() for group in kind.groups] for kind in self.groupings},
            "ungrouped": {kind.name: kind.num_ungrouped for kind in self.groupings},
            "worst_groups": {kind.name: kind.worst.name if kind.worst else None for kind in self.groupings},
            "worst_group": None if worst is None else {"grouping": worst[0], "name": worst[1]},
        }

    def tables(self) -> list[Table]:
        """Return the metrics over all classes, by class, the calls and the rows per group.

        References are shown, and other kinds of several groups unless they divide the reads like an earlier kind.
        """
        shown: dict[tuple[tuple[int, ...], ...], ClassGrouping] = {}
        for kind in self.groupings:
            if kind.name == "reference" or len(kind.groups) > 1:
                shown.setdefault(tuple(sorted(tuple(group.num_by_label.values()) for group in kind.groups)), kind)
        return [self._summary(), self._by_class(), self._calls(), *(kind.table() for kind in shown.values())]

    def _summary(self) -> Table:
        chance = {"macro_auroc": "0.5 by chance", "balanced_accuracy": f"{1 / len(self.labels):.3f} by chance"}
        before, after = self.uncalibrated, self.calibratedness
        rows = [
            *((words, *self.overall[name].cells(), chance.get(name, "")) for name, words in _OVERALL.items()),
            *((f"top-{k} accuracy", *estimate.cells(), "") for k, estimate in self.top_k.items() if k <= _MOST_TOP),
            ("log loss", *after.log_loss.cells(), ""),
            *([("ECE before calibration", *before.ece.cells(), "")] if before else []),
            ("ECE", *after.ece.cells(), f"of the call, {len(after.reliability)} bins of equal width"),
            *([("Brier before calibration", *before.brier.cells(), "")] if before else []),
            ("Brier", *after.brier.cells(), "summed over classes, 0 to 2"),
            *([("worst group", self.worst_group[1], "", self.worst_group[0])] if self.worst_group else []),
        ]
        title = f"{self.num_reads} reads of {len(self.labels)} labels"
        return Table(title=title, columns=("metric", "value", "95 % interval", ""), rows=tuple(rows))

    def _by_class(self) -> Table:
        rows = tuple(
            (
                one.label,
                str(one.num_reads),
                *one.auroc.cells(),
                *one.auprc.cells(),
                cell(one.prevalence),
                *(cell(estimate.value) for estimate in (one.recall, one.precision, one.f1)),
            )
            for one in self.classes
        )
        interval = "95 % interval"
        columns = ("label", "reads", "AUROC", interval, "AUPRC", interval, "by chance", "recall", "precision", "F1")
        return Table(title="By label, each against the rest", columns=columns, rows=rows)

    def _calls(self) -> Table:
        truth, called = ("truth ", "called ") if len(self.labels) <= _MOST_WORDS else ("", "")
        rows = tuple(
            (f"{truth}{label}", *map(str, counts)) for label, counts in zip(self.labels, self.confusion, strict=True)
        )
        return Table(
            title="Calls of the most probable label" + ("" if truth else " (columns) of reads of each label (rows)"),
            columns=("", *(f"{called}{label}" for label in self.labels)),
            rows=rows,
        )


def measure(
    truth: Classes,
    p: Floats,
    *,
    parents: NDArray[np.int64],
    groups: Sequence[Groups],
    labels: Sequence[str],
    uncalibrated: Floats | None,
    num_resamplings: int,
    seed: int,
) -> ClassMetrics:
    """Measure a set of scored reads.

    :param truth: positions in ``labels``, int64 (n,).
    :param p: probabilities of the classes, float64 (n, K).
    :param parents: number of each read's parent, int64 (n,), see :func:`leech.evaluation.intervals.parent_codes`.
    :param groups: kinds of groups.
    :param labels: names of the K classes.
    :param uncalibrated: probabilities before calibration, float64 (n, K); None where there is none.
    """
    num_classes = len(labels)
    order, called, rank = OneVersusRest(truth, p), p.argmax(axis=1), metrics.ranks_of_truth(truth, p)
    counts = metrics.confusion_matrix(truth, called, num_classes)

    def figures(weights: Floats) -> dict[str, float | None]:
        curves = order.curves(weights)
        matrix = metrics.confusion_matrix(truth, called, num_classes, weights)
        areas = [of_two.auroc(curve) for curve in curves]
        precisions = [of_two.average_precision(curve) for curve in curves]
        return {
            "accuracy": matrix.accuracy,
            "balanced_accuracy": matrix.balanced_accuracy,
            "macro_f1": matrix.macro_f1,
            "mcc": matrix.mcc,
            "macro_auroc": metrics.mean_of(areas),
            "macro_auprc": metrics.mean_of(precisions),
            **{f"top {k}": metrics.share(rank < k, weights) for k in range(2, num_classes)},
            **_numbered("auroc", areas),
            **_numbered("auprc", precisions),
            **_numbered("recall", matrix.recalls),
            **_numbered("precision", matrix.precisions),
            **_numbered("f1", matrix.f1s),
            **dict(_calibration_figures("", truth, p, weights)),
            **({} if uncalibrated is None else dict(_calibration_figures("before ", truth, uncalibrated, weights))),
        }

    names = list(figures(np.ones(len(p))))
    values = bootstrap(lambda weights: tuple(figures(weights).values()), parents, num_resamplings, seed)
    found = dict(zip(names, values, strict=True))
    return ClassMetrics(
        labels=tuple(labels),
        num_reads=len(p),
        num_parents=len(np.unique(parents)),
        overall={name: _share(found[name], len(p)) if name == "accuracy" else found[name] for name in _OVERALL},
        top_k={k: _share(found[f"top {k}"], len(p)) for k in range(2, num_classes)},
        classes=tuple(
            ClassFigures(
                label=label,
                num_reads=int(counts.truths[number]),
                prevalence=float(counts.truths[number]) / len(p) if len(p) else None,
                auroc=found[f"auroc {number}"],
                auprc=found[f"auprc {number}"],
                recall=_share(found[f"recall {number}"], counts.truths[number]),
                precision=_share(found[f"precision {number}"], counts.calls[number]),
                f1=found[f"f1 {number}"],
            )
            for number, label in enumerate(labels)
        ),
        confusion=tuple(tuple(int(count) for count in row) for row in counts.counts.tolist()),
        calibratedness=_calibratedness("", found, truth, p),
        uncalibrated=None if uncalibrated is None else _calibratedness("before ", found, truth, uncalibrated),
        groupings=tuple(measure_groups(truth, p, called, kind, labels) for kind in groups),
    )


def _numbered(name: str, values: Sequence[float | None]) -> dict[str, float | None]:
    return {f"{name} {number}": value for number, value in enumerate(values)}


def calibration_error(truth: Classes, p: Floats, weights: Floats | None = None) -> float | None:
    """Return the expected calibration error of the probability of the call (Guo et al. 2017)."""
    return of_two.expected_calibration_error(p.argmax(axis=1) == truth, p.max(axis=1), weights)


def _calibration_figures(prefix: str, truth: Classes, p: Floats, weights: Floats) -> Iterator[tuple[str, float | None]]:
    yield f"{prefix}ece", calibration_error(truth, p, weights)
    yield f"{prefix}brier", metrics.brier(truth, p, weights)
    yield f"{prefix}log_loss", metrics.log_loss(truth, p, weights)


def reliability(truth: Classes, p: Floats) -> tuple[ReliabilityBin, ...]:
    """Return the mean probability of the call against the share of right calls, in equal-width bins of the probability."""
    return of_two.reliability(p.argmax(axis=1) == truth, p.max(axis=1))


def _calibratedness(prefix: str, found: dict[str, Estimate], truth: Classes, p: Floats) -> ClassCalibratedness:
    ece, brier, loss = (found[f"{prefix}{name}"] for name in ("ece", "brier", "log_loss"))
    return ClassCalibratedness(ece, brier, loss, reliability(truth, p))


def _share(estimate: Estimate, num_reads: float) -> Estimate:
    return Estimate(estimate.value, share_interval(estimate.interval, estimate.value, float(num_reads)))
