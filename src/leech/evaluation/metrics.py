"""What is measured on scored reads: each metric once, as a function of truth, score and weight.

Hides: ties, weights and degenerate groups. Belongs here: definitions on arrays, those of scikit-learn where it has one
(the tests hold them to it). Where scores come from lies in ``evaluate.py``; intervals are made in ``intervals.py``; what is
put together for people in ``summary.py``. Invariants: ``positive`` is a boolean array, ``p`` the float64 probability of the
positive class in [0, 1], of one length; weights are non-negative and stand for how often a read counts; a metric that the
reads cannot define (one class only, nothing called) is None, never 0 and never a warning.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

NUM_CALIBRATION_BINS = 10
"""Equal-width bins of P(positive) in the reliability table and the calibration error."""


class Curve(NamedTuple):
    """Cumulative weights when the reads with the highest scores are called, one entry per distinct score, descending.

    :ivar tp: weight of positives among the called.
    :ivar fp: weight of negatives among the called.
    """

    tp: Floats
    fp: Floats


class Ranking:
    """Reads ordered by score once, so that many weightings of the same reads are measured without sorting again.

    :param positive: truth, shape (n,).
    :param p: scores of any monotone scale, shape (n,).
    """

    def __init__(self, positive: Bools, p: Floats) -> None:
        self._order = np.argsort(-p, kind="stable")
        ordered = p[self._order]
        # Reads of equal score are called together or not at all: a curve has a point only where the score changes.
        self._ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True)) if len(p) else np.zeros(0, np.intp)
        self._positive = positive[self._order].astype(np.float64)

    def curve(self, weights: Floats | None = None) -> Curve:
        """Return the cumulative counts, each read counting ``weights`` times (default once)."""
        weight = np.ones_like(self._positive) if weights is None else weights[self._order]
        tp = np.cumsum(weight * self._positive)[self._ends]
        return Curve(tp, np.cumsum(weight)[self._ends] - tp)


def mirrored(curve: Curve) -> Curve:
    """Return the curve of the negative class: reads with the lowest scores called negative first."""
    tp = np.append(0.0, curve.tp[:-1])
    fp = np.append(0.0, curve.fp[:-1])
    return Curve((curve.fp[-1] - fp)[::-1], (curve.tp[-1] - tp)[::-1])


def auroc(curve: Curve) -> float | None:
    """Return the area under the ROC curve by the trapezoid rule, ties counting half; None for one class only."""
    if not len(curve.tp) or curve.tp[-1] <= 0 or curve.fp[-1] <= 0:
        return None
    tpr = np.append(0.0, curve.tp / curve.tp[-1])
    fpr = np.append(0.0, curve.fp / curve.fp[-1])
    return float(np.sum(np.diff(fpr) * (tpr[1:] + tpr[:-1])) / 2)


def average_precision(curve: Curve) -> float | None:
    """Return the area under the precision-recall curve as a sum of steps, ``sum (R_i - R_{i-1}) P_i``, not interpolated.

    :returns: None where one class is missing: with one class every ranking is perfect.
    """
    if not len(curve.tp) or curve.tp[-1] <= 0 or curve.fp[-1] <= 0:
        return None
    called = curve.tp + curve.fp
    precision = np.divide(curve.tp, called, out=np.zeros_like(curve.tp), where=called > 0)
    return float(np.sum(np.diff(curve.tp, prepend=0.0) * precision) / curve.tp[-1])


def _largest_share(curve: Curve, precision: float) -> float:
    called = curve.tp + curve.fp
    # Compared as products, so that 19 of 20 is a precision of 0.95 whatever the division rounds to.
    enough = curve.tp >= precision * called * (1 - 1e-12)
    return float(called[enough].max() / called[-1]) if (enough & (called > 0)).any() else 0.0


def callable_share(curve: Curve, precision: float) -> float | None:
    """Return the share of reads that can be called when each class's calls must reach ``precision``.

    Two thresholds, one per class: the lowest score above which calls "positive" are right with at least ``precision``, and
    the highest below which calls "negative" are; reads between them are not called. The two shares add up, to 1 at most:
    where the thresholds cross, every read can be called. The precisions are those at the prevalence of these reads.
    """
    if not len(curve.tp) or curve.tp[-1] <= 0 or curve.fp[-1] <= 0:
        return None
    return min(1.0, _largest_share(curve, precision) + _largest_share(mirrored(curve), precision))


@dataclass(frozen=True)
class Confusion:
    """Calls against truth at one threshold; weights allow counts that are not whole."""

    tp: float
    fp: float
    tn: float
    fn: float

    @cached_property
    def tpr(self) -> float | None:
        """Share of positive reads that are called positive (sensitivity, recall)."""
        return _ratio(self.tp, self.tp + self.fn)

    @cached_property
    def fpr(self) -> float | None:
        """Share of negative reads that are called positive."""
        return _ratio(self.fp, self.fp + self.tn)

    @cached_property
    def precision(self) -> float | None:
        """Share of positive calls that are right, at the prevalence of these reads."""
        return _ratio(self.tp, self.tp + self.fp)

    @cached_property
    def accuracy(self) -> float | None:
        """Share of calls that are right."""
        return _ratio(self.tp + self.tn, self.tp + self.fp + self.tn + self.fn)

    @cached_property
    def balanced_accuracy(self) -> float | None:
        """Mean of the shares called right of either class; None for one class only."""
        return None if self.tpr is None or self.fpr is None else (self.tpr + 1 - self.fpr) / 2

    @cached_property
    def f1(self) -> float | None:
        """Harmonic mean of precision and recall of the positive class; None where neither reads nor calls are positive."""
        return _ratio(2 * self.tp, 2 * self.tp + self.fp + self.fn)

    @cached_property
    def mcc(self) -> float | None:
        """Matthews correlation coefficient; 0 where all reads are called alike, None for one class only."""
        if self.balanced_accuracy is None:
            return None
        product = (self.tp + self.fp) * (self.tp + self.fn) * (self.tn + self.fp) * (self.tn + self.fn)
        return (self.tp * self.tn - self.fp * self.fn) / product**0.5 if product > 0 else 0.0


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def called_positive(p: Floats, threshold_cl: int) -> Bools:
    """Return which reads are called positive: ``round(255 p) >= threshold_cl``, as ``leech predict`` writes and counts."""
    # Imported here: it brings torch, seconds that a corpus's check need not pay.
    from leech.models.inference import charging_likelihood, is_positive

    called: Bools = is_positive(charging_likelihood(p), threshold_cl)
    return called


def confusion(positive: Bools, called: Bools, weights: Floats | None = None) -> Confusion:
    """Count calls against truth, each read ``weights`` times (default once)."""
    code = positive.astype(np.int64) * 2 + called
    counts = np.bincount(code, weights=weights, minlength=4).tolist()
    tn, fp, fn, tp = (float(count) for count in counts)
    return Confusion(tp=tp, fp=fp, tn=tn, fn=fn)


def brier(positive: Bools, p: Floats, weights: Floats | None = None) -> float | None:
    """Return the mean squared difference of probability and truth."""
    return _mean((p - positive) ** 2, weights)


def log_loss(positive: Bools, p: Floats) -> float | None:
    """Return the mean of -ln of the probability that was given to the truth, which counts as 1e-12 where it is less."""
    return _mean(-np.log(np.maximum(np.where(positive, p, 1 - p), 1e-12)), None)


def _mean(values: Floats, weights: Floats | None) -> float | None:
    total = float(len(values)) if weights is None else float(weights.sum())
    return _ratio(float(np.sum(values if weights is None else values * weights)), total)


class ReliabilityBin(NamedTuple):
    """Reads whose P(positive) lies in [low, high), the last bin including 1; the means are None for an empty bin."""

    low: float
    high: float
    num_reads: int
    mean_p: float | None
    share_positive: float | None


def _bins(p: Floats, num_bins: int) -> NDArray[np.int64]:
    return np.minimum((p * num_bins).astype(np.int64), num_bins - 1)


def reliability(positive: Bools, p: Floats, num_bins: int = NUM_CALIBRATION_BINS) -> tuple[ReliabilityBin, ...]:
    """Return mean probability against the share that is positive, in equal-width bins of the probability."""
    index = _bins(p, num_bins)
    counts = np.bincount(index, minlength=num_bins)
    sums = np.bincount(index, weights=p, minlength=num_bins)
    positives = np.bincount(index, weights=positive.astype(np.float64), minlength=num_bins)
    return tuple(
        ReliabilityBin(
            low=number / num_bins,
            high=(number + 1) / num_bins,
            num_reads=int(counts[number]),
            mean_p=_ratio(float(sums[number]), float(counts[number])),
            share_positive=_ratio(float(positives[number]), float(counts[number])),
        )
        for number in range(num_bins)
    )


def expected_calibration_error(
    positive: Bools, p: Floats, weights: Floats | None = None, num_bins: int = NUM_CALIBRATION_BINS
) -> float | None:
    """Return the mean absolute difference of probability and share positive over bins, weighted by their reads."""
    weight = np.ones(len(p)) if weights is None else weights
    # Per bin, the sum of probabilities less the number of positives: its reads times the difference of the means.
    gaps = np.bincount(_bins(p, num_bins), weights=weight * (p - positive), minlength=num_bins)
    return _ratio(float(np.abs(gaps).sum()), float(weight.sum()))
