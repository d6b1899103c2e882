"""All metrics of one set of scored reads, as a value that people and programs read.

Hides: which metrics there are and how they are laid out. Belongs here: putting the metrics of ``metrics.py``, the intervals
of ``intervals.py``, the thresholds of ``thresholds.py`` and the groups of ``groups.py`` together, as plain types and as
tables. Invariants: the value depends on the reads, the threshold, the number of resamplings and the seed alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leech.console import Table
from leech.data.grouping import Groups
from leech.evaluation import metrics
from leech.evaluation.groups import Control, Grouping, controls, measure_groups
from leech.evaluation.intervals import Estimate, Interval, bootstrap_intervals, cell, share_interval
from leech.evaluation.metrics import Bools, Confusion, Floats, Ranking, ReliabilityBin
from leech.evaluation.thresholds import NamedThreshold, ScoreCounts, sweep

PRECISIONS = (0.95, 0.99)
"""Precisions at which the callable share is given."""


@dataclass(frozen=True)
class Calibratedness:
    """How far probabilities are from what is true.

    :ivar ece: expected calibration error over the bins of ``reliability``.
    """

    ece: Estimate
    brier: Estimate
    reliability: tuple[ReliabilityBin, ...]

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        return {
            "ece": self.ece.to_mapping(),
            "brier": self.brier.to_mapping(),
            "reliability": [item._asdict() for item in self.reliability],
        }


@dataclass(frozen=True)
class Calls:
    """Calls at one threshold, with intervals from resampled parent reads.

    :ivar threshold_cl: positive when ``round(255 p) >= threshold_cl``.
    :ivar tpr: share of positive reads called positive; ``fpr`` likewise of negative reads.
    :ivar precision: of positive calls, at the prevalence of these reads.
    """

    threshold_cl: int
    confusion: Confusion
    balanced_accuracy: Estimate
    mcc: Estimate
    f1: Estimate
    tpr: Estimate
    fpr: Estimate
    precision: Estimate

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        figures = ("balanced_accuracy", "mcc", "f1", "tpr", "fpr", "precision")
        return {
            "threshold_cl": self.threshold_cl,
            **{name: int(getattr(self.confusion, name)) for name in ("tp", "fp", "tn", "fn")},
            **{name: getattr(self, name).to_mapping() for name in figures},
        }


@dataclass(frozen=True)
class Metrics:
    """Metrics of a set of reads; intervals are 95 %, from resampled parent reads unless a field says otherwise.

    :ivar auprc_positive: average precision of the positive class, to be read beside ``prevalence``.
    :ivar auprc_negative: the same of the negative class, to be read beside ``1 - prevalence``.
    :ivar calls: at the operating point.
    :ivar callable_shares: by precision, see :func:`leech.evaluation.metrics.callable_share`.
    :ivar calibratedness: of the probabilities that everything else is measured on.
    :ivar uncalibrated: of those before calibration; None where there is none.
    :ivar thresholds: best ones by several measures, on these very reads.
    :ivar score_counts: reads by cl, from which any curve over thresholds follows.
    :ivar groupings: metrics by group, one per kind of group.
    :ivar empty_control: reads of samples without a positive read, the 0 % control; ``full_control`` the 100 % control.
    """

    positive_label: str
    negative_label: str
    num_reads: int
    num_parents: int
    num_positive: int
    auroc: Estimate
    auprc_positive: Estimate
    auprc_negative: Estimate
    calls: Calls
    callable_shares: dict[float, Estimate]
    calibratedness: Calibratedness
    uncalibrated: Calibratedness | None
    thresholds: tuple[NamedThreshold, ...]
    score_counts: ScoreCounts
    groupings: tuple[Grouping, ...]
    empty_control: Control | None
    full_control: Control | None

    @property
    def prevalence(self) -> float | None:
        """Share of the reads that are positive."""
        return self.num_positive / self.num_reads if self.num_reads else None

    @property
    def worst_group(self) -> tuple[str, str] | None:
        """Kind and name of the group of lowest AUROC, of all kinds with several groups that have enough reads."""
        kinds = [kind for kind in self.groupings if sum(group.can_be_worst for group in kind.groups) > 1]
        worst = [(group.auroc.value, kind.name, group.name) for kind in kinds if (group := kind.worst)]
        return min(worst, key=lambda entry: entry[0] or 0.0)[1:] if worst else None

    def grouping(self, name: str) -> Grouping:
        """Return the groups of one kind."""
        return next(kind for kind in self.groupings if kind.name == name)

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON; what the reads do not define is null."""
        worst = self.worst_group
        return {
            "positive_label": self.positive_label,
            "negative_label": self.negative_label,
            "num_reads": self.num_reads,
            "num_parents": self.num_parents,
            "num_positive": self.num_positive,
            "prevalence": self.prevalence,
            "auroc": self.auroc.to_mapping(),
            "auprc_positive": self.auprc_positive.to_mapping(),
            "auprc_negative": self.auprc_negative.to_mapping(),
            "operating_point": self.calls.to_mapping(),
            "callable_share": {
                f"{precision:g}": share.to_mapping() for precision, share in self.callable_shares.items()
            },
            **self.calibratedness.to_mapping(),
            "uncalibrated": None if self.uncalibrated is None else self.uncalibrated.to_mapping(),
            "thresholds": [threshold.to_mapping() for threshold in self.thresholds],
            "score_counts": self.score_counts.to_mapping(),
            "controls": {
                "0": None if self.empty_control is None else self.empty_control.to_mapping(),
                "100": None if self.full_control is None else self.full_control.to_mapping(),
            },
            "groups": {kind.name: [group.to_mapping() for group in kind.groups] for kind in self.groupings},
            "ungrouped": {kind.name: kind.num_ungrouped for kind in self.groupings},
            "worst_groups": {kind.name: kind.worst.name if kind.worst else None for kind in self.groupings},
            "worst_group": None if worst is None else {"grouping": worst[0], "name": worst[1]},
        }

    def tables(self) -> list[Table]:
        """Return the metrics and the rows per group; an empty cell is what the reads do not define.

        References are shown, and other kinds of several groups unless they divide the reads like an earlier kind.
        """
        shown: dict[tuple[tuple[int, int], ...], Grouping] = {}
        for kind in self.groupings:
            if kind.name == "reference" or len(kind.groups) > 1:
                shown.setdefault(tuple(sorted((group.num_reads, group.num_positive) for group in kind.groups)), kind)
        return [
            self._summary(),
            self._calls(),
            self._thresholds(),
            *(kind.table(self.positive_label) for kind in shown.values()),
        ]

    def _summary(self) -> Table:
        prevalence, calls = self.prevalence, self.calls
        rest = None if prevalence is None else 1 - prevalence
        at = f"at cl >= {calls.threshold_cl}"
        before = self.uncalibrated
        rows = [
            ("AUROC", *self.auroc.cells(), "0.5 by chance"),
            (f"AUPRC {self.positive_label}", *self.auprc_positive.cells(), f"{cell(prevalence)} by chance"),
            (f"AUPRC {self.negative_label}", *self.auprc_negative.cells(), f"{cell(rest)} by chance"),
            ("balanced accuracy", *calls.balanced_accuracy.cells(), at),
            ("MCC", *calls.mcc.cells(), at),
            ("TPR", *calls.tpr.cells(), f"{self.positive_label} called {self.positive_label}"),
            ("FPR", *calls.fpr.cells(), f"{self.negative_label} called {self.positive_label}"),
            ("precision", *calls.precision.cells(), f"at {cell(prevalence)} {self.positive_label}"),
            *self._control_rows(),
            *(
                (f"callable at {precision:.0%}", *share.cells(), "share of reads at that precision")
                for precision, share in self.callable_shares.items()
            ),
            *([("ECE before calibration", *before.ece.cells(), "")] if before else []),
            ("ECE", *self.calibratedness.ece.cells(), f"{len(self.calibratedness.reliability)} bins of equal width"),
            *([("Brier before calibration", *before.brier.cells(), "")] if before else []),
            ("Brier", *self.calibratedness.brier.cells(), ""),
            *([("worst group", self.worst_group[1], "", self.worst_group[0])] if self.worst_group else []),
        ]
        title = f"{self.num_reads} reads, {self.num_positive} {self.positive_label}"
        return Table(title=title, columns=("metric", "value", "95 % interval", ""), rows=tuple(rows))

    def _control_rows(self) -> list[tuple[str, str, str, str]]:
        named = (("FPR, 0 % control", self.empty_control), ("TPR, 100 % control", self.full_control))
        return [
            (name, *control.called_positive.cells(), f"{control.num_reads} reads of {', '.join(control.samples)}")
            for name, control in named
            if control is not None
        ]

    def _calls(self) -> Table:
        counts = self.calls.confusion
        positive, negative = self.positive_label, self.negative_label
        rows = (
            (f"truth {positive}", str(int(counts.tp)), str(int(counts.fn))),
            (f"truth {negative}", str(int(counts.fp)), str(int(counts.tn))),
        )
        columns = ("", f"called {positive}", f"called {negative}")
        return Table(title=f"Calls at cl >= {self.calls.threshold_cl}", columns=columns, rows=rows)

    def _thresholds(self) -> Table:
        figures = {"TPR": "tpr", "FPR": "fpr", "precision": "precision", "F1": "f1", "MCC": "mcc"}
        rows = tuple(
            (
                threshold.name,
                str(threshold.threshold_cl),
                *(cell(getattr(threshold.calls, name)) for name in figures.values()),
            )
            for threshold in self.thresholds
        )
        return Table(title="Thresholds best on these reads", columns=("by", "cl >=", *figures), rows=rows)


def measure(
    positive: Bools,
    p: Floats,
    *,
    parents: NDArray[np.int64],
    groups: Sequence[Groups],
    labels: tuple[str, str],
    threshold_cl: int,
    target_fpr: float,
    uncalibrated: Floats | None,
    num_resamplings: int,
    seed: int,
) -> Metrics:
    """Measure a set of scored reads.

    :param positive: truth, bool (n,).
    :param p: probability of the positive class, float64 (n,).
    :param parents: number of each read's parent, int64 (n,), see :func:`leech.evaluation.intervals.parent_codes`.
    :param groups: kinds of groups; one is called ``sample``.
    :param labels: names of the negative and of the positive class.
    :param target_fpr: FPR that one of the thresholds shall have.
    :param uncalibrated: probabilities before calibration, float64 (n,); None where there is none.
    """
    ranking = Ranking(positive, p)
    called = metrics.called_positive(p, threshold_cl)

    def resampled(weights: Floats) -> tuple[float | None, ...]:
        curve = ranking.curve(weights)
        return (
            metrics.auroc(curve),
            metrics.average_precision(curve),
            metrics.average_precision(metrics.mirrored(curve)),
            *(metrics.callable_share(curve, precision) for precision in PRECISIONS),
            *_call_figures(positive, called, weights),
            *_calibration_figures(positive, p, weights),
            *(() if uncalibrated is None else _calibration_figures(positive, uncalibrated, weights)),
        )

    estimates = iter(bootstrap(resampled, parents, num_resamplings, seed))
    area, precision_positive, precision_negative = (next(estimates) for _ in range(3))
    counts = metrics.confusion(positive, called)
    measured = tuple(measure_groups(positive, p, called, kind) for kind in groups)
    empty, full = controls(next(kind for kind in measured if kind.name == "sample"))
    scores = ScoreCounts.of(positive, p)
    return Metrics(
        positive_label=labels[1],
        negative_label=labels[0],
        num_reads=len(p),
        num_parents=len(np.unique(parents)),
        num_positive=int(positive.sum()),
        auroc=area,
        auprc_positive=precision_positive,
        auprc_negative=precision_negative,
        callable_shares={precision: _share(next(estimates), len(p)) for precision in PRECISIONS},
        calls=_calls(threshold_cl, counts, [next(estimates) for _ in _CALL_FIGURES]),
        calibratedness=Calibratedness(next(estimates), next(estimates), metrics.reliability(positive, p)),
        uncalibrated=None
        if uncalibrated is None
        else Calibratedness(next(estimates), next(estimates), metrics.reliability(positive, uncalibrated)),
        thresholds=sweep(scores, target_fpr),
        score_counts=scores,
        groupings=measured,
        empty_control=empty,
        full_control=full,
    )


_CALL_FIGURES = ("balanced_accuracy", "mcc", "f1", "tpr", "fpr", "precision")


def _call_figures(positive: Bools, called: Bools, weights: Floats) -> tuple[float | None, ...]:
    counts = metrics.confusion(positive, called, weights)
    return tuple(getattr(counts, name) for name in _CALL_FIGURES)


def _calibration_figures(positive: Bools, p: Floats, weights: Floats) -> tuple[float | None, float | None]:
    return metrics.expected_calibration_error(positive, p, weights), metrics.brier(positive, p, weights)


def bootstrap(
    measured: Callable[[Floats], tuple[float | None, ...]],
    parents: NDArray[np.int64],
    num_resamplings: int,
    seed: int,
) -> list[Estimate]:
    """Return figures of all reads, with intervals from resampled parent reads.

    :param measured: the figures under weights of the reads, see :func:`leech.evaluation.intervals.bootstrap_intervals`.
    """
    values = measured(np.ones(len(parents)))
    intervals = bootstrap_intervals(measured, parents, num_resamplings, seed)
    return [Estimate(value, interval) for value, interval in zip(values, intervals, strict=True)]


def measure_calls(
    positive: Bools, p: Floats, threshold_cl: int, parents: NDArray[np.int64], num_resamplings: int, seed: int
) -> Calls:
    """Measure the calls at one threshold; parameters as of :func:`measure`."""
    called = metrics.called_positive(p, threshold_cl)
    figures = bootstrap(lambda weights: _call_figures(positive, called, weights), parents, num_resamplings, seed)
    return _calls(threshold_cl, metrics.confusion(positive, called), figures)


def _calls(threshold_cl: int, counts: Confusion, figures: Sequence[Estimate]) -> Calls:
    balanced, mcc, f1, tpr, fpr, precision = figures
    return Calls(
        threshold_cl=threshold_cl,
        confusion=counts,
        balanced_accuracy=balanced,
        mcc=mcc,
        f1=f1,
        tpr=_share(tpr, counts.tp + counts.fn),
        fpr=_share(fpr, counts.fp + counts.tn),
        precision=_share(precision, counts.tp + counts.fp),
    )


def _share(estimate: Estimate, num_reads: float) -> Estimate:
    interval: Interval | None = share_interval(estimate.interval, estimate.value, num_reads)
    return Estimate(estimate.value, interval)
