"""All metrics of one set of scored reads, as a value that people and programs read.

Hides: which metrics there are and how they are laid out. Belongs here: putting the metrics of ``metrics.py`` and the
intervals of ``intervals.py`` together, as plain types and as tables. Invariants: the value depends on the reads, the
threshold, the number of resamplings and the seed alone; groups come in the order of their names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leech.console import Table
from leech.evaluation import metrics
from leech.evaluation.intervals import Estimate, Interval, auroc_interval, bootstrap_intervals, wilson
from leech.evaluation.metrics import Bools, Confusion, Floats, Ranking, ReliabilityBin

MIN_GROUP_READS = 20
"""Reads of either class that a group needs before it can be named the worst: below, chance names it."""

PRECISIONS = (0.95, 0.99)
"""Precisions at which the callable share is given."""


@dataclass(frozen=True)
class GroupMetrics:
    """Metrics of the reads of one reference.

    :ivar auroc: with DeLong's interval.
    :ivar accuracy: at the operating point, with Wilson's interval.
    :ivar balanced_accuracy: at the operating point.
    """

    name: str
    num_reads: int
    num_positive: int
    auroc: Estimate
    accuracy: Estimate
    balanced_accuracy: float | None


@dataclass(frozen=True)
class Metrics:
    """Metrics of a set of reads; intervals are 95 %, from resampled parent reads unless a field says otherwise.

    :ivar auprc_positive: average precision of the positive class, to be read beside ``prevalence``.
    :ivar auprc_negative: the same of the negative class, to be read beside ``1 - prevalence``.
    :ivar threshold_cl: the operating point: positive when ``round(255 p) >= threshold_cl``.
    :ivar confusion: calls at the operating point.
    :ivar tpr: share of positive reads called positive there, with Wilson's interval; ``fpr`` likewise of negative reads.
    :ivar callable_shares: by precision, see :func:`leech.evaluation.metrics.callable_share`.
    :ivar ece: expected calibration error over the bins of ``reliability``.
    :ivar worst_reference: lowest AUROC among the references with enough reads of both classes; None where there is none.
    """

    positive_label: str
    negative_label: str
    num_reads: int
    num_parents: int
    num_positive: int
    auroc: Estimate
    auprc_positive: Estimate
    auprc_negative: Estimate
    threshold_cl: int
    confusion: Confusion
    balanced_accuracy: Estimate
    tpr: Estimate
    fpr: Estimate
    callable_shares: dict[float, float | None]
    ece: float | None
    brier: float | None
    reliability: tuple[ReliabilityBin, ...]
    references: tuple[GroupMetrics, ...]
    worst_reference: str | None

    @property
    def prevalence(self) -> float | None:
        """Share of the reads that are positive."""
        return self.num_positive / self.num_reads if self.num_reads else None

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON; what the reads do not define is null."""
        counts = self.confusion
        return {
            "positive_label": self.positive_label,
            "negative_label": self.negative_label,
            "num_reads": self.num_reads,
            "num_parents": self.num_parents,
            "num_positive": self.num_positive,
            "prevalence": self.prevalence,
            "auroc": _plain(self.auroc),
            "auprc_positive": _plain(self.auprc_positive),
            "auprc_negative": _plain(self.auprc_negative),
            "operating_point": {
                "threshold_cl": self.threshold_cl,
                **{name: int(getattr(counts, name)) for name in ("tp", "fp", "tn", "fn")},
                "balanced_accuracy": _plain(self.balanced_accuracy),
                "mcc": counts.mcc,
                "tpr": _plain(self.tpr),
                "fpr": _plain(self.fpr),
                "precision": counts.precision,
            },
            "callable_share": {f"{precision:g}": share for precision, share in self.callable_shares.items()},
            "ece": self.ece,
            "brier": self.brier,
            "reliability": [item._asdict() for item in self.reliability],
            "references": [_plain_group(group) for group in self.references],
            "worst_reference": self.worst_reference,
        }

    def tables(self) -> list[Table]:
        """Return the metrics and the rows per reference; an empty cell is what the reads do not define."""
        return [self._summary(), self._calls(), self._by_reference()]

    def _summary(self) -> Table:
        prevalence = self.prevalence
        rest = None if prevalence is None else 1 - prevalence
        rows = [
            ("AUROC", *_cells(self.auroc), "0.5 by chance"),
            (f"AUPRC {self.positive_label}", *_cells(self.auprc_positive), f"{_cell(prevalence)} by chance"),
            (f"AUPRC {self.negative_label}", *_cells(self.auprc_negative), f"{_cell(rest)} by chance"),
            ("balanced accuracy", *_cells(self.balanced_accuracy), f"at cl >= {self.threshold_cl}"),
            ("MCC", _cell(self.confusion.mcc), "", f"at cl >= {self.threshold_cl}"),
            ("TPR", *_cells(self.tpr), f"{self.positive_label} called {self.positive_label}"),
            ("FPR", *_cells(self.fpr), f"{self.negative_label} called {self.positive_label}"),
            *(
                (f"callable at {precision:.0%}", _cell(share), "", "share of reads at that precision")
                for precision, share in self.callable_shares.items()
            ),
            ("ECE", _cell(self.ece), "", f"{len(self.reliability)} bins of equal width"),
            ("Brier", _cell(self.brier), "", ""),
        ]
        title = f"{self.num_reads} reads, {self.num_positive} {self.positive_label}"
        return Table(title=title, columns=("metric", "value", "95 % interval", ""), rows=tuple(rows))

    def _calls(self) -> Table:
        counts = self.confusion
        positive, negative = self.positive_label, self.negative_label
        rows = (
            (f"truth {positive}", str(int(counts.tp)), str(int(counts.fn))),
            (f"truth {negative}", str(int(counts.fp)), str(int(counts.tn))),
        )
        columns = ("", f"called {positive}", f"called {negative}")
        return Table(title=f"Calls at cl >= {self.threshold_cl}", columns=columns, rows=rows)

    def _by_reference(self) -> Table:
        rows = tuple(
            (
                group.name,
                str(group.num_reads),
                str(group.num_positive),
                *_cells(group.auroc),
                *_cells(group.accuracy),
                _cell(group.balanced_accuracy),
                "worst" if group.name == self.worst_reference else "",
            )
            for group in self.references
        )
        columns = (
            "reference",
            "reads",
            self.positive_label,
            "AUROC",
            "95 % interval",
            "accuracy",
            "95 % interval",
            "balanced accuracy",
            "",
        )
        return Table(title="By reference", columns=columns, rows=rows)


def measure(
    positive: Bools,
    p: Floats,
    *,
    parents: NDArray[np.int64],
    references: NDArray[np.int64],
    reference_names: Sequence[str],
    labels: tuple[str, str],
    threshold_cl: int,
    num_resamplings: int,
    seed: int,
) -> Metrics:
    """Measure a set of scored reads.

    :param positive: truth, bool (n,).
    :param p: probability of the positive class, float64 (n,).
    :param parents: number of each read's parent, int64 (n,), see :func:`leech.evaluation.intervals.parent_codes`.
    :param references: code of each read's reference, int64 (n,).
    :param labels: names of the negative and of the positive class.
    """
    ranking = Ranking(positive, p)
    called = metrics.called_positive(p, threshold_cl)
    curve, counts = ranking.curve(), metrics.confusion(positive, called)

    def resampled(weights: Floats) -> tuple[float | None, ...]:
        weighted = ranking.curve(weights)
        return (
            metrics.auroc(weighted),
            metrics.average_precision(weighted),
            metrics.average_precision(metrics.mirrored(weighted)),
            metrics.confusion(positive, called, weights).balanced_accuracy,
        )

    point = resampled(np.ones(len(p)))
    intervals = bootstrap_intervals(resampled, parents, num_resamplings, seed)
    area, precision_positive, precision_negative, balanced = (
        Estimate(value, interval) for value, interval in zip(point, intervals, strict=True)
    )
    groups = _by_group(positive, p, called, references, reference_names)
    bins = metrics.reliability(positive, p)
    return Metrics(
        positive_label=labels[1],
        negative_label=labels[0],
        num_reads=len(p),
        num_parents=len(np.unique(parents)),
        num_positive=int(positive.sum()),
        auroc=area,
        auprc_positive=precision_positive,
        auprc_negative=precision_negative,
        threshold_cl=threshold_cl,
        confusion=counts,
        balanced_accuracy=balanced,
        tpr=Estimate(counts.tpr, wilson(counts.tp, counts.tp + counts.fn)),
        fpr=Estimate(counts.fpr, wilson(counts.fp, counts.fp + counts.tn)),
        callable_shares={precision: metrics.callable_share(curve, precision) for precision in PRECISIONS},
        ece=metrics.expected_calibration_error(bins),
        brier=metrics.brier(positive, p),
        reliability=bins,
        references=groups,
        worst_reference=_worst(groups),
    )


def _by_group(
    positive: Bools, p: Floats, called: Bools, codes: NDArray[np.int64], names: Sequence[str]
) -> tuple[GroupMetrics, ...]:
    # Sorted once: a mask per reference would cost reads x references.
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    groups = []
    for rows in np.split(order, starts[1:]) if len(order) else []:
        counts = metrics.confusion(positive[rows], called[rows])
        right = counts.tp + counts.tn
        area = metrics.auroc(Ranking(positive[rows], p[rows]).curve())
        groups.append(
            GroupMetrics(
                name=names[int(codes[rows[0]])],
                num_reads=len(rows),
                num_positive=int(positive[rows].sum()),
                auroc=Estimate(area, auroc_interval(positive[rows], p[rows])),
                accuracy=Estimate(counts.accuracy, wilson(right, len(rows))),
                balanced_accuracy=counts.balanced_accuracy,
            )
        )
    return tuple(sorted(groups, key=lambda group: group.name))


def _worst(groups: Sequence[GroupMetrics]) -> str | None:
    judged = [
        (group.auroc.value, group.name)
        for group in groups
        if group.auroc.value is not None
        and min(group.num_positive, group.num_reads - group.num_positive) >= MIN_GROUP_READS
    ]
    return min(judged)[1] if judged else None


def _plain(estimate: Estimate) -> dict[str, Any]:
    interval = estimate.interval
    return {"value": estimate.value, "interval": None if interval is None else [interval.low, interval.high]}


def _plain_group(group: GroupMetrics) -> dict[str, Any]:
    return {
        "name": group.name,
        "num_reads": group.num_reads,
        "num_positive": group.num_positive,
        "auroc": _plain(group.auroc),
        "accuracy": _plain(group.accuracy),
        "balanced_accuracy": group.balanced_accuracy,
    }


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _cells(estimate: Estimate) -> tuple[str, str]:
    return _cell(estimate.value), _span(estimate.interval)


def _span(interval: Interval | None) -> str:
    return "" if interval is None else f"{interval.low:.3f}-{interval.high:.3f}"
