"""What is measured on reads of K classes: each metric once, as a function of truth, probabilities and weight.

Hides: ties, weights and classes that are missing. Belongs here: definitions on arrays, those of scikit-learn where it has one
(the tests hold them to it); of one class against the rest the metrics are those of ``evaluation/metrics.py``. What is put
together for people is in ``summary.py``. Invariants: ``truth`` is int64 (n,), positions 0 to K - 1, ``p`` float64 (n, K), rows
that sum to 1; weights are non-negative and stand for how often a read counts; an average over classes of which one cannot be
had is None: an average over the others would be of another question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from leech.evaluation.metrics import Bools, Curve, Floats, Ranking

Classes = NDArray[np.int64]


def mean_of(values: Sequence[float | None]) -> float | None:
    """Return the plain mean of one value per class; None where one is None."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


class OneVersusRest:
    """Reads ordered by the probability of each class once, so that many weightings of them are measured without sorting again.

    :param truth: int64 (n,).
    :param p: float64 (n, K).
    """

    def __init__(self, truth: Classes, p: Floats) -> None:
        self._rankings = [Ranking(truth == number, p[:, number]) for number in range(p.shape[1])]

    def curves(self, weights: Floats | None = None) -> list[Curve]:
        """Return the curve of each class against the rest, each read counting ``weights`` times (default once)."""
        return [ranking.curve(weights) for ranking in self._rankings]


@dataclass(frozen=True)
class ConfusionMatrix:
    """Calls against truth; weights allow counts that are not whole.

    :ivar counts: float64 (K, K), rows by truth, columns by call.
    """

    counts: Floats

    @cached_property
    def truths(self) -> Floats:
        """Reads of each class, (K,)."""
        return np.asarray(self.counts.sum(axis=1))

    @cached_property
    def calls(self) -> Floats:
        """Calls of each class, (K,)."""
        return np.asarray(self.counts.sum(axis=0))

    @cached_property
    def accuracy(self) -> float | None:
        """Share of calls that are right."""
        return _ratio(float(np.trace(self.counts)), float(self.counts.sum()))

    @cached_property
    def recalls(self) -> list[float | None]:
        """Share of the reads of each class that are called so."""
        return [_ratio(*pair) for pair in zip(np.diag(self.counts).tolist(), self.truths.tolist(), strict=True)]

    @cached_property
    def precisions(self) -> list[float | None]:
        """Share of the calls of each class that are right, at the shares of the classes in these reads."""
        return [_ratio(*pair) for pair in zip(np.diag(self.counts).tolist(), self.calls.tolist(), strict=True)]

    @cached_property
    def f1s(self) -> list[float | None]:
        """Harmonic mean of precision and recall of each class; None where neither reads nor calls are of it."""
        both = (self.truths + self.calls).tolist()
        return [_ratio(2 * right, whole) for right, whole in zip(np.diag(self.counts).tolist(), both, strict=True)]

    @cached_property
    def balanced_accuracy(self) -> float | None:
        """Mean of the recalls; None where a class has no reads."""
        return mean_of(self.recalls)

    @cached_property
    def macro_f1(self) -> float | None:
        """Mean of the F1 of the classes; None where a class has no reads, whatever is called."""
        return mean_of(self.f1s) if (self.truths > 0).all() else None

    @cached_property
    def mcc(self) -> float | None:
        """Matthews correlation coefficient of K classes (Gorodkin 2004).

        0 where all reads are called alike, None where all reads are of one class.
        """
        whole = float(self.counts.sum())
        of_truths = whole**2 - float(self.truths @ self.truths)
        if of_truths <= 0:
            return None
        product = of_truths * (whole**2 - float(self.calls @ self.calls))
        agreement = float(np.trace(self.counts)) * whole - float(self.truths @ self.calls)
        return agreement / product**0.5 if product > 0 else 0.0


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def confusion_matrix(
    truth: Classes, called: Classes, num_classes: int, weights: Floats | None = None
) -> ConfusionMatrix:
    """Count calls against truth, each read ``weights`` times (default once)."""
    counts = np.bincount(truth * num_classes + called, weights=weights, minlength=num_classes**2)
    return ConfusionMatrix(counts.reshape(num_classes, num_classes).astype(np.float64))


def ranks_of_truth(truth: Classes, p: Floats) -> Classes:
    """Return how many classes come before the true one when they are ordered by probability, int64 (n,).

    0 is a right call. Of equally probable classes the first of the labels comes first, as in ``argmax``.
    """
    own = p[np.arange(len(p)), truth][:, None]
    earlier = np.arange(p.shape[1]) < truth[:, None]
    return np.asarray(((p > own) | ((p == own) & earlier)).sum(axis=1), dtype=np.int64)


def share(chosen: Bools, weights: Floats | None = None) -> float | None:
    """Return the weighted share of reads that are chosen; None without reads."""
    return _mean(chosen.astype(np.float64), weights)


def brier(truth: Classes, p: Floats, weights: Floats | None = None) -> float | None:
    """Return the mean over reads of the squared differences of probability and truth, summed over classes: 0 to 2 (Brier 1950).

    The Brier score of two states counts one class only, so it is half of this.
    """
    right = np.zeros_like(p)
    right[np.arange(len(p)), truth] = 1
    return _mean(((p - right) ** 2).sum(axis=1), weights)


def log_loss(truth: Classes, p: Floats, weights: Floats | None = None) -> float | None:
    """Return the mean of -ln of the probability that was given to the truth, which counts as 1e-12 where it is less."""
    return _mean(-np.log(np.maximum(p[np.arange(len(p)), truth], 1e-12)), weights)


def _mean(values: Floats, weights: Floats | None) -> float | None:
    total = float(len(values)) if weights is None else float(weights.sum())
    return _ratio(float(np.sum(values if weights is None else values * weights)), total)
